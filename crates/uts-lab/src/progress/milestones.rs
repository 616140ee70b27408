//! Share that is done and time that is left, in lines: for a log, or for whoever reads a pipe.

use indicatif::HumanDuration;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use uts_end::output::tell_line;

/// At most one line in so long, but for those of tenths.
const EVERY: Duration = Duration::from_secs(10);

/// Says now and then how far something is.
#[derive(Debug)]
pub struct Milestones {
    began: Instant,
    /// Plural noun of the things that are counted: `runs`.
    what: String,
    course: Mutex<Course>,
}

/// Counts that were heard of, and the line that was due last.
#[derive(Debug, Default)]
struct Course {
    /// Number that had been done before the first that was heard of.
    before: Option<usize>,
    done: usize,
    /// Tenths that were reached when a line was due last.
    tenths: usize,
    /// When that was, since the beginning.
    said_at: Duration,
}

impl Milestones {
    /// It begins now. `what` is what is counted, in the plural.
    pub fn new(what: impl Into<String>) -> Self {
        Milestones { began: Instant::now(), what: what.into(), course: Mutex::default() }
    }

    /// Another is done, now `done` of `of`: says so if a line is due.
    pub fn on_done(&self, done: usize, of: usize) {
        let mut course = self.course.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = course.on_done(done, of, self.began.elapsed()) {
            tell_line(line(done, of, &self.what, left));
        }
    }
}

fn line(done: usize, of: usize, what: &str, left: Duration) -> String {
    format!("so far   {done} of {of} {what}, about {} to go", HumanDuration(left))
}

impl Course {
    /// Time that the rest takes, if that is to be said: at each tenth, and when nothing was said
    /// for long. The end speaks for itself.
    fn on_done(&mut self, done: usize, of: usize, elapsed: Duration) -> Option<Duration> {
        // Those that are done at once may be heard of in any order.
        if done <= self.done || done >= of {
            return None;
        }
        let before = *self.before.get_or_insert(done - 1);
        self.done = done;
        let tenths = done * 10 / of;
        let is_due = tenths > self.tenths.max(before * 10 / of) || elapsed >= self.said_at + EVERY;
        if !is_due {
            return None;
        }
        (self.tenths, self.said_at) = (tenths, elapsed);
        // What was done before says nothing of how long the rest takes.
        Some(elapsed.mul_f64((of - done) as f64 / (done - before) as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where lines are due, and what they say is left, of things that take so long each.
    fn said(before: usize, of: usize, each: Duration) -> Vec<(usize, Duration)> {
        let mut course = Course::default();
        let on_done = |done| Some((done, course.on_done(done, of, each * (done - before) as u32)?));
        (before + 1..=of).filter_map(on_done).collect()
    }

    #[test]
    fn what_is_quick_is_told_at_each_tenth() {
        let second = Duration::from_secs(1);
        let places: Vec<usize> = said(0, 1000, second / 1000).into_iter().map(|(done, _)| done).collect();
        assert_eq!(places, [100, 200, 300, 400, 500, 600, 700, 800, 900]);
        assert_eq!(
            said(0, 4, second / 10).len(),
            3,
            "each of four is more than a tenth, and the last is the end"
        );
        assert!(said(0, 1, second * 3600).is_empty());
    }

    #[test]
    fn what_is_slow_is_told_each_ten_seconds_too_with_what_is_left() {
        let each = Duration::from_secs(4);
        let told = said(0, 100, each);
        for (done, left) in &told {
            assert_eq!(*left, each * (100 - *done as u32), "after {done}");
        }
        let gaps = told.windows(2).map(|pair| pair[1].0 - pair[0].0);
        assert!(gaps.clone().all(|gap| gap <= 3), "never silent for more than ten seconds and one of them");
        // Every third is due by time, and each tenth by itself.
        assert_eq!(told.iter().take(5).map(|(done, _)| *done).collect::<Vec<_>>(), [3, 6, 9, 10, 13]);
    }

    #[test]
    fn what_was_done_before_counts_for_how_far_it_is_and_not_for_how_fast() {
        let each = Duration::from_secs(2);
        let told = said(90, 100, each);
        assert_eq!(told.first(), Some(&(95, each * 5)), "the tenth of 90 was reached before");
    }

    #[test]
    fn what_is_heard_late_is_not_told() {
        let mut course = Course::default();
        assert!(course.on_done(2, 4, Duration::from_secs(1)).is_some());
        assert!(course.on_done(1, 4, Duration::from_secs(60)).is_none());
    }

    #[test]
    fn a_line_says_what_how_far_and_how_long() {
        let text = line(30, 120, "runs", Duration::from_secs(200));
        assert_eq!(text, "so far   30 of 120 runs, about 3 minutes to go");
    }
}
