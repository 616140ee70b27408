//! Random drop: when the queue overflows, any packet of it may be the one that goes.
//!
//! Random drop for congestion recovery (RFC 1254; A. Mankin, "Random Drop Congestion Control",
//! SIGCOMM 1990): a sender loses in proportion to its share of the queue, not to its bursts. The
//! arriving packet is one of the candidates here. The packet in transmission is not.

use super::{QueueDiscipline, Waiting};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

#[derive(Debug)]
pub(super) struct RandomDropQueue;

impl QueueDiscipline for RandomDropQueue {
    fn victim(&mut self, waiting: &mut Waiting<'_>, rng: &mut ChaCha8Rng) -> Option<usize> {
        let waiting = waiting.len();
        let chosen = rng.random_range(0..=waiting as u64) as usize;
        (chosen < waiting).then_some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn every_candidate_is_as_likely() {
        for seed in 0..4 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut times = [0u32; 10];
            for _ in 0..100_000 {
                times[RandomDropQueue.victim(&mut [0; 9].into_iter(), &mut rng).unwrap_or(9)] += 1;
            }
            // Chi-square with 9 degrees of freedom: 33.7 has probability 10^-4.
            let chi_square: f64 = times.iter().map(|&n| (f64::from(n) - 1e4).powi(2) / 1e4).sum();
            assert!(chi_square < 33.7, "seed {seed}: {times:?}");
        }
        assert_eq!(RandomDropQueue.victim(&mut [].into_iter(), &mut ChaCha8Rng::seed_from_u64(1)), None);
    }
}
