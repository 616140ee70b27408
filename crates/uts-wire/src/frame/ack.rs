//! Acknowledgements: which packets arrived, or were recovered.

use super::kind;
use crate::error::WireError;
use crate::varint::{Counter, Reader, Sink, VARINT_MAX, emitters, varint_len};
use core::fmt;
use core::ops::Range;

/// The most ranges in a frame. [P-23]
pub const MAX_ACK_RANGES: usize = 64;

/// Ranges of packet numbers, coded as in RFC 9000 section 19.3.1 and checked when they were read.
/// [P-23]
#[derive(Clone, Copy)]
pub struct AckRanges<'a> {
    largest: u64,
    first_len: u64,
    more: u8,
    // `more` pairs of gap and length, already checked.
    pairs: &'a [u8],
}

/// Packets that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Their numbers.
    pub ranges: AckRanges<'a>,
    /// Microseconds between the arrival of the largest and this frame.
    pub delay_us: u64,
    /// Counts of the path's marks.
    pub ecn: Option<EcnCounts>,
}

/// Packets that arrived so far with each mark of explicit congestion notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// Marked ECT(0).
    pub ect0: u64,
    /// Marked ECT(1).
    pub ect1: u64,
    /// Marked "congestion experienced".
    pub ce: u64,
}

impl<'a> AckRanges<'a> {
    /// The largest packet number.
    pub const fn largest(&self) -> u64 {
        self.largest
    }

    /// Number of ranges, 1 to 64.
    pub const fn count(&self) -> usize {
        self.more as usize + 1
    }

    /// The ranges from the largest down; none is empty and no two touch.
    pub fn iter(&self) -> AckRangeIter<'a> {
        AckRangeIter { next: Some((self.largest, self.first_len)), pairs: Reader::new(self.pairs) }
    }

    pub(crate) fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let largest = r.varint("largest acknowledged")?;
        let at = r.offset();
        let more = r.varint("ack range count")?;
        let count = u8::try_from(more).ok().filter(|more| usize::from(*more) < MAX_ACK_RANGES);
        let more =
            count.ok_or(WireError::too_long("ack range count", at, more, MAX_ACK_RANGES as u64 - 1))?;
        let at = r.offset();
        let first_len = r.varint("first ack range")?;
        let below = "packet numbers not below zero";
        let mut smallest = largest.checked_sub(first_len).ok_or(WireError::value(
            "first ack range",
            at,
            first_len,
            below,
        ))?;
        let start = *r;
        for _ in 0..more {
            let at = r.offset();
            let gap = r.varint("ack gap")?;
            let top = smallest.checked_sub(gap).and_then(|s| s.checked_sub(2));
            let top = top.ok_or(WireError::value("ack gap", at, gap, below))?;
            let at = r.offset();
            let len = r.varint("ack range")?;
            smallest = top.checked_sub(len).ok_or(WireError::value("ack range", at, len, below))?;
        }
        let pairs = start.peek().get(..r.offset().saturating_sub(start.offset())).unwrap_or(&[]);
        Ok(AckRanges { largest, first_len, more, pairs })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_varint(self.largest);
        out.put_varint(u64::from(self.more));
        out.put_varint(self.first_len);
        out.put(self.pairs);
    }
}

impl PartialEq for AckRanges<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for AckRanges<'_> {}

impl fmt::Debug for AckRanges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for AckRanges<'a> {
    type Item = Range<u64>;
    type IntoIter = AckRangeIter<'a>;

    fn into_iter(self) -> AckRangeIter<'a> {
        self.iter()
    }
}

/// Ranges of packet numbers from the largest down.
#[derive(Clone, Debug)]
pub struct AckRangeIter<'a> {
    next: Option<(u64, u64)>,
    pairs: Reader<'a>,
}

impl Iterator for AckRangeIter<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let (largest, len) = self.next.take()?;
        let smallest = largest.checked_sub(len)?;
        self.next = self.pair_below(smallest);
        Some(smallest..largest.checked_add(1)?)
    }
}

impl AckRangeIter<'_> {
    fn pair_below(&mut self, smallest: u64) -> Option<(u64, u64)> {
        let gap = self.pairs.varint("ack gap").ok()?;
        let len = self.pairs.varint("ack range").ok()?;
        Some((smallest.checked_sub(gap)?.checked_sub(2)?, len))
    }
}

