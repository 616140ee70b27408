//! Fates of messages that are worthless after a while: which share of them arrives in time, as far
//! as the sender can tell.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;
use uts_functions::Time;

/// Messages that are followed at a time. Messages that come while there are so many are not
/// followed.
const FOLLOWED_MAX: usize = 64;

/// Messages whose fate must be known for a share to count.
const JUDGED_MIN: u32 = 16;

/// A message that is followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub flow: u32,
    /// The last of its positions.
    pub end: u64,
    pub handed_at: Time,
    /// The end of its lifetime.
    pub expires: Time,
}

/// Messages that are followed, and the fates of messages that were handed over since an instant.
#[derive(Debug, Default)]
pub(super) struct Fates {
    followed: VecDeque<Message>,
    since: Time,
    judged: u32,
    in_time: u32,
}

impl Fates {
    /// Counts anew, only what is handed over from now on.
    pub fn begin(&mut self, now: Time) {
        (self.since, self.judged, self.in_time) = (now, 0, 0);
    }

    /// Follows a message, one of several that were handed over together.
    pub fn follow(&mut self, message: Message) {
        if self.followed.len() < FOLLOWED_MAX {
            self.followed.push_back(message);
        }
    }

    /// Positions of a flow have arrived, at about this instant.
    pub fn on_arrived(&mut self, arrived_at: Time, flow: u32, range: &Range<u64>) {
        self.followed.retain(|message| {
            let is_it = message.flow == flow && range.contains(&message.end);
            if is_it && message.handed_at >= self.since {
                self.judged += 1;
                self.in_time += u32::from(arrived_at <= message.expires);
            }
            !is_it
        });
    }

    /// Counts messages as late that were not acknowledged within a round trip after their end.
    pub fn on_missed(&mut self, now: Time, rtt: Duration) {
        while let Some(message) = self.followed.front().filter(|message| message.expires + rtt < now) {
            self.judged += u32::from(message.handed_at >= self.since);
            self.followed.pop_front();
        }
    }

    /// Share of messages that were in time, 0.0 to 1.0, once the fates of enough are known. The
    /// next one is of those after them.
    pub fn take_share(&mut self) -> Option<f64> {
        let share = f64::from(self.in_time) / f64::from(self.judged);
        let is_known = self.judged >= JUDGED_MIN;
        if is_known {
            (self.judged, self.in_time) = (0, 0);
        }
        is_known.then_some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands a message over each 20 ms; each has a lifetime of 100 ms.
    fn hand_over(fates: &mut Fates, from: u64, messages: u64) {
        for n in from..from + messages {
            let handed_at = Time::from_millis(20 * n);
            let expires = handed_at + Duration::from_millis(100);
            fates.follow(Message { flow: 1, end: n, handed_at, expires });
        }
    }

    #[test]
    fn a_share_is_of_what_arrived_in_time_late_and_never() {
        let mut fates = Fates::default();
        hand_over(&mut fates, 0, 16);
        (0..8).for_each(|n| fates.on_arrived(Time::from_millis(20 * n + 100), 1, &(n..n + 1)));
        // Of another flow, and of one that is not followed.
        fates.on_arrived(Time::from_millis(1), 2, &(0..100));
        fates.on_arrived(Time::from_millis(1), 1, &(90..100));
        (8..12).for_each(|n| fates.on_arrived(Time::from_millis(20 * n + 101), 1, &(n..n + 1)));
        assert_eq!(fates.take_share(), None);
        fates.on_missed(Time::from_millis(20 * 15 + 150), Duration::from_millis(50));
        assert_eq!(fates.take_share(), None, "the last may yet be acknowledged");
        fates.on_missed(Time::from_millis(20 * 15 + 151), Duration::from_millis(50));
        assert_eq!(fates.take_share(), Some(0.5));
        assert_eq!(fates.take_share(), None);
    }

    #[test]
    fn what_was_handed_over_before_does_not_count_and_what_is_followed_is_bounded() {
        let mut fates = Fates::default();
        hand_over(&mut fates, 0, 10);
        fates.begin(Time::from_millis(200));
        hand_over(&mut fates, 10, 1000);
        assert_eq!(fates.followed.len(), FOLLOWED_MAX);
        fates.on_arrived(Time::from_millis(5), 1, &(0..10));
        assert_eq!(fates.judged, 0);
        fates.on_arrived(Time::from_millis(5), 1, &(10..40));
        assert_eq!(fates.take_share(), Some(1.0));
    }
}
