//! Consent: what an end agrees to when its peer asks for a profile (selection.md S-37 to S-40).
//!
//! The sender is responsible for its load on the network: congestion control, pacing, time-outs,
//! and how seldom it is told of losses. The receiver is responsible for its memory. A peer that
//! asks gets what is no bolder than the defaults. It gets more only if the responsible end has
//! named it: by its requirements, by a pin, or by `uts.consent`.

use crate::appraisal::rules;
use crate::event::Direction;
use crate::requirements::Requirements;
use crate::selector::{self, Library};
use std::cell::OnceCell;
use uts_functions::mechanism::Consent;
use uts_functions::{Choice, Function, PathFacts, Profile, library};

/// Answers of one end to requests of its peer, in one direction.
pub(crate) struct Answering<'a> {
    requirements: &'a Requirements,
    direction: Direction,
    /// The profile that this end would choose, once it was asked for.
    own: OnceCell<Profile>,
}

impl<'a> Answering<'a> {
    /// For an end with these requirements; `direction` as that end sees it.
    pub fn new(requirements: &'a Requirements, direction: Direction) -> Self {
        Answering { requirements, direction, own: OnceCell::new() }
    }

    /// Choice that this end would make itself for a function, knowing nothing of path and peer.
    pub fn own(&self, function: Function) -> Choice {
        let own = self.own.get_or_init(|| {
            let local = Library::offered(self.requirements);
            let selection = selector::select(self.requirements, &PathFacts::default(), &local, None);
            selection.map_or_else(|_| Profile::bare(), |selection| selection.profile)
        });
        *own.get(function)
    }

    /// The first function of the first profile that this end does not agree to. Further needs of
    /// the application are asked for by exchange.
    pub fn objects_to_first(&self, asked: &Profile) -> Option<Function> {
        Function::ALL.iter().copied().find(|f| self.must_be_named(asked, *f))
    }

    /// The first function of a group's profile that this end does not agree to. What the direction
    /// shares is checked for group 0 only.
    pub fn objects_to(&self, asked: &Profile, group: u8) -> Option<Function> {
        let looked_at = |f: &Function| group == 0 || !f.is_shared();
        Function::ALL.iter().copied().filter(looked_at).find(|f| {
            let number = asked.get(*f).number;
            // S-39: the sender chooses what the receiver gets of the data. It must be able to keep
            // to its own word.
            let is_ruled_out =
                self.direction == Direction::Out && !rules::allows(self.requirements, *f, number);
            (is_ruled_out && !self.requirements.consents.has(*f, number)) || self.must_be_named(asked, *f)
        })
    }

    /// The profile, with this end's own choice for what it does by itself (S-40). `Err` names a
    /// function to which it objects, and which the other end would have to perform as well.
    pub fn corrected(&self, asked: &Profile) -> Result<Profile, Function> {
        let mut profile = *asked;
        while let Some(function) = self.objects_to_first(&profile) {
            let own = self.own(function);
            if !function.is_senders_own() || profile.get(function) == &own {
                return Err(function);
            }
            profile.set(function, own);
        }
        Ok(profile)
    }

    /// True if a mechanism goes together with what this end would choose itself: one that turns
    /// small messages into large ones is taken by an end that takes messages.
    fn would_take(&self, function: Function, choice: &Choice) -> bool {
        self.own(function);
        let mut own = *self.own.get().unwrap_or(&Profile::bare());
        own.set(function, *choice);
        own.check().is_ok()
    }

