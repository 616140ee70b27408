//! Demand: the half of a retransmission mechanism that works at the receiver, and asks for what is
//! missing there; and the words in which missing positions are named.

use crate::time::Time;
use core::fmt;
use core::ops::Range;
use core::time::Duration;
use dyn_clone::DynClone;
use uts_wire::varint::{Reader, put_varint};

/// Ranges that are asked for at once, at the most.
pub const RANGES_MAX: usize = 16;

/// A flow as its receiver sees it.
pub struct Received<'a> {
    /// The instant.
    pub now: Time,
    /// The end of the highest data that has arrived.
    pub reaches: u64,
    /// The end of the flow has arrived: nothing is above `reaches`.
    pub is_ended: bool,
    /// Positions that are missing below `reaches`, in ascending order.
    pub missing: &'a mut dyn Iterator<Item = Range<u64>>,
    /// The smoothed round trip.
    pub rtt: Duration,
}

/// The half of a mechanism at the receiver of one flow.
pub trait Demand: fmt::Debug + DynClone + Send {
    /// Something may be missing, or no longer be: to be called when data has arrived and there are
    /// gaps, and before [`Demand::take`].
    fn look(&mut self, flow: &mut Received<'_>);

    /// When there is something to ask for.
    fn due(&self) -> Option<Time>;

    /// Positions to ask for now, at most [`RANGES_MAX`] ranges in ascending order. They count as
    /// asked for.
    fn take(&mut self, now: Time, rtt: Duration) -> Vec<Range<u64>>;
}

dyn_clone::clone_trait_object!(Demand);

/// Missing positions, and when they are to be asked for: a gap is asked for once it has been there
/// for a while, and again once the answer is overdue.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    /// Each gap that is known, with the instant at which it is to be asked for (again).
    known: Vec<(Range<u64>, Time)>,
}

/// Gaps that are followed at the most. Those beyond are seen when there is room.
const GAPS_MAX: usize = 256;

impl Gaps {
    /// Takes over what is missing now. A part of a gap that was known is as old as it was; a new
    /// one is to be asked for after `patience`.
    pub fn update(&mut self, now: Time, missing: impl Iterator<Item = Range<u64>>, patience: Duration) {
        let before = core::mem::take(&mut self.known);
        let mut old = before.iter().peekable();
        for gap in missing.take(GAPS_MAX) {
            while old.next_if(|(known, _)| known.end <= gap.start).is_some() {}
            let at = match old.peek() {
                Some((known, at)) if known.start < gap.end => *at,
                _ => now + patience,
            };
            self.known.push((gap, at));
        }
    }

    /// The gaps that are due, which are asked for again after [`interval`].
    pub fn take_due(&mut self, now: Time, rtt: Duration) -> Vec<Range<u64>> {
        let interval = interval(rtt);
        let due = self.known.iter_mut().filter(|(_, at)| *at <= now).take(RANGES_MAX);
        due.map(|(gap, at)| {
            *at = now + interval;
            gap.clone()
        })
        .collect()
    }

    /// When the next gap is due.
    pub fn next(&self) -> Option<Time> {
        self.known.iter().map(|(_, at)| *at).min()
    }
}

/// The shortest time after which a gap is asked for again.
const INTERVAL_MIN: Duration = Duration::from_millis(5);

/// After how long a gap is asked for again: an answer takes a round trip, and waits in queues.
fn interval(rtt: Duration) -> Duration {
    (rtt + rtt / 2).max(INTERVAL_MIN)
}

/// Appends ranges, which ascend: each as its distance from the one before, and its length
/// (variable-length integers of RFC 9000 section 16). Says how many of them fit into `bytes_max`.
pub fn emit_ranges(ranges: &[Range<u64>], bytes_max: usize, out: &mut Vec<u8>) -> usize {
    let (start, mut before) = (out.len(), 0);
    for (count, range) in ranges.iter().enumerate() {
        let mark = out.len();
        put_varint(out, range.start - before);
        put_varint(out, range.end - range.start);
        if out.len() - start > bytes_max {
            out.truncate(mark);
            return count;
        }
        before = range.end;
    }
    ranges.len()
}

/// Reads what [`emit_ranges`] has written; `None` if it is anything else.
pub fn read_ranges(words: &[u8]) -> Option<Vec<Range<u64>>> {
    let (mut r, mut ranges, mut before) = (Reader::new(words), Vec::new(), 0u64);
    while !r.is_empty() {
        let start = before.checked_add(r.varint("distance").ok()?)?;
        let end = start.checked_add(r.varint("length").ok()?).filter(|end| *end > start)?;
        if ranges.len() == RANGES_MAX {
            return None;
        }
        ranges.push(start..end);
        before = end;
    }
    (!ranges.is_empty()).then_some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn ranges_are_read_as_they_were_written() {
        for seed in 0..500 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let (mut ranges, mut at) = (Vec::new(), 0u64);
            for _ in 0..rng.random_range(1..=RANGES_MAX) {
                let scale = 1u64 << rng.random_range(1..50);
                let start = at + rng.random_range(0..scale);
                at = start + rng.random_range(1..=scale);
                ranges.push(start..at);
            }
            let mut words = Vec::new();
            let count = emit_ranges(&ranges, 200, &mut words);
            assert!(count > 0 && words.len() <= 200, "seed {seed}");
            assert_eq!(read_ranges(&words).as_deref(), Some(&ranges[..count]), "seed {seed}");
            if let Some(cut) = read_ranges(&words[..words.len() - 1]) {
                assert!(cut.len() < count, "seed {seed}: a part of a range is none");
            }
        }
    }

    #[test]
    fn words_that_are_no_ranges_are_refused() {
        let endless = [0xff; 16];
        let empty_range = [5, 0];
        let too_many: Vec<u8> = [1, 1].repeat(RANGES_MAX + 1);
        for words in [&[][..], &[1], &empty_range, &endless[..9], &too_many] {
            assert_eq!(read_ranges(words), None, "{words:?}");
        }
        assert!(read_ranges(&endless).is_none_or(|ranges| ranges.iter().all(|r| r.end > r.start)));
    }

    #[test]
    fn a_gap_is_asked_for_when_it_is_old_enough_and_again_when_the_answer_is_overdue() {
        let ms = Duration::from_millis;
        let (mut gaps, at) = (Gaps::default(), Time::from_millis);
        gaps.update(at(0), [10..30].into_iter(), ms(2));
        assert!(gaps.take_due(at(1), ms(40)).is_empty());
        assert_eq!(gaps.next(), Some(at(2)));
        assert_eq!(gaps.take_due(at(2), ms(40)), [10..30]);
        // A part of it arrives, and another gap appears: the first is as old as it was.
        gaps.update(at(10), [10..15, 20..30, 40..50].into_iter(), ms(2));
        assert_eq!(gaps.take_due(at(12), ms(40)), [40..50]);
        assert_eq!(gaps.take_due(at(62), ms(40)), [10..15, 20..30]);
        gaps.update(at(70), core::iter::empty(), ms(2));
        assert_eq!(gaps.next(), None);
    }
}
