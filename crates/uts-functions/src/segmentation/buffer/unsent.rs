//! Whole messages that are sent for the first time, one behind the other. What holds for all of
//! them is asked once, and none is looked for.

use super::SendBuffer;
use super::segment::{Piece, Segment};
use crate::range::RangeSet;
use core::ops::Range;
use std::collections::vec_deque::Iter;

/// A message none of which has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent<'a> {
    /// Position of its first byte.
    pub start: u64,
    /// Its bytes.
    pub data: &'a [u8],
    /// It is in the form that a presentation mechanism gave it.
    pub presented: bool,
    /// Bytes of the message behind it, if one may be sent next; `None` if something else may, or
    /// nothing.
    pub following: Option<usize>,
    /// Something may be sent behind it.
    pub has_more: bool,
}

/// Messages of one length, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together {
    /// Position of the first one's first byte.
    pub start: u64,
    /// Bytes of each.
    pub message_bytes: usize,
    /// Number of messages.
    pub count: usize,
}

/// Messages whose turn it is to be sent.
#[derive(Debug)]
pub struct UnsentMessages<'a> {
    at: At<'a>,
    /// Position that none of these messages reaches beyond.
    end: u64,
    /// Nothing is sent from here on.
    limit: u64,
    taken: Range<u64>,
    taken_bytes: usize,
    sent: &'a mut u64,
    cursor: &'a mut usize,
    done: &'a RangeSet,
}

/// The message that is next, and those behind it.
#[derive(Clone, Debug)]
struct At<'a> {
    /// The segment that it is in.
    front: Option<&'a Segment>,
    /// Which of its messages it is, and bytes of each of them.
    index: usize,
    bytes: usize,
    next: Option<&'a Segment>,
    behind: Iter<'a, Segment>,
}

impl<'a> At<'a> {
    /// The piece of the first segment that `position` belongs to.
    fn new(mut segments: Iter<'a, Segment>, position: u64) -> Self {
        let (front, next) = (segments.next(), segments.next());
        let bytes = front.map_or(0, Segment::piece_bytes);
        At { front, index: front.map_or(0, |front| front.index_of(position)), bytes, next, behind: segments }
    }

    #[inline]
    fn piece(&self) -> Option<Piece<'a>> {
        self.front.map(|segment| segment.piece(self.index, self.bytes))
    }

    /// The piece behind it.
    #[inline]
    fn following(&self) -> Option<Piece<'a>> {
        let segment = self.front?;
        if self.index + 1 < segment.messages as usize {
            return Some(segment.piece(self.index + 1, self.bytes));
        }
        self.next.map(|next| next.piece(0, next.piece_bytes()))
    }

    /// See [`UnsentMessages::together`].
    #[inline]
    fn together(&self, end: u64, limit: u64) -> Option<Together> {
        let segment = self.front.filter(|segment| segment.messages > 2 && !segment.presented)?;
        let start = segment.piece(self.index, self.bytes).start;
        // One stays behind for those that look at what follows.
        let rest = segment.messages as usize - 1 - self.index;
        let positions = self.bytes as u64 + 1;
        let end = end.min(limit.saturating_sub(positions));
        let count = if start + rest as u64 * positions < end {
            rest
        } else {
            (end.saturating_sub(start + 1) / positions) as usize
        };
        (count > 1 && self.bytes > 0).then_some(Together { start, message_bytes: self.bytes, count })
    }

    /// True if more than `count` messages of the length of the next one follow each other from that
    /// on, none of them presented.
    #[inline]
    fn has_even(&self, count: usize) -> bool {
        let is_even = |s: &&Segment| s.is_message() && !s.presented && s.piece_bytes() == self.bytes;
        let Some(front) = self.front.filter(is_even) else { return false };
        let mut found = front.messages as usize - self.index;
        let mut behind = self.next.into_iter().chain(self.behind.clone());
        while found <= count
            && let Some(segment) = behind.next().filter(is_even)
        {
            found += segment.messages as usize;
        }
        found > count
    }

    /// Goes on to the piece behind that. Says whether it is in another segment.
    #[inline]
    fn advance(&mut self) -> bool {
        self.advance_by(1)
    }

    /// Goes on by so many pieces of the segment. Says whether what is next is in another.
    #[inline]
    fn advance_by(&mut self, pieces: usize) -> bool {
        self.index += pieces;
        let ends = self.front.is_some_and(|segment| self.index >= segment.messages as usize);
        if ends {
            (self.front, self.next) = (self.next, self.behind.next());
            (self.index, self.bytes) = (0, self.front.map_or(0, Segment::piece_bytes));
        }
        ends
    }
}

