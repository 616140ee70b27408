//! LEDBAT++: a sender that makes room for everybody else (draft-irtf-iccrg-ledbat-plus-plus-01). It
//! keeps its queue below a target, slows down from time to time to see the path without its own
//! queue, and gives way to senders that fill queues.

use super::classic::{Adjustment, Classic, Reduced, SlowStart, Window};
use super::{Ack, Congestion, Context, Delivery, Loss, Summary, Timeout, response};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Described, Facts, Mechanism, Param, Params, Promise, Unasked, Unit};
use crate::time::{Rate, Time};
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct LedbatPlusPlus {
    inner: Classic<Gentle, Yielding>,
    slowdown: Slowdown,
}

/// Where the sender is between two slowdowns (C-76).
#[derive(Clone, Copy, Debug)]
enum Slowdown {
    /// The first search for the path's limit is under way.
    Searching,
    /// The next slowdown begins then.
    Until(Time),
    /// The window is at its least.
    Low { began: Time, until: Time },
    /// The window grows back.
    Back { began: Time },
}

impl LedbatPlusPlus {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Congestion,
        number: 8,
        name: "ledbat-plus-plus",
        what: "a queue below a target, and room for everybody else",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "target",
            unit: Unit::Millis,
            default: 60,
            min: 1,
            max: 100,
            bold: Bold::Above,
            what: "queueing delay that is kept",
        }],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Restraint, Promise::LowerThanBestEffort],
            unasked: Unasked::Choice(3),
            ..Facts::PLAIN
        },
        predict: |params, facts, prediction| {
            let target = target(params);
            let gain = gain(target, facts.rtt_min);
            // An increase of a part of a packet per round trip, and half the window after a loss.
            let p = response::random_events(facts, prediction) / gain;
            let seen_s = prediction.delay_s;
            // A burst takes most of so small a window: measured in the harness.
            let packets = response::reno_packets(p) / libm::pow(facts.loss_burst.max(1.0), 0.15);
            response::apply(packets, 0.5, facts, prediction);
            prediction.utilisation *= SHARE_BETWEEN_SLOWDOWNS;
            prediction.utilisation_low *= SHARE_BETWEEN_SLOWDOWNS;
            prediction.delay_s = prediction.delay_s.min(target.as_secs_f64().max(seen_s));
        },
    };

    /// Builds it from what the predecessor knew.
    pub fn build(params: &Params, context: &Context) -> Self {
        let target = target(params);
        let delay = QueueDelay { target, ..QueueDelay::default() };
        let (gentle, yielding) = (Gentle { delay: delay.clone() }, Yielding { delay });
        let inner = Classic::with(context, gentle, yielding).starting_at(INITIAL_PACKETS);
        let slowdown = match context.summary.rtt_min {
            // C-76: the first after an exchange comes as if one had just ended.
            Some(rtt) if context.summary.threshold_bytes != u64::MAX => {
                let doublings = inner.window.exact / (2.0 * inner.window.packet_bytes as f64);
                let rounds = libm::log(doublings.max(1.0)) / libm::log(1.0 + gain(target, rtt));
                let lasted = rtt.mul_f64((rounds + f64::from(LOW_ROUNDS)).min(ROUNDS_MAX));
                Slowdown::Until(context.now + lasted.saturating_mul(PERIOD))
            }
            _ => Slowdown::Searching,
        };
        LedbatPlusPlus { inner, slowdown }
    }

    fn low_bytes(&self) -> u64 {
        2 * self.inner.window.packet_bytes
    }

    /// C-76: slowdowns begin, and end.
    fn turn(&mut self, ack: &Ack, delivery: &Delivery) {
        let rounds = ack.rtt_smoothed.saturating_mul(LOW_ROUNDS);
        self.slowdown = match self.slowdown {
            Slowdown::Searching if !self.inner.in_slow_start() => Slowdown::Until(ack.now + rounds),
            // A sender that something else holds back leaves room by itself.
            Slowdown::Until(at) if ack.now >= at && !delivery.is_app_limited() => {
                Slowdown::Low { began: ack.now, until: ack.now + rounds }
            }
            Slowdown::Low { began, until } if ack.now >= until => {
                let window = &mut self.inner.window;
                window.threshold = window.bytes;
                (window.exact, window.bytes) = ((2 * window.packet_bytes) as f64, 2 * window.packet_bytes);
                Slowdown::Back { began }
            }
            Slowdown::Back { began } if !self.inner.in_slow_start() => {
                Slowdown::Until(ack.now + ack.now.since(began).saturating_mul(PERIOD))
            }
            as_before => as_before,
        };
    }
}

