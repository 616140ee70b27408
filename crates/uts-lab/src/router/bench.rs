//! How true and how fast RouterPC is on this machine.

use super::RouterError;

/// What a probe is to do.
#[derive(Debug, Clone, clap::Args)]
pub struct ProbeArguments {}

/// Measures.
pub fn run(_seconds: u32) -> Result<String, RouterError> {
    Ok(String::new())
}
/// Is a program.
pub fn probe(_arguments: ProbeArguments) -> Result<(), RouterError> {
    Ok(())
}
