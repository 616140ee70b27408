//! Ends of messages that came damaged, where their sender allows that (sequencing.md R-16).

use super::{Reassembly, Segment, SegmentError};
use core::ops::Range;

/// Damaged stretches that are remembered. Packets with more are dropped, as if they were lost.
const DAMAGED_MAX: usize = 1024;

impl Reassembly {
    /// True if no more damage can be remembered.
    pub fn is_full_of_damage(&self) -> bool {
        self.damaged.len() >= DAMAGED_MAX
    }

    /// Takes in a part of a message of which only the first `right_bytes` are as they were sent;
    /// otherwise as [`Reassembly::insert`].
    ///
    /// # Errors
    /// [`SegmentError`] if the peer breaks the rules; nothing is changed then.
    pub fn insert_damaged(
        &mut self,
        segment: Segment,
        right_bytes: u64,
        limit: u64,
    ) -> Result<u64, SegmentError> {
        let end = segment.start + segment.data.len() as u64;
        let damaged = segment.start.saturating_add(right_bytes).min(end)..end;
        // What is there already is as it was sent.
        let fresh: Vec<Range<u64>> = self.settled.gaps(damaged).collect();
        let new = self.insert(segment, limit)?;
        for range in fresh {
            self.damaged.insert(range);
        }
        Ok(new)
    }

    /// Bytes of its message before this position; `None` if what is between its beginning and the
    /// position is missing, or was handed over.
    pub fn place_in_message(&self, position: u64) -> Option<u64> {
        let begin = *self.begins.range(..=position).next_back()?;
        let is_same = self.ends.range(begin..position).next().is_none();
        (is_same && self.settled.contains_range(&(begin..position))).then(|| position - begin)
    }

    /// Forgets what is known of damage to a message, which is handed over. Says how many of its
    /// bytes are right, if not all are.
    pub(super) fn take_damage(&mut self, whole: &Range<u64>) -> Option<u64> {
        if self.damaged.is_empty() {
            return None;
        }
        let first = self.damaged.iter().find(|range| range.end > whole.start)?;
        let first = first.start.max(whole.start);
        self.damaged.remove(whole.clone());
        (first < whole.end).then(|| first - whole.start)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Delivery;
    use super::*;
    use bytes::Bytes;

    /// Bytes of the message "0123456789" that begins at `start`.
    fn part(start: u64, bytes: Range<usize>) -> Segment {
        Segment {
            start: start + bytes.start as u64,
            data: Bytes::copy_from_slice(&b"0123456789"[bytes.clone()]),
            message: true,
            presented: false,
            begin: bytes.start == 0,
            end: bytes.end == 10,
            fin: false,
        }
    }

    fn read(state: &mut Reassembly) -> Vec<(u64, Option<u64>)> {
        let next = || match state.pop_front(100)? {
            Delivery::Message(start, _) => Some((start, None)),
            Delivery::Damaged(start, data, right) => {
                assert_eq!(data, "0123456789");
                Some((start, Some(right)))
            }
            other => panic!("{other:?}"),
        };
        core::iter::from_fn(next).collect()
    }

    #[test]
    fn a_message_says_up_to_where_it_is_right() {
        let mut state = Reassembly::default();
        let insert = |state: &mut Reassembly, part, right: Option<u64>| match right {
            Some(right) => state.insert_damaged(part, right, 1000).expect("in the limit"),
            None => state.insert(part, 1000).expect("in the limit"),
        };
        insert(&mut state, part(0, 0..10), Some(4));
        insert(&mut state, part(11, 0..10), None);
        // Of a message in parts it is the first damage that counts, in whatever order they come.
        insert(&mut state, part(22, 7..10), Some(1));
        assert_eq!(state.place_in_message(25), None, "its beginning is missing");
        insert(&mut state, part(22, 0..5), None);
        assert_eq!(state.place_in_message(27), Some(5));
        insert(&mut state, part(22, 5..7), Some(1));
        // A whole copy that comes first stays.
        insert(&mut state, part(33, 0..10), None);
        insert(&mut state, part(33, 0..10), Some(0));
        assert_eq!(read(&mut state), [(0, Some(4)), (11, None), (22, Some(6)), (33, None)]);
        assert_eq!(state.damaged.len(), 0);
    }

    #[test]
    fn what_is_remembered_of_damage_is_bounded_and_forgotten() {
        let mut state = Reassembly::default();
        let mut count = 0;
        while !state.is_full_of_damage() {
            state.insert_damaged(part(11 * count, 0..10), 4, u64::MAX).expect("in the limit");
            count += 1;
        }
        assert_eq!(count, DAMAGED_MAX as u64);
        assert_eq!(read(&mut state).len(), DAMAGED_MAX);
        assert!(!state.is_full_of_damage());
        // What is given up with its message is forgotten too.
        state.insert_damaged(part(11 * count, 0..5), 4, u64::MAX).expect("in the limit");
        state.skip(11 * count + 5..11 * count + 11);
        assert!(state.damaged.is_empty());
    }
}