/// Position up to which messages were sent.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    at: At<'a>,
    taken: Range<u64>,
    taken_bytes: usize,
    sent: u64,
    cursor: usize,
}

impl SendBuffer {
    /// True if [`SendBuffer::unsent_messages`] is worth asking: where bytes are sent this is all
    /// there is to do.
    #[inline]
    pub fn may_have_messages(&self) -> bool {
        let is_bytes = |s: &Segment| !s.is_message() && self.sent < s.end();
        self.repeat.is_empty()
            && self.sent < self.written
            && !self.segments.get(self.cursor).is_some_and(is_bytes)
    }

    /// Positions that wait to be sent or repeated, if they are less than `most`.
    pub fn waiting_bytes(&self, most: u64) -> u64 {
        let mut waiting = self.written.saturating_sub(self.sent);
        for range in self.repeat.iter() {
            if waiting >= most {
                break;
            }
            waiting += range.end - range.start;
        }
        waiting.min(most)
    }

    /// Bytes of the message that is sent next, if it is one none of which has been sent.
    pub fn unsent_message(&self) -> Option<usize> {
        let next = self.segments.get(self.index_of(self.sent)).filter(|_| self.repeat.is_empty())?;
        let next = next.piece_at(self.sent);
        (next.message && next.start == self.sent).then_some(next.data.len())
    }

    /// The messages whose turn it is to be sent, as far as they are new, lie below `limit`, and
    /// stand in a row; `None` if what comes next is not so, or is to be repeated, or ends the flow:
    /// that is for [`SendBuffer::next_chunk`].
    pub fn unsent_messages(&mut self, limit: u64) -> Option<UnsentMessages<'_>> {
        if !self.may_have_messages() {
            return None;
        }
        self.cursor = self.index_of(self.sent);
        // What was given up unsent is passed over.
        let fresh = self.done.gaps(self.sent..self.written).next()?;
        let SendBuffer { segments, sent, cursor, done, .. } = self;
        let mut at = At::new(segments.range((*cursor).min(segments.len())..), *sent);
        // The rest of one that was begun is for others.
        at.front = at.front.filter(|_| at.piece().is_some_and(|piece| piece.start == *sent));
        let messages = UnsentMessages {
            at,
            // The end of the flow rides on its last message.
            end: limit.min(fresh.end).min(self.fin.map_or(u64::MAX, |fin| fin.saturating_sub(1))),
            limit: limit.min(self.written),
            taken: *sent..*sent,
            taken_bytes: 0,
            sent,
            cursor,
            done,
        };
        messages.front().is_some().then_some(messages)
    }
}

