//! What became of packets: acknowledgements, losses, time-outs, and what follows for data, congestion and size.

use super::flows::{FlowControl, Token};
use super::{CloseReason, Connection, Event};
use crate::event::FlowId;
use core::ops::Range;
use core::time::Duration;
use uts_functions::Time;
use uts_functions::congestion::{Ack, Congestion, Loss, Timeout};
use uts_functions::flow::FlowControl as _;
use uts_functions::retransmission::ledger::{Ledger, Lost, Sent};
use uts_functions::retransmission::{LostData, Response, Retransmission};
use uts_functions::timing::Timing;

/// Probe time-outs in a row after which full packets may no longer pass.
const TIMEOUTS_OF_BLACK_HOLE: u32 = 3;

/// An acknowledgement as it came.
pub(super) struct Report<'a> {
    pub ranges: &'a mut dyn Iterator<Item = Range<u64>>,
    pub delay: Duration,
    pub ce: Option<u64>,
}

impl Connection {
    /// The peer acknowledges packets.
    pub(super) fn on_report(&mut self, now: Time, report: Report<'_>) -> Result<(), CloseReason> {
        let next_packet = self.outbound.as_ref().map_or(0, |o| o.ledger.next_number());
        let Some(outbound) = &mut self.outbound else { return Ok(()) };
        let prior_in_flight = outbound.delivery.in_flight;
        let Some(done) = outbound.ledger.on_ack(report.ranges, now) else {
            return Err(CloseReason::Protocol("it acknowledged a packet that was never sent".into()));
        };
        let Some(newest) = done.packets.iter().max_by_key(|run| run.numbers.end) else {
            self.on_spurious(now, &done.spurious);
            return Ok(());
        };
        let (largest, sent_at) = (newest.numbers.end - 1, newest.sent.snapshot.sent_at);
        // All packets are marked: a report without counts shows that the path takes the marks off. One that counts more marks
        // than there were packets is of no use (RFC 9000 section 13.4.2.1).
        let ce = report.ce.filter(|ce| *ce <= next_packet);
        self.ecn_passes &= ce.is_some();
        // Each transmission has its own number, so that every sample is unambiguous (design section 2, principle 4).
        let rtt = (newest.sent.eliciting && Some(largest) == outbound.ledger.largest_acked()).then(|| {
            let delay = report.delay.min(outbound.stack(0).map_or(Duration::ZERO, delay_max));
            let sample = outbound.rtt.on_sample(now, now.since(sent_at), delay);
            outbound.timing.on_sample(&mut outbound.rtt, sample);
            sample
        });
        let mut packets = 0;
        for run in &done.packets {
            packets += run.packets();
            if run.sent.eliciting {
                outbound.delivery.on_acknowledged(now, run.bytes(), &run.last_snapshot());
            }
        }
        outbound.timeouts = 0;
        self.on_spurious(now, &done.spurious);
        self.find_losses(now);
        let Some(outbound) = &mut self.outbound else { return Ok(()) };
        let (sample, bytes) = outbound.delivery.sample(outbound.rtt.min);
        let ce = ce.unwrap_or(outbound.ce_seen);
        let ecn_marked = ce.saturating_sub(outbound.ce_seen);
        outbound.ce_seen = outbound.ce_seen.max(ce);
        let ack = Ack {
            now,
            bytes,
            largest,
            sent_at,
            rtt,
            rtt_smoothed: outbound.rtt.smoothed,
            rtt_min: outbound.rtt.min,
            prior_in_flight,
            sample,
            ecn_marked,
            next_packet,
        };
        if bytes > 0 {
            outbound.congestion.on_ack(&ack, &outbound.delivery);
        }
        outbound.meter.on_acknowledged(now, packets, &sample, &outbound.rtt);
        let mut data: Option<(u32, Range<u64>)> = None;
        for run in &done.packets {
            // Behind the look for losses: what has arrived of those that were sent after the first of them counts.
            self.size.on_acknowledged(run.numbers.end - 1, run.sent.bytes as usize);
            if self.trace.is_on() {
                run.numbers.clone().for_each(|number| self.trace.on_packet_acknowledged(now, number));
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
                        self.settle_data(before);
                    }
                    _ => {
                        self.settle_data(data.take());
                        self.settle_token(now, token);
                    }
                }
            }
        }
        self.settle_data(data);
        if let Some(outbound) = &mut self.outbound {
            outbound.ledger.take_back(done);
        }
        self.set_exchange_timers();
        Ok(())
    }

    /// The peer recovered packets from redundancy: their data has arrived, though the packets are lost to the path.
    pub(super) fn on_repaired(
        &mut self,
        now: Time,
        ranges: impl Iterator<Item = Range<u64>>,
    ) -> Result<(), CloseReason> {
        let Some(outbound) = &mut self.outbound else { return Ok(()) };
        let Some(repaired) = outbound.ledger.on_repaired(ranges) else {
            return Err(CloseReason::Protocol("it repaired a packet that was never sent".into()));
        };
        self.stats.packets_repaired += repaired.len() as u64;
        for tokens in repaired {
            for token in tokens {
                self.settle_token(now, &token);
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
        if let Some(outbound) = self.outbound.as_mut().filter(|_| count > 0) {
            outbound.congestion.on_spurious_loss(bytes);
            (0..count).for_each(|_| outbound.meter.on_spurious());
        }
        self.stats.packets_lost = self.stats.packets_lost.saturating_sub(count);
        self.stats.packets_late += count;
        for (number, sent) in packets {
            self.size.on_acknowledged(*number, sent.bytes as usize);
            self.settle_tokens(now, sent);
        }
    }

    /// What a packet carried has arrived.
    fn settle_tokens(&mut self, now: Time, sent: &Sent<Token>) {
        for token in &sent.tokens {
            self.settle_token(now, token);
        }
    }

    /// Data of a flow has arrived.
    fn settle_data(&mut self, run: Option<(u32, Range<u64>)>) {
        let Some((id, range)) = run else { return };
        let Some(flow) = self.flows.get_mut(id) else { return };
        flow.send.buffer.on_acknowledged(range);
        self.after_send_change(id);
    }

    fn settle_token(&mut self, now: Time, token: &Token) {
        match token {
            Token::Data { flow, range } => self.settle_data(Some((*flow, range.clone()))),
            Token::Skip { flow, range } => {
                if let Some(flow) = self.flows.get_mut(*flow) {
                    flow.send.buffer.on_skip_acknowledged(range.clone());
                }
                self.after_send_change(*flow);
            }
            Token::Flow(FlowControl::Reset(id)) => {
                if let Some(flow) = self.flows.get_mut(*id) {
                    flow.send.is_done = true;
                }
                self.flows.drop_if_done(*id);
            }
            Token::Flow(FlowControl::Stop(id)) => {
                if let Some(flow) = self.flows.get_mut(*id) {
                    flow.receive.stop = None;
                }
                self.flows.drop_if_done(*id);
            }
            Token::Ack(largest) => {
                if let Some(inbound) = &mut self.inbound {
                    inbound.arrivals.forget_through(*largest);
                }
            }
            Token::SizeProbe(bytes) => {
                if self.size.on_probe_acknowledged(now, *bytes) {
                    self.on_packet_size();
                }
            }
            Token::Flow(_) | Token::PathResponse(_) | Token::Exchange(_) => {}
        }
    }

    /// A flow's sending state has changed: wakes its writer, keeps its place in the order, ends it when it is complete.
    pub(super) fn after_send_change(&mut self, id: u32) {
        let room = self.send_capacity();
        let Some(flow) = self.flows.get_mut(id) else { return };
        let limits = self.outbound.as_ref().and_then(|o| o.stack(flow.send.group)).map(|s| s.flow.clone());
        let send = &mut flow.send;
        if send.writer_waits && send.buffer.load_bytes() < room {
            send.writer_waits = false;
            self.events.push_back(Event::Writable(FlowId(id)));
        }
        if !send.is_done && send.reset.is_none() && send.buffer.is_complete() {
            send.is_done = true;
            self.events.push_back(Event::Finished(FlowId(id)));
        }
        if send.buffer.next_expiry() != send.expires {
            self.flows.update_expiry(id);
        }
        if let Some(limits) = limits {
            self.flows.update_order(id, |limit| limits.send_limit(limit));
        }
        self.flows.drop_if_done(id);
    }

    fn on_packet_size(&mut self) {
        let bytes = self.size.current();
        if let Some(outbound) = &mut self.outbound {
            outbound.congestion.set_packet_bytes(bytes as u64);
        }
        self.events.push_back(Event::PacketSize(bytes));
    }

    /// Takes lost packets out of the ledger, and hands what they carried to whom it concerns.
    pub(super) fn find_losses(&mut self, now: Time) {
        let Some(outbound) = &mut self.outbound else { return };
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
            outbound.meter.on_lost(*number, &outbound.rtt);
            self.stats.packets_lost += 1;
            self.trace.on_packet_lost(now, *number);
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
            outbound.congestion.on_loss(&loss, &outbound.delivery);
        }
        let counted = lost.iter().filter(|(_, sent)| !sent.size_probe);
        if self.size.on_lost(now, counted.map(|(number, sent)| (*number, sent.bytes as usize))) {
            self.on_packet_size();
        }
        for (number, sent) in &lost {
            for token in &sent.tokens {
                self.recover_token(now, *number, next_packet, token);
            }
        }
    }

    /// What a lost packet carried: to be repeated, given up, or forgotten.
    fn recover_token(&mut self, now: Time, number: u64, next_packet: u64, token: &Token) {
        match token {
            Token::Data { flow, range } => self.recover_data(*flow, range.clone(), number, next_packet),
            Token::Skip { flow, range } => {
                if let Some(f) = self.flows.get_mut(*flow) {
                    f.send.buffer.repeat_skip(range.clone());
                    self.flows.control.insert(FlowControl::Skip(*flow));
                }
            }
            Token::Flow(control) => {
                self.flows.control.insert(control.clone());
            }
            Token::SizeProbe(bytes) => self.size.on_probe_lost(now, *bytes),
            Token::PathResponse(_) => self.control.push_back(token.clone()),
            Token::Exchange(direction) => self.on_exchange_lost(now, *direction),
            Token::Ack(_) => {}
        }
    }

    fn recover_data(&mut self, id: u32, range: Range<u64>, packet: u64, next_packet: u64) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let send = &mut flow.send;
        let sent_to = send.buffer.sent();
        let Some(outbound) = &mut self.outbound else { return };
        let Some(index) = outbound.stack_index(send.group) else { return };
        let stack = &outbound.stacks[index];
        if send.retransmission.as_ref().is_none_or(|(epoch, _)| *epoch != stack.epoch) {
            send.retransmission = Some((stack.epoch, stack.retransmission.clone()));
        }
        let Some((_, mechanism)) = &mut send.retransmission else { return };
        let response = mechanism.on_lost(&LostData { range, packet, sent_to, next_packet });
        match response {
            Response::Repeat(range) => send.buffer.repeat(range),
            Response::Abandon(range) => {
                self.stats.bytes_given_up += range.end - range.start;
                send.buffer.abandon(range);
                // Where no positions are sent, nobody waits for any, but for the end, which may have gone before.
                if !stack.layout.offsets && !send.buffer.is_finished() {
                    send.buffer.forget_skips();
                } else {
                    self.flows.control.insert(FlowControl::Skip(id));
                }
            }
            Response::Covered => {}
        }
        self.after_send_change(id);
    }

    /// The loss timer fired: a loss by time, or a probe time-out.
    pub(super) fn on_loss_timeout(&mut self, now: Time) {
        let Some(outbound) = &mut self.outbound else { return };
        if outbound.loss_at.is_some() {
            self.find_losses(now);
            return;
        }
        outbound.on_probe_timeout();
        let timeout =
            Timeout { now, in_a_row: outbound.timeouts, next_packet: outbound.ledger.next_number() };
        outbound.congestion.on_timeout(&timeout, &outbound.delivery);
        self.stats.timeouts += 1;
        let black_hole = outbound.timeouts == TIMEOUTS_OF_BLACK_HOLE;
        // The probe repeats the oldest data, which most likely is what the peer waits for (RFC 9002 section 6.2.4).
        // One of an outage carries none: what it brings back is the acknowledgement.
        let oldest =
            outbound.ledger.oldest_eliciting().filter(|_| !outbound.is_out()).map(|sent| sent.tokens);
        for token in oldest.into_iter().flatten() {
            match token {
                Token::Data { flow, range } if self.repeats(flow) => {
                    if let Some(f) = self.flows.get_mut(flow) {
                        f.send.buffer.repeat(range);
                    }
                    self.after_send_change(flow);
                }
                Token::Flow(control) => {
                    self.flows.control.insert(control);
                }
                Token::Exchange(direction) => self.on_exchange_lost(now, direction),
                _ => {}
            }
        }
        if black_hole && self.size.on_black_hole(now) {
            self.on_packet_size();
        }
    }

    /// Whether lost data of a flow is sent again.
    fn repeats(&self, flow: u32) -> bool {
        let group = self.flows.get(flow).map_or(0, |f| f.send.group);
        let stack = self.outbound.as_ref().and_then(|o| o.stack(group));
        stack.is_some_and(|s| s.layout.repeats)
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

/// Whether everything sent over `period` was lost: then nothing that was learnt of the path holds (RFC 9002 section 7.6).
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
