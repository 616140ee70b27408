//! Lines for people, who may stop reading at any time (`| head`), at which `println` and `eprintln` panic.
//!
//! What a program under test, or its peer, has said may stand in them: control characters are shown, not obeyed.

use anyhow::{Context, Result};
use core::fmt::Display;
use std::io::{self, Write};
use uts::printable;

/// The longest line, in characters. What is written for programs (JSON) may be long; text of a peer is short where it arises.
const LINE_CHARS_MAX: usize = 1 << 20;

/// Writes a line at once, so that a reader at the other end of a pipe sees it.
///
/// # Errors
/// Nobody reads any more, or the line cannot be written.
pub(crate) fn print_line(line: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", printable::lines(line, LINE_CHARS_MAX))
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

/// Writes a line to standard error. That nobody reads it any more is no reason not to go on.
pub(crate) fn tell_line(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", printable::lines(&line.to_string(), LINE_CHARS_MAX));
}