impl Described for Classic<Gentle, Yielding> {
    fn info(&self) -> &'static Mechanism {
        &LedbatPlusPlus::INFO
    }
}

impl Congestion for LedbatPlusPlus {
    fn on_sent(&mut self, now: Time, bytes: u64, delivery: &Delivery) {
        self.inner.on_sent(now, bytes, delivery);
    }

    fn on_ack(&mut self, ack: &Ack, delivery: &Delivery) {
        self.turn(ack, delivery);
        let before = (self.inner.window.exact, self.inner.window.bytes);
        self.inner.on_ack(ack, delivery);
        if matches!(self.slowdown, Slowdown::Low { .. }) && self.inner.window.bytes > before.1 {
            // What the window was before is come back to, no more.
            (self.inner.window.exact, self.inner.window.bytes) = before;
        }
    }

    fn on_loss(&mut self, loss: &Loss, delivery: &Delivery) {
        self.inner.on_loss(loss, delivery);
    }

    fn on_timeout(&mut self, timeout: &Timeout, delivery: &Delivery) {
        self.inner.on_timeout(timeout, delivery);
    }

    fn on_spurious_loss(&mut self, bytes: u64) {
        self.inner.on_spurious_loss(bytes);
    }

    fn set_packet_bytes(&mut self, packet_bytes: u64) {
        self.inner.set_packet_bytes(packet_bytes);
    }

    fn window_bytes(&self) -> u64 {
        match self.slowdown {
            Slowdown::Low { .. } => self.low_bytes().min(self.inner.window_bytes()),
            _ => self.inner.window_bytes(),
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    fn burst_bytes(&self) -> Option<u64> {
        None
    }

    fn summary(&self) -> Summary {
        let summary = self.inner.summary();
        match self.slowdown {
            // C-6: what fills the path, not what is left of it on purpose.
            Slowdown::Back { .. } if summary.threshold_bytes != u64::MAX => {
                Summary { window_bytes: summary.window_bytes.max(summary.threshold_bytes), ..summary }
            }
            _ => summary,
        }
    }

    fn phase(&self) -> &'static str {
        match self.slowdown {
            Slowdown::Low { .. } | Slowdown::Back { .. } => "slowdown",
            _ => self.inner.phase(),
        }
    }
}

fn target(params: &Params) -> Duration {
    Duration::from_millis(u64::from(params.get(0)))
}

/// C-73: what a round trip adds, in packets (section 4.2 of the draft).
fn gain(target: Duration, base: Duration) -> f64 {
    let ratio = 2.0 * target.as_secs_f64() / base.as_secs_f64().max(1e-6);
    1.0 / ratio.ceil().clamp(1.0, 16.0)
}

/// Time that packets wait: the least of the last round trips, beyond the smallest (section 4.1 of
/// the draft).
#[derive(Clone, Debug, Default)]
struct QueueDelay {
    target: Duration,
    last: [Option<Duration>; SAMPLES],
    next: usize,
}

impl QueueDelay {
    /// Takes an acknowledgement into account. The delay as a multiple of the target.
    fn on_ack(&mut self, ack: &Ack) -> f64 {
        if let Some(rtt) = ack.rtt
            && let Some(place) = self.last.get_mut(self.next % SAMPLES)
        {
            *place = Some(rtt);
            self.next = (self.next + 1) % SAMPLES;
        }
        let least = self.last.iter().flatten().min().copied().unwrap_or(ack.rtt_min);
        least.saturating_sub(ack.rtt_min).as_secs_f64() / self.target.as_secs_f64().max(1e-3)
    }

    fn restart(&mut self) {
        *self = QueueDelay { target: self.target, ..QueueDelay::default() };
    }
}

/// Slow start by the gain, up to three quarters of the target (C-74).
#[derive(Clone, Debug, Default)]
pub struct Gentle {
    delay: QueueDelay,
}

impl SlowStart for Gentle {
    fn grow(&mut self, window: &Window, ack: &Ack) -> Option<f64> {
        if self.delay.on_ack(ack) > SLOW_START_END {
            return None;
        }
        let grown = window.exact + gain(self.delay.target, ack.rtt_min) * ack.bytes as f64;
        Some(grown.min((window.threshold as f64).max(window.exact)))
    }

    fn restart(&mut self) {
        self.delay.restart();
    }
}

/// Additive increase below the target, multiplicative decrease above it (C-75).
#[derive(Clone, Debug, Default)]
pub struct Yielding {
    delay: QueueDelay,
}

impl Adjustment for Yielding {
    fn reduce(&mut self, window: &Window, _: u64) -> Reduced {
        let half = window.exact / 2.0;
        Reduced { window: half, threshold: half }
    }

