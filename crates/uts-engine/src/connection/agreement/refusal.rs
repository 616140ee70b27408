//! Answer of this end to a profile that the peer asks for: it takes part, or says why not.

use crate::consent::Answering;
use crate::selector::Library;
use uts_functions::mechanism::{Mechanism, ParamError};
use uts_functions::profile::ProfileError;
use uts_functions::{Choice, Function, Profile, library};

/// Why a profile is refused, with what there is instead.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// The function whose mechanism cannot be had.
    pub function: Function,
    /// In place of that, the number of a function that the end that refuses does not know. (P-26)
    pub stranger: Option<u8>,
    /// Why.
    pub reason: RefusalReason,
    /// Mechanism that can be had instead.
    pub alternative: Option<Choice>,
}

impl Refusal {
    /// The refusal of a profile for the mechanism of a function that this end knows.
    pub(in crate::connection) const fn new(
        function: Function,
        reason: RefusalReason,
        alternative: Option<Choice>,
    ) -> Self {
        Refusal { function, stranger: None, reason, alternative }
    }

    /// The refusal of a profile with a function that this end does not know.
    pub(in crate::connection) const fn of_stranger(number: u8) -> Self {
        let unknown = Refusal::new(Function::Establishment, RefusalReason::Unknown, None);
        Refusal { stranger: Some(number), ..unknown }
    }
}

/// Reasons of a refusal, by their number on the wire (spec X: reasons).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RefusalReason {
    /// The mechanism is not in the library.
    Unknown = 1,
    /// A parameter is out of range.
    Parameter = 2,
    /// It does not go together with the rest of the profile.
    Combination = 3,
    /// Packets without protection are not accepted.
    Unprotected = 4,
    /// The end that answers does not consent (selection.md S-37 to S-39).
    Consent = 5,
    /// A parameter names something that the end that answers does not have: a dictionary.
    Absent = 6,
    /// Another reason.
    Other = 0,
}

impl RefusalReason {
    pub(in crate::connection) fn from_number(number: u8) -> Self {
        match number {
            1 => RefusalReason::Unknown,
            2 => RefusalReason::Parameter,
            3 => RefusalReason::Combination,
            4 => RefusalReason::Unprotected,
            5 => RefusalReason::Consent,
            6 => RefusalReason::Absent,
            _ => RefusalReason::Other,
        }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            RefusalReason::Unknown => "the peer does not have that mechanism",
            RefusalReason::Parameter => "a parameter is out of the range that the peer accepts",
            RefusalReason::Combination => "it does not go together with the rest of the profile",
            RefusalReason::Unprotected => "the peer does not accept packets without protection",
            RefusalReason::Consent => {
                "the peer does not consent: its own requirements do not allow it, or it was not named there"
            }
            RefusalReason::Absent => "the peer does not have what a parameter names, such as a dictionary",
            RefusalReason::Other => "the peer gave no reason",
        }
    }
}

/// Terms by which this end answers.
pub(in crate::connection) struct Terms<'a> {
    /// Mechanisms that it has.
    pub library: Library,
    /// Both ends have said that they accept packets without protection.
    pub may_go_unprotected: bool,
    /// Protection of group 0.
    pub protection: Choice,
    pub answering: Answering<'a>,
}

impl Terms<'_> {
    /// Accepts a profile for a group, or says why this end takes no part in it.
    pub fn accept(&self, profile: &Profile, group: u8) -> Result<(), Refusal> {
        if let Err(error) = profile.check() {
            let (function, reason) = match &error {
                ProfileError::UnknownMechanism { function, .. } => (*function, RefusalReason::Unknown),
                ProfileError::Param { function, error: ParamError::Absent { .. }, .. } => {
                    (*function, RefusalReason::Absent)
                }
                ProfileError::Param { function, .. } => (*function, RefusalReason::Parameter),
                ProfileError::Needs { function, .. } => (*function, RefusalReason::Combination),
            };
            let alternative = best_of(&self.library, profile, function);
            return Err(Refusal::new(function, reason, alternative));
        }
        let is_open = profile.is_inert(Function::Protection);
        if is_open && !self.may_go_unprotected {
            let alternative = library::find(Function::Protection, 1).map(|m| m.choice());
            return Err(Refusal::new(Function::Protection, RefusalReason::Unprotected, alternative));
        }
        if let Some(function) = lacks(&self.library, profile) {
            let alternative = best_of(&self.library, profile, function);
            return Err(Refusal::new(function, RefusalReason::Unknown, alternative));
        }
        // protected and unprotected groups do not mix.
        let is_shared_open =
            library::find(Function::Protection, self.protection.number).is_some_and(|m| m.facts.inert);
        if group != 0 && is_open != is_shared_open {
            let alternative = Some(self.protection);
            return Err(Refusal::new(Function::Protection, RefusalReason::Combination, alternative));
        }
        if let Some(function) = self.answering.objects_to(profile, group) {
            let alternative = Some(self.answering.own(function));
            return Err(Refusal::new(function, RefusalReason::Consent, alternative));
        }
        Ok(())
    }
}

