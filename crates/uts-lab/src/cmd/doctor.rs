//! `uts-lab doctor`.

use super::print_line;
use crate::doctor;
use crate::worlds::ends::Programs;
use anyhow::{Context, Result};
use clap::Args;

/// Say what this machine can and cannot do, and the one command that would allow the rest
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print a JSON object per line
    #[arg(long)]
    json: bool,
}

/// Examines the machine; says whether every world can run, whatever else is missing.
///
/// # Errors
/// This program does not know where it is.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let program = std::env::current_exe().context("this program does not know where it is")?;
    let findings = doctor::examine(&Programs::new(program, &["end"]));
    for finding in &findings {
        if arguments.json {
            print_line(&serde_json::to_string(finding)?)?;
        } else {
            print_line(finding.to_string().trim_end())?;
        }
    }
    Ok(findings.iter().filter(|finding| finding.needed).all(|finding| finding.can))
}
