//! Random early detection.
//!
//! S. Floyd, V. Jacobson, "Random Early Detection Gateways for Congestion Avoidance", IEEE/ACM
//! Transactions on Networking 1(4), 1993: the algorithm of figure 2, with the idle time correction;
//! the gentle variant of S. Floyd's note of 2000. Packets are marked instead of dropped as RFC 3168
//! advises: below MAX only. Thresholds in bytes measure the queue in bytes, and leave the
//! probability independent of the packet's own size (RFC 7141).

use super::{Arrival, QueueDiscipline, Verdict};
use crate::change::amount;
use crate::config::Buffer;
use crate::error::SpecError;
use crate::loss::chance;
use crate::parse::{parse_buffer, parse_number};
use crate::passage::DropReason;
use rand_chacha::ChaCha8Rng;
use std::fmt;

/// The weight of a new sample in the average where none is given; Floyd and Jacobson use it.
const WEIGHT: f64 = 0.002;
/// A typical small packet. An idle queue counts as samples of an empty queue: as many as such
/// packets could have been transmitted.
const SMALL_PACKET_BYTES: u64 = 500;

/// Settings of random early detection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Red {
    /// Average queue above which some packets go: packets or bytes, at least one.
    pub min: Buffer,
    /// Average queue from which all go, in the same unit and above `min`.
    pub max: Buffer,
    /// The probability (p_b of the paper) as the average reaches `max`, above 0 to 1. Because marks
    /// are spread out, about twice this share of packets is dropped.
    pub max_p: f64,
    /// Weight of a new sample in the average, above 0 to 1.
    pub weight: f64,
    /// The probability rises from `max_p` at `max` to 1 at twice `max`, instead of at once.
    pub gentle: bool,
    /// Packets that allow it are marked instead of dropped.
    pub ecn: bool,
}

impl Red {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        let wrong = |reason: &str| Err(SpecError::new("queue", reason));
        let ordered = match (self.min, self.max) {
            (Buffer::Packets(min), Buffer::Packets(max)) | (Buffer::Bytes(min), Buffer::Bytes(max)) => {
                0 < min && min < max
            }
            _ => return wrong("MIN and MAX of red must be in the same unit, as 5p,15p or 7500B,22kB"),
        };
        if !ordered {
            return wrong("MIN of red must be at least 1, and below MAX");
        }
        if !(self.max_p > 0.0 && self.max_p <= 1.0) {
            return wrong("MAX_P of red must be above 0 and at most 1");
        }
        if !(self.weight > 0.0 && self.weight <= 1.0) {
            return wrong("WEIGHT of red must be above 0 and at most 1");
        }
        Ok(())
    }

    pub(super) fn parse(arguments: &str) -> Result<Self, String> {
        let form = "must be red:MIN,MAX,MAX_P[,WEIGHT][,gentle][,noecn] as in red:5p,15p,0.1";
        let mut parts = arguments.split(',').peekable();
        let mut threshold = |name: &str| {
            let part = parts.next().ok_or(form)?;
            match parse_buffer(part, "") {
                Ok(Buffer::Unlimited) | Err(_) => {
                    Err(format!("{name} must be packets as in 5p or bytes as in 7500B, not `{part}`"))
                }
                Ok(amount) => Ok(amount),
            }
        };
        let (min, max) = (threshold("MIN")?, threshold("MAX")?);
        let max_p = parse_number(parts.next().ok_or(form)?, "MAX_P")?;
        let is_number = |part: &&str| part.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        let weight = parts.next_if(is_number).map_or(Ok(WEIGHT), |part| parse_number(part, "WEIGHT"))?;
        let mut red = Red { min, max, max_p, weight, gentle: false, ecn: true };
        for part in parts {
            match part {
                "gentle" => red.gentle = true,
                "noecn" => red.ecn = false,
                _ => return Err(format!("`{part}` is none of gentle, noecn")),
            }
        }
        Ok(red)
    }
}

