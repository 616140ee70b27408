//! What became of packets: acknowledgements, losses, time-outs, and what follows for data,
//! congestion and size.

use super::parts::{LostPacket, Signal, Token};
use super::{CloseReason, Connection, Event, Outbound, Ways};
use crate::event::FlowId;
use core::ops::Range;
use core::time::Duration;
use smallvec::{SmallVec, smallvec};
use uts_functions::congestion::{Ack, Congestion, Loss, Timeout};
use uts_functions::feedback::BadFeedback;
use uts_functions::flow::FlowControl as _;
use uts_functions::retransmission::ledger::{Ledger, Lost, Run, Sent};
use uts_functions::retransmission::{LostData, Response, Retransmission, SentData};
use uts_functions::timing::Timing;
use uts_functions::{Function, RangeSet, Time};
use uts_wire::frame;

/// Probe time-outs in a row after which full packets may no longer pass.
const TIMEOUTS_OF_BLACK_HOLE: u32 = 3;

/// What is lost waits at least so long where it waits, whatever a mechanism says.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// An acknowledgement as it came.
pub(super) struct Report<'a> {
    pub ranges: &'a mut dyn Iterator<Item = Range<u64>>,
    pub delay: Duration,
    pub ce: Option<u64>,
}

impl Connection {
    /// The peer acknowledges packets.
    pub(super) fn on_report(&mut self, now: Time, report: Report<'_>) -> Result<(), CloseReason> {
        let Some(outbound) = &mut self.ways.outbound else { return Ok(()) };
        let next_packet = outbound.ledger.next_number();
        // One that counts more marks than there were packets is of no use (RFC 9000 section
        // 13.4.2.1).
        let ce = report.ce.filter(|ce| *ce <= next_packet);
        let prior_in_flight = outbound.delivery.in_flight;
        let Some(done) = outbound.ledger.on_ack(report.ranges, now) else {
            return Err(CloseReason::Protocol("it acknowledged a packet that was never sent".into()));
        };
        let newest = done.packets.iter().max_by_key(|run| run.numbers.end);
        let newest = newest.map(|run| outbound.on_newest(now, run, report.delay));
        let first = outbound.first_of_place;
        for run in done.packets.iter().filter(|run| run.sent.eliciting) {
            if run.numbers.start >= first {
                outbound.delivery.on_acknowledged(now, run.bytes(), &run.last_snapshot());
            } else {
                outbound.delivery.forget(run.bytes());
            }
        }
        self.on_spurious(now, &done.spurious);
        let Some(newest) = newest else { return Ok(()) };
        self.ways.marking.on_report(newest.number, ce.is_some(), next_packet);
        self.find_losses(now);
        if let Some(outbound) = self.ways.outbound.as_mut().filter(|_| newest.number >= first) {
            let packets = done.packets.iter().map(|run| run.packets()).sum();
            outbound.on_progress(now, &newest, packets, prior_in_flight, ce);
        }
        self.settle_runs(now, &done.packets);
        if let Some(outbound) = &mut self.ways.outbound {
            outbound.ledger.take_back(done);
        }
        self.set_exchange_timers();
        Ok(())
    }

    /// What the packets of a report carried has arrived.
    fn settle_runs(&mut self, now: Time, runs: &[Run<Token>]) {
        let mut data: Option<(u32, Range<u64>)> = None;
        for run in runs {
            // Behind the look for losses: what has arrived of those that were sent after the first
            // of them counts.
            self.parts.size.on_acknowledged(run.numbers.end - 1, run.packets(), run.sent.bytes as usize);
            if self.ways.trace.is_on() {
                run.numbers.clone().for_each(|number| self.ways.trace.on_packet_acknowledged(now, number));
            }
            for token in &run.sent.tokens {
                match (token, &mut data) {
                    // Packets in a row carry data in a row, which is settled at once.
                    (Token::Data { flow, range }, Some((of, whole)))
                        if flow == of && whole.end == range.start =>
                    {
                        whole.end = end_in_row(range, run.packets());
                    }
                    (Token::Data { flow, range }, _) => {
                        let before = data.replace((*flow, range.start..end_in_row(range, run.packets())));
                        self.settle_row(before);
                    }
                    _ => {
                        self.settle_row(data.take());
                        self.parts.acked(now, token, &mut self.ways);
                    }
                }
            }
        }
        self.settle_row(data);
    }

