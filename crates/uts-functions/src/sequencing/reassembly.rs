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
    /// That message is in the form that a presentation mechanism gave it.
    pub presented: bool,
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
    /// A whole message in the form that a presentation mechanism gave it, and its position in the flow.
    Presented(u64, Bytes),
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

/// Messages without positions that may wait to be read; beyond, the newest are dropped, as a full queue would.
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
    unplaced: VecDeque<(Bytes, bool)>,
    fin: Option<u64>,
    end_delivered: bool,
    held_bytes: usize,
    /// Positions given up of which the application has not been told.
    skipped: RangeSet,
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
            if segment.message && self.drop_dead(gap.start) {
                continue;
            }
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

    /// Takes in a whole message that came without a position, to be handed over as it is. Says whether there was room
    /// ([`UNPLACED_MAX`]).
    pub fn push_unplaced(&mut self, message: Bytes, presented: bool) -> bool {
        // sequencing.md R-10.
        if self.unplaced.len() >= UNPLACED_MAX {
            return false;
        }
        self.held_bytes += message.len();
        self.unplaced.push_back((message, presented));
        true
    }

    fn pop_unplaced(&mut self) -> Option<Delivery> {
        let (message, presented) = self.unplaced.pop_front()?;
        self.held_bytes -= message.len();
        Some(delivery(self.consumed(), message, presented))
    }

    /// Gaps among the settled positions: what they take is what a peer can make this end remember.
    pub fn gaps(&self) -> usize {
        self.settled.len().saturating_sub(1)
    }

    /// Whether data from `start` on would lie apart from everything that is settled, and so leave one more gap.
    pub fn leaves_gap(&self, start: u64) -> bool {
        start > self.settled.run_end(0) && !self.settled.contains(start - 1)
    }

    /// Gives up the oldest gaps until at most `most` ranges are left: a bound on memory where nothing is repeated
    /// (sequencing.md R-11).
    pub fn limit_gaps(&mut self, most: usize) {
        while self.settled.len() > most.max(1) {
            let mut ranges = self.settled.iter();
            let (Some(first), Some(second)) = (ranges.next(), ranges.next()) else { return };
            drop(ranges);
            self.skip(first.end..second.start);
        }
    }

    /// The sender gave up these positions: nobody waits any more for those that have not arrived, and what has arrived of
    /// messages that can no longer become whole is dropped. Bytes that have arrived are still handed over.
    pub fn skip(&mut self, range: Range<u64>) {
        // sequencing.md R-4.
        let end = self.fin.map_or(range.end, |fin| range.end.min(fin));
        if range.start >= end {
            return;
        }
        let gaps: Vec<Range<u64>> = self.settled.gaps(range.start..end).collect();
        for gap in gaps {
            self.settled.insert(gap.clone());
            self.give_up(gap);
        }
    }

    /// Settled positions that are not handed over, and the pieces beside them that are of no use without them.
    fn give_up(&mut self, range: Range<u64>) {
        let mut dead = vec![range];
        while let Some(range) = dead.pop() {
            self.delivered.insert(range.clone());
            self.skipped.insert(range.clone());
            let before = self.pieces.range(..range.start).next_back();
            let before =
                before.filter(|(start, p)| *start + p.positions() == range.start).map(|(start, _)| *start);
            for start in before.into_iter().chain([range.end]) {
                if self.is_dead(start)
                    && let Some(piece) = self.take_piece(start)
                {
                    dead.push(start..start + piece.positions());
                }
            }
        }
    }

    /// Whether there is a part of a message at `start` whose neighbour, of the same message, was given up. A message is
    /// handed over whole, so that a part beside a delivered position is one beside a position that was given up.
    fn is_dead(&self, start: u64) -> bool {
        let Some(piece) = self.pieces.get(&start).filter(|piece| piece.message) else { return false };
        let lacks_front = start > 0 && !self.begins.contains(&start) && self.delivered.contains(start - 1);
        lacks_front || (!piece.end && self.delivered.contains(start + piece.positions()))
    }

    /// Drops the part of a message at `start`, and those beside it, if it can no longer become whole.
    fn drop_dead(&mut self, start: u64) -> bool {
        if !self.is_dead(start) {
            return false;
        }
        if let Some(piece) = self.take_piece(start) {
            self.give_up(start..start + piece.positions());
        }
        true
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
        // sequencing.md R-5. What was given up is reported at the place where it is missing: once everything below it
        // was handed over.
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
        // sequencing.md R-5.
        if !self.skipped.is_empty() {
            let positions = self.skipped.count();
            self.skipped.clear();
            return Some(Delivery::Skipped(positions));
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
        Some(delivery(whole.start, data, presented))
    }

    /// Bytes of heap memory beyond the data held.
    pub fn heap_bytes(&self) -> usize {
        self.settled.heap_bytes()
            + self.delivered.heap_bytes()
            + self.skipped.heap_bytes()
            + self.unplaced.capacity() * size_of::<(Bytes, bool)>()
            + self.pieces.len() * (size_of::<Piece>() + 16)
            + self.ready.capacity() * 8
    }
}

