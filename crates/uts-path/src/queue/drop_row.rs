//! A row of drops: once a packet finds no room, so many in a row go, whether there is room for the
//! others or not (S. Viswanath, "TCP Performance Evaluation Using TIGER Network Testbed", 1999,
//! section 4.2.1).

use super::{Arrival, QueueDiscipline, Verdict, Waiting};
use crate::passage::DropReason;
use rand_chacha::ChaCha8Rng;

/// Packets that go in a row, at most.
pub(super) const ROW_MAX: u32 = 1000;

#[derive(Debug)]
pub(super) struct DropRowQueue {
    row: u32,
    /// Of the row that has begun.
    left: u32,
}

impl DropRowQueue {
    pub(super) fn new(row: u32) -> Self {
        DropRowQueue { row, left: 0 }
    }
}

impl QueueDiscipline for DropRowQueue {
    fn on_arrival(&mut self, _: &Arrival, _: &mut dyn FnMut() -> bool, _: &mut ChaCha8Rng) -> Verdict {
        match self.left.checked_sub(1) {
            None => Verdict::PASS,
            Some(left) => {
                self.left = left;
                Verdict::Drop(DropReason::QueueFull)
            }
        }
    }

    fn victim(&mut self, _: &mut Waiting<'_>, _: &mut ChaCha8Rng) -> Option<usize> {
        self.left = self.row.saturating_sub(1);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_full_queue_drops_a_row_and_then_passes_again() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut queue = DropRowQueue::new(4);
        let arrival = Arrival { now_ns: 0, bytes: 1500, queue_packets: 1, queue_bytes: 1500, rate_bps: None };
        let mut passes =
            |queue: &mut DropRowQueue| queue.on_arrival(&arrival, &mut || false, &mut rng) == Verdict::PASS;
        assert!(passes(&mut queue));
        for _ in 0..2 {
            assert_eq!(
                queue.victim(&mut [0; 3].into_iter(), &mut ChaCha8Rng::seed_from_u64(1)),
                None,
                "the one that comes"
            );
            let after = [(); 5].map(|()| passes(&mut queue));
            assert_eq!(after, [false, false, false, true, true]);
        }
    }
}
