//! Fate of data that has arrived, or was lost: its flow's retransmission mechanism says what is
//! sent again.

use super::flows::halves::SendHalf;
use super::parts::{LostPacket, Signal};
use super::{Event, Ways};
use crate::bug::bug;
use crate::event::FlowId;
use core::ops::Range;
use core::time::Duration;
use smallvec::{SmallVec, smallvec};
use uts_functions::feedback::BadFeedback;
use uts_functions::retransmission::{self, LostData, Response, Retransmission, SentData};
use uts_functions::{Function, RangeSet, Time};
use uts_wire::frame;

/// Time that lost data waits at the least where it waits, whatever a mechanism says.
const WAIT_MIN: Duration = Duration::from_millis(1);

impl Ways {
    /// Data of a flow has arrived.
    pub(super) fn settle_data(&mut self, id: u32, range: Range<u64>) {
        self.settle_by(id, range, SendHalf::on_arrived);
    }

    /// Data of a flow has arrived that was taken for lost.
    pub(super) fn settle_late_data(&mut self, id: u32, range: Range<u64>) {
        self.settle_by(id, range, SendHalf::on_arrived_late);
    }

    fn settle_by(
        &mut self,
        id: u32,
        range: Range<u64>,
        on_arrived: impl FnOnce(&mut SendHalf, Range<u64>, Option<&retransmission::Slot>),
    ) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let mechanism = self.outbound.stack(flow.send.group).map(|stack| &stack.retransmission);
        on_arrived(&mut flow.send, range, mechanism);
        self.after_send_change(id);
    }

    /// Units of a flow count that have become whole without an arrival: something of them was given
    /// up, or another mechanism is in use.
    pub(super) fn count_whole(&mut self, id: u32) {
        let Some(send) = self.flows.get_mut(id).map(|flow| &mut flow.send) else {
            bug!("flow {id} counts what is whole and is gone");
            return;
        };
        let stack = self.outbound.stack(send.group);
        send.count_whole(stack.and_then(|stack| stack.retransmission.unit()));
    }

    /// A flow's sending state has changed: wakes its writer, keeps its place in the order, ends it
    /// when it is complete.
    pub(super) fn after_send_change(&mut self, id: u32) {
        if self.flows.get(id).is_some_and(|flow| flow.send.writer_waits) {
            self.wake_writer(id);
        }
        let Some(flow) = self.flows.get_mut(id) else { return };
        let gate = self.outbound.gate_of(flow.send.group);
        let send = &mut flow.send;
        if !send.is_done && send.reset.is_none() && send.buffer.is_complete() {
            send.is_done = true;
            self.events.push_back(Event::Finished(FlowId(id)));
        }
        send.end_if_reset();
        if let Some(gate) = &gate {
            send.keep_repeats_within(gate.credit(send));
        }
        if flow.next_alarm() != flow.alarm {
            self.flows.update_alarm(id);
        }
        if let Some(gate) = gate {
            self.flows.update_order(id, |send| gate.limit(send));
        }
        self.flows.drop_if_done(id);
        if self.flows.outgoing.wakes() {
            self.share_memory();
        }
    }

    /// Tells the application that a flow takes more, once a third of what it may hold is free (so
    /// does the kernel's TCP: `sk_stream_min_wspace`). Told of each packet that has arrived, it
    /// would write, and this end send, a packet or two at a time.
    pub(super) fn wake_writer(&mut self, id: u32) {
        let room = self.send_capacity(id);
        let Some(send) = self.flows.get_mut(id).map(|flow| &mut flow.send) else {
            bug!("the writer of flow {id} waits, and the flow is gone");
            return;
        };
        let may_write = send.rare.as_ref().is_none_or(|rare| rare.admits_at.is_none());
        if may_write && send.buffer.load_bytes() < room - room / 3 {
            send.writer_waits = false;
            self.events.push_back(Event::Writable(FlowId(id)));
        } else {
            self.note_lack(id);
        }
    }

    /// Data of a flow was lost: its retransmission mechanism says whether it is repeated.
    pub(super) fn recover_data(&mut self, id: u32, range: Range<u64>, loss: &LostPacket) {
        self.recover(id, range, loss, false);
    }

    /// Asks the flow's mechanism about all lost data that waited to be asked for: nobody has asked,
    /// or another mechanism is in use.
    pub(super) fn recover_awaited(&mut self, now: Time, id: u32) {
        self.count_whole(id);
        let Some(send) = self.flows.get_mut(id).map(|flow| &mut flow.send) else {
            bug!("flow {id} waits for an answer and is gone");
            return;
        };
        let Some(rare) = &mut send.rare else { return };
        let (ranges, number) = rare.awaited.take();
        let next_packet = self.outbound.ledger.next_number();
        let loss = LostPacket { now, number, sent_at: now, next_packet };
        ranges.into_iter().for_each(|range| self.recover(id, range, &loss, true));
    }

    /// Asks the flow's mechanism what becomes of positions that were lost (retransmission.md R-2).
    fn recover(&mut self, id: u32, range: Range<u64>, loss: &LostPacket, has_waited: bool) {
        let Some(flow) = self.ready_to_repeat(id, loss) else { return };
        for range in self.still_wanted(id, range) {
            let Some(send) = self.flows.get_mut(id).map(|flow| &mut flow.send) else {
                bug!("flow {id} lost data and is gone");
                return;
            };
            let Some((_, mechanism)) = &mut send.retransmission else {
                bug!("flow {id} is ready to repeat and has no mechanism for that");
                return;
            };
            let (losses, first_sent_at) = if mechanism.counts() {
                send.rare.get_or_insert_default().tries.on_lost(&range, loss.sent_at)
            } else {
                (1, loss.now)
            };
            let (age, packet) = (loss.now.since(first_sent_at), loss.number);
            let lost = LostData { range: range.clone(), packet, has_waited, losses, age, flow };
            match mechanism.on_lost(&lost) {
                Response::Repeat(range) => send.repeat(range),
                Response::Abandon(range) => self.give_up(id, range),
                Response::Covered => {}
                Response::Wait(until) => {
                    let until = until.max(loss.now + WAIT_MIN);
                    send.rare.get_or_insert_default().awaited.insert(range, loss.number, until);
                }
            }
        }
        self.after_send_change(id);
    }

    /// Positions of a lost packet that are still wanted: no copy of them has come late
    /// (retransmission.md R-18), and they were not handed over beyond the flow's rate. Positions
    /// beyond it are given up (rate.md R-12).
    fn still_wanted(&mut self, id: u32, range: Range<u64>) -> SmallVec<[Range<u64>; 1]> {
        let rare = self.flows.get(id).and_then(|flow| flow.send.rare.as_ref());
        let Some(rare) = rare.filter(|rare| !rare.tagged.is_empty() || !rare.withheld.is_empty()) else {
            return smallvec![range];
        };
        let missing: SmallVec<[Range<u64>; 1]> = rare.withheld.not_late(range).collect();
        let mut tagged = RangeSet::new();
        let mut left = SmallVec::new();
        for part in missing {
            tagged.insert(part.clone());
            for kept in rare.tagged.gaps(part) {
                tagged.remove(kept.clone());
                left.push(kept);
            }
        }
        for part in tagged.iter() {
            self.give_up(id, part);
        }
        if let Some(send) = self.flows.get_mut(id).map(|flow| &mut flow.send)
            && let Some(rare) = &mut send.rare
        {
            rare.tagged.remove(0..send.buffer.done_to());
        }
        left
    }

    fn give_up(&mut self, id: u32, range: Range<u64>) {
        let Some(flow) = self.flows.get_mut(id) else {
            bug!("flow {id} gives up data and is gone");
            return;
        };
        let send = &mut flow.send;
        if let Some(rare) = &mut send.rare {
            rare.tries.remove(&range);
        }
        self.stats.bytes_given_up += send.buffer.abandon(range);
        self.count_whole(id);
        let Some(send) = self.flows.get_mut(id).map(|flow| &mut flow.send) else {
            bug!("flow {id} gave up data and is gone");
            return;
        };
        let offsets = self.outbound.stack(send.group).is_some_and(|s| s.layout.offsets);
        // Where no positions are sent, nobody waits for any, but for the end, which may have gone
        // before.
        if !offsets && !send.buffer.is_finished() {
            send.buffer.forget_skips();
        } else {
            self.flows.signals.insert(Signal::Skip(id));
        }
    }

    /// The receiver asks for what is missing of a flow.
    pub(super) fn on_demand(&mut self, now: Time, feedback: &frame::Feedback<'_>) -> Result<(), BadFeedback> {
        let id = feedback.flow;
        let next_packet = self.outbound.ledger.next_number();
        let loss = LostPacket { now, number: 0, sent_at: now, next_packet };
        let Some(flow) = self.ready_to_repeat(id, &loss) else { return Ok(()) };
        let Some(send) = self.flows.get_mut(id).map(|flow| &mut flow.send) else {
            bug!("flow {id} is ready to repeat and is gone");
            return Ok(());
        };
        // retransmission.md R-27
        if send.is_given_up() || self.outbound.is_out() {
            return Ok(());
        }
        let Some((_, mechanism)) = &mut send.retransmission else {
            bug!("flow {id} is ready to repeat and has no mechanism for that");
            return Ok(());
        };
        if mechanism.info().number != feedback.mechanism {
            return Ok(());
        }
        for range in mechanism.on_feedback(feedback.words, &flow)? {
            if let Some(rare) = &mut send.rare {
                rare.awaited.remove(range.clone());
            }
            send.repeat(range);
        }
        self.after_send_change(id);
        Ok(())
    }

    /// Sees that a flow has the mechanism that its profile names for its losses (retransmission.md
    /// R-9); gives the flow as that sees it.
    fn ready_to_repeat(&mut self, id: u32, loss: &LostPacket) -> Option<SentData> {
        let send = &mut self.flows.get_mut(id)?.send;
        let outbound = &self.outbound;
        let stack = outbound.stack(send.group)?;
        let choice = stack.profile.get(Function::Retransmission);
        if send.retransmission.as_ref().is_none_or(|(built_for, _)| built_for != choice) {
            send.retransmission = Some((*choice, stack.retransmission.clone()));
        }
        Some(SentData {
            now: loss.now,
            timeout: outbound.probe_timeout(),
            sent_to: send.buffer.sent(),
            heard_to: send.buffer.heard_to(),
            next_packet: loss.next_packet,
            acked_to: outbound.ledger.largest_acked().map_or(0, |largest| largest + 1),
            repeats_from: send.repeats().start,
            repeats_to: send.repeats().end,
            brought: send.rare.as_ref().map_or(0, |rare| rare.withheld.brought()),
        })
    }

    /// True if lost data of a flow is sent again.
    pub(super) fn repeats(&self, flow: u32) -> bool {
        let group = self.flows.get(flow).map_or(0, |f| f.send.group);
        let stack = self.outbound.stack(group);
        stack.is_some_and(|s| s.layout.repeats)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use uts_functions::Profile;

    /// An exchange of another function leaves a flow's retransmission alone: go-back-N knows that
    /// it has ordered all of a flight again.
    #[test]
    fn retransmission_forgets_nothing_when_another_function_is_exchanged() {
        let profile = [
            (Function::Protection, "aes-128-gcm"),
            (Function::Retransmission, "go-back-n"),
            (Function::Flow, "credit"),
        ]
        .into_iter()
        .fold(Profile::bare(), |p, (function, name)| p.with_named(function, name).expect("it exists"));
        for exchanged in [None, Some("reed-solomon")] {
            let mut ways = testing::ways_under(profile);
            let id = ways.flows.open(100).expect("granted").0;
            let buffer = &mut ways.flows.get_mut(id).expect("open").send.buffer;
            buffer.write(bytes::Bytes::from(vec![7; 10_000]));
            for _ in 0..10 {
                buffer.next_chunk(1000, u64::MAX).expect("it has more");
            }
            let loss = |number| LostPacket { now: Time::ZERO, number, sent_at: Time::ZERO, next_packet: 10 };
            ways.recover_data(id, 1000..2000, &loss(1));
            // The first two of what was ordered again have left.
            let buffer = &mut ways.flows.get_mut(id).expect("open").send.buffer;
            for start in [1000, 2000] {
                assert_eq!(buffer.next_chunk(1000, u64::MAX).expect("repeated").range, start..start + 1000);
            }
            if let Some(fec) = exchanged {
                let next = profile.with_named(Function::Fec, fec).expect("it exists");
                let outbound = &mut ways.outbound;
                assert!(outbound.put_to_use(Time::ZERO, 1, 0, &next, 1200));
            }
            ways.recover_data(id, 2000..3000, &loss(2));
            let buffer = &mut ways.flows.get_mut(id).expect("open").send.buffer;
            let next = buffer.next_chunk(1000, u64::MAX).expect("more was ordered again").range;
            assert_eq!(next, 3000..4000, "exchanged {exchanged:?}");
        }
    }
}
