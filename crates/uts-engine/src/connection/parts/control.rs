//! Frames of the connection that are said once: answers to path challenges. One that is lost is not
//! repeated, for whoever asked asks again (RFC 9000 section 13.3).

use super::super::Ways;
use super::super::packet::Packet;
use super::{Interest, Part};
use std::collections::VecDeque;
use uts_wire::frame::Frame;

/// Answers that may wait at once: a peer may ask faster than it listens.
const ANSWERS_MAX: usize = 16;

/// What is to be said once.
#[derive(Debug, Default)]
pub(crate) struct Control {
    answers: VecDeque<u64>,
}

impl Control {
    /// The peer asks whether this end is where it sends from.
    pub fn on_path_challenge(&mut self, number: u64) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push_back(number);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    pub fn shrink(&mut self) {
        self.answers.shrink_to_fit();
    }
}

impl Part for Control {
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
