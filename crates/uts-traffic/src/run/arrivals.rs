//! Instants at which a source sends that does so at random, and sizes of what it sends.

use super::nanos;
use crate::spell::{Spell, exponential};
use crate::workload::{Arrivals, COUNT_MAX, Size};
use core::time::Duration;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Keeps these draws apart from others of the same seed: `arrivals`.
const ARRIVALS: u64 = u64::from_be_bytes(*b"arrivals");

/// Keeps draws of sizes apart from others of the same seed: `sizes` and three zeros.
const SIZES: u64 = u64::from_be_bytes(*b"sizes\0\0\0");

/// Sizes of this many messages in bytes: `otherwise` where none of `sizes` is drawn. Empty if
/// `sizes` is, as all are alike then.
pub(super) fn sizes(seed: u64, sizes: &[Size], otherwise: u64, count: usize) -> Vec<u32> {
    if sizes.is_empty() {
        return Vec::new();
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ SIZES);
    let draw = |_| {
        let mut left = random.next_u64() as f64 / u64::MAX as f64;
        let drawn = sizes.iter().find(|size| {
            left -= size.share;
            left < 0.0
        });
        u32::try_from(drawn.map_or(otherwise, |size| size.bytes)).unwrap_or(u32::MAX)
    };
    (0..count).map(draw).collect()
}

/// The instants in nanoseconds after the start, in order: at least one, as the first is at once,
/// and [`COUNT_MAX`] at the most.
pub(super) fn instants(seed: u64, arrivals: &Arrivals, every: Duration, duration: Duration) -> Vec<u64> {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ ARRIVALS);
    let (every_ns, end_ns) = (every.as_nanos() as f64, duration.as_nanos() as f64);
    let mut all = Vec::new();
    let (mut at_ns, mut spell_end_ns) = (0.0, 0.0);
    if let Arrivals::Spells { on, shape, .. } = arrivals {
        spell_end_ns = spell(&mut random, *on, *shape);
    }
    while (at_ns < end_ns || all.is_empty()) && (all.len() as u64) < COUNT_MAX {
        all.push(at_ns as u64);
        match arrivals {
            Arrivals::Poisson => at_ns += exponential(&mut random) * every_ns,
            Arrivals::Spells { on, off, shape } => {
                at_ns += every_ns;
                if at_ns > spell_end_ns {
                    at_ns = spell_end_ns + spell(&mut random, *off, *shape);
                    spell_end_ns = at_ns + spell(&mut random, *on, *shape);
                }
            }
        }
    }
    all
}

/// The length of a spell or of a silence in nanoseconds: of Pareto's distribution, or exponential.
fn spell(random: &mut ChaCha8Rng, mean: Duration, shape: Option<f64>) -> f64 {
    let spell = match shape {
        None => Spell::Exponential { mean },
        Some(shape) => Spell::Pareto { mean, shape },
    };
    nanos(spell.draw(random)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The parameter of Hurst by the variance of means over 16 and over 256 bins: it falls as
    /// m^(2H-2) (Leland, Taqqu, Willinger and Wilson 1994).
    fn hurst(arrivals: &Arrivals, every: Duration) -> f64 {
        let (bins, bin_ns) = (1 << 17, 10_000_000);
        let mut counts = vec![0.0; bins];
        for seed in 0..40 {
            for at_ns in instants(seed, arrivals, every, 10 * MS * bins as u32) {
                counts[(at_ns / bin_ns) as usize] += 1.0;
            }
        }
        let variance = |many: usize| {
            let means: Vec<f64> =
                counts.chunks_exact(many).map(|chunk| chunk.iter().sum::<f64>() / many as f64).collect();
            let mean = means.iter().sum::<f64>() / means.len() as f64;
            means.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / means.len() as f64
        };
        1.0 + (variance(256) / variance(16)).ln() / 16f64.ln() / 2.0
    }

    /// UDP of an Ethernet of 1995 (A. Richards' thesis, section 2.1.2): 128 bytes are the middle,
    /// 86 % are below 200, and 9 % have 8192.
    #[test]
    fn sizes_have_their_shares() {
        let mix = [(1024, 0.05), (8192, 0.09)].map(|(bytes, share)| Size { bytes, share });
        let drawn = sizes(3, &mix, 128, 40_000);
        let share = |is: fn(u32) -> bool| drawn.iter().filter(|b| is(**b)).count() as f64 / 40_000.0;
        // Five standard errors of a share of 9 % are 0.7 %.
        assert!((share(|bytes| bytes < 200) - 0.86).abs() < 0.009, "seed 3");
        assert!((share(|bytes| bytes == 8192) - 0.09).abs() < 0.007, "seed 3");
        assert!(sizes(3, &[], 128, 9).is_empty());
        assert_eq!(sizes(3, &[Size { bytes: 40, share: 1.0 }], 128, 3), [40; 3]);
    }

    #[test]
    fn poisson_arrivals_have_exponential_gaps() {
        let all = instants(7, &Arrivals::Poisson, 20 * MS, 400_000 * MS);
        let gaps: Vec<f64> = all.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        // Of 20,000 draws: five standard errors are 0.7 and 1.0 ms.
        assert!((mean - 20.0).abs() < 0.7 && (deviation - 20.0).abs() < 1.0, "{mean} {deviation}, seed 7");
        assert_eq!(instants(7, &Arrivals::Poisson, 20 * MS, 400_000 * MS), all, "they follow from the seed");
    }

    #[test]
    fn spells_fill_their_share_of_the_time() {
        let spells = Arrivals::Spells { on: 100 * MS, off: 300 * MS, shape: None };
        let sent = instants(7, &spells, MS, 1_000_000 * MS).len() as f64;
        // A quarter of a million, and half a message more in each of 2500 spells.
        assert!((sent / 251_250.0 - 1.0).abs() < 0.1, "{sent}, seed 7");
        let long = Arrivals::Spells { on: 100 * MS, off: 100 * MS, shape: None };
        assert_eq!(instants(7, &long, MS, Duration::from_nanos(1)), [0], "the first is at once");
    }

    /// With a shape of 1.4 the limit is (3 - 1.4) / 2 = 0.8; without memory it is 0.5.
    #[test]
    fn many_sources_with_heavy_tails_are_self_similar() {
        let heavy = Arrivals::Spells { on: 50 * MS, off: 150 * MS, shape: Some(1.4) };
        let found = hurst(&heavy, 10 * MS);
        assert!((0.7..0.95).contains(&found), "{found}");
        let found = hurst(&Arrivals::Poisson, 40 * MS);
        assert!((0.4..0.6).contains(&found), "{found}");
    }
}