    fn settle_row(&mut self, row: Option<(u32, Range<u64>)>) {
        if let Some((flow, range)) = row {
            self.ways.settle_data(flow, range);
        }
    }

    /// The peer recovered packets from redundancy: their data has arrived, though the packets are
    /// lost to the path.
    pub(super) fn on_repaired(
        &mut self,
        now: Time,
        ranges: impl Iterator<Item = Range<u64>>,
    ) -> Result<(), CloseReason> {
        let Some(outbound) = &mut self.ways.outbound else { return Ok(()) };
        let Some(repaired) = outbound.ledger.on_repaired(ranges) else {
            return Err(CloseReason::Protocol("it repaired a packet that was never sent".into()));
        };
        self.ways.stats.packets_repaired += repaired.len() as u64;
        for tokens in repaired {
            for token in tokens {
                self.parts.acked(now, &token, &mut self.ways);
            }
        }
        Ok(())
    }

    /// Packets that were taken for lost have arrived after all.
    fn on_spurious(&mut self, now: Time, packets: &[(u64, Sent<Token>)]) {
        if packets.is_empty() {
            return;
        }
        // Only these were counted as lost.
        let counted = || packets.iter().filter(|(_, sent)| sent.eliciting && !sent.size_probe);
        let (count, bytes) =
            counted().fold((0, 0), |(count, bytes), (_, sent)| (count + 1, bytes + sent.bytes));
        if let Some(outbound) = self.ways.outbound.as_mut().filter(|_| count > 0) {
            outbound.congestion.on_spurious_loss(bytes);
            (0..count).for_each(|_| outbound.meter.on_spurious());
        }
        self.ways.stats.packets_lost = self.ways.stats.packets_lost.saturating_sub(count);
        self.ways.stats.packets_late += count;
        for (number, sent) in packets {
            self.parts.size.on_acknowledged(*number, 1, sent.bytes as usize);
            for token in &sent.tokens {
                self.parts.acked(now, token, &mut self.ways);
            }
        }
    }

    /// Takes lost packets out of the ledger, and hands what they carried to whom it concerns.
    pub(super) fn find_losses(&mut self, now: Time) {
        let Some(outbound) = &mut self.ways.outbound else { return };
        let delay = outbound.timing.loss_delay(&outbound.rtt);
        let Lost { packets: lost, look_again, cause } =
            outbound.ledger.detect_lost(now, delay, outbound.rtt.smoothed * 2);
        outbound.loss_at = look_again;
        if lost.is_empty() {
            return;
        }
        let next_packet = outbound.ledger.next_number();
        let period = outbound.probe_timeout() * 3;
        let persistent = is_persistent(&lost, &outbound.ledger, period) && outbound.rtt.samples > 0;
        let mut loss: Option<Loss> = None;
        for (number, sent) in lost.iter().filter(|(_, sent)| sent.eliciting) {
            outbound.delivery.on_lost(sent.bytes);
            if sent.size_probe {
                continue;
            }
            // migration.md M-7
            if *number < outbound.first_of_place {
                self.ways.stats.packets_lost += 1;
                continue;
            }
            self.ways.stats.packets_lost += 1;
            self.ways.trace.on_packet_lost(now, *number);
            let (bytes, packets) = loss.map_or((0, 0), |l| (l.bytes, l.packets));
            loss = Some(Loss {
                now,
                bytes: bytes + sent.bytes,
                packets: packets + 1,
                cause,
                largest: *number,
                sent_at: sent.snapshot.sent_at,
                snapshot: sent.snapshot,
                persistent,
                next_packet,
            });
        }
        if let Some(loss) = loss {
            outbound.on_loss(&loss);
        }
        let first = outbound.first_of_place;
        let of_path = |number: u64, sent: &Sent<Token>| sent.eliciting && !sent.size_probe && number >= first;
        for (number, sent) in &lost {
            if !of_path(*number, sent) {
                outbound.meter.on_lost_uncounted(*number);
                continue;
            }
            let lost = (*number, sent.snapshot.sent_at);
            outbound.meter.on_lost(now, lost, outbound.delivery.is_app_limited(), &outbound.rtt);
        }
        let counted = lost.iter().filter(|(_, sent)| !sent.size_probe);
        if self.parts.size.on_lost(now, counted.map(|(number, sent)| (*number, sent.bytes as usize))) {
            self.parts.size.tell(&mut self.ways);
        }
        for (number, sent) in &lost {
            for token in &sent.tokens {
                let loss = LostPacket { now, number: *number, next_packet };
                self.parts.lost(&loss, token, &mut self.ways);
            }
        }
        self.drain_exchanges(now);
    }

