//! Consents: mechanisms that this end allows its peer to ask for (`uts.consent`, selection.md
//! S-37).

use core::fmt;
use uts_functions::{Function, library};

/// Mechanisms that a peer may ask for although this end would not choose them itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Consents {
    /// None.
    #[default]
    None,
    /// These, by function and number, in ascending order.
    Named(Vec<(Function, u8)>),
    /// All that the library has.
    All,
}

impl Consents {
    /// True if a mechanism is among them.
    pub fn has(&self, function: Function, number: u8) -> bool {
        match self {
            Consents::None => false,
            Consents::Named(list) => list.contains(&(function, number)),
            Consents::All => true,
        }
    }

    /// Reads `none`, `all`, or `function/mechanism` separated by commas.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "none" => return Ok(Consents::None),
            "all" => return Ok(Consents::All),
            _ => {}
        }
        let mut list = Vec::new();
        for word in text.split(',').map(str::trim) {
            let (function, mechanism) =
                word.split_once('/').ok_or_else(|| format!("`{word}` is not function/mechanism"))?;
            let function =
                Function::from_name(function).ok_or_else(|| format!("there is no function `{function}`"))?;
            let mechanism = library::by_name(function, mechanism).map_err(|error| error.to_string())?;
            list.push((function, mechanism.number));
        }
        list.sort_unstable();
        list.dedup();
        Ok(Consents::Named(list))
    }
}

/// As it is written.
impl fmt::Display for Consents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Consents::None => f.write_str("none"),
            Consents::All => f.write_str("all"),
            Consents::Named(list) => {
                for (i, (function, number)) in list.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{}/{}", function.name(), library::name_of(*function, *number))?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::requirements::Requirements;
    use uts_functions::Function;

    #[test]
    fn consents_are_named_one_by_one_or_all() {
        let mut r = Requirements::default();
        assert!(!r.consents.has(Function::Congestion, 0));
        r.set("uts.consent", "rate/none, congestion/none").expect("both exist");
        assert!(r.consents.has(Function::Congestion, 0) && r.consents.has(Function::Rate, 0));
        assert!(!r.consents.has(Function::Flow, 0));
        assert_eq!(r.to_string(), "uts.consent=rate/none,congestion/none");
        for (wrong, why) in [
            ("congestion", "is not function/mechanism"),
            ("traffic/none", "there is no function `traffic`"),
            ("congestion/nothing", "has no mechanism `nothing`"),
        ] {
            let error = r.set("uts.consent", wrong).expect_err("wrong").to_string();
            assert!(error.contains(why), "{error}");
        }
        r.set("uts.consent", "all").expect("a word");
        assert!(r.consents.has(Function::Flow, 0));
    }
}
