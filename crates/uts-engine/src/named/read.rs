//! Reads the file of a named profile. All that is wrong with one is said in a line: where, what,
//! and what would be right.

use super::{Kind, Named};
use crate::requirements::{PREFIX, Requirements, nearest};
use core::fmt;
use toml::{Table, Value};
use uts_functions::Function;

/// Why a file is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct BadProfile {
    /// File, and line if it is known.
    pub place: String,
    /// Fault of the file, and what would be right.
    pub why: String,
}

/// The longest file that is read, in bytes: some hundred times the longest of ours.
const FILE_BYTES_MAX: usize = 256 * 1024;

/// Keys that a file may have.
const KEYS: [&str; 8] =
    ["kind", "what", "source", "lacks", "transport_class", "reliability_class", "properties", "profile"];

impl Named {
    /// Reads the text of a profile's file, which is called `file` in errors.
    ///
    /// # Errors
    /// [`BadProfile`] for text that is not TOML, for a key, property, function, mechanism or
    /// parameter that does not exist, and for a value out of range.
    pub fn read(name: &str, file: &str, text: &str) -> Result<Named, BadProfile> {
        Reader { file, text }.read(name)
    }
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    fn read(&self, name: &str) -> Result<Named, BadProfile> {
        if self.text.len() > FILE_BYTES_MAX {
            return Err(self.bad("", format!("longer than {FILE_BYTES_MAX} bytes, no profile is")));
        }
        let table: Table = self.text.parse().map_err(|error: toml::de::Error| {
            let place = error.span().map_or_else(|| self.file.to_owned(), |span| self.at(span.start));
            BadProfile { place, why: error.message().replace('\n', ", ") }
        })?;
        self.known(table.keys(), "key", &KEYS)?;
        let kind = self.text_of(&table, "kind")?;
        let known_kinds = Kind::ALL.map(Kind::word);
        let kind = match Kind::ALL.into_iter().find(|k| kind.as_deref().is_none_or(|kind| k.word() == kind)) {
            Some(known) => kind.map_or(Kind::Own, |_| known),
            None => {
                let kind = kind.unwrap_or_default();
                return Err(
                    self.bad("kind", format!("no kind `{kind}` (there are: {})", known_kinds.join(", ")))
                );
            }
        };
        let mut named = Named {
            name: name.to_owned(),
            kind,
            what: self.text_of(&table, "what")?.unwrap_or_default(),
            source: self.text_of(&table, "source")?,
            lacks: self.lacks(&table)?,
            transport_class: self.text_of(&table, "transport_class")?,
            reliability_class: self.text_of(&table, "reliability_class")?,
            settings: self.texts(&table, "properties")?,
        };
        let functions: Vec<&str> = Function::ALL.iter().map(|f| f.name()).collect();
        let pins = self.texts(&table, "profile")?;
        self.known(pins.iter().map(|(function, _)| function), "function", &functions)?;
        named.settings.extend(pins.into_iter().map(|(f, mechanism)| (format!("{PREFIX}{f}"), mechanism)));
        let mut requirements = Requirements::default();
        for (name, value) in &named.settings {
            let key = name.strip_prefix(PREFIX).unwrap_or(name);
            requirements.set(name, value).map_err(|error| self.bad(key, error.to_string()))?;
        }
        Ok(named)
    }

    fn lacks(&self, table: &Table) -> Result<Vec<String>, BadProfile> {
        let Some(value) = table.get("lacks") else { return Ok(Vec::new()) };
        let texts = value.as_array().map(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        let texts =
            texts.flatten().ok_or_else(|| self.bad("lacks", "`lacks` is not a list of texts".into()))?;
        Ok(texts.into_iter().map(str::to_owned).collect())
    }

    fn text_of(&self, table: &Table, key: &str) -> Result<Option<String>, BadProfile> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let wrong = || self.bad(key, format!("`{key}` is not a text in quotation marks"));
        table.get(key).map(|value| text(value).ok_or_else(wrong)).transpose()
    }

    /// The names and texts of a table within the table.
    fn texts(&self, table: &Table, key: &str) -> Result<Vec<(String, String)>, BadProfile> {
        let Some(value) = table.get(key) else { return Ok(Vec::new()) };
        let inner = value.as_table().ok_or_else(|| self.bad(key, format!("`{key}` is not a table")))?;
        let pair = |name: &String| Ok((name.clone(), self.text_of(inner, name)?.unwrap_or_default()));
        inner.keys().map(pair).collect()
    }

    fn known<'k>(
        &self,
        mut given: impl Iterator<Item = &'k String>,
        kind: impl fmt::Display,
        known: &[&str],
    ) -> Result<(), BadProfile> {
        let Some(name) = given.find(|name| !known.contains(&name.as_str())) else { return Ok(()) };
        let hint = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are: {}", known.join(", ")),
        };
        Err(self.bad(name, format!("there is no {kind} `{name}`; {hint}")))
    }

    /// An error at the line where a key stands.
    fn bad(&self, key: &str, why: String) -> BadProfile {
        let is_of_key = |line: &str| {
            let line = line.trim_start().trim_start_matches(['[', '"']);
            let rest = line.strip_prefix(key).map(|rest| rest.trim_start_matches('"').trim_start());
            rest.is_some_and(|rest| rest.starts_with(['=', ']', '.']))
        };
        let line = self.text.lines().position(is_of_key).filter(|_| !key.is_empty());
        let place = line.map_or_else(|| self.file.to_owned(), |line| format!("{}:{}", self.file, line + 1));
        BadProfile { place, why }
    }

    fn at(&self, byte: usize) -> String {
        let before = self.text.get(..byte).unwrap_or(self.text);
        format!("{}:{}", self.file, before.matches('\n').count() + 1)
    }
}
