//! Data that a flow's receiver holds: it arrived and was not handed over.
//!
//! Two cases are common. Bytes that arrive in order, and are read as they come, go into one buffer
//! ([`Run`]) and come out of it in long stretches; whatever else happens turns the run into a piece
//! like others first. Messages that come whole, behind everything else, wait in one queue, in
//! memory that those of a packet share ([`Arena`]). Trees are for all the rest.

mod arena;
mod damaged;
mod given_up;
mod newest;
mod orders;
mod placed;
mod revocable;
mod room;
mod run;
mod spares;
mod whole;

use crate::range::RangeSet;
use crate::sequencing::message_row::MessageRow;
use arena::Arena;
use bytes::{Bytes, BytesMut};
use core::ops::Range;
use orders::Orders;
use run::Run;
pub use spares::Spares;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Data as it came in one frame.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Position of the first byte.
    pub start: u64,
    /// The bytes.
    pub data: Bytes,
    /// It belongs to a message.
    pub message: bool,
    /// The message is in the form that a presentation mechanism gave it.
    pub presented: bool,
    /// It starts with the first byte of a message.
    pub begin: bool,
    /// The message ends behind its last byte (which takes a position).
    pub end: bool,
    /// The flow ends behind it (which takes a position).
    pub fin: bool,
}

/// Part of a flow that is handed over: data, a gap, or the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A stretch of bytes, and its position in the flow.
    Bytes(u64, Bytes),
    /// The same in the form that a presentation mechanism gave them.
    PresentedBytes(u64, Bytes),
    /// A whole message, and its position in the flow.
    Message(u64, Bytes),
    /// A whole message in the form that a presentation mechanism gave it, and its position in the
    /// flow.
    Presented(u64, Bytes),
    /// A whole message that came damaged, where its sender allows that; its position in the flow,
    /// and how many bytes of it are right.
    Damaged(u64, Bytes, u64),
    /// The sender gave up this many positions here.
    Skipped(u64),
    /// The flow has ended.
    End,
}

/// Why a segment was refused: the peer breaks the rules of the flow. (flows.md F-10)
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The end of the flow was said to be elsewhere.
    #[error("the end of the flow moved from position {known} to {said}")]
    EndMoved {
        /// Where it was said to be first.
        known: u64,
        /// Where it is said to be now.
        said: u64,
    },
    /// Data beyond the end of the flow.
    #[error("data at position {position} beyond the end of the flow at {end}")]
    BeyondEnd {
        /// Where the data reaches to.
        position: u64,
        /// Where the flow ends.
        end: u64,
    },
    /// More than the receiver has room for.
    #[error("data up to position {position}, beyond the limit {limit}")]
    BeyondLimit {
        /// Where the data reaches to.
        position: u64,
        /// The limit.
        limit: u64,
    },
}

/// Messages without positions that may wait to be read; beyond, the newest are dropped, as a full
/// queue would.
pub const UNPLACED_MAX: usize = 4096;

/// Least load of a message, or of a stretch of bytes that does not follow on another, against the
/// room that a flow has, in bytes: a quarter of what it takes to keep track of it.
pub const PIECE_BYTES: usize = size_of::<Ready>() / 4;

/// Places that a list keeps when it is empty.
const LIST_MIN: usize = 16;

/// Memory that it takes to keep track of data which does not follow on other, in bytes: a place in
/// the tree of pieces, half of whose places are free in the worst case; the handle of its memory;
/// and places among the ranges that have arrived and what may be read.
pub const PIECE_MEMORY_BYTES: usize = 2 * (size_of::<Piece>() + 16) + 32 + 2 * size_of::<Ready>();

#[derive(Clone, Debug)]
struct Piece {
    data: Bytes,
    message: bool,
    presented: bool,
    /// A message's end follows the data and belongs to this piece.
    end: bool,
}

impl Piece {
    fn positions(&self) -> u64 {
        self.data.len() as u64 + u64::from(self.end)
    }
}

/// Data that may be handed over out of order.
#[derive(Clone, Debug)]
struct Ready {
    /// Position of the piece, or of the first message.
    start: u64,
    /// Messages that came whole, one behind the other, which are in no tree.
    whole: Option<MessageRow>,
}

