//! The selector: requirements, path facts and both libraries give a profile, and the reason for
//! each choice.
//!
//! Rules are numbered in `spec/selection.md`. The selector chooses the profile that a connection
//! begins with, its *home*; the [policy](crate::policy) leaves it when the path calls for it and
//! comes back when it no longer does.

mod explain;
mod why_not;
mod wish;

use crate::appraisal::{fit, forecast_on, rules};
use crate::host::HostFacts;
use crate::requirements::Requirements;
use core::fmt;
use uts_functions::mechanism::{Mechanism, Unasked};
use uts_functions::profile::ProfileError;
use uts_functions::{Choice, Function, PathFacts, Prediction, Profile, library};

pub use crate::appraisal::{Contradiction, Library, forecast, steps};
pub use explain::{Explanation, Line, Timeliness, explain, explain_on};
pub use why_not::{Figures, Unclear, WhyNot, why_not};

/// Cause that forced a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nothing: what is best if nobody says otherwise.
    Default,
    /// A property of the application.
    Requirement(&'static str),
    /// The application named the mechanism.
    Pin,
    /// Facts of the path, as far as they are known.
    Path,
    /// One end lacks what would have been better.
    Library,
    /// Another function's mechanism.
    Need(Function),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::Requirement(name) => f.write_str(name),
            Source::Pin => f.write_str("pinned"),
            Source::Path => f.write_str("path"),
            Source::Library => f.write_str("library"),
            Source::Need(function) => f.write_str(function.name()),
        }
    }
}

/// Why a function is performed by its mechanism.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// The function.
    pub function: Function,
    /// The mechanism's name.
    pub chosen: &'static str,
    /// Cause that forced it.
    pub source: Source,
    /// Why, in a few words.
    pub why: String,
    /// The other mechanisms that both ends have and the requirements allow.
    pub alternatives: Vec<&'static str>,
}

/// Choice of the selector: home (S-7).
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// The profile.
    pub profile: Profile,
    /// One reason per function, in the order of [`Function::ALL`].
    pub reasons: Vec<Reason>,
    /// Prediction for the profile on the path.
    pub prediction: Prediction,
}

/// Chooses a profile. Without `peer`, the peer is taken to have what this endpoint has.
///
/// # Errors
/// A [`Contradiction`] that names the two requirements, or the requirement and the path or library,
/// that cannot both be.
pub fn select(
    requirements: &Requirements,
    facts: &PathFacts,
    local: &Library,
    peer: Option<&Library>,
) -> Result<Selection, Contradiction> {
    select_on(requirements, (facts, &HostFacts::default()), local, peer)
}

/// Chooses a profile for a host of which something is known.
///
/// # Errors
/// As [`select`].
pub(crate) fn select_on(
    requirements: &Requirements,
    (facts, host): (&PathFacts, &HostFacts),
    local: &Library,
    peer: Option<&Library>,
) -> Result<Selection, Contradiction> {
    rules::check(requirements, facts)?;
    let (profile, reasons) = (Profile::bare(), Vec::new());
    let mut selector = Selector { requirements, facts, host, local, peer, profile, reasons };
    // Detection depends on protection (S-10), everything else on what stands before it.
    selector.choose(Function::Protection)?;
    for &function in Function::ALL.iter().filter(|f| **f != Function::Protection) {
        selector.choose(function)?;
    }
    selector.settle_needs()?;
    selector.fit_to_path();
    selector.reasons.sort_by_key(|r| r.function);
    let prediction = forecast_on(&selector.profile, (facts, host));
    Ok(Selection { profile: selector.profile, reasons: selector.reasons, prediction })
}

struct Selector<'a> {
    requirements: &'a Requirements,
    facts: &'a PathFacts,
    host: &'a HostFacts,
    local: &'a Library,
    peer: Option<&'a Library>,
    profile: Profile,
    reasons: Vec<Reason>,
}

