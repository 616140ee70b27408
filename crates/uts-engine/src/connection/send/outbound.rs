//! State of sending: epochs in use, the ledger, and the mechanisms that all flows of the direction
//! share.

use super::envelope::Envelope;
use super::timely::Timely;
use super::timeouts::{Each, each_of};
use crate::connection::allowance::{Admission, Allowance};
use crate::connection::parts::{Token, has_repair};
use crate::connection::secrets::SecretChain;
use crate::connection::watch::meter::Meter;
use crate::endpoint::history::Known;
use crate::synthesis::SendStack;
use core::time::Duration;
use std::sync::Arc;
use uts_functions::acknowledgement::Acknowledgement;
use uts_functions::congestion::{self, Congestion, Delivery, Past, Snapshot, Summary};
use uts_functions::feedback::BadFeedback;
use uts_functions::finding;
use uts_functions::flow::FlowControl as _;
use uts_functions::rate::{self, Bucket, Pace, RateControl};
use uts_functions::retransmission::ledger::Ledger;
use uts_functions::timing::{self, RoundTrip, Timing};
use uts_functions::{Function, PathFacts, Profile, Rate, Time};
use uts_wire::ConnectionId;
use uts_wire::packet::{AdaptiveHeader, AdaptiveMark, TruncatedNumber};

/// Pacing of mechanisms that have a window only: a little faster than a window per round trip, so
/// that pacing is never the brake (RFC 9002 section 7.7), and twice as fast while the window
/// doubles each round.
const PACE_GAIN: f64 = 1.25;
const PACE_GAIN_SLOW_START: f64 = 2.0;

/// Bytes in flight at the most, whatever congestion control and the peer say: a second at 2 Gbit/s
/// (retransmission.md R-11). What is in flight takes memory here, and what a peer claims to have
/// received is bounded by it.
pub(crate) const IN_FLIGHT_MAX_BYTES: u64 = 256 << 20;

/// From this rate on, what a packet costs the processor counts for more than how full it is.
pub(crate) const PROCESSORS_LIMIT: Rate = Rate::from_bits_per_sec(4_000_000_000);

/// Bytes of a packet number that nothing checks, at the least: as few as 2^7 others would make
/// another of a number of one byte.
const UNCHECKED_BYTES_MIN: u8 = 2;

/// Bytes of answers to path challenges that may be in flight beyond the window.
const ANSWERS_BYTES: u64 = 2048;

pub(crate) struct Outbound {
    /// Epochs in use; the last of a group is current, older ones only wait for their redundancy to
    /// leave.
    pub stacks: Vec<SendStack>,
    pub secrets: SecretChain,
    /// The envelope of the packets of an epoch that the peer may not know yet.
    pub envelope: Option<Box<Envelope>>,
    pub ledger: Ledger<Token>,
    pub delivery: Delivery,
    pub congestion: congestion::Slot,
    pub rate: rate::Slot,
    pub bucket: Bucket,
    pub timing: timing::Slot,
    pub rtt: RoundTrip,
    /// Bandwidth and round trip of the last connection to the host, until a congestion mechanism is
    /// built with them. In a box, since most connections have none.
    past: Option<Box<Past>>,
    pub meter: Meter,
    /// Instant from which a time-out counts (timing.md R-10).
    pub(super) timed_from: Time,
    /// Probe time-outs in a row.
    pub timeouts: u32,
    /// Packets that have gone on since, with data that is not repeated.
    pub unheard: u16,
    /// Packets to send whatever the window says.
    pub probes_due: u8,
    /// Doublings of the time-out that outlast their row of time-outs (timing.md R-19).
    pub(super) kept_doublings: u8,
    /// When to look for losses again.
    pub loss_at: Option<Time>,
    pub finding: finding::Slot,
    /// Where each packet has a time-out of its own: what they are. In a box, since hardly any does.
    pub(super) each: Option<Box<Each>>,
    pub paced_until: Option<Time>,
    /// Pace of the batch under construction, once it was asked for.
    batch_pace: Option<Pace>,
    /// The application's upper bound on the rate.
    pub(super) rate_max: Option<Rate>,
    /// Mechanism that keeps this bound where the rate mechanism in use keeps none.
    keeper: Option<Box<rate::Slot>>,
    pub ce_seen: u64,
    /// Not before this instant are new keys asked for.
    pub renew_after: Time,
    /// Bytes of a full packet, when one was last sent.
    pub full_bytes: u16,
    /// Allowance that the endpoint's other connections leave of the way to the peer, while packets
    /// are built.
    allowance: Allowance,
    /// Something has waited for them since.
    pub has_waited: bool,
    /// Packets below this number left for another place than the peer's present one: they say
    /// nothing of the way there. (migration.md M-7)
    pub first_of_place: u64,
    pub bursts: Bursts,
    /// Where messages have lifetimes: which can arrive in time. In a box, since most have none.
    pub(super) timely: Option<Box<Timely>>,
}

