//! Telling a path that has become longer from a queue: after a hand-over the round trip jumps, and
//! then never falls below what it has jumped to; a queue grows bit by bit.

use crate::time::Time;
use core::time::Duration;

/// A longer path adds at least such a part of the smallest round trip, and at least so much, from
/// one sample to the next: less is noise, or a queue.
const RISE_PART: u32 = 4;
const RISE_MIN: Duration = Duration::from_millis(5);

/// Round trips of the new length, and samples of it, that a jump must have lasted: a sender of
/// little sees a queue that has grown meanwhile as a jump.
const ROUNDS: u32 = 4;
const SAMPLES_MIN: u16 = 24;

/// A second jump within so many round trips belongs to the first: one way became longer before the
/// other.
const JUMPING_ROUNDS: u32 = 2;

/// Watches for a jump of the round trip that lasts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Longer {
    /// In microseconds, as connections at rest have to keep them. The last sample, and the one
    /// before the jump.
    last_us: u32,
    before_us: u32,
    /// Smallest sample since the jump, and when it was, in milliseconds, which wrap. No sample:
    /// there was none.
    smallest_us: u32,
    since_ms: u32,
    samples: u16,
}

impl Longer {
    /// Takes in a sample while the smallest round trip is `min`. Says the new smallest one, once a
    /// jump has lasted (timing.md R-17). The path is longer by the jump alone: a queue that was
    /// there before is one still.
    pub fn on_sample(&mut self, now: Time, sample: Duration, min: Duration) -> Option<Duration> {
        let last = core::mem::replace(&mut self.last_us, micros(sample));
        let least = (min / RISE_PART).max(RISE_MIN);
        let jumps = last != 0 && sample.saturating_sub(of_micros(last)) >= least;
        if sample < of_micros(self.before_us) + least {
            self.samples = 0;
        }
        let is_first = self.samples == 0;
        if is_first && !jumps {
            return None;
        }
        if is_first {
            self.before_us = last;
        }
        let has_jumped_for = now.since_wrapped(self.since_ms);
        if is_first || (jumps && has_jumped_for < of_micros(self.smallest_us) * JUMPING_ROUNDS) {
            (self.smallest_us, self.since_ms, self.samples) = (u32::MAX, now.wrapping_millis(), 0);
        }
        self.samples = self.samples.saturating_add(1);
        self.smallest_us = self.smallest_us.min(micros(sample));
        let smallest = of_micros(self.smallest_us);
        let has_lasted = self.samples >= SAMPLES_MIN && now.since_wrapped(self.since_ms) >= smallest * ROUNDS;
        has_lasted.then(|| {
            self.samples = 0;
            smallest.min(min + smallest.saturating_sub(of_micros(self.before_us)))
        })
    }
}

/// At most 71 minutes: no round trip is longer.
pub(super) fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

pub(super) fn of_micros(micros: u32) -> Duration {
    Duration::from_micros(micros.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first sample at which a longer path is believed, of one every 5 ms from 20 ms on.
    fn believed_at(rtt_us: impl Fn(u64) -> u64) -> Option<(u64, Duration)> {
        let mut longer = Longer::default();
        (0..2_000u64).find_map(|n| {
            let sample = Duration::from_micros(rtt_us(n));
            let new = longer.on_sample(Time::from_millis(5 * n), sample, Duration::from_millis(20));
            new.map(|new| (n, new))
        })
    }

    /// Noise that looks drawn at random, below `most`.
    fn noise(n: u64, most: u64) -> u64 {
        (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % most
    }

    #[test]
    fn a_jump_that_lasts_is_a_longer_path() {
        let jump = |n: u64| if n < 100 { 20_000 } else { 60_000 } + noise(n, 2_000);
        let in_two = |n: u64| if (100..110).contains(&n) { 35_000 } else { jump(n) };
        let new = believed_at(in_two).map(|(_, new)| new.as_millis());
        assert!(new.is_some_and(|ms| (57..=60).contains(&ms)), "{new:?}");
        let (n, new) = believed_at(jump).expect("it is believed");
        assert!((148..=170).contains(&n), "after {n} samples");
        assert!((57_000..61_000).contains(&new.as_micros()), "{new:?}");
    }

    /// Four senders keep a queue of 10 to 32 ms, and bursts of packets add some at once: what has
    /// waited before the path became longer waits still.
    #[test]
    fn a_standing_queue_is_not_taken_for_a_part_of_the_path() {
        let queue = |n: u64| 10_000 + 100 * (n % 220) + if n % 50 < 40 { noise(n / 50, 4_500) } else { 0 };
        assert_eq!(believed_at(|n| 20_000 + queue(n)), None);
        let longer = |n: u64| 20_000 + queue(n) + if n < 500 { 0 } else { 40_000 };
        let (_, new) = believed_at(longer).expect("it is believed");
        assert!((50_000..66_000).contains(&new.as_micros()), "{new:?}");
    }

    #[test]
    fn a_queue_is_none() {
        let ramp = |n: u64| 20_000 + 300 * n.saturating_sub(100).min(200);
        let saw = |n: u64| 20_000 + 400 * (n % 100);
        let burst = |n: u64| if n % 200 < 20 { 70_000 } else { 20_000 };
        assert_eq!(believed_at(ramp), None);
        assert_eq!(believed_at(saw), None);
        assert_eq!(believed_at(burst), None);
    }
}
