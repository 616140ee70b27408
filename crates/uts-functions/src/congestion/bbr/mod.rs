//! BBR, version 3 (draft-ietf-ccwg-bbr): a model of the path, its bandwidth and its smallest round
//! trip, sets rate and window; losses count only above a threshold. For paths that lose packets
//! without being full, and for short queues.
//!
//! `model.rs` and `losses.rs` hold the parts of the model, `states.rs` the state machine,
//! `control.rs` the control parameters; here is the mechanism's face. Where we depart from the
//! draft, `spec/functions/congestion.md` says why.

mod control;
mod losses;
mod model;
mod states;

use super::learnt::bdp_bytes;
use super::window::{MIN_PACKETS, start};
use super::{Ack, Congestion, Context, Delivery, Loss, Summary, Timeout};
use crate::facts::{LOSS_MIN, PathFacts};
use crate::function::Function;
use crate::mechanism::{
    Bold, Consent, Described, Facts, Mechanism, Param, Params, Prediction, Promise, Unasked, Unit,
};
use crate::time::{Rate, Time};
use core::time::Duration;
use losses::{LossRound, LossThreshold};
use model::{Aggregation, FullPipe, MinRtt, Rounds, TwoSlotMax};
use states::{Cycle, ProbeRtt, State, Undo};

/// See the module's page. Its state is boxed: it is half as large again as that of any other, and
/// all connections make room for the largest.
#[derive(Clone, Debug)]
pub struct Bbr(Box<Sender>);

#[derive(Clone, Debug)]
struct Sender {
    packet_bytes: u64,
    initial_window: u64,
    threshold: LossThreshold,
    /// The threshold is the default: then losses below it count if they meet a queue (C-35).
    queue_counts: bool,
    random: u64,

    state: State,
    rounds: Rounds,
    bandwidth: TwoSlotMax<Rate>,
    min_rtt: MinRtt,
    aggregation: Aggregation,
    pipe: FullPipe,
    losses: LossRound,
    bounds: Bounds,
    cycle: Cycle,
    probe_rtt: ProbeRtt,
    undo: Undo,
    /// Other senders keep a queue at the bottleneck.
    contended: bool,
    round_rtt_min: Option<Duration>,
    drain_start_round: u64,
    idle_restart: bool,
    cwnd_limited: bool,
    /// The first event is still to come, with which round counting begins.
    fresh: bool,
    /// Samples of packets sent before this much was delivered are limited by ProbeRTT.
    limited_until: u64,

    window: u64,
    prior_window: u64,
    pacing: Rate,
    has_rtt: bool,
}

/// Bounds that losses have taught; infinite (`MAX`) where they have taught none.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// `bw_shortterm`.
    bw_short: Rate,
    /// `inflight_shortterm`, in bytes.
    inflight_short: u64,
    /// `inflight_longterm`, in bytes.
    inflight_long: u64,
}

impl Bounds {
    const NONE: Bounds =
        Bounds { bw_short: RATE_INFINITE, inflight_short: u64::MAX, inflight_long: u64::MAX };

    /// `ResetShortTermModel`.
    fn reset_short(&mut self) {
        *self = Bounds { inflight_long: self.inflight_long, ..Bounds::NONE };
    }
}