/// Bursts of packets with data: packets that leave before the sender has nothing more to send are a
/// burst. The counts wrap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bursts {
    /// Packets with data, repeats included.
    pub packets: u32,
    pub count: u16,
    /// Packets when the last burst ended.
    counted: u16,
}

impl Bursts {
    /// So many packets with data leave.
    pub fn add(&mut self, packets: u32) {
        self.packets = self.packets.wrapping_add(packets);
    }

    /// Nothing waits to be sent.
    pub fn on_nothing_left(&mut self) {
        let packets = self.packets as u16;
        self.count = self.count.wrapping_add(u16::from(packets != self.counted));
        self.counted = packets;
    }
}

impl Outbound {
    /// The direction's start. `None` if this library lacks a mechanism of the profile.
    pub fn new(
        now: Time,
        profile: &Arc<Profile>,
        secrets: SecretChain,
        packet_bytes: u64,
        seed: u64,
    ) -> Option<Self> {
        let secret = secrets.of(0)?;
        let summary = Summary::initial(packet_bytes);
        let context = congestion::Context { now, packet_bytes, summary, past: None, seed };
        let finding = finding::Slot::build(profile.get(Function::Finding), ())?;
        let mut outbound = Outbound {
            stacks: vec![SendStack::new(now, 0, 0, profile, &secret)?],
            secrets,
            envelope: None,
            ledger: Ledger::leaving_out(seed),
            delivery: Delivery::new(now),
            congestion: congestion::Slot::build(profile.get(Function::Congestion), &context)?,
            rate: rate::Slot::build(profile.get(Function::Rate), ())?,
            bucket: Bucket::default(),
            timing: timing::Slot::build(profile.get(Function::Timing), ())?,
            rtt: RoundTrip::default(),
            past: None,
            meter: Meter::new(),
            timed_from: Time::ZERO,
            timeouts: 0,
            unheard: 0,
            probes_due: 0,
            kept_doublings: 0,
            loss_at: None,
            each: each_of(&finding),
            finding,
            paced_until: None,
            batch_pace: None,
            rate_max: None,
            keeper: None,
            ce_seen: 0,
            renew_after: now,
            full_bytes: u16::try_from(packet_bytes).unwrap_or(u16::MAX),
            allowance: Allowance::default(),
            has_waited: false,
            first_of_place: 0,
            bursts: Bursts::default(),
            timely: None,
        };
        outbound.set_departure();
        Some(outbound)
    }

    /// Packets go to another place from now on, the next whatever the window says.
    pub fn begin_place(&mut self) {
        self.leave_behind();
        self.ask_for_packet();
    }

    /// Forgets the way of packets that have left: those from now on take another.
    pub fn leave_behind(&mut self) {
        self.first_of_place = self.ledger.next_number();
        (self.timeouts, self.kept_doublings) = (0, 0);
        self.set_departure();
    }

    /// A packet leaves next, whatever the window says.
    pub fn ask_for_packet(&mut self) {
        self.probes_due = self.probes_due.max(1);
    }

    /// The peer is to hear something whatever the window says, unless it asks and never listens.
    /// (migration.md M-5)
    pub fn answer_at_once(&mut self) {
        if self.delivery.under_way() <= self.window_bytes().saturating_add(ANSWERS_BYTES) {
            self.ask_for_packet();
        }
    }