impl<'a> Ack<'a> {
    pub(crate) fn read(with_ecn: bool, r: &mut Reader<'a>) -> Result<Self, WireError> {
        let delay_us = r.varint("ack delay")?;
        let ranges = AckRanges::read(r)?;
        let ecn = if with_ecn { Some(EcnCounts::read(r)?) } else { None };
        Ok(Ack { ranges, delay_us, ecn })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(if self.ecn.is_some() { kind::ACK_ECN } else { kind::ACK });
        out.put_varint(self.delay_us);
        self.ranges.write(out);
        if let Some(ecn) = self.ecn {
            ecn.write(out);
        }
    }
}

emitters!(Ack<'_>);

impl EcnCounts {
    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (ect0, ect1, ce) = (r.varint("ECT(0) count")?, r.varint("ECT(1) count")?, r.varint("CE count")?);
        Ok(EcnCounts { ect0, ect1, ce })
    }

    fn write<S: Sink>(&self, out: &mut S) {
        [self.ect0, self.ect1, self.ce].into_iter().for_each(|count| out.put_varint(count));
    }
}

/// Appends an acknowledgement with as many of `ranges` as fit in `budget_bytes` (and in
/// [`MAX_ACK_RANGES`]).
///
/// `ranges` come from the largest down, non-empty, with at least one number between them. The frame
/// ends at the first that breaks this. Returns how many ranges were written; 0 means that nothing
/// was appended.
pub fn emit_ack(
    out: &mut Vec<u8>,
    ranges: impl IntoIterator<Item = Range<u64>>,
    delay_us: u64,
    ecn: Option<EcnCounts>,
    budget_bytes: usize,
) -> usize {
    let start = out.len();
    let tail_bytes = ecn.map_or(0, |ecn| {
        let mut counter = Counter::default();
        ecn.write(&mut counter);
        counter.0
    });
    out.put_u8(if ecn.is_some() { kind::ACK_ECN } else { kind::ACK });
    out.put_varint(delay_us);
    let end = start.saturating_add(budget_bytes.saturating_sub(tail_bytes));
    let written = put_ranges(out, ranges, end);
    match (written, ecn) {
        (0, _) => out.truncate(start),
        (_, Some(ecn)) => ecn.write(out),
        _ => {}
    }
    written
}

/// Appends a report of recovered packets; otherwise as [`emit_ack`].
pub fn emit_repaired(
    out: &mut Vec<u8>,
    ranges: impl IntoIterator<Item = Range<u64>>,
    budget_bytes: usize,
) -> usize {
    let start = out.len();
    out.put_u8(kind::REPAIRED);
    let written = put_ranges(out, ranges, start.saturating_add(budget_bytes));
    if written == 0 {
        out.truncate(start);
    }
    written
}

/// Appends as many ranges as leave `out` no longer than `end`. If that is none, what it appended is
/// of no use.
fn put_ranges(out: &mut Vec<u8>, ranges: impl IntoIterator<Item = Range<u64>>, end: usize) -> usize {
    let mut ranges = ranges.into_iter();
    let Some(first) = ranges.next().filter(|first| !first.is_empty() && first.end <= VARINT_MAX) else {
        return 0;
    };
    let largest = first.end.saturating_sub(1);
    out.put_varint(largest);
    let count_at = out.len();
    out.put_u8(0);
    out.put_varint(largest.saturating_sub(first.start));
    if out.len() > end {
        return 0;
    }
    let (mut smallest, mut more) = (first.start, 0u8);
    for range in ranges.take(MAX_ACK_RANGES - 1) {
        let Some(gap) = smallest.checked_sub(range.end).and_then(|unseen| unseen.checked_sub(1)) else {
            break;
        };
        let Some(len) = range.end.checked_sub(range.start).and_then(|count| count.checked_sub(1)) else {
            break;
        };
        if out.len().saturating_add(varint_len(gap)).saturating_add(varint_len(len)) > end {
            break;
        }
        out.put_varint(gap);
        out.put_varint(len);
        smallest = range.start;
        more = more.saturating_add(1);
    }
    // At most 63, so that the count's variable-length integer is the one byte kept free for it.
    if let Some(count) = out.get_mut(count_at) {
        *count = more;
    }
    usize::from(more).saturating_add(1)
}
