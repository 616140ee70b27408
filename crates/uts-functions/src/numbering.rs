//! Numbers by which an end writes functions and mechanisms in frames (packets.md P-67).
//!
//! Everywhere else a mechanism has the number of `spec/functions.toml`, or that under which it was
//! registered. Only what crosses the wire is translated, where an end has numbers of its own: its
//! administrator's file gave them, or it has mechanisms that the file of the specification lacks.
//! So two ends with other numbers mean the same mechanism, or one of them knows that it lacks it.

use crate::external;
use crate::function::Function;
use crate::library;
use crate::mechanism::{Choice, Mechanism, Params};
use crate::profile::Profile;
use std::collections::BTreeMap;
use uts_wire::numbers::{MAX_NAMED, OwnNumbers};
use uts_wire::{WireChoice, WireProfile};

/// The number of a mechanism that this library does not have, whatever its peer calls it. No
/// mechanism has it, so that a profile with it is refused.
pub const STRANGER: u8 = u8::MAX;

/// The first of the numbers that `spec/functions.toml` gives to no mechanism. Without a name they
/// mean nothing: two administrators may have given one of them to two mechanisms.
pub const FIRST_OWN: u8 = *external::NUMBERS.start();

/// Bytes that the names of an end's own mechanisms may take in its greeting. With all else that is
/// in one it stays below what is read.
pub const NAMED_BYTES_MAX: usize = 1024;

/// The numbers of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbering {
    /// The number of each function; `None` if it has none.
    functions: [Option<u8>; Function::COUNT],
    /// Own numbers of mechanisms, by their numbers here.
    own: BTreeMap<(Function, u8), u8>,
    /// Numbers here of own numbers; [`STRANGER`] if this library does not have the mechanism.
    here: BTreeMap<(Function, u8), u8>,
}

impl Default for Numbering {
    fn default() -> Self {
        let mut functions = [None; Function::COUNT];
        Function::ALL.iter().for_each(|f| functions[usize::from(f.number())] = Some(f.number()));
        Numbering { functions, own: BTreeMap::new(), here: BTreeMap::new() }
    }
}

impl Numbering {
    /// The numbers of this library: those of the specification, and those under which mechanisms
    /// of a program's own were registered, as far as their names have room in a greeting.
    pub fn of_library() -> Self {
        let mut numbering = Numbering::default();
        for mechanism in library::all().filter(|m| m.number >= FIRST_OWN) {
            numbering.give(mechanism, mechanism.number);
        }
        numbering
    }

    /// Gives a function another number than that of the specification.
    pub fn give_function(&mut self, function: Function, own: u8) {
        self.functions[usize::from(function.number())] = Some(own);
    }

    /// Gives a mechanism of this library a number.
    pub fn give(&mut self, mechanism: &Mechanism, own: u8) {
        self.set(mechanism.function, mechanism.number, own);
    }

    /// Takes its number from a mechanism of this library: it is not used.
    pub fn take(&mut self, mechanism: &Mechanism) {
        let key = (mechanism.function, mechanism.number);
        if let Some(own) = self.own.remove(&key) {
            self.here.remove(&(key.0, own));
        }
    }

    fn set(&mut self, function: Function, number: u8, own: u8) {
        self.own.insert((function, number), own);
        self.here.insert((function, own), number);
    }

    /// The numbers that a peer has said.
    ///
    /// # Errors
    /// The contradiction, in words: a number that stands for two things that the peer has.
    /// `has` are the mechanisms that it says it has, by the numbers of the specification.
    pub fn of_peer(
        said: &OwnNumbers,
        has: impl IntoIterator<Item = (u8, u8)>,
    ) -> Result<Self, Contradiction> {
        let mut peer = Numbering::default();
        for (function, own) in &said.functions {
            if let Some(function) = Function::from_number(*function) {
                peer.give_function(function, *own);
            }
        }
        for ((function, number), own) in &said.mechanisms {
            let Some(function) = Function::from_number(*function) else { continue };
            if *number < FIRST_OWN {
                peer.set(function, *number, *own);
            }
        }
        for ((function, own), name) in &said.named {
            let Some(function) = Function::from_number(*function) else { continue };
            match library::by_name(function, name) {
                // A mechanism of the specification is no administrator's own.
                Ok(mechanism) if mechanism.number >= FIRST_OWN => peer.give(mechanism, *own),
                _ => _ = peer.here.insert((function, *own), STRANGER),
            }
        }
        peer.check(said, has)?;
        Ok(peer)
    }

