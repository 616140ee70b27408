//! Data of flows, on its way into packets: whole messages (`messages.rs`), and chunks of whatever
//! else there is (`chunks.rs`).

mod chunks;
mod messages;

pub(in crate::connection) use messages::{How, append_whole};

use super::super::flows::Flows;
use super::super::life::deadlines::earlier;
use super::super::packet::{Packet, Reason};
use super::super::receive::inbound::Arrived;
use super::super::send::gate::Gate;
use super::super::{Stats, Ways};
use super::repairs::has_repair;
use super::{Effect, Interest, LostPacket, Part, Reading, Token};
use crate::bug::bug;
use crate::synthesis::SendStack;
use uts_functions::Time;
use uts_functions::acknowledgement::Acknowledgement as _;
use uts_wire::frame::Frame;

/// Part that sends the data of flows. The flows hold it.
#[derive(Debug)]
pub(crate) struct Data;

/// Outcome of an attempt to write a data frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::connection) enum Written {
    /// There was no room.
    NoRoom,
    /// The flow had nothing to send.
    Nothing,
    /// Another frame may follow.
    More,
    /// Nothing may follow.
    Last,
}

/// Data of one flow that is loaded into a packet.
struct Cargo<'c, 'o> {
    flows: &'c mut Flows,
    stack: &'c SendStack,
    gate: Gate<'c>,
    stats: &'c mut Stats,
    packet: &'c mut Packet<'o>,
    flow: u32,
    /// End of the room for data, as a position in the packet's buffer.
    end: usize,
    /// A poll may follow.
    polls: bool,
    /// Another frame of data may follow.
    coalesce: bool,
}

impl Cargo<'_, '_> {
    /// Writes what is next of the flow.
    fn fill(&mut self) -> Written {
        self.write_messages().unwrap_or_else(|| self.write_chunk())
    }
}

impl Part for Data {
    fn read<'f>(&mut self, at: &Arrived, frame: &'f Frame<'f>, ways: &mut Ways) -> Reading<'f> {
        match frame {
            Frame::Data(data) => ways.on_data(at, data)?,
            Frame::Messages(messages) => messages.iter().try_for_each(|data| ways.on_data(at, &data))?,
            Frame::MediaTime(media) => ways.on_media_time(at.epoch, media)?,
            Frame::Order(order) => ways.on_order(at.epoch, order)?,
            _ => {}
        }
        Ok(Effect::Nothing)
    }

    fn interest(&self, ways: &Ways) -> Interest {
        if ways.flows.wants_to_send() { Interest::Data } else { Interest::Nothing }
    }

    /// Data of the flows of the packet's group, in their order.
    fn write(&mut self, packet: &mut Packet<'_>, ways: &mut Ways) {
        let Ways { outbound, flows, stats, config, .. } = ways;
        let Some(stack) = outbound.stacks.get(packet.stack) else {
            bug!("data is written under stack {}, which is gone", packet.stack);
            return;
        };
        let is_without = match packet.reason {
            Reason::SizeProbe(_) => true,
            // One of an outage carries none: what it brings back is the acknowledgement.
            Reason::Probe => outbound.is_out(),
            _ => false,
        };
        // Redundancy of an old epoch leaves alone: its group's data belongs to the new one.
        let is_current = outbound.stack(stack.group).is_some_and(|newest| newest.epoch == stack.epoch);
        if is_without || !is_current || has_repair(stack) {
            return;
        }
        let (end, polls) = (packet.end_of_data(stack), stack.polls());
        let (coalesce, is_cumulative) = (config.coalesce, stack.acknowledgement.is_cumulative());
        let gate = outbound.gate(stack, packet.now);
        while let Some(flow) = flows.next_to_send(Some(stack.group)) {
            let before = packet.out.len();
            let written = Cargo { flows, stack, gate, stats, packet, flow, end, polls, coalesce }.fill();
            if written == Written::NoRoom {
                // It may have been found to wait, until then.
                flows.update_alarm(flow);
                break;
            }
            // A flow that has nothing left must not stand before those that have.
            flows.update_order(flow, |send| gate.limit(send));
            flows.on_turn(flow, (packet.out.len() - before) as u64);
            let is_stuck = written == Written::Nothing && flows.has_turn(flow);
            // acknowledgement.md R-20
            let is_alone = !coalesce || (is_cumulative && packet.shape.repeats);
            if is_stuck || written == Written::Last || (packet.shape.has_data && is_alone) {
                break;
            }
        }
    }

