//! Lines for people, who may stop reading at any time (`| head`), at which `println` and `eprintln` panic.

use anyhow::{Context, Result};
use core::fmt::Display;
use std::io::{self, Write};

/// Writes a line at once, so that a reader at the other end of a pipe sees it.
///
/// # Errors
/// Nobody reads any more, or the line cannot be written.
pub(crate) fn print_line(line: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Writes a line to standard error. That nobody reads it any more is no reason not to go on.
pub(crate) fn tell_line(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
