//! When the lifetimes of messages are over.

use super::SendBuffer;
use crate::range::RangeSet;
use crate::time::Time;
use core::ops::Range;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Messages that were given up since they are too late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Number of them.
    pub messages: usize,
    /// Their positions that had not arrived.
    pub bytes: u64,
}

impl SendBuffer {
    /// Gives up messages that have expired, unsent or unacknowledged.
    pub fn expire(&mut self, now: Time) -> Expired {
        let mut expired = Expired::default();
        // segmentation.md R-8.
        while let Some(range) = self.expiries.pop_due(now) {
            expired.messages += self.messages_not_done(&range);
            expired.bytes += self.abandon(range);
        }
        expired
    }

    /// Gives up messages of which something waits to be sent, the first time or again, and that
    /// expire by `at`, but not the last if that is to be kept.
    pub fn expire_waiting(&mut self, at: Time, keeps_last: bool) -> Expired {
        if self.expiries.next().is_none_or(|next| next > at) {
            return Expired::default();
        }
        let kept_from =
            if keeps_last { self.segments.back().map_or(0, |s| s.last_start()) } else { u64::MAX };
        // segmentation.md R-15.
        let mut late: SmallVec<[Range<u64>; 4]> = SmallVec::new();
        for range in self.expiries.until(at) {
            let again = self.repeat.iter().map(|r| r.start.max(range.start)..r.end.min(range.end));
            late.extend(again.filter(|r| !r.is_empty()));
            let end = range.end.min(kept_from);
            if end > self.sent {
                late.push(range.start.max(self.sent).min(end)..end);
            } else if self.repeat.is_empty() && range.end <= self.sent {
                // Those before it have left.
                break;
            }
        }
        let mut expired = Expired::default();
        for range in late {
            let start = self.begin_of(range.start).unwrap_or(range.start);
            expired.messages += self.messages_not_done(&(start..range.end));
            expired.bytes += self.abandon(range);
        }
        expired
    }

    /// Number of messages that begin in a range and are not done.
    fn messages_not_done(&self, range: &Range<u64>) -> usize {
        let first = self.index_of(range.start);
        (self.segments.range(first.min(self.segments.len())..))
            .take_while(|s| s.start < range.end)
            .flat_map(|s| (0..s.messages as usize).map(|index| s.piece(index, s.piece_bytes())))
            .filter(|s| range.contains(&s.start) && !self.done.contains_range(&(s.start..s.end())))
            .count()
    }

    /// When the next message expires.
    #[inline]
    pub fn next_expiry(&self) -> Option<Time> {
        self.expiries.next()
    }
}

/// Messages that have a lifetime, by its end. Those that stand in a row and end together are one
/// entry, so that neither what is held nor how much was handed over at a time makes the next one
/// dear to find.
#[derive(Clone, Debug, Default)]
pub(super) struct Expiries {
    /// When, and the first position; the position behind the last.
    entries: BTreeMap<(Time, u64), u64>,
}

impl Expiries {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Messages at these positions are worthless from `at` on.
    pub(super) fn insert(&mut self, at: Time, range: Range<u64>) {
        if let Some(mut last) = self.entries.last_entry()
            && last.key().0 == at
            && *last.get() == range.start
        {
            *last.get_mut() = range.end;
        } else if !range.is_empty() {
            self.entries.insert((at, range.start), range.end);
        }
    }

    /// When the next one is.
    pub(super) fn next(&self) -> Option<Time> {
        self.entries.first_key_value().map(|((at, _), _)| *at)
    }

    /// The positions of those that are worthless by then, the last first.
    pub(super) fn until(&self, at: Time) -> impl Iterator<Item = Range<u64>> + '_ {
        self.entries.range(..=(at, u64::MAX)).rev().map(|((_, start), end)| *start..*end)
    }

    /// The positions of the next ones that are worthless by now.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<Range<u64>> {
        let next = self.entries.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((_, start), end) = next.remove_entry();
        Some(start..end)
    }

    /// Leaves no entry in front all of which is `done`. Others that are stay until they come to the
    /// front.
    pub(super) fn forget(&mut self, done: &RangeSet) {
        while let Some(first) = self.entries.first_entry() {
            let (start, end) = (first.key().1, *first.get());
            if !done.contains_range(&(start..end)) {
                break;
            }
            first.remove();
        }
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Gives back memory that nothing is in: a tree that has become empty keeps a node.
    pub(super) fn shrink(&mut self) {
        if self.entries.is_empty() {
            self.entries = BTreeMap::new();
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.entries.len() * 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_end_together_are_one_entry_and_the_next_is_in_front() {
        let (early, late) = (Time::from_millis(5), Time::from_millis(9));
        let mut expiries = Expiries::default();
        expiries.insert(late, 0..4);
        expiries.insert(late, 4..8);
        expiries.insert(early, 8..10);
        expiries.insert(late, 10..12);
        expiries.insert(late, 12..12);
        assert_eq!((expiries.entries.len(), expiries.next()), (3, Some(early)));
        assert_eq!(expiries.pop_due(Time::from_millis(4)), None);
        assert_eq!((expiries.pop_due(early), expiries.pop_due(early)), (Some(8..10), None));
        assert_eq!((expiries.pop_due(late), expiries.next()), (Some(0..8), Some(late)));
    }

    #[test]
    fn what_is_done_does_not_stay_in_front() {
        let mut expiries = Expiries::default();
        for n in 0..4 {
            expiries.insert(Time::from_millis(n), 10 * n..10 * n + 10);
        }
        let mut done = RangeSet::new();
        done.insert(10..35);
        expiries.forget(&done);
        assert_eq!(expiries.next(), Some(Time::from_millis(0)));
        done.insert(0..10);
        expiries.forget(&done);
        assert_eq!((expiries.next(), expiries.entries.len()), (Some(Time::from_millis(3)), 1));
        done.insert(35..40);
        expiries.forget(&done);
        expiries.shrink();
        assert!(expiries.is_empty() && expiries.heap_bytes() == 0);
    }
}