    /// Checks that no number stands for what was said and for what has kept its number as well.
    fn check(
        &mut self,
        said: &OwnNumbers,
        has: impl IntoIterator<Item = (u8, u8)>,
    ) -> Result<(), Contradiction> {
        let renumbered = |f: &Function| said.functions.contains_key(&f.number());
        for kept in Function::ALL.iter().filter(|f| !renumbered(f)) {
            let number = kept.number();
            if let Some((other, _)) = said.functions.iter().find(|(_, own)| **own == number) {
                let name = Function::from_number(*other).map_or("another function", Function::name);
                return Err(Contradiction(format!("{number} is both {} and {name}", kept.name())));
            }
        }
        for (function, number) in has {
            let Some(function) = Function::from_number(function) else { continue };
            let is_kept = number < FIRST_OWN && !self.own.contains_key(&(function, number));
            if let Some(other) = self.here.get(&(function, number)).filter(|_| is_kept) {
                let words = |number| match library::name_of(function, number) {
                    "?" => "a mechanism that this end lacks",
                    name => name,
                };
                let both = format!("both {} and {}", words(number), words(*other));
                return Err(Contradiction(format!("{}/{number} is {both}", function.name())));
            }
        }
        Ok(())
    }

    /// The mechanisms of this library that a peer with these numbers has beyond the specification,
    /// by their numbers here.
    pub fn named_here(&self) -> impl Iterator<Item = (Function, u8)> + '_ {
        self.own.keys().copied().filter(|(_, number)| *number >= FIRST_OWN)
    }

    /// The number of a function, as it is written; that of the specification if it has none.
    pub fn function(&self, function: Function) -> u8 {
        self.functions[usize::from(function.number())].unwrap_or(function.number())
    }

    /// The function of a number that is read.
    pub fn function_of(&self, number: u8) -> Option<Function> {
        Function::ALL.iter().copied().find(|f| self.functions[usize::from(f.number())] == Some(number))
    }

    /// The number of a mechanism, as it is written.
    pub fn mechanism(&self, function: Function, number: u8) -> u8 {
        self.own.get(&(function, number)).copied().unwrap_or(number)
    }

    /// The number here of a mechanism's number that is read; [`STRANGER`] if this library does not
    /// have it, or nothing has that number.
    pub fn mechanism_of(&self, function: Function, number: u8) -> u8 {
        match self.here.get(&(function, number)) {
            Some(here) => *here,
            None if number >= FIRST_OWN || self.own.contains_key(&(function, number)) => STRANGER,
            None => number,
        }
    }

    /// The numbers as a greeting says them: what differs from the specification. Names that have no
    /// room are left out, those of the highest numbers first.
    pub fn said(&self) -> OwnNumbers {
        let mut said = OwnNumbers::default();
        for function in Function::ALL {
            let (number, own) = (function.number(), self.function(*function));
            if own != number {
                said.functions.insert(number, own);
            }
        }
        let mut room = NAMED_BYTES_MAX;
        for ((function, number), own) in &self.own {
            if *number < FIRST_OWN {
                if own != number {
                    said.mechanisms.insert((function.number(), *number), *own);
                }
                continue;
            }
            let Some(mechanism) = library::find(*function, *number) else { continue };
            let bytes = OwnNumbers::named_bytes(mechanism.name);
            if bytes <= room && said.named.len() < MAX_NAMED {
                room -= bytes;
                said.named.insert((function.number(), *own), mechanism.name.to_owned());
            }
        }
        said
    }

    /// The first function or mechanism of this library that has another number at the other end,
    /// and how many others have; `None` if all are the same.
    pub fn difference(&self, other: &Numbering) -> Option<String> {
        let functions = Function::ALL.iter().filter_map(|f| {
            let (here, there) = (self.function(*f), other.function(*f));
            (here != there).then(|| format!("{} is {here} here and {there} there", f.name()))
        });
        let mechanisms = library::all().filter_map(|m| {
            let here = self.mechanism(m.function, m.number);
            let there = other.mechanism(m.function, m.number);
            let (function, name) = (m.function.name(), m.name);
            (here != there).then(|| format!("{function}/{name} is {here} here and {there} there"))
        });
        let mut all = functions.chain(mechanisms);
        let first = all.next()?;
        Some(match all.count() {
            0 => first,
            others => format!("{first}, and {others} others differ"),
        })
    }
}

/// Numbers of a peer that contradict each other, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Contradiction(String);

/// A profile as it came from an end with these numbers (`None`: those of the specification), and a
/// function in it that this end does not know and that is to be performed: it cannot take part
/// then. A function that is not named is performed by its mechanism 0. (P-40)
pub fn from_wire(wire: &WireProfile, peer: Option<&Numbering>) -> (Profile, Option<u8>) {
    let (mut profile, mut stranger) = (Profile::bare(), None);
    for choice in wire.choices() {
        match function_from_wire(choice.function, peer) {
            Some(function) => profile.set(function, choice_from_wire(function, choice, peer)),
            None if choice.mechanism == 0 => {}
            None => stranger = stranger.or(Some(choice.function)),
        }
    }
    (profile, stranger)
}

