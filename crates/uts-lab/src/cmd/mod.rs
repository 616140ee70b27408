//! The subcommands, a file each: its arguments, and what it prints.

pub mod demo;
pub mod doctor;
pub mod end;
pub mod list;
mod path_options;
pub mod relay;
pub mod report;
pub mod router;
pub mod run;
pub mod set;

use anyhow::{Context, Result};
use std::io::{self, Write};

/// Writes a line at once, so that a reader at the other end of a pipe sees it.
///
/// # Errors
/// Nobody reads any more, or the line cannot be written.
fn print_line(line: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}
