//! What a flow's sender holds: data handed over by the application and not yet acknowledged or given up.

use crate::range::RangeSet;
use crate::time::Time;
use bytes::Bytes;
use core::ops::Range;
use expiry::Expiries;
use std::collections::VecDeque;
pub use unsent::{Place, Together, Unsent, UnsentMessages};

mod expiry;
mod unsent;

/// What the application handed over at once: a stretch of bytes, or messages of one length, each with the marker that ends it.
#[derive(Clone, Debug)]
struct Segment {
    start: u64,
    data: Bytes,
    /// How many; none in a stretch of bytes.
    messages: u32,
    /// The messages are in the form that a presentation mechanism gave them.
    presented: bool,
}

/// A stretch of bytes, or one message with the marker that ends it.
#[derive(Clone, Copy, Debug)]
struct Piece<'a> {
    start: u64,
    data: &'a [u8],
    message: bool,
    presented: bool,
    /// Behind it another segment begins.
    is_last: bool,
}

impl Segment {
    fn new(start: u64, data: Bytes, message: bool, presented: bool) -> Self {
        Segment { start, data, messages: message.into(), presented }
    }

    #[inline]
    fn is_message(&self) -> bool {
        self.messages > 0
    }

    /// The end of its positions, the markers of messages included (segmentation.md R-1).
    #[inline]
    fn end(&self) -> u64 {
        self.start + self.data.len() as u64 + u64::from(self.messages)
    }

    /// Bytes of each message, or of all that there is.
    #[inline]
    fn piece_bytes(&self) -> usize {
        if self.messages > 1 { self.data.len() / self.messages as usize } else { self.data.len() }
    }

    /// The piece `index`, of which each has so many bytes.
    #[inline]
    fn piece(&self, index: usize, bytes: usize) -> Piece<'_> {
        let from = index * bytes;
        Piece {
            start: self.start + (from + index) as u64,
            data: self.data.get(from..from + bytes).unwrap_or_default(),
            message: self.is_message(),
            presented: self.presented,
            is_last: index + 1 >= self.messages as usize,
        }
    }

    /// Which of the pieces a position of this segment belongs to.
    #[inline]
    fn index_of(&self, position: u64) -> usize {
        if self.messages <= 1 {
            return 0;
        }
        (position.saturating_sub(self.start) / (self.piece_bytes() as u64 + 1)) as usize
    }

    /// The piece that a position of this segment belongs to.
    #[inline]
    fn piece_at(&self, position: u64) -> Piece<'_> {
        self.piece(self.index_of(position), self.piece_bytes())
    }
}

impl Piece<'_> {
    #[inline]
    fn data_end(&self) -> u64 {
        self.start + self.data.len() as u64
    }

    #[inline]
    fn end(&self) -> u64 {
        self.data_end() + u64::from(self.message)
    }
}

/// What a write or a message counts for at least against the room that a flow has, in bytes: a quarter of what it takes to keep track of
/// it. Writes of less hold up to four times that room beside their data; what is larger is bounded by its data alone.
pub const PIECE_BYTES: usize = size_of::<Segment>() / 4;

/// A part of a flow that goes into one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Positions that it takes, the ends of message and flow included.
    pub range: Range<u64>,
    /// Bytes of data in it.
    pub data_bytes: usize,
    /// It belongs to a message.
    pub message: bool,
    /// That message is in the form that a presentation mechanism gave it.
    pub presented: bool,
    /// It starts with the first byte of a message.
    pub begin: bool,
    /// The message ends with it.
    pub end: bool,
    /// The flow ends with it.
    pub fin: bool,
    /// It was sent before.
    pub repeat: bool,
}

/// The sender's state of one flow.
#[derive(Clone, Debug, Default)]
pub struct SendBuffer {
    segments: VecDeque<Segment>,
    /// Positions below this were handed over by the application.
    written: u64,
    /// Positions below this have been sent at least once (or given up unsent).
    sent: u64,
    /// Position of the end of the flow, once the application has finished it.
    fin: Option<u64>,
    /// Acknowledged or given up.
    done: RangeSet,
    /// Lost, to be sent again.
    repeat: RangeSet,
    /// Given up; the peer has not been told yet.
    skips: RangeSet,
    /// Given up; the notice to the peer is under way.
    told: RangeSet,
    held_bytes: usize,
    /// Messages that are worthless from some time on.
    expiries: Expiries,
    /// Place among the segments of what was cut last: what is cut next mostly lies there, or behind.
    cursor: usize,
}

