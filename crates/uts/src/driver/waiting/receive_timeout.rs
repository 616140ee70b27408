//! For how long a call that receives may block.
//!
//! A thread that blocks in the call that receives saves a second call, and the kernel's bookkeeping
//! of who is to be told. But the kernel measures such waits (`SO_RCVTIMEO`) in its ticks, of some
//! milliseconds. So the call ends some ticks before the deadline, and the rest is waited for
//! otherwise.

use core::time::Duration;

/// The longest block at once. Nothing depends on it.
const BLOCK_MAX: Duration = Duration::from_secs(60);

/// A timeout is rounded up to whole ticks, and begins within one.
const TICKS_LATE: u32 = 2;

/// The timeout of a socket.
#[derive(Debug)]
pub(super) struct ReceiveTimeout {
    tick: Duration,
    /// The last that was chosen.
    present: Option<Duration>,
}

impl ReceiveTimeout {
    /// `tick` = by which the kernel measures.
    pub fn new(tick: Duration) -> Self {
        ReceiveTimeout { tick: tick.max(Duration::from_nanos(1)), present: None }
    }

    /// True if a call may block that has to end within `most`.
    pub fn is_possible(&self, most: Duration) -> bool {
        self.longest(most).is_some()
    }

    /// For how long a call may block so that it ends within `most`. To set another timeout is a
    /// call of its own: deadlines of about one length get the same.
    pub fn within(&mut self, most: Duration) -> Option<Duration> {
        let longest = self.longest(most)?;
        // What is left of one deadline is longer than half of this for long.
        let mut chosen = self.tick;
        while 2 * chosen <= longest {
            chosen *= 2;
        }
        if self.present.is_none_or(|present| !(chosen / 2..=longest).contains(&present)) {
            self.present = Some(chosen);
        }
        self.present
    }

    fn longest(&self, most: Duration) -> Option<Duration> {
        let longest = most.min(BLOCK_MAX).checked_sub(TICKS_LATE * self.tick);
        longest.filter(|longest| *longest >= self.tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn within(most: Duration, tick: Duration, present: Option<Duration>) -> Option<Duration> {
        ReceiveTimeout { tick, present }.within(most)
    }

    /// As Linux does: up to whole ticks, from the next one on.
    fn ends_within(timeout: Duration, tick: Duration) -> Duration {
        tick * u32::try_from(timeout.as_nanos().div_ceil(tick.as_nanos()) + 1).expect("short")
    }

    #[test]
    fn a_call_ends_before_its_deadline_whatever_the_tick() {
        for tick in [MS, 4 * MS, 10 * MS] {
            for most in (1..500).map(|n| n * MS / 3) {
                for present in [None, Some(tick), Some(7 * MS), Some(30 * MS)] {
                    match within(most, tick, present) {
                        Some(timeout) => {
                            assert!(ends_within(timeout, tick) <= most, "{tick:?} {most:?} {timeout:?}");
                        }
                        None => assert!(most < 3 * tick, "{tick:?} {most:?}"),
                    }
                }
            }
        }
    }

    /// To set it anew is a call of its own.
    #[test]
    fn deadlines_of_about_one_length_need_one_timeout() {
        let first = within(26 * MS, 4 * MS, None);
        assert_eq!(first, Some(16 * MS));
        for most in [24 * MS, 26 * MS, 40 * MS] {
            assert_eq!(within(most, 4 * MS, first), first);
        }
        for most in [23 * MS, 16 * MS] {
            assert_eq!(within(most, 4 * MS, first), Some(8 * MS));
        }
        for (most, present) in [(23 * MS, 8 * MS), (16 * MS, 8 * MS), (26 * MS, 8 * MS), (12 * MS, 4 * MS)] {
            assert_eq!(within(most, 4 * MS, Some(present)), Some(present));
        }
        assert_eq!(within(100 * MS, 4 * MS, first), Some(64 * MS));
    }
}
