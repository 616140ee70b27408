//! Reads tables of TOML that know where they stand, and reports everything that is wrong with them.

use super::problem::Sink;
use crate::names::unknown;
use core::fmt::Display;
use serde_json::Value;
use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value with its place.
pub(super) type Node<'i> = Spanned<DeValue<'i>>;

/// A table under its name. A value that is missing or wrong is `None`, and the error has been
/// reported to the sink.
pub(super) struct Section<'s, 'i> {
    /// Dotted name; empty for the file itself.
    pub name: String,
    /// Where the table or its header is.
    pub span: Range<usize>,
    table: &'s DeTable<'i>,
    sink: &'s Sink,
}

impl<'s, 'i> Section<'s, 'i> {
    pub(super) fn new(
        name: impl Into<String>,
        span: Range<usize>,
        table: &'s DeTable<'i>,
        sink: &'s Sink,
    ) -> Self {
        Section { name: name.into(), span, table, sink }
    }

    pub(super) fn key(&self, key: &str) -> String {
        if key.is_empty() {
            return self.name.clone();
        }
        if self.name.is_empty() { key.into() } else { format!("{}.{key}", self.name) }
    }

    /// Tells that a value is wrong.
    pub(super) fn wrong(&self, span: Range<usize>, key: &str, message: impl Into<String>) {
        self.sink.add(span, self.key(key), message);
    }

    pub(super) fn get(&self, key: &str) -> Option<&'s Node<'i>> {
        self.table.get(key)
    }

    /// Where a value is, or else the section.
    pub(super) fn span_of(&self, key: &str) -> Range<usize> {
        self.get(key).map_or(self.span.clone(), Spanned::span)
    }

