//! Confidence in a share of losses: how small or large it may be by what was counted.
//!
//! Losses are taken to come in runs whose lengths vary geometrically, so that their number varies
//! as the sum of `2 burst - 1` times as many alike. Intervals are score intervals of a Poisson
//! count (Barker, "A Comparison of Nine Confidence Intervals for a Poisson Parameter", 2002): they
//! hold for a few losses, and for none.

use uts_functions::PathFacts;

/// Interval that holds the true share in nine of ten cases.
pub(crate) const DEVIATIONS: f64 = 1.645;

/// Half of all counts are within so many deviations.
const QUARTILE: f64 = 0.674;

/// A share is another one if chance makes two counts of one share differ as much once in a
/// thousand cases.
const DEVIATIONS_OF_NEWS: f64 = 3.29;

/// A count of events that are independent of each other, and how many losses each stands for.
#[derive(Clone, Copy, Debug)]
struct Count {
    packets: f64,
    events: f64,
    losses_each: f64,
}

impl Count {
    /// Losses that were counted; `None` if none were.
    fn of(facts: &PathFacts) -> Option<Self> {
        let packets = match (facts.counted, facts.losses) {
            (0, 0) => return None,
            (0, losses) if facts.loss > 0.0 => losses as f64 / facts.loss,
            (0, _) => return None,
            (counted, _) => counted as f64,
        };
        let losses_each = 2.0 * facts.loss_burst.max(1.0) - 1.0;
        Some(Count { packets, events: facts.loss * packets / losses_each, losses_each })
    }

    /// The smallest and the largest share (0..=1) that may be, by so many standard deviations.
    fn ends(self, deviations: f64) -> [f64; 2] {
        let middle = self.events + deviations * deviations / 2.0;
        let half = deviations * (self.events + deviations * deviations / 4.0).sqrt();
        [middle - half, middle + half]
            .map(|events| (events * self.losses_each / self.packets.max(1.0)).clamp(0.0, 1.0))
    }
}

/// The facts with the smallest, and with the largest loss that there may be, by so many standard
/// deviations. Facts that rest on no count are certain.
pub(crate) fn ends(facts: &PathFacts, deviations: f64) -> [PathFacts; 2] {
    let Some(count) = Count::of(facts) else { return [*facts; 2] };
    count.ends(deviations).map(|loss| PathFacts { loss, ..*facts })
}

/// Number of standard deviations by which a decision is to be sure after so many others: the n-th
/// is wrong by chance once in `n + 3` cases (the bound of a normal distribution's tail).
pub(crate) fn deviations_after(decisions: usize) -> f64 {
    (2.0 * (4.0 + decisions as f64).ln()).sqrt()
}

/// True if the share of losses is about what was counted then: counts that share most of their
/// packets differ by less than half of all that are independent.
pub(crate) fn is_within(loss: f64, then: &PathFacts) -> bool {
    let [least, most] = ends(then, QUARTILE);
    (least.loss..=most.loss).contains(&loss)
}

/// The most (0..=1) that may be lost of what the medium loses.
pub(crate) fn random_at_most(facts: &PathFacts) -> f64 {
    ends(&PathFacts { loss: facts.loss_random(), ..*facts }, DEVIATIONS)[1].loss
}

/// True if less is lost now than then, and not by chance.
pub(crate) fn is_less(now: &PathFacts, then: &PathFacts) -> bool {
    if now.loss >= then.loss {
        return false;
    }
    let (Some(a), Some(b)) = (Count::of(now), Count::of(then)) else { return true };
    // The likelihood ratio of two shares to one (Wilks 1938): its root is a number of deviations.
    let losses_each = a.losses_each.max(b.losses_each);
    let events = [now.loss * a.packets, then.loss * b.packets].map(|losses| losses / losses_each);
    let share = (events[0] + events[1]) / (a.packets + b.packets);
    let of = |events: f64, packets: f64| {
        if events > 0.0 { events * (events / (share * packets)).ln() } else { 0.0 }
    };
    let deviance = 2.0 * (of(events[0], a.packets) + of(events[1], b.packets));
    deviance.max(0.0).sqrt() > DEVIATIONS_OF_NEWS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::appraisal::testing::path;

    fn counted(losses: u64, packets: u64, burst: f64) -> PathFacts {
        let facts = path(50, 40, losses as f64 / packets as f64, burst, 0.0);
        PathFacts { losses, counted: packets, ..facts }
    }

    #[test]
    fn an_interval_narrows_with_what_was_counted() {
        let width = |facts: &PathFacts| {
            let [least, most] = ends(facts, DEVIATIONS);
            assert!(least.loss <= facts.loss && facts.loss <= most.loss, "{facts:?}");
            most.loss - least.loss
        };
        assert!(width(&counted(2, 100, 1.0)) > width(&counted(20, 1000, 1.0)));
        assert!(width(&counted(20, 1000, 4.0)) > width(&counted(20, 1000, 1.0)), "bursts tell less");
        let [least, most] = ends(&counted(0, 1000, 1.0), DEVIATIONS).map(|facts| facts.loss);
        assert!(least == 0.0 && (0.002..0.004).contains(&most), "{least}, {most}");
        let uncounted = path(50, 40, 0.02, 1.0, 0.0);
        assert_eq!(ends(&uncounted, DEVIATIONS), [uncounted; 2]);
    }

    #[test]
    fn each_decision_is_surer_than_the_one_before() {
        let deviations: Vec<f64> = (0..10).map(deviations_after).collect();
        assert!(
            deviations.is_sorted() && deviations[0] > DEVIATIONS && deviations[9] < 2.5,
            "{deviations:?}"
        );
    }

    /// Counts of one share differ by chance: that is no news, but for one in a hundred of them.
    #[test]
    fn chance_is_no_news() {
        let mut state = 7u64;
        let mut share = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut told = 0;
        for (loss, packets) in [(0.002, 3_000), (0.02, 1_500), (0.1, 300)] {
            for _ in 0..300 {
                let mut count = || (0..packets).filter(|_| share() < loss).count() as u64;
                let (now, then) = (counted(count(), packets, 1.0), counted(count(), packets, 1.0));
                told += usize::from(is_less(&now, &then));
            }
        }
        assert!(told <= 9, "{told} of 900");
        // What ends is noticed within a few times as many packets as a loss has taken.
        assert!(is_less(&counted(0, 400, 1.0), &counted(30, 1_500, 1.0)));
        assert!(!is_less(&counted(0, 100, 1.0), &counted(30, 1_500, 1.0)));
        assert!(!is_less(&counted(0, 400, 4.0), &counted(30, 1_500, 4.0)), "bursts tell less");
        assert!(is_less(&counted(100, 10_000, 1.0), &counted(300, 10_000, 1.0)));
    }
}
