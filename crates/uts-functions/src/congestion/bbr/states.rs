//! BBR's state machine: Startup, Drain, the cycle of ProbeBW, ProbeRTT, and what losses change in
//! each.

use super::losses::Verdict;
use super::{RATE_INFINITE, Sender};
use crate::congestion::{Ack, Delivery, Loss, RateSample};
use crate::time::{Rate, Time};
use core::time::Duration;

/// Where the flow is ("State Machine").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Startup,
    Drain,
    ProbeDown,
    ProbeCruise,
    ProbeRefill,
    ProbeUp,
    ProbeRtt,
}

impl State {
    /// "Summary of Control Behavior in the State Machine".
    pub fn pacing_gain(self) -> f64 {
        match self {
            State::Startup => 2.77,
            State::Drain => 0.5,
            State::ProbeDown => 0.9,
            State::ProbeCruise | State::ProbeRefill | State::ProbeRtt => 1.0,
            State::ProbeUp => 1.25,
        }
    }

    /// The same table.
    pub fn window_gain(self) -> f64 {
        match self {
            State::ProbeUp => 2.25,
            State::ProbeRtt => 0.5,
            _ => 2.0,
        }
    }

    /// `IsInAProbeBWState`.
    pub fn is_probe_bw(self) -> bool {
        matches!(self, State::ProbeDown | State::ProbeCruise | State::ProbeRefill | State::ProbeUp)
    }

    /// `IsProbingBW`.
    fn is_accelerating(self) -> bool {
        matches!(self, State::Startup | State::ProbeRefill | State::ProbeUp)
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            State::Startup => "startup",
            State::Drain => "drain",
            State::ProbeDown => "probe bandwidth (down)",
            State::ProbeCruise => "probe bandwidth (cruise)",
            State::ProbeRefill => "probe bandwidth (refill)",
            State::ProbeUp => "probe bandwidth (up)",
            State::ProbeRtt => "probe round trip",
        }
    }
}

/// Stage of the last bandwidth probe that acknowledgements tell of (`BBR.ack_phase`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// The cycle of ProbeBW ("ProbeBW State").
#[derive(Clone, Copy, Debug)]
pub(super) struct Cycle {
    ack_phase: AckPhase,
    began_at: Time,
    wait: Duration,
    rounds_since_up: u64,
    probe_sample: bool,
    prev_too_high: bool,
    prev_precautionary: bool,
    up_rounds: u32,
    up_acked: u64,
    up_acked_per_packet: u64,
}

impl Cycle {
    /// Before the first probe.
    pub fn new(now: Time) -> Self {
        Cycle {
            ack_phase: AckPhase::Init,
            began_at: now,
            wait: Duration::from_secs(2),
            rounds_since_up: 0,
            probe_sample: false,
            prev_too_high: false,
            prev_precautionary: false,
            up_rounds: 0,
            up_acked: 0,
            up_acked_per_packet: u64::MAX,
        }
    }
}

/// ProbeRTT under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbeRtt {
    done_at: Option<Time>,
    round_done: bool,
}

/// State before the last losses ("Undo State"), and how much of them has not arrived after all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Undo {
    state: Option<State>,
    bw_short: Rate,
    inflight_short: u64,
    inflight_long: u64,
    lost_bytes: u64,
}

impl Sender {
    /// `UpdateModelAndState`.
    pub(super) fn update_model_and_state(&mut self, ack: &Ack, delivery: &Delivery) {
        let mut sample = ack.sample;
        // `MarkConnectionAppLimited` in ProbeRTT: its samples say nothing of the path.
        sample.app_limited |= sample.prior_delivered < self.limited_until;
        let sample = &sample;

        let verdict = self.losses.on_ack(sample, delivery.delivered);
        self.update_max_bandwidth(sample, delivery);
        self.on_marks(ack, sample, delivery);
        self.note_round_trip(ack);
        if let Some(verdict) = &verdict {
            self.adapt_lower_bounds(verdict);
        }
        let slot_rounds = if self.pipe.reached { AGGREGATION_SLOT_ROUNDS } else { 1 };
        let bandwidth = self.bound_bandwidth();
        self.aggregation.on_ack(ack.now, ack.bytes, bandwidth, self.window, self.rounds.count, slot_rounds);
        if self.rounds.started && !sample.app_limited {
            self.pipe.on_round(sample.rate);
        }
        self.check_startup_done(verdict.as_ref());
        self.check_drain_done(ack.now, delivery);
        self.update_probe_bw(ack, sample, delivery);
        self.min_rtt_and_probe(ack, delivery);
        if verdict.is_some() {
            self.losses.advance(sample);
        }
        if self.rounds.started {
            self.cwnd_limited = false;
        }
    }

