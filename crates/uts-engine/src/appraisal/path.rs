//! Belief of the policy about the path: facts that do not take a sender that is held back for a
//! path that is slow, and the time for which the path usually stays as it is.

use core::time::Duration;
use uts_functions::{PathFacts, Rate, Time};

/// Fewer losses than this tell no share.
const RANDOM_LOSSES_MIN: f64 = 2.0;
/// A random loss below this (0..=1) is taken for congestive losses that were misjudged.
const RANDOM_LOSS_MIN: f64 = 0.00005;
/// A path of which nothing is known yet is expected to stay for so long.
const STAY_INITIAL: Duration = Duration::from_secs(10);
const STAY_MIN: Duration = Duration::from_millis(200);
const STAY_MAX: Duration = Duration::from_secs(60);
/// Changes closer than this are one: measurements take time to follow.
const TRANSITION: Duration = Duration::from_secs(1);

/// A path that carries what is sent without a queue, be it that the application has no more or that
/// random losses hold the sender back, is taken to carry so many times that.
const ROOM: f64 = 2.0;

/// So many full packets in each round trip anybody may send on a path of which nothing is known
/// (RFC 6928): a dialogue, which waits for its answers, may as well.
pub(crate) const INITIAL_PACKETS: f64 = 10.0;
/// A count of losses may be so many of its standard deviations too small.
const DEVIATIONS: f64 = 2.0;
/// Where nothing was lost, so many packets at most say so.
const COUNTED_MAX: u64 = 1500;

/// For how long the path's limit is remembered that what is sent in time has met.
const LIMIT_HOLDS: Duration = Duration::from_secs(20);

/// A random loss (0..=1) that stays within this share of itself and this much besides is steady.
const STEADY_SHARE: f64 = 0.2;
const STEADY_MIN: f64 = 0.001;

/// Belief about the path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    is_dialogue: bool,
    capacity: Rate,
    rtt_min: Duration,
    /// A queue has shown that the path does not carry more.
    is_capacity_known: bool,
    /// When what was to arrive in time has last waited at the sender: the path carries no more than
    /// was seen.
    late_at: Option<Time>,
    /// The most (0..=1) that the medium may lose by what was counted at home last.
    random_at_home: Option<f64>,
    reference: Option<PathFacts>,
    changed_at: Time,
    transition_at: Time,
    /// The random loss, and since when it has been about that.
    steady: (f64, Time),
    stay_mean: Option<Duration>,
}

impl Path {
    /// Path of which nothing is known yet. If `is_dialogue`, what is sent on it is a dialogue,
    /// which falls silent by itself where the path carries less.
    pub fn of_dialogue(is_dialogue: bool) -> Self {
        Path { is_dialogue, ..Path::default() }
    }

