//! Frames that prove where an end is: challenges, and answers to the peer's. An answer that is lost
//! is not repeated, for whoever asked asks again (RFC 9000 section 13.3). When a challenge is
//! repeated is for [`Migration`](super::super::migration::Migration) to say. The peer's close is
//! read here; this end's leaves in a packet of its own.

use super::super::Ways;
use super::super::packet::Packet;
use super::super::receive::inbound::Arrived;
use super::{Effect, Interest, Part, Reading};
use core::time::Duration;
use std::collections::VecDeque;
use uts_functions::Time;
use uts_wire::frame::Frame;

/// Answers that may wait at once: a peer may ask faster than it listens.
const ANSWERS_MAX: usize = 16;

/// Challenges and answers about places that are to be said.
#[derive(Debug, Default)]
pub(crate) struct Control {
    answers: VecDeque<u64>,
    challenge: Option<Box<Challenge>>,
}

/// Challenge that the peer is to answer with its number.
#[derive(Debug)]
struct Challenge {
    number: u64,
    waits: bool,
    said_at: Time,
    times: u32,
}

impl Control {
    /// The peer is to show that it is where packets go from now on.
    pub fn challenge(&mut self, number: u64) {
        self.challenge = Some(Box::new(Challenge { number, waits: true, said_at: Time::ZERO, times: 0 }));
    }

    /// No answer has come yet: the challenge is said again.
    pub fn challenge_again(&mut self) {
        if let Some(challenge) = &mut self.challenge {
            challenge.waits = true;
        }
    }

    /// Takes the challenge that the peer was to answer, if it was said.
    pub fn take_challenge(&mut self) -> Option<u64> {
        self.challenge.take().filter(|challenge| challenge.times > 0).map(|challenge| challenge.number)
    }

    /// Nobody needs to show anything.
    pub fn drop_challenge(&mut self) {
        self.challenge = None;
    }

    /// The peer has answered. `None` = not what it was asked; else the round trip, if the challenge
    /// was said once.
    pub fn on_path_response(&mut self, now: Time, number: u64) -> Option<Option<Duration>> {
        let answered =
            self.challenge.take_if(|challenge| challenge.number == number && challenge.times > 0)?;
        Some((answered.times == 1).then(|| now.since(answered.said_at)))
    }

    /// The peer asks whether this end is where it sends from.
    fn on_path_challenge(&mut self, number: u64) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push_back(number);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.challenge.as_ref().is_none_or(|challenge| !challenge.waits)
    }

    pub fn shrink(&mut self) {
        self.answers.shrink_to_fit();
    }
}

impl Part for Control {
    fn read<'f>(&mut self, _at: &Arrived, frame: &'f Frame<'f>, ways: &mut Ways) -> Reading<'f> {
        Ok(match frame {
            Frame::PathChallenge(number) => {
                self.on_path_challenge(*number);
                ways.outbound.answer_at_once();
                Effect::Nothing
            }
            Frame::PathResponse(number) => Effect::Answered(*number),
            Frame::Close(close) => Effect::Close(close),
            _ => Effect::Nothing,
        })
    }

    fn interest(&self, _ways: &Ways) -> Interest {
        Interest::frames_if(!self.is_empty())
    }

    fn write(&mut self, packet: &mut Packet<'_>, _ways: &mut Ways) {
        while let Some(number) = self.answers.front() {
            if !packet.put_if_it_fits(&Frame::PathResponse(*number)) {
                return;
            }
            self.answers.pop_front();
        }
        if let Some(challenge) = self.challenge.as_mut().filter(|challenge| challenge.waits)
            && packet.put_if_it_fits(&Frame::PathChallenge(challenge.number))
        {
            (challenge.waits, challenge.said_at) = (false, packet.now);
            challenge.times += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::*;

    #[test]
    fn answers_are_said_once_and_bounded() {
        let (mut control, mut ways) = (Control::default(), testing::ways());
        (0..100).for_each(|number| control.on_path_challenge(number));
        assert!((control.interest(&ways) == Interest::Frames));
        let frames = testing::written(&mut ways, 1200, |packet, ways| control.write(packet, ways));
        assert_eq!(frames.len(), ANSWERS_MAX);
        assert!(control.is_empty() && !(control.interest(&ways) == Interest::Frames));
    }

    #[test]
    fn only_the_number_that_was_said_is_an_answer_and_only_a_single_challenge_measures() {
        let (mut control, mut ways) = (Control::default(), testing::ways());
        control.challenge(7);
        assert_eq!(control.on_path_response(Time::from_millis(5), 7), None, "it was not asked yet");
        let mut say = |control: &mut Control| {
            testing::written(&mut ways, 1200, |packet, ways| control.write(packet, ways))
        };
        assert_eq!(say(&mut control), [Frame::PathChallenge(7)]);
        assert_eq!(say(&mut control), []);
        assert_eq!(control.on_path_response(Time::from_millis(5), 8), None);
        assert!(control.on_path_response(Time::from_millis(5), 7).expect("answered").is_some());
        assert_eq!(control.on_path_response(Time::from_millis(5), 7), None, "once");
        control.challenge(9);
        say(&mut control);
        control.challenge_again();
        assert_eq!(say(&mut control), [Frame::PathChallenge(9)]);
        assert_eq!(control.on_path_response(Time::from_millis(5), 9), Some(None));
    }

    #[test]
    fn what_does_not_fit_waits() {
        let (mut control, mut ways) = (Control::default(), testing::ways());
        (0..3).for_each(|number| control.on_path_challenge(number));
        let frames = testing::written(&mut ways, 20, |packet, ways| control.write(packet, ways));
        assert!(
            (1..3).contains(&frames.len()) && (control.interest(&ways) == Interest::Frames),
            "{frames:?}"
        );
    }
}