    /// `UpdateMaxBw` and `UpdateRound`.
    fn update_max_bandwidth(&mut self, sample: &RateSample, delivery: &Delivery) {
        self.rounds.on_ack(sample, delivery.delivered);
        if self.rounds.started {
            self.cycle.rounds_since_up += 1;
        }
        if sample.rate > Rate::default() && (sample.rate >= self.max_bandwidth() || !sample.app_limited) {
            self.bandwidth.update(sample.rate);
        }
    }

    /// "ECN": marks are congestion, whatever their share (C-36).
    fn on_marks(&mut self, ack: &Ack, sample: &RateSample, delivery: &Delivery) {
        if ack.ecn_marked == 0 {
            return;
        }
        self.note_loss(delivery.delivered);
        self.losses.mark();
        if self.cycle.probe_sample {
            self.handle_inflight_too_high(ack.now, sample.tx_in_flight, sample.app_limited, delivery);
        }
    }

    /// `AdaptLowerBoundsFromCongestion`, for rounds whose losses are congestion (C-34, C-35).
    fn adapt_lower_bounds(&mut self, verdict: &Verdict) {
        if self.state.is_accelerating() || !verdict.hurt || !self.is_congestive(verdict) {
            return;
        }
        let bounds = &mut self.bounds;
        if bounds.bw_short == RATE_INFINITE {
            bounds.bw_short = self.bandwidth.get();
        }
        if bounds.inflight_short == u64::MAX {
            bounds.inflight_short = self.window;
        }
        bounds.bw_short = self.losses.bw_latest.max(bounds.bw_short.mul_f64(BETA));
        let reduced = (bounds.inflight_short as f64 * BETA) as u64;
        bounds.inflight_short = self.losses.inflight_latest.max(reduced);
    }

    /// True if losses are shared with flows that fill the buffer, and so count one by one (C-35).
    fn shares_queue(&self) -> bool {
        self.contended && self.queue_counts
    }

    /// Notes if others keep a queue: in cruise, BBR itself keeps none (C-35).
    fn note_round_trip(&mut self, ack: &Ack) {
        if self.rounds.started
            && let (Some(met), Some(min)) = (self.round_rtt_min.take(), self.min_rtt.value)
            && self.state == State::ProbeCruise
        {
            self.contended = met > min.saturating_add((min / 4).max(QUEUE_MIN));
        }
        if let Some(rtt) = ack.rtt {
            self.round_rtt_min = Some(self.round_rtt_min.map_or(rtt, |min| min.min(rtt)));
        }
    }

    fn is_congestive(&self, verdict: &Verdict) -> bool {
        verdict.marked
            || (self.shares_queue() && self.state == State::ProbeCruise)
            || self.threshold.exceeded(verdict.lost_bytes, verdict.total_bytes, self.packet_bytes)
    }

    /// `CheckStartupDone` with `CheckStartupHighLoss` (C-33, C-36).
    fn check_startup_done(&mut self, verdict: Option<&Verdict>) {
        if self.state != State::Startup {
            return;
        }
        if let Some(v) = verdict
            && v.hurt
            && (v.marked
                || (v.ranges >= STARTUP_LOSS_RANGES
                    && self.threshold.exceeded(v.lost_bytes, v.total_bytes, self.packet_bytes)))
        {
            self.undo.state = Some(State::Startup);
            self.pipe.reached = true;
            let bdp = self.bdp_multiple(self.bound_bandwidth(), 1.0);
            self.bounds.inflight_long = bdp.max(self.losses.inflight_latest);
        }
        if self.pipe.reached {
            self.state = State::Drain;
            self.drain_start_round = self.rounds.count;
        }
    }

