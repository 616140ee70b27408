//! A set of integers kept as disjoint half-open ranges: acknowledged packet numbers, received
//! bytes, what is to repeat.

use core::ops::Range;
use std::collections::VecDeque;

/// Disjoint, non-adjacent, ascending half-open ranges of `u64`.
///
/// Insertion at either end, which is where packets and bytes arrive on a path that behaves, is
/// O(1); elsewhere it is a binary search and a shift of the ranges behind it. Owners bound the
/// number of ranges with [`RangeSet::trim_front`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: VecDeque<Range<u64>>,
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> Self {
        RangeSet { ranges: VecDeque::new() }
    }

    /// True if nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The number of integers in the set.
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|r| r.end - r.start).sum()
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + ExactSizeIterator + '_ {
        self.ranges.iter().cloned()
    }

    /// The first range.
    pub fn first(&self) -> Option<Range<u64>> {
        self.ranges.front().cloned()
    }

    /// The last range.
    pub fn last(&self) -> Option<Range<u64>> {
        self.ranges.back().cloned()
    }

    /// Index of the first range whose end is beyond `value`: the one that holds it, or the next.
    #[inline]
    fn position(&self, value: u64) -> usize {
        match self.ranges.back() {
            None => 0,
            Some(last) if last.end <= value => self.ranges.len(),
            Some(last) if last.start <= value => self.ranges.len() - 1,
            _ => self.ranges.partition_point(|r| r.end <= value),
        }
    }

    /// True if `value` is in the set.
    #[inline]
    pub fn contains(&self, value: u64) -> bool {
        // The common question is for what comes next.
        self.ranges.back().is_some_and(|last| value < last.end)
            && self.ranges.get(self.position(value)).is_some_and(|r| r.start <= value)
    }

    /// True if all of `range` is in the set; an empty range always is.
    pub fn contains_range(&self, range: &Range<u64>) -> bool {
        range.is_empty()
            || self
                .ranges
                .get(self.position(range.start))
                .is_some_and(|r| r.start <= range.start && range.end <= r.end)
    }

    /// True if any of `range` is in the set.
    pub fn intersects(&self, range: &Range<u64>) -> bool {
        !range.is_empty() && self.ranges.get(self.position(range.start)).is_some_and(|r| r.start < range.end)
    }

    /// The end of the range that holds `value`, or `value` itself: where the run from `value` on
    /// breaks off.
    #[inline]
    pub fn run_end(&self, value: u64) -> u64 {
        match self.ranges.get(self.position(value)) {
            Some(r) if r.start <= value => r.end,
            _ => value,
        }
    }

    /// Adds one integer; says whether it is new.
    #[inline]
    pub fn insert_one(&mut self, value: u64) -> bool {
        value != u64::MAX && self.insert(value..value + 1) > 0
    }

    /// Adds a range; says how many of its integers are new.
    #[inline]
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        // The common case: it extends the last range.
        if let Some(last) = self.ranges.back_mut()
            && last.end == range.start
        {
            last.end = range.end;
            return range.end - range.start;
        }
        self.insert_within(range)
    }

    fn insert_within(&mut self, range: Range<u64>) -> u64 {
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let mut merged = range.clone();
        let mut known = 0;
        let mut last = first;
        while let Some(r) = self.ranges.get(last).filter(|r| r.start <= range.end) {
            known += r.end.min(range.end).saturating_sub(r.start.max(range.start));
            merged = merged.start.min(r.start)..merged.end.max(r.end);
            last += 1;
        }
        if last == first {
            self.ranges.insert(first, merged);
        } else {
            self.ranges[first] = merged;
            if last - first > 1 {
                self.ranges.drain(first + 1..last);
            }
        }
        (range.end - range.start) - known
    }

    /// Takes a range out; says how many of its integers were in the set.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() || self.ranges.is_empty() {
            return 0;
        }
        let first = self.position(range.start);
        let mut removed = 0;
        let mut index = first;
        while let Some(r) = self.ranges.get(index).cloned().filter(|r| r.start < range.end) {
            let cut = r.start.max(range.start)..r.end.min(range.end);
            removed += cut.end - cut.start;
            match (r.start < cut.start, cut.end < r.end) {
                (true, true) => {
                    self.ranges[index].end = cut.start;
                    self.ranges.insert(index + 1, cut.end..r.end);
                    return removed;
                }
                (true, false) => {
                    self.ranges[index].end = cut.start;
                    index += 1;
                }
                (false, true) => {
                    self.ranges[index].start = cut.end;
                    return removed;
                }
                (false, false) => {
                    self.ranges.remove(index);
                }
            }
        }
        removed
    }

    /// Takes out everything below `bound`.
    pub fn remove_below(&mut self, bound: u64) {
        while let Some(front) = self.ranges.front_mut() {
            if front.end <= bound {
                self.ranges.pop_front();
            } else {
                front.start = front.start.max(bound);
                return;
            }
        }
    }

    /// Takes out and returns the first range.
    pub fn pop_first(&mut self) -> Option<Range<u64>> {
        self.ranges.pop_front()
    }

    /// The parts of `range` that are not in the set, ascending.
    pub fn gaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut at = range.start;
        let mut index = self.position(range.start);
        core::iter::from_fn(move || {
            while at < range.end {
                let Some(r) = self.ranges.get(index).filter(|r| r.start < range.end) else {
                    let gap = at..range.end;
                    at = range.end;
                    return Some(gap);
                };
                let gap = at..r.start;
                at = r.end;
                index += 1;
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }

    /// Drops the lowest ranges until at most `most` are left.
    pub fn trim_front(&mut self, most: usize) {
        let excess = self.ranges.len().saturating_sub(most);
        self.ranges.drain(..excess);
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Gives back most of what a set has grown to that is nearly empty.
    pub fn let_go(&mut self) {
        const KEPT: usize = 16;
        if self.ranges.capacity() > KEPT && self.ranges.len() < self.ranges.capacity() / 8 {
            self.ranges.shrink_to(KEPT);
        }
    }

    /// Gives back memory that no range is in.
    pub fn shrink(&mut self) {
        self.ranges.shrink_to_fit();
    }

    /// Bytes that the set's heap memory takes.
    pub fn heap_bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<Range<u64>>()
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(iter: I) -> Self {
        let mut set = RangeSet::new();
        for range in iter {
            set.insert(range);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ranges(set: &RangeSet) -> Vec<Range<u64>> {
        set.iter().collect()
    }

    #[test]
    fn neighbours_merge() {
        let mut set = RangeSet::new();
        assert_eq!(set.insert(0..2), 2);
        assert_eq!(set.insert(4..6), 2);
        assert_eq!(set.insert(9..10), 1);
        assert_eq!(set.insert(2..4), 2);
        assert_eq!(ranges(&set), [0..6, 9..10]);
        assert_eq!(set.insert(3..8), 2);
        assert_eq!(set.run_end(1), 8);
        assert_eq!(set.run_end(8), 8);
    }

    /// Integers of which every set is tried.
    const UNIVERSE: u64 = 9;

    fn of_bits(bits: u64) -> RangeSet {
        let mut set = RangeSet::new();
        (0..UNIVERSE).filter(|value| bits >> value & 1 == 1).for_each(|value| {
            set.insert_one(value);
        });
        set
    }

    /// Every operation from every set: as a set has one form only, whatever leads to it, so any
    /// sequence of operations is right.
    #[test]
    fn every_operation_does_what_it_says_to_every_small_set() {
        let mask = |range: &Range<u64>| (1u64 << range.end) - (1 << range.start);
        for bits in 0..1u64 << UNIVERSE {
            let set = of_bits(bits);
            assert_eq!(set.count(), u64::from(bits.count_ones()));
            for start in 0..=UNIVERSE {
                for end in start..=UNIVERSE {
                    let (range, m) = (start..end, mask(&(start..end)));
                    let mut with = set.clone();
                    assert_eq!(with.insert(range.clone()), u64::from((m & !bits).count_ones()));
                    assert_eq!(with, of_bits(bits | m), "{bits:b} with {range:?}");
                    let mut without = set.clone();
                    assert_eq!(without.remove(range.clone()), u64::from((m & bits).count_ones()));
                    assert_eq!(without, of_bits(bits & !m), "{bits:b} without {range:?}");
                    assert_eq!(set.contains_range(&range), bits & m == m);
                    assert_eq!(set.intersects(&range), bits & m != 0);
                    let gaps = set.gaps(range.clone()).fold(0, |all, gap| all | mask(&gap));
                    assert_eq!(gaps, m & !bits, "{bits:b} in {range:?}");
                }
                let mut above = set.clone();
                above.remove_below(start);
                assert_eq!(above, of_bits(bits >> start << start));
                assert_eq!(set.contains(start), bits >> start & 1 == 1);
                assert_eq!(set.run_end(start), start + u64::from((bits >> start).trailing_ones()));
            }
            for keep in 0..=set.len() {
                let mut trimmed = set.clone();
                trimmed.trim_front(keep);
                assert_eq!(ranges(&trimmed), ranges(&set)[set.len() - keep..]);
            }
        }
    }

    proptest! {
        /// Every operation does what it does to a plain set of integers.
        #[test]
        fn agrees_with_a_set_of_integers(steps in prop::collection::vec((0u8..4, 0u64..60, 0u64..12), 1..80)) {
            let mut set = RangeSet::new();
            let mut model = BTreeSet::new();
            for (kind, start, len) in steps {
                let range = start..start + len;
                match kind {
                    0 | 1 => {
                        let fresh = range.clone().filter(|v| model.insert(*v)).count() as u64;
                        prop_assert_eq!(set.insert(range.clone()), fresh);
                    }
                    2 => {
                        let gone = range.clone().filter(|v| model.remove(v)).count() as u64;
                        prop_assert_eq!(set.remove(range.clone()), gone);
                    }
                    _ => {
                        set.remove_below(start);
                        model = model.split_off(&start);
                    }
                }
                let flat: Vec<u64> = set.iter().flatten().collect();
                prop_assert_eq!(&flat, &model.iter().copied().collect::<Vec<_>>());
                let list = ranges(&set);
                prop_assert!(list.windows(2).all(|w| w[0].end < w[1].start), "merged and ascending: {:?}", list);
                prop_assert!(list.iter().all(|r| r.start < r.end));
                let probe = start..start + 7;
                prop_assert_eq!(set.contains_range(&probe), probe.clone().all(|v| model.contains(&v)));
                prop_assert_eq!(set.intersects(&probe), probe.clone().any(|v| model.contains(&v)));
                prop_assert_eq!(set.contains(start), model.contains(&start));
                let missing: Vec<u64> = set.gaps(probe.clone()).flatten().collect();
                prop_assert_eq!(missing, probe.filter(|v| !model.contains(v)).collect::<Vec<_>>());
            }
        }
    }
}
