//! Bytes that are placed in memory of their reader's as they arrive, instead of being held here
//! (flows.md F-15; RFC 5041).

use super::{Piece, Reassembly, SegmentError};
use bytes::Bytes;
use core::ops::Range;
use smallvec::SmallVec;

impl Reassembly {
    /// Takes in bytes that follow on the last that have arrived, and hands them to `put`; says
    /// whether it did. If not, they are for [`Reassembly::insert_placed`], and nothing has changed.
    pub fn append_placed(&mut self, start: u64, bytes: &[u8], limit: u64, put: impl FnOnce(&[u8])) -> bool {
        let end = start.saturating_add(bytes.len() as u64);
        if !self.is_next(start) || bytes.is_empty() || self.fin.is_some() || end > limit {
            return false;
        }
        self.end_run();
        put(bytes);
        self.settled.insert(start..end);
        self.delivered.insert(start..end);
        self.seen = end;
        true
    }

    /// Takes in bytes that a frame carried, and hands those that are new to `put`, with their
    /// positions: none comes twice. Says how many were new. They count as handed over.
    ///
    /// # Errors
    /// [`SegmentError`] as of [`Reassembly::insert`]; nothing is changed then.
    pub fn insert_placed(
        &mut self,
        start: u64,
        bytes: &[u8],
        fin: bool,
        limit: u64,
        mut put: impl FnMut(u64, &[u8]),
    ) -> Result<u64, SegmentError> {
        let end = start + bytes.len() as u64;
        self.admit(start..end, fin, limit)?;
        self.confirm(start..end);
        self.end_run();
        let fresh: SmallVec<[Range<u64>; 2]> = self.settled.gaps(start..end).collect();
        let mut new = 0;
        for gap in fresh {
            new += gap.end - gap.start;
            put(gap.start, &bytes[(gap.start - start) as usize..(gap.end - start) as usize]);
            self.delivered.insert(gap);
        }
        self.settled.insert(start..end + u64::from(fin));
        self.seen = self.seen.max(end);
        if fin {
            self.fin = Some(end);
        }
        Ok(new)
    }