    fn grow(&mut self, window: &Window, ack: &Ack) -> f64 {
        let delay = self.delay.on_ack(ack);
        let gained = gain(self.delay.target, ack.rtt_min) * window.packet_bytes as f64;
        // Section 4.2 of the draft, per round trip; an acknowledgement is a part of one.
        let taken = if delay > 1.0 { window.exact * (delay - 1.0) } else { 0.0 };
        let change = (gained - taken).max(-window.exact / 2.0);
        window.exact + change * (ack.bytes as f64 / window.exact).min(1.0)
    }

    fn restart(&mut self) {
        self.delay.restart();
    }

    fn restore(&mut self, _: Self) {}
}

/// Packets that a connection begins with (section 4.3 of the draft).
const INITIAL_PACKETS: u64 = 2;
/// Round trips of which the least counts (section 4.1 of the draft).
const SAMPLES: usize = 4;
/// Share of the target at which the first slow start ends (section 4.3 of the draft).
const SLOW_START_END: f64 = 0.75;
/// Round trips that a slowdown lasts at the least window, and that pass before the first.
const LOW_ROUNDS: u32 = 2;
/// Between two slowdowns passes so many times what the last has taken (section 4.4 of the draft).
const PERIOD: u32 = 9;
/// Share of the path that slowdowns leave, and growth back from two packets after each loss and
/// each start: measured in the harness.
const SHARE_BETWEEN_SLOWDOWNS: f64 = 0.75;
/// More round trips than it takes to grow back to any window, so that the time can be computed.
const ROUNDS_MAX: f64 = 1000.0;

#[cfg(test)]
mod tests {
    use super::super::testing::{PACKET, RTT, Script, context};
    use super::*;

    fn script(window_packets: u64, threshold_bytes: u64) -> Script<LedbatPlusPlus> {
        let mut context = context(window_packets, threshold_bytes);
        context.summary.rtt_min = Some(RTT);
        Script::new(LedbatPlusPlus::build(&LedbatPlusPlus::INFO.choice().params, &context))
    }

    #[test]
    fn the_gain_follows_the_smallest_round_trip() {
        let target = Duration::from_millis(60);
        let gains = [200, 120, 50, 20, 1].map(|ms| gain(target, Duration::from_millis(ms)));
        assert_eq!(gains, [1.0, 1.0, 1.0 / 3.0, 1.0 / 6.0, 1.0 / 16.0]);
    }

    #[test]
    fn below_the_target_it_adds_its_gain_and_above_it_gives_way() {
        let mut s = script(40, 40 * PACKET);
        s.rtt = RTT + Duration::from_millis(30);
        s.round();
        assert!((s.packets() - 40.33).abs() < 0.02, "{}", s.packets());
        // Twice the target: the window times (2 - 1), at most half of it, in a round trip.
        s.rtt = RTT + Duration::from_millis(120);
        s.round();
        assert!((20.0..27.0).contains(&s.packets()), "{}", s.packets());
    }

    #[test]
    fn slowdowns_come_by_themselves_and_take_a_tenth() {
        let mut s = script(40, 40 * PACKET);
        let (mut low, mut rounds) = (0, 0);
        while s.now.since(Time::ZERO) < Duration::from_secs(60) {
            let is_low = matches!(s.mechanism.slowdown, Slowdown::Low { .. });
            assert!(!is_low || s.packets() <= 2.0);
            low += u64::from(s.mechanism.phase() == "slowdown");
            rounds += 1;
            s.round();
        }
        assert!((rounds / 20..rounds / 6).contains(&low), "{low} of {rounds} rounds");
        assert!(s.mechanism.summary().window_bytes > 30 * PACKET);
    }

    #[test]
    fn a_connection_begins_with_two_packets_and_searches_until_a_queue_shows() {
        let mut context = context(10, u64::MAX);
        context.summary = Summary::initial(PACKET);
        let params = LedbatPlusPlus::INFO.choice().params;
        let mut s = Script::new(LedbatPlusPlus::build(&params, &context));
        assert_eq!(s.packets(), 2.0);
        s.rtt = RTT;
        for _ in 0..4 {
            s.round();
        }
        assert!(s.packets() > 4.0 && s.mechanism.phase() == "slow start");
        s.rtt = RTT + Duration::from_millis(46);
        s.round();
        assert_ne!(s.mechanism.phase(), "slow start");
    }
}
