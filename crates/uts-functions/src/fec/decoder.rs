//! The receiver's half: arrivals and repairs into recovered packets.

use super::{
    DATA_MAX, Fec, MASK_BYTES_MAX, PARITIES_MAX, PAYLOAD_BYTES_MAX, Recovered, Repair, SYMBOL_PREFIX_BYTES,
    Shape, Slot,
};
use crate::range::RangeSet;
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Keeps what lately arrived in one epoch, and recovers what did not as soon as enough repairs are there.
///
/// Feed every source and every repair, in whatever order they arrive. A packet number is recovered at most once, and
/// never after it arrived. All memory is bounded; what is given up for that is counted in [`Counters::abandoned`].
#[derive(Clone, Debug)]
pub struct Decoder {
    scheme: Slot,
    shape: Shape,
    /// Numbers, not below `floor`, that arrived or were recovered.
    known: RangeSet,
    floor: u64,
    window: Window,
    /// Blocks with repairs and too few sources, in the order of their first repair.
    blocks: VecDeque<Block>,
    block_bytes: usize,
    counters: Counters,
}

/// What became of repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Repairs that arrived.
    pub repairs: u64,
    /// Packets recovered.
    pub recovered: u64,
    /// Repairs that nothing was missing for, or that were there already.
    pub unneeded: u64,
    /// Repairs that no encoder makes, or that contradict others of their block or their own symbol.
    pub refused: u64,
    /// Repairs for packets that are long past.
    pub late: u64,
    /// Repairs given up: their block lacked too much for too long, or there was no room.
    pub abandoned: u64,
}

#[derive(Clone, Debug)]
struct Block {
    first: u64,
    /// The sources' distances from `first`, ascending.
    offsets: Offsets,
    parities: u8,
    symbols: SmallVec<[(u8, Bytes); 8]>,
}

type Offsets = SmallVec<[u8; DATA_MAX]>;

/// What a look at a block found.
enum Outcome {
    /// More repairs or sources are needed.
    Wait,
    /// Nothing is missing.
    Complete,
    /// These were missing.
    Recovered(Vec<Recovered>),
    /// The payload of a source is no longer there.
    Forgotten,
    /// Its parts do not fit together.
    Inconsistent,
}

impl Decoder {
    /// Before any arrival.
    pub fn new(scheme: Slot) -> Self {
        Decoder {
            shape: scheme.shape(),
            scheme,
            known: RangeSet::new(),
            floor: 0,
            window: Window::default(),
            blocks: VecDeque::new(),
            block_bytes: 0,
            counters: Counters::default(),
        }
    }

    /// What became of repairs so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes kept of payloads and parities.
    pub fn held_bytes(&self) -> usize {
        self.window.bytes + self.block_bytes
    }

    /// Takes in a packet that arrived: its number and its plaintext payload. Returns what it was the last piece for.
    pub fn on_source(&mut self, number: u64, payload: &[u8]) -> Vec<Recovered> {
        if self.shape.data == 0
            || number < self.floor
            || payload.len() > PAYLOAD_BYTES_MAX
            || !self.known.insert_one(number)
        {
            return Vec::new();
        }
        self.window.insert(number, payload);
        let mut recovered = Vec::new();
        let mut at = 0;
        while let Some(block) = self.blocks.get(at) {
            if block.contains(number) && self.settle(at, &mut recovered) {
                continue;
            }
            at += 1;
        }
        self.raise_floor();
        recovered
    }

    /// Takes in a repair. Returns what it completes.
    pub fn on_repair(&mut self, repair: &Repair) -> Vec<Recovered> {
        self.counters.repairs += 1;
        let mut recovered = Vec::new();
        let Some(offsets) = self.offsets(repair) else {
            self.counters.refused += 1;
            return recovered;
        };
        if repair.first < self.floor {
            self.counters.late += 1;
            return recovered;
        }
        if offsets.iter().all(|offset| self.known.contains(repair.first + u64::from(*offset))) {
            self.counters.unneeded += 1;
            self.forget(repair.first, &offsets);
            return recovered;
        }
        let at = match self.blocks.iter().position(|b| b.first == repair.first) {
            Some(at) => at,
            None => {
                self.make_room();
                let symbols = SmallVec::new();
                self.blocks.push_back(Block {
                    first: repair.first,
                    offsets: offsets.clone(),
                    parities: repair.parities,
                    symbols,
                });
                self.blocks.len() - 1
            }
        };
        let Some(block) = self.blocks.get_mut(at) else { return recovered };
        let same_length = block.symbols.first().is_none_or(|(_, symbol)| symbol.len() == repair.symbol.len());
        if block.offsets != offsets || block.parities != repair.parities || !same_length {
            self.counters.refused += 1;
            return recovered;
        }
        if block.symbols.iter().any(|(index, _)| *index == repair.index) {
            self.counters.unneeded += 1;
            return recovered;
        }
        // A copy: the repair's bytes may be a small part of a large buffer of datagrams.
        block.symbols.push((repair.index, Bytes::copy_from_slice(&repair.symbol)));
        self.block_bytes += repair.symbol.len();
        self.settle(at, &mut recovered);
        self.bound_bytes();
        self.raise_floor();
        recovered
    }

