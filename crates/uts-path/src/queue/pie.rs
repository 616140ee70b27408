//! Proportional integral controller enhanced.
//!
//! PIE as RFC 8033 specifies it (sections 4 and 5): the probability of a drop follows the delay of
//! the queue and its trend. The delay is that of the bytes that wait at the link's rate (section
//! 5.2's estimate, without its error); under a trace, which has no rate, the last packet's own.
//! Derandomisation (section 5.4) is left out.

use super::{Arrival, QueueDiscipline, Verdict};
use crate::config::check_delay;
use crate::error::SpecError;
use crate::loss::chance;
use crate::parse::{format_duration, parse_duration_ns};
use crate::passage::DropReason;
use rand_chacha::ChaCha8Rng;
use std::fmt;

/// Between two updates of the probability (`T_UPDATE`).
const UPDATE_NS: u64 = 15_000_000;
/// A burst that passes after an idle time (`MAX_BURST`).
const BURST_NS: u64 = 150_000_000;
/// Weights of the deviation from the target and of the trend, per second (section 4.2).
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// Two packets of this length are no queue (`MEAN_PKTSIZE`).
const MEAN_PACKET_BYTES: u64 = 1500;
/// Above this probability packets are dropped even if they could be marked (section 5.1).
const MARK_MAX: f64 = 0.1;

/// Settings of PIE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pie {
    /// Delay of the queue that is held to (`QDELAY_REF`), in nanoseconds; above 0, at most an hour.
    pub target_ns: u64,
    /// Packets that can be marked are, instead of being dropped.
    pub ecn: bool,
}

impl Default for Pie {
    /// 15 ms, as RFC 8033 section 4.2 recommends.
    fn default() -> Self {
        Pie { target_ns: 15_000_000, ecn: true }
    }
}

impl Pie {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        if self.target_ns == 0 {
            return Err(SpecError::new("queue", "TARGET of pie must be above 0"));
        }
        check_delay("queue", self.target_ns)
    }

    pub(super) fn parse(arguments: Option<&str>) -> Result<Self, String> {
        let mut pie = Pie::default();
        for part in arguments.into_iter().flat_map(|all| all.split(',')) {
            match part {
                "noecn" => pie.ecn = false,
                target => {
                    pie.target_ns = parse_duration_ns(target)
                        .map_err(|_| "must be pie[:TARGET][,noecn] as in pie:15ms".to_owned())?
                }
            }
        }
        Ok(pie)
    }
}

impl fmt::Display for Pie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = (self.target_ns != Pie::default().target_ns).then(|| format_duration(self.target_ns));
        let parts: Vec<String> = target.into_iter().chain((!self.ecn).then(|| "noecn".into())).collect();
        f.write_str("pie")?;
        if parts.is_empty() { Ok(()) } else { write!(f, ":{}", parts.join(",")) }
    }
}

/// The names are RFC 8033's.
#[derive(Debug)]
pub(super) struct PieQueue {
    settings: Pie,
    drop_prob: f64,
    qdelay_old_ns: u64,
    burst_allowance_ns: u64,
    /// Up to when the probability has been updated.
    updated_ns: u64,
    /// Delay of the queue since the last thing that happened to it.
    current_ns: u64,
    /// The link's rate when a packet came last.
    rate_bps: Option<u64>,
}

impl PieQueue {
    pub(super) fn new(settings: Pie) -> Self {
        PieQueue {
            settings,
            drop_prob: 0.0,
            qdelay_old_ns: 0,
            burst_allowance_ns: BURST_NS,
            updated_ns: 0,
            current_ns: 0,
            rate_bps: None,
        }
    }

    /// Does the updates that were due, all of which have met the same queue.
    fn catch_up(&mut self, now_ns: u64) {
        let due = now_ns.saturating_sub(self.updated_ns) / UPDATE_NS;
        self.updated_ns += due * UPDATE_NS;
        // Nothing is left of what was before after so many; an idle hour costs no more.
        for _ in 0..due.min(1000) {
            self.update();
        }
    }

    /// Section 4.2.
    fn update(&mut self) {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let (current, old, target) = (self.current_ns, self.qdelay_old_ns, self.settings.target_ns);
        let mut p = ALPHA * (seconds(current) - seconds(target)) + BETA * (seconds(current) - seconds(old));
        p /= match self.drop_prob {
            low if low < 0.000_001 => 2048.0,
            low if low < 0.000_01 => 512.0,
            low if low < 0.000_1 => 128.0,
            low if low < 0.001 => 32.0,
            low if low < 0.01 => 8.0,
            low if low < 0.1 => 2.0,
            _ => 1.0,
        };
        if self.drop_prob >= 0.1 {
            p = p.min(0.02);
        }
        self.drop_prob += p;
        if current == 0 && old == 0 {
            self.drop_prob *= 1.0 - 1.0 / 64.0;
        }
        self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
        self.qdelay_old_ns = current;
        self.burst_allowance_ns = self.burst_allowance_ns.saturating_sub(UPDATE_NS);
        if self.drop_prob == 0.0 && current < target / 2 && old < target / 2 {
            self.burst_allowance_ns = BURST_NS;
        }
    }

