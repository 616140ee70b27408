//! Newest only: of the whole messages that have arrived the latest is handed over, and those before
//! it are passed over, also when they come later. For readings and positions, of which an old one
//! is worth nothing once there is a newer.

use super::Sequencing;
use super::reassembly::{Delivery, Reassembly};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Need, Params, Promise, Unasked};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Newest {
    /// Where the last message began that was handed over.
    from: u64,
}

impl Newest {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Sequencing,
        number: 3,
        name: "newest",
        what: "the newest whole message is handed over, those before it are passed over",
        mandatory: false,
        consent: Consent::OfBoth,
        params: &[],
        needs: &[Need::Promise(Function::Segmentation, Promise::Boundaries)],
        facts: Facts { positions: true, passes_over: true, unasked: Unasked::Never, ..Facts::PLAIN },
        predict: |_, _, p| p.cpu_ns += 50.0,
    };

    /// Builds it.
    pub fn build(_: &Params, _: ()) -> Self {
        Newest { from: 0 }
    }
}

impl Sequencing for Newest {
    fn next(&mut self, state: &mut Reassembly, bytes_max: usize) -> Option<Delivery> {
        let next = state.pop_newest(self.from, bytes_max)?;
        if let Delivery::Message(start, _) | Delivery::Presented(start, _) | Delivery::Damaged(start, ..) =
            next
        {
            self.from = self.from.max(start);
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::reassembly::Segment;
    use super::*;
    use bytes::Bytes;
    use core::ops::Range;

    fn part(number: u64, bytes: Range<usize>) -> Segment {
        let data = [number as u8; 4];
        Segment {
            start: 5 * number + bytes.start as u64,
            data: Bytes::copy_from_slice(&data[bytes.clone()]),
            message: true,
            presented: false,
            begin: bytes.start == 0,
            end: bytes.end == data.len(),
            fin: false,
        }
    }

    fn insert(state: &mut Reassembly, numbers: &[u64]) {
        for number in numbers {
            state.insert(part(*number, 0..4), u64::MAX).expect("in the limit");
        }
    }

    /// The numbers of the messages that are read now, and the positions that were passed over.
    fn read(mechanism: &mut Newest, state: &mut Reassembly) -> (Vec<u64>, u64) {
        let (mut numbers, mut passed) = (Vec::new(), 0);
        while let Some(next) = mechanism.next(state, 1000) {
            match next {
                Delivery::Message(start, data) => {
                    assert_eq!(data[..], [(start / 5) as u8; 4]);
                    numbers.push(start / 5);
                }
                Delivery::Skipped(positions) => passed += positions,
                other => panic!("{other:?}"),
            }
        }
        (numbers, passed)
    }

    #[test]
    fn of_those_that_are_there_the_newest_is_read() {
        let (mut newest, mut state) = (Newest { from: 0 }, Reassembly::default());
        insert(&mut state, &[0, 1, 2]);
        assert_eq!(read(&mut newest, &mut state), (vec![2], 10));
        assert_eq!(state.consumed(), 15);
        assert_eq!(state.held_bytes(), 0);
        insert(&mut state, &[4, 3]);
        assert_eq!(read(&mut newest, &mut state), (vec![4], 5));
    }

    #[test]
    fn what_comes_late_is_passed_over() {
        let (mut newest, mut state) = (Newest { from: 0 }, Reassembly::default());
        insert(&mut state, &[0]);
        assert_eq!(read(&mut newest, &mut state), (vec![0], 0));
        insert(&mut state, &[3]);
        assert_eq!(read(&mut newest, &mut state), (vec![3], 0));
        insert(&mut state, &[1, 2]);
        assert_eq!(read(&mut newest, &mut state), (vec![], 10));
        assert_eq!(state.consumed(), 20);
    }

    #[test]
    fn a_part_of_the_newest_does_not_hide_what_is_whole() {
        let (mut newest, mut state) = (Newest { from: 0 }, Reassembly::default());
        insert(&mut state, &[0]);
        state.insert(part(1, 0..2), u64::MAX).expect("in the limit");
        assert_eq!(read(&mut newest, &mut state), (vec![0], 0));
        state.insert(part(1, 2..4), u64::MAX).expect("in the limit");
        assert_eq!(read(&mut newest, &mut state), (vec![1], 0));
    }

    #[test]
    fn the_end_is_told_once_and_last() {
        let (mut newest, mut state) = (Newest { from: 0 }, Reassembly::default());
        insert(&mut state, &[0, 1]);
        let end = Segment { fin: true, message: false, ..part(2, 0..0) };
        state.insert(Segment { begin: false, end: false, ..end }, u64::MAX).expect("in the limit");
        let next = |state: &mut Reassembly, newest: &mut Newest| newest.next(state, 1000);
        assert!(matches!(next(&mut state, &mut newest), Some(Delivery::Message(5, _))));
        assert_eq!(next(&mut state, &mut newest), Some(Delivery::Skipped(5)));
        assert_eq!(next(&mut state, &mut newest), Some(Delivery::End));
        assert_eq!(next(&mut state, &mut newest), None);
    }
}
