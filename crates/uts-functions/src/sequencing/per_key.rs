//! Order within a key: messages with the same key are handed over as they were sent, those of
//! different keys do not wait for each other. A loss holds up its own key, and no other. For
//! events of many devices, or records of many tables, over one flow.

use super::reassembly::{Delivery, Reassembly};
use super::{Sequencing, predict_blocking};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Need, Params, Promise, Unasked};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct PerKey;

impl PerKey {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Sequencing,
        number: 4,
        name: "per-key",
        what: "messages with one key keep their order, others do not wait for each other",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[Need::Promise(Function::Segmentation, Promise::Boundaries)],
        facts: Facts { positions: true, orders: true, keys: true, unasked: Unasked::Never, ..Facts::PLAIN },
        // How many keys there are is the application's to say: between the order of all and none.
        predict: |_, facts, p| {
            predict_blocking(facts, p, 8.0);
            p.cpu_ns += 50.0;
        },
    };

    /// Builds it.
    pub fn build(_: &Params, _: ()) -> Self {
        PerKey
    }
}

impl Sequencing for PerKey {
    fn next(&mut self, state: &mut Reassembly, bytes_max: usize) -> Option<Delivery> {
        // sequencing.md R-17: what is next in order is never held up.
        state.pop_front(bytes_max).or_else(|| state.pop_free())
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Keys;
    use super::super::testing::message;
    use super::*;
    use rand::{RngExt, SeedableRng, seq::SliceRandom};
    use rand_chacha::ChaCha8Rng;
    use std::collections::BTreeMap;

    /// Messages that are read when these arrive one after the other, each with the key and in the
    /// order of `keys`; `None` is without a key.
    fn read(keys: &[Option<u32>], arrivals: &[u64]) -> Vec<u64> {
        let mut sender = Keys::default();
        let after: Vec<_> = (0u64..)
            .zip(keys)
            .map(|(number, key)| key.map_or(0..0, |key| sender.follow(key, 2 * number..2 * number + 2, 0)))
            .collect();
        let (mut state, mut out) = (Reassembly::default(), Vec::new());
        for number in arrivals {
            state.note_order(2 * number, after[*number as usize].clone());
            state.insert(message(*number), u64::MAX).expect("in the limit");
            while let Some(next) = PerKey.next(&mut state, 1000) {
                match next {
                    Delivery::Message(start, _) => out.push(start / 2),
                    other => panic!("{other:?}"),
                }
            }
        }
        out
    }

    #[test]
    fn a_loss_holds_up_its_key_and_no_other() {
        let (a, b) = (Some(1), Some(2));
        // 0 is lost: 2 waits for it, and 4, which waits for 2; those of the other key do not, nor
        // does the one without a key.
        let keys = [a, b, a, b, a, None];
        assert_eq!(read(&keys, &[1, 2, 3, 4, 5, 0]), [1, 3, 5, 0, 2, 4]);
        assert_eq!(read(&keys, &[5, 4, 3, 2, 1, 0]), [5, 1, 3, 0, 2, 4]);
    }

    #[test]
    fn whatever_comes_in_whatever_order_each_key_keeps_its_own() {
        for seed in 0..200 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let count = rng.random_range(1..200);
            let key = |_| rng.random_ratio(9, 10).then(|| rng.random_range(0..7));
            let keys: Vec<Option<u32>> = (0..count).map(key).collect();
            let mut arrivals: Vec<u64> = (0..count).collect();
            arrivals.shuffle(&mut rng);
            let got = read(&keys, &arrivals);
            assert_eq!(got.len() as u64, count, "seed {seed}: all, once");
            let mut last = BTreeMap::new();
            for number in got {
                if let Some(key) = keys[number as usize] {
                    assert!(last.insert(key, number) < Some(number), "seed {seed}: {number} of {key}");
                }
            }
        }
    }
}
