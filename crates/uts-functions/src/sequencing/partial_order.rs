//! Partial order: each message says which part of the flow has to be handed over before it; what it
//! does not wait for may overtake it and be overtaken by it (Connolly, Amer and Conrad, "An
//! Extension to TCP: Partial Order Service", RFC 1693).

use super::reassembly::{Delivery, Reassembly};
use super::{Sequencing, predict_blocking};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Unasked};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct PartialOrder;

impl PartialOrder {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Sequencing,
        number: 2,
        name: "partial-order",
        what: "each message waits for the part of the flow that it names",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts { positions: true, orders: true, unasked: Unasked::Never, ..Facts::PLAIN },
        // Between the two: how much waits is the application's to say.
        predict: |_, facts, p| {
            predict_blocking(facts, p, 4.0);
            p.cpu_ns += 50.0;
        },
    };

    /// Builds it.
    pub fn build(_: &Params, _: ()) -> Self {
        PartialOrder
    }
}

impl Sequencing for PartialOrder {
    fn next(&mut self, state: &mut Reassembly, bytes_max: usize) -> Option<Delivery> {
        // sequencing.md R-12.
        state.pop_front(bytes_max).or_else(|| state.pop_free())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::message;
    use super::*;
    use core::ops::Range;
    use rand::{RngExt, SeedableRng, seq::SliceRandom};
    use rand_chacha::ChaCha8Rng;

    fn take_all(state: &mut Reassembly) -> Vec<u64> {
        let next = || match PartialOrder.next(state, 1000) {
            Some(Delivery::Message(start, _)) => Some(start / 2),
            Some(other) => panic!("{other:?}"),
            None => None,
        };
        core::iter::from_fn(next).collect()
    }

    /// The headers of a picture wait for nothing, its data for the headers (RFC 1693, the case of
    /// pictures).
    #[test]
    fn a_message_waits_for_what_it_says_and_for_nothing_else() {
        let mut state = Reassembly::default();
        let mut arrive = |number: u64, after: Option<Range<u64>>| {
            if let Some(after) = after {
                state.note_order(2 * number, 2 * after.start..2 * after.end);
            }
            state.insert(message(number), u64::MAX).expect("in the limit");
            take_all(&mut state)
        };
        // 0 and 4 are headers, 1 to 3 and 5 to 7 data of theirs; 8 says nothing and so waits for
        // all.
        assert_eq!(arrive(2, Some(0..1)), []);
        assert_eq!(arrive(5, Some(4..5)), []);
        assert_eq!(arrive(8, None), []);
        assert_eq!(arrive(4, Some(0..0)), [4, 5], "another picture is not waited for");
        assert_eq!(arrive(6, Some(4..5)), [6]);
        assert_eq!(arrive(0, Some(0..0)), [0, 2]);
        assert_eq!(arrive(1, Some(0..1)), [1]);
        assert_eq!(arrive(7, Some(4..5)), [7]);
        assert_eq!(arrive(3, Some(0..1)), [3, 8]);
    }

    /// Whatever arrives in whatever order, repeated or given up: nothing is handed over before what
    /// it waits for, and all is handed over once.
    #[test]
    fn the_order_that_messages_ask_for_is_kept() {
        for seed in 0..300 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let count = rng.random_range(1..60);
            let after: Vec<Range<u64>> = (0..count)
                .map(|number| {
                    let end = rng.random_range(0..=number);
                    2 * rng.random_range(0..=end)..2 * end
                })
                .collect();
            let mut arrivals: Vec<u64> = (0..count).chain((0..count).filter(|n| n % 5 == 0)).collect();
            arrivals.shuffle(&mut rng);
            let (mut state, mut done) = (Reassembly::default(), Vec::new());
            for number in arrivals {
                let gives_up = rng.random_ratio(1, 20) && !done.contains(&number);
                if gives_up {
                    state.skip(2 * number..2 * number + 2);
                } else {
                    // What is not said is the strictest.
                    if rng.random_ratio(9, 10) {
                        state.note_order(2 * number, after[number as usize].clone());
                    }
                    state.insert(message(number), u64::MAX).expect("in the limit");
                }
                loop {
                    match PartialOrder.next(&mut state, 1000) {
                        Some(Delivery::Message(start, _)) => {
                            let number = start / 2;
                            let waits_for = &after[number as usize];
                            assert!(state.is_handed_over(waits_for), "seed {seed}: {number}");
                            assert!(!done.contains(&number), "seed {seed}: {number} twice");
                            done.push(number);
                        }
                        Some(Delivery::Skipped(_)) => {}
                        Some(other) => panic!("seed {seed}: {other:?}"),
                        None => break,
                    }
                }
            }
            assert_eq!(state.consumed(), 2 * count, "seed {seed}: all is handed over or given up");
        }
    }

    #[test]
    fn what_a_peer_says_of_orders_is_bounded() {
        let mut state = Reassembly::default();
        for start in 1..100_000 {
            state.note_order(start * 10, 0..5);
        }
        assert!(state.heap_bytes() < 200_000, "{}", state.heap_bytes());
        state.note_order(7, 0..9);
        assert!(take_all(&mut state).is_empty());
    }
}
