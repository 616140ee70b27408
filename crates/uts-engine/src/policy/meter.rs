//! Rate of delivery, over the last while.

use core::time::Duration;
use std::collections::VecDeque;
use uts_functions::{Rate, Time};

/// Points kept within the window.
const POINTS: u32 = 16;

/// The rate at which a count of bytes has grown lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    points: VecDeque<(Time, u64)>,
}

impl Meter {
    /// Notes the count at `now`; points older than `window` are dropped.
    pub fn observe(&mut self, now: Time, bytes: u64, window: Duration) {
        if self.points.back().is_some_and(|(at, _)| now.since(*at) < window / POINTS) {
            return;
        }
        self.points.push_back((now, bytes));
        while self.points.get(1).is_some_and(|(at, _)| now.since(*at) >= window) {
            self.points.pop_front();
        }
    }

    /// The rate over the window, once a full window has been seen.
    pub fn rate(&self, window: Duration) -> Option<Rate> {
        let ((first, from), (last, to)) = (*self.points.front()?, *self.points.back()?);
        let span = last.since(first);
        (span >= window * 3 / 4).then(|| Rate::from_delivery(to.saturating_sub(from), span))
    }

    pub fn heap_bytes(&self) -> usize {
        self.points.capacity() * size_of::<(Time, u64)>()
    }

    /// Starts anew.
    pub fn clear(&mut self) {
        self.points.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_that_of_the_window() {
        let window = Duration::from_millis(400);
        let mut meter = Meter::default();
        let mut bytes = 0;
        for ms in 0..2_000 {
            bytes += if ms < 1_000 { 1_000 } else { 100 };
            meter.observe(Time::from_millis(ms), bytes, window);
            if ms == 100 {
                assert_eq!(meter.rate(window), None);
            }
            if ms == 999 {
                let rate = meter.rate(window).map(Rate::bytes_per_sec);
                assert_eq!(rate, Some(1_000_000));
            }
        }
        assert_eq!(meter.rate(window).map(Rate::bytes_per_sec), Some(100_000));
        assert!(meter.points.len() <= POINTS as usize + 2);
    }
}
