//! Profiles: one mechanism with its parameters for each function.

use crate::function::Function;
use crate::library::{self, UnknownName};
use crate::mechanism::{Choice, Mechanism, ParamError, Promise};
use core::fmt;

/// One mechanism, with parameters, for each function: what governs the data of a flow in one
/// direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Profile {
    slots: [Choice; Function::COUNT],
}

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No mechanism of that number.
    #[error("{} has no mechanism number {number}", function.name())]
    UnknownMechanism {
        /// The function.
        function: Function,
        /// The number that was given.
        number: u8,
    },
    /// A parameter is unknown or out of range.
    #[error("{}: {error}", function.name())]
    Param {
        /// The function.
        function: Function,
        /// Fault of the parameter.
        error: ParamError,
    },
    /// Two mechanisms do not go together.
    #[error("{}/{mechanism} needs {need}", function.name())]
    Needs {
        /// The function whose mechanism has the need.
        function: Function,
        /// The mechanism that has the need.
        mechanism: &'static str,
        /// Need of the mechanism, in words.
        need: String,
        /// The function that would have to change.
        other: Function,
    },
}

impl ProfileError {
    /// The function to which the error belongs.
    pub fn function(&self) -> Function {
        match self {
            ProfileError::UnknownMechanism { function, .. }
            | ProfileError::Param { function, .. }
            | ProfileError::Needs { function, .. } => *function,
        }
    }
}

impl Profile {
    /// The profile in which every function is performed by its mechanism number 0 (`none`, or the
    /// simplest), with default parameters.
    pub fn bare() -> Self {
        let mut slots = [Choice::default(); Function::COUNT];
        for f in Function::ALL {
            if let Some(m) = library::find(*f, 0) {
                slots[f.number() as usize] = m.choice();
            }
        }
        Profile { slots }
    }

    /// The choice for a function.
    pub fn get(&self, function: Function) -> &Choice {
        &self.slots[function.number() as usize]
    }

    /// Sets the choice for a function.
    pub fn set(&mut self, function: Function, choice: Choice) {
        self.slots[function.number() as usize] = choice;
    }

    /// This profile with another choice for one function.
    #[must_use]
    pub fn with(mut self, function: Function, choice: Choice) -> Self {
        self.set(function, choice);
        self
    }

    /// This profile with a mechanism, named, in its default parameters; for code whose names are
    /// known to exist.
    ///
    /// # Errors
    /// [`UnknownName`] if the library has no such mechanism.
    pub fn with_named(self, function: Function, name: &str) -> Result<Self, UnknownName> {
        Ok(self.with(function, library::by_name(function, name)?.choice()))
    }

    /// The entry of the mechanism chosen for a function.
    pub fn mechanism(&self, function: Function) -> Option<&'static Mechanism> {
        library::find(function, self.get(function).number)
    }

    /// The name of the mechanism chosen for a function (`?` if this library lacks it).
    pub fn name(&self, function: Function) -> &'static str {
        self.mechanism(function).map_or("?", |m| m.name)
    }

    /// The mechanisms chosen, as far as this library has them.
    pub fn mechanisms(&self) -> impl Iterator<Item = &'static Mechanism> + '_ {
        Function::ALL.iter().filter_map(|f| self.mechanism(*f))
    }

    /// True if the mechanism chosen for a function promises this.
    pub fn promises(&self, function: Function, promise: Promise) -> bool {
        self.mechanism(function).is_some_and(|m| m.promises(promise))
    }

    /// True if a function is not performed at all.
    pub fn is_inert(&self, function: Function) -> bool {
        self.mechanism(function).is_some_and(|m| m.facts.inert)
    }

    /// True if packets that are alike cost every mechanism the same work, so that they may be
    /// handled as runs.
    pub fn is_uniform(&self) -> bool {
        self.mechanisms().all(|m| m.facts.uniform)
    }

    /// The functions whose choices differ.
    pub fn differences(&self, other: &Profile) -> impl Iterator<Item = Function> {
        let (a, b) = (*self, *other);
        Function::ALL.iter().copied().filter(move |f| a.get(*f) != b.get(*f))
    }

    /// Changes from this profile to another, in one line; empty if there are none.
    pub fn changes_to(&self, next: &Profile) -> String {
        let changes = self.differences(next).map(|f| {
            let (old, new) = (self.describe(f), next.describe(f));
            format!("{} {old} -> {new}", f.name())
        });
        changes.collect::<Vec<_>>().join(", ")
    }

    /// Checks that this library has every mechanism, with parameters in range, and that they go
    /// together.
    ///
    /// # Errors
    /// The first [`ProfileError`] in the order of [`Function::ALL`].
    pub fn check(&self) -> Result<(), ProfileError> {
        for &function in Function::ALL {
            let choice = self.get(function);
            let mechanism = library::find(function, choice.number)
                .ok_or(ProfileError::UnknownMechanism { function, number: choice.number })?;
            mechanism.check(&choice.params).map_err(|error| ProfileError::Param { function, error })?;
        }
        Function::ALL.iter().try_for_each(|f| self.check_needs(*f))
    }

    fn check_needs(&self, function: Function) -> Result<(), ProfileError> {
        use crate::mechanism::Need;
        let Some(mechanism) = self.mechanism(function) else { return Ok(()) };
        for need in mechanism.needs {
            let has =
                |function, holds: &dyn Fn(&Mechanism) -> bool| self.mechanism(function).is_some_and(holds);
            let (other, met, words) = match *need {
                Need::Present(f) => (f, has(f, &|m| !m.facts.inert), format!("{} other than none", f.name())),
                Need::Promise(f, promise) => {
                    (f, has(f, &|m| m.promises(promise)), format!("{} that {}", f.name(), promise.words()))
                }
            };
            if !met {
                return Err(ProfileError::Needs { function, mechanism: mechanism.name, need: words, other });
            }
        }
        Ok(())
    }

    /// Bytes of a stable encoding, for hashing and comparison in logs.
    pub fn choices(&self) -> impl Iterator<Item = (Function, Choice)> + '_ {
        Function::ALL.iter().map(|f| (*f, *self.get(*f)))
    }
}

/// `congestion=cubic fec=reed-solomon(data=20,parity=5) …`: mechanisms that are inert are left out,
/// parameters that are at their default are left out.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for &function in Function::ALL {
            if self.is_inert(function) {
                continue;
            }
            if !first {
                f.write_str(" ")?;
            }
            first = false;
            write!(f, "{}={}", function.name(), self.describe(function))?;
        }
        Ok(())
    }
}

impl Profile {
    /// The choice for a function in words: name, and the parameters that are not at their default.
    pub fn describe(&self, function: Function) -> String {
        let Some(m) = self.mechanism(function) else { return format!("#{}", self.get(function).number) };
        let choice = self.get(function);
        let set: Vec<String> = m
            .params
            .iter()
            .enumerate()
            .filter(|(i, p)| choice.params.get(*i) != p.default)
            .map(|(i, p)| format!("{}={}", p.name, choice.params.get(i)))
            .collect();
        if set.is_empty() { m.name.to_owned() } else { format!("{}({})", m.name, set.join(",")) }
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}
