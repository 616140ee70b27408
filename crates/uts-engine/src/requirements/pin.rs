//! Pins: a mechanism that the application names itself.

use super::RequirementError;
use uts_functions::{Choice, Function, library};

/// Start of a pin's name, before the function's name.
pub const PREFIX: &str = "uts.profile.";

/// A function and the mechanism that it must be performed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The function.
    pub function: Function,
    /// Its mechanism, with parameters.
    pub choice: Choice,
}

impl Pin {
    /// Reads `uts.profile.FUNCTION` and `mechanism(param=value,…)`.
    ///
    /// # Errors
    /// [`RequirementError::Unknown`] for a function that does not exist, [`RequirementError::Pin`]
    /// for a mechanism or parameter that does not.
    pub fn parse(name: &str, value: &str) -> Result<Pin, RequirementError> {
        let function_name = name.strip_prefix(PREFIX).unwrap_or(name);
        let function = Function::from_name(function_name).ok_or_else(|| RequirementError::Unknown {
            name: name.to_owned(),
            nearest: super::nearest(function_name, Function::ALL.iter().map(|f| f.name()))
                .map(|f| format!("{PREFIX}{f}")),
        })?;
        let bad = |why: String| RequirementError::Pin { name: name.to_owned(), value: value.to_owned(), why };
        let (mechanism, settings) = split(value).map_err(bad)?;
        let entry = library::by_name(function, mechanism).map_err(|e| {
            let hint = super::nearest(mechanism, library::of(function).into_iter().map(|m| m.name));
            bad(hint.map_or_else(|| e.to_string(), |near| format!("{e}; did you mean `{near}`?")))
        })?;
        let choice = entry.choice_with(&settings).map_err(|e| bad(e.to_string()))?;
        Ok(Pin { function, choice })
    }
}

/// A mechanism's name, and its settings.
type Parts<'a> = (&'a str, Vec<(&'a str, u64)>);

/// `name(param=value,…)` in its parts.
fn split(text: &str) -> Result<Parts<'_>, String> {
    let text = text.trim();
    let Some((name, rest)) = text.split_once('(') else {
        return if text.is_empty() {
            Err("a mechanism is missing".to_owned())
        } else {
            Ok((text, Vec::new()))
        };
    };
    let inner = rest.strip_suffix(')').ok_or("a `)` is missing at the end")?;
    let mut settings: Vec<(&str, u64)> = Vec::new();
    for part in inner.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (param, number) = part.split_once('=').ok_or_else(|| format!("`{part}` is not param=value"))?;
        let param = param.trim();
        if settings.iter().any(|(known, _)| *known == param) {
            return Err(format!("`{param}` is set twice"));
        }
        let number = number.trim();
        let number = number.parse().map_err(|_| format!("{param}: `{number}` is not a whole number"))?;
        settings.push((param, number));
    }
    Ok((name.trim(), settings))
}

/// Text of a pin, as it is set.
impl core::fmt::Display for Pin {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let words = uts_functions::Profile::bare().with(self.function, self.choice).describe(self.function);
        write!(f, "{PREFIX}{}={words}", self.function.name())
    }
}