    /// Hands what is held of the bytes of these positions to `put`, as if it had been handed over.
    /// Bytes in the form of a presentation mechanism stay: they are not what is meant.
    pub fn place_held(&mut self, range: Range<u64>, mut put: impl FnMut(u64, &[u8])) {
        self.end_run();
        let before = self.pieces.range(..range.start).next_back().map(|(start, _)| *start);
        let within = self.pieces.range(range.clone()).map(|(start, _)| *start);
        let starts: Vec<u64> = before.into_iter().chain(within).collect();
        for start in starts {
            let reaches = |piece: &&Piece| {
                !piece.message && !piece.presented && start + piece.data.len() as u64 > range.start
            };
            if self.pieces.get(&start).filter(reaches).is_none() {
                continue;
            }
            let Some(Piece { mut data, message, presented, end }) = self.take_piece(start) else { continue };
            let mut at = start;
            let keep = |this: &mut Self, at: u64, data: Bytes| {
                if !data.is_empty() {
                    this.held_bytes += data.len();
                    this.pieces.insert(at, Piece { data, message, presented, end });
                    this.push_ready(at);
                }
            };
            if at < range.start {
                let front = data.split_to((range.start - at) as usize);
                keep(self, at, front);
                at = range.start;
            }
            let taken = data.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
            let rest = data.split_off(taken);
            put(at, &data);
            self.delivered.insert(at..at + taken as u64);
            keep(self, at + taken as u64, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Delivery, Segment};
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn bytes(start: u64, data: &[u8], fin: bool) -> Segment {
        let data = Bytes::copy_from_slice(data);
        Segment { start, data, message: false, presented: false, begin: false, end: false, fin }
    }

    /// A head, bytes that are placed, and a tail come in any order, some of them twice, and the
    /// memory is found at any time: each byte of it is put once, and the rest is read in order.
    #[test]
    fn each_byte_is_put_once_and_the_rest_is_read() {
        for seed in 0..300 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let all: Vec<u8> = (0..400).map(|_| rng.random()).collect();
            let (from, to) = (rng.random_range(0..60_u64), rng.random_range(100..=400_u64));
            let mut parts: Vec<(usize, usize)> = Vec::new();
            let mut at = 0;
            while at < all.len() {
                let end = (at + rng.random_range(1..40)).min(all.len());
                parts.extend(core::iter::repeat_n((at, end), rng.random_range(1..3)));
                at = end;
            }
            if rng.random_bool(0.7) {
                let count = parts.len();
                (0..count).for_each(|n| parts.swap(n, rng.random_range(n..count)));
            }
            let found_at = rng.random_range(0..parts.len());
            let (mut state, mut memory) = (Reassembly::default(), vec![None; all.len()]);
            let mut put = |at: u64, data: &[u8]| {
                for (n, byte) in data.iter().enumerate() {
                    let place = &mut memory[at as usize + n];
                    assert!(place.replace(*byte).is_none(), "seed {seed}: twice");
                }
            };
            for (n, (start, end)) in parts.into_iter().enumerate() {
                if n == found_at {
                    state.place_held(from..to, &mut put);
                }
                let (data, fin) = (&all[start..end], end == all.len());
                let (start, end) = (start as u64, end as u64);
                if n < found_at || end <= from || start >= to {
                    if fin || n < found_at && rng.random_bool(0.5) || !state.append(start, data, u64::MAX) {
                        state.insert(bytes(start, data, fin), u64::MAX).expect("in order");
                    }
                    continue;
                }
                // As the receiving half of a flow cuts it.
                let (a, b) = (from.clamp(start, end), to.clamp(start, end));
                let cut = |from: u64, to: u64| &data[(from - start) as usize..(to - start) as usize];
                if a > start {
                    state.insert(bytes(start, cut(start, a), false), u64::MAX).expect("in order");
                }
                let is_last = fin && b == end;
                if is_last || !state.append_placed(a, cut(a, b), u64::MAX, |data| put(a, data)) {
                    state.insert_placed(a, cut(a, b), is_last, u64::MAX, &mut put).expect("in order");
                }
                if b < end {
                    state.insert(bytes(b, cut(b, end), fin), u64::MAX).expect("in order");
                }
            }
            let mut read = Vec::new();
            loop {
                match state.pop_front(usize::MAX) {
                    Some(Delivery::Bytes(at, data)) => read.push((at, data)),
                    Some(Delivery::End) => break,
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            for (at, data) in read {
                for (n, byte) in data.iter().enumerate() {
                    let at = at as usize + n;
                    assert!(at < from as usize || at >= to as usize, "seed {seed}: {at} is no longer held");
                    memory[at] = Some(*byte);
                }
            }
            let memory: Vec<u8> = memory.into_iter().flatten().collect();
            assert_eq!(memory, all, "seed {seed}");
            assert_eq!((state.held_bytes(), state.consumed()), (0, 401), "seed {seed}");
        }
    }

    #[test]
    fn what_has_another_form_is_not_placed() {
        let mut state = Reassembly::default();
        let presented = Segment { presented: true, ..bytes(0, b"form", false) };
        state.insert(presented, 100).expect("in order");
        state.place_held(0..10, |_, _| panic!("placed"));
        assert_eq!(state.pop_front(10), Some(Delivery::PresentedBytes(0, Bytes::from_static(b"form"))));
    }

    #[test]
    fn what_breaks_the_rules_of_a_flow_is_placed_nowhere() {
        let mut state = Reassembly::default();
        let put = |_: u64, _: &[u8]| panic!("placed");
        let beyond = state.insert_placed(8, &[0; 8], false, 15, put);
        assert_eq!(beyond, Err(SegmentError::BeyondLimit { position: 16, limit: 15 }));
        assert!(!state.append_placed(0, &[0; 8], 7, |_| panic!("placed")));
        assert_eq!(state.insert_placed(4, &[1, 2], true, 100, |_, _| {}), Ok(2));
        assert_eq!(
            state.insert_placed(6, &[1], false, 100, put),
            Err(SegmentError::BeyondEnd { position: 7, end: 6 })
        );
        assert!(matches!(state.insert_placed(0, &[1], true, 100, put), Err(SegmentError::EndMoved { .. })));
    }
}