/// The receiver's state of one flow.
#[derive(Clone, Debug, Default)]
pub struct Reassembly {
    /// Bytes that came in order, before they are a piece: they lie behind all pieces, and nothing
    /// settled behind them.
    run: Run,
    pieces: BTreeMap<u64, Piece>,
    /// Arrived, or given up by the sender.
    settled: RangeSet,
    /// Handed over, or given up by the sender.
    delivered: RangeSet,
    begins: BTreeSet<u64>,
    ends: BTreeSet<u64>,
    /// Data that may be handed over out of order, in order of completion. Messages in it that came
    /// whole ascend.
    ready: VecDeque<Ready>,
    /// There may be pieces to hand over out of order that are not in `ready`.
    unindexed: bool,
    /// Messages that came without positions, and how many they are.
    unplaced: VecDeque<MessageRow>,
    unplaced_count: usize,
    arena: Arena,
    fin: Option<u64>,
    /// The end of the highest data that has arrived, where nothing was given up before it.
    seen: u64,
    /// Positions that count as handed over because they were given up.
    given_up: u64,
    end_delivered: bool,
    held_bytes: usize,
    /// Positions given up of which the application has not been told.
    skipped: RangeSet,
    /// Positions that messages wait for, where they are said.
    orders: Option<Box<Orders>>,
    /// Positions of data that came damaged, and was not handed over.
    damaged: RangeSet,
    /// Of what has arrived, what may be given up again.
    revocable: Option<Box<RangeSet>>,
}

impl Reassembly {
    /// One that shares large buffers with others.
    pub fn sharing(spares: Spares) -> Self {
        Reassembly { run: Run::sharing(spares), ..Self::default() }
    }

    /// True if anything is held, be it but an empty message, that can be read now or later.
    pub fn holds_anything(&self) -> bool {
        !(self.pieces.is_empty() && self.ready.is_empty() && self.run.is_empty() && self.unplaced.is_empty())
    }

    /// Bytes held.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Load of the held data against the room that a flow has, in bytes: the data or, where its
    /// pieces are so small that to keep track of them takes a multiple of that, [`PIECE_BYTES`] for
    /// each.
    #[inline]
    pub fn load_bytes(&self) -> usize {
        let pieces = self.ready.len() + self.unplaced.len() + self.pieces.len();
        self.held_bytes.max(pieces * PIECE_BYTES)
    }

    /// Everything below this position has been handed over or given up.
    pub fn consumed(&self) -> u64 {
        self.delivered.run_end(0)
    }

    /// Everything below this position has arrived or been given up.
    pub fn contiguous(&self) -> u64 {
        self.settled.run_end(0)
    }

    /// Position that the sender has reached: it has sent all below, or given it up. Positions that
    /// it has given up beyond are not counted before data follows on them. (flow.md R-33)
    #[inline]
    pub fn reached(&self) -> u64 {
        let reached = self.settled.run_end(self.seen);
        self.fin.map_or(reached, |fin| reached.min(fin))
    }

    /// Positions that were given up, and so count as handed over.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// True if all of these positions have been handed over or given up.
    pub fn is_handed_over(&self, range: &Range<u64>) -> bool {
        self.delivered.contains_range(range)
    }

    /// True if the end has been handed over.
    pub fn is_ended(&self) -> bool {
        self.end_delivered
    }

    /// True if everything has arrived, the end included.
    pub fn is_complete(&self) -> bool {
        self.fin.is_some_and(|fin| self.settled.run_end(0) > fin)
    }

    /// Where the flow ends, if that is known.
    pub fn end_position(&self) -> Option<u64> {
        self.fin
    }

    /// Takes in bytes that follow on the last that have arrived; says whether it did. If not, they
    /// are for [`Reassembly::insert`], and nothing has changed.
    pub fn append(&mut self, start: u64, bytes: &[u8], limit: u64) -> bool {
        let end = start.saturating_add(bytes.len() as u64);
        let follows = self.settled.last().map_or(0, |last| last.end) == start;
        if !follows || bytes.is_empty() || self.fin.is_some() || end > limit {
            return false;
        }
        self.run.rewind();
        if !self.run.has_room(bytes.len()) {
            self.end_run();
            self.run.make_room(bytes.len());
        }
        self.run.push(start, bytes);
        self.settled.insert(start..end);
        self.held_bytes += bytes.len();
        self.seen = end;
        true
    }

    /// Makes the run a piece like others.
    #[inline]
    fn end_run(&mut self) {
        if !self.run.is_empty() {
            self.make_run_a_piece();
        }
    }