    /// Takes in measured facts; returns those to reckon with. `at_home` says that home's congestion
    /// control is in use. `offered` is what the application sends if that is less than it could;
    /// `is_late`, that it waits too long for that.
    pub fn observe(
        &mut self,
        now: Time,
        facts: &PathFacts,
        at_home: bool,
        (offered, is_late): (Option<Rate>, bool),
    ) -> PathFacts {
        // What a sender delivers is a lower bound of what the path could, unless the path holds it
        // up.
        let is_other_path = moved(facts.rtt_min, self.rtt_min);
        if is_other_path {
            (self.late_at, self.random_at_home) = (None, None);
        }
        if is_late {
            self.late_at = Some(now);
        }
        let is_limited = self.late_at.is_some_and(|at| now.since(at) < LIMIT_HOLDS);
        if facts.capacity >= self.capacity || is_filled(facts) || is_other_path || is_late {
            self.capacity = facts.capacity;
            self.rtt_min = facts.rtt_min;
        }
        self.is_capacity_known = is_filled(facts) || (self.is_capacity_known && !is_other_path);
        let mut believed = PathFacts { capacity: self.capacity, ..*facts };
        if let Some(offered) = offered.filter(|_| !is_filled(facts) && !is_limited) {
            // Nobody has tried what the path can do: it is taken to have room for redundancy.
            believed.capacity = believed.capacity.max(offered.mul_f64(ROOM));
        }
        if self.is_dialogue && offered.is_some() {
            // Packets that leave together wait for each other no longer than there is a queue.
            let (packets, time) = if is_filled(facts) {
                (facts.packets_at_once.min(INITIAL_PACKETS), facts.queueing())
            } else {
                (INITIAL_PACKETS, facts.rtt_min)
            };
            let at_least = Rate::from_delivery((packets * facts.mtu_bytes as f64) as u64, time);
            believed.capacity = believed.capacity.max(at_least);
        }
        believed.loss_congestive = judge_losses(facts);
        if self.is_dialogue && facts.losses > 0 {
            // Few packets tell little: it counts as if one more of them had been lost (Laplace's
            // rule of succession). What is too much for the loss costs a dialogue next to nothing.
            believed.loss = (facts.loss * (1.0 + 1.0 / facts.losses as f64)).min(1.0);
        }
        if at_home {
            self.random_at_home = Some(random_at_most(&believed));
        } else if let Some(most) = self.random_at_home.filter(|most| believed.loss_random() > *most) {
            // What came with another congestion control is its own doing.
            believed.loss_congestive = 1.0 - most / believed.loss;
        }
        if at_home && offered.is_none() && !self.is_capacity_known && believed.loss_random() > 0.0 {
            // Random losses hold the sender back: nobody has tried what the path can do.
            believed.capacity = believed.capacity.max(facts.capacity.mul_f64(ROOM));
        }
        self.follow(now, &believed);
        let random = believed.loss_random();
        if (random - self.steady.0).abs() > STEADY_SHARE * self.steady.0 + STEADY_MIN {
            self.steady = (random, now);
        }
        believed
    }

    /// For how long the random loss has been about what it is: an estimate that still moves is no
    /// ground to size by.
    pub fn steady_for(&self, now: Time) -> Duration {
        now.since(self.steady.1)
    }

    /// Time for which the path is expected to stay as it is: as long again as it has, or as long as
    /// it usually does.
    pub fn stay(&self, now: Time) -> Duration {
        let age = now.since(self.changed_at);
        let rest = self.stay_mean.unwrap_or(STAY_INITIAL).saturating_sub(age);
        age.max(rest).clamp(STAY_MIN, STAY_MAX)
    }

    fn follow(&mut self, now: Time, facts: &PathFacts) {
        let Some(reference) = &self.reference else {
            self.reference = Some(*facts);
            self.changed_at = now;
            self.transition_at = now;
            return;
        };
        if !differs(reference, facts) {
            return;
        }
        if now.since(self.transition_at) > TRANSITION {
            let stayed = now.since(self.changed_at);
            self.stay_mean = Some(self.stay_mean.map_or(stayed, |mean| (3 * mean + stayed) / 4));
            self.changed_at = now;
        }
        self.transition_at = now;
        self.reference = Some(*facts);
    }
}

/// True if packets wait for each other: then the rate of delivery is the capacity of the path.
fn is_filled(facts: &PathFacts) -> bool {
    let queue_min = (facts.rtt_min / 10).max(Duration::from_millis(3));
    facts.queueing() > queue_min
}

fn moved(a: Duration, b: Duration) -> bool {
    let (a, b) = (a.as_secs_f64(), b.as_secs_f64());
    b > 0.0 && !(0.67..=1.5).contains(&(a / b))
}

/// The share of losses to be taken for congestive: a few losses are no evidence of a medium.
fn judge_losses(facts: &PathFacts) -> f64 {
    let random = facts.loss_random();
    let too_few = random * (facts.samples as f64) < RANDOM_LOSSES_MIN || random < RANDOM_LOSS_MIN;
    if facts.loss > 0.0 && too_few { 1.0 } else { facts.loss_congestive }
}

/// The most that the medium may lose (0..=1), by what was counted.
fn random_at_most(facts: &PathFacts) -> f64 {
    let packets = if facts.losses > 0 {
        facts.losses as f64 / facts.loss
    } else {
        facts.samples.min(COUNTED_MAX) as f64
    };
    let lost = facts.loss_random() * packets;
    ((lost + DEVIATIONS * (lost + 1.0).sqrt()) / packets.max(1.0)).min(1.0)
}

