//! Fate of packets: acknowledgements, losses, time-outs, and what follows for data, congestion and
//! size.

use super::parts::{LostPacket, Token};
use super::stage::Open;
use super::watch::meter;
use super::{CloseReason, Outbound, Ways};
use core::ops::Range;
use core::time::Duration;
use uts_functions::Time;
use uts_functions::congestion::{self, Ack, Cause, Congestion, Delivery, Loss, Snapshot, Timeout};
use uts_functions::finding::{Alarm, Finding as _, Reported, Rule};
use uts_functions::retransmission::ledger::{Ledger, Lost, Run, Sent};
use uts_functions::timing::Timing;

/// Probe time-outs in a row after which full packets may no longer pass.
const TIMEOUTS_OF_BLACK_HOLE: u32 = 3;

/// Questions of an outage whose answers may still be on their way.
const QUESTIONS_KEPT: usize = 32;

/// An acknowledgement as it came.
pub(super) struct Report<'a> {
    pub ranges: &'a mut dyn Iterator<Item = Range<u64>>,
    pub delay: Duration,
    pub ce: Option<u64>,
}

impl Open {
    /// The peer acknowledges packets.
    pub(super) fn on_report(&mut self, now: Time, report: Report<'_>) -> Result<(), CloseReason> {
        let outbound = &mut self.ways.outbound;
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
        outbound.on_late(now, &done.spurious, report.delay);
        let first = outbound.first_of_place;
        for run in done.packets.iter().filter(|run| run.sent.eliciting) {
            if run.numbers.start >= first {
                outbound.delivery.on_acknowledged(now, run.bytes(), &run.last_snapshot());
            } else {
                outbound.delivery.forget(run.bytes());
            }
        }
        let packets = done.packets.iter().map(Run::packets).sum();
        outbound.on_reported(now, newest.as_ref(), packets);
        if let Some(envelope) = &outbound.envelope {
            let epoch = envelope.epoch;
            if done.packets.iter().any(|run| run.sent.epoch == epoch)
                || done.spurious.iter().any(|(_, sent)| sent.epoch == epoch)
            {
                self.on_envelope_opened(now, epoch);
            }
        }
        self.on_spurious(now, &done.spurious);
        let Some(newest) = newest else {
            // A report that says nothing new may show a loss (finding.md R-7).
            self.find_losses(now);
            return Ok(());
        };
        self.ways.marking.on_report(newest.number, ce.is_some(), next_packet);
        self.find_losses(now);
        let outbound = &mut self.ways.outbound;
        if newest.number >= first {
            outbound.on_progress(now, &newest, packets, prior_in_flight, ce);
            let largest = done.packets.iter().map(|run| run.sent.bytes).max().unwrap_or(0);
            outbound.meter.on_arrived(now, (newest.number, largest), &outbound.rtt);
            self.ways.hint_rate(now, self.parts.size.current() as u64);
        }
        self.settle_runs(now, &done.packets);
        self.ways.outbound.ledger.take_back(done);
        self.set_exchange_timers();
        Ok(())
    }