    fn acked(&mut self, _now: Time, token: &Token, ways: &mut Ways) {
        if let Token::Data { flow, range } = token {
            ways.settle_data(*flow, range.clone());
        }
    }

    /// The flow's retransmission mechanism says what becomes of it.
    fn lost(&mut self, loss: &LostPacket, token: &Token, ways: &mut Ways) {
        if let Token::Data { flow, range } = token {
            ways.recover_data(*flow, range.clone(), loss);
        }
    }

    /// Sends again the data that the peer most likely waits for, if its flow repeats any.
    fn probe(&mut self, token: &Token, ways: &mut Ways) {
        if let Token::Data { flow, range } = token
            && ways.repeats(*flow)
        {
            if let Some(f) = ways.flows.get_mut(*flow) {
                f.send.buffer.repeat(range.clone());
            }
            ways.after_send_change(*flow);
        }
    }

    /// When something is due of a flow, or memory is looked for.
    fn timeout(&self, ways: &Ways) -> Option<Time> {
        let alarm = ways.flows.next_alarm().map(|(at, _)| at);
        earlier(alarm, ways.flows.outgoing.looks_at())
    }

    fn on_timeout(&mut self, now: Time, ways: &mut Ways) {
        ways.on_alarms(now);
        ways.look_for_memory(now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::*;
    use bytes::Bytes;
    use uts_functions::Function;
    use uts_wire::frame::Frame;

    fn sent(frames: &[Frame<'_>]) -> Vec<(u32, u64, usize)> {
        let of = |frame: &Frame<'_>| match frame {
            Frame::Data(data) => (data.flow, data.offset.unwrap_or(0), data.bytes.len()),
            other => panic!("{other:?}"),
        };
        frames.iter().map(of).collect()
    }

    /// Flows with so many bytes each to send.
    fn ways(retransmission: &str, bytes: &[usize]) -> Ways {
        let mut ways = testing::ways_with(&[(Function::Retransmission, retransmission)]);
        for bytes in bytes {
            let id = ways.flows.open(100).expect("granted").0;
            ways.flows.get_mut(id).expect("open").send.buffer.write(Bytes::from(vec![7; *bytes]));
            ways.after_send_change(id);
        }
        ways
    }

    #[test]
    fn flows_take_turns_and_what_is_lost_goes_first() {
        let (mut part, mut ways) = (Data, ways("selective", &[3000, 100]));
        let mut write = |ways: &mut Ways| {
            let (frames, tokens) = testing::packet_of(ways, Reason::Admitted, 1000, |packet, ways| {
                part.write(packet, ways);
            });
            (sent(&frames), tokens)
        };
        let (first, tokens) = write(&mut ways);
        assert_eq!((first.len(), first[0].0), (1, 0), "{first:?}");
        assert_eq!(write(&mut ways).0[0], (2, 0, 100), "the other's turn");
        Data.lost(&testing::LOSS, &tokens[0], &mut ways);
        assert_eq!(write(&mut ways).0[0].1, 0, "from its beginning");
        Data.acked(Time::ZERO, &tokens[0], &mut ways);
        Data.lost(&testing::LOSS, &tokens[0], &mut ways);
        assert!(write(&mut ways).0[0].1 > 0, "what has arrived is not repeated");
    }

    #[test]
    fn what_is_given_up_is_not_sent_and_the_receiver_is_told() {
        let (mut part, mut ways) = (Data, ways("none", &[3000]));
        let (_, tokens) =
            testing::packet_of(&mut ways, Reason::Admitted, 1000, |packet, ways| part.write(packet, ways));
        part.lost(&testing::LOSS, &tokens[0], &mut ways);
        assert!(ways.flows.signals.contains(&super::super::Signal::Skip(0)));
        let frames = testing::written(&mut ways, 1000, |packet, ways| part.write(packet, ways));
        assert!(sent(&frames)[0].1 > 0, "{frames:?}");
    }

    #[test]
    fn a_probe_of_an_outage_carries_nothing() {
        let (mut part, mut ways) = (Data, ways("selective", &[3000]));
        let mut frames_of_probe = |ways: &mut Ways| {
            testing::packet_of(ways, Reason::Probe, 1000, |packet, ways| part.write(packet, ways)).0.len()
        };
        assert_eq!(frames_of_probe(&mut ways), 1);
        let outbound = &mut ways.outbound;
        while !outbound.is_out() {
            outbound.on_probe_timeout(Time::ZERO);
        }
        assert_eq!(frames_of_probe(&mut ways), 0);
    }
}