    /// All keys and values, in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'s str, Range<usize>, &'s Node<'i>)> {
        self.table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value))
    }

    /// Tells of keys that are none of these.
    pub(super) fn only(&self, known: &[&str]) {
        for (key, span, _) in self.entries() {
            if !known.contains(&key) {
                self.wrong(span, key, unknown("key", key, known.iter().copied()));
            }
        }
    }

    /// Tells if a key is missing.
    pub(super) fn require(&self, key: &str, expected: &str) {
        if self.get(key).is_none() {
            self.wrong(self.span.clone(), key, format!("is missing; expected {expected}"));
        }
    }

    pub(super) fn string(&self, key: &str, expected: &str) -> Option<(&'s str, Range<usize>)> {
        let node = self.get(key)?;
        match node.get_ref() {
            DeValue::String(text) => Some((text.as_ref(), node.span())),
            other => {
                self.mistyped(node.span(), key, expected, other);
                None
            }
        }
    }

    /// A text that is read further.
    pub(super) fn parsed<T, E: Display>(
        &self,
        key: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let (text, span) = self.string(key, expected)?;
        parse(text).map_err(|e| self.wrong(span, key, e.to_string())).ok()
    }

    pub(super) fn duration(&self, key: &str) -> Option<Duration> {
        const EXPECTED: &str = "a time with its unit, as \"20ms\" or \"1.5s\"";
        self.parsed(key, EXPECTED, |text| uts_units::time(text).map_err(|error| error.about(text, EXPECTED)))
    }

    pub(super) fn whole(&self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let node = self.get(key)?;
        let expected = format!("a whole number between {} and {}", range.start(), range.end());
        let DeValue::Integer(integer) = node.get_ref() else {
            self.mistyped(node.span(), key, &expected, node.get_ref());
            return None;
        };
        match u64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(value) if range.contains(&value) => Some(value),
            _ => {
                self.wrong(node.span(), key, format!("{integer} is not {expected}"));
                None
            }
        }
    }

    pub(super) fn boolean(&self, key: &str) -> Option<bool> {
        let node = self.get(key)?;
        match node.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            other => {
                self.mistyped(node.span(), key, "true or false", other);
                None
            }
        }
    }

    pub(super) fn array(&self, key: &str, expected: &str) -> Option<&'s [Node<'i>]> {
        let node = self.get(key)?;
        match node.get_ref() {
            DeValue::Array(array) => Some(array),
            other => {
                self.mistyped(node.span(), key, expected, other);
                None
            }
        }
    }

    pub(super) fn strings(&self, key: &str, expected: &str) -> Option<Vec<(&'s str, Range<usize>)>> {
        let mut found = Vec::new();
        for node in self.array(key, expected)? {
            match node.get_ref() {
                DeValue::String(text) => found.push((text.as_ref(), node.span())),
                other => self.mistyped(node.span(), key, expected, other),
            }
        }
        Some(found)
    }

    /// The table under a key, as a section.
    pub(super) fn section(&self, key: &str) -> Option<Section<'s, 'i>> {
        let node = self.get(key)?;
        self.as_section(key, node)
    }

    /// A table of tables: `[transport.cubic]` and its like.
    pub(super) fn sections(&self, key: &str) -> Vec<(String, Section<'s, 'i>)> {
        let Some(section) = self.section(key) else { return Vec::new() };
        let mut found = Vec::new();
        for (name, span, node) in section.entries() {
            if let Err(message) = check_name(name) {
                self.wrong(span, &format!("{key}.{name}"), message);
                continue;
            }
            if let Some(mut inner) = section.as_section(name, node) {
                inner.span = span;
                found.push((name.to_owned(), inner));
            }
        }
        found
    }

    /// An array of tables: `[[sweep]]` and its like.
    pub(super) fn list(&self, key: &str) -> Vec<Section<'s, 'i>> {
        let Some(array) = self.array(key, &format!("tables, written [[{}]]", self.key(key))) else {
            return Vec::new();
        };
        array.iter().filter_map(|node| self.as_section(key, node)).collect()
    }

    fn as_section(&self, key: &str, node: &'s Node<'i>) -> Option<Section<'s, 'i>> {
        match node.get_ref() {
            DeValue::Table(table) => Some(Section::new(self.key(key), node.span(), table, self.sink)),
            other => {
                self.mistyped(node.span(), key, &format!("a table, written [{}]", self.key(key)), other);
                None
            }
        }
    }

    pub(super) fn mistyped(&self, span: Range<usize>, key: &str, expected: &str, got: &DeValue<'_>) {
        self.wrong(span, key, format!("expected {expected}, not {}", a(got.type_str())));
    }
}

/// The same value as JSON, which sweeps change and serde reads.
pub(super) fn to_json(node: &Node<'_>) -> Value {
    match node.get_ref() {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(integer) => {
            let (text, radix) = (integer.as_str(), integer.radix());
            let signed = i64::from_str_radix(text, radix).map(Value::from);
            signed.or_else(|_| u64::from_str_radix(text, radix).map(Value::from)).unwrap_or_default()
        }
        DeValue::Float(float) => Value::from(float.as_str().parse::<f64>().unwrap_or(f64::NAN)),
        DeValue::Boolean(boolean) => Value::from(*boolean),
        DeValue::Datetime(datetime) => Value::from(datetime.to_string()),
        DeValue::Array(array) => array.iter().map(to_json).collect(),
        DeValue::Table(table) => {
            table.iter().map(|(key, node)| (key.get_ref().to_string(), to_json(node))).collect()
        }
    }
}

/// Adds to serde's "unknown field `x`, expected one of `a`, `b`" which one was meant.
pub(super) fn suggest(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let is_choice = message.starts_with("unknown field") || message.starts_with("unknown variant");
    match quoted.next().filter(|_| is_choice) {
        Some(wrong) => {
            let names: HashSet<&str> = quoted.collect();
            match crate::names::nearest(wrong, names) {
                Some(name) => format!("{message}; did you mean `{name}`?"),
                None => message.into(),
            }
        }
        None => message.into(),
    }
}

/// Names become parts of file names and of CSV fields.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.len() <= 40 && name.chars().all(fits) {
        return Ok(());
    }
    Err("a name has 1 to 40 letters, digits, - and _".into())
}

fn a(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {noun}")
}