    /// `CheckDrainDone`.
    fn check_drain_done(&mut self, now: Time, delivery: &Delivery) {
        if self.state == State::Drain
            && (delivery.in_flight <= self.inflight(self.bound_bandwidth(), 1.0)
                || self.rounds.count > self.drain_start_round + 3)
        {
            self.start_down(now, delivery.delivered);
        }
    }

    /// `StartProbeBW_DOWN`.
    fn start_down(&mut self, now: Time, delivered: u64) {
        self.losses.reset_signals();
        self.cycle.up_acked_per_packet = u64::MAX;
        // `PickProbeWait`.
        self.cycle.rounds_since_up = self.next_random() & 1;
        self.cycle.wait = Duration::from_secs(2) + Duration::from_micros(self.next_random() % 1_000_000);
        self.cycle.began_at = now;
        self.cycle.ack_phase = AckPhase::ProbeStopping;
        self.rounds.start(delivered);
        self.state = State::ProbeDown;
    }

    /// `StartProbeBW_REFILL`.
    pub(super) fn start_refill(&mut self, delivered: u64) {
        self.bounds.reset_short();
        self.cycle.up_rounds = 0;
        self.cycle.up_acked = 0;
        self.cycle.prev_precautionary = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.rounds.start(delivered);
        self.state = State::ProbeRefill;
    }

    /// `StartProbeBW_UP`.
    fn start_up(&mut self, sample: &RateSample, delivered: u64) {
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.rounds.start(delivered);
        self.pipe.reset(sample.rate);
        self.state = State::ProbeUp;
        self.raise_slope();
    }

    /// `UpdateProbeBWCyclePhase`.
    fn update_probe_bw(&mut self, ack: &Ack, sample: &RateSample, delivery: &Delivery) {
        if !self.pipe.reached || self.adapt_long_term(ack, sample, delivery) {
            return;
        }
        match self.state {
            State::ProbeDown => {
                if self.time_to_probe(ack.now) {
                    self.start_refill(delivery.delivered);
                } else if self.time_to_cruise(delivery) {
                    self.state = State::ProbeCruise;
                }
            }
            State::ProbeCruise if self.time_to_probe(ack.now) => self.start_refill(delivery.delivered),
            State::ProbeRefill if self.rounds.started => {
                self.cycle.probe_sample = true;
                self.start_up(sample, delivery.delivered);
            }
            State::ProbeUp => self.leave_up(ack.now, sample, delivery),
            _ => {}
        }
    }

    /// `IsTimeToProbeBW`.
    fn time_to_probe(&self, now: Time) -> bool {
        let reno_rounds = (self.target_inflight() / self.packet_bytes).min(63);
        now > self.cycle.began_at + self.cycle.wait || self.cycle.rounds_since_up >= reno_rounds
    }

    /// `IsTimeToCruise`.
    fn time_to_cruise(&self, delivery: &Delivery) -> bool {
        delivery.in_flight <= self.inflight_with_headroom()
            && delivery.in_flight <= self.inflight(self.max_bandwidth(), 1.0)
    }

    fn leave_up(&mut self, now: Time, sample: &RateSample, delivery: &Delivery) {
        if self.time_to_go_down(sample, delivery) {
            self.cycle.prev_too_high = false;
            self.start_down(now, delivery.delivered);
        }
    }

    /// `IsTimeToGoDown`.
    fn time_to_go_down(&mut self, sample: &RateSample, delivery: &Delivery) -> bool {
        if self.cycle.prev_too_high && delivery.in_flight >= self.bounds.inflight_long {
            self.cycle.prev_precautionary = true;
            return true;
        }
        if self.cwnd_limited && self.window >= self.bounds.inflight_long {
            // The bandwidth is held back by the bound, which the probe raises first.
            self.pipe.reset(sample.rate);
            return false;
        }
        self.pipe.now
    }

    /// `RaiseInflightLongtermSlope`.
    fn raise_slope(&mut self) {
        let growth = 1u64 << self.cycle.up_rounds.min(30);
        self.cycle.up_rounds = (self.cycle.up_rounds + 1).min(30);
        self.cycle.up_acked_per_packet = (self.window / growth).max(self.packet_bytes);
    }