    /// The path is another one: all that was learnt of it begins anew, with this round trip if it
    /// was measured, and with what is remembered of this one. (migration.md M-6)
    pub fn restart_path(
        &mut self,
        now: Time,
        (packet_bytes, seed): (u64, u64),
        round_trip: Option<Duration>,
        known: Option<&Known>,
    ) {
        let summary = Summary::initial(packet_bytes);
        (self.rtt, self.past) = (RoundTrip::default(), None);
        if let Some(known) = known {
            self.begin_with(known);
        }
        // congestion.md C-95: it serves once.
        let past = self.past.take().map(|past| *past);
        let context = congestion::Context { now, packet_bytes, summary, past, seed };
        // The congestion mechanism in use begins anew.
        let choice = self.stack(0).map(|stack| *stack.profile.get(Function::Congestion));
        if let Some(fresh) = choice.and_then(|choice| congestion::Slot::build(&choice, &context)) {
            self.congestion = fresh;
        }
        if let Some(sample) = round_trip {
            let sample = self.rtt.on_sample(now, sample, Duration::ZERO);
            self.timing.on_sample(&mut self.rtt, sample);
        }
        (self.bucket, self.batch_pace, self.paced_until) = (Bucket::default(), None, None);
        self.timely = None;
        self.meter = Meter::new();
        self.set_departure();
    }

    /// Begins with what was learnt of this way before: the round trip counts until one is measured.
    /// The rest is kept for a congestion mechanism that the first exchange brings.
    pub fn begin_with(&mut self, known: &Known) {
        // timing.md R-18.
        self.rtt = RoundTrip::guessed(known.smoothed, known.deviation);
        let Summary { bandwidth, rtt_min, .. } = known.summary;
        self.past = bandwidth.zip(rtt_min).map(|(bandwidth, rtt_min)| Box::new(Past { bandwidth, rtt_min }));
        self.set_departure();
    }

    /// The stack in use for a group; group 0 always has one, others once their first profile is
    /// agreed.
    pub fn stack(&self, group: u8) -> Option<&SendStack> {
        self.stacks.iter().rev().find(|s| s.group == group)
    }

    /// Its place in `stacks`.
    pub fn stack_index(&self, group: u8) -> Option<usize> {
        self.stacks.iter().rposition(|s| s.group == group)
    }

    /// Puts a new epoch to use. What the direction shares is replaced where group 0's choice of it
    /// has changed; what the old mechanism knew goes to the new one. Says whether the
    /// library had everything.
    pub fn put_to_use(
        &mut self,
        now: Time,
        epoch: u32,
        group: u8,
        profile: &Profile,
        packet_bytes: u64,
    ) -> bool {
        let shared = Arc::new(*profile);
        let secret = self.secrets.of(epoch);
        let Some(stack) = secret.and_then(|s| SendStack::new(now, epoch, group, &shared, &s)) else {
            return false;
        };
        let old = self.stack(group).map_or_else(Profile::bare, |s| *s.profile);
        if group == 0 && !self.replace_shared(now, (&old, profile), packet_bytes, u64::from(epoch)) {
            return false;
        }
        // fec.md R-4: the old epoch's block under way is closed. Its redundancy still leaves under
        // the old epoch.
        for old in self.stacks.iter_mut().filter(|s| s.group == group) {
            if let Some(fec) = &mut old.fec {
                fec.flush();
            }
        }
        self.stacks.push(stack);
        self.set_departure();
        self.drop_idle_stacks();
        true
    }

