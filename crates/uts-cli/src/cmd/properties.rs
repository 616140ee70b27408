//! `uts properties`: what can be asked of the transport, from the tables that it is read by.

use super::Failure;
use crate::args::PropertiesArgs;
use crate::ui::lines;
use serde_json::{Value, json};
use uts::requirements::{Effect, NAMED, PREFIX, PROPERTIES};
use uts::{Function, Requirements};
use uts_engine::named;
use uts_functions::library;

/// Width of lines, in characters: as terminals have at least.
const COLUMNS: usize = 79;

/// Property that can be asked for.
struct Row {
    name: String,
    /// Values that it takes.
    values: String,
    /// Value that a copy asks unless told otherwise.
    default: String,
    meaning: String,
    /// Beyond that.
    notes: Vec<&'static str>,
    effect: &'static str,
    is_fixed: bool,
}

/// Prints them.
///
/// # Errors
/// [`Failure::Failed`] if no name has the part that was asked for.
pub fn run(args: &PropertiesArgs) -> Result<(), Failure> {
    let part = args.part.as_deref().unwrap_or_default();
    let wanted = |row: &Row| row.name.to_lowercase().contains(&part.to_lowercase());
    let rows: Vec<Row> = rows().filter(wanted).collect();
    if rows.is_empty() {
        return Err(Failure::Failed(format!("no property has `{part}` in its name")));
    }
    for row in &rows {
        if args.json {
            lines::print_json(row.json());
        } else {
            lines::print(&row.text());
        }
    }
    Ok(())
}

fn rows() -> impl Iterator<Item = Row> {
    let copies = Requirements::bulk();
    let properties = PROPERTIES.iter().map(move |property| {
        let effect = match property.effect {
            Effect::Steers => "steers",
            Effect::Connection => "connection",
            Effect::Accepted => "accepted",
        };
        let is_accepted = property.effect == Effect::Accepted;
        let notes = [
            (is_accepted, "accepted, but without effect in UTS"),
            (property.fixed, "fixed once the connection is established"),
        ];
        Row {
            name: property.name.to_owned(),
            values: property.expected.to_owned(),
            default: property.value(&copies),
            meaning: property.what.to_owned(),
            notes: notes.into_iter().filter_map(|(holds, note)| holds.then_some(note)).collect(),
            effect,
            is_fixed: property.fixed,
        }
    });
    let mechanisms = Function::ALL.iter().map(|function| {
        let names: Vec<&str> = library::of(*function).into_iter().map(|mechanism| mechanism.name).collect();
        Row {
            name: format!("{PREFIX}{}", function.name()),
            values: format!("a mechanism ({}), with parameters as in NAME(k=4)", names.join(", ")),
            default: "chosen".to_owned(),
            meaning: format!("the mechanism of {}; the same as --profile", function.name()),
            notes: Vec::new(),
            effect: "steers",
            is_fixed: false,
        }
    });
    let names: Vec<&str> = named::all().iter().map(|profile| profile.name.as_str()).collect();
    let profile = Row {
        name: NAMED.to_owned(),
        values: format!("a name ({})", names.join(", ")),
        default: "none".to_owned(),
        meaning: "all that a named profile lists; see uts functions --profiles".to_owned(),
        notes: Vec::new(),
        effect: "steers",
        is_fixed: false,
    };
    properties.chain([profile]).chain(mechanisms)
}

impl Row {
    fn text(&self) -> String {
        let Row { name, values, default, meaning, notes, .. } = self;
        let mut text = format!("{name} [default: {default}]");
        for line in [meaning.as_str(), values].into_iter().chain(notes.iter().copied()) {
            indent(&mut text, line);
        }
        text
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name, "default": self.default, "values": self.values, "meaning": self.meaning,
            "effect": self.effect, "fixed": self.is_fixed,
        })
    }
}

/// Adds a paragraph, between words of which there may be a new line.
pub(super) fn indent(text: &mut String, paragraph: &str) {
    let mut column = COLUMNS;
    for word in paragraph.split_whitespace() {
        let chars = word.chars().count();
        if column + 1 + chars > COLUMNS {
            text.push_str("\n   ");
            column = 3;
        }
        text.push(' ');
        text.push_str(word);
        column += 1 + chars;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_is_listed_once_and_takes_its_default() {
        let names: Vec<String> = rows().map(|row| row.name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert_eq!(names.len(), PROPERTIES.len() + 1 + Function::ALL.len());
        for row in rows().filter(|row| !row.name.starts_with(NAMED)) {
            let mut requirements = Requirements::bulk();
            requirements.set(&row.name, &row.default).unwrap_or_else(|e| panic!("{}: {e}", row.name));
            assert_eq!(requirements, Requirements::bulk(), "{}", row.name);
            assert!(!row.meaning.is_empty() && !row.values.is_empty());
        }
        for row in rows() {
            let text = row.text();
            assert!(
                text.lines().count() >= 3 && text.lines().all(|line| line.chars().count() <= COLUMNS),
                "{text}"
            );
        }
    }
}