    fn make_run_a_piece(&mut self) {
        if let Some((start, data)) = self.run.take(usize::MAX) {
            self.pieces.insert(start, Piece { data, message: false, presented: false, end: false });
            self.push_ready(start);
        }
    }

    fn push_ready(&mut self, start: u64) {
        self.ready.push_back(Ready { start, whole: None });
    }

    /// Takes in what a frame carried; says how many positions were new. Data at `limit` or beyond
    /// is refused.
    ///
    /// # Errors
    /// [`SegmentError`] if the peer breaks the rules; nothing is changed then.
    pub fn insert(&mut self, segment: Segment, limit: u64) -> Result<u64, SegmentError> {
        // sequencing.md R-2.
        let data_end = segment.start + segment.data.len() as u64;
        let own_end = data_end + u64::from(segment.end);
        let end = own_end + u64::from(segment.fin);
        self.admit(segment.start..own_end, segment.fin, limit)?;
        self.confirm(segment.start..own_end);
        self.end_run();
        // sequencing.md R-1.
        let fresh: smallvec::SmallVec<[Range<u64>; 2]> = self.settled.gaps(segment.start..own_end).collect();
        let mut new = 0;
        for gap in &fresh {
            new += gap.end - gap.start;
            self.insert_piece(gap, data_end, &segment);
        }
        if segment.begin && fresh.first().is_some_and(|f| f.start == segment.start) {
            self.begins.insert(segment.start);
        }
        self.settled.insert(segment.start..end);
        self.seen = self.seen.max(own_end);
        if segment.fin {
            self.fin = Some(own_end);
        }
        for gap in fresh {
            if segment.message && self.drop_dead(gap.start) {
                continue;
            }
            self.note_ready(gap.start, segment.message);
        }
        Ok(new)
    }

    /// Looks whether data may be at these positions, at whose end the flow ends or not.
    ///
    /// # Errors
    /// [`SegmentError`] if the peer breaks the rules.
    pub fn admit(&self, own: Range<u64>, fin: bool, limit: u64) -> Result<(), SegmentError> {
        let last = self.settled.last().map_or(0, |last| last.end);
        if fin && self.fin.is_some_and(|fin| fin != own.end) {
            return Err(SegmentError::EndMoved { known: self.fin.unwrap_or(0), said: own.end });
        }
        if let Some(end) = self.fin.filter(|end| own.end > *end) {
            return Err(SegmentError::BeyondEnd { position: own.end, end });
        }
        if fin && last > own.end + 1 {
            return Err(SegmentError::EndMoved { known: last, said: own.end });
        }
        if own.end > limit {
            return Err(SegmentError::BeyondLimit { position: own.end, limit });
        }
        Ok(())
    }

    fn insert_piece(&mut self, gap: &Range<u64>, data_end: u64, segment: &Segment) {
        let from = (gap.start.min(data_end) - segment.start) as usize;
        let to = (gap.end.min(data_end) - segment.start) as usize;
        let end = segment.end && gap.end > data_end;
        if end {
            self.ends.insert(data_end);
        }
        self.held_bytes += to - from;
        self.pieces.insert(
            gap.start,
            Piece {
                data: segment.data.slice(from..to),
                message: segment.message,
                presented: segment.presented,
                end,
            },
        );
    }

    /// Notes what may be handed over out of order now that the piece at `start` is here.
    fn note_ready(&mut self, start: u64, message: bool) {
        if !message {
            self.push_ready(start);
        } else if let Some(whole) = self.whole_message_around(start) {
            self.push_ready(whole.start);
            if let Some(orders) = &mut self.orders {
                orders.on_whole(whole.start);
            }
        }
    }

    /// The positions of the message around `position`, its end marker included, if it is whole
    /// (sequencing.md R-3).
    fn whole_message_around(&self, position: u64) -> Option<Range<u64>> {
        let begin = *self.begins.range(..=position).next_back()?;
        let end = *self.ends.range(position..).next()?;
        self.settled.contains_range(&(begin..end + 1)).then_some(begin..end + 1)
    }

    /// The end of the highest data that has arrived or been given up, the marker that ends the flow
    /// left out.
    pub fn reaches(&self) -> u64 {
        let end = self.settled.last().map_or(0, |last| last.end);
        self.fin.map_or(end, |fin| end.min(fin))
    }

    /// Positions below [`Reassembly::reaches`] that have neither arrived nor been given up.
    pub fn missing(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.settled.gaps(0..self.reaches())
    }