    /// The sources that a repair names, if it is one that an encoder of this scheme could have made.
    fn offsets(&self, repair: &Repair) -> Option<Offsets> {
        let most = self.shape.parities.min(PARITIES_MAX);
        let proper = (1..=MASK_BYTES_MAX).contains(&repair.mask.len())
            && repair.mask.first().is_some_and(|byte| byte & 1 == 1)
            && repair.mask.last().is_some_and(|byte| *byte != 0)
            && usize::from(repair.parities) <= most
            && repair.index < repair.parities
            && (SYMBOL_PREFIX_BYTES..=SYMBOL_PREFIX_BYTES + PAYLOAD_BYTES_MAX).contains(&repair.symbol.len())
            && repair.first < NUMBER_MAX;
        if !proper {
            return None;
        }
        let offsets: Offsets = repair.offsets().map(|offset| offset as u8).collect();
        (offsets.len() <= self.shape.data.min(DATA_MAX)).then_some(offsets)
    }

    /// Looks whether a block can be finished; if it is finished or hopeless, takes it out and says so.
    fn settle(&mut self, at: usize, recovered: &mut Vec<Recovered>) -> bool {
        let Some(block) = self.blocks.get(at) else { return false };
        let symbols = block.symbols.len() as u64;
        match self.examine(block) {
            Outcome::Wait => return false,
            Outcome::Complete => self.counters.unneeded += symbols,
            Outcome::Forgotten => self.counters.abandoned += symbols,
            Outcome::Inconsistent => self.counters.refused += symbols,
            Outcome::Recovered(packets) => {
                for packet in &packets {
                    self.known.insert_one(packet.number);
                }
                self.counters.recovered += packets.len() as u64;
                recovered.extend(packets);
            }
        }
        if let Some(block) = self.remove(at) {
            self.forget(block.first, &block.offsets);
        }
        true
    }

    fn examine(&self, block: &Block) -> Outcome {
        let missing = block.numbers().filter(|n| !self.known.contains(*n)).count();
        if missing == 0 {
            return Outcome::Complete;
        }
        if missing > block.symbols.len() {
            return Outcome::Wait;
        }
        let symbol_bytes = block.symbols.first().map_or(0, |(_, symbol)| symbol.len());
        let mut sources: SmallVec<[Option<&[u8]>; DATA_MAX]> = SmallVec::new();
        for number in block.numbers() {
            let payload = self.window.get(number);
            if payload.is_none() && self.known.contains(number) {
                return Outcome::Forgotten;
            }
            if payload.is_some_and(|p| SYMBOL_PREFIX_BYTES + p.len() > symbol_bytes) {
                return Outcome::Inconsistent;
            }
            sources.push(payload);
        }
        let parities: SmallVec<[(u8, &[u8]); 8]> = block.symbols.iter().map(|(i, s)| (*i, &s[..])).collect();
        let Some(symbols) = self.scheme.reconstruct(&sources, &parities) else { return Outcome::Wait };
        let numbers = block.numbers().zip(&sources).filter(|(_, s)| s.is_none()).map(|(number, _)| number);
        let packets: Option<Vec<Recovered>> = numbers
            .zip(symbols)
            .map(|(number, symbol)| Some(Recovered { number, payload: payload_of(symbol)? }))
            .collect();
        packets.map_or(Outcome::Inconsistent, Outcome::Recovered)
    }

    /// Lets go of the payloads of a block that needs them no more.
    fn forget(&mut self, first: u64, offsets: &Offsets) {
        for offset in offsets {
            self.window.remove(first + u64::from(*offset));
        }
    }

    fn remove(&mut self, at: usize) -> Option<Block> {
        let block = self.blocks.remove(at)?;
        self.block_bytes -= block.symbol_bytes();
        Some(block)
    }

    fn abandon(&mut self, at: usize) {
        self.counters.abandoned += self.remove(at).map_or(0, |b| b.symbols.len() as u64);
    }

    fn make_room(&mut self) {
        if self.blocks.len() >= BLOCKS_MAX {
            self.abandon(0);
        }
    }

    fn bound_bytes(&mut self) {
        while self.block_bytes > BYTES_MAX {
            self.abandon(0);
        }
    }