    /// Settles the content of a report's packets, which has arrived.
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
                if let Token::Data { flow, range } = token {
                    self.ways.outbound.see_arrived(
                        run.last_snapshot().sent_at,
                        *flow,
                        &(range.start..end_in_row(range, run.packets())),
                    );
                }
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
        let outbound = &mut self.ways.outbound;
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
        let outbound = &mut self.ways.outbound;
        if count > 0 {
            outbound.congestion.on_spurious_loss(bytes);
            (0..count).for_each(|_| outbound.meter.on_spurious());
        }
        self.ways.stats.packets_lost = self.ways.stats.packets_lost.saturating_sub(count);
        self.ways.stats.packets_late += count;
        for (number, sent) in packets {
            self.parts.size.on_acknowledged(*number, 1, sent.bytes as usize);
            for token in &sent.tokens {
                match token {
                    Token::Data { flow, range } => self.ways.settle_late_data(*flow, range.clone()),
                    _ => self.parts.acked(now, token, &mut self.ways),
                }
            }
        }
    }

    /// Takes packets out of the ledger that the finding mechanism says are lost.
    pub(super) fn find_losses(&mut self, now: Time) {
        let outbound = &mut self.ways.outbound;
        let rule = outbound.finding.rule(&outbound.flight());
        let lost = outbound.ledger.take_lost(now, &rule);
        outbound.loss_at = lost.look_again;
        if rule.times_out() && lost.cause == Cause::Expired {
            let newest = lost.packets.iter().rev().find(|(_, sent)| sent.eliciting && !sent.size_probe);
            if newest.is_some_and(|(number, _)| outbound.is_new_timeout(*number)) {
                outbound.on_timeout(now);
                self.tell_timeout(now, true);
            }
        }
        self.on_lost(now, &lost);
    }

    /// Hands what lost packets carried to whom it concerns (finding.md R-1).
    fn on_lost(&mut self, now: Time, found: &Lost<Token>) {
        let outbound = &mut self.ways.outbound;
        let (lost, cause) = (&found.packets, found.cause);
        if lost.is_empty() {
            return;
        }
        let next_packet = outbound.ledger.next_number();
        if let Some(envelope) = &mut outbound.envelope
            && lost.iter().any(|(_, sent)| sent.epoch == envelope.epoch)
        {
            //
            envelope.is_due = true;
            self.parts.ping.is_wanted = true;
        }
        let period = outbound.probe_timeout() * 3;
        let persistent = is_persistent(lost, &outbound.ledger, period) && outbound.rtt.samples > 0;
        let mut loss: Option<Loss> = None;
        for (number, sent) in lost.iter().filter(|(_, sent)| sent.eliciting) {
            outbound.delivery.on_lost(sent.bytes);
            if sent.size_probe {
                continue;
            }
            self.ways.stats.packets_lost += 1;
            self.ways.trace.on_packet_lost(now, *number);
            // migration.md M-7
            if *number < outbound.first_of_place {
                continue;
            }
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
        for (number, sent) in lost {
            // migration.md M-7
            if !sent.eliciting || sent.size_probe || *number < first {
                outbound.meter.on_lost_uncounted(*number);
                continue;
            }
            let Snapshot { sent_at, in_flight, app_limited, .. } = sent.snapshot;
            let lost = meter::LostPacket { number: *number, sent_at, in_flight, bytes: sent.bytes };
            // It was when the packet left, and is still.
            let is_limited = app_limited && outbound.delivery.is_app_limited();
            outbound.meter.on_lost(now, &lost, is_limited, &outbound.rtt);
        }
        let counted = lost.iter().filter(|(_, sent)| !sent.size_probe);
        if self.parts.size.on_lost(now, counted.map(|(number, sent)| (*number, sent.bytes as usize))) {
            self.parts.size.tell(&mut self.ways);
            self.ways.outbound.meter.on_smaller_path();
        }
        for (number, sent) in lost {
            for token in &sent.tokens {
                let loss = LostPacket { now, number: *number, sent_at: sent.snapshot.sent_at, next_packet };
                self.parts.lost(&loss, token, &mut self.ways);
            }
        }
        self.drain_exchanges(now);
    }

    /// The loss timer fired: some are too old, or nothing was acknowledged for a time-out.
    pub(super) fn on_loss_timeout(&mut self, now: Time) {
        let outbound = &mut self.ways.outbound;
        match outbound.finding.alarm() {
            _ if outbound.loss_at.is_some() => self.find_losses(now),
            Alarm::LoseAll { .. } => {
                let rule = Rule::all_below(outbound.ledger.next_number());
                let lost = outbound.ledger.take_lost(now, &rule);
                // A probe for a larger size that is lost tells of sizes only (RFC 8899 section 3).
                if lost.packets.iter().any(|(_, sent)| sent.eliciting && !sent.size_probe) {
                    outbound.on_timeout(now);
                    outbound.finding.on_all_lost(rule.below);
                    outbound.delivery.departed = 0;
                    self.tell_timeout(now, true);
                }
                self.on_lost(now, &lost);
            }
            Alarm::Probe | Alarm::Each => {
                outbound.on_probe_timeout(now);
                self.ways.forget_questions();
                self.tell_timeout(now, false);
                self.probe_oldest(now);
            }
        }
    }

    /// A time-out was counted, at which packets are lost or not: tells whom it concerns.
    fn tell_timeout(&mut self, now: Time, is_loss: bool) {
        let outbound = &mut self.ways.outbound;
        let (in_a_row, next_packet) = (outbound.timeouts, outbound.ledger.next_number());
        let timeout = Timeout { now, is_loss, in_a_row, next_packet };
        outbound.reducing(|congestion, delivery| congestion.on_timeout(&timeout, delivery));
        self.ways.marking.on_timeout(timeout.in_a_row, timeout.next_packet);
        self.ways.stats.timeouts += 1;
        if timeout.in_a_row == TIMEOUTS_OF_BLACK_HOLE && self.parts.size.on_black_hole(now) {
            self.parts.size.tell(&mut self.ways);
        }
    }

    /// Sends the content of the oldest packet again, as a probe.
    fn probe_oldest(&mut self, now: Time) {
        let outbound = &self.ways.outbound;
        // One of an outage carries nothing: what it brings back is the acknowledgement.
        let oldest =
            outbound.ledger.oldest_eliciting().filter(|_| !outbound.is_out()).map(|sent| sent.tokens);
        for token in oldest.into_iter().flatten() {
            self.parts.probe(&token, &mut self.ways);
        }
        self.drain_exchanges(now);
    }
}

