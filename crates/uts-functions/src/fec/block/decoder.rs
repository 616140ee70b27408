//! The receiver's half: arrivals and repairs into recovered packets.

use super::BlockCode;
use crate::fec::arrived::{Arrived, BYTES_MAX, HISTORY, payload_of};
use crate::fec::{
    Counters, DATA_MAX, Decode, Offsets, PARITIES_MAX, PAYLOAD_BYTES_MAX, Recovered, Repair, RepairId,
    SYMBOL_PREFIX_BYTES, Shape,
};
use crate::range::RangeSet;
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Keeps what lately arrived in one epoch, and recovers what did not as soon as enough repairs are
/// there.
#[derive(Clone, Debug)]
pub struct Decoder<C> {
    code: C,
    shape: Shape,
    /// Numbers, not below `floor`, that arrived or were recovered.
    known: RangeSet,
    floor: u64,
    window: Arrived,
    /// Blocks with repairs and too few sources, in the order of their first repair.
    blocks: VecDeque<Block>,
    block_bytes: usize,
    counters: Counters,
}

#[derive(Clone, Debug)]
struct Block {
    first: u64,
    /// The sources' distances from `first`, ascending.
    offsets: Offsets,
    parities: u8,
    symbols: SmallVec<[(u8, Bytes); 8]>,
}

/// Result of a look at a block.
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

impl<C: BlockCode> Decoder<C> {
    /// Before any arrival.
    pub fn new(code: C) -> Self {
        Decoder {
            shape: code.shape(),
            code,
            known: RangeSet::new(),
            floor: 0,
            window: Arrived::default(),
            blocks: VecDeque::new(),
            block_bytes: 0,
            counters: Counters::default(),
        }
    }
}

impl<C: BlockCode> Decode for Decoder<C> {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn held_bytes(&self) -> usize {
        self.window.bytes + self.block_bytes
    }

    fn memory_bytes(&self) -> usize {
        self.window.memory_bytes() + self.block_bytes + self.blocks.capacity() * size_of::<Block>()
    }

    fn forget(&mut self) {
        self.counters.abandoned += self.blocks.len() as u64;
        (self.window, self.blocks, self.block_bytes) = (Arrived::default(), VecDeque::new(), 0);
    }

    fn on_source(&mut self, number: u64, payload: &[u8]) -> Vec<Recovered> {
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

    fn on_repair(&mut self, repair: &Repair) -> Vec<Recovered> {
        self.counters.repairs += 1;
        let mut recovered = Vec::new();
        let (Some(offsets), RepairId::Block { index, parities }) = (self.offsets(repair), repair.id) else {
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
                    parities,
                    symbols,
                });
                self.blocks.len() - 1
            }
        };
        let Some(block) = self.blocks.get_mut(at) else { return recovered };
        // fec.md R-9: repairs of a block agree.
        let same_length = block.symbols.first().is_none_or(|(_, symbol)| symbol.len() == repair.symbol.len());
        if block.offsets != offsets || block.parities != parities || !same_length {
            self.counters.refused += 1;
            return recovered;
        }
        if block.symbols.iter().any(|(at, _)| *at == index) {
            self.counters.unneeded += 1;
            return recovered;
        }
        // A copy: the repair's bytes may be a small part of a large buffer of datagrams.
        block.symbols.push((index, Bytes::copy_from_slice(&repair.symbol)));
        self.block_bytes += repair.symbol.len();
        self.settle(at, &mut recovered);
        self.bound_bytes();
        self.raise_floor();
        recovered
    }
}

impl<C: BlockCode> Decoder<C> {
    /// The sources that a repair names, if it is one that an encoder of this scheme could have
    /// made (fec.md R-9).
    fn offsets(&self, repair: &Repair) -> Option<Offsets> {
        let RepairId::Block { index, parities } = repair.id else { return None };
        let is_proper = usize::from(parities) <= self.shape.parities.min(PARITIES_MAX) && index < parities;
        is_proper.then(|| repair.proper_offsets(self.shape.data)).flatten()
    }

    /// Looks whether a block can be finished; if it is finished or hopeless, takes it out and says
    /// so.
    fn settle(&mut self, at: usize, recovered: &mut Vec<Recovered>) -> bool {
        let Some(block) = self.blocks.get(at) else { return false };
        let symbols = block.symbols.len() as u64;
        match self.examine(block) {
            Outcome::Wait => return false,
            Outcome::Complete => self.counters.unneeded += symbols,
            Outcome::Forgotten => self.counters.abandoned += symbols,
            // fec.md R-10: of all repairs of the block.
            Outcome::Inconsistent => self.counters.refused += symbols,
            Outcome::Recovered(packets) => {
                for packet in &packets {
                    // fec.md R-11
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
        let Some(symbols) = self.code.reconstruct(&sources, &parities) else { return Outcome::Wait };
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

/// Blocks that may wait for more: as many as are interleaved at most, twice (fec.md R-12).
const BLOCKS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fec::xor;

    /// A repair of one source recovers it unseen: numbers that a peer makes up must not pile up.
    #[test]
    fn numbers_that_never_arrived_are_bounded_too() {
        let mut decoder = Decoder::new(xor::Xor::build(&xor::Xor::INFO.choice().params, ()));
        for i in 0..5000u64 {
            let recovered = decoder.on_repair(&Repair {
                first: i * 2,
                mask: SmallVec::from_slice(&[1]),
                id: RepairId::Block { index: 0, parities: 1 },
                symbol: Bytes::from_static(&[0, 0]),
            });
            assert_eq!(recovered.len(), 1);
        }
        assert!(decoder.known.len() as u64 <= HISTORY / 2 + 1, "{} ranges", decoder.known.len());
    }
}