impl Bbr {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Congestion,
        number: 3,
        name: "bbr",
        what: "rate and window from a model of the path, losses below a threshold ignored",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "loss-threshold",
            unit: Unit::PerMille,
            default: THRESHOLD_DEFAULT,
            min: 1,
            max: 500,
            bold: Bold::Above,
            what: "loss per round trip above which too much is in flight; raise it where losses are not congestion",
        }],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[
                Promise::Restraint,
                Promise::FullPath,
                Promise::FullShallowPath,
                Promise::ShortQueue,
                Promise::RandomLoss,
            ],
            unasked: Unasked::Candidate(2),
            tuned: Some(tuned),
            ..Facts::PLAIN
        },
        predict,
    };

    /// Builds it from what the predecessor knew: with bandwidth and smallest round trip, at the
    /// refilling of the pipe; without, or while the path's limit is unknown, in Startup (C-5,
    /// C-30).
    pub fn build(params: &Params, context: &Context) -> Self {
        let summary = &context.summary;
        let packet_bytes = context.packet_bytes.max(1);
        let (window, threshold) = start(context, MIN_PACKETS);
        let known_rtt = summary.rtt_min.filter(|rtt| !rtt.is_zero());
        let initial_window = Summary::initial(packet_bytes).window_bytes;
        let mut bbr = Sender {
            packet_bytes,
            initial_window,
            threshold: LossThreshold::per_mille(params.get(0)),
            queue_counts: params.get(0) <= THRESHOLD_DEFAULT,
            random: context.seed | 1,
            state: State::Startup,
            rounds: Rounds::default(),
            bandwidth: TwoSlotMax::default(),
            min_rtt: MinRtt::new(known_rtt, context.now),
            aggregation: Aggregation::new(context.now),
            pipe: FullPipe::default(),
            losses: LossRound::default(),
            bounds: Bounds::NONE,
            cycle: Cycle::new(context.now),
            probe_rtt: ProbeRtt::default(),
            undo: Undo::default(),
            contended: false,
            round_rtt_min: None,
            drain_start_round: 0,
            idle_restart: false,
            cwnd_limited: false,
            fresh: true,
            limited_until: 0,
            window: window.max(MIN_PIPE_PACKETS * packet_bytes),
            prior_window: 0,
            pacing: Rate::default(),
            has_rtt: known_rtt.is_some(),
        };
        // "Pacing Rate": a nominal bandwidth of the initial window per round trip, or per
        // millisecond.
        let nominal = Rate::from_delivery(window, known_rtt.unwrap_or(Duration::from_millis(1)));
        bbr.pacing = nominal.mul_f64(State::Startup.pacing_gain()).max(bbr.pacing_floor());
        if let Some(rate) = summary.bandwidth {
            bbr.bandwidth.update(rate);
        }
        if let Some(bdp) = bdp_bytes(summary).filter(|_| threshold != u64::MAX) {
            bbr.pipe.reached = true;
            bbr.window = bbr.window.min(bdp.saturating_mul(2)).max(bbr.min_pipe());
            // A predecessor that kept a queue has filled the pipe: drain it. Otherwise look for
            // more at once.
            if window > bdp.saturating_add(bdp / 4) {
                bbr.state = State::Drain;
            } else {
                bbr.start_refill(0);
            }
            bbr.set_pacing_rate(bbr.state.pacing_gain());
        }
        Bbr(Box::new(bbr))
    }
}

impl Congestion for Bbr {
    fn on_sent(&mut self, now: Time, bytes: u64, delivery: &Delivery) {
        self.0.on_sent(now, bytes, delivery);
    }

    fn on_ack(&mut self, ack: &Ack, delivery: &Delivery) {
        self.0.on_ack(ack, delivery);
    }

    fn on_loss(&mut self, loss: &Loss, delivery: &Delivery) {
        self.0.on_loss(loss, delivery);
    }

    fn on_timeout(&mut self, timeout: &Timeout, delivery: &Delivery) {
        self.0.on_timeout(timeout, delivery);
    }

    fn on_spurious_loss(&mut self, bytes: u64) {
        self.0.on_spurious_loss(bytes);
    }

    fn set_packet_bytes(&mut self, packet_bytes: u64) {
        self.0.set_packet_bytes(packet_bytes);
    }

    fn window_bytes(&self) -> u64 {
        self.0.window_bytes()
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.0.pacing_rate()
    }

    fn burst_bytes(&self) -> Option<u64> {
        self.0.burst_bytes()
    }

    fn summary(&self) -> Summary {
        self.0.summary()
    }

    fn phase(&self) -> &'static str {
        self.0.phase()
    }
}

impl Sender {
    /// Round counting begins with the first event after the mechanism was built.
    fn begin(&mut self, delivered: u64) {
        if self.fresh {
            self.fresh = false;
            self.rounds.start(delivered);
        }
    }
}

impl Described for Sender {
    fn info(&self) -> &'static Mechanism {
        &Bbr::INFO
    }
}

impl Congestion for Sender {
    fn on_sent(&mut self, now: Time, bytes: u64, delivery: &Delivery) {
        self.begin(delivery.delivered);
        if delivery.in_flight.saturating_add(self.quantum()) >= self.window {
            self.cwnd_limited = true;
        }
        // `HandleRestartFromIdle`; the packet at hand is in flight already.
        if delivery.in_flight <= bytes && delivery.is_app_limited() {
            self.idle_restart = true;
            self.aggregation.restart(now);
            if self.state.is_probe_bw() {
                self.set_pacing_rate(1.0);
            } else if self.state == State::ProbeRtt {
                self.check_probe_rtt_done(now, delivery);
            }
        }
    }

    fn on_ack(&mut self, ack: &Ack, delivery: &Delivery) {
        self.begin(delivery.delivered);
        if let Some(rtt) = ack.rtt {
            self.first_rtt(rtt);
        }
        self.update_model_and_state(ack, delivery);
        self.set_pacing_rate(self.state.pacing_gain());
        self.set_window(ack, delivery);
    }

