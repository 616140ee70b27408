//! Data that a flow's receiver holds: it arrived and was not handed over.
//!
//! Two cases are common. Bytes that arrive in order, and are read as they come, go into one buffer
//! ([`Run`]) and come out of it in long stretches; whatever else happens turns the run into a piece
//! like others first. Messages that come whole, behind everything else, wait in one queue, in
//! memory that those of a packet share ([`Arena`]). Trees are for all the rest.

mod arena;
mod damaged;
mod given_up;
mod handing_over;
mod memory;
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
use bytes::Bytes;
use core::ops::Range;
pub use memory::{PIECE_BYTES, PIECE_MEMORY_BYTES};
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
}

#[cfg(test)]
mod tests;