    /// Gaps among the settled positions: what they take is what a peer can make this end remember.
    pub fn gaps(&self) -> usize {
        self.settled.len().saturating_sub(1)
    }

    /// True if data from `start` on follows on all that is settled.
    pub fn is_next(&self, start: u64) -> bool {
        self.settled.last().map_or(0, |last| last.end) == start
    }

    /// True if data from `start` on would lie apart from everything that is settled, and so leave
    /// one more gap.
    pub fn leaves_gap(&self, start: u64) -> bool {
        start > self.settled.run_end(0) && !self.settled.contains(start - 1)
    }

    fn take_piece(&mut self, start: u64) -> Option<Piece> {
        let piece = self.pieces.remove(&start)?;
        self.held_bytes -= piece.data.len();
        self.begins.remove(&start);
        if piece.end {
            self.ends.remove(&(start + piece.data.len() as u64));
        }
        Some(piece)
    }

    /// Bytes of the run, where nothing else waits to be handed over.
    fn pop_run(&mut self, bytes_max: usize) -> Option<Delivery> {
        if !(self.pieces.is_empty() && self.ready.is_empty() && self.skipped.is_empty()) {
            return None;
        }
        let (start, data) = self.run.read(bytes_max)?;
        self.held_bytes -= data.len();
        self.delivered.insert(start..start + data.len() as u64);
        Some(Delivery::Bytes(start, data))
    }

    /// Takes out the next data in order of position.
    pub fn pop_front(&mut self, bytes_max: usize) -> Option<Delivery> {
        if let Some(message) = self.pop_unplaced() {
            return Some(message);
        }
        if let Some(message) = self.pop_next_whole() {
            return Some(message);
        }
        // A gap may lie before the run.
        if self.run.start() == self.consumed()
            && let Some(bytes) = self.pop_run(bytes_max)
        {
            return Some(bytes);
        }
        if bytes_max > 0 {
            self.end_run();
        }
        if self.pieces.is_empty() && self.skipped.is_empty() {
            return self.pop_end();
        }
        let at = self.delivered.run_end(0);
        // sequencing.md R-5. What was given up is reported at the place where it is missing: once
        // everything below it was handed over.
        let before = self.skipped.count();
        self.skipped.remove_below(at);
        if self.skipped.count() < before {
            return Some(Delivery::Skipped(before - self.skipped.count()));
        }
        // sequencing.md R-8.
        match self.pieces.get(&at) {
            None => self.pop_end(),
            Some(piece) if piece.message => self.pop_message(at),
            Some(_) => self.pop_bytes(at, bytes_max),
        }
    }

    /// Whatever is whole, in order of completion.
    pub fn pop_any(&mut self, bytes_max: usize) -> Option<Delivery> {
        if let Some(message) = self.pop_unplaced() {
            return Some(message);
        }
        if let Some(bytes) = self.pop_run(bytes_max) {
            return Some(bytes);
        }
        self.end_run();
        // sequencing.md R-5.
        if !self.skipped.is_empty() {
            let positions = self.skipped.count();
            self.skipped.clear();
            return Some(Delivery::Skipped(positions));
        }
        // sequencing.md R-9.
        loop {
            if let Some(message) = self.pop_front_whole() {
                return Some(message);
            }
            let Some(Ready { start, .. }) = self.ready.pop_front() else { break };
            let delivery = match self.pieces.get(&start) {
                None => None,
                Some(piece) if piece.message => self.pop_message(start),
                Some(_) if bytes_max == 0 => {
                    // Who asks for nothing leaves it where it is.
                    self.ready.push_front(Ready { start, whole: None });
                    return None;
                }
                Some(_) => self.pop_bytes(start, bytes_max),
            };
            if delivery.is_some() {
                return delivery;
            }
        }
        if !self.unindexed {
            return self.pop_end();
        }
        // sequencing.md: pieces that arrived while another mechanism was in charge are not
        // in `ready`: look in order of position.
        let waiting =
            self.pieces.iter().find(|(start, p)| !p.message || self.whole_message_around(**start).is_some());
        match waiting.map(|(start, piece)| (*start, piece.message)) {
            Some((start, true)) => {
                let begin = self.whole_message_around(start)?.start;
                self.pop_message(begin)
            }
            Some((start, false)) => self.pop_bytes(start, bytes_max),
            None => {
                self.unindexed = false;
                self.pop_end()
            }
        }
    }