impl fmt::Display for Red {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "red:{},{},{}", amount(self.min, ""), amount(self.max, ""), self.max_p)?;
        if self.weight != WEIGHT {
            write!(f, ",{}", self.weight)?;
        }
        f.write_str(if self.gentle { ",gentle" } else { "" })?;
        f.write_str(if self.ecn { "" } else { ",noecn" })
    }
}

/// The names are the paper's.
#[derive(Debug)]
pub(super) struct RedQueue {
    settings: Red,
    avg: f64,
    /// Packets since the last one that was chosen; -1 while the average is below `min`.
    count: i64,
    /// Up to when idle time has been accounted for.
    q_time_ns: u64,
}

impl RedQueue {
    pub(super) fn new(settings: Red) -> Self {
        RedQueue { settings, avg: 0.0, count: -1, q_time_ns: 0 }
    }

    fn update_average(&mut self, arrival: &Arrival) {
        let Red { weight, min, .. } = self.settings;
        if arrival.queue_packets > 0 {
            let sample = match min {
                Buffer::Bytes(_) => arrival.queue_bytes,
                _ => arrival.queue_packets,
            };
            self.avg += weight * (sample as f64 - self.avg);
            return;
        }
        let Some(rate_bps) = arrival.rate_bps else {
            self.avg = 0.0;
            return;
        };
        let packet_ns = (SMALL_PACKET_BYTES * 8_000_000_000).div_ceil(rate_bps);
        let packets = arrival.now_ns.saturating_sub(self.q_time_ns) / packet_ns;
        self.q_time_ns += packets * packet_ns;
        self.avg *= power(1.0 - weight, packets);
    }

    /// p_b where the average chooses packets by chance; below it is `None`, above 1.
    fn probability(&self) -> Option<f64> {
        let Red { min, max, max_p, gentle, .. } = self.settings;
        let (min, max) = (threshold(min), threshold(max));
        if self.avg < min {
            None
        } else if self.avg < max {
            Some(max_p * (self.avg - min) / (max - min))
        } else if gentle && self.avg < 2.0 * max {
            Some(max_p + (1.0 - max_p) * (self.avg - max) / max)
        } else {
            Some(1.0)
        }
    }
}

impl QueueDiscipline for RedQueue {
    fn on_arrival(
        &mut self,
        arrival: &Arrival,
        mark: &mut dyn FnMut() -> bool,
        rng: &mut ChaCha8Rng,
    ) -> Verdict {
        self.update_average(arrival);
        let Some(p_b) = self.probability() else {
            self.count = -1;
            return Verdict::PASS;
        };
        self.count += 1;
        let spread = 1.0 - self.count as f64 * p_b;
        let chosen = if spread > p_b { chance(rng, p_b / spread) } else { true };
        if !chosen {
            return Verdict::PASS;
        }
        self.count = 0;
        if self.settings.ecn && self.avg < threshold(self.settings.max) && mark() {
            return Verdict::Pass { marked: true };
        }
        Verdict::Drop(DropReason::Red)
    }

    fn on_empty(&mut self, now_ns: u64) {
        self.q_time_ns = now_ns;
    }
}

fn threshold(buffer: Buffer) -> f64 {
    match buffer {
        Buffer::Packets(amount) | Buffer::Bytes(amount) => amount as f64,
        Buffer::Unlimited => f64::INFINITY,
    }
}

