//! The time that messages take, by two clocks that nobody has compared: the quickest of the last
//! seconds stands for the way itself, as in functions/playout.md R-2.

use core::time::Duration;
use uts_functions::Time;

/// The quickest is that of this span and of the one before: clocks that drift apart by 200 parts in
/// a million have done so by 1.6 ms.
const SPAN: Duration = Duration::from_secs(4);

#[derive(Debug, Default)]
pub(super) struct Transit {
    /// The first, modulo 2^32: others are told by their distance from it.
    base: Option<u32>,
    /// The begin of the span, and the quickest in it, in microseconds.
    now: Option<(Time, i32)>,
    before: Option<i32>,
}

impl Transit {
    /// Something that was made at `time`, by its maker's clock, has come.
    pub(super) fn note(&mut self, now: Time, time: u32) {
        self.base.get_or_insert(micros(now).wrapping_sub(time));
        let transit = self.of(now, time);
        match &mut self.now {
            Some((since, quickest)) if now.since(*since) < SPAN => *quickest = transit.min(*quickest),
            span => {
                self.before = span.map(|(_, quickest)| quickest);
                *span = Some((now, transit));
            }
        }
    }

    /// The instant at which something is `age` older than the quickest way makes it.
    pub(super) fn due(&self, now: Time, time: u32, age: Duration) -> Time {
        let quickest = self.now.map(|(_, quickest)| quickest).into_iter().chain(self.before).min();
        let has = i64::from(self.of(now, time)) - i64::from(quickest.unwrap_or(0));
        let left = age.as_micros() as i64 - has;
        if left >= 0 {
            now + Duration::from_micros(left.unsigned_abs())
        } else {
            now - Duration::from_micros(left.unsigned_abs())
        }
    }

    fn of(&self, now: Time, time: u32) -> i32 {
        micros(now).wrapping_sub(time).wrapping_sub(self.base.unwrap_or(0)).cast_signed()
    }
}

fn micros(now: Time) -> u32 {
    (now.as_nanos() / 1000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maker's clock is ahead, wraps, and runs 200 parts in a million faster. For an hour
    /// things are due when they are of their age, but for the drift within the spans.
    #[test]
    fn an_hour_of_clocks_that_drift() {
        let age = Duration::from_millis(120);
        let mut transit = Transit::default();
        for step in 0..360_000u64 {
            let made = Time::from_millis(step * 10);
            let theirs = (step * 10_002 + 4_000_000_000) as u32;
            let jitter = Duration::from_micros(step * 7919 % 10_000);
            let now = made + Duration::from_millis(30) + jitter;
            transit.note(now, theirs);
            let due = transit.due(now, theirs, age);
            let ideal = made + Duration::from_millis(150);
            let off = due.since(ideal).max(ideal.since(due));
            assert!(step < 2000 || off < Duration::from_micros(2000), "{step}: {off:?}");
        }
    }
}