    fn pop_end(&mut self) -> Option<Delivery> {
        // sequencing.md R-6.
        let fin = self.fin?;
        if self.end_delivered || self.delivered.run_end(0) != fin {
            return None;
        }
        self.end_delivered = true;
        self.delivered.insert(fin..fin + 1);
        Some(Delivery::End)
    }

    fn pop_bytes(&mut self, start: u64, bytes_max: usize) -> Option<Delivery> {
        if bytes_max == 0 {
            return None;
        }
        let mut piece = self.take_piece(start)?;
        if piece.data.len() > bytes_max {
            let rest = piece.data.split_off(bytes_max);
            let rest_start = start + bytes_max as u64;
            self.held_bytes += rest.len();
            self.pieces.insert(rest_start, Piece { data: rest, ..piece });
            self.ready.push_front(Ready { start: rest_start, whole: None });
        }
        self.delivered.insert(start..start + piece.data.len() as u64);
        let delivery = if piece.presented { Delivery::PresentedBytes } else { Delivery::Bytes };
        Some(delivery(start, piece.data))
    }

    fn pop_message(&mut self, start: u64) -> Option<Delivery> {
        let whole = self.whole_message_around(start)?;
        let first = self.take_piece(whole.start)?;
        let mut at = whole.start + first.positions();
        let presented = first.presented;
        let data = if at == whole.end {
            first.data
        } else {
            let mut joined = BytesMut::with_capacity((whole.end - whole.start) as usize);
            joined.extend_from_slice(&first.data);
            while at < whole.end {
                let piece = self.take_piece(at)?;
                at += piece.positions();
                joined.extend_from_slice(&piece.data);
            }
            joined.freeze()
        };
        self.delivered.insert(whole.clone());
        if let Some(right_bytes) = self.take_damage(&whole) {
            return Some(Delivery::Damaged(whole.start, data, right_bytes));
        }
        Some(delivery(whole.start, data, presented))
    }

    /// Gives back memory that nothing is in.
    pub fn shrink(&mut self) {
        self.run.shrink();
        self.arena.shrink();
        self.ready.shrink_to_fit();
        self.unplaced.shrink_to_fit();
        for set in [&mut self.settled, &mut self.delivered, &mut self.skipped, &mut self.damaged] {
            set.shrink();
        }
    }

    /// All memory that is held, in bytes.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        self.held_bytes + self.heap_bytes()
    }

    /// Gives back memory that only waits to be used again, and copies what is held of a large
    /// buffer into a small one.
    pub fn compact(&mut self) {
        self.run.compact();
        if self.arena.spare_bytes() > 0 {
            self.arena.shrink();
        }
        self.let_go();
    }

    /// Gives back what lists have grown to, if next to nothing is in them.
    pub fn let_go(&mut self) {
        if self.ready.capacity() > LIST_MIN && self.ready.len() < self.ready.capacity() / 8 {
            self.ready.shrink_to(LIST_MIN);
        }
        if self.unplaced.capacity() > LIST_MIN && self.unplaced.len() < self.unplaced.capacity() / 8 {
            self.unplaced.shrink_to(LIST_MIN);
        }
        for set in [&mut self.settled, &mut self.delivered, &mut self.skipped, &mut self.damaged] {
            set.let_go();
        }
    }

    /// Bytes of heap memory beyond the data held.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        self.settled.heap_bytes()
            + self.delivered.heap_bytes()
            + self.skipped.heap_bytes()
            + self.damaged.heap_bytes()
            + self.orders.as_ref().map_or(0, |orders| orders.heap_bytes())
            + self.unplaced.capacity() * size_of::<MessageRow>()
            + self.pieces.len() * (2 * (size_of::<Piece>() + 16) + 32)
            + (self.begins.len() + self.ends.len()) * 2 * size_of::<u64>()
            + self.ready.capacity() * size_of::<Ready>()
            + self.run.spare_bytes()
            + self.arena_bytes()
    }

    /// Memory of the arena that no message accounts for: what is free of it, and of the buffer that
    /// any message keeps as much as may be free.
    fn arena_bytes(&self) -> usize {
        let spare = self.arena.spare_bytes();
        if self.ready.is_empty() && self.unplaced.is_empty() {
            spare
        } else {
            spare.max(self.arena.buffer_bytes())
        }
    }
}

fn delivery(position: u64, message: Bytes, presented: bool) -> Delivery {
    if presented { Delivery::Presented(position, message) } else { Delivery::Message(position, message) }
}

#[cfg(test)]
mod tests;
