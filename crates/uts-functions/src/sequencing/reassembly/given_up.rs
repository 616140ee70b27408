//! Positions that the sender gave up, and what is of no use without them (sequencing.md R-4).

use super::Reassembly;
use core::ops::Range;

impl Reassembly {
    /// Gives up the oldest gaps until at most `most` ranges are left: a bound on memory where
    /// nothing is repeated (sequencing.md R-11).
    pub fn limit_gaps(&mut self, most: usize) {
        while self.settled.len() > most.max(1) {
            let mut ranges = self.settled.iter();
            let (Some(first), Some(second)) = (ranges.next(), ranges.next()) else { return };
            drop(ranges);
            self.skip(first.end..second.start);
        }
    }

    /// The sender gave up these positions: nobody waits any more for those that have not arrived,
    /// and what has arrived of messages that can no longer become whole is dropped. Bytes that have
    /// arrived are still handed over.
    pub fn skip(&mut self, range: Range<u64>) {
        // sequencing.md R-4.
        let end = self.fin.map_or(range.end, |fin| range.end.min(fin));
        if range.start >= end {
            return;
        }
        self.end_run();
        let gaps: Vec<Range<u64>> = self.settled.gaps(range.start..end).collect();
        for gap in gaps {
            self.settled.insert(gap.clone());
            self.give_up(gap);
        }
    }

    /// Settled positions that are not handed over, and the pieces beside them that are of no use
    /// without them.
    fn give_up(&mut self, range: Range<u64>) {
        let mut dead = vec![range];
        while let Some(range) = dead.pop() {
            self.given_up = self.given_up.saturating_add(self.delivered.insert(range.clone()));
            self.skipped.insert(range.clone());
            self.damaged.remove(range.clone());
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

    /// True if there is a part of a message at `start` whose neighbour, of the same message, was
    /// given up. A message is handed over whole, so that a part beside a delivered position is
    /// beside a position that was given up.
    fn is_dead(&self, start: u64) -> bool {
        let Some(piece) = self.pieces.get(&start).filter(|piece| piece.message) else { return false };
        let lacks_front = start > 0 && !self.begins.contains(&start) && self.delivered.contains(start - 1);
        lacks_front || (!piece.end && self.delivered.contains(start + piece.positions()))
    }

    /// Drops the part of a message at `start`, and those beside it, if it can no longer become
    /// whole.
    pub(super) fn drop_dead(&mut self, start: u64) -> bool {
        if !self.is_dead(start) {
            return false;
        }
        if let Some(piece) = self.take_piece(start) {
            self.give_up(start..start + piece.positions());
        }
        true
    }
}
