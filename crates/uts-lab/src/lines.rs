//! Lines for people, who may stop reading at any time (`| head`).
//!
//! What a program under test, or its peer, has said may stand in them: control characters are shown, not obeyed.

use core::fmt::Display;
use uts::printable;
use uts_end::output::{Lost, Output};

/// The longest line, in characters. What is written for programs (JSON) may be long; text of a peer is short where it arises.
const LINE_CHARS_MAX: usize = 1 << 20;

/// Writes a line to standard output at once, so that a reader at the other end of a pipe sees it.
///
/// # Errors
/// [`Lost`]: who only prints ends with it, and who has more to do need not care, for it is noted.
pub(crate) fn print_line(line: &str) -> Result<(), Lost> {
    Output::Out.line(&printable::lines(line, LINE_CHARS_MAX))
}

/// Writes a line to standard error. That it is lost is no reason not to go on, and is noted.
pub(crate) fn tell_line(line: impl Display) {
    let _ = Output::Err.line(&printable::lines(&line.to_string(), LINE_CHARS_MAX));
}
