//! The wire: packets under way, in order of their arrival.

use crate::config::{Jitter, JitterShape};
use crate::line::Framed;
use crate::passage::Passage;
use rand::RngExt;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// A packet under way.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    pub due_ns: u64,
    /// Order of insertion, so that packets due at once arrive in the order of departure.
    order: u64,
    pub copy: bool,
    pub passage: Passage,
    pub payload: T,
    /// The frame that stands for it on a line with compression.
    pub frame: Option<Box<Framed>>,
}

impl<T> InFlight<T> {
    fn key(&self) -> (u64, u64) {
        (self.due_ns, self.order)
    }
}

impl<T> PartialEq for InFlight<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for InFlight<T> {}

impl<T> PartialOrd for InFlight<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for InFlight<T> {
    /// Reversed: the heap gives its greatest, we want the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// The delay line: a queue, and a heap only for those that arrive out of turn.
#[derive(Debug)]
pub(crate) struct Wire<T> {
    /// In order of arrival.
    queue: VecDeque<InFlight<T>>,
    heap: BinaryHeap<InFlight<T>>,
    next_order: u64,
    bytes: u64,
}

impl<T> Wire<T> {
    pub(crate) fn new() -> Self {
        Wire { queue: VecDeque::new(), heap: BinaryHeap::new(), next_order: 0, bytes: 0 }
    }

    /// One that is held back goes to the heap at once, as many are to overtake it.
    pub(crate) fn push(
        &mut self,
        due_ns: u64,
        held_back: bool,
        copy: bool,
        passage: Passage,
        (payload, frame): (T, Option<Box<Framed>>),
    ) {
        let order = self.next_order;
        self.next_order += 1;
        self.bytes += passage.len as u64;
        let packet = InFlight { due_ns, order, copy, passage, payload, frame };
        if held_back || self.queue.back().is_some_and(|last| due_ns < last.due_ns) {
            self.heap.push(packet);
        } else {
            self.queue.push_back(packet);
        }
    }

    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        let queued = self.queue.front().map(|p| p.due_ns);
        match self.heap.peek() {
            None => queued,
            Some(first) => Some(queued.map_or(first.due_ns, |due_ns| due_ns.min(first.due_ns))),
        }
    }

    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<InFlight<T>> {
        self.next_due_ns().filter(|&due_ns| due_ns <= now_ns)?;
        let from_heap = match (self.queue.front(), self.heap.peek()) {
            (Some(queued), Some(first)) => first.key() < queued.key(),
            (queued, _) => queued.is_none(),
        };
        let packet = if from_heap { self.heap.pop() } else { self.queue.pop_front() }?;
        self.bytes -= packet.passage.len as u64;
        Some(packet)
    }

    pub(crate) fn packets(&self) -> u64 {
        (self.queue.len() + self.heap.len()) as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Draws a jitter.
pub(crate) fn draw_jitter_ns(jitter: Jitter, rng: &mut impl RngExt) -> u64 {
    if jitter.max_ns == 0 {
        return 0;
    }
    match jitter.shape {
        JitterShape::Uniform => rng.random_range(0..=jitter.max_ns),
        JitterShape::Bell => (0..4).map(|_| rng.random_range(0..=jitter.max_ns / 4)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn mean_and_deviation(shape: JitterShape) -> (f64, f64) {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let jitter = Jitter { max_ns: 1_000_000, shape, reorder: true };
        let draws: Vec<f64> = (0..20_000).map(|_| draw_jitter_ns(jitter, &mut rng) as f64).collect();
        assert!(draws.iter().all(|&d| d <= 1_000_000.0));
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        (mean, variance.sqrt())
    }

    #[test]
    fn jitter_has_its_shape() {
        // Deviations: max/sqrt(12) of one uniform value, half of it for the mean of four.
        let (mean, deviation) = mean_and_deviation(JitterShape::Uniform);
        assert!((mean - 500_000.0).abs() < 10_000.0, "{mean}");
        assert!((deviation - 288_675.0).abs() < 6_000.0, "{deviation}");
        let (mean, deviation) = mean_and_deviation(JitterShape::Bell);
        assert!((mean - 500_000.0).abs() < 10_000.0, "{mean}");
        assert!((deviation - 144_337.0).abs() < 6_000.0, "{deviation}");
    }

    #[test]
    fn packets_due_at_once_keep_their_order() {
        let mut wire = Wire::new();
        for (due_ns, name) in [(5, 'b'), (3, 'a'), (5, 'c'), (5, 'd')] {
            wire.push(due_ns, false, false, Passage::arriving(0, 1, 0, 0, 0), (name, None));
        }
        assert!(wire.pop(2).is_none());
        let got: String = std::iter::from_fn(|| wire.pop(5)).map(|p| p.payload).collect();
        assert_eq!(got, "abcd");
        assert_eq!(wire.bytes(), 0);
    }

    #[test]
    fn whatever_the_order_of_departure_arrivals_are_sorted() {
        for seed in 0..20 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let (mut wire, mut wanted, mut got) = (Wire::new(), Vec::new(), Vec::new());
            for number in 0..2_000u64 {
                let due_ns = number / 2 + rng.random_range(0..if number % 3 == 0 { 50 } else { 2 });
                wire.push(due_ns, number % 7 == 0, false, Passage::arriving(number, 1, 0, 0, 0), ((), None));
                wanted.push((due_ns, number));
                while let Some(packet) = wire.pop(number / 2 - 1_u64.min(number / 2)) {
                    got.push((packet.due_ns, packet.passage.number));
                }
            }
            assert!(got.len() > 1_900 && wire.packets() == 2_000 - got.len() as u64);
            got.extend(std::iter::from_fn(|| wire.pop(u64::MAX)).map(|p| (p.due_ns, p.passage.number)));
            wanted.sort_unstable();
            assert_eq!(got, wanted, "seed {seed}");
            assert_eq!((wire.bytes(), wire.packets(), wire.next_due_ns()), (0, 0, None));
        }
    }
}