    /// The profile of group 0 changes: its mechanisms that all flows share take over from those of
    /// the old one. Says whether the library had everything.
    pub(super) fn replace_shared(
        &mut self,
        now: Time,
        (old, profile): (&Profile, &Profile),
        packet_bytes: u64,
        seed: u64,
    ) -> bool {
        let changed = |f: Function| old.get(f) != profile.get(f);
        // All new mechanisms are built before any takes over: an epoch is put to use whole or not
        // at all.
        let congestion = if changed(Function::Congestion) {
            // congestion.md C-95: it serves once.
            let past = self.past.take().filter(|_| self.is_searching()).map(|past| *past);
            let mut summary = self.congestion.summary();
            if !self.meter.has_seen_queue(&self.rtt) {
                // Losses that met no queue have held the predecessor back: what it took for the
                // path's limit is none.
                summary.threshold_bytes = u64::MAX;
            }
            let context = congestion::Context { now, packet_bytes, summary, past, seed };
            let Some(next) = congestion::Slot::build(profile.get(Function::Congestion), &context) else {
                return false;
            };
            Some(next)
        } else {
            None
        };
        let Some(rate) = rate::Slot::build(profile.get(Function::Rate), ()) else { return false };
        let Some(timing) = timing::Slot::build(profile.get(Function::Timing), ()) else { return false };
        let Some(finding) = finding::Slot::build(profile.get(Function::Finding), ()) else { return false };
        if let Some(next) = congestion {
            self.congestion = next;
        }
        if changed(Function::Rate) {
            self.rate = rate;
        }
        if changed(Function::Timing) {
            self.timing = timing;
        }
        if changed(Function::Finding) {
            self.each = each_of(&finding);
            self.finding = finding;
            // finding.md R-15: what is in flight is looked at anew.
            self.loss_at = Some(now).filter(|_| self.ledger.eliciting() > 0);
        }
        true
    }

    /// True if the group of this stack uses a newer one.
    #[inline]
    pub fn is_replaced(&self, index: usize) -> bool {
        let newer = self.stacks.get(index + 1..).unwrap_or_default();
        !newer.is_empty()
            && self.stacks.get(index).is_some_and(|old| newer.iter().any(|s| s.group == old.group))
    }

    /// Drops stacks that were replaced and have nothing more to send.
    pub fn drop_idle_stacks(&mut self) {
        if self.stacks.len() == 1 {
            return;
        }
        let mut index = 0;
        while index < self.stacks.len() {
            let stack = &self.stacks[index];
            let is_needed = |envelope: &Envelope| envelope.needs(stack.epoch);
            let is_needed = self.envelope.as_deref().is_some_and(is_needed);
            if self.is_replaced(index) && !has_repair(stack) && !is_needed {
                self.stacks.remove(index);
            } else {
                index += 1;
            }
        }
        if let Some(oldest) = self.stacks.iter().map(|s| s.epoch).min() {
            self.secrets.forget_before(oldest);
        }
    }

    /// The longest that the peer holds acknowledgements back.
    pub fn ack_delay_max(&self) -> Duration {
        self.stack(0).map_or(Duration::ZERO, |s| s.acknowledgement.delay_max(&self.rtt))
    }

    /// The probe time-out without back-off (timing.md R-24, acknowledgement.md R-12; RFC 9002
    /// section 6.2.1).
    pub fn probe_timeout(&self) -> Duration {
        self.timing.timeout_with(&self.rtt, self.ack_delay_max())
    }

    /// True if congestion control still looks for the path's limit.
    pub fn is_searching(&self) -> bool {
        self.congestion.summary().threshold_bytes == u64::MAX
    }

    /// True if a window in each round trip, or the load of all connections to the peer, is so much
    /// that processors, not lines, are the limit.
    pub fn is_fast(&self) -> bool {
        let window = self.congestion.window_bytes();
        let is_known = window != u64::MAX && self.rtt.samples > 0 && !self.rtt.smoothed.is_zero();
        self.allowance.is_fast
            || (is_known && Rate::from_delivery(window, self.rtt.smoothed) >= PROCESSORS_LIMIT)
    }

    /// The number of a packet that is about to be sent under a stack, as its header says it. Where
    /// nothing finds a number that was completed wrongly it has so many bytes that hardly any is
    /// (P-5).
    pub fn truncated(&self, stack: &SendStack, number: u64) -> TruncatedNumber {
        if stack.checks_numbers {
            TruncatedNumber::of(number, self.ledger.largest_acked())
        } else {
            let bytes = TruncatedNumber::of(number, None).len() as u8;
            TruncatedNumber::with_len(number, bytes.max(UNCHECKED_BYTES_MIN))
        }
    }

