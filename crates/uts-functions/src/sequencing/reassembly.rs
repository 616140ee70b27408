//! What a flow's receiver holds: data that arrived and was not handed over.

use crate::range::RangeSet;
use bytes::{Bytes, BytesMut};
use core::ops::Range;
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
    /// It starts with the first byte of a message.
    pub begin: bool,
    /// The message ends behind its last byte (which takes a position).
    pub end: bool,
    /// The flow ends behind it (which takes a position).
    pub fin: bool,
}

/// What is handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A stretch of bytes, and its position in the flow.
    Bytes(u64, Bytes),
    /// A whole message, and its position in the flow.
    Message(u64, Bytes),
    /// The sender gave up this many positions here.
    Skipped(u64),
    /// The flow has ended.
    End,
}

/// Why a segment was refused: the peer breaks the rules of the flow.
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

#[derive(Clone, Debug)]
struct Piece {
    data: Bytes,
    message: bool,
    /// A message's end follows the data and belongs to this piece.
    end: bool,
}

impl Piece {
    fn positions(&self) -> u64 {
        self.data.len() as u64 + u64::from(self.end)
    }
}

/// The receiver's state of one flow.
#[derive(Clone, Debug, Default)]
pub struct Reassembly {
    pieces: BTreeMap<u64, Piece>,
    /// Arrived, or given up by the sender.
    settled: RangeSet,
    /// Handed over, or given up by the sender.
    delivered: RangeSet,
    begins: BTreeSet<u64>,
    ends: BTreeSet<u64>,
    /// Starts of pieces (and of whole messages) that may be handed over out of order, in order of completion.
    ready: VecDeque<u64>,
    /// There may be pieces to hand over out of order that are not in `ready`.
    unindexed: bool,
    /// Messages that came without positions.
    unplaced: VecDeque<Bytes>,
    fin: Option<u64>,
    end_delivered: bool,
    held_bytes: usize,
    /// Positions given up since the last delivery, in order of position, to be reported.
    skipped: u64,
}

impl Reassembly {
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

    /// Whether the end has been handed over.
    pub fn is_ended(&self) -> bool {
        self.end_delivered
    }

    /// Whether everything has arrived, the end included.
    pub fn is_complete(&self) -> bool {
        self.fin.is_some_and(|fin| self.settled.run_end(0) > fin)
    }

    /// Where the flow ends, if that is known.
    pub fn end_position(&self) -> Option<u64> {
        self.fin
    }

    /// Takes in what a frame carried; says how many positions were new. Data at `limit` or beyond is refused.
    ///
    /// # Errors
    /// [`SegmentError`] if the peer breaks the rules; nothing is changed then.
    pub fn insert(&mut self, segment: Segment, limit: u64) -> Result<u64, SegmentError> {
        // sequencing.md R-2.
        let data_end = segment.start + segment.data.len() as u64;
        let own_end = data_end + u64::from(segment.end);
        let end = own_end + u64::from(segment.fin);
        if segment.fin && self.fin.is_some_and(|fin| fin != own_end) {
            return Err(SegmentError::EndMoved { known: self.fin.unwrap_or(0), said: own_end });
        }
        if let Some(fin) = self.fin.filter(|fin| own_end > *fin) {
            return Err(SegmentError::BeyondEnd { position: own_end, end: fin });
        }
        if segment.fin && self.settled.last().is_some_and(|last| last.end > end) {
            return Err(SegmentError::EndMoved {
                known: self.settled.last().map_or(0, |l| l.end),
                said: own_end,
            });
        }
        if own_end > limit {
            return Err(SegmentError::BeyondLimit { position: own_end, limit });
        }
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
        if segment.fin {
            self.fin = Some(own_end);
        }
        for gap in fresh {
            self.note_ready(gap.start, segment.message);
        }
        Ok(new)
    }

    fn insert_piece(&mut self, gap: &Range<u64>, data_end: u64, segment: &Segment) {
        let from = (gap.start.min(data_end) - segment.start) as usize;
        let to = (gap.end.min(data_end) - segment.start) as usize;
        let end = segment.end && gap.end > data_end;
        if end {
            self.ends.insert(data_end);
        }
        self.held_bytes += to - from;
        self.pieces
            .insert(gap.start, Piece { data: segment.data.slice(from..to), message: segment.message, end });
    }

    /// Notes what may be handed over out of order now that the piece at `start` is here.
    fn note_ready(&mut self, start: u64, message: bool) {
        if !message {
            self.ready.push_back(start);
        } else if let Some(whole) = self.whole_message_around(start) {
            self.ready.push_back(whole.start);
        }
    }

