//! For which share of the time, lately, what waited to be sent was too late.

use core::time::Duration;
use uts_functions::Time;

/// Over how long the mean is taken: one key frame in two seconds is a part of it, not all.
const MEAN_OVER: Duration = Duration::from_secs(2);

/// A mean over the last while, older times weighing less.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lateness {
    share: f64,
    seen_at: Option<Time>,
}

impl Lateness {
    /// Takes in what holds now, and has since the last time.
    pub fn observe(&mut self, now: Time, is_late: bool) {
        let passed = self.seen_at.map_or(Duration::ZERO, |at| now.since(at));
        self.seen_at = Some(now);
        let weight = (passed.as_secs_f64() / MEAN_OVER.as_secs_f64()).min(1.0);
        self.share += (f64::from(u8::from(is_late)) - self.share) * weight;
    }

    /// The share of the time (0..=1).
    pub fn share(&self) -> f64 {
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_and_forgets() {
        let mut late = Lateness::default();
        let share_at = |late: &mut Lateness, ms: core::ops::Range<u64>, is_late| {
            ms.step_by(20).for_each(|ms| late.observe(Time::from_millis(ms), is_late));
            late.share()
        };
        assert_eq!(share_at(&mut late, 0..5_000, false), 0.0);
        assert!(share_at(&mut late, 5_000..9_000, true) > 0.8);
        assert!(share_at(&mut late, 9_000..17_000, false) < 0.03);
    }
}