/// The first function of a profile whose mechanism a library lacks.
pub(in crate::connection) fn lacks(library: &Library, profile: &Profile) -> Option<Function> {
    Function::ALL.iter().copied().find(|f| !library.has(*f, profile.get(*f).number))
}

/// Mechanism to offer for one that cannot be had: the mandatory mechanism that does most like it.
/// Where nobody here knows what it does, it is the mandatory mechanism of the highest number.
fn best_of(library: &Library, profile: &Profile, function: Function) -> Option<Choice> {
    let may = |m: &Mechanism| m.mandatory && library.has(function, m.number);
    let found = match profile.mechanism(function) {
        Some(wanted) => library::nearest(wanted, may),
        None => library::of(function).into_iter().rfind(|m| may(m)),
    };
    found.map(|m| m.choice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Direction;
    use crate::requirements::{Consents, Requirements};
    use uts_functions::mechanism::Params;

    /// Answer of an end that has this library and agrees to everything.
    fn answer(profile: &Profile, group: u8, unprotected: bool, library: Library) -> Result<(), Refusal> {
        let requirements = Requirements { consents: Consents::All, ..Requirements::default() };
        let terms = Terms {
            library,
            may_go_unprotected: unprotected,
            protection: library::find(Function::Protection, 1).expect("mandatory").choice(),
            answering: Answering::new(&requirements, Direction::Out),
        };
        terms.accept(profile, group)
    }

    fn profile() -> Profile {
        Profile::bare().with_named(Function::Protection, "aes-128-gcm").expect("it exists")
    }

    #[test]
    fn what_this_end_lacks_is_refused_with_what_it_has_instead() {
        let library = Library::local();
        assert_eq!(answer(&profile(), 0, false, library), Ok(()));
        let unknown = profile().with(Function::Congestion, Choice { number: 200, params: Params::default() });
        let refusal = answer(&unknown, 0, false, library).expect_err("no such mechanism");
        assert_eq!((refusal.function, refusal.reason), (Function::Congestion, RefusalReason::Unknown));
        let alternative = refusal.alternative.expect("something else");
        assert!(library.has(Function::Congestion, alternative.number));
        let mut excessive = *profile().get(Function::Acknowledgement);
        excessive.number = 1;
        excessive.params.0[0] = u32::MAX;
        let refusal = answer(&profile().with(Function::Acknowledgement, excessive), 0, false, library);
        assert_eq!(refusal.map_err(|r| r.reason), Err(RefusalReason::Parameter));
        let named = Choice { number: 4, params: Params([32, 3, 77, 0]) };
        let refusal = answer(&profile().with(Function::Presentation, named), 0, false, library);
        assert_eq!(refusal.map_err(|r| r.reason), Err(RefusalReason::Absent), "a dictionary");
    }

    #[test]
    fn packets_without_protection_need_both_ends() {
        let bare = Profile::bare();
        let refusal = answer(&bare, 0, false, Library::local()).expect_err("not asked for here");
        assert_eq!((refusal.function, refusal.reason), (Function::Protection, RefusalReason::Unprotected));
        assert!(refusal.alternative.is_some());
        assert_eq!(answer(&bare, 0, true, Library::local()), Ok(()));
    }

    #[test]
    fn unprotected_groups_do_not_mix_with_protected_ones() {
        let refusal = answer(&Profile::bare(), 1, true, Library::local()).expect_err("group 0 is protected");
        assert_eq!((refusal.function, refusal.reason), (Function::Protection, RefusalReason::Combination));
        assert_eq!(answer(&profile(), 1, true, Library::local()), Ok(()));
    }

    #[test]
    fn what_was_withdrawn_is_refused() {
        let mut library = Library::local();
        library.remove(Function::Fec, 2);
        let coded = profile().with_named(Function::Fec, "reed-solomon").expect("it exists");
        let refusal = answer(&coded, 0, false, library).expect_err("withdrawn");
        assert_eq!((refusal.function, refusal.reason), (Function::Fec, RefusalReason::Unknown));
    }
}
