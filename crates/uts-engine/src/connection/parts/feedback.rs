//! Feedback: what the halves of mechanisms that work here, at the receiver of data, tell their
//! halves at the sender. Each is said as it is when the packet is built.

use super::super::Ways;
use super::super::agreement::numbers::{own, peers};
use super::super::packet::Packet;
use super::super::receive::inbound::Arrived;
use super::{Effect, Interest, LostPacket, Part, Reading, Token};
use crate::event::CloseReason;
use uts_functions::numbering::{function_from_wire, function_to_wire};
use uts_functions::retransmission::demand::emit_ranges;
use uts_functions::{Function, Time};
use uts_wire::frame::{Frame, MAX_FEEDBACK_BYTES};

/// Bytes of a frame before its words, at most: type, function, mechanism, flow, length.
const HEADER_BYTES_MAX: usize = 9;

/// Words are not begun with less room than this.
const ROOM_MIN_BYTES: usize = HEADER_BYTES_MAX + 16;

/// Topic on which there is something to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// Missing data of a flow.
    Missing(u32),
    /// The rate at which packets should come.
    Rate,
}

/// Part that speaks to the sender of data. The ways hold the topics that wait ([`Ways::feedback`]).
#[derive(Debug)]
pub(crate) struct Feedback;

impl Part for Feedback {
    fn read<'f>(&mut self, at: &Arrived, frame: &'f Frame<'f>, ways: &mut Ways) -> Reading<'f> {
        if let Frame::Feedback(feedback) = frame {
            ways.on_feedback(at.now, feedback)?;
        }
        Ok(Effect::Nothing)
    }

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
            let own = own(&ways.rare);
            let mechanism = own.map_or(mechanism, |own| own.mechanism(function, mechanism));
            let function = function_to_wire(function, own);
            let frame = uts_wire::frame::Feedback { function, mechanism, flow, words: &words };
            packet.put(&Frame::Feedback(frame));
            packet.tokens.push(Token::Feedback(topic));
        }
    }

    /// Repeats word of the rate only: missing data is asked for again by itself.
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
    /// The half of one of our mechanisms that works at the peer has spoken. What is for another
    /// than is in use, or for a flow that is gone, came too late.
    fn on_feedback(
        &mut self,
        now: Time,
        feedback: &uts_wire::frame::Feedback<'_>,
    ) -> Result<(), CloseReason> {
        let peer = peers(&self.rare);
        let Some(function) = function_from_wire(feedback.function, peer) else { return Ok(()) };
        let mechanism = peer.map_or(feedback.mechanism, |p| p.mechanism_of(function, feedback.mechanism));
        let feedback = &uts_wire::frame::Feedback { mechanism, ..*feedback };
        let outbound = &mut self.outbound;
        let result = match function {
            Function::Rate if outbound.rate.info().number == feedback.mechanism => {
                outbound.on_rate_feedback(feedback.words)
            }
            Function::Retransmission => self.on_demand(now, feedback),
            _ => Ok(()),
        };
        result.map_err(|bad| CloseReason::Protocol(bad.to_string()))
    }

    /// Request for missing data of a flow, in words that fit.
    fn missing_words(&mut self, now: Time, id: u32, words_max: usize) -> Option<(Function, u8, Vec<u8>)> {
        let rtt = self.outbound.rtt.smoothed;
        let receive = &mut self.flows.get_mut(id)?.receive;
        let (mechanism, ranges) = receive.ask(now, rtt)?;
        self.flows.update_alarm(id);
        let mut words = Vec::new();
        // Those that find no room are asked for again in their time.
        emit_ranges(&ranges, words_max, &mut words);
        (!words.is_empty()).then_some((Function::Retransmission, mechanism, words))
    }

    /// Report on the rate, in words.
    fn rate_words(&self) -> Option<(Function, u8, Vec<u8>)> {
        let (choice, watch) = self.inbound.watch.as_deref()?;
        let mut words = Vec::new();
        watch.say(&mut words);
        (1..=MAX_FEEDBACK_BYTES).contains(&words.len()).then_some((Function::Rate, choice.number, words))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::*;
    use crate::event::FlowId;
    use uts_functions::retransmission::demand::read_ranges;
    use uts_wire::frame;

    /// Takes in bytes of a flow from this position on.
    fn arrive(ways: &mut Ways, now: Time, flow: FlowId, start: u64) {
        let data = frame::Data {
            flow: flow.0,
            offset: Some(start),
            flags: frame::DataFlags::default(),
            has_len: true,
            bytes: &[7; 100],
        };
        ways.on_data(&Arrived::of(now, None, 0, 0), &data).expect("allowed");
    }

    fn asked(part: &mut Feedback, ways: &mut Ways, now: Time, room: usize) -> Vec<core::ops::Range<u64>> {
        let frames = testing::written(ways, room, |packet, ways| {
            packet.now = now;
            part.write(packet, ways);
        });
        match frames[..] {
            [] => Vec::new(),
            [Frame::Feedback(feedback)] => read_ranges(feedback.words).expect("ranges"),
            ref frames => panic!("{frames:?}"),
        }
    }

    #[test]
    fn what_is_missing_is_asked_for_once_and_again_in_time() {
        let (mut part, mut ways) = (Feedback, testing::ways_with(&[(Function::Retransmission, "nak")]));
        let flow = ways.flows.open(100).expect("granted");
        arrive(&mut ways, Time::ZERO, flow, 0);
        assert!(part.interest(&ways) == Interest::Nothing, "nothing is missing");
        arrive(&mut ways, Time::ZERO, flow, 300);
        let due = ways.flows.next_alarm().expect("a gap").0;
        ways.on_alarms(due);
        assert!(part.interest(&ways) == Interest::Frames);
        assert_eq!(asked(&mut part, &mut ways, due, 200), [100..300]);
        assert!(part.interest(&ways) == Interest::Nothing);
        let again = ways.flows.next_alarm().expect("it may be lost").0;
        assert!(again > due);
        arrive(&mut ways, due, flow, 100);
        ways.on_alarms(again);
        assert_eq!(asked(&mut part, &mut ways, again, 200), [200..300]);
        arrive(&mut ways, again, flow, 200);
        assert!(ways.flows.next_alarm().is_none_or(|(at, _)| at > again), "nothing is missing any more");
    }

    #[test]
    fn nothing_is_asked_of_flows_that_are_gone_or_under_other_mechanisms() {
        let (mut part, mut ways) = (Feedback, testing::ways());
        let flow = ways.flows.open(100).expect("granted");
        arrive(&mut ways, Time::ZERO, flow, 300);
        assert!(part.interest(&ways) == Interest::Nothing && ways.flows.next_alarm().is_none());
        ways.feedback.extend([Topic::Missing(flow.0), Topic::Missing(98), Topic::Rate]);
        assert!(
            asked(&mut part, &mut ways, Time::ZERO, 200).is_empty()
                && part.interest(&ways) == Interest::Nothing
        );
    }

    #[test]
    fn a_rate_that_is_lost_is_said_again_as_it_then_is() {
        let (mut part, mut ways) = (Feedback, testing::ways_with(&[(Function::Rate, "netblt")]));
        ways.inbound.follow_rate(0);
        ways.feedback.insert(Topic::Rate);
        let frames = testing::written(&mut ways, 200, |packet, ways| part.write(packet, ways));
        assert!(matches!(frames[..], [Frame::Feedback(_)]), "{frames:?}");
        part.lost(&testing::LOSS, &Token::Feedback(Topic::Rate), &mut ways);
        part.lost(&testing::LOSS, &Token::Feedback(Topic::Missing(0)), &mut ways);
        let again = testing::written(&mut ways, 200, |packet, ways| part.write(packet, ways));
        assert_eq!(again, frames);
    }

    #[test]
    fn words_are_cut_to_the_room_that_there_is() {
        let (mut part, mut ways) = (Feedback, testing::ways_with(&[(Function::Retransmission, "nak")]));
        let flow = ways.flows.open(100).expect("granted");
        (1..12).for_each(|n| arrive(&mut ways, Time::ZERO, flow, 10_000 * n));
        let due = ways.flows.next_alarm().expect("gaps").0;
        ways.on_alarms(due);
        let ranges = asked(&mut part, &mut ways, due, ROOM_MIN_BYTES);
        assert!((1..11).contains(&ranges.len()) && ranges[0] == (0..10_000), "{ranges:?}");
        // What found no room is asked for again in its time.
        assert!(ways.flows.next_alarm().is_some());
    }

    /// A sender that has gone over to a mechanism that does not listen is not asked any more.
    #[test]
    fn nothing_is_asked_of_a_sender_that_has_changed_its_profile() {
        let mut ways = testing::ways_with(&[(Function::Retransmission, "nak")]);
        let flow = ways.flows.open(100).expect("granted");
        arrive(&mut ways, Time::ZERO, flow, 300);
        let due = ways.flows.next_alarm().expect("a gap").0;
        let inbound = &mut ways.inbound;
        let next = inbound.stacks[0].profile.with_named(Function::Retransmission, "selective");
        assert!(inbound.open(1, 0, &next.expect("it exists")));
        ways.follow_demands(due, 1);
        ways.on_alarms(due);
        assert!(ways.feedback.is_empty() && ways.flows.next_alarm().is_none());
    }
}
