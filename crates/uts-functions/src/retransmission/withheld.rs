//! Data that has arrived and does not count yet: the unit that it is in has not arrived whole.

use crate::range::RangeSet;
use core::ops::Range;

/// Data of a flow that has arrived without its unit. Outlives mechanisms: what one has withheld
/// counts under a successor that has no units. (retransmission.md R-23)
#[derive(Clone, Debug, Default)]
pub struct Withheld {
    arrived: RangeSet,
    /// Data that was taken for lost and has arrived: it needs not arrive again.
    late: RangeSet,
    /// Data that has arrived at any time.
    ever: RangeSet,
    /// Bytes that have arrived for the first time so far.
    brought: u64,
}

impl Withheld {
    /// Positions have arrived.
    pub fn insert(&mut self, range: Range<u64>) {
        self.brought += self.ever.gaps(range.clone()).map(|gap| gap.end - gap.start).sum::<u64>();
        self.ever.insert(range.clone());
        self.arrived.insert(range);
    }

    /// Positions have arrived that were taken for lost: also what is sent again of them has.
    pub fn insert_late(&mut self, range: Range<u64>) {
        self.late.insert(range.clone());
        self.insert(range);
    }

    /// Bytes that have arrived for the first time so far, repeats left out.
    pub fn brought(&self) -> u64 {
        self.brought
    }

    /// Positions are sent again: that they had arrived is forgotten, unless that was a mistake.
    pub fn remove(&mut self, range: Range<u64>) {
        self.arrived.remove(range.clone());
        for late in self.late.iter() {
            let part = late.start.max(range.start)..late.end.min(range.end);
            if !part.is_empty() {
                self.arrived.insert(part);
            }
        }
    }

    /// Positions of a range that are not known to have arrived late. Only these can be lost
    /// (retransmission.md R-18).
    pub fn not_late(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        self.late.gaps(range)
    }

    /// True if nothing is withheld.
    pub fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// Takes out what counts from now on: units of so many positions that are whole, as far as they
    /// were sent; `counts` says what does so already. Without units, everything.
    pub fn take_whole(
        &mut self,
        unit: Option<u64>,
        sent_to: u64,
        counts: impl Fn(&Range<u64>) -> bool,
    ) -> Vec<Range<u64>> {
        let Some(unit) = unit.map(|unit| unit.max(1)) else {
            let all = self.arrived.iter().collect();
            self.arrived.clear();
            self.late.clear();
            self.ever.clear();
            return all;
        };
        let (mut whole, mut looked_to) = (Vec::new(), 0);
        for range in &self.arrived.iter().collect::<Vec<_>>() {
            let mut start = (range.start - range.start % unit).max(looked_to);
            while start < range.end {
                let end = start.saturating_add(unit);
                if self.arrived.gaps(start..end.min(sent_to)).all(|gap| counts(&gap)) {
                    whole.push(start..end.min(sent_to));
                }
                (start, looked_to) = (end, end);
            }
        }
        for range in &whole {
            self.arrived.remove(range.clone());
            self.late.remove(range.clone());
            self.ever.remove(range.clone());
        }
        whole
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.arrived.heap_bytes() + self.late.heap_bytes() + self.ever.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_counts_when_it_is_whole_as_far_as_it_was_sent() {
        let mut withheld = Withheld::default();
        let nothing = |_: &Range<u64>| false;
        withheld.insert(0..50);
        withheld.insert(60..130);
        assert!(withheld.take_whole(Some(100), 200, nothing).is_empty());
        withheld.insert(50..60);
        assert_eq!(withheld.take_whole(Some(100), 200, nothing), [0..100]);
        assert_eq!(withheld.take_whole(Some(100), 130, nothing), [100..130], "no more of it was sent");
        assert!(withheld.is_empty());
        withheld.insert(200..260);
        assert_eq!(withheld.take_whole(Some(100), 300, |gap| *gap == (260..300)), [200..300]);
    }

    #[test]
    fn what_arrived_late_need_not_arrive_again() {
        let mut withheld = Withheld::default();
        withheld.insert_late(0..40);
        withheld.remove(0..100);
        withheld.insert(40..70);
        withheld.remove(20..50);
        withheld.insert_late(70..100);
        assert!(withheld.take_whole(Some(100), 100, |_| false).is_empty());
        withheld.insert_late(40..50);
        withheld.remove(0..50);
        assert_eq!(withheld.take_whole(Some(100), 100, |_| false), [0..100]);
        assert!(withheld.is_empty());
    }

    #[test]
    fn what_arrives_again_brings_nothing() {
        let mut withheld = Withheld::default();
        withheld.insert(0..40);
        withheld.remove(0..100);
        assert_eq!(withheld.brought(), 40);
        withheld.insert(0..40);
        assert_eq!(withheld.brought(), 40);
        withheld.insert_late(30..50);
        assert_eq!(withheld.brought(), 50);
        withheld.insert(50..100);
        assert_eq!(withheld.take_whole(Some(100), 200, |_| false), [0..100]);
        withheld.insert(100..110);
        assert_eq!(withheld.brought(), 110, "what was whole before counts on");
    }

    #[test]
    fn what_came_late_cannot_be_lost_again() {
        let mut withheld = Withheld::default();
        withheld.insert(20..40);
        withheld.insert_late(60..70);
        withheld.remove(0..100);
        assert_eq!(withheld.not_late(10..100).collect::<Vec<_>>(), [10..60, 70..100]);
    }

    #[test]
    fn what_is_sent_again_must_arrive_again_and_all_counts_without_units() {
        let mut withheld = Withheld::default();
        withheld.insert(0..90);
        withheld.remove(0..100);
        withheld.insert(90..100);
        assert!(withheld.take_whole(Some(100), 100, |_| false).is_empty());
        assert_eq!(withheld.take_whole(None, 100, |_| false), [90..100]);
    }
}
