//! `uts explain`.

mod differences;

use super::{Failure, properties};
use crate::args::ExplainArgs;
use crate::given::PathGiven;
use crate::link::Transport;
use crate::ui::lines;

/// Runs `uts explain`.
///
/// # Errors
/// [`Failure::Usage`] for what cannot be read, [`Failure::Failed`] for requirements that contradict
/// each other.
pub fn run<T: Transport>(transport: &T, args: &ExplainArgs) -> Result<(), Failure> {
    if let Some([first, second]) = args.diff.as_deref() {
        return differences::run(args, first, second);
    }
    let properties = properties(&args.wanted)?;
    let path = PathGiven::parse(&args.path).map_err(Failure::Usage)?;
    let text =
        transport.explain(&properties, &path, args.why_not.as_deref(), args.json).map_err(Failure::Failed)?;
    lines::print(&text);
    Ok(())
}
