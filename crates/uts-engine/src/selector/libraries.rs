//! What an endpoint has: a set of (function, mechanism number).

use crate::requirements::{Requirements, Security};
use core::fmt;
use uts_functions::{Function, Profile, library};

const WORDS: usize = 4;

/// The mechanisms of one endpoint, of both, or of any set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Library {
    /// A bit per mechanism number, for each function.
    bits: [[u64; WORDS]; Function::COUNT],
}

impl Library {
    /// No mechanism.
    pub const fn empty() -> Self {
        Library { bits: [[0; WORDS]; Function::COUNT] }
    }

    /// Everything that this endpoint has.
    pub fn local() -> Self {
        library::all().map(|m| (m.function, m.number)).collect()
    }

    /// Everything that every endpoint has.
    pub fn mandatory() -> Self {
        library::all().filter(|m| m.mandatory).map(|m| (m.function, m.number)).collect()
    }

    /// What this endpoint tells a peer that it has: everything, but protection/none only where `uts.security` asks for
    /// it by name (selection.md S-9).
    pub fn offered(requirements: &Requirements) -> Self {
        let mut library = Self::local();
        if requirements.security != Security::Unprotected {
            library.remove(Function::Protection, 0);
        }
        library
    }

    /// From pairs of numbers, as they come from a peer. Functions that this endpoint does not know are left out.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (u8, u8)>) -> Self {
        pairs.into_iter().filter_map(|(f, m)| Some((Function::from_number(f)?, m))).collect()
    }

    /// The pairs of numbers, in ascending order.
    pub fn pairs(&self) -> impl Iterator<Item = (u8, u8)> + '_ {
        Function::ALL
            .iter()
            .flat_map(move |f| (0..=u8::MAX).filter(move |m| self.has(*f, *m)).map(move |m| (f.number(), m)))
    }

    /// Whether it has that mechanism.
    pub fn has(&self, function: Function, number: u8) -> bool {
        self.word(function, number) & (1 << (number % 64)) != 0
    }

    /// Whether it has every mechanism of a profile.
    pub fn has_all(&self, profile: &Profile) -> bool {
        profile.choices().all(|(f, choice)| self.has(f, choice.number))
    }

    /// Adds a mechanism.
    pub fn insert(&mut self, function: Function, number: u8) {
        self.bits[usize::from(function.number())][usize::from(number / 64)] |= 1 << (number % 64);
    }

    /// Takes a mechanism out.
    pub fn remove(&mut self, function: Function, number: u8) {
        self.bits[usize::from(function.number())][usize::from(number / 64)] &= !(1 << (number % 64));
    }

    /// What both have.
    #[must_use]
    pub fn common(&self, other: &Library) -> Library {
        let mut both = *self;
        for (row, theirs) in both.bits.iter_mut().zip(&other.bits) {
            for (word, their) in row.iter_mut().zip(theirs) {
                *word &= their;
            }
        }
        both
    }

    fn word(&self, function: Function, number: u8) -> u64 {
        self.bits[usize::from(function.number())][usize::from(number / 64)]
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
        let pairs = [(0, 0), (4, 1), (4, 2), (10, 63), (10, 64), (10, 255)];
        let library = Library::from_pairs(pairs.into_iter().chain([(200, 1)]));
        assert_eq!(library.pairs().collect::<Vec<_>>(), pairs);
        assert!(library.has(Function::Congestion, 255) && !library.has(Function::Congestion, 254));
        let other = Library::from_pairs([(4, 2), (10, 64), (11, 0)]);
        assert_eq!(library.common(&other).pairs().collect::<Vec<_>>(), [(4, 2), (10, 64)]);
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