    /// The positions of the message around `position`, its end marker included, if it is whole (sequencing.md R-3).
    fn whole_message_around(&self, position: u64) -> Option<Range<u64>> {
        let begin = *self.begins.range(..=position).next_back()?;
        let end = *self.ends.range(position..).next()?;
        self.settled.contains_range(&(begin..end + 1)).then_some(begin..end + 1)
    }

    /// Takes in a whole message that came without a position, to be handed over as it is.
    pub fn push_unplaced(&mut self, message: Bytes) {
        // sequencing.md R-10.
        self.held_bytes += message.len();
        self.unplaced.push_back(message);
    }

    fn pop_unplaced(&mut self) -> Option<Delivery> {
        let message = self.unplaced.pop_front()?;
        self.held_bytes -= message.len();
        Some(Delivery::Message(self.consumed(), message))
    }

    /// Gives up the oldest gaps until at most `most` ranges are left: a bound on memory (sequencing.md R-11).
    pub fn limit_gaps(&mut self, most: usize) {
        while self.settled.len() > most {
            let mut ranges = self.settled.iter();
            let (Some(first), Some(second)) = (ranges.next(), ranges.next()) else { return };
            drop(ranges);
            self.skip(first.end..second.start);
        }
    }

    /// The sender gave up these positions: nobody waits for them any more, and parts of messages in them are dropped.
    pub fn skip(&mut self, range: Range<u64>) {
        // sequencing.md R-4.
        let range = match self.fin {
            Some(fin) => range.start..range.end.min(fin),
            None => range,
        };
        if range.is_empty() {
            return;
        }
        let starts: Vec<u64> = self.pieces.range(range.clone()).map(|(start, _)| *start).collect();
        for start in starts {
            if self.pieces.get(&start).is_some_and(|p| start + p.positions() <= range.end) {
                self.take_piece(start);
            }
        }
        let lost: u64 = self.delivered.gaps(range.clone()).map(|gap| gap.end - gap.start).sum();
        self.skipped += lost;
        self.settled.insert(range.clone());
        self.delivered.insert(range);
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

    /// What comes next in order of position.
    pub fn pop_front(&mut self, bytes_max: usize) -> Option<Delivery> {
        if let Some(message) = self.pop_unplaced() {
            return Some(message);
        }
        if !self.ready.is_empty() {
            self.ready.clear();
            self.unindexed = true;
        }
        let at = self.delivered.run_end(0);
        // sequencing.md R-5. What was given up is reported at the place where it is missing: once the run from 0 on
        // reaches beyond it.
        if self.skipped > 0 && (self.pieces.first_key_value().is_none_or(|(start, _)| *start >= at)) {
            return Some(Delivery::Skipped(core::mem::take(&mut self.skipped)));
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
        // sequencing.md R-5.
        if self.skipped > 0 {
            return Some(Delivery::Skipped(core::mem::take(&mut self.skipped)));
        }
        // sequencing.md R-9.
        while let Some(start) = self.ready.pop_front() {
            let delivery = match self.pieces.get(&start) {
                None => None,
                Some(piece) if piece.message => self.pop_message(start),
                Some(_) => self.pop_bytes(start, bytes_max),
            };
            if delivery.is_some() {
                return delivery;
            }
        }
        if !self.unindexed {
            return self.pop_end();
        }
        // sequencing.md: pieces that arrived while another mechanism was in charge are not in `ready`: look in
        // order of position.
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
            self.ready.push_front(rest_start);
        }
        self.delivered.insert(start..start + piece.data.len() as u64);
        Some(Delivery::Bytes(start, piece.data))
    }

    fn pop_message(&mut self, start: u64) -> Option<Delivery> {
        let whole = self.whole_message_around(start)?;
        let first = self.take_piece(whole.start)?;
        let mut at = whole.start + first.positions();
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
        Some(Delivery::Message(whole.start, data))
    }

    /// Bytes of heap memory beyond the data held.
    pub fn heap_bytes(&self) -> usize {
        self.settled.heap_bytes()
            + self.delivered.heap_bytes()
            + self.pieces.len() * (size_of::<Piece>() + 16)
            + self.ready.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(start: u64, data: &'static [u8]) -> Segment {
        Segment {
            start,
            data: Bytes::from_static(data),
            message: false,
            begin: false,
            end: false,
            fin: false,
        }
    }

    fn message(start: u64, data: &'static [u8]) -> Segment {
        Segment { message: true, begin: true, end: true, ..piece(start, data) }
    }

    #[test]
    fn ordered_waits_and_unordered_does_not() {
        let mut r = Reassembly::default();
        r.insert(message(4, b"two"), 100).expect("in bounds");
        assert_eq!(r.pop_front(100), None);
        assert_eq!(r.clone().pop_any(100), Some(Delivery::Message(4, Bytes::from_static(b"two"))));
        r.insert(message(0, b"one"), 100).expect("in bounds");
        assert_eq!(r.pop_front(100), Some(Delivery::Message(0, Bytes::from_static(b"one"))));
        assert_eq!(r.pop_front(100), Some(Delivery::Message(4, Bytes::from_static(b"two"))));
        assert_eq!((r.consumed(), r.held_bytes()), (8, 0));
    }

    #[test]
    fn fragments_join_in_any_order_and_overlap() {
        let mut r = Reassembly::default();
        let whole = b"abcdefghij";
        let part = |from: usize, to: usize| Segment {
            start: from as u64,
            data: Bytes::from_static(&whole[from..to]),
            message: true,
            begin: from == 0,
            end: to == 10,
            fin: to == 10,
        };
        for (from, to) in [(6, 10), (2, 7), (6, 10), (0, 4)] {
            assert_eq!(r.pop_any(100), None);
            r.insert(part(from, to), 100).expect("in bounds");
        }
        assert_eq!(r.pop_any(100), Some(Delivery::Message(0, Bytes::from_static(whole))));
        assert_eq!(r.pop_any(100), Some(Delivery::End));
        assert_eq!(r.pop_any(100), None);
        assert!(r.is_ended());
    }

    #[test]
    fn skipped_positions_are_passed_over_and_reported() {
        let mut r = Reassembly::default();
        r.insert(message(4, b"two"), 100).expect("in bounds");
        r.skip(0..4);
        assert_eq!(r.pop_front(100), Some(Delivery::Skipped(4)));
        assert_eq!(r.pop_front(100), Some(Delivery::Message(4, Bytes::from_static(b"two"))));
    }

    #[test]
    fn a_peer_that_breaks_the_rules_changes_nothing() {
        let mut r = Reassembly::default();
        r.insert(Segment { fin: true, ..piece(0, b"abc") }, 100).expect("in bounds");
        assert_eq!(r.insert(piece(2, b"xyz"), 100), Err(SegmentError::BeyondEnd { position: 5, end: 3 }));
        assert_eq!(
            r.insert(Segment { fin: true, ..piece(0, b"ab") }, 100),
            Err(SegmentError::EndMoved { known: 3, said: 2 })
        );
        let mut r = Reassembly::default();
        assert_eq!(
            r.insert(piece(8, b"abc"), 10),
            Err(SegmentError::BeyondLimit { position: 11, limit: 10 })
        );
        assert_eq!(r.held_bytes(), 0);
    }

    proptest! {
        /// Bytes cut and repeated at will, handed over by mechanisms in turn, arrive exactly once.
        #[test]
        fn every_byte_arrives_exactly_once(
            cuts in prop::collection::vec((0usize..200, 1usize..40, any::<bool>()), 1..120),
            reads in prop::collection::vec((any::<bool>(), 1usize..30), 1..400),
        ) {
            let data: Vec<u8> = (0..200u8).collect();
            let mut r = Reassembly::default();
            let mut got = vec![None; 200];
            let mut reads = reads.into_iter().cycle();
            let mut feed: Vec<(usize, usize)> = cuts.iter().map(|c| (c.0, (c.0 + c.1).min(200))).collect();
            feed.extend((0..200).step_by(10).map(|s| (s, s + 10)));
            for (from, to) in feed {
                let segment = Segment { data: Bytes::copy_from_slice(&data[from..to]), fin: to == 200, ..piece(from as u64, b"") };
                r.insert(segment, 1000).expect("in bounds");
                let (ordered, max) = reads.next().expect("endless");
                let next = if ordered { r.pop_front(max) } else { r.pop_any(max) };
                if let Some(Delivery::Bytes(at, bytes)) = next {
                    for (i, b) in bytes.iter().enumerate() {
                        prop_assert_eq!(got[at as usize + i].replace(*b), None, "handed over twice");
                    }
                }
            }
            while let Some(d) = r.pop_any(7) {
                if let Delivery::Bytes(at, bytes) = d {
                    for (i, b) in bytes.iter().enumerate() {
                        prop_assert_eq!(got[at as usize + i].replace(*b), None, "handed over twice");
                    }
                }
            }
            prop_assert_eq!(got.into_iter().collect::<Option<Vec<u8>>>(), Some(data));
            prop_assert!(r.is_ended() && r.held_bytes() == 0);
        }
    }
}