impl SendBuffer {
    /// Appends bytes.
    pub fn write(&mut self, data: Bytes) {
        self.push(data, [false; 2], None);
    }

    /// Appends one message, which is given up if it is not acknowledged by `expires`.
    pub fn write_message(&mut self, data: Bytes, expires: Option<Time>) {
        self.push(data, [true, false], expires);
    }

    /// Appends messages, each as [`SendBuffer::write_message`] does.
    #[inline]
    pub fn write_messages(&mut self, messages: impl Iterator<Item = Bytes>, expires: Option<Time>) {
        // segmentation.md R-5: nothing behind the end.
        if self.fin.is_some() {
            return;
        }
        let (mut start, mut bytes) = (self.written, 0);
        self.segments.extend(messages.map(|data| {
            bytes += data.len();
            let segment = Segment::new(start, data, true, false);
            start = segment.end();
            segment
        }));
        if let Some(at) = expires {
            self.expiries.insert(at, self.written..start);
        }
        self.written = start;
        self.held_bytes += bytes;
    }

    /// Appends so many messages of one length, which stand one behind the other in `data`, each as
    /// [`SendBuffer::write_message`] does: they are kept together.
    pub fn write_row(&mut self, data: Bytes, messages: u32, expires: Option<Time>) {
        debug_assert!(messages > 0 && data.len().is_multiple_of(messages as usize), "of one length");
        // segmentation.md R-5: nothing behind the end.
        if self.fin.is_some() {
            return;
        }
        self.held_bytes += data.len();
        self.push_segment(Segment { start: self.written, data, messages, presented: false }, expires);
    }

    /// Appends one message in the form that a presentation mechanism gave it, in which it travels whatever mechanism
    /// follows (segmentation.md R-2).
    pub fn write_presented(&mut self, data: Bytes, expires: Option<Time>) {
        self.push(data, [true, true], expires);
    }

    fn push(&mut self, data: Bytes, [message, presented]: [bool; 2], expires: Option<Time>) {
        // segmentation.md R-5: nothing behind the end. R-11: an empty message is one.
        if self.fin.is_some() || (data.is_empty() && !message) {
            return;
        }
        self.held_bytes += data.len();
        // segmentation.md R-2: the form stays with the segment, whatever mechanism follows.
        self.push_segment(Segment::new(self.written, data, message, presented), expires);
    }

    fn push_segment(&mut self, segment: Segment, expires: Option<Time>) {
        if let Some(at) = expires {
            self.expiries.insert(at, segment.start..segment.end());
        }
        self.written = segment.end();
        self.segments.push_back(segment);
    }

    /// Ends the flow after what has been written.
    pub fn finish(&mut self) {
        if self.fin.is_none() {
            self.fin = Some(self.written);
            self.written += 1; // segmentation.md R-1
        }
    }

    /// Whether the application has ended the flow.
    pub fn is_finished(&self) -> bool {
        self.fin.is_some()
    }

    /// Bytes held: written and not yet acknowledged from the front on.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// What is held as it counts against the room that a flow has, in bytes: the data or, where its pieces are so small that to keep
    /// track of them takes a multiple of that, [`PIECE_BYTES`] for each.
    pub fn load_bytes(&self) -> usize {
        self.held_bytes.max(self.segments.len() * PIECE_BYTES)
    }

    /// How many of the messages of these sizes fill room of `capacity` bytes ([`SendBuffer::load_bytes`]), the last one whole; and how
    /// many bytes they have.
    pub fn fit(&self, capacity: usize, sizes: impl Iterator<Item = usize>) -> (usize, usize) {
        let room = capacity.saturating_sub(self.held_bytes);
        let most = (capacity / PIECE_BYTES).saturating_sub(self.segments.len());
        let (mut count, mut bytes) = (0, 0);
        for size in sizes.take(most) {
            if bytes >= room {
                break;
            }
            bytes += size;
            count += 1;
        }
        (count, bytes)
    }

    /// Positions below this were written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Positions below this were sent at least once.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether everything, the end included, is acknowledged or given up and the peer has been told.
    pub fn is_complete(&self) -> bool {
        self.fin.is_some()
            && self.done.run_end(0) == self.written
            && self.skips.is_empty()
            && self.told.is_empty()
    }