impl Ways {
    /// Forgets questions of an outage that nobody answers any more: it may last for days.
    /// (retransmission.md R-25)
    pub(super) fn forget_questions(&mut self) {
        let outbound = &mut self.outbound;
        if !outbound.is_out() {
            return;
        }
        let questions =
            outbound.ledger.take_questions(QUESTIONS_KEPT, |token| matches!(token, Token::Report(_)));
        for (number, bytes) in questions {
            outbound.delivery.forget(bytes);
            outbound.meter.on_lost_uncounted(number);
        }
    }
}

/// The newest packet of a report.
struct Newest {
    number: u64,
    sent_at: Time,
    /// The round trip that it measures, if it does.
    rtt: Option<Duration>,
    /// It asked for the report.
    polls: bool,
}

impl Outbound {
    /// The finding mechanism hears of a report, which acknowledges so many packets.
    fn on_reported(&mut self, now: Time, newest: Option<&Newest>, packets: u64) {
        let answers = newest.is_some_and(|newest| newest.polls) || self.stack(0).is_none_or(|s| !s.polls());
        let departed = self.finding.on_report(&Reported {
            now,
            newest: newest.map(|newest| newest.number),
            acknowledged: packets,
            answers,
            oldest: self.ledger.oldest().map(|(number, _)| number),
            in_flight: self.ledger.eliciting(),
            next_packet: self.ledger.next_number(),
        });
        // finding.md R-17.
        self.delivery.departed = departed * u64::from(self.full_bytes);
    }

    /// The newest packet of a report measures the round trip. Each transmission has its own number,
    /// so that every sample is unambiguous.
    fn on_newest(&mut self, now: Time, run: &Run<Token>, delay: Duration) -> Newest {
        let (number, sent_at) = (run.numbers.end - 1, run.sent.snapshot.sent_at);
        let polls = run.sent.departure.polls;
        let measures = !run.sent.departure.repeats || self.timing.measures_repeats();
        let rtt = measures.then(|| self.measure(now, number, &run.sent, delay)).flatten();
        self.on_heard(now, rtt.is_some());
        Newest { number, sent_at, rtt, polls }
    }

    /// Packets that were taken for lost arrived after all. The newest measures the round trip, too:
    /// were it left out, a round trip longer than the time-out would never be learnt. Under Karn's
    /// rule what was sent again is as ambiguous as its repeat: there time-outs grow until a packet
    /// is in time, if they do (timing.md R-19).
    fn on_late(&mut self, now: Time, packets: &[(u64, Sent<Token>)], delay: Duration) {
        if let Some((number, sent)) = packets.iter().max_by_key(|(number, _)| *number)
            && (self.timing.measures_repeats() || !self.finding.backs_off())
        {
            self.measure(now, *number, sent, delay);
        }
    }

