//! Data that is lost and waits: for the receiver to ask for it, or for time to pass.

use crate::range::RangeSet;
use crate::time::Time;
use core::ops::Range;

/// Data of a flow that waits, and the end of its wait. Outlives mechanisms: a successor is asked
/// about what its predecessor has waited for. (retransmission.md R-12)
#[derive(Clone, Debug, Default)]
pub struct Awaited {
    ranges: RangeSet,
    /// When the first of them is asked about again.
    until: Option<Time>,
    /// The newest packet that carried any of it.
    packet: u64,
}

impl Awaited {
    /// Positions that were in a lost packet wait until an instant.
    pub fn insert(&mut self, range: Range<u64>, packet: u64, until: Time) {
        self.ranges.insert(range);
        self.packet = self.packet.max(packet);
        self.until = Some(self.until.map_or(until, |at| at.min(until)));
    }

    /// Positions need not wait any more: they are sent again, have arrived, or are given up.
    pub fn remove(&mut self, range: Range<u64>) {
        self.ranges.remove(range);
        if self.ranges.is_empty() {
            self.until = None;
        }
    }

    /// When to ask again about what waits.
    pub fn until(&self) -> Option<Time> {
        self.until
    }

    /// Takes all of it out, with the number of the newest packet that carried any.
    pub fn take(&mut self) -> (Vec<Range<u64>>, u64) {
        let ranges = self.ranges.iter().collect();
        self.ranges.clear();
        self.until = None;
        (ranges, self.packet)
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.ranges.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_asked_about_once_and_at_the_first_instant() {
        let mut awaited = Awaited::default();
        awaited.insert(10..20, 3, Time::from_millis(9));
        awaited.insert(40..50, 1, Time::from_millis(5));
        awaited.remove(12..15);
        assert_eq!(awaited.until(), Some(Time::from_millis(5)));
        assert_eq!(awaited.take(), (vec![10..12, 15..20, 40..50], 3));
        assert_eq!(awaited.until(), None);
        awaited.insert(10..20, 4, Time::from_millis(7));
        awaited.remove(0..30);
        assert_eq!(awaited.until(), None, "nothing is left of it");
    }
}