    /// Whether there is something to send below the flow-control `limit`.
    pub fn wants_to_send(&self, limit: u64) -> bool {
        !self.repeat.is_empty() || (self.sent < self.written && self.sent < limit)
    }

    /// Whether new data waits only for the peer's credit.
    pub fn is_blocked(&self, limit: u64) -> bool {
        self.sent < self.written && self.sent >= limit
    }

    fn index_of(&self, position: u64) -> usize {
        for near in [self.cursor, self.cursor + 1] {
            if self.segments.get(near).is_some_and(|s| s.start <= position && position < s.end()) {
                return near;
            }
        }
        self.segments.partition_point(|s| s.end() <= position)
    }

    /// The next chunk of at most `data_bytes_max` bytes, repeats first, new data only below `limit`; `None` if there is
    /// nothing. The caller must send it.
    pub fn next_chunk(&mut self, data_bytes_max: usize, limit: u64) -> Option<Chunk> {
        // segmentation.md R-3.
        if let Some(range) = self.repeat.first() {
            let chunk = self.cut(range, data_bytes_max, true)?;
            self.repeat.remove(chunk.range.clone());
            return Some(chunk);
        }
        let end = self.written.min(limit);
        if self.sent >= end {
            return None;
        }
        self.cursor = self.index_of(self.sent);
        let chunk = self.cut(self.sent..end, data_bytes_max, false)?;
        self.sent = self.done.run_end(chunk.range.end);
        Some(chunk)
    }

    /// Cuts from the front of `range` what fits into one frame: runs over segments of bytes, but never beyond the end
    /// of a message.
    fn cut(&self, range: Range<u64>, data_bytes_max: usize, repeat: bool) -> Option<Chunk> {
        let mut chunk = Chunk {
            range: range.start..range.start,
            data_bytes: 0,
            message: false,
            presented: false,
            begin: false,
            end: false,
            fin: false,
            repeat,
        };
        let mut index = self.index_of(range.start);
        while let Some(segment) = self.segments.get(index).filter(|s| s.start < range.end) {
            let segment = segment.piece_at(chunk.range.end);
            // segmentation.md R-4: bytes of one message, or of none; R-10: bytes run over writes.
            if segment.message && chunk.data_bytes > 0 {
                return Some(chunk);
            }
            let end = segment.data_end().min(range.end);
            let take = (end.saturating_sub(chunk.range.end)).min((data_bytes_max - chunk.data_bytes) as u64);
            (chunk.message, chunk.presented) = (segment.message, segment.presented);
            chunk.begin = segment.message && chunk.range.start == segment.start;
            chunk.data_bytes += take as usize;
            chunk.range.end += take;
            if segment.message {
                chunk.end = chunk.range.end == segment.data_end() && range.end >= segment.end();
                chunk.range.end += u64::from(chunk.end);
                // segmentation.md R-5: the end of the flow may ride on its last message.
                if !chunk.end {
                    return (!chunk.range.is_empty()).then_some(chunk);
                }
            } else if chunk.range.end < segment.data_end() {
                return (!chunk.range.is_empty()).then_some(chunk);
            }
            if segment.message {
                break;
            }
            index += 1;
        }
        if self.fin == Some(chunk.range.end) && range.end > chunk.range.end {
            chunk.fin = true;
            chunk.range.end += 1;
        }
        (!chunk.range.is_empty()).then_some(chunk)
    }

    /// Appends a chunk's data to `out`.
    pub fn copy(&self, chunk: &Chunk, out: &mut Vec<u8>) {
        let mut at = chunk.range.start;
        let end = at + chunk.data_bytes as u64;
        let mut index = self.index_of(at);
        while at < end {
            let Some(segment) = self.segments.get(index).map(|segment| segment.piece_at(at)) else { return };
            let from = (at - segment.start) as usize;
            let to = (end.min(segment.data_end()) - segment.start) as usize;
            out.extend_from_slice(&segment.data[from..to]);
            at = segment.data_end();
            index += 1;
        }
    }

    /// Positions arrived at the peer.
    pub fn on_acknowledged(&mut self, range: Range<u64>) {
        self.settle(range);
    }

    /// Positions are to be sent again, those excepted that have arrived meanwhile.
    pub fn repeat(&mut self, range: Range<u64>) {
        for gap in self.done.gaps(range.start..range.end.min(self.sent)).collect::<Vec<_>>() {
            self.repeat.insert(gap);
        }
    }

