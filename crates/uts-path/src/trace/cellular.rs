//! Traces like those of a cellular link, from a seed.
//!
//! The model is the one that Sprout infers links by (K. Winstein, A. Sivaraman, H. Balakrishnan,
//! "Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular Networks", NSDI 2013):
//! deliveries are a Poisson process whose rate takes a Brownian motion, with a
//! standard deviation of a fifth of the maximum (200 of 1000 packets a second) after a second; at
//! rate 0 there is an outage, which ends at rate 1 a second. Ours differs in what the paper leaves
//! to the prior: the rate is reflected at its maximum, and an outage ends, as with a handover, at
//! any rate as likely.
//!
//! In the long run an outage comes every `(2/3) / 0.2^2 = 16.7` s of service, so that 1/17.7 of the
//! time is outage; in service the rate is 5/8 of the maximum in the mean, over all 0.59 of it.
//!
//! In a third of all spans of 10 s the best half second carries ten times the worst one that
//! carries anything.
//!
//! Only operations that IEEE 754 defines to the bit are used. A seed means the same trace on every
//! machine.

use super::{OPPORTUNITY_BYTES, Trace};
use crate::config::between;
use crate::error::SpecError;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Time after which the trace repeats.
const DURATION_MS: u32 = 120_000;
/// Time between steps of the rate, as in Sprout.
const STEP_MS: u32 = 20;
/// Standard deviation of the rate's change in a second, as a share of the maximum.
const VOLATILITY: f64 = 0.2;
/// Mean length of an outage, in milliseconds.
const OUTAGE_MS: f64 = 1000.0;

/// A generator of traces like those of a cellular link: two minutes in which the rate varies
/// tenfold within seconds, with a stop now and then; `cellular:12mbit,7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cellular {
    /// Highest rate in bits per second, 100 kbit/s to 1 Gbit/s; the mean is about 0.59 of it.
    pub max_bps: u64,
    /// Decides everything else.
    pub seed: u64,
}

impl Cellular {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        between("rate", "highest rate in bit/s", self.max_bps, 100_000, 1_000_000_000)
    }

    /// Generates the trace; it ends with an opportunity at 120 s.
    pub fn trace(&self) -> Trace {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        // In opportunities per millisecond.
        let max = self.max_bps as f64 / (OPPORTUNITY_BYTES * 8 * 1000) as f64;
        let deviation = VOLATILITY * max * (f64::from(STEP_MS) / 1000.0).sqrt();
        let mut rate = max * rng.random::<f64>();
        let mut outage_ms = 0.0;
        // A Poisson process of varying rate: the integral of the rate between events is
        // exponential.
        let mut until_next = exponential(&mut rng);
        let mut times_ms = Vec::new();
        for ms in 0..DURATION_MS {
            if ms % STEP_MS == 0 {
                if outage_ms > 0.0 {
                    outage_ms -= f64::from(STEP_MS);
                    rate = if outage_ms > 0.0 { 0.0 } else { max * rng.random::<f64>() };
                } else {
                    rate += deviation * normal(&mut rng);
                    rate = if rate > max { (2.0 * max - rate).max(0.0) } else { rate };
                }
                if rate <= 0.0 && outage_ms <= 0.0 {
                    rate = 0.0;
                    outage_ms = OUTAGE_MS * exponential(&mut rng);
                }
            }
            until_next -= rate;
            while until_next <= 0.0 {
                times_ms.push(ms);
                until_next += exponential(&mut rng);
            }
        }
        times_ms.push(DURATION_MS);
        Trace { times_ms }
    }
}

/// Of mean 1, by comparisons alone (J. von Neumann, "Various techniques used in connection with
/// random digits", 1951): a descending run of odd length has its first value distributed as the
/// fraction, each one of even length before it adds 1.
fn exponential(rng: &mut ChaCha8Rng) -> f64 {
    let mut whole = 0.0;
    loop {
        let first: f64 = rng.random();
        let (mut last, mut length) = (first, 1);
        loop {
            let next = rng.random();
            if next >= last {
                break;
            }
            (last, length) = (next, length + 1);
        }
        if length % 2 == 1 {
            return whole + first;
        }
        whole += 1.0;
    }
}