fn delivery(position: u64, message: Bytes, presented: bool) -> Delivery {
    if presented { Delivery::Presented(position, message) } else { Delivery::Message(position, message) }
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
            presented: false,
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
            presented: false,
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

    #[test]
    fn a_skip_over_the_front_of_what_arrived_stalls_nothing() {
        let mut r = Reassembly::default();
        r.insert(piece(0, b"0123456789"), 100).expect("in bounds");
        r.skip(0..5);
        assert_eq!(r.pop_front(100), Some(Delivery::Bytes(0, Bytes::from_static(b"0123456789"))));
        assert_eq!((r.consumed(), r.held_bytes()), (10, 0));
        let mut r = Reassembly::default();
        r.insert(piece(5, b"56789"), 100).expect("in bounds");
        r.skip(0..8);
        assert_eq!(r.pop_front(100), Some(Delivery::Skipped(5)));
        assert_eq!(r.pop_front(100), Some(Delivery::Bytes(5, Bytes::from_static(b"56789"))));
    }

    #[test]
    fn what_was_given_up_is_reported_where_it_is_missing() {
        let mut r = Reassembly::default();
        r.skip(6..9);
        r.insert(piece(9, b"9"), 100).expect("in bounds");
        assert_eq!(r.pop_front(100), None, "nothing is missing before position 0");
        r.insert(piece(0, b"012"), 100).expect("in bounds");
        assert_eq!(r.pop_front(100), Some(Delivery::Bytes(0, Bytes::from_static(b"012"))));
        assert_eq!(r.pop_front(100), None);
        r.skip(3..4);
        assert_eq!(r.pop_front(100), Some(Delivery::Skipped(1)));
        r.insert(piece(4, b"45"), 100).expect("in bounds");
        assert_eq!(r.pop_front(100), Some(Delivery::Bytes(4, Bytes::from_static(b"45"))));
        assert_eq!(r.pop_front(100), Some(Delivery::Skipped(3)));
        assert_eq!(r.pop_front(100), Some(Delivery::Bytes(9, Bytes::from_static(b"9"))));
    }

    #[test]
    fn parts_of_a_message_that_cannot_become_whole_are_dropped() {
        let part = |start: u64, data: &'static [u8], begin: bool, end: bool| Segment {
            message: true,
            begin,
            end,
            ..piece(start, data)
        };
        // Parts of a message of positions 0..10, in every order, with its middle given up at every moment.
        let parts = [part(0, b"ab", true, false), part(2, b"cd", false, false), part(7, b"hi", false, true)];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            for when in 0..=3 {
                let mut r = Reassembly::default();
                for (step, index) in order.into_iter().enumerate() {
                    if step == when {
                        r.skip(4..7);
                    }
                    r.insert(parts[index].clone(), 100).expect("in bounds");
                }
                r.skip(4..7);
                r.insert(message(10, b"next"), 100).expect("in bounds");
                assert_eq!(r.pop_front(100), Some(Delivery::Skipped(10)), "{order:?} {when}");
                assert_eq!(r.pop_front(100), Some(Delivery::Message(10, Bytes::from_static(b"next"))));
                assert_eq!((r.consumed(), r.held_bytes()), (15, 0));
            }
        }
    }

    #[test]
    fn unplaced_messages_are_bounded() {
        let mut r = Reassembly::default();
        let taken = (0..2 * UNPLACED_MAX).filter(|_| r.push_unplaced(Bytes::new(), false)).count();
        assert_eq!(taken, UNPLACED_MAX);
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