    /// Positions are given up: whole messages, since a part of one is of no use, but never the end of the flow.
    /// The peer must be told ([`SendBuffer::pop_skip`]).
    pub fn abandon(&mut self, range: Range<u64>) {
        // segmentation.md R-6.
        let mut whole = range.clone();
        let mut at = self.index_of(range.start);
        while let Some(s) = self.segments.get(at).filter(|s| s.start < range.end) {
            if s.is_message() {
                let first = s.piece_at(range.start.max(s.start));
                let last = s.piece_at(range.end.min(s.end()) - 1);
                whole = whole.start.min(first.start)..whole.end.max(last.end());
            }
            at += 1;
        }
        if let Some(fin) = self.fin.filter(|fin| whole.contains(fin)) {
            whole.end = fin;
            self.repeat.insert(fin..fin + 1);
        }
        if whole.is_empty() {
            return;
        }
        // segmentation.md R-7: what arrived need not be skipped.
        for gap in self.done.gaps(whole.clone()).collect::<Vec<_>>() {
            self.skips.insert(gap);
        }
        self.settle(whole);
    }

    /// Gives up messages that have expired, unsent or unacknowledged. Says how many.
    pub fn expire(&mut self, now: Time) -> usize {
        let mut messages = 0;
        // segmentation.md R-8.
        while let Some(range) = self.expiries.pop_due(now) {
            let first = self.index_of(range.start);
            messages += (self.segments.range(first.min(self.segments.len())..))
                .take_while(|s| s.start < range.end)
                .flat_map(|s| (0..s.messages as usize).map(|index| s.piece(index, s.piece_bytes())))
                .filter(|s| range.contains(&s.start) && !self.done.contains_range(&(s.start..s.end())))
                .count();
            self.abandon(range);
        }
        messages
    }

    /// When the next message expires.
    #[inline]
    pub fn next_expiry(&self) -> Option<Time> {
        self.expiries.next()
    }

    /// The next run of given-up positions of which the peer must be told.
    pub fn pop_skip(&mut self) -> Option<Range<u64>> {
        let range = self.skips.pop_first()?;
        self.told.insert(range.clone());
        Some(range)
    }

    /// A notice of given-up positions has arrived.
    pub fn on_skip_acknowledged(&mut self, range: Range<u64>) {
        self.told.remove(range);
    }

    /// The peer waits for no positions, so that it need not be told of those that were given up.
    pub fn forget_skips(&mut self) {
        self.skips.clear();
    }

    /// A notice of given-up positions was lost (segmentation.md R-7).
    pub fn repeat_skip(&mut self, range: Range<u64>) {
        self.told.remove(range.clone());
        self.skips.insert(range);
    }