    fn on_loss(&mut self, loss: &Loss, delivery: &Delivery) {
        self.begin(delivery.delivered);
        self.handle_lost(loss, delivery);
    }

    fn on_timeout(&mut self, timeout: &Timeout, delivery: &Delivery) {
        if timeout.is_loss {
            self.begin(delivery.delivered);
            self.handle_timeout(delivery);
        }
    }

    fn on_spurious_loss(&mut self, bytes: u64) {
        self.handle_spurious(bytes);
    }

    fn set_packet_bytes(&mut self, packet_bytes: u64) {
        // A window of a time-out stays one.
        let is_least = self.window >= self.min_pipe();
        self.packet_bytes = packet_bytes.max(1);
        self.window = self.window.max(if is_least { self.min_pipe() } else { self.packet_bytes });
    }

    fn window_bytes(&self) -> u64 {
        self.window
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(self.pacing)
    }

    fn burst_bytes(&self) -> Option<u64> {
        Some(self.quantum())
    }

    /// Window and threshold are what would fill the path without a queue, not the room that BBR
    /// itself keeps above that (C-31).
    fn summary(&self) -> Summary {
        let bandwidth = Some(self.max_bandwidth()).filter(|rate| *rate > Rate::default());
        let (rtt_min, known) = (self.min_rtt.value, self.pipe.reached && bandwidth.is_some());
        if !known {
            return Summary {
                window_bytes: self.window,
                threshold_bytes: u64::MAX,
                bandwidth,
                rtt_min,
                answered_below: None,
            };
        }
        let fill = self.bdp_multiple(self.max_bandwidth(), 1.0).min(self.bounds.inflight_long);
        let threshold_bytes = fill.max(self.min_pipe());
        // ProbeRTT and persistent congestion leave a small window; only the latter is a successor's
        // concern.
        let window =
            if self.state == State::ProbeRtt { self.window.max(self.prior_window) } else { self.window };
        Summary {
            window_bytes: window.min(threshold_bytes),
            threshold_bytes,
            bandwidth,
            rtt_min,
            answered_below: None,
        }
    }

    fn phase(&self) -> &'static str {
        self.state.name()
    }
}

/// Losses matter where they exceed the threshold: each round trip of cruising that sees too many
/// takes its loss off the rate, until the next probe restores it (C-38). The default threshold, and
/// thresholds above losses that congestion does not cause: this many times as high, the more
/// generous one where bursts are long beside what the path holds. (selection.md A-3)
fn tuned(facts: &PathFacts) -> Vec<Params> {
    let mut list = vec![Bbr::INFO.params_within(&[])];
    let random = facts.loss_random();
    if random >= LOSS_MIN {
        list.extend(THRESHOLD_FACTORS.map(|factor| {
            let per_mille = (factor * random * 100.0).ceil() as u64 * 10;
            let per_mille = per_mille.clamp(THRESHOLD_RAISED_MIN, THRESHOLD_RAISED_MAX);
            Bbr::INFO.params_within(&[("loss-threshold", per_mille)])
        }));
    }
    list
}

/// Multiples of the random loss at which a raised threshold lies, and its bounds in thousandths.
const THRESHOLD_FACTORS: [f64; 2] = [3.0, 5.0];
const THRESHOLD_RAISED_MIN: u64 = 50;
const THRESHOLD_RAISED_MAX: u64 = 300;

fn predict(params: &Params, facts: &PathFacts, prediction: &mut Prediction) {
    let rtt_min_s = facts.rtt_min.as_secs_f64();
    let packets = (facts.bdp_bytes() as f64 / (facts.mtu_bytes as f64).max(1.0)).max(MIN_PIPE_PACKETS as f64);
    let random = (prediction.loss_seen * (1.0 - facts.loss_congestive.clamp(0.0, 1.0))).clamp(0.0, 1.0);
    let ceiling = LossThreshold::per_mille(params.get(0)).allowance(packets) / packets;
    // The share of round trips above the ceiling: a normal distribution (by the logistic one),
    // wider for bursts.
    let deviation = (random * (2.0 * facts.loss_burst.max(1.0) - 1.0) / packets).sqrt();
    let above =
        if deviation > 0.0 { 1.0 / (1.0 + libm::exp(-1.702 * (random - ceiling) / deviation)) } else { 0.0 };
    let per_round = random * above;
    let rounds = (PROBE_EVERY_S / rtt_min_s.max(1e-6)).min(packets).clamp(1.0, 63.0);
    // Mean of 1, (1 - x), (1 - x)^2 … over the rounds of a cycle.
    let mean = if per_round > 1e-9 {
        (1.0 - libm::pow(1.0 - per_round, rounds)) / (rounds * per_round)
    } else {
        1.0
    };
    prediction.utilisation *= FILL * mean.min(1.0);
    // The last rounds of a cycle.
    prediction.utilisation_low *= FILL * libm::pow(1.0 - per_round, rounds);
    prediction.delay_s = 0.1 * rtt_min_s;
    prediction.delay_p99_s = 0.5 * rtt_min_s;
}

