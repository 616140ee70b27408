//! Library of an endpoint: a set of (function, mechanism number).

use crate::requirements::{Requirements, Security};
use core::fmt;
use uts_functions::{Function, Profile, external, library};

/// Numbers are given out densely (spec/functions.toml), and an administrator's own are from a
/// range: any other is of a mechanism that this library cannot have, so that nothing is lost by
/// leaving it out of what a peer says that it has.
const NUMBERS: u8 = u64::BITS as u8 - EXTERNAL;
/// Count of the mechanism numbers of each function that are for administrators' own mechanisms.
const EXTERNAL: u8 = *external::NUMBERS.end() - *external::NUMBERS.start() + 1;

/// The mechanisms of one endpoint, of both, or of any set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Library {
    /// A bit per mechanism number, for each function.
    bits: [u64; Function::COUNT],
}

impl Library {
    /// No mechanism.
    pub const fn empty() -> Self {
        Library { bits: [0; Function::COUNT] }
    }

    /// Everything that this endpoint has.
    pub fn local() -> Self {
        library::all().map(|m| (m.function, m.number)).collect()
    }

    /// Everything that every endpoint has.
    pub fn mandatory() -> Self {
        library::all().filter(|m| m.mandatory).map(|m| (m.function, m.number)).collect()
    }

    /// Mechanisms that this endpoint offers to a peer: everything, but protection/none only where
    /// `uts.security` asks for it by name (selection.md S-9).
    pub fn offered(requirements: &Requirements) -> Self {
        let mut library = Self::local();
        if requirements.security != Security::Unprotected {
            library.remove(Function::Protection, 0);
        }
        library
    }

    /// From pairs of numbers, as they come from a peer. Functions that this endpoint does not know
    /// are left out.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (u8, u8)>) -> Self {
        pairs.into_iter().filter_map(|(f, m)| Some((Function::from_number(f)?, m))).collect()
    }

    /// The pairs of numbers, in ascending order.
    pub fn pairs(&self) -> impl Iterator<Item = (u8, u8)> + '_ {
        Function::ALL
            .iter()
            .flat_map(move |f| numbers().filter(move |m| self.has(*f, *m)).map(move |m| (f.number(), m)))
    }

    /// True if it has that mechanism.
    pub fn has(&self, function: Function, number: u8) -> bool {
        self.bits[usize::from(function.number())] & bit(number) != 0
    }

    /// True if it has every mechanism of a profile.
    pub fn has_all(&self, profile: &Profile) -> bool {
        profile.choices().all(|(f, choice)| self.has(f, choice.number))
    }

    /// Adds a mechanism.
    pub fn insert(&mut self, function: Function, number: u8) {
        self.bits[usize::from(function.number())] |= bit(number);
    }

    /// Takes a mechanism out.
    pub fn remove(&mut self, function: Function, number: u8) {
        self.bits[usize::from(function.number())] &= !bit(number);
    }

    /// Mechanisms that both libraries have.
    #[must_use]
    pub fn common(&self, other: &Library) -> Library {
        let mut both = *self;
        for (word, their) in both.bits.iter_mut().zip(&other.bits) {
            *word &= their;
        }
        both
    }
}

/// All numbers that a mechanism may have, in ascending order.
fn numbers() -> impl Iterator<Item = u8> {
    (0..NUMBERS).chain(external::NUMBERS)
}

fn bit(number: u8) -> u64 {
    match number {
        0..NUMBERS => 1 << number,
        own if external::NUMBERS.contains(&own) => 1 << (NUMBERS + (own - external::NUMBERS.start())),
        _ => 0,
    }
}

impl FromIterator<(Function, u8)> for Library {
    fn from_iter<I: IntoIterator<Item = (Function, u8)>>(pairs: I) -> Self {
        let mut library = Library::empty();
        for (function, number) in pairs {
            library.insert(function, number);
        }
        library
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.pairs()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_and_sets_agree() {
        let pairs = [(0, 0), (4, 1), (4, 2), (10, 30), (10, 31), (10, 128), (12, 143)];
        // Of a function, or of a mechanism, that cannot be here, nothing need be known.
        let beyond = [(200, 1), (10, NUMBERS), (10, 127), (10, 144), (10, 255)];
        let library = Library::from_pairs(pairs.into_iter().chain(beyond));
        assert_eq!(library.pairs().collect::<Vec<_>>(), pairs);
        assert!(library.has(Function::Congestion, 31) && !library.has(Function::Congestion, 29));
        assert!(!library.has(Function::Congestion, NUMBERS) && !library.has(Function::Congestion, 255));
        let other = Library::from_pairs([(4, 2), (10, 31), (11, 0)]);
        assert_eq!(library.common(&other).pairs().collect::<Vec<_>>(), [(4, 2), (10, 31)]);
        assert!(Function::ALL.iter().all(|f| library::built_in(*f).iter().all(|m| m.number < NUMBERS)));
        let mut fewer = library;
        fewer.remove(Function::Fec, 1);
        assert!(!fewer.has(Function::Fec, 1) && fewer.has(Function::Fec, 2));
    }

    #[test]
    fn protection_none_is_offered_only_by_name() {
        let mut r = Requirements::bulk();
        assert!(!Library::offered(&r).has(Function::Protection, 0));
        r.security = Security::Unprotected;
        assert_eq!(Library::offered(&r), Library::local());
    }
}