/// By squaring: the same on every machine, which `powi` does not promise.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn red(text: &str) -> RedQueue {
        let red = Red::parse(text).unwrap();
        assert_eq!(red.check(), Ok(()));
        RedQueue::new(red)
    }

    fn arrival(now_ns: u64, queue_packets: u64) -> Arrival {
        let queue_bytes = 1000 * queue_packets;
        Arrival { now_ns, bytes: 1000, queue_packets, queue_bytes, rate_bps: Some(4_000_000) }
    }

    #[test]
    fn the_average_follows_a_step_as_the_paper_says() {
        // Equation (2), as the queue grows from 0 to L: avg = L + 1 + ((1-w)^(L+1) - 1) / w.
        let mut queue = red("500p,1000p,0.1,0.002");
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for length in 1..=100 {
            queue.on_arrival(&arrival(0, length), &mut || false, &mut rng);
        }
        let wanted = 101.0 + (0.998_f64.powi(101) - 1.0) / 0.002;
        assert!((queue.avg - wanted).abs() < 1e-9, "{} {wanted}", queue.avg);
    }

    #[test]
    fn idle_time_counts_as_small_packets() {
        // 500 bytes at 4 Mbit/s: 1 ms each.
        let mut queue = red("5p,15p,0.1,0.01");
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        queue.avg = 4.0;
        queue.on_empty(10_000_000);
        queue.on_arrival(&arrival(60_500_000, 0), &mut || false, &mut rng);
        assert!((queue.avg - 4.0 * 0.99_f64.powi(50)).abs() < 1e-12, "{}", queue.avg);
        // What was counted is not counted again.
        queue.on_arrival(&arrival(61_000_000, 0), &mut || false, &mut rng);
        assert!((queue.avg - 4.0 * 0.99_f64.powi(51)).abs() < 1e-12, "{}", queue.avg);
        let infinite = Arrival { rate_bps: None, ..arrival(61_000_000, 0) };
        queue.on_arrival(&infinite, &mut || false, &mut rng);
        assert_eq!(queue.avg, 0.0);
    }

    #[test]
    fn gaps_between_drops_are_uniform() {
        // The average stays half way: p_b = 0.02. After a drop the count is 0: the gap is 1 to 49.
        for seed in 0..4 {
            let mut queue = red("10p,30p,0.04,1");
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let (mut gaps, mut gap) = ([0u32; 49], 0);
            let mut dropped = 0;
            while dropped < 49_000 {
                gap += 1;
                if queue.on_arrival(&arrival(0, 20), &mut || false, &mut rng) != Verdict::PASS {
                    // The first follows a count of -1 and may be 50.
                    if dropped > 0 {
                        gaps[gap - 1] += 1;
                    }
                    (dropped, gap) = (dropped + 1, 0);
                }
            }
            // Chi-square with 48 degrees of freedom: 93 has probability 10^-4.
            let chi_square: f64 = gaps.iter().map(|&n| (f64::from(n) - 1e3).powi(2) / 1e3).sum();
            assert!(chi_square < 93.0, "seed {seed}: {chi_square} {gaps:?}");
        }
    }

    #[test]
    fn the_probability_is_linear_between_the_thresholds() {
        let mut queue = red("10p,30p,0.1");
        let mut gentle = red("10p,30p,0.1,gentle");
        for (avg, wanted, wanted_gentle) in [
            (9.9, None, None),
            (10.0, Some(0.0), Some(0.0)),
            (25.0, Some(0.075), Some(0.075)),
            (30.0, Some(1.0), Some(0.1)),
            (45.0, Some(1.0), Some(0.55)),
            (60.0, Some(1.0), Some(1.0)),
        ] {
            (queue.avg, gentle.avg) = (avg, avg);
            assert_eq!(queue.probability(), wanted, "{avg}");
            assert_eq!(gentle.probability(), wanted_gentle, "{avg}");
        }
    }

    #[test]
    fn what_can_be_marked_is_marked_below_the_upper_threshold() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (text, length, wanted) in [
            ("10p,30p,1,1", 29, Verdict::Pass { marked: true }),
            ("10p,30p,1,1,noecn", 29, Verdict::Drop(DropReason::Red)),
            ("10p,30p,1,1", 30, Verdict::Drop(DropReason::Red)),
            ("10kB,30kB,1,1", 29, Verdict::Pass { marked: true }),
            ("10p,30p,1,1", 9, Verdict::PASS),
        ] {
            let mut queue = red(text);
            let got = (0..3).map(|_| queue.on_arrival(&arrival(0, length), &mut || true, &mut rng)).last();
            assert_eq!(got, Some(wanted), "{text} {length}");
        }
    }

    #[test]
    fn squaring_is_multiplying() {
        for exponent in [0, 1, 2, 7, 100] {
            let wanted: f64 = (0..exponent).map(|_| 0.99).product();
            assert!((power(0.99, exponent) - wanted).abs() < 1e-12);
        }
        assert_eq!(power(0.998, u64::MAX), 0.0);
    }
}
