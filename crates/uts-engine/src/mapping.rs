//! The administrator's mapping: names of functions and mechanisms, and the numbers by which they
//! go over the wire (UTS thesis section 5.3.2, tables 5.1 and 5.2).
//!
//! An end without a file has the numbers of the specification. A file changes what an end writes.
//! Its peer is told what differs (packets.md P-67), so that both mean the same.

use crate::requirements::nearest;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use uts_functions::mechanism::Mechanism;
use uts_functions::{Function, Numbering, library};

/// The longest file that is read, in bytes: some twenty times one that gives every number.
pub const MAPPING_BYTES_MAX: usize = 64 * 1024;

/// Table of the numbers of functions.
const FUNCTIONS: &str = "functions";

/// Why a file is no mapping.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct BadMapping {
    /// File, and line if it is known.
    pub place: String,
    /// Fault of the file, and what would be right.
    pub why: String,
}

/// Numbers of an end's own, and the mechanisms that its administrator does not list.
///
/// ```
/// use uts_engine::Mapping;
///
/// let text = "[detection]\nnone = 0\ninternet-16 = 2\ncrc-32c = 1\n";
/// assert!(Mapping::read("numbers.toml", text).is_ok());
/// let wrong = Mapping::read("numbers.toml", "[detection]\ncrc-23 = 1\n").unwrap_err();
/// assert!(wrong.to_string().starts_with("numbers.toml:2: "), "{wrong}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    numbering: Arc<Numbering>,
    unlisted: Vec<(Function, u8)>,
}

impl Mapping {
    /// Reads the text of a file, which is called `file` in errors. Mechanisms of a program's own
    /// must be registered before.
    ///
    /// `[functions]` gives numbers to functions; those that are left out keep theirs. A table with
    /// the name of a function gives numbers to its mechanisms. It has the mandatory ones; others
    /// that are left out are not used by this end. A function without a table keeps the numbers of
    /// the specification.
    ///
    /// # Errors
    /// [`BadMapping`] for text that is not TOML, for a name that does not exist, for a number that
    /// is out of range or given twice, and for a mandatory mechanism that is left out.
    pub fn read(file: &str, text: &str) -> Result<Mapping, BadMapping> {
        Reader { file, text }.read()
    }

    /// The numbers.
    pub(crate) fn numbering(&self) -> &Arc<Numbering> {
        &self.numbering
    }

    /// Mechanisms of functions that the file lists, and that it leaves out.
    pub(crate) fn unlisted(&self) -> &[(Function, u8)] {
        &self.unlisted
    }

    /// A file with the numbers that hold without one, for administrators to begin with.
    pub fn example() -> String {
        let mut text =
            String::from("# Numbers of functions and of their mechanisms, as this end writes them.\n");
        text.push_str("# A mechanism that its function's table leaves out is not used.\n\n[functions]\n");
        for function in Function::ALL {
            text.push_str(&format!("{} = {}\n", function.name(), function.number()));
        }
        for function in Function::ALL {
            text.push_str(&format!("\n[{}]\n", function.name()));
            for m in library::of(*function) {
                let mandatory = if m.mandatory { " # mandatory" } else { "" };
                text.push_str(&format!("{} = {}{mandatory}\n", m.name, m.number));
            }
        }
        text
    }
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

type Table<'t, 'a> = &'t Spanned<DeValue<'a>>;

/// Name and number, and the place of the number.
type Given<'t> = (&'t str, u8, Range<usize>);