fn differs(a: &PathFacts, b: &PathFacts) -> bool {
    let (loss_a, loss_b) = (a.loss_random() + 0.002, b.loss_random() + 0.002);
    let (rate_a, rate_b) = (a.capacity.bytes_per_sec() as f64, b.capacity.bytes_per_sec() as f64);
    !(1.0 / 3.0..=3.0).contains(&(loss_a / loss_b))
        || (rate_a > 0.0 && !(0.7..=1.43).contains(&(rate_b / rate_a)))
        || moved(b.rtt_min, a.rtt_min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::appraisal::testing::path;

    #[test]
    fn a_sender_held_back_by_loss_does_not_make_the_path_slow() {
        let mut p = Path::default();
        p.observe(Time::ZERO, &path(50, 40, 0.0, 1.0, 0.0), true, (None, false));
        let held_back = p.observe(Time::from_millis(500), &path(5, 40, 0.05, 4.0, 0.0), true, (None, false));
        assert_eq!(held_back.capacity, Rate::from_bits_per_sec(50_000_000));
        let mut filled = path(20, 40, 0.0, 1.0, 0.0);
        filled.rtt_smoothed = Duration::from_millis(70);
        let slow = p.observe(Time::from_millis(900), &filled, true, (None, false));
        assert_eq!(slow.capacity, Rate::from_bits_per_sec(20_000_000));
    }

    #[test]
    fn losses_that_met_a_queue_are_congestive() {
        assert_eq!(judge_losses(&path(50, 40, 0.05, 1.0, 0.5)), 0.5);
        assert_eq!(judge_losses(&path(50, 40, 0.00009, 1.0, 0.5)), 1.0);
    }

    /// A profile that bears losses has caused all losses beyond the share before it came. The fewer
    /// losses were counted then, the wider the bound of that share.
    #[test]
    fn losses_that_came_with_the_profile_are_its_own() {
        let counted = |loss: f64, losses: u64| PathFacts { losses, ..path(86, 20, loss, 1.0, 0.0) };
        for (losses, most) in [(100, 0.0122), (10, 0.017)] {
            let mut p = Path::default();
            p.observe(Time::ZERO, &counted(0.01, losses), true, (None, false));
            let away = |loss: f64| {
                p.clone().observe(Time::from_millis(900), &counted(loss, 500), false, (None, false))
            };
            assert!((away(0.2).loss_random() - most).abs() < 1e-3, "{:?}", away(0.2));
            assert!((away(0.01).loss_random() - 0.01).abs() < 1e-9, "{:?}", away(0.01));
        }
    }

    #[test]
    fn what_waits_at_the_sender_shows_the_limit() {
        let mut p = Path::default();
        let (offered, facts) = (Some(Rate::from_bits_per_sec(4_000_000)), path(6, 80, 0.0, 1.0, 0.0));
        let mbit = |mut p: Path, is_late| {
            p.observe(Time::from_millis(500), &facts, true, (offered, is_late)).capacity.bits_per_sec()
                / 1_000_000
        };
        p.observe(Time::ZERO, &facts, true, (offered, false));
        assert_eq!((mbit(p.clone(), false), mbit(p.clone(), true)), (8, 6));
        p.observe(Time::ZERO, &facts, true, (offered, true));
        assert_eq!(mbit(p, false), 6, "it is remembered");
    }

    #[test]
    fn a_path_that_flaps_is_expected_to_flap() {
        let mut p = Path::default();
        let (clean, lossy) = (path(50, 40, 0.0, 1.0, 0.0), path(50, 40, 0.05, 1.0, 0.0));
        assert_eq!(p.stay(Time::ZERO), STAY_INITIAL);
        for i in 0..8 {
            let facts = if i % 2 == 0 { &clean } else { &lossy };
            p.observe(Time::from_millis(i * 1500), facts, true, (None, false));
        }
        assert!(p.stay(Time::from_millis(7 * 1500)) <= Duration::from_millis(1500));
        assert_eq!(p.stay(Time::from_millis(7 * 1500 + 20_000)), Duration::from_secs(20));
    }
}
