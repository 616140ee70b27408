//! `uts cp`.

mod run;

use super::{Failure, interrupted, limits, properties};
use crate::args::CpArgs;
use crate::link::{Link, Transport};
use crate::target::{Job, Outside};
use crate::ui::{self, Ui};
use run::Run;
use std::future::Future;
use std::sync::Arc;

/// The line that is told when the user interrupts.
pub const INTERRUPTED: &str = "interrupted; run the same command again to continue";

/// Runs `uts cp`.
///
/// # Errors
/// See [`Failure`].
pub async fn run<T: Transport>(transport: &T, args: &CpArgs) -> Result<(), Failure> {
    let takes_output = Job::parse(&args.paths).is_ok_and(|job| job.takes_output());
    let ui = ui::choose(args.json, args.quiet, takes_output);
    let result = copy(transport, args, ui.clone(), interrupted()).await;
    if let Some(line) = result.as_ref().err().and_then(Failure::line) {
        ui.failed(line);
    }
    result
}

/// Copies until done or `interrupt` ends.
pub(crate) async fn copy<T: Transport>(
    transport: &T,
    args: &CpArgs,
    ui: Arc<dyn Ui>,
    interrupt: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let mut job = Job::parse(&args.paths).map_err(Failure::Usage)?;
    if let (Job::GetStream { destination: Outside::Standard, .. }, true) = (&job, args.json) {
        return Err(Failure::Usage("--json: standard output is for the file".into()));
    }
    if args.delete && !(args.recursive && job.can_go_on()) {
        return Err(Failure::Usage("--delete: what is deleted is in directories; copy them with -r".into()));
    }
    let can_go_on = job.can_go_on();
    let may_ask = !args.json && !args.quiet;
    let options = args.reach.options(job.host_mut(), asked(args)?, may_ask)?;
    let run = Run::new(transport, args, job, options, ui)?;
    tokio::pin!(interrupt);
    tokio::select! {
        outcome = run.go() => outcome,
        () = &mut interrupt => {
            let has_begun = run.link().is_some();
            if let Some(link) = run.link() {
                link.close(1, "interrupted by the user").await;
            }
            let why = if has_begun && can_go_on { INTERRUPTED } else { "interrupted" };
            Err(Failure::Interrupted(why.into()))
        }
    }
}

/// The properties asked of the transport. The end that sends keeps a limit: this end, or the peer
/// because of how fast this end receives.
fn asked(args: &CpArgs) -> Result<Vec<(String, String)>, Failure> {
    let mut asked = limits("--bwlimit", &["maxSendRate", "maxRecvRate"], args.bwlimit.as_deref())?;
    // What is said by name counts more.
    asked.extend(properties(&args.wanted)?);
    Ok(asked)
}