impl<'a> Reader<'a> {
    fn read(&self) -> Result<Mapping, BadMapping> {
        if self.text.len() > MAPPING_BYTES_MAX {
            let why = format!("longer than {MAPPING_BYTES_MAX} bytes, no mapping is");
            return Err(BadMapping { place: self.file.to_owned(), why });
        }
        let root = DeTable::parse(self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            self.bad(&span, error.message().replace('\n', ", "))
        })?;
        let mut mapping = Mapping { numbering: Arc::default(), unlisted: Vec::new() };
        let mut numbering = Numbering::of_library();
        for (name, value) in root.get_ref() {
            if name.get_ref() == FUNCTIONS {
                self.functions(value, &mut numbering)?;
            } else {
                let known = Function::ALL.iter().map(|f| f.name()).chain([FUNCTIONS]);
                let Some(function) = Function::from_name(name.get_ref()) else {
                    return Err(self.unknown(&name.span(), "table", name.get_ref(), known));
                };
                self.mechanisms(function, &name.span(), value, &mut numbering, &mut mapping.unlisted)?;
            }
        }
        mapping.numbering = Arc::new(numbering);
        Ok(mapping)
    }

    fn functions(&self, table: Table<'_, 'a>, numbering: &mut Numbering) -> Result<(), BadMapping> {
        let mut given = BTreeMap::new();
        for (name, number, span) in self.numbers(FUNCTIONS, table)? {
            let known = Function::ALL.iter().map(|f| f.name());
            let Some(function) = Function::from_name(name) else {
                return Err(self.unknown(&span, "function", name, known));
            };
            given.insert(function, (number, span));
        }
        let mut taken: BTreeMap<u8, Function> = BTreeMap::new();
        for function in Function::ALL {
            let number = given.get(function).map_or(function.number(), |(number, _)| *number);
            numbering.give_function(*function, number);
            if let Some(other) = taken.insert(number, *function) {
                let span = given.get(function).or(given.get(&other)).map_or(0..0, |(_, span)| span.clone());
                let both = format!("{} and {}", other.name(), function.name());
                return Err(
                    self.bad(&span, format!("{number} is the number of both {both}; expected one each"))
                );
            }
        }
        Ok(())
    }

    fn mechanisms(
        &self,
        function: Function,
        at: &Range<usize>,
        table: Table<'_, 'a>,
        numbering: &mut Numbering,
        unlisted: &mut Vec<(Function, u8)>,
    ) -> Result<(), BadMapping> {
        let library = library::of(function);
        let mut taken: BTreeMap<u8, &Mechanism> = BTreeMap::new();
        let mut listed = Vec::new();
        for (name, number, span) in self.numbers(function.name(), table)? {
            let Some(mechanism) = library.iter().copied().find(|m| m.name == name) else {
                let known = library.iter().map(|m| m.name);
                return Err(self.unknown(&span, &format!("mechanism of {}", function.name()), name, known));
            };
            if let Some(other) = taken.insert(number, mechanism) {
                let both = format!("{} and {}", other.name, mechanism.name);
                return Err(
                    self.bad(&span, format!("{number} is the number of both {both}; expected one each"))
                );
            }
            numbering.give(mechanism, number);
            listed.push(mechanism.number);
        }
        for mechanism in library.iter().filter(|m| !listed.contains(&m.number)) {
            if mechanism.mandatory {
                let (name, function) = (mechanism.name, function.name());
                let why =
                    format!("[{function}] lacks {name}, which every end has; expected `{name} = NUMBER`");
                return Err(self.bad(at, why));
            }
            numbering.take(mechanism);
            unlisted.push((function, mechanism.number));
        }
        Ok(())
    }

    /// Names and numbers of a table, in the order in which they stand.
    fn numbers<'t>(&self, name: &str, table: Table<'t, 'a>) -> Result<Vec<Given<'t>>, BadMapping> {
        let Some(entries) = table.get_ref().as_table() else {
            return Err(self.bad(&table.span(), format!("`{name}` is not a table; expected [{name}]")));
        };
        let number = |(name, value): (&'t Spanned<_>, &'t Spanned<DeValue<'a>>)| {
            let name: &'t std::borrow::Cow<'a, str> = name.get_ref();
            let number = value.get_ref().as_integer();
            let number = number.and_then(|n| i64::from_str_radix(n.as_str(), n.radix()).ok());
            let number = number.and_then(|number| u8::try_from(number).ok());
            let why = || format!("the number of {name} is {}; expected 0 to 255", &self.text[value.span()]);
            Ok((&**name, number.ok_or_else(|| self.bad(&value.span(), why()))?, value.span()))
        };
        let mut numbers = entries.iter().map(number).collect::<Result<Vec<_>, _>>()?;
        numbers.sort_by_key(|(_, _, span)| span.start);
        Ok(numbers)
    }

    fn unknown<'k>(
        &self,
        span: &Range<usize>,
        kind: &str,
        name: &str,
        known: impl Iterator<Item = &'k str> + Clone,
    ) -> BadMapping {
        let hint = match nearest(name, known.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are: {}", known.collect::<Vec<_>>().join(", ")),
        };
        self.bad(span, format!("there is no {kind} `{name}`; {hint}"))
    }

    fn bad(&self, span: &Range<usize>, why: String) -> BadMapping {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        BadMapping { place: format!("{}:{}", self.file, before.matches('\n').count() + 1), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        Mapping::read("numbers.toml", text).expect_err(text).to_string()
    }

    #[test]
    fn a_file_gives_numbers_and_leaves_the_rest() {
        let text =
            "[functions]\nfec = 8\nflow = 4\n\n[detection]\ncrc-32c = 1\nnone = 0\ninternet-16 = 0x2\n";
        let mapping = Mapping::read("numbers.toml", text).expect("right");
        let numbering = mapping.numbering();
        let crc = library::by_name(Function::Detection, "crc-32c").expect("it exists").number;
        assert_eq!(numbering.mechanism(Function::Detection, crc), 1);
        assert_eq!((numbering.function(Function::Fec), numbering.function(Function::Flow)), (8, 4));
        assert_eq!(numbering.mechanism(Function::Congestion, 2), 2);
        assert!(mapping.unlisted().contains(&(Function::Detection, 7)), "what is not listed is not used");
        assert!(mapping.unlisted().iter().all(|(function, _)| *function == Function::Detection));
    }

    #[test]
    fn the_example_changes_nothing() {
        let mapping = Mapping::read("numbers.toml", &Mapping::example()).expect("right");
        assert_eq!(mapping.unlisted(), []);
        assert_eq!(mapping.numbering().difference(&Numbering::default()), None);
        assert_eq!(Mapping::read("none.toml", "").expect("right").unlisted(), []);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let least = "[detection]\nnone = 0\ninternet-16 = 1\n";
        for (text, line, words) in [
            ("[detectoin]\n", 1, "there is no table `detectoin`; did you mean `detection`?"),
            ("[functions]\nfecc = 1\n", 2, "there is no function `fecc`; did you mean `fec`?"),
            ("\n[detection]\ncrc-32d = 1\n", 3, "there is no mechanism of detection `crc-32d`; did you mean"),
            ("[functions]\nfec = 8\n", 2, "8 is the number of both fec and flow; expected one each"),
            (
                &format!("{least}crc-32c = 1\n"),
                4,
                "1 is the number of both internet-16 and crc-32c; expected",
            ),
            (least, 1, "[detection] lacks crc-32c, which every end has; expected `crc-32c = NUMBER`"),
            ("[fec]\nnone = 256\n", 2, "the number of none is 256; expected 0 to 255"),
            ("[fec]\nnone = -1\n", 2, "the number of none is -1; expected 0 to 255"),
            ("[fec]\nnone = \"0\"\n", 2, "the number of none is \"0\"; expected 0 to 255"),
            ("fec = 4\n", 1, "`fec` is not a table; expected [fec]"),
            ("[fec]\nnone = 0\nnone = 1\n", 3, "duplicate key"),
            ("[fec\n", 1, ""),
        ] {
            let said = wrong(text);
            assert!(said.starts_with(&format!("numbers.toml:{line}: {words}")), "{text}: {said}");
        }
        assert!(wrong(&"#".repeat(MAPPING_BYTES_MAX + 1)).contains("longer than"));
    }
}
