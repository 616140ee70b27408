//! Mechanisms from outside this crate: what an administrator adds to a process.
//!
//! A mechanism is registered once, before the endpoints are made that shall have it, and stays for
//! as long as the process runs. It is then like those of this crate, but for a pointer on the way
//! to it.

use crate::function::Function;
use crate::mechanism::{Mechanism, Unasked};
use core::ops::RangeInclusive;
use std::sync::{PoisonError, RwLock};
use uts_wire::numbers::{MAX_NAME_BYTES, OwnNumbers};

/// The numbers of such mechanisms. Of those that `spec/functions.toml` leaves to administrators
/// (128 to 255) these are as many as fit the sets of mechanisms that endpoints keep of each other.
pub const NUMBERS: RangeInclusive<u8> = 128..=143;

/// Why a mechanism was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRegistered {
    /// The number is not an administrator's.
    #[error("{}/{name}: {number} is not a number for a mechanism of one's own (expected {} to {})",
        function.name(), NUMBERS.start(), NUMBERS.end())]
    Number {
        /// The function.
        function: Function,
        /// The mechanism's name.
        name: &'static str,
        /// The number that it says.
        number: u8,
    },
    /// The number or the name is another mechanism's.
    #[error("{}/{name}: its number or name is that of {}/{other}", function.name(), function.name())]
    Taken {
        /// The function.
        function: Function,
        /// The mechanism's name.
        name: &'static str,
        /// The other mechanism's name.
        other: &'static str,
    },
    /// The name is none that peers can be told of.
    #[error("{}/{name}: a name is of 1 to {MAX_NAME_BYTES} letters a to z, digits and hyphens", function.name())]
    Name {
        /// The function.
        function: Function,
        /// The mechanism's name.
        name: &'static str,
    },
    /// The entry is for another function.
    #[error("{name} performs {}, and was registered for {}", says.name(), function.name())]
    Function {
        /// The mechanism's name.
        name: &'static str,
        /// The function that its entry says.
        says: Function,
        /// The function that it was registered for.
        function: Function,
    },
    /// It is said to be mandatory, which every endpoint would have to have, or is offered unasked.
    #[error("{}/{name}: a mechanism of one's own is neither mandatory nor used unasked", function.name())]
    Unasked {
        /// The function.
        function: Function,
        /// The mechanism's name.
        name: &'static str,
    },
}

/// The mechanisms of a function that are from outside this crate, with what builds each of them.
pub(crate) struct Externals<B> {
    list: RwLock<Vec<(&'static Mechanism, B)>>,
}

/// [`Externals`] without what builds them.
pub(crate) trait Listed: Sync {
    /// Their entries, in the order of their numbers.
    fn list(&self) -> Vec<&'static Mechanism>;
    /// The entry of that number.
    fn entry(&self, number: u8) -> Option<&'static Mechanism>;
}

impl<B: Copy> Externals<B> {
    /// None.
    pub const fn new() -> Self {
        Externals { list: RwLock::new(Vec::new()) }
    }

    /// Adds a mechanism beside those of this crate.
    pub fn register(
        &self,
        built_in: &[&'static Mechanism],
        info: &'static Mechanism,
        build: B,
    ) -> Result<(), NotRegistered> {
        let Mechanism { function, name, number, .. } = *info;
        if let Some(own) = built_in.first().filter(|m| m.function != function) {
            return Err(NotRegistered::Function { name, says: function, function: own.function });
        }
        if !NUMBERS.contains(&number) {
            return Err(NotRegistered::Number { function, name, number });
        }
        if !OwnNumbers::is_name(name) {
            return Err(NotRegistered::Name { function, name });
        }
        if info.mandatory || info.facts.unasked != Unasked::Never {
            return Err(NotRegistered::Unasked { function, name });
        }
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let mut others = built_in.iter().copied().chain(list.iter().map(|(m, _)| *m));
        if let Some(other) = others.find(|m| m.number == number || m.name == name) {
            return Err(NotRegistered::Taken { function, name, other: other.name });
        }
        let at = list.partition_point(|(m, _)| m.number < number);
        list.insert(at, (info, build));
        Ok(())
    }

    /// The mechanism of that number.
    pub fn find(&self, number: u8) -> Option<(&'static Mechanism, B)> {
        if !NUMBERS.contains(&number) {
            return None;
        }
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.iter().find(|(m, _)| m.number == number).copied()
    }
}

impl<B: Copy + Send + Sync> Listed for Externals<B> {
    fn list(&self) -> Vec<&'static Mechanism> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).iter().map(|(m, _)| *m).collect()
    }

    fn entry(&self, number: u8) -> Option<&'static Mechanism> {
        self.find(number).map(|(m, _)| m)
    }
}