    /// A sample of the round trip, if this packet is one to measure by (timing.md R-1, migration.md
    /// M-7).
    fn measure(&mut self, now: Time, number: u64, sent: &Sent<Token>, delay: Duration) -> Option<Duration> {
        let is_newest =
            sent.eliciting && Some(number) == self.ledger.largest_acked() && number >= self.first_of_place;
        is_newest.then(|| {
            let delay = delay.min(self.ack_delay_max());
            let sample = self.rtt.on_sample(now, now.since(sent.snapshot.sent_at), delay);
            self.timing.on_sample(&mut self.rtt, sample);
            sample
        })
    }

    /// Congestion control hears of what may take from its window. (congestion.md C-4)
    fn reducing(&mut self, tell: impl FnOnce(&mut congestion::Slot, &Delivery)) {
        let before = self.window_bytes();
        tell(&mut self.congestion, &self.delivery);
        if self.window_bytes() < before {
            self.delivery.on_reduction();
        }
    }

    /// Congestion control hears of a loss. Where that ends its search for the path's limit, and
    /// packets wait on the way, what the search has cost says nothing of the path: the meter leaves
    /// it out.
    fn on_loss(&mut self, loss: &Loss) {
        let has_searched = self.is_searching();
        self.reducing(|congestion, delivery| congestion.on_loss(loss, delivery));
        // finding.md R-16
        if self.finding.repeats_at_once() && self.delivery.under_way() >= self.window_bytes() {
            self.ask_for_packet();
        }
        if has_searched && !self.is_searching() {
            self.meter.on_search_ended(loss.now, loss.next_packet, &self.rtt);
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
        // Marks may take from the window as losses do.
        match (bytes, ecn_marked) {
            (0, _) => {}
            (_, 0) => self.congestion.on_ack(&ack, &self.delivery),
            _ => self.reducing(|congestion, delivery| congestion.on_ack(&ack, delivery)),
        }
        self.meter.on_acknowledged(now, packets, &sample, &self.rtt);
        self.see_timely(now, newest.rtt, (packets, bytes), &sample);
    }
}

/// Where data ends that packets in a row carry, if this is what the first of them carries.
fn end_in_row(range: &Range<u64>, packets: u64) -> u64 {
    range.start + packets * (range.end - range.start)
}

/// True if everything sent over `period` was lost: then nothing that was learnt of the path holds
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
    use super::*;
    use crate::connection::testing;
    use uts_functions::Function;

    /// Congestion control that answers marks, and the sender has run out of data: what waits after
    /// a reduction may fill the smaller window, whatever had room in the larger (congestion.md
    /// C-4).
    #[test]
    fn a_reduction_by_marks_begins_anew() {
        let (sent_at, rtt) = (Time::from_millis(1), Duration::from_millis(20));
        let now = sent_at + rtt;
        for congestion in ["new-reno", "cubic", "decbit", "prague"] {
            for marks in [0, 1] {
                let mut ways = testing::ways_with(&[(Function::Congestion, congestion)]);
                let outbound = &mut ways.outbound;
                let before = outbound.window_bytes();
                let sent = outbound.delivery.on_sent(sent_at, 1200);
                outbound.delivery.on_sent(sent_at, 1200);
                outbound.delivery.set_app_limited();
                outbound.delivery.on_acknowledged(now, 1200, &sent);
                let newest = Newest { number: 0, sent_at, rtt: Some(rtt), polls: false };
                outbound.on_progress(now, &newest, 1, 2400, Some(marks));
                let is_reduced = outbound.window_bytes() < before;
                assert_eq!(outbound.delivery.is_app_limited(), !is_reduced, "{congestion}, {marks} marks");
                let answers_one = ["new-reno", "cubic"].contains(&congestion);
                assert!(is_reduced == (marks > 0) || !answers_one, "{congestion}, {marks} marks");
            }
        }
    }
}