    /// S-37, S-38: whether the peer asks that a function be performed in a way that this end must
    /// have named.
    fn must_be_named(&self, asked: &Profile, function: Function) -> bool {
        let choice = asked.get(function);
        // Packets without protection have a consent of their own. Both ends give it in the
        // handshake (S-9).
        if function == Function::Protection || self.requirements.consents.has(function, choice.number) {
            return false;
        }
        let Some(mechanism) = library::find(function, choice.number) else { return false };
        let sends = self.direction == Direction::Out;
        let needs_name = match mechanism.consent {
            Consent::NotNeeded => false,
            Consent::OfSender => sends,
            Consent::OfReceiver => !sends && !self.would_take(function, choice),
            Consent::OfBoth => true,
        };
        if needs_name && self.own(function).number != choice.number {
            return true;
        }
        sends
            && mechanism.params.iter().enumerate().any(|(place, param)| {
                let value = choice.params.get(place);
                let bound = || {
                    let own = self.own(function);
                    let own = (own.number == choice.number).then(|| own.params.get(place));
                    own.filter(|own| param.bold.exceeds(*own, param.default)).unwrap_or(param.default)
                };
                param.bold.exceeds(value, param.default) && param.bold.exceeds(value, bound())
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(settings: &[(&str, &str)]) -> Profile {
        let mut r = Requirements::default();
        for (function, choice) in settings {
            r.set(&format!("uts.profile.{function}"), choice).expect("it exists");
        }
        let mut profile = Profile::bare();
        for function in Function::ALL {
            profile.set(*function, Answering::new(&Requirements::default(), Direction::Out).own(*function));
        }
        for pin in &r.pins {
            profile.set(pin.function, pin.choice);
        }
        profile
    }

    fn with(settings: &[(&str, &str)]) -> Requirements {
        let mut r = Requirements::default();
        settings.iter().for_each(|(name, value)| r.set(name, value).expect("it is offered"));
        r
    }

    #[test]
    fn a_receiver_decompresses_what_it_has_named_or_would_take() {
        for name in ["zstd", "lz4"] {
            let asked = asked(&[("presentation", name), ("segmentation", "messages")]);
            let objects = |direction, settings: &[(&str, &str)]| {
                Answering::new(&with(settings), direction).objects_to(&asked, 0)
            };
            assert_eq!(objects(Direction::In, &[]), Some(Function::Presentation), "{name}");
            assert_eq!(objects(Direction::Out, &[]), None, "{name}: who asks for it receives it");
            let consent = format!("presentation/{name}");
            for settings in [
                [("preserveMsgBoundaries", "require")],
                [("uts.consent", consent.as_str())],
                [("uts.profile.presentation", name)],
            ] {
                assert_eq!(objects(Direction::In, &settings), None, "{name}: {settings:?}");
            }
        }
        let asked = asked(&[("presentation", "byte-order"), ("segmentation", "messages")]);
        let receiver = Requirements::default();
        assert_eq!(Answering::new(&receiver, Direction::In).objects_to(&asked, 0), None, "nothing grows");
    }

    /// Choice that is asked for; whether a sender, and a receiver, with the defaults agree to it;
    /// settings by which the sender names it.
    type Row = ((&'static str, &'static str), bool, bool, &'static [(&'static str, &'static str)]);

    #[test]
    fn what_is_owed_to_others_has_to_be_named_by_who_owes_it() {
        const AVOID: &[(&str, &str)] = &[("congestionControl", "avoid")];
        let rows: [Row; 13] = [
            (("congestion", "none"), false, true, AVOID),
            (("congestion", "bbr"), true, true, &[]),
            (
                ("congestion", "bbr(loss-threshold=300)"),
                false,
                true,
                &[("uts.profile.congestion", "bbr(loss-threshold=300)")],
            ),
            (("congestion", "bbr(loss-threshold=5)"), true, true, &[]),
            (("rate", "none"), false, true, AVOID),
            (
                ("rate", "pacing-bucket(burst=64)"),
                false,
                true,
                &[("uts.profile.rate", "pacing-bucket(burst=64)")],
            ),
            (("timing", "fixed"), false, true, &[("uts.profile.timing", "fixed")]),
            (("timing", "fixed(timeout=1)"), false, true, &[("uts.profile.timing", "fixed(timeout=1)")]),
            (
                ("acknowledgement", "delayed(packets=256)"),
                false,
                true,
                &[("uts.profile.acknowledgement", "delayed(packets=256)")],
            ),
            (
                ("acknowledgement", "delayed(delay=1000)"),
                false,
                true,
                &[("uts.profile.acknowledgement", "delayed(delay=1000)")],
            ),
            (("acknowledgement", "poll-status(every=1024)"), false, true, &[("uts.consent", "all")]),
            (("flow", "none"), false, false, &[("uts.profile.flow", "none")]),
            (("fec", "reed-solomon"), true, true, &[]),
        ];
        for (choice, sender, receiver, named) in rows {
            let profile = asked(&[choice]);
            let default = Requirements::default();
            for (direction, agrees) in [(Direction::Out, sender), (Direction::In, receiver)] {
                let answering = Answering::new(&default, direction);
                assert_eq!(
                    answering.objects_to_first(&profile).is_none(),
                    agrees,
                    "{choice:?} {direction:?}"
                );
                assert_eq!(answering.objects_to(&profile, 0).is_none(), agrees, "{choice:?} {direction:?}");
            }
            let named = with(named);
            assert_eq!(Answering::new(&named, Direction::Out).objects_to(&profile, 0), None, "{choice:?}");
        }
        // A fixed time-out that was named is no leave for a shorter one.
        let named = with(&[("uts.profile.timing", "fixed(timeout=100)")]);
        let shorter = asked(&[("timing", "fixed(timeout=99)")]);
        assert_eq!(Answering::new(&named, Direction::Out).objects_to(&shorter, 0), Some(Function::Timing));
    }

    #[test]
    fn a_sender_keeps_to_its_own_requirements_and_a_receiver_takes_what_comes() {
        let profile = asked(&[("retransmission", "none")]);
        let default = Requirements::default();
        let sender = Answering::new(&default, Direction::Out);
        assert_eq!(sender.objects_to(&profile, 0), Some(Function::Retransmission));
        assert_eq!(Answering::new(&default, Direction::In).objects_to(&profile, 0), None);
        let consenting = with(&[("uts.consent", "retransmission/none")]);
        assert_eq!(Answering::new(&consenting, Direction::Out).objects_to(&profile, 0), None);
    }

    #[test]
    fn a_first_profile_is_corrected_in_what_the_sender_does_by_itself() {
        let default = Requirements::default();
        let sender = Answering::new(&default, Direction::Out);
        let bold = asked(&[("congestion", "none"), ("rate", "none"), ("timing", "fixed(timeout=1)")]);
        let corrected = sender.corrected(&bold).expect("all three are the sender's own");
        assert_eq!(corrected, asked(&[]));
        assert_eq!(sender.corrected(&asked(&[("flow", "none")])), Err(Function::Flow));
    }

    #[test]
    fn of_other_groups_only_what_is_their_own_is_looked_at() {
        let default = Requirements::default();
        let sender = Answering::new(&default, Direction::Out);
        assert_eq!(sender.objects_to(&asked(&[("congestion", "none")]), 1), None);
        assert_eq!(sender.objects_to(&asked(&[("flow", "none")]), 1), Some(Function::Flow));
    }
}
