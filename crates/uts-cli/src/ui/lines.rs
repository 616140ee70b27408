//! Where text leaves the program: here, and nowhere else. What a peer has said may stand in any of it.

use serde_json::Value;
use std::borrow::Borrow;
use std::fmt::Display;
use std::io::{self, Write};
use uts::printable;

/// The longest line, in characters: beyond the longest path (4,096 bytes) with what is said of it.
pub const LINE_CHARS_MAX: usize = 5_000;

/// Text as one line that may be shown anywhere.
pub fn line(text: impl Borrow<str>) -> String {
    printable::line(text.borrow(), LINE_CHARS_MAX)
}

/// Writes a line. That nobody reads any more is no reason not to go on.
pub fn write_line(out: &mut impl Write, text: impl Borrow<str>) {
    let _ = writeln!(out, "{}", line(text)).and_then(|()| out.flush());
}

/// Writes text of several lines that ends with a line.
pub fn write_lines(out: &mut impl Write, text: &str) {
    let _ = writeln!(out, "{}", printable::lines(text.trim_end(), LINE_CHARS_MAX)).and_then(|()| out.flush());
}

/// The longest text in JSON, in characters: the longest path, each byte of which may be shown as six.
const JSON_CHARS_MAX: usize = 6 * 4096;

/// Writes one JSON object as a line.
pub fn write_json(out: &mut impl Write, mut object: Value) {
    shorten(&mut object);
    let _ = writeln!(out, "{}", printable::json(&object.to_string())).and_then(|()| out.flush());
}

/// Texts of a length that only somebody hostile writes are shortened, as they are for people.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > JSON_CHARS_MAX => *text = printable::line(text, JSON_CHARS_MAX),
        Value::Array(values) => values.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

/// Writes a line to standard error.
pub fn tell(text: impl Display) {
    write_line(&mut io::stderr(), text.to_string());
}

/// Writes text of several lines to standard error.
pub fn tell_lines(text: &str) {
    write_lines(&mut io::stderr(), text);
}

/// Writes a question to standard error, behind which the answer is typed.
///
/// # Errors
/// It cannot be asked.
pub fn ask(text: impl Display) -> io::Result<()> {
    let mut out = io::stderr();
    write!(out, "{} ", line(text.to_string())).and_then(|()| out.flush())
}

/// Writes text of several lines to standard output.
pub fn print(text: &str) {
    write_lines(&mut io::stdout().lock(), text);
}