    fn delay_ns(&self, bytes: u64) -> Option<u64> {
        let rate_bps = self.rate_bps?;
        Some((u128::from(bytes) * 8_000_000_000 / u128::from(rate_bps.max(1))) as u64)
    }
}

impl QueueDiscipline for PieQueue {
    fn on_arrival(
        &mut self,
        arrival: &Arrival,
        mark: &mut dyn FnMut() -> bool,
        rng: &mut ChaCha8Rng,
    ) -> Verdict {
        self.catch_up(arrival.now_ns);
        self.rate_bps = arrival.rate_bps;
        let is_calm = self.qdelay_old_ns < self.settings.target_ns / 2 && self.drop_prob < 0.2;
        let is_short = arrival.queue_bytes <= 2 * MEAN_PACKET_BYTES;
        let passes = self.burst_allowance_ns > 0 || is_calm || is_short || !chance(rng, self.drop_prob);
        let marked = !passes && self.settings.ecn && self.drop_prob <= MARK_MAX && mark();
        if !passes && !marked {
            return Verdict::Drop(DropReason::Pie);
        }
        self.current_ns = self.delay_ns(arrival.queue_bytes + arrival.bytes).unwrap_or(self.current_ns);
        Verdict::Pass { marked }
    }

    fn on_start(
        &mut self,
        now_ns: u64,
        sojourn_ns: u64,
        _: u64,
        bytes: u64,
        _: &mut dyn FnMut() -> bool,
    ) -> Verdict {
        self.catch_up(now_ns);
        self.current_ns = self.delay_ns(bytes).unwrap_or(sojourn_ns);
        Verdict::PASS
    }

    fn on_empty(&mut self, now_ns: u64) {
        self.catch_up(now_ns);
        self.current_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    const MS: u64 = 1_000_000;

    /// The probability after updates that meet these delays, in milliseconds.
    fn after(queue: &mut PieQueue, delays_ms: impl IntoIterator<Item = u64>) -> f64 {
        for delay_ms in delays_ms {
            queue.current_ns = delay_ms * MS;
            queue.update();
        }
        queue.drop_prob
    }

    #[test]
    fn the_probability_follows_the_delay_and_its_trend() {
        let mut queue = PieQueue::new(Pie::default());
        // By hand: (0.125 * 0.085 + 1.25 * 0.1) / 2048, then without a trend.
        let first = after(&mut queue, [100]);
        assert!((first - (0.125 * 0.085 + 1.25 * 0.1) / 2048.0).abs() < 1e-12, "{first}");
        let second = after(&mut queue, [100]);
        assert!((second - first - 0.125 * 0.085 / 128.0).abs() < 1e-12, "{second}");
        // It rises while the delay is above the target, and falls below it.
        let high = after(&mut queue, std::iter::repeat_n(100, 200));
        assert!(high > 0.2, "{high}");
        let low = after(&mut queue, std::iter::repeat_n(2, 500));
        assert!(low < 0.1, "{low}");
        assert_eq!(after(&mut queue, std::iter::repeat_n(0, 4000)), 0.0);
        assert_eq!(queue.burst_allowance_ns, BURST_NS, "it has begun anew");
    }

    #[test]
    fn a_first_burst_and_a_short_queue_pass() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut queue = PieQueue::new(Pie::default());
        let mut arrive = |queue: &mut PieQueue, now_ns, queue_bytes| {
            let rate_bps = Some(8_000_000);
            let arrival = Arrival { now_ns, bytes: 1000, queue_packets: 1, queue_bytes, rate_bps };
            queue.on_arrival(&arrival, &mut || false, &mut rng)
        };
        queue.drop_prob = 1.0;
        queue.qdelay_old_ns = 500 * MS;
        assert_eq!(arrive(&mut queue, 0, 500_000), Verdict::PASS, "the burst's allowance");
        queue.burst_allowance_ns = 0;
        assert_eq!(arrive(&mut queue, 0, 500_000), Verdict::Drop(DropReason::Pie));
        assert_eq!(arrive(&mut queue, 0, 3000), Verdict::PASS, "two packets are no queue");
        assert_eq!(queue.current_ns, 4 * MS);
    }

    #[test]
    fn marks_take_the_place_of_drops_up_to_a_tenth() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (drop_prob, is_marked) in [(0.1, true), (0.3, false)] {
            let mut queue = PieQueue::new(Pie::default());
            (queue.burst_allowance_ns, queue.qdelay_old_ns) = (0, 100 * MS);
            let mut verdicts = Vec::new();
            for _ in 0..1000 {
                queue.drop_prob = drop_prob;
                let arrival = Arrival {
                    now_ns: 0,
                    bytes: 1000,
                    queue_packets: 9,
                    queue_bytes: 90_000,
                    rate_bps: Some(8_000_000),
                };
                verdicts.push(queue.on_arrival(&arrival, &mut || true, &mut rng));
            }
            let chosen = |v: &&Verdict| **v != Verdict::PASS;
            let share = verdicts.iter().filter(chosen).count() as f64 / 1000.0;
            assert!((share - drop_prob).abs() < 0.05, "{share}");
            let wanted =
                if is_marked { Verdict::Pass { marked: true } } else { Verdict::Drop(DropReason::Pie) };
            assert!(verdicts.iter().filter(chosen).all(|v| *v == wanted));
        }
    }
}
