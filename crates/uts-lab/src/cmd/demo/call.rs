//! `uts-lab demo call`.

use super::command_line;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use uts_demo::call;

/// Have three people talk to and see each other, in virtual time
///
/// Anna and Ben talk. Clara joins by the line that Anna uses, which is too narrow for both, and the
/// levels of their pictures fall. In mid-call she goes over to a mobile network. Levels return.
/// Takes some seconds, and leaves a page that shows what each saw and heard.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Directory for report.html and call.json
    #[arg(long, value_name = "DIR", default_value = "call-out")]
    out: PathBuf,
    /// Seed of what becomes of the packets
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Demonstrates a call.
///
/// # Errors
/// See [`call::run`] and [`call::write`].
pub fn run(arguments: &Arguments) -> Result<()> {
    let record = call::run(arguments.seed, &command_line())?;
    let page = call::write(&arguments.out, &record)?;
    Ok(crate::cmd::print_line(&format!("{}", page.display()))?)
}