/// Mean time between probes for bandwidth.
const PROBE_EVERY_S: f64 = 2.5;
/// `BBR.LossThresh` of the draft: 2 %.
const THRESHOLD_DEFAULT: u32 = 20;
/// `BBR.MinPipeCwnd`, in packets.
const MIN_PIPE_PACKETS: u64 = 4;
/// Share of a steady path that is used, between pacing margin and ProbeRTT.
const FILL: f64 = 0.97;
const RATE_INFINITE: Rate = Rate::from_bytes_per_sec(u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::RateSample;

    const PACKET: u64 = 1200;

    fn build(summary: Summary) -> Sender {
        let context = Context { now: Time::ZERO, packet_bytes: PACKET, summary, past: None, seed: 5 };
        *Bbr::build(&Bbr::INFO.choice().params, &context).0
    }

    fn known(window_bytes: u64, threshold_bytes: u64) -> Summary {
        Summary {
            window_bytes,
            threshold_bytes,
            bandwidth: Some(Rate::from_bits_per_sec(100_000_000)),
            rtt_min: Some(Duration::from_millis(20)),
            answered_below: None,
        }
    }

    #[test]
    fn a_new_connection_starts_up_at_the_initial_window() {
        let bbr = build(Summary::initial(PACKET));
        assert_eq!((bbr.phase(), bbr.window_bytes()), ("startup", 12_000));
        assert_eq!(bbr.summary().threshold_bytes, u64::MAX);
    }

    #[test]
    fn a_known_path_is_refilled_at_its_rate() {
        let bbr = build(known(250_000, 250_000));
        assert_eq!(bbr.phase(), "probe bandwidth (refill)");
        let rate = bbr.pacing_rate().unwrap_or_default().bits_per_sec();
        assert!((98_900_000..=99_000_008).contains(&rate), "{rate}");
        assert_eq!(bbr.window_bytes(), 250_000);
    }

    #[test]
    fn a_standing_queue_of_the_predecessor_is_drained() {
        let bbr = build(known(500_000, 400_000));
        assert_eq!(bbr.phase(), "drain");
        assert!(bbr.pacing_rate().unwrap_or_default() < Rate::from_bits_per_sec(50_000_000));
    }

    #[test]
    fn a_path_whose_limit_is_unknown_is_searched_from_what_is_known() {
        let bbr = build(known(30_000, u64::MAX));
        assert_eq!((bbr.phase(), bbr.window_bytes()), ("startup", 250_000));
        assert!(bbr.pacing_rate().unwrap_or_default() > Rate::from_bits_per_sec(200_000_000));
    }

    #[test]
    fn the_summary_of_a_full_pipe_has_no_room_for_a_queue() {
        let summary = build(known(500_000, 400_000)).summary();
        assert_eq!((summary.window_bytes, summary.threshold_bytes), (250_000, 250_000));
    }

    #[test]
    fn the_first_round_trip_sets_the_pace() {
        let mut bbr = build(Summary::initial(PACKET));
        let mut delivery = Delivery::new(Time::ZERO);
        let sent = delivery.on_sent(Time::ZERO, PACKET);
        bbr.on_sent(Time::ZERO, PACKET, &delivery);
        let now = Time::from_millis(100);
        delivery.on_acknowledged(now, PACKET, &sent);
        let rtt = Duration::from_millis(100);
        let ack = Ack {
            now,
            bytes: PACKET,
            largest: 0,
            sent_at: Time::ZERO,
            rtt: Some(rtt),
            rtt_smoothed: rtt,
            rtt_min: rtt,
            prior_in_flight: PACKET,
            sample: RateSample::default(),
            ecn_marked: 0,
            next_packet: 1,
        };
        bbr.on_ack(&ack, &delivery);
        assert_eq!(bbr.pacing_rate(), Some(Rate::from_bytes_per_sec(332_400)));
    }
}