    /// Moves on what is too old to matter.
    fn raise_floor(&mut self) {
        let Some(highest) = self.known.last().map(|r| r.end - 1) else { return };
        let floor = highest.saturating_sub(HISTORY);
        if floor <= self.floor {
            return;
        }
        self.floor = floor;
        self.known.remove_below(floor);
        self.window.remove_below(floor);
        let mut at = 0;
        while let Some(block) = self.blocks.get(at) {
            if block.first < floor {
                self.abandon(at);
            } else {
                at += 1;
            }
        }
    }
}

impl Block {
    fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.offsets.iter().map(|offset| self.first + u64::from(*offset))
    }

    fn contains(&self, number: u64) -> bool {
        number
            .checked_sub(self.first)
            .and_then(|offset| u8::try_from(offset).ok())
            .is_some_and(|offset| self.offsets.binary_search(&offset).is_ok())
    }

    fn symbol_bytes(&self) -> usize {
        self.symbols.iter().map(|(_, symbol)| symbol.len()).sum()
    }
}

/// The payload of a symbol; `None` if the length does not fit or the padding is not zero, as no source has it.
fn payload_of(symbol: Vec<u8>) -> Option<Bytes> {
    let (prefix, rest) = symbol.split_first_chunk::<SYMBOL_PREFIX_BYTES>()?;
    let length = usize::from(u16::from_be_bytes(*prefix));
    let padding = rest.get(length..)?;
    padding
        .iter()
        .all(|byte| *byte == 0)
        .then(|| Bytes::from(symbol).slice(SYMBOL_PREFIX_BYTES..SYMBOL_PREFIX_BYTES + length))
}

/// Payloads that lately arrived, ascending by number; those let go of are `None` until they are first.
#[derive(Clone, Debug, Default)]
struct Window {
    payloads: VecDeque<(u64, Option<Box<[u8]>>)>,
    bytes: usize,
}

impl Window {
    fn insert(&mut self, number: u64, payload: &[u8]) {
        // Nearly always behind the last.
        let behind = self.payloads.iter().rev().take_while(|(n, _)| *n > number).count();
        let at = self.payloads.len() - behind;
        self.payloads.insert(at, (number, Some(payload.into())));
        self.bytes += payload.len();
        while self.payloads.len() > SOURCES_MAX || self.bytes > BYTES_MAX {
            self.pop_first();
        }
    }

    fn get(&self, number: u64) -> Option<&[u8]> {
        let at = self.payloads.binary_search_by_key(&number, |(n, _)| *n).ok()?;
        self.payloads.get(at)?.1.as_deref()
    }

    fn remove(&mut self, number: u64) {
        if let Ok(at) = self.payloads.binary_search_by_key(&number, |(n, _)| *n)
            && let Some(payload) = self.payloads.get_mut(at).and_then(|(_, payload)| payload.take())
        {
            self.bytes -= payload.len();
        }
        while self.payloads.front().is_some_and(|(_, payload)| payload.is_none()) {
            self.payloads.pop_front();
        }
    }

    fn remove_below(&mut self, floor: u64) {
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

/// How far behind the highest number that arrived a packet may be recovered: four spans, so that reordering by many
/// packets does no harm. Bounds `known` as well, to half as many ranges.
const HISTORY: u64 = 4 * super::SPAN_MAX;

/// Payloads kept: two spans, the block that its repairs are on the way for and the next.
const SOURCES_MAX: usize = 2 * super::SPAN_MAX as usize;

/// Bytes kept of payloads, and of parities: two spans of packets of an Ethernet's size, rounded up.
const BYTES_MAX: usize = 1 << 20;

/// Blocks that may wait for more: as many as are interleaved at most, twice.
const BLOCKS_MAX: usize = 32;

/// Numbers stay below this (RFC 9000 section 12.3), so that adding a span cannot overflow.
const NUMBER_MAX: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fec::xor;

    /// A repair of one source recovers it unseen: numbers that a peer makes up must not pile up.
    #[test]
    fn numbers_that_never_arrived_are_bounded_too() {
        let choice = xor::Xor::INFO.choice();
        let mut decoder = Decoder::new(Slot::build(&choice, ()).expect("default parameters"));
        for i in 0..5000u64 {
            let recovered = decoder.on_repair(&Repair {
                first: i * 2,
                mask: SmallVec::from_slice(&[1]),
                index: 0,
                parities: 1,
                symbol: Bytes::from_static(&[0, 0]),
            });
            assert_eq!(recovered.len(), 1);
        }
        assert!(decoder.known.len() as u64 <= HISTORY / 2 + 1, "{} ranges", decoder.known.len());
    }

    #[test]
    fn the_window_keeps_the_newest() {
        let mut window = Window::default();
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