impl Selector<'_> {
    fn usable(&self, function: Function, number: u8) -> bool {
        self.local.has(function, number) && self.peer.is_none_or(|p| p.has(function, number))
    }

    /// Library that lacks a mechanism which is not usable.
    fn who_lacks(&self, function: Function, number: u8) -> &'static str {
        if self.local.has(function, number) { "the peer's library" } else { "this endpoint's library" }
    }

    fn choose(&mut self, function: Function) -> Result<(), Contradiction> {
        if let Some(pin) = self.requirements.pinned(function) {
            if !self.usable(function, pin.choice.number) {
                let name = library::name_of(function, pin.choice.number);
                let lacking = self.who_lacks(function, pin.choice.number);
                return Err(Contradiction {
                    rule: "S-3",
                    first: format!("`{pin}`"),
                    second: lacking.to_owned(),
                    why: format!("it has no {name}"),
                });
            }
            self.put(function, pin.choice, Source::Pin, "named by the application".to_owned());
            return Ok(());
        }
        let wish = wish::of(function, self.requirements, self.facts, &self.profile);
        let wished = wish.mechanisms(function, self.requirements, &self.profile);
        let first = wished.first().copied();
        let mut missing: Vec<&str> = Vec::new();
        let mut lacking = "the library";
        for mechanism in wished {
            if !self.usable(function, mechanism.number) {
                lacking = self.who_lacks(function, mechanism.number);
                missing.push(mechanism.name);
                continue;
            }
            let (source, why) = if missing.is_empty() {
                (wish.source, wish.why.to_owned())
            } else {
                (Source::Library, format!("{} has no {}", lacking, missing.join(" and no ")))
            };
            self.put(function, wish::choice(mechanism, self.requirements), source, why);
            return Ok(());
        }
        self.fall_back((function, first), &wish, &missing, lacking)
    }

    /// Nothing wished for is there: the mandatory mechanism does that does most like it, if the
    /// requirements allow one (S-4).
    fn fall_back(
        &mut self,
        (function, wished): (Function, Option<&Mechanism>),
        wish: &wish::Wish,
        missing: &[&str],
        lacking: &str,
    ) -> Result<(), Contradiction> {
        let may = |m: &Mechanism| {
            m.mandatory
                && self.usable(function, m.number)
                && rules::allows(self.requirements, function, m.number)
                && !matches!(wish.source, Source::Requirement(_))
        };
        let found = match wished {
            Some(wished) => library::nearest(wished, may),
            None => library::of(function).into_iter().find(|m| may(m)),
        };
        if let Some(mechanism) = found {
            let why = format!("{lacking} has no {}", missing.join(" and no "));
            self.put(function, mechanism.choice(), Source::Library, why);
            return Ok(());
        }
        let first = match wish.source {
            Source::Requirement(name) => rules::quote(self.requirements, name),
            _ => format!("a {} mechanism", function.name()),
        };
        let why = format!("{} needs {}, which it lacks", function.name(), missing.join(" or "));
        Err(Contradiction { rule: "S-4", first, second: lacking.to_owned(), why })
    }

    fn put(&mut self, function: Function, choice: Choice, source: Source, why: String) {
        self.profile.set(function, choice);
        let chosen = library::name_of(function, choice.number);
        let alternatives = library::of(function)
            .into_iter()
            .filter(|m| m.number != choice.number && self.usable(function, m.number))
            .filter(|m| rules::allows(self.requirements, function, m.number))
            .map(|m| m.name)
            .collect();
        self.reasons.retain(|r| r.function != function);
        self.reasons.push(Reason { function, chosen, source, why, alternatives });
    }

    /// Changes what is free to change until the mechanisms go together (S-5).
    fn settle_needs(&mut self) -> Result<(), Contradiction> {
        for _ in 0..=Function::COUNT {
            let Err(error) = self.profile.check() else { return Ok(()) };
            let ProfileError::Needs { function, mechanism, ref need, other } = error else {
                return Err(self.broken(&error));
            };
            if !self.replace(other, function, &error) && !self.replace(function, other, &error) {
                let why = format!("{}/{mechanism} needs {need}", function.name());
                return Err(Contradiction {
                    rule: "S-5",
                    first: self.held_by(function),
                    second: self.held_by(other),
                    why,
                });
            }
        }
        match self.profile.check() {
            Ok(()) => Ok(()),
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn broken(&self, error: &ProfileError) -> Contradiction {
        Contradiction {
            rule: "S-5",
            first: self.held_by(error.function()),
            second: "the library".to_owned(),
            why: error.to_string(),
        }
    }

    /// Puts another mechanism to `function` so that `error` is gone; false if there is none or it
    /// is pinned.
    fn replace(&mut self, function: Function, because: Function, error: &ProfileError) -> bool {
        if self.requirements.pinned(function).is_some() {
            return false;
        }
        let mut free: Vec<_> =
            library::of(function).into_iter().filter(|m| m.facts.unasked != Unasked::Never).collect();
        free.sort_by_key(|m| m.facts.unasked.rank());
        let found = free.into_iter().find(|m| {
            self.usable(function, m.number)
                && rules::allows(self.requirements, function, m.number)
                && self.profile.with(function, m.choice()).check().err().as_ref() != Some(error)
                && m.number != self.profile.get(function).number
        });
        let Some(mechanism) = found else { return false };
        let why = format!("{} needs it", self.profile.describe(because));
        self.put(function, mechanism.choice(), Source::Need(because), why);
        true
    }

    /// Requirement or mechanism that holds a function's mechanism in its place, as it would be
    /// written.
    fn held_by(&self, function: Function) -> String {
        if let Some(pin) = self.requirements.pinned(function) {
            return format!("`{pin}`");
        }
        let excluded = library::of(function)
            .into_iter()
            .find_map(|m| rules::excluded_by(self.requirements, function, m.number));
        excluded.unwrap_or_else(|| format!("{}/{}", function.name(), self.profile.name(function)))
    }

    /// Where the path is known, the policy's candidates compete at once (S-6).
    fn fit_to_path(&mut self) {
        let usable = self.peer.map_or(*self.local, |p| self.local.common(p));
        let fitted = fit(self.requirements, (self.facts, self.host), &usable, &self.profile);
        let home = self.profile;
        for function in home.differences(&fitted) {
            let why = format!("predicted to do better here than {}", home.describe(function));
            self.put(function, *fitted.get(function), Source::Path, why);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
