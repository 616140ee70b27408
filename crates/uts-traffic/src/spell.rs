//! Lengths of the spells and silences of a source, and times between events that have no memory.

use core::time::Duration;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// A value of [0, 1), each multiple of 2^-53 as likely.
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// An exponentially distributed value with mean 1: the inverse of its distribution at a uniform
/// value. The logarithm is the same on every machine, unlike that of the system's library.
pub fn exponential(rng: &mut ChaCha8Rng) -> f64 {
    -libm::log(1.0 - uniform(rng))
}

/// A distribution of lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spell {
    /// Exponentially distributed.
    Exponential {
        /// The mean.
        mean: Duration,
    },
    /// By Pareto's distribution, with a heavy tail.
    Pareto {
        /// The mean.
        mean: Duration,
        /// Above 1. Up to 2 the variance is infinite.
        shape: f64,
    },
}

impl Spell {
    /// The mean.
    pub fn mean(self) -> Duration {
        match self {
            Spell::Exponential { mean } | Spell::Pareto { mean, .. } => mean,
        }
    }

    /// The mean number of packets of a spell that begins with one and has another after each `gap`
    /// above 0: 1 and the sum of the shares of spells that last 1, 2, 3, ... gaps at least.
    pub fn packets(self, gap: Duration) -> f64 {
        let gaps = self.mean().as_secs_f64() / gap.as_secs_f64();
        match self {
            Spell::Exponential { .. } => -1.0 / libm::expm1(-1.0 / gaps),
            Spell::Pareto { shape, .. } => {
                // The shortest spell, in gaps.
                let least = gaps * (shape - 1.0) / shape;
                let certain = libm::floor(least);
                1.0 + certain + libm::pow(least, shape) * zeta(shape, certain + 1.0)
            }
        }
    }

    /// The gap with which a spell has so many packets in the mean, more than 1; to the nanosecond.
    pub fn gap(self, packets: f64) -> Duration {
        let mean_ns = self.mean().as_nanos() as f64;
        // A spell has the whole gaps that fit into it, and one packet more.
        let (mut low, mut high) = (mean_ns / packets, mean_ns / (packets - 1.0));
        while high - low > 0.5 {
            let middle = (low + high) / 2.0;
            if middle <= low || middle >= high {
                break;
            }
            let is_short = self.packets(Duration::from_secs_f64(middle / 1e9)) > packets;
            *(if is_short { &mut low } else { &mut high }) = middle;
        }
        Duration::from_nanos(high as u64)
    }

    /// The next, to the nanosecond.
    pub fn draw(self, rng: &mut ChaCha8Rng) -> Duration {
        let (mean, share) = match self {
            Spell::Exponential { mean } => (mean, exponential(rng)),
            // The least is mean (shape - 1) / shape; the logarithm over it is exponential.
            Spell::Pareto { mean, shape } => {
                (mean, (shape - 1.0) / shape * libm::exp(exponential(rng) / shape))
            }
        };
        Duration::from_nanos((mean.as_nanos() as f64 * share) as u64)
    }

    /// One that an instant falls into that was chosen at random, and how much of it is over by
    /// then. The longer one lasts, the more instants fall into it: its length has the distribution
    /// of the others, weighted by the length.
    pub fn draw_met(self, rng: &mut ChaCha8Rng) -> (Duration, Duration) {
        let (mean, share) = match self {
            Spell::Exponential { mean } => (mean, exponential(rng) + exponential(rng)),
            Spell::Pareto { mean, shape } => {
                (mean, (shape - 1.0) / shape * libm::exp(exponential(rng) / (shape - 1.0)))
            }
        };
        let length_ns = mean.as_nanos() as f64 * share;
        let over_ns = length_ns * uniform(rng);
        (Duration::from_nanos(length_ns as u64), Duration::from_nanos(over_ns as u64))
    }
}

/// The sum of k^-`power` from k = `from` on, with `power` above 1 and `from` at least 1: so many
/// terms, and the rest by the formula of Euler and Maclaurin.
fn zeta(power: f64, from: f64) -> f64 {
    const TERMS: u32 = 32;
    let terms: f64 = (0..TERMS).map(|k| libm::pow(from + f64::from(k), -power)).sum();
    let rest = from + f64::from(TERMS);
    let last = libm::pow(rest, -power);
    terms + rest * last / (power - 1.0) + last / 2.0 + power * last / rest / 12.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    #[test]
    fn sums_of_powers_are_those_of_tables() {
        // The values of Riemann's function at 2 and at 3/2.
        assert!((zeta(2.0, 1.0) - core::f64::consts::PI.powi(2) / 6.0).abs() < 1e-9);
        assert!((zeta(1.5, 1.0) - 2.612_375_348_685_488).abs() < 1e-8);
        assert!((zeta(2.0, 3.0) - (core::f64::consts::PI.powi(2) / 6.0 - 1.25)).abs() < 1e-9);
    }

    #[test]
    fn a_gap_gives_the_packets_that_it_was_asked_for() {
        let mean = Duration::from_millis(100);
        let pareto = [1.05, 1.5, 1.9, 3.0].map(|shape| Spell::Pareto { mean, shape });
        for spell in pareto.into_iter().chain([Spell::Exponential { mean }]) {
            for packets in [1.01, 1.5, 2.0, 17.3, 1000.0, 90_000.0] {
                let found = spell.packets(spell.gap(packets));
                assert!((found / packets - 1.0).abs() < 1e-3, "{spell:?}: {found} for {packets}");
            }
        }
    }

    #[test]
    fn spells_have_the_packets_that_follow_from_their_lengths() {
        let (mean, gap) = (Duration::from_millis(100), Duration::from_millis(30));
        for (seed, spell) in [
            Spell::Exponential { mean },
            Spell::Pareto { mean, shape: 1.9 },
            Spell::Pareto { mean, shape: 3.0 },
        ]
        .into_iter()
        .enumerate()
        {
            let rng = &mut ChaCha8Rng::seed_from_u64(seed as u64);
            let count = 200_000;
            let packets = |length: Duration| 1 + length.as_nanos() / gap.as_nanos();
            let drawn: u128 = (0..count).map(|_| packets(spell.draw(rng))).sum();
            let (found, expected) = (drawn as f64 / f64::from(count), spell.packets(gap));
            assert!((found / expected - 1.0).abs() < 0.02, "seed {seed}: {found}, closed form {expected}");
        }
    }

    /// Weighted by its length, an exponential one lasts twice as long, and Pareto's of shape 5 is
    /// of shape 4: its mean is 4/3 of the least, which is 4/5 of the mean before. Half of it is
    /// over.
    #[test]
    fn an_instant_meets_long_spells_more_often() {
        let mean = Duration::from_millis(90);
        for (spell, expected) in
            [(Spell::Exponential { mean }, 0.18), (Spell::Pareto { mean, shape: 5.0 }, 0.096)]
        {
            let rng = &mut ChaCha8Rng::seed_from_u64(7);
            let met: Vec<_> = (0..200_000).map(|_| spell.draw_met(rng)).collect();
            assert!(met.iter().all(|(length, over)| over <= length));
            let mean_s = |of: fn(&(Duration, Duration)) -> Duration| {
                met.iter().map(|met| of(met).as_secs_f64()).sum::<f64>() / met.len() as f64
            };
            let (length, over) = (mean_s(|met| met.0), mean_s(|met| met.1));
            assert!((length / expected - 1.0).abs() < 0.02, "seed 7, {spell:?}: {length} s");
            assert!((over / length - 0.5).abs() < 0.01, "seed 7, {spell:?}: {over} of {length} s");
        }
    }
}