impl<'a> UnsentMessages<'a> {
    /// The message that is next.
    #[inline]
    pub fn front(&self) -> Option<Unsent<'a>> {
        let piece = self.at.piece().filter(|piece| piece.message && piece.end() <= self.end)?;
        let next = self.at.following().filter(|next| next.message && next.end() <= self.limit);
        Some(Unsent {
            start: piece.start,
            data: piece.data,
            presented: piece.presented,
            following: next.map(|next| next.data.len()),
            has_more: piece.end() < self.limit,
        })
    }

    /// Counts the front message as sent, to its end.
    #[inline]
    pub fn on_sent(&mut self) {
        let Some(piece) = self.at.piece() else { return };
        self.taken.end = piece.end();
        self.taken_bytes += piece.data.len();
        *self.sent = piece.end();
        *self.cursor += usize::from(self.at.advance());
        if piece.end() >= self.end {
            // What was given up unsent is passed over.
            *self.sent = self.done.run_end(piece.end());
            self.at.front = None;
        }
    }

    /// Sends messages as long as `put` takes them, which is given the first one's position and
    /// bytes, and how many bytes the one behind it has. Ends, too, before the last one that may be
    /// sent, and before one that is in another form than `presented` says: with these there is more
    /// to be asked; and where `but_together`, before what [`UnsentMessages::together`] has. Says
    /// how many were sent.
    #[inline(always)]
    pub fn send_row(
        &mut self,
        presented: bool,
        but_together: bool,
        mut put: impl FnMut(u64, &[u8], usize) -> bool,
    ) -> usize {
        // What it goes by stays in registers.
        let (end, limit, mut at) = (self.end, self.limit, self.at.clone());
        let (mut count, mut segments, mut taken_end, mut bytes) = (0, 0, self.taken.end, 0);
        while let (Some(piece), Some(next)) = (at.piece(), at.following())
            && piece.message
            && piece.presented == presented
            && next.message
            && next.end() <= limit
            && piece.end() < end
            && !(but_together && at.together(end, limit).is_some())
            && put(piece.start, piece.data, next.data.len())
        {
            taken_end = piece.end();
            bytes += piece.data.len();
            segments += usize::from(at.advance());
            count += 1;
        }
        if count > 0 {
            self.at = at;
            self.taken.end = taken_end;
            self.taken_bytes += bytes;
            *self.sent = taken_end;
            *self.cursor += segments;
        }
        count
    }

    /// Messages of one length that stand one behind the other from the next one on, up to the last
    /// of them behind which one more may be sent; `None` if they are less than two, or not as they
    /// were handed over.
    #[inline]
    pub fn together(&self) -> Option<Together> {
        self.at.together(self.end, self.limit)
    }

    /// Sends `count` messages, at least one, if they are of one length, not presented, and one more
    /// of that length may be sent behind them: `put` is given their bytes, in as many pieces as
    /// they lie in. Says whether it did.
    #[inline]
    pub fn send_even(&mut self, count: usize, put: impl FnMut(&[u8])) -> bool {
        let Some(end) = self.end_of_even(count) else { return false };
        let is_followed = end < self.end && end + (self.at.bytes as u64) < self.limit;
        let sends = is_followed && self.at.has_even(count);
        if sends {
            self.put_even(count, end, put);
        }
        sends
    }

    /// The same of messages behind which nothing more is to be sent.
    pub fn send_last_even(&mut self, count: usize, put: impl FnMut(&[u8])) -> bool {
        let Some(end) = self.end_of_even(count) else { return false };
        let sends = end == self.end && end <= self.limit && self.at.has_even(count - 1);
        if sends {
            self.put_even(count, end, put);
        }
        sends
    }

    /// Where so many messages of the length of the next one end, if they are any.
    #[inline]
    fn end_of_even(&self, count: usize) -> Option<u64> {
        let piece = self.at.piece().filter(|_| count > 0)?;
        Some(piece.start + (count * (self.at.bytes + 1)) as u64)
    }

    #[inline]
    fn put_even(&mut self, count: usize, end: u64, mut put: impl FnMut(&[u8])) {
        let (bytes, mut left) = (self.at.bytes, count);
        while let Some(segment) = self.at.front.filter(|_| left > 0) {
            let here = (segment.messages as usize - self.at.index).min(left);
            let from = self.at.index * bytes;
            put(segment.data.get(from..from + here * bytes).unwrap_or_default());
            left -= here;
            *self.cursor += usize::from(self.at.advance_by(here));
        }
        self.taken.end = end;
        self.taken_bytes += count * bytes;
        *self.sent = end;
    }

    /// True if anything may be sent behind those that were.
    #[inline]
    pub fn has_more(&self) -> bool {
        *self.sent < self.limit
    }

    /// Place that [`UnsentMessages::go_back`] goes back to.
    #[inline]
    pub fn place(&self) -> Place<'a> {
        let UnsentMessages { ref at, ref taken, taken_bytes, .. } = *self;
        let (sent, cursor) = (*self.sent, *self.cursor);
        Place { at: at.clone(), taken: taken.clone(), taken_bytes, sent, cursor }
    }

    /// Goes back to a place: messages that were sent since then are not.
    #[inline]
    pub fn go_back(&mut self, place: Place<'a>) {
        (self.at, self.taken, self.taken_bytes) = (place.at, place.taken, place.taken_bytes);
        (*self.sent, *self.cursor) = (place.sent, place.cursor);
    }

    /// The positions of those that were sent, and how many bytes of data they have.
    pub fn taken(&self) -> (Range<u64>, usize) {
        (self.taken.clone(), self.taken_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;
    use bytes::Bytes;

    #[test]
    fn whole_messages_go_one_by_one_until_something_else_is_due() {
        let mut b = SendBuffer::default();
        for text in ["one", "two", "three", "four", "five"] {
            b.write_message(Bytes::from_static(text.as_bytes()), None);
        }
        b.finish();
        let mut messages = b.unsent_messages(100).expect("messages");
        let next = messages.front().expect("one");
        assert_eq!((next.start, next.data, next.following, next.has_more), (0, &b"one"[..], Some(3), true));
        messages.on_sent();
        assert_eq!((messages.front().map(|m| m.start), messages.taken()), (Some(4), (0..4, 3)));
        // The next does not lie below the limit.
        assert!(b.unsent_messages(7).is_none());
        let mut messages = b.unsent_messages(8).expect("one");
        assert_eq!(messages.front().map(|m| (m.following, m.has_more)), Some((None, false)));
        messages.on_sent();
        assert_eq!((messages.front(), messages.taken()), (None, (4..8, 3)));
        // What was given up unsent is passed over, what is to be repeated comes first.
        b.abandon(8..10);
        b.repeat(0..4);
        assert!(b.unsent_messages(100).is_none());
        assert_eq!(b.next_chunk(100, 100).map(|c| c.range), Some(0..4));
        let mut messages = b.unsent_messages(100).expect("one");
        assert_eq!(messages.front().map(|m| m.start), Some(14));
        messages.on_sent();
        // The last one carries the end of the flow.
        assert_eq!((messages.front(), messages.taken()), (None, (14..19, 4)));
        assert!(b.unsent_messages(100).is_none());
        assert_eq!(b.next_chunk(100, 100).map(|c| (c.range, c.fin)), Some((19..25, true)));
        b.write(Bytes::from_static(b"behind the end"));
        b.write_messages([Bytes::from_static(b"this, too")].into_iter(), None);
        assert!(b.unsent_messages(100).is_none());
        assert_eq!(b.written(), 25);
    }

    #[test]
    fn a_row_ends_before_what_has_to_be_looked_at() {
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        let full = || {
            let mut b = SendBuffer::default();
            b.write_messages(["one", "two", "three", "four"].map(text).into_iter(), None);
            b
        };
        let row = |b: &mut SendBuffer, limit, most| {
            let mut seen = Vec::new();
            let mut messages = b.unsent_messages(limit).expect("messages");
            let count = messages.send_row(false, false, |start, data, next| {
                seen.push((start, data.len(), next));
                seen.len() <= most
            });
            (count, messages.taken(), messages.front().map(|m| m.start), b.sent(), seen)
        };
        // The last goes alone: nothing is known of what follows it.
        let mut b = full();
        let seen = vec![(0, 3, 3), (4, 3, 5), (8, 5, 4)];
        assert_eq!(row(&mut b, 100, 9), (3, (0..14, 11), Some(14), 14, seen));
        assert_eq!((b.cursor, row(&mut b, 100, 9)), (3, (0, (14..14, 0), Some(14), 14, vec![])));
        // What was refused is not sent.
        assert_eq!(row(&mut full(), 100, 1), (1, (0..4, 3), Some(4), 4, vec![(0, 3, 3), (4, 3, 5)]));
        // So does the last below the limit, and the one that carries the end.
        assert_eq!(row(&mut full(), 8, 9), (1, (0..4, 3), Some(4), 4, vec![(0, 3, 3)]));
        let mut b = full();
        b.finish();
        assert_eq!(row(&mut b, 100, 9).0, 3);
        // Before bytes, and before another form.
        let mut b = full();
        b.write_presented(text("five"), None);
        b.write_presented(text("six"), None);
        b.write(text("bytes"));
        assert_eq!(row(&mut b, 100, 9).0, 4);
        let mut messages = b.unsent_messages(100).expect("messages");
        assert_eq!(
            (messages.send_row(false, false, |_, _, _| true), messages.send_row(true, false, |_, _, _| true)),
            (0, 1)
        );
        // What was given up unsent is passed over by who looks at more.
        let mut b = full();
        b.abandon(9..10);
        assert_eq!(row(&mut b, 100, 9), (1, (0..4, 3), Some(4), 4, vec![(0, 3, 3)]));
    }

    #[test]
    fn a_row_of_messages_ends_before_what_was_given_up() {
        let mut b = SendBuffer::default();
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        b.write_messages(["one", "two", "three"].map(text).into_iter(), Some(Time::from_millis(5)));
        b.write_messages(["four", "five"].map(text).into_iter(), None);
        assert_eq!((b.written(), b.held_bytes(), b.next_expiry()), (24, 19, Some(Time::from_millis(5))));
        // The third is given up unsent.
        b.abandon(9..10);
        let mut messages = b.unsent_messages(100).expect("messages");
        while messages.front().is_some() {
            messages.on_sent();
        }
        assert_eq!((messages.taken(), b.sent()), ((0..8, 6), 14));
        let mut messages = b.unsent_messages(100).expect("messages");
        while messages.front().is_some() {
            messages.on_sent();
        }
        assert_eq!((messages.taken(), b.sent()), ((14..24, 8), 24));
        b.on_acknowledged(0..19);
        assert_eq!((b.held_bytes(), b.next_expiry(), b.cursor), (4, None, 1));
    }
}
