//! A poll asks the peer to report at once, where the acknowledgement mechanism has it that the
//! sender asks.

use super::super::Ways;
use super::super::packet::{Packet, Reason};
use super::Part;
use crate::bug::bug;
use uts_functions::acknowledgement::Acknowledgement;
use uts_wire::frame::Frame;

/// When the peer was last asked.
#[derive(Debug, Default)]
pub(crate) struct Poll {
    /// Packets since then, as far as they elicit an acknowledgement.
    packets: u32,
}

impl Poll {
    /// More such packets have been sent, none with a poll.
    pub fn on_unpolled(&mut self, packets: u64) {
        self.packets = self.packets.saturating_add(u32::try_from(packets).unwrap_or(u32::MAX));
    }
}

impl Part for Poll {
    fn write(&mut self, packet: &mut Packet<'_>, ways: &mut Ways) {
        if !packet.eliciting || matches!(packet.reason, Reason::SizeProbe(_)) {
            return;
        }
        let has_more = ways.flows.wants_to_send();
        let outbound = &ways.outbound;
        let Some(stack) = outbound.stacks.get(packet.stack) else {
            bug!("a poll is written under stack {}, which is gone", packet.stack);
            return;
        };
        let asks_of_probe = packet.reason == Reason::Probe && stack.polls();
        let is_full = outbound.delivery.under_way() + 2 * packet.packet_bytes > outbound.window_bytes();
        let is_last = if stack.acknowledgement.polls_in_bursts() {
            !has_more || is_full
        } else {
            let buffers = || ways.flows.iter().map(|(_, flow)| &flow.send.buffer);
            let is_held = || buffers().any(|buffer| buffer.sent() < buffer.written());
            !has_more && (outbound.ledger.eliciting() == 0 || !is_held())
        };
        // acknowledgement.md R-11: what is repeated because nothing was heard asks, or the sender
        // might never hear.
        let is_unheard = outbound.timeouts > 0 && outbound.ledger.eliciting() == 0;
        let asks = asks_of_probe || stack.acknowledgement.poll(self.packets, is_last || is_unheard);
        if asks && packet.left() > 0 {
            Frame::Poll.emit(packet.out);
            packet.polls = true;
            self.packets = 0;
        } else {
            self.on_unpolled(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::*;
    use uts_functions::retransmission::ledger::{Departure, Sent, Tokens};
    use uts_functions::{Function, Time, library};

    #[test]
    fn every_so_many_packets_and_the_last_ask() {
        let mut ways = testing::ways_with(&[(Function::Acknowledgement, "poll-status")]);
        let id = ways.flows.open(100).expect("granted").0;
        let mut poll = Poll::default();
        let asks = |poll: &mut Poll, ways: &mut Ways| {
            let frames = testing::written(ways, 100, |packet, ways| {
                packet.put(&Frame::Ping);
                poll.write(packet, ways);
            });
            frames.contains(&Frame::Poll)
        };
        assert!(asks(&mut poll, &mut ways), "nothing follows");
        ways.flows.get_mut(id).expect("open").send.buffer.write(bytes::Bytes::from_static(b"more"));
        ways.flows.update_order(id, |send| send.limit);
        // Every 32nd, which is the default, as long as there is more.
        let asked: Vec<bool> = (0..96).map(|_| asks(&mut poll, &mut ways)).collect();
        assert!(asked.iter().enumerate().all(|(n, asks)| *asks == (n % 32 == 31)), "{asked:?}");
        poll.on_unpolled(31);
        assert!(asks(&mut poll, &mut ways), "those of a run count");
    }

    /// Rx: the last of a window does not ask (acknowledgement.md R-11).
    #[test]
    fn without_bursts_the_last_asks_only_if_nothing_was_written_behind_it() {
        for (bursts, expected) in [(1, true), (0, false)] {
            let mechanism = library::by_name(Function::Acknowledgement, "poll-status").expect("known");
            let choice = mechanism.choice_with(&[("every", 4), ("bursts", bursts)]).expect("in range");
            let mut ways = testing::ways_with(&[]);
            let profile = *ways.outbound.stack(0).expect("a stack").profile;
            ways = testing::ways_under(profile.with(Function::Acknowledgement, choice));
            let id = ways.flows.open(100).expect("granted").0;
            let mut poll = Poll::default();
            let asks = |poll: &mut Poll, ways: &mut Ways| {
                let frames = testing::written(ways, 100, |packet, ways| {
                    packet.put(&Frame::Ping);
                    poll.write(packet, ways);
                });
                frames.contains(&Frame::Poll)
            };
            let send = &mut ways.flows.get_mut(id).expect("open").send;
            send.buffer.write(bytes::Bytes::from_static(b"more"));
            // Another packet is in flight, and the window holds back what was written.
            let outbound = &mut ways.outbound;
            outbound.ledger.record(Sent {
                bytes: 100,
                epoch: 0,
                eliciting: true,
                size_probe: false,
                departure: Departure::default(),
                tokens: Tokens::new(),
                snapshot: outbound.delivery.on_sent(Time::ZERO, 100),
            });
            assert_eq!(asks(&mut poll, &mut ways), expected, "bursts = {bursts}");
            let send = &mut ways.flows.get_mut(id).expect("open").send;
            while send.buffer.next_chunk(100, u64::MAX).is_some() {}
            assert!(asks(&mut poll, &mut ways), "bursts = {bursts}: nothing was written behind it");
        }
    }

    #[test]
    fn nobody_is_asked_where_reports_come_by_themselves_or_nothing_is_to_be_reported() {
        let (mut poll, mut ways) = (Poll::default(), testing::ways());
        let frames = testing::written(&mut ways, 100, |packet, ways| {
            packet.put(&Frame::Ping);
            poll.write(packet, ways);
        });
        assert_eq!(frames, [Frame::Ping]);
        let mut ways = testing::ways_with(&[(Function::Acknowledgement, "poll-status")]);
        assert!(testing::written(&mut ways, 100, |packet, ways| poll.write(packet, ways)).is_empty());
    }
}
