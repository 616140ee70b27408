//! How long a call to receive waits.
//!
//! Who waits by the call that receives saves another one, and the kernel's bookkeeping of who is to be told. But the kernel measures
//! such waits by its ticks, of some milliseconds. So they end before a deadline, and what is left of it is waited for otherwise.

use super::readiness::Readiness;
use core::time::Duration;
use std::io;

/// The longest wait at once. Nothing depends on it.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A wait is rounded up to whole ticks, and begins within one.
const TICKS_LATE: u32 = 2;

/// What a socket's calls do where there is nothing to receive.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// They wait; else they say so at once.
    waits: bool,
    /// For how long, if they do; `None` = for ever.
    wait: Option<Duration>,
}

impl Patience {
    /// Has calls wait, and end before `most` has passed. Says whether they do: they cannot where that is but a few ticks of the kernel.
    pub fn wait(&mut self, io: &Readiness, most: Duration) -> io::Result<bool> {
        let Some(wait) = wait_within(most, tick(), self.wait) else { return Ok(false) };
        // A new deadline of the same length mostly leaves the old wait as it is.
        if self.wait != Some(wait) {
            io.set_wait(wait)?;
            self.wait = Some(wait);
        }
        if !self.waits {
            io.set_waiting(true)?;
            self.waits = true;
        }
        Ok(true)
    }

    /// Has calls end at once.
    pub fn end(&mut self, io: &Readiness) -> io::Result<()> {
        if self.waits {
            io.set_waiting(false)?;
            self.waits = false;
        }
        Ok(())
    }
}

/// How long to wait in ticks of the kernel so that `most` is not exceeded; the present wait, if that is not much shorter.
fn wait_within(most: Duration, tick: Duration, present: Option<Duration>) -> Option<Duration> {
    let longest = most.min(WAIT_MAX).checked_sub(TICKS_LATE * tick).filter(|longest| *longest >= tick)?;
    // What is left of one deadline is longer than half of this for long.
    let mut wait = tick;
    while 2 * wait <= longest {
        wait *= 2;
    }
    Some(present.filter(|present| (wait / 2..=longest).contains(present)).unwrap_or(wait))
}

/// By which the kernel measures such waits.
fn tick() -> Duration {
    #[cfg(target_os = "linux")]
    {
        use rustix::time::{ClockId, clock_getres};
        static TICK: std::sync::OnceLock<Duration> = std::sync::OnceLock::new();
        *TICK.get_or_init(|| {
            let tick = clock_getres(ClockId::MonotonicCoarse);
            Duration::try_from(tick).unwrap_or(TICK_MAX).min(TICK_MAX)
        })
    }
    #[cfg(not(target_os = "linux"))]
    TICK_MAX
}

/// The longest tick of a system that is in use.
const TICK_MAX: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// As Linux does: up to whole ticks, from the next one on.
    fn ends_within(wait: Duration, tick: Duration) -> Duration {
        tick * u32::try_from(wait.as_nanos().div_ceil(tick.as_nanos()) + 1).expect("short")
    }

    #[test]
    fn a_wait_is_over_before_its_deadline_whatever_the_tick() {
        for tick in [MS, 4 * MS, 10 * MS] {
            for most in (1..500).map(|n| n * MS / 3) {
                for present in [None, Some(tick), Some(7 * MS), Some(30 * MS)] {
                    match wait_within(most, tick, present) {
                        Some(wait) => assert!(ends_within(wait, tick) <= most, "{tick:?} {most:?} {wait:?}"),
                        None => assert!(most < 3 * tick, "{tick:?} {most:?}"),
                    }
                }
            }
        }
    }

    /// To say it anew is a call of its own.
    #[test]
    fn deadlines_of_about_one_length_need_one_wait() {
        let first = wait_within(26 * MS, 4 * MS, None);
        assert_eq!(first, Some(16 * MS));
        for most in [24 * MS, 26 * MS, 40 * MS] {
            assert_eq!(wait_within(most, 4 * MS, first), first);
        }
        for most in [23 * MS, 16 * MS] {
            assert_eq!(wait_within(most, 4 * MS, first), Some(8 * MS));
        }
        for (most, present) in [(23 * MS, 8 * MS), (16 * MS, 8 * MS), (26 * MS, 8 * MS), (12 * MS, 4 * MS)] {
            assert_eq!(wait_within(most, 4 * MS, Some(present)), Some(present));
        }
        assert_eq!(wait_within(100 * MS, 4 * MS, first), Some(64 * MS));
    }
}