    /// Gives up everything: the flow was reset.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.repeat.clear();
        self.skips.clear();
        self.told.clear();
        self.held_bytes = 0;
        self.expiries.clear();
        self.finish();
        self.sent = self.written;
        self.done.insert(0..self.written);
    }

    fn settle(&mut self, range: Range<u64>) {
        self.repeat.remove(range.clone());
        self.done.insert(range);
        // segmentation.md R-7: what was given up unsent is passed over.
        self.sent = self.done.run_end(self.sent);
        // segmentation.md R-9.
        let edge = self.done.run_end(0);
        let (mut settled, mut freed) = (0, 0);
        for front in self.segments.iter().take_while(|s| s.end() <= edge) {
            settled += 1;
            freed += front.data.len();
        }
        // To drain takes more than one is worth, and less than many.
        if settled == 1 {
            self.segments.pop_front();
        } else {
            self.segments.drain(..settled);
        }
        self.cursor = self.cursor.saturating_sub(settled);
        self.held_bytes -= freed;
        if !self.expiries.is_empty() {
            self.expiries.forget(&self.done);
        }
    }

    /// Gives back memory that nothing is in.
    pub fn shrink(&mut self) {
        self.segments.shrink_to_fit();
        self.expiries.shrink();
        for set in [&mut self.done, &mut self.repeat, &mut self.skips, &mut self.told] {
            set.shrink();
        }
    }

    /// Bytes of heap memory beyond the application's data.
    pub fn heap_bytes(&self) -> usize {
        self.segments.capacity() * size_of::<Segment>()
            + self.expiries.heap_bytes()
            + self.done.heap_bytes()
            + self.repeat.heap_bytes()
            + self.skips.heap_bytes()
            + self.told.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(buffer: &SendBuffer, chunk: &Chunk) -> String {
        let mut out = Vec::new();
        buffer.copy(chunk, &mut out);
        String::from_utf8(out).expect("test data is text")
    }

    #[test]
    fn bytes_run_over_writes_and_end_with_fin() {
        let mut b = SendBuffer::default();
        b.write(Bytes::from_static(b"abc"));
        b.write(Bytes::from_static(b"defg"));
        b.finish();
        let c = b.next_chunk(5, 100).expect("data");
        assert_eq!((c.range.clone(), c.fin, text(&b, &c)), (0..5, false, "abcde".into()));
        let c = b.next_chunk(5, 100).expect("data");
        assert_eq!((c.range.clone(), c.fin, text(&b, &c)), (5..8, true, "fg".into()));
        assert!(b.next_chunk(5, 100).is_none());
        b.on_acknowledged(0..8);
        assert!(b.is_complete() && b.held_bytes() == 0);
    }

    #[test]
    fn bytes_go_by_themselves_until_something_else_is_due() {
        let mut b = SendBuffer::default();
        let mut out = b"before ".to_vec();
        for text in ["abc", "defg", "hi"] {
            b.write(Bytes::from_static(text.as_bytes()));
        }
        assert_eq!(b.next_bytes(5, 100, &mut out), Some(0..5));
        // What lies beyond the limit, and the last that may be sent, is for the general way.
        assert_eq!((b.next_bytes(3, 7, &mut out), b.next_bytes(4, 100, &mut out)), (None, None));
        // So is what is to be repeated, and what comes behind it meanwhile.
        b.repeat(0..2);
        assert_eq!(b.next_bytes(1, 100, &mut out), None);
        assert_eq!(b.next_chunk(9, 100).map(|c| c.range), Some(0..2));
        assert_eq!(b.next_bytes(1, 100, &mut out), Some(5..6));
        // Bytes of a message are none of a file.
        b.write_message(Bytes::from_static(b"message"), None);
        assert_eq!((b.next_bytes(4, 100, &mut out), b.next_bytes(3, 100, &mut out)), (None, Some(6..9)));
        assert_eq!(b.next_bytes(2, 100, &mut out), None);
        assert_eq!(out, b"before abcdefghi");
        // The end of a flow travels with its last byte.
        let mut b = SendBuffer::default();
        b.write(Bytes::from_static(b"abc"));
        b.finish();
        assert_eq!((b.next_bytes(3, 100, &mut out), b.next_chunk(3, 100).map(|c| c.fin)), (None, Some(true)));
    }

    #[test]
    fn messages_never_share_a_chunk() {
        let mut b = SendBuffer::default();
        b.write_message(Bytes::from_static(b"one"), None);
        b.write_message(Bytes::new(), None);
        b.write_message(Bytes::from_static(b"three"), None);
        b.finish();
        let c = b.next_chunk(50, 100).expect("one");
        assert_eq!((c.range.clone(), c.begin, c.end, text(&b, &c)), (0..4, true, true, "one".into()));
        let c = b.next_chunk(50, 100).expect("the empty one");
        assert_eq!((c.range.clone(), c.begin, c.end, c.data_bytes), (4..5, true, true, 0));
        let c = b.next_chunk(3, 100).expect("a part");
        assert_eq!((c.range.clone(), c.begin, c.end, text(&b, &c)), (5..8, true, false, "thr".into()));
        let c = b.next_chunk(3, 100).expect("the rest");
        assert_eq!(
            (c.range.clone(), c.begin, c.end, c.fin, text(&b, &c)),
            (8..12, false, true, true, "ee".into())
        );
    }

    #[test]
    fn credit_limits_new_data_but_not_repeats() {
        let mut b = SendBuffer::default();
        b.write(Bytes::from_static(b"abcdef"));
        let c = b.next_chunk(10, 4).expect("four");
        assert_eq!(c.range, 0..4);
        assert!(b.next_chunk(10, 4).is_none() && b.is_blocked(4));
        b.on_acknowledged(1..2);
        b.repeat(0..4);
        let repeats: Vec<_> =
            core::iter::from_fn(|| b.next_chunk(10, 4)).map(|c| (c.range, c.repeat)).collect();
        assert_eq!(repeats, [(0..1, true), (2..4, true)]);
    }

    #[test]
    fn each_message_expires_at_its_own_time_unless_it_has_arrived() {
        let (early, late) = (Time::from_millis(5), Time::from_millis(9));
        let mut b = SendBuffer::default();
        let three = || ["one", "two", "three"].map(|text| Bytes::from_static(text.as_bytes())).into_iter();
        b.write_messages(three(), Some(late));
        b.write_messages(three(), Some(early));
        b.write_message(Bytes::from_static(b"for ever"), None);
        assert_eq!(b.next_expiry(), Some(early));
        // The second of the early ones arrives, as does the first of all.
        while b.next_chunk(100, 100).is_some() {}
        b.on_acknowledged(18..22);
        b.on_acknowledged(0..4);
        assert_eq!((b.expire(Time::from_millis(4)), b.expire(early)), (0, 2));
        assert_eq!((b.pop_skip(), b.pop_skip(), b.pop_skip()), (Some(14..18), Some(22..28), None));
        assert_eq!(b.next_expiry(), Some(late));
        // What stands behind them is free as soon as they are.
        assert_eq!((b.expire(late), b.next_expiry(), b.held_bytes()), (2, None, 8));
        // All that arrives in time expires never.
        b.write_message(Bytes::from_static(b"late"), Some(late));
        b.on_acknowledged(28..42);
        assert_eq!((b.next_expiry(), b.expire(Time::from_millis(99)), b.held_bytes()), (None, 0, 0));
    }

    #[test]
    fn giving_up_a_part_gives_up_the_message_but_not_the_end_of_the_flow() {
        let mut b = SendBuffer::default();
        b.write_message(Bytes::from_static(b"abcdef"), None);
        b.write_message(Bytes::from_static(b"xy"), Some(Time::from_millis(5)));
        b.finish();
        let first = b.next_chunk(3, 100).expect("a part");
        b.abandon(first.range);
        assert_eq!(b.pop_skip(), Some(0..7));
        let c = b.next_chunk(9, 100).expect("the next message");
        assert_eq!((c.range.clone(), c.fin), (7..11, true));
        assert_eq!(b.next_expiry(), Some(Time::from_millis(5)));
        assert_eq!((b.expire(Time::from_millis(6)), b.held_bytes()), (1, 0));
        assert_eq!(b.pop_skip(), Some(7..10));
        // The chunk that carried the end is lost: the end is repeated, the message is not.
        b.repeat(c.range);
        let c = b.next_chunk(9, 100).expect("the end");
        assert_eq!((c.range.clone(), c.fin, c.data_bytes), (10..11, true, 0));
        b.on_acknowledged(10..11);
        // Until the peer knows what it need not wait for, the notices may have to be repeated.
        assert!(!b.is_complete());
        b.on_skip_acknowledged(0..7);
        b.repeat_skip(7..10);
        assert_eq!(b.pop_skip(), Some(7..10));
        b.on_skip_acknowledged(7..10);
        assert!(b.is_complete());
    }

    /// What happens to a sender's state of a flow.
    #[derive(Clone, Debug)]
    enum Deed {
        /// So many messages of so many bytes are handed over, with a lifetime or none.
        Write(u32, usize, Option<u64>),
        Chunk(usize),
        /// So many whole messages are sent.
        Whole(usize),
        Acknowledge(u64, u64),
        Lose(u64, u64),
        Abandon(u64, u64),
        Expire(u64),
        Skip,
    }

    fn deeds() -> impl Strategy<Value = Vec<Deed>> {
        let range = || (0..120_u64, 1..40_u64);
        let deed = prop_oneof![
            (1..9_u32, 0..12_usize, proptest::option::of(0..50_u64))
                .prop_map(|(n, len, at)| Deed::Write(n, len, at)),
            (1..30_usize).prop_map(Deed::Chunk),
            (1..9_usize).prop_map(Deed::Whole),
            range().prop_map(|(from, len)| Deed::Acknowledge(from, from + len)),
            range().prop_map(|(from, len)| Deed::Lose(from, from + len)),
            range().prop_map(|(from, len)| Deed::Abandon(from, from + len)),
            (0..60_u64).prop_map(Deed::Expire),
            Just(Deed::Skip),
        ];
        proptest::collection::vec(deed, 1..60)
    }

    /// To send messages together is to send as many one by one.
    fn check_together(b: &SendBuffer, most: usize, limit: u64) {
        let (mut together, mut singly) = (b.clone(), b.clone());
        let (Some(mut messages), Some(mut one_by_one)) =
            (together.unsent_messages(limit), singly.unsent_messages(limit))
        else {
            return;
        };
        let Some(Together { start, message_bytes, count }) = messages.together() else { return };
        let bytes = messages.send_together(most);
        let mut data = Vec::new();
        for n in 0..count.min(most) {
            let message = one_by_one.front().expect("one more");
            assert_eq!(message.start, start + (n * (message_bytes + 1)) as u64);
            assert!(message.data.len() == message_bytes && !message.presented && message.following.is_some());
            data.extend_from_slice(message.data);
            one_by_one.on_sent();
        }
        assert_eq!(bytes, data);
        while one_by_one.front().is_some() {
            assert_eq!(format!("{:?}", messages.front()), format!("{:?}", one_by_one.front()));
            assert_eq!(messages.taken(), one_by_one.taken());
            (messages.on_sent(), one_by_one.on_sent());
        }
        assert_eq!((messages.front().is_none(), messages.taken()), (true, one_by_one.taken()));
        assert_eq!((together.sent, together.cursor), (singly.sent, singly.cursor));
    }

    /// Does it, and says all that can be seen of it.
    fn outcome(b: &mut SendBuffer, deed: &Deed, kept_together: bool, limit: u64) -> String {
        let told = match *deed {
            Deed::Write(count, len, at) => {
                let (data, at) = (vec![count as u8; len * count as usize], at.map(Time::from_millis));
                if kept_together {
                    b.write_row(data.into(), count, at);
                } else {
                    let messages = (0..count as usize).map(|n| data[n * len..(n + 1) * len].to_vec().into());
                    b.write_messages(messages.collect::<Vec<Bytes>>().into_iter(), at);
                }
                String::new()
            }
            Deed::Chunk(most) => {
                let chunk = b.next_chunk(most, limit);
                let mut out = Vec::new();
                let _ = chunk.as_ref().map(|chunk| b.copy(chunk, &mut out));
                format!("{chunk:?} {out:?}")
            }
            Deed::Whole(most) => {
                check_together(b, most, limit);
                let next = b.unsent_message();
                let whole = b.unsent_messages(limit).map(|mut messages| {
                    let mut seen = Vec::new();
                    let place = messages.place();
                    messages.on_sent();
                    messages.go_back(place);
                    seen.extend(messages.front().map(|message| format!("{message:?}")));
                    messages.on_sent();
                    let count = messages.send_row(false, false, |start, data, next| {
                        seen.push(format!("{start} {data:?} {next}"));
                        seen.len() < most
                    });
                    format!(
                        "{seen:?} {count} {:?} {:?} {}",
                        messages.front(),
                        messages.taken(),
                        messages.has_more()
                    )
                });
                format!("{next:?} {whole:?}")
            }
            // Only what was sent can arrive, or be lost.
            Deed::Acknowledge(from, to) => {
                format!("{:?}", b.on_acknowledged(from.min(b.sent)..to.min(b.sent)))
            }
            Deed::Lose(from, to) => format!("{:?}", b.repeat(from.min(b.sent)..to.min(b.sent))),
            Deed::Abandon(from, to) => format!("{:?}", b.abandon(from.min(b.written)..to.min(b.written))),
            Deed::Expire(at) => format!("{}", b.expire(Time::from_millis(at))),
            Deed::Skip => format!("{:?}", b.pop_skip()),
        };
        let state =
            (b.sent, b.written, &b.done, &b.repeat, &b.skips, b.next_expiry(), b.wants_to_send(limit));
        format!("{told} {state:?}")
    }

    proptest! {
        /// Nobody sees whether messages are kept together, but who looks at memory: that is set free with the last of them.
        #[test]
        fn messages_that_are_kept_together_go_as_those_that_are_not(deeds in deeds(), limit in 20..400_u64) {
            let (mut rows, mut singles) = (SendBuffer::default(), SendBuffer::default());
            for deed in &deeds {
                let seen = outcome(&mut rows, deed, true, limit);
                prop_assert_eq!(seen, outcome(&mut singles, deed, false, limit), "{:?}", deed);
                prop_assert!(rows.held_bytes() >= singles.held_bytes());
            }
            for b in [&mut rows, &mut singles] {
                b.on_acknowledged(0..b.written);
                prop_assert_eq!((b.held_bytes(), b.load_bytes(), b.next_expiry()), (0, 0, None));
            }
        }
    }
}
