//! Feedback: what the halves of mechanisms that work here, at the receiver of data, tell their halves at the
//! sender. Each is said as it is when the packet is built.

use super::super::Ways;
use super::super::packet::Packet;
use super::{Interest, LostPacket, Part, Token};
use core::time::Duration;
use uts_functions::retransmission::demand::emit_ranges;
use uts_functions::{Function, Time};
use uts_wire::frame::{Frame, MAX_FEEDBACK_BYTES};

/// Bytes of a frame before its words, at most: type, function, mechanism, flow, length.
const HEADER_BYTES_MAX: usize = 9;

/// Words are not begun with less room than this.
const ROOM_MIN_BYTES: usize = HEADER_BYTES_MAX + 16;

/// What there is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// What is missing of a flow.
    Missing(u32),
    /// The rate at which packets should come.
    Rate,
}

/// What is said to the sender of data. What waits to be said the ways have ([`Ways::feedback`]).
#[derive(Debug)]
pub(crate) struct Feedback;

impl Part for Feedback {
    fn interest(&self, ways: &Ways) -> Interest {
        Interest::frames_if(!ways.feedback.is_empty())
    }

    fn write(&mut self, packet: &mut Packet<'_>, ways: &mut Ways) {
        while packet.left() >= ROOM_MIN_BYTES
            && let Some(topic) = ways.feedback.pop_first()
        {
            let words_max = (packet.left() - HEADER_BYTES_MAX).min(MAX_FEEDBACK_BYTES);
            let said = match topic {
                Topic::Missing(flow) => ways.missing_words(packet.now, flow, words_max),
                Topic::Rate => ways.rate_words(),
            };
            // Meanwhile nothing may be missing any more.
            let Some((function, mechanism, words)) = said else { continue };
            let flow = if let Topic::Missing(flow) = topic { flow } else { 0 };
            let function = function.number();
            let frame = uts_wire::frame::Feedback { function, mechanism, flow, words: &words };
            packet.put(&Frame::Feedback(frame));
            packet.tokens.push(Token::Feedback(topic));
        }
    }

    /// What is missing is asked for again by itself.
    fn lost(&mut self, _loss: &LostPacket, token: &Token, ways: &mut Ways) {
        self.probe(token, ways);
    }

    fn probe(&mut self, token: &Token, ways: &mut Ways) {
        if *token == Token::Feedback(Topic::Rate) {
            ways.feedback.insert(Topic::Rate);
        }
    }
}

impl Ways {
    /// What to ask for of a flow, in words that fit.
    fn missing_words(&mut self, now: Time, id: u32, words_max: usize) -> Option<(Function, u8, Vec<u8>)> {
        let rtt = self.outbound.as_ref().map_or(Duration::ZERO, |o| o.rtt.smoothed);
        let receive = &mut self.flows.get_mut(id)?.receive;
        let (mechanism, ranges) = receive.ask(now, rtt)?;
        self.flows.update_alarm(id);
        let mut words = Vec::new();
        // Those that find no room are asked for again in their time.
        emit_ranges(&ranges, words_max, &mut words);
        (!words.is_empty()).then_some((Function::Retransmission, mechanism, words))
    }

    /// What to tell of the rate.
    fn rate_words(&self) -> Option<(Function, u8, Vec<u8>)> {
        let (choice, watch) = self.inbound.as_ref()?.watch.as_deref()?;
        let mut words = Vec::new();
        watch.say(&mut words);
        (1..=MAX_FEEDBACK_BYTES).contains(&words.len()).then_some((Function::Rate, choice.number, words))
    }
}