/// Of mean 0 and deviation 1: the sum of twelve uniform values, which a motion of many steps cannot
/// tell from a normal one.
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(draw: fn(&mut ChaCha8Rng) -> f64) -> (f64, f64) {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let draws: Vec<f64> = (0..200_000).map(|_| draw(&mut rng)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        (mean, draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / draws.len() as f64)
    }

    #[test]
    fn draws_have_their_distributions() {
        let (mean, variance) = moments(exponential);
        assert!((mean - 1.0).abs() < 0.015 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let above_two = (0..200_000).filter(|_| exponential(&mut rng) > 2.0).count() as f64 / 200_000.0;
        assert!((above_two - (-2.0_f64).exp()).abs() < 0.005, "{above_two}");
        let (mean, variance) = moments(normal);
        assert!(mean.abs() < 0.015 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    fn trace(seed: u64) -> Trace {
        Cellular { max_bps: 12_000_000, seed }.trace()
    }

    /// Opportunities in each `bin_ms`.
    fn bins(trace: &Trace, bin_ms: u32) -> Vec<u32> {
        let mut bins = vec![0; (DURATION_MS / bin_ms) as usize];
        for time_ms in trace.times_ms().iter().filter(|&&ms| ms < DURATION_MS) {
            bins[(time_ms / bin_ms) as usize] += 1;
        }
        bins
    }

    #[test]
    fn mean_and_outages_are_the_models() {
        let (mut rates, mut outages) = (0.0, 0.0);
        for seed in 0..100 {
            let trace = trace(seed);
            assert_eq!(trace.duration_ms(), DURATION_MS);
            rates += trace.mean_rate_bps() as f64 / 12e6 / 100.0;
            let silent = bins(&trace, 100).iter().filter(|&&n| n == 0).count();
            outages += silent as f64 / 1200.0 / 100.0;
        }
        assert!((rates - 0.59).abs() < 0.04, "{rates}");
        // Bins of 0.1 s lose a bit at both ends of an outage.
        assert!((0.035..0.075).contains(&outages), "{outages}");
    }

    #[test]
    fn the_rate_varies_tenfold_within_seconds() {
        let (mut windows, mut tenfold) = (0, 0);
        for seed in 0..50 {
            // Half seconds, seen over 10 s; of those without an outage the least is a tenth of the
            // most or less.
            for window in bins(&trace(seed), 500).chunks(20) {
                windows += 1;
                let served = window.iter().filter(|&&n| n > 0);
                tenfold += u32::from(served.clone().min().map(|n| n * 10) <= served.max().copied());
            }
        }
        assert!(tenfold * 4 > windows, "{tenfold} of {windows}");
    }

    #[test]
    fn the_rate_moves_as_a_brownian_motion() {
        let mut changes = Vec::new();
        for seed in 0..100 {
            let halves = bins(&trace(seed), 100);
            for at in (0..halves.len() - 10).step_by(10) {
                let (from, to) = (f64::from(halves[at]) / 100.0, f64::from(halves[at + 10]) / 100.0);
                if (0.45..0.6).contains(&from) {
                    changes.push(to - from);
                }
            }
        }
        let variance = changes.iter().map(|c| c * c).sum::<f64>() / changes.len() as f64;
        // Averages over 0.1 s, 1 s apart: 0.04 * (1 - 0.1 / 3); each count of about 50 adds 0.5 /
        // 100.
        let wanted = 0.04 * (1.0 - 0.1 / 3.0) + 2.0 * 0.5 / 100.0;
        assert!(changes.len() > 1000 && (variance / wanted - 1.0).abs() < 0.15, "{variance} {wanted}");
    }

    #[test]
    fn a_seed_means_the_same_trace_everywhere() {
        let trace = trace(7);
        assert_eq!(trace.times_ms()[..8], [1, 4, 6, 14, 27, 30, 30, 36]);
        let sum: u64 = trace.times_ms().iter().map(|&ms| u64::from(ms)).sum();
        assert_eq!((trace.times_ms().len(), sum), (69_602, 4_038_243_681));
        assert_ne!(trace, super::tests::trace(8));
    }
}