    /// The loss timer fired: a loss by time, or a probe time-out.
    pub(super) fn on_loss_timeout(&mut self, now: Time) {
        let Some(outbound) = &mut self.ways.outbound else { return };
        if outbound.loss_at.is_some() {
            self.find_losses(now);
            return;
        }
        outbound.on_probe_timeout();
        let timeout =
            Timeout { now, in_a_row: outbound.timeouts, next_packet: outbound.ledger.next_number() };
        outbound.congestion.on_timeout(&timeout, &outbound.delivery);
        self.ways.marking.on_timeout(timeout.in_a_row, timeout.next_packet);
        self.ways.stats.timeouts += 1;
        let black_hole = outbound.timeouts == TIMEOUTS_OF_BLACK_HOLE;
        // One of an outage carries nothing: what it brings back is the acknowledgement.
        let oldest =
            outbound.ledger.oldest_eliciting().filter(|_| !outbound.is_out()).map(|sent| sent.tokens);
        for token in oldest.into_iter().flatten() {
            self.parts.probe(&token, &mut self.ways);
        }
        self.drain_exchanges(now);
        if black_hole && self.parts.size.on_black_hole(now) {
            self.parts.size.tell(&mut self.ways);
        }
    }
}

impl Ways {
    /// Data of a flow has arrived.
    pub(super) fn settle_data(&mut self, id: u32, range: Range<u64>) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        flow.send.buffer.on_acknowledged(range.clone());
        flow.send.on_settled(range);
        self.after_send_change(id);
    }

    /// A flow's sending state has changed: wakes its writer, keeps its place in the order, ends it
    /// when it is complete.
    pub(super) fn after_send_change(&mut self, id: u32) {
        if self.flows.get(id).is_some_and(|flow| flow.send.writer_waits) {
            self.wake_writer(id);
        }
        let Some(flow) = self.flows.get_mut(id) else { return };
        let stack = self.outbound.as_ref().and_then(|o| o.stack(flow.send.group));
        let send = &mut flow.send;
        if !send.is_done && send.reset.is_none() && send.buffer.is_complete() {
            send.is_done = true;
            self.events.push_back(Event::Finished(FlowId(id)));
        }
        if flow.next_alarm() != flow.alarm {
            self.flows.update_alarm(id);
        }
        if let Some(stack) = stack {
            self.flows.update_order(id, |limit| stack.flow.send_limit(limit));
        }
        self.flows.drop_if_done(id);
    }

    /// Tells the application that a flow takes more, if it does.
    fn wake_writer(&mut self, id: u32) {
        let room = self.send_capacity();
        let Some(send) = self.flows.get_mut(id).map(|flow| &mut flow.send) else { return };
        let may_write = send.rare.as_ref().is_none_or(|rare| rare.admits_at.is_none());
        if may_write && send.buffer.load_bytes() < room {
            send.writer_waits = false;
            self.events.push_back(Event::Writable(FlowId(id)));
        }
    }

    /// Data of a flow was lost: its retransmission mechanism says whether it is repeated.
    pub(super) fn recover_data(&mut self, id: u32, range: Range<u64>, loss: &LostPacket) {
        self.recover(id, range, loss, false);
    }

    /// What a flow has waited for is not asked for, or another mechanism is in use: that is asked
    /// about all of it.
    pub(super) fn recover_awaited(&mut self, now: Time, id: u32) {
        let Some(rare) = self.flows.get_mut(id).and_then(|flow| flow.send.rare.as_mut()) else { return };
        let (ranges, number) = rare.awaited.take();
        let next_packet = self.outbound.as_ref().map_or(0, |outbound| outbound.ledger.next_number());
        let loss = LostPacket { now, number, next_packet };
        ranges.into_iter().for_each(|range| self.recover(id, range, &loss, true));
    }

    fn recover(&mut self, id: u32, range: Range<u64>, loss: &LostPacket, has_waited: bool) {
        let Some(flow) = self.ready_to_repeat(id, loss) else { return };
        for range in self.give_up_tagged(id, range) {
            let Some(send) = self.flows.get_mut(id).map(|flow| &mut flow.send) else { return };
            let Some((_, mechanism)) = &mut send.retransmission else { return };
            let lost = LostData { range: range.clone(), packet: loss.number, has_waited, flow };
            match mechanism.on_lost(&lost) {
                Response::Repeat(range) => send.buffer.repeat(range),
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

    /// Of what was lost, what was handed over beyond the flow's rate is given up (rate.md R-12).
    /// Says what is left.
    fn give_up_tagged(&mut self, id: u32, range: Range<u64>) -> SmallVec<[Range<u64>; 1]> {
        let rare = self.flows.get(id).and_then(|flow| flow.send.rare.as_ref());
        let Some(rare) = rare.filter(|rare| !rare.tagged.is_empty()) else { return smallvec![range] };
        let left: SmallVec<[Range<u64>; 1]> = rare.tagged.gaps(range.clone()).collect();
        let mut tagged = RangeSet::new();
        tagged.insert(range);
        for part in &left {
            tagged.remove(part.clone());
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
        let Some(flow) = self.flows.get_mut(id) else { return };
        let send = &mut flow.send;
        self.stats.bytes_given_up += range.end - range.start;
        send.buffer.abandon(range);
        let offsets =
            self.outbound.as_ref().and_then(|o| o.stack(send.group)).is_some_and(|s| s.layout.offsets);
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
        let next_packet = self.outbound.as_ref().map_or(0, |outbound| outbound.ledger.next_number());
        let loss = LostPacket { now, number: 0, next_packet };
        let Some(flow) = self.ready_to_repeat(id, &loss) else { return Ok(()) };
        let Some(send) = self.flows.get_mut(id).map(|flow| &mut flow.send) else { return Ok(()) };
        let Some((_, mechanism)) = &mut send.retransmission else { return Ok(()) };
        if mechanism.info().number != feedback.mechanism || send.reset.is_some() {
            return Ok(());
        }
        for range in mechanism.on_feedback(feedback.words, &flow)? {
            if let Some(rare) = &mut send.rare {
                rare.awaited.remove(range.clone());
            }
            send.buffer.repeat(range);
        }
        self.after_send_change(id);
        Ok(())
    }

    /// Sees that a flow has the mechanism that its profile names for its losses; gives the flow as
    /// that sees it.
    fn ready_to_repeat(&mut self, id: u32, loss: &LostPacket) -> Option<SentData> {
        let send = &mut self.flows.get_mut(id)?.send;
        let outbound = self.outbound.as_ref()?;
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
        })
    }

    /// Whether lost data of a flow is sent again.
    pub(super) fn repeats(&self, flow: u32) -> bool {
        let group = self.flows.get(flow).map_or(0, |f| f.send.group);
        let stack = self.outbound.as_ref().and_then(|o| o.stack(group));
        stack.is_some_and(|s| s.layout.repeats)
    }
}

/// The newest packet of a report.
struct Newest {
    number: u64,
    sent_at: Time,
    /// The round trip that it measures, if it does.
    rtt: Option<Duration>,
}

impl Outbound {
    /// The newest packet of a report measures the round trip. Each transmission has its own number,
    /// so that every sample is unambiguous.
    fn on_newest(&mut self, now: Time, run: &Run<Token>, delay: Duration) -> Newest {
        let (number, sent_at) = (run.numbers.end - 1, run.sent.snapshot.sent_at);
        self.timeouts = 0;
        let is_sample = run.sent.eliciting
            && Some(number) == self.ledger.largest_acked()
            && number >= self.first_of_place;
        let rtt = is_sample.then(|| {
            let delay = delay.min(self.stack(0).map_or(Duration::ZERO, delay_max));
            let sample = self.rtt.on_sample(now, now.since(sent_at), delay);
            self.timing.on_sample(&mut self.rtt, sample);
            sample
        });
        Newest { number, sent_at, rtt }
    }

    /// Congestion control hears of a loss. Where that ends its search for the path's limit, and
    /// packets wait on the way, what the search has cost says nothing of the path: the meter leaves
    /// it out.
    fn on_loss(&mut self, loss: &Loss) {
        let has_searched = self.is_searching();
        self.congestion.on_loss(loss, &self.delivery);
        if has_searched && !self.is_searching() && self.meter.has_queue(&self.rtt) {
            self.meter.leave_out_before(loss.next_packet);
        }
    }

    /// Congestion control and the meter hear what a report has brought.
    fn on_progress(
        &mut self,
        now: Time,
        newest: &Newest,
        packets: u64,
        prior_in_flight: u64,
        ce: Option<u64>,
    ) {
        let (sample, bytes) = self.delivery.sample(self.rtt.min);
        let ce = ce.unwrap_or(self.ce_seen);
        let ecn_marked = ce.saturating_sub(self.ce_seen);
        self.ce_seen = self.ce_seen.max(ce);
        let ack = Ack {
            now,
            bytes,
            largest: newest.number,
            sent_at: newest.sent_at,
            rtt: newest.rtt,
            rtt_smoothed: self.rtt.smoothed,
            rtt_min: self.rtt.min,
            prior_in_flight,
            sample,
            ecn_marked,
            next_packet: self.ledger.next_number(),
        };
        if bytes > 0 {
            self.congestion.on_ack(&ack, &self.delivery);
        }
        self.meter.on_acknowledged(now, packets, &sample, &self.rtt);
    }
}

/// Where data ends that packets in a row carry, if this is what the first of them carries.
fn end_in_row(range: &Range<u64>, packets: u64) -> u64 {
    range.start + packets * (range.end - range.start)
}

fn delay_max(stack: &crate::synthesis::SendStack) -> Duration {
    use uts_functions::acknowledgement::Acknowledgement;
    stack.acknowledgement.delay_max()
}

/// Whether everything sent over `period` was lost: then nothing that was learnt of the path holds
/// (RFC 9002 section 7.6).
fn is_persistent(lost: &[(u64, Sent<Token>)], ledger: &Ledger<Token>, period: Duration) -> bool {
    let mut start: Option<(u64, Time)> = None;
    for (number, sent) in lost {
        start = match start {
            Some((last, since)) if ledger.are_neighbours(last, *number) => {
                if sent.snapshot.sent_at.since(since) > period {
                    return true;
                }
                Some((*number, since))
            }
            _ => Some((*number, sent.snapshot.sent_at)),
        };
    }
    false
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
            let loss = |number| LostPacket { now: Time::ZERO, number, next_packet: 10 };
            ways.recover_data(id, 1000..2000, &loss(1));
            // The first two of what was ordered again have left.
            let buffer = &mut ways.flows.get_mut(id).expect("open").send.buffer;
            for start in [1000, 2000] {
                assert_eq!(buffer.next_chunk(1000, u64::MAX).expect("repeated").range, start..start + 1000);
            }
            if let Some(fec) = exchanged {
                let next = profile.with_named(Function::Fec, fec).expect("it exists");
                let outbound = ways.outbound.as_mut().expect("established");
                assert!(outbound.put_to_use(Time::ZERO, 1, 0, &next, 1200));
            }
            ways.recover_data(id, 2000..3000, &loss(2));
            let buffer = &mut ways.flows.get_mut(id).expect("open").send.buffer;
            let next = buffer.next_chunk(1000, u64::MAX).expect("more was ordered again").range;
            assert_eq!(next, 3000..4000, "exchanged {exchanged:?}");
        }
    }
}
