//! Which packets the wire loses.

use crate::config::Loss;
use rand::RngExt;

/// A loss model with its state.
#[derive(Debug, Clone)]
pub(crate) struct LossState {
    model: Loss,
    /// Gilbert-Elliott: whether the next packet falls in the bad state; unknown before the first.
    bad: Option<bool>,
}

impl LossState {
    pub(crate) fn new(model: Loss) -> Self {
        LossState { model, bad: None }
    }

    /// Decides over the next packet.
    pub(crate) fn loses(&mut self, rng: &mut impl RngExt) -> bool {
        match self.model {
            Loss::None => false,
            Loss::Random { p } => chance(rng, p),
            Loss::GilbertElliott { loss, burst } => self.loses_in_bursts(rng, loss, burst),
            Loss::Places { ref mut bits } => {
                let is_lost = *bits & 1 == 1;
                *bits >>= 1;
                is_lost
            }
        }
    }

    /// The bad state lasts `burst` packets in the mean, and is left with probability 1/burst. It is
    /// entered as often as makes `loss` its share of the time. The first packet draws its state
    /// from the stationary distribution, so that the mean holds from the start.
    fn loses_in_bursts(&mut self, rng: &mut impl RngExt, loss: f64, burst: f64) -> bool {
        let bad = match self.bad {
            Some(bad) => bad,
            None => chance(rng, loss),
        };
        let leave_bad = 1.0 / burst;
        let enter_bad = leave_bad * loss / (1.0 - loss);
        let changes = chance(rng, if bad { leave_bad } else { enter_bad });
        self.bad = Some(bad != changes);
        bad
    }
}

/// True with probability `p`; never for 0, always for 1.
pub(crate) fn chance(rng: &mut impl RngExt, p: f64) -> bool {
    p > 0.0 && rng.random::<f64>() < p
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    /// Runs `packets` through a model: share lost, and mean length of runs of losses.
    fn run(model: Loss, seed: u64, packets: u32) -> (f64, f64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut state = LossState::new(model);
        let (mut lost, mut bursts, mut before) = (0u32, 0u32, false);
        for _ in 0..packets {
            let now = state.loses(&mut rng);
            lost += u32::from(now);
            bursts += u32::from(now && !before);
            before = now;
        }
        (f64::from(lost) / f64::from(packets), f64::from(lost) / f64::from(bursts.max(1)))
    }

    #[test]
    fn gilbert_elliott_has_the_mean_loss_and_burst_asked_for() {
        for (loss, burst) in [(0.05, 4.0), (0.01, 1.0), (0.3, 10.0), (0.001, 20.0), (0.5, 1.0)] {
            for seed in 0..4 {
                let packets = 1_000_000;
                let (share, length) = run(Loss::GilbertElliott { loss, burst }, seed, packets);
                // Runs are geometric with deviation < burst, and so is the gap: 6 sigma of both.
                let bursts = loss * f64::from(packets) / burst;
                let slack = 6.0 / bursts.sqrt();
                assert!((share / loss - 1.0).abs() < 1.5 * slack, "{loss},{burst} seed {seed}: {share}");
                assert!((length / burst - 1.0).abs() < slack, "{loss},{burst} seed {seed}: {length}");
            }
        }
    }

    #[test]
    fn random_loss_has_its_mean_and_no_memory() {
        for seed in 0..4 {
            let (share, length) = run(Loss::Random { p: 0.1 }, seed, 200_000);
            assert!((share - 0.1).abs() < 0.004, "seed {seed}: {share}");
            assert!((length - 1.0 / 0.9).abs() < 0.02, "seed {seed}: {length}");
        }
    }

    #[test]
    fn packets_at_places_are_lost_and_no_others() {
        let (mut rng, mut state) =
            (ChaCha8Rng::seed_from_u64(1), LossState::new(Loss::Places { bits: 0b1001_0001 | 1 << 63 }));
        let lost: Vec<_> = (1..200).filter(|_| state.loses(&mut rng)).collect();
        assert_eq!(lost, [1, 5, 8, 64]);
    }

    #[test]
    fn certain_and_impossible_loss() {
        assert_eq!(run(Loss::Random { p: 1.0 }, 1, 1000).0, 1.0);
        assert_eq!(run(Loss::Random { p: 0.0 }, 1, 1000).0, 0.0);
        assert_eq!(run(Loss::None, 1, 1000).0, 0.0);
        assert_eq!(run(Loss::GilbertElliott { loss: 0.0, burst: 3.0 }, 1, 1000).0, 0.0);
    }
}
