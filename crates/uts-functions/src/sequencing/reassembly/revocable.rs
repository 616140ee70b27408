//! Data that the receiver may give up again, since nobody was told that it has arrived: what lies
//! behind a gap, where reports wait until the gap is filled (acknowledgement.md R-22; RFC 2018
//! section 8).

use super::{Reassembly, Segment, SegmentError};
use core::ops::Range;
use smallvec::SmallVec;

impl Reassembly {
    /// True if something is missing before data that has arrived.
    #[inline]
    pub fn has_gap(&self) -> bool {
        self.settled.last().is_some_and(|last| last.end > self.contiguous())
    }

    /// Takes in what a frame carried, as [`Reassembly::insert`] does, and may give up again what is
    /// new of it.
    ///
    /// # Errors
    /// [`SegmentError`] if the peer breaks the rules; nothing is changed then.
    pub fn insert_revocable(&mut self, segment: Segment, limit: u64) -> Result<u64, SegmentError> {
        let end = segment.start + segment.data.len() as u64 + u64::from(segment.end);
        let fresh: SmallVec<[Range<u64>; 2]> = self.settled.gaps(segment.start..end).collect();
        let new = self.insert(segment, limit)?;
        let contiguous = self.contiguous();
        // Messages that wait for others than those before them are in further lists.
        if self.orders.is_none() {
            let revocable = self.revocable.get_or_insert_default();
            fresh.into_iter().for_each(|range| {
                revocable.insert(range);
            });
            revocable.remove_below(contiguous);
        }
        Ok(new)
    }

    /// The sender is told that these positions have arrived: they stay.
    pub fn confirm(&mut self, range: Range<u64>) {
        if let Some(revocable) = &mut self.revocable {
            revocable.remove(range);
        }
    }

    /// The sender is told of all that has arrived: it stays.
    pub fn confirm_all(&mut self) {
        self.revocable = None;
    }

    /// Gives up what may be given up, as if it had never come. What can be handed over in order
    /// stays.
    pub fn revoke(&mut self) {
        let Some(revocable) = self.revocable.take() else { return };
        self.end_run();
        let starts: Vec<u64> = self
            .pieces
            .range(self.contiguous()..)
            .filter(|(start, piece)| revocable.contains_range(&(**start..**start + piece.positions())))
            .map(|(start, _)| *start)
            .collect();
        for start in starts {
            if let Some(piece) = self.take_piece(start) {
                self.settled.remove(start..start + piece.positions());
            }
        }
        let ready = core::mem::take(&mut self.ready);
        self.ready =
            ready.into_iter().filter(|r| r.whole.is_some() || self.is_still_ready(r.start)).collect();
    }

    fn is_still_ready(&self, start: u64) -> bool {
        let piece = self.pieces.get(&start);
        piece.is_some_and(|piece| !piece.message || self.whole_message_around(start).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Delivery;
    use super::*;
    use bytes::Bytes;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const MESSAGES: usize = 12;

    /// Messages of these lengths, one behind the other, and the flow's end.
    fn parts(rng: &mut ChaCha8Rng, message: bool) -> (Vec<u8>, Vec<(Segment, u64)>) {
        let lengths: Vec<usize> = (0..MESSAGES).map(|_| rng.random_range(0..30)).collect();
        let (mut all, mut parts, mut start) = (Vec::new(), Vec::new(), 0);
        for (number, len) in lengths.iter().enumerate() {
            let data: Vec<u8> = (0..*len).map(|_| rng.random()).collect();
            all.extend_from_slice(&data);
            let cut = rng.random_range(0..=*len);
            for (from, to) in [(0, cut), (cut, *len)] {
                let (begin, end) = (message && from == 0, message && to == *len);
                let fin = number + 1 == MESSAGES && to == *len;
                if from == to && !(begin && end || fin) {
                    continue;
                }
                let data = Bytes::copy_from_slice(&data[from..to]);
                let at = start + from as u64;
                let segment = Segment { start: at, data, message, presented: false, begin, end, fin };
                let positions = (to - from) as u64 + u64::from(end);
                parts.push((segment, at + positions));
            }
            start += *len as u64 + u64::from(message);
        }
        (all, parts)
    }

    /// Whatever is given up at whatever time: all arrives once, in order, if it is sent again; and
    /// what the sender was told of is never given up.
    #[test]
    fn what_is_given_up_can_come_again() {
        for seed in 0..2000 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let message = rng.random_bool(0.5);
            let (all, parts) = parts(&mut rng, message);
            let (mut state, mut read, mut ended) = (Reassembly::default(), Vec::new(), false);
            let mut firm = vec![false; parts.len()];
            for _ in 0..10_000 {
                if ended {
                    break;
                }
                let index = rng.random_range(0..parts.len());
                let (segment, end) = parts[index].clone();
                let range = segment.start..end;
                if rng.random_bool(0.7) {
                    state.insert_revocable(segment, 10_000).expect("in bounds");
                } else {
                    state.insert(segment, 10_000).expect("in bounds");
                    firm[index] = true;
                }
                if rng.random_bool(0.1) {
                    state.revoke();
                    let gaps = state.missing().count();
                    assert!(gaps == 0 || state.has_gap(), "seed {seed}");
                }
                for (part, _) in firm.iter().zip(&parts).filter(|(firm, _)| **firm).map(|(_, part)| part) {
                    let is_here =
                        state.settled.contains_range(&(part.start..part.start + part.data.len() as u64));
                    assert!(is_here, "seed {seed}: {} is gone", part.start);
                }
                assert!(state.settled.contains_range(&range) || !firm[index], "seed {seed}");
                while let Some(delivery) = state.pop_front(7) {
                    match delivery {
                        Delivery::Bytes(_, data) | Delivery::Message(_, data) => {
                            read.extend_from_slice(&data)
                        }
                        Delivery::End => {
                            ended = true;
                            break;
                        }
                        other => panic!("seed {seed}: {other:?}"),
                    }
                }
            }
            assert!(ended && read == all, "seed {seed}: {} of {} bytes", read.len(), all.len());
            assert_eq!(state.held_bytes(), 0, "seed {seed}");
        }
    }

    #[test]
    fn memory_is_free_again() {
        let mut state = Reassembly::default();
        let segment = |number: u64, revocable: bool| {
            let data = Bytes::from(vec![7; 100]);
            let start = number * 100;
            let segment = Segment {
                start,
                data,
                message: false,
                presented: false,
                begin: false,
                end: false,
                fin: false,
            };
            (segment, revocable)
        };
        for (segment, revocable) in [segment(2, true), segment(5, false), segment(3, true), segment(0, true)]
        {
            match revocable {
                true => state.insert_revocable(segment, 10_000),
                false => state.insert(segment, 10_000),
            }
            .expect("in bounds");
        }
        state.confirm(300..400);
        state.revoke();
        assert_eq!(state.missing().collect::<Vec<_>>(), [100..300, 400..500]);
        assert_eq!(
            state.held_bytes(),
            300,
            "what can be read, what is known to have come, what came for good"
        );
    }
}