    /// `ProbeInflightLongtermUpward`.
    fn raise_long_term(&mut self, ack: &Ack) {
        if !self.cwnd_limited || self.window < self.bounds.inflight_long {
            return;
        }
        self.cycle.up_acked += ack.bytes;
        let packets = self.cycle.up_acked / self.cycle.up_acked_per_packet;
        self.cycle.up_acked -= packets * self.cycle.up_acked_per_packet;
        let raise = packets.saturating_mul(self.packet_bytes);
        self.bounds.inflight_long = self.bounds.inflight_long.saturating_add(raise);
        if self.rounds.started {
            self.raise_slope();
        }
    }

    /// `AdaptLongTermModel`; true if it has changed the state.
    fn adapt_long_term(&mut self, ack: &Ack, sample: &RateSample, delivery: &Delivery) -> bool {
        if self.cycle.ack_phase == AckPhase::ProbeStarting && self.rounds.started {
            self.cycle.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.cycle.ack_phase == AckPhase::ProbeStopping && self.rounds.started {
            self.cycle.probe_sample = false;
            self.cycle.ack_phase = AckPhase::Init;
            if self.state.is_probe_bw() && !sample.app_limited {
                self.bandwidth.advance();
            }
            // "Precautionary Bandwidth Probing: Acceleration".
            if self.state.is_probe_bw() && self.cycle.prev_precautionary && !self.cycle.prev_too_high {
                self.start_refill(delivery.delivered);
                return true;
            }
        }
        let too_high = self.threshold.exceeded(sample.lost, sample.tx_in_flight, self.packet_bytes);
        if !too_high && self.bounds.inflight_long != u64::MAX {
            self.bounds.inflight_long = self.bounds.inflight_long.max(sample.tx_in_flight);
            if self.state == State::ProbeUp {
                self.raise_long_term(ack);
            }
        }
        false
    }

    /// `UpdateMinRTT` and `CheckProbeRTT`.
    fn min_rtt_and_probe(&mut self, ack: &Ack, delivery: &Delivery) {
        self.min_rtt.on_ack(ack.now, ack.rtt, ack.rtt_min);
        if self.state != State::ProbeRtt && self.min_rtt.expired && !self.idle_restart {
            self.save_window();
            self.state = State::ProbeRtt;
            self.probe_rtt = ProbeRtt::default();
            self.cycle.ack_phase = AckPhase::ProbeStopping;
            self.rounds.start(delivery.delivered);
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(ack.now, delivery);
        }
        if ack.sample.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// `HandleProbeRTT`.
    fn handle_probe_rtt(&mut self, now: Time, delivery: &Delivery) {
        self.limited_until = delivery.delivered.saturating_add(delivery.in_flight);
        if self.probe_rtt.done_at.is_none() {
            if delivery.in_flight <= self.probe_rtt_window() {
                self.probe_rtt = ProbeRtt { done_at: Some(now + PROBE_RTT_DURATION), round_done: false };
                self.rounds.start(delivery.delivered);
            }
            return;
        }
        self.probe_rtt.round_done |= self.rounds.started;
        if self.probe_rtt.round_done {
            self.check_probe_rtt_done(now, delivery);
        }
    }

    /// `CheckProbeRTTDone` and `ExitProbeRTT`.
    pub(super) fn check_probe_rtt_done(&mut self, now: Time, delivery: &Delivery) {
        if self.probe_rtt.done_at.is_none_or(|at| now <= at) {
            return;
        }
        self.min_rtt.refresh(now);
        self.restore_window();
        self.bounds.reset_short();
        if self.pipe.reached {
            self.start_down(now, delivery.delivered);
            self.state = State::ProbeCruise;
        } else {
            self.state = State::Startup;
        }
    }

    /// `NoteLoss` with `SaveStateUponLoss`.
    fn note_loss(&mut self, delivered: u64) {
        if self.losses.note(delivered) {
            self.save_window();
            self.undo.state = None;
            self.undo.bw_short = self.bounds.bw_short;
            self.undo.inflight_short = self.bounds.inflight_short;
            self.undo.inflight_long = self.bounds.inflight_long;
            self.undo.lost_bytes = 0;
        }
    }

    /// `HandleLostPacket`, for all packets that were declared lost at one instant.
    pub(super) fn handle_lost(&mut self, loss: &Loss, delivery: &Delivery) {
        self.note_loss(delivery.delivered);
        self.losses.count(loss);
        self.undo.lost_bytes = self.undo.lost_bytes.saturating_add(loss.bytes);
        if loss.persistent {
            // C-8; the window then grows by what is acknowledged.
            self.window = self.window.min(self.min_pipe());
        }
        if !self.cycle.probe_sample {
            return;
        }
        let lost = delivery.lost.saturating_sub(loss.snapshot.lost);
        let tx_in_flight = loss.snapshot.in_flight;
        if self.shares_queue() {
            self.handle_inflight_too_high(loss.now, tx_in_flight, loss.snapshot.app_limited, delivery);
        } else if self.threshold.exceeded(lost, tx_in_flight, self.packet_bytes) {
            let safe = self.threshold.inflight_at(tx_in_flight, lost, loss.bytes);
            self.handle_inflight_too_high(loss.now, safe, loss.snapshot.app_limited, delivery);
        }
    }

    /// C-43, `OnEnterRTO`; the window then grows by what is acknowledged.
    pub(super) fn handle_timeout(&mut self, delivery: &Delivery) {
        self.note_loss(delivery.delivered);
        if self.state == State::ProbeRtt {
            // What is come back to is no larger.
            self.prior_window = 0;
        }
        self.window = self.packet_bytes;
    }

    /// `HandleInflightTooHigh`.
    fn handle_inflight_too_high(&mut self, now: Time, inflight: u64, app_limited: bool, delivery: &Delivery) {
        self.cycle.prev_too_high = true;
        self.cycle.probe_sample = false;
        if !app_limited {
            let floor = (self.target_inflight() as f64 * BETA) as u64;
            self.bounds.inflight_long = inflight.max(floor).max(self.min_pipe());
        }
        if self.state == State::ProbeUp {
            self.undo.state = Some(State::ProbeUp);
            self.start_down(now, delivery.delivered);
        }
    }

    /// C-9, `HandleSpuriousLossDetection`, once all that was lost has arrived.
    pub(super) fn handle_spurious(&mut self, bytes: u64) {
        let had_losses = self.undo.lost_bytes > 0;
        self.undo.lost_bytes = self.undo.lost_bytes.saturating_sub(bytes);
        if !had_losses || self.undo.lost_bytes > 0 {
            return;
        }
        self.restore_window();
        self.losses.forgive();
        self.pipe.reset(Rate::default());
        self.bounds.bw_short = self.bounds.bw_short.max(self.undo.bw_short);
        self.bounds.inflight_short = self.bounds.inflight_short.max(self.undo.inflight_short);
        self.bounds.inflight_long = self.bounds.inflight_long.max(self.undo.inflight_long);
        match self.undo.state.take() {
            Some(State::Startup) if self.state != State::Startup => {
                self.pipe.reached = false;
                if self.state != State::ProbeRtt {
                    self.state = State::Startup;
                }
            }
            Some(State::ProbeUp) if self.state.is_probe_bw() && self.state != State::ProbeUp => {
                // The round begins with the next event, which knows what was delivered.
                self.start_refill(0);
                self.fresh = true;
            }
            _ => {}
        }
    }

    /// The next number of an xorshift generator: enough to spread probes in time.
    fn next_random(&mut self) -> u64 {
        let mut x = self.random;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random = x;
        x >> 11
    }
}

/// `BBR.Beta`.
const BETA: f64 = 0.7;
/// `BBRStartupFullLossCnt`.
const STARTUP_LOSS_RANGES: u32 = 6;
/// `BBR.ProbeRTTDuration`.
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// Half of `BBR.ExtraAckedFilterLen`.
const AGGREGATION_SLOT_ROUNDS: u64 = 5;
/// A round trip longer by less than this, or by less than a quarter, did not meet a queue.
const QUEUE_MIN: Duration = Duration::from_millis(1);
