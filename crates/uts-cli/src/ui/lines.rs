//! The only place where text leaves the program. Any text may contain what a peer has said. Lost
//! output is noted, and shows in the exit status ([`output::status`]).

use serde_json::{Value, json};
use std::borrow::Borrow;
use std::fmt::Display;
use std::io::Write;
use uts::printable;
use uts_end::output::{self, Output};
use uts_ledger::Row;

pub use uts_end::output::LINE_CHARS_MAX;

/// A message as one line that may be shown anywhere, without the numbers of errors of the system.
pub fn line(text: impl Borrow<str>) -> String {
    printable::line(&printable::unnumbered(text.borrow()), LINE_CHARS_MAX)
}

/// Writes a message as a line; says whether it was written.
pub fn say(out: &mut impl Write, text: impl Borrow<str>) -> bool {
    write(out, line(text))
}

/// Writes a line of results; says whether it was written.
pub fn write_line(out: &mut impl Write, text: impl Borrow<str>) -> bool {
    write(out, printable::line(text.borrow(), LINE_CHARS_MAX))
}

/// Writes text of several lines that ends with a line; says whether it was written.
pub fn write_lines(out: &mut impl Write, text: &str) -> bool {
    write(out, printable::lines(text.trim_end(), LINE_CHARS_MAX))
}

/// At once, as an [`Output`] takes it.
fn write(out: &mut impl Write, mut text: String) -> bool {
    text.push('\n');
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// The longest text in JSON, in characters: the longest path, each byte of which may take six
/// characters.
const JSON_CHARS_MAX: usize = 6 * 4096;

/// Writes one JSON object as a line; says whether it was written.
pub fn write_json(out: &mut impl Write, mut object: Value) -> bool {
    shorten(&mut object);
    write(out, printable::json(&object.to_string()))
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
    say(&mut Output::Err, text.to_string());
}

/// Writes an error to standard error.
pub fn fail(text: impl Display) {
    output::fail(text);
}

/// Writes text of several lines to standard output.
pub fn print(text: &str) {
    write_lines(&mut Output::Out, text);
}

/// Resources of a server, and who holds most of them.
pub fn resources(rows: &[Row]) -> Value {
    let payer = |(name, held): &(String, usize)| json!({"name": line(name.as_str()), "held": held});
    let row = |row: &Row| {
        json!({
            "resource": row.resource.name(), "total": row.total, "held": row.held, "waiting": row.waiting,
            "payers": row.payers.iter().map(payer).collect::<Vec<_>>(),
        })
    };
    rows.iter().map(row).collect()
}

/// Writes one JSON object to standard output, as a line.
pub fn print_json(object: Value) {
    write_json(&mut Output::Out, object);
}