    /// Appends the header of a packet, which is built under `stack`; says where it stands.
    pub fn emit_header(
        &self,
        stack: &SendStack,
        dcid: ConnectionId,
        number: u64,
        out: &mut Vec<u8>,
    ) -> AdaptiveMark {
        let header = AdaptiveHeader { epoch_low5: (stack.epoch % 32) as u8, dcid };
        header.emit(self.truncated(stack, number), out)
    }

    /// Packets are to be built, under this allowance.
    pub fn begin(&mut self, allowance: Allowance) {
        (self.allowance, self.has_waited) = (allowance, false);
    }

    /// A batch begins: nothing arrives while it is built, so that what pacing keeps to stays as its
    /// first packet leaves it.
    pub fn begin_batch(&mut self) {
        self.batch_pace = None;
    }

    /// The application's upper bound on the rate. It holds whatever the rate mechanism is, also
    /// until an exchange has brought another. (rate.md R-9)
    pub fn set_rate_max(&mut self, max: Option<Rate>) {
        self.rate_max = max;
        let keeper = || rate::Slot::build(&rate::pacing_bucket::PacingBucket::INFO.choice(), ());
        self.keeper = max.and_then(|_| keeper()).map(Box::new);
        self.batch_pace = None;
    }

    /// The application's upper bound on the rate.
    pub(super) fn rate_max(&self) -> Option<Rate> {
        self.rate_max
    }

    /// Mechanism that keeps the rate: the mechanism in use, or where it keeps none and there is an
    /// upper bound, the keeper of that bound.
    fn keeper(&mut self) -> (&mut rate::Slot, &mut Bucket) {
        let keeper = match &mut self.keeper {
            Some(keeper) if self.rate.info().facts.inert => keeper,
            _ => &mut self.rate,
        };
        (keeper, &mut self.bucket)
    }

    /// A packet of so many bytes left that nobody acknowledges, nor waits for: under an upper bound
    /// it counts, too. (rate.md R-9)
    pub fn on_sent_unasked(&mut self, now: Time, bytes: u64, packet_bytes: u64) {
        if self.rate_max.is_some() {
            let pace = self.pace_of_batch(packet_bytes);
            let (keeper, bucket) = self.keeper();
            keeper.on_sent(bucket, now, bytes, &pace);
        }
    }

    /// A report of so many bytes left that asks to be acknowledged. It is in flight, but waited for
    /// no pacing, and leaves no debt to what does, as one that asks for nothing. (rate.md R-18)
    pub fn on_report_sent(&mut self, now: Time, bytes: u64, packet_bytes: u64) -> Snapshot {
        let snapshot = self.count_in_flight(now, bytes);
        self.on_sent_unasked(now, bytes, packet_bytes);
        snapshot
    }

    fn count_in_flight(&mut self, now: Time, bytes: u64) -> Snapshot {
        let snapshot = self.delivery.on_sent(now, bytes);
        self.congestion.on_sent(now, bytes, &self.delivery);
        if self.congestion.pacing_rate().is_some() {
            // The first packet after a pause may change that rate.
            self.batch_pace = None;
        }
        snapshot
    }

    /// Packets of `bytes` in all were built, of which a full one has `packet_bytes`; gives the
    /// snapshot of the last.
    pub fn on_sent(&mut self, now: Time, bytes: u64, packet_bytes: u64) -> Snapshot {
        self.full_bytes = u16::try_from(packet_bytes).unwrap_or(u16::MAX);
        let snapshot = self.count_in_flight(now, bytes);
        let pace = self.pace_of_batch(packet_bytes);
        let (keeper, bucket) = self.keeper();
        keeper.on_sent(bucket, now, bytes, &pace);
        snapshot
    }

    /// The receiver's half of rate control has spoken.
    pub fn on_rate_feedback(&mut self, words: &[u8]) -> Result<(), BadFeedback> {
        self.rate.on_feedback(words)
    }

