//! Payloads that lately arrived: what both kinds of decoders keep.

use super::SYMBOL_PREFIX_BYTES;
use bytes::Bytes;
use std::collections::VecDeque;

/// The payload of a symbol; `None` if the length does not fit or the padding is not zero, as no
/// source has it (fec.md R-10).
pub(super) fn payload_of(symbol: Vec<u8>) -> Option<Bytes> {
    let (prefix, rest) = symbol.split_first_chunk::<SYMBOL_PREFIX_BYTES>()?;
    let length = usize::from(u16::from_be_bytes(*prefix));
    let padding = rest.get(length..)?;
    padding
        .iter()
        .all(|byte| *byte == 0)
        .then(|| Bytes::from(symbol).slice(SYMBOL_PREFIX_BYTES..SYMBOL_PREFIX_BYTES + length))
}

/// Payloads that lately arrived, ascending by number; those let go of are `None` until they are
/// first.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrived {
    payloads: VecDeque<(u64, Option<Box<[u8]>>)>,
    pub bytes: usize,
}

impl Arrived {
    pub fn insert(&mut self, number: u64, payload: &[u8]) {
        // Nearly always behind the last.
        let behind = self.payloads.iter().rev().take_while(|(n, _)| *n > number).count();
        let at = self.payloads.len() - behind;
        self.payloads.insert(at, (number, Some(payload.into())));
        self.bytes += payload.len();
        while self.payloads.len() > SOURCES_MAX || self.bytes > BYTES_MAX {
            self.pop_first();
        }
    }

    /// Bytes of memory, those of the list included.
    pub fn memory_bytes(&self) -> usize {
        self.bytes + self.payloads.capacity() * size_of::<(u64, Option<Box<[u8]>>)>()
    }

    pub fn get(&self, number: u64) -> Option<&[u8]> {
        let at = self.payloads.binary_search_by_key(&number, |(n, _)| *n).ok()?;
        self.payloads.get(at)?.1.as_deref()
    }

    pub fn remove(&mut self, number: u64) {
        if let Ok(at) = self.payloads.binary_search_by_key(&number, |(n, _)| *n)
            && let Some(payload) = self.payloads.get_mut(at).and_then(|(_, payload)| payload.take())
        {
            self.bytes -= payload.len();
        }
        while self.payloads.front().is_some_and(|(_, payload)| payload.is_none()) {
            self.payloads.pop_front();
        }
    }

    pub fn remove_below(&mut self, floor: u64) {
        while self.payloads.front().is_some_and(|(number, _)| *number < floor) {
            self.pop_first();
        }
    }

    fn pop_first(&mut self) {
        if let Some((_, Some(payload))) = self.payloads.pop_front() {
            self.bytes -= payload.len();
        }
    }
}

/// Distance behind the highest number that arrived within which a packet may be recovered: four
/// spans, so that reordering by many packets does no harm (fec.md R-12). Bounds `known` as well, to
/// half as many ranges.
pub(super) const HISTORY: u64 = 4 * super::SPAN_MAX;

/// Payloads kept: two spans, the block that its repairs are on the way for and the next.
const SOURCES_MAX: usize = 2 * super::SPAN_MAX as usize;

/// Bytes kept of payloads, and of parities: two spans of packets of an Ethernet's size, rounded up.
pub(super) const BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_keeps_the_newest() {
        let mut window = Arrived::default();
        for number in 0..2 * SOURCES_MAX as u64 {
            // Pairs change places.
            window.insert(number ^ 1, &[1; 4]);
        }
        assert_eq!((window.payloads.len(), window.bytes), (SOURCES_MAX, 4 * SOURCES_MAX));
        assert!(window.get(SOURCES_MAX as u64 - 1).is_none() && window.get(SOURCES_MAX as u64).is_some());
        assert!(window.payloads.iter().zip(window.payloads.iter().skip(1)).all(|(a, b)| a.0 < b.0));
        for number in 0..2 * SOURCES_MAX as u64 {
            window.remove(number);
        }
        assert_eq!((window.payloads.len(), window.bytes), (0, 0));
    }
}