/// The function of a number that came.
pub fn function_from_wire(number: u8, peer: Option<&Numbering>) -> Option<Function> {
    peer.map_or_else(|| Function::from_number(number), |peer| peer.function_of(number))
}

/// The number of a function, as an end with these numbers writes it.
pub fn function_to_wire(function: Function, own: Option<&Numbering>) -> u8 {
    own.map_or(function.number(), |own| own.function(function))
}

/// The choice for a function, as it came.
pub fn choice_from_wire(function: Function, choice: &WireChoice, peer: Option<&Numbering>) -> Choice {
    let number = peer.map_or(choice.mechanism, |peer| peer.mechanism_of(function, choice.mechanism));
    Choice { number, params: Params(choice.params) }
}

/// A profile as an end with these numbers writes it.
pub fn to_wire(profile: &Profile, own: Option<&Numbering>) -> WireProfile {
    let choices = profile.choices().map(|(function, choice)| to_wire_choice(function, &choice, own));
    WireProfile::from_choices(choices).unwrap_or_default()
}

/// The choice for a function, as an end with these numbers writes it.
pub fn to_wire_choice(function: Function, choice: &Choice, own: Option<&Numbering>) -> WireChoice {
    let (number, params) = (choice.number, choice.params.0);
    match own {
        None => WireChoice { function: function.number(), mechanism: number, params },
        Some(own) => {
            let mechanism = own.mechanism(function, number);
            WireChoice { function: own.function(function), mechanism, params }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(function: Function, name: &str) -> u8 {
        library::by_name(function, name).expect("it exists").number
    }

    fn swapped() -> Numbering {
        let mut numbering = Numbering::of_library();
        for (name, own) in [("internet-16", 2), ("crc-32c", 1), ("parity", 200)] {
            numbering.give(library::by_name(Function::Detection, name).expect("it exists"), own);
        }
        numbering.give_function(Function::Fec, 9);
        numbering.give_function(Function::Rate, 4);
        numbering
    }

    /// All that the library has.
    fn all() -> impl Iterator<Item = (u8, u8)> {
        library::all().map(|m| (m.function.number(), m.number))
    }

    #[test]
    fn every_mechanism_comes_back_by_the_numbers_that_were_said() {
        let own = swapped();
        let peer = Numbering::of_peer(&own.said(), all()).expect("no contradiction");
        for mechanism in library::all() {
            let profile = Profile::bare().with(mechanism.function, mechanism.choice());
            let wire = to_wire(&profile, Some(&own));
            assert_eq!(from_wire(&wire, Some(&peer)), (profile, None), "{}", mechanism.name);
        }
        let bare = Profile::bare().with_named(Function::Detection, "crc-32c").expect("it exists");
        let misread = from_wire(&to_wire(&bare, Some(&own)), None).0;
        assert_eq!(misread.name(Function::Detection), "internet-16", "what a peer without them would read");
    }

    #[test]
    fn what_nothing_stands_for_is_a_stranger() {
        let own = swapped();
        let peer = Numbering::of_peer(&own.said(), all()).expect("no contradiction");
        let parity = number(Function::Detection, "parity");
        assert_eq!(peer.mechanism_of(Function::Detection, 200), parity);
        assert_eq!(peer.mechanism_of(Function::Detection, parity), STRANGER, "it has gone from there");
        assert_eq!(peer.mechanism_of(Function::Congestion, 130), STRANGER, "it has no name");
        assert_eq!(peer.mechanism_of(Function::Congestion, 2), 2);
        let mut said = OwnNumbers::default();
        said.named.insert((Function::Congestion.number(), 2), "nobody-knows".to_owned());
        let other = Numbering::of_peer(&said, []).expect("it has nothing else of that number");
        assert_eq!(other.mechanism_of(Function::Congestion, 2), STRANGER);
    }

    #[test]
    fn a_number_that_is_said_and_kept_contradicts_itself() {
        let mut said = OwnNumbers::default();
        said.mechanisms.insert((Function::Detection.number(), 2), 1);
        let wrong = Numbering::of_peer(&said, all()).expect_err("1 was internet-16's").to_string();
        assert_eq!(wrong, "detection/1 is both internet-16 and crc-32c");
        Numbering::of_peer(&said, [(11, 2)]).expect("who does not have internet-16 may give its number away");
        let mut said = OwnNumbers::default();
        said.functions.insert(Function::Fec.number(), Function::Flow.number());
        let wrong = Numbering::of_peer(&said, all()).expect_err("two functions of one number").to_string();
        assert_eq!(wrong, "8 is both flow and fec");
    }

    #[test]
    fn what_differs_is_named() {
        let (own, plain) = (swapped(), Numbering::default());
        assert_eq!(plain.difference(&Numbering::default()), None);
        assert_eq!(own.difference(&plain).as_deref(), Some("fec is 9 here and 4 there, and 4 others differ"));
    }
}