    /// Pace that congestion control and the upper bound leave to packets of this size.
    fn pace(&self, packet_bytes: u64) -> Pace {
        let own = self.congestion.pacing_rate();
        let rate = match own {
            Some(rate) => Some(rate),
            // A round trip too short to measure holds nothing back.
            None if self.rtt.samples == 0 || self.rtt.smoothed.is_zero() => None,
            None => {
                let summary = self.congestion.summary();
                let window = self.congestion.window_bytes();
                let gain = if window < summary.threshold_bytes { PACE_GAIN_SLOW_START } else { PACE_GAIN };
                (window != u64::MAX).then(|| Rate::from_delivery(window, self.rtt.smoothed).mul_f64(gain))
            }
        };
        let rate = match (rate, self.rate_max) {
            (Some(rate), Some(max)) => Some(rate.min(max)),
            (rate, max) => rate.or(max),
        };
        let rtt_min = if self.rtt.samples == 0 { Duration::ZERO } else { self.rtt.min };
        Pace { rate, packet_bytes, burst_bytes: self.congestion.burst_bytes(), rtt_min }
    }

    /// True if a packet of `bytes` may leave now as far as window, rate and the endpoint are
    /// concerned; otherwise notes until when pacing holds it back.
    pub fn admits(&mut self, now: Time, bytes: u64, packet_bytes: u64) -> bool {
        self.paced_until = None;
        let must_wait = self.allowance.admission == Admission::Waits;
        if self.delivery.under_way().saturating_add(bytes) > self.window_bytes() || !self.is_timely() {
            return false;
        }
        // Where the rate only spreads a window over a round trip, the turns of the endpoint's
        // connections do that.
        let is_spread = self.is_spread();
        if !is_spread || self.allowance.admission == Admission::Free {
            let pace = self.pace_of_batch(packet_bytes);
            let (keeper, bucket) = self.keeper();
            self.paced_until = keeper.wait_until(bucket, now, &pace);
        }
        if self.paced_until.is_none() && must_wait {
            self.has_waited = true;
            if !is_spread {
                // What others hold back says nothing of the path.
                self.delivery.set_app_limited();
            }
        }
        self.paced_until.is_none() && !must_wait
    }

    /// Number of packets of `bytes`, where a full one has `packet_bytes`, that may leave at once
    /// now, as [`Outbound::admits`] says of one.
    pub fn admitted(&mut self, now: Time, bytes: u64, packet_bytes: u64) -> u64 {
        if !self.admits(now, packet_bytes, packet_bytes) {
            return 0;
        }
        let window = self.window_bytes().saturating_sub(self.delivery.under_way());
        let batch = if self.is_spread() && self.allowance.admission == Admission::Called {
            u64::MAX
        } else {
            let pace = self.pace_of_batch(packet_bytes);
            let (keeper, bucket) = self.keeper();
            keeper.batch_bytes(bucket, &pace)
        };
        1 + window.min(batch).saturating_sub(packet_bytes) / bytes
    }

    /// Window with which a flow of a group begins, in bytes; `u32::MAX` = no bound.
    pub fn window_of_flows(&self, group: u8) -> u32 {
        let window = self.stack(group).map_or(u64::MAX, |stack| stack.flow.window_bytes());
        u32::try_from(window).unwrap_or(u32::MAX)
    }

    /// Bytes that may be in flight.
    pub fn window_bytes(&self) -> u64 {
        self.congestion.window_bytes().min(IN_FLIGHT_MAX_BYTES)
    }

    /// True if the rate only spreads a window over a round trip.
    fn is_spread(&self) -> bool {
        self.rate_max.is_none() && self.congestion.pacing_rate().is_none()
    }

    /// Pace of this batch, which is worked out once for packets of one size.
    fn pace_of_batch(&mut self, packet_bytes: u64) -> Pace {
        let known = self.batch_pace.filter(|pace| pace.packet_bytes == packet_bytes);
        let pace = known.unwrap_or_else(|| self.pace(packet_bytes));
        self.batch_pace = Some(pace);
        pace
    }

    /// Facts of the path, as far as they are known.
    pub fn facts(&self, packet_bytes: u64) -> PathFacts {
        self.meter.facts(&self.rtt, packet_bytes)
    }
}

#[cfg(test)]
mod tests;
