//! Number of losses of data, and the instant of its first sending, for mechanisms that repeat it so
//! often or for so long.

use crate::time::Time;
use core::ops::Range;

/// Ranges that are remembered at the most. Those beyond are as if they had been lost once.
const RANGES_MAX: usize = 256;

/// Losses of the data of one flow. It outlives mechanisms (retransmission.md R-20).
#[derive(Clone, Debug, Default)]
pub struct Tries {
    /// In no order but that of their losses.
    known: Vec<Known>,
}

#[derive(Clone, Debug)]
struct Known {
    range: Range<u64>,
    losses: u32,
    first_sent_at: Time,
}

impl Tries {
    /// Positions were lost that were sent at `sent_at`. Says how often any of them was lost by now,
    /// and when the first of them was sent.
    pub fn on_lost(&mut self, range: &Range<u64>, sent_at: Time) -> (u32, Time) {
        let overlaps = |known: &&Known| known.range.start < range.end && range.start < known.range.end;
        let (losses, first_sent_at) = self
            .known
            .iter()
            .filter(overlaps)
            .fold((0, sent_at), |(n, at), known| (n.max(known.losses), at.min(known.first_sent_at)));
        let losses: u32 = losses.saturating_add(1);
        self.remove(range);
        if self.known.len() == RANGES_MAX {
            self.known.remove(0);
        }
        self.known.push(Known { range: range.clone(), losses, first_sent_at });
        (losses, first_sent_at)
    }

    /// Positions have arrived, or are given up.
    pub fn remove(&mut self, range: &Range<u64>) {
        let mut rests = Vec::new();
        self.known.retain_mut(|known| {
            if known.range.end <= range.start || range.end <= known.range.start {
                return true;
            }
            let behind = range.end..known.range.end;
            known.range.end = known.range.end.min(range.start);
            if !behind.is_empty() {
                rests.push(Known { range: behind, ..known.clone() });
            }
            !known.range.is_empty()
        });
        rests.truncate(RANGES_MAX - self.known.len().min(RANGES_MAX));
        self.known.append(&mut rests);
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.known.capacity() * size_of::<Known>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_any_part_count_until_it_has_arrived() {
        let (mut tries, ms) = (Tries::default(), Time::from_millis);
        assert_eq!(tries.on_lost(&(0..100), ms(5)), (1, ms(5)));
        assert_eq!(tries.on_lost(&(40..60), ms(9)), (2, ms(5)));
        assert_eq!(tries.on_lost(&(0..100), ms(12)), (3, ms(5)));
        tries.remove(&(20..80));
        assert_eq!(tries.on_lost(&(30..70), ms(20)), (1, ms(20)));
        assert_eq!(tries.on_lost(&(10..30), ms(21)), (4, ms(5)));
        for n in 10..1000 {
            tries.on_lost(&(100 * n..100 * n + 50), ms(30));
        }
        assert!(tries.known.len() <= RANGES_MAX && tries.heap_bytes() < 32_000, "bounded");
    }
}
