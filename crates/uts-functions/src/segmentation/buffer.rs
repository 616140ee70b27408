//! Data that a flow's sender holds: handed over by the application and not yet acknowledged or
//! given up.

use crate::range::RangeSet;
use crate::time::Time;
use bytes::Bytes;
use core::ops::Range;
pub use expiry::Expired;
use expiry::Expiries;
pub use plain::UnsentBytes;
use segment::Segment;
use std::collections::VecDeque;
pub use unsent::{Place, Together, Unsent, UnsentMessages};

mod expiry;
mod plain;
mod segment;
mod unsent;

/// Least load of a write or a message against the room that a flow has, in bytes: a quarter of what
/// it takes to keep track of it. Writes of less hold up to four times that room beside their data;
/// what is larger is bounded by its data alone.
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
    /// The message is in the form that a presentation mechanism gave it.
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
    /// Place among the segments of what was cut last: what is cut next mostly lies there, or
    /// behind.
    cursor: usize,
}

impl SendBuffer {
    /// Appends bytes.
    pub fn write(&mut self, data: Bytes) {
        self.push(data, [false; 2], None);
    }

    /// Appends bytes in the form that a presentation mechanism gave them, in which they travel
    /// whatever mechanism follows (segmentation.md R-2).
    pub fn write_presented_bytes(&mut self, data: Bytes) {
        self.push(data, [false, true], None);
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

    /// Appends one message in the form that a presentation mechanism gave it, in which it travels
    /// whatever mechanism follows (segmentation.md R-2).
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

    /// True if the application has ended the flow.
    pub fn is_finished(&self) -> bool {
        self.fin.is_some()
    }

    /// Bytes held: written and not yet acknowledged from the front on.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Load of the held data against the room that a flow has, in bytes: the data or, where its
    /// pieces are so small that to keep track of them takes a multiple of that, [`PIECE_BYTES`] for
    /// each.
    pub fn load_bytes(&self) -> usize {
        self.held_bytes.max(self.segments.len() * PIECE_BYTES)
    }

    /// Memory that is held, in bytes, and what it takes to keep track of it.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        self.held_bytes + self.segments.len() * size_of::<Segment>()
    }

    /// Number of messages of these sizes that fill room of `capacity` bytes
    /// ([`SendBuffer::load_bytes`]), the last one whole; and their bytes.
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

    /// The same, the end of the flow left out.
    pub fn sent_data(&self) -> u64 {
        self.fin.map_or(self.sent, |fin| self.sent.min(fin))
    }

    /// Everything below this position has arrived at the peer, or was given up.
    pub fn done_to(&self) -> u64 {
        self.done.run_end(0)
    }

    /// Everything below this position has arrived at the peer, or the peer knows that it was given
    /// up.
    pub fn known_to(&self) -> u64 {
        let untold = self.skips.first().into_iter().chain(self.told.first()).map(|range| range.start);
        untold.fold(self.done_to(), u64::min)
    }

    /// The end of the highest data that has arrived at the peer, or was given up.
    pub fn heard_to(&self) -> u64 {
        self.done.last().map_or(0, |last| last.end)
    }

    /// True if all of these positions have arrived at the peer, or were given up.
    pub fn counts(&self, range: &Range<u64>) -> bool {
        self.done.contains_range(range)
    }

    /// True if everything, the end included, is acknowledged or given up and the peer has been
    /// told.
    pub fn is_complete(&self) -> bool {
        self.fin.is_some()
            && self.done.run_end(0) == self.written
            && self.skips.is_empty()
            && self.told.is_empty()
    }

    /// From the first to the last position that waits to be sent again; empty if none does.
    pub fn repeats(&self) -> Range<u64> {
        self.repeat.first().map_or(0, |first| first.start)..self.repeat.last().map_or(0, |last| last.end)
    }

    /// Takes all from a position on out of what waits to be sent again.
    pub fn take_repeats_from(&mut self, position: u64) -> RangeSet {
        let mut taken = RangeSet::new();
        for range in self.repeat.iter().filter(|range| range.end > position) {
            taken.insert(range.start.max(position)..range.end);
        }
        self.repeat.remove(position..u64::MAX);
        taken
    }

    /// True if there is something to send below the flow-control `limit`.
    pub fn wants_to_send(&self, limit: u64) -> bool {
        !self.repeat.is_empty() || (self.sent < self.written && self.sent < limit)
    }

    /// True if new data waits only for the peer's credit.
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

    /// The next chunk of at most `data_bytes_max` bytes, repeats first, new data only below
    /// `limit`; `None` if there is nothing. The caller must send it.
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

    /// Cuts from the front of `range` what fits into one frame: runs over segments of bytes, but
    /// never beyond the end of a message.
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
            // segmentation.md R-4: bytes of one message, or of none, and of one form; R-10: bytes
            // run over writes.
            if chunk.data_bytes > 0 && (segment.message || segment.presented != chunk.presented) {
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

    /// Where the message begins, or the stretch of bytes, that has this position.
    pub fn begin_of(&self, position: u64) -> Option<u64> {
        Some(self.segments.get(self.index_of(position))?.piece_at(position).start)
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
        let sent = range.start.min(self.sent)..range.end.min(self.sent);
        for gap in self.done.gaps(sent).collect::<Vec<_>>() {
            self.repeat.insert(gap);
        }
    }

    /// Positions are given up: whole messages, since a part of one is of no use, but never the end
    /// of the flow. The peer must be told ([`SendBuffer::pop_skip`]). Returns how many they are,
    /// without those that had arrived or been given up before.
    pub fn abandon(&mut self, range: Range<u64>) -> u64 {
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
            return 0;
        }
        let mut given_up = 0;
        // segmentation.md R-7: what arrived need not be skipped.
        for gap in self.done.gaps(whole.clone()).collect::<Vec<_>>() {
            given_up += gap.end - gap.start;
            self.skips.insert(gap);
        }
        self.settle(whole);
        given_up
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
        // retransmission.md R-3.
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
mod tests;
