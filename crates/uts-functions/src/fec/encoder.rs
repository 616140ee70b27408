//! The sender's half: packets into blocks, blocks into repairs.

use super::{
    DATA_MAX, Fec, PARITIES_MAX, PAYLOAD_BYTES_MAX, Repair, SYMBOL_PREFIX_BYTES, Shape, Slot, prefix,
};
use crate::time::Time;
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Groups the packets of one epoch into blocks and makes their parities.
///
/// Feed every source in the order of its number, then take repairs until there are none. A block is closed when it is
/// full, when it has waited for [`Shape::flush`], when its numbers span too much, or by [`Encoder::flush`]. Sources are
/// not kept: the state is the parities of the open blocks.
#[derive(Clone, Debug)]
pub struct Encoder {
    scheme: Slot,
    shape: Shape,
    /// Open blocks, filled in turns; a place whose block has no source yet is empty.
    blocks: Vec<Option<Block>>,
    turn: usize,
    ready: VecDeque<Repair>,
    dropped: u64,
}

#[derive(Clone, Debug)]
struct Block {
    first: u64,
    last: u64,
    mask: SmallVec<[u8; 16]>,
    sources: usize,
    parities: Vec<Vec<u8>>,
    deadline: Time,
}

impl Encoder {
    /// With no block open.
    pub fn new(scheme: Slot) -> Self {
        let shape = scheme.shape();
        Encoder {
            scheme,
            shape,
            blocks: vec![None; if shape.data == 0 { 0 } else { shape.interleave }],
            turn: 0,
            ready: VecDeque::new(),
            dropped: 0,
        }
    }

    /// What its blocks look like.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Takes in a packet that is sent: its number, above all that were taken in before, and its plaintext payload.
    /// Payloads longer than [`PAYLOAD_BYTES_MAX`] and numbers out of order go unprotected.
    pub fn on_source(&mut self, now: Time, number: u64, payload: &[u8]) {
        let Some(place) = self.blocks.get_mut(self.turn) else { return };
        if payload.len() > PAYLOAD_BYTES_MAX {
            return;
        }
        if place.as_ref().is_some_and(|b| number.saturating_sub(b.first) >= self.shape.span_max()) {
            let block = place.take();
            self.close(block);
        }
        let Some(place) = self.blocks.get_mut(self.turn) else { return };
        let block = place.get_or_insert_with(|| Block {
            first: number,
            last: number,
            mask: SmallVec::new(),
            sources: 0,
            parities: vec![Vec::new(); self.shape.parities],
            deadline: now + self.shape.flush,
        });
        if block.sources > 0 && number <= block.last {
            return;
        }
        block.add(&self.scheme, number, payload);
        if block.sources >= self.shape.data.min(DATA_MAX) {
            let block = place.take();
            self.close(block);
        }
        self.turn = (self.turn + 1) % self.blocks.len();
    }

    /// When [`Encoder::on_flush`] wants to be called.
    pub fn deadline(&self) -> Option<Time> {
        self.blocks.iter().flatten().map(|b| b.deadline).min()
    }

    /// Closes the blocks that have waited long enough.
    pub fn on_flush(&mut self, now: Time) {
        for place in 0..self.blocks.len() {
            if self.blocks[place].as_ref().is_some_and(|b| b.deadline <= now) {
                let block = self.blocks[place].take();
                self.close(block);
            }
        }
    }

    /// Closes all blocks: the epoch ends, or nothing more will be sent for long.
    pub fn flush(&mut self) {
        self.on_flush(Time::NEVER);
    }

    /// The next repair to send.
    pub fn pop_repair(&mut self) -> Option<Repair> {
        self.ready.pop_front()
    }

    /// Whether a repair waits to be sent.
    pub fn has_repair(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Repairs that nobody took before there were too many.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn close(&mut self, block: Option<Block>) {
        let Some(block) = block else { return };
        let parities = self.shape.parities_for(block.sources);
        for (index, symbol) in block.parities.into_iter().take(parities).enumerate() {
            self.ready.push_back(Repair {
                first: block.first,
                mask: block.mask.clone(),
                index: index as u8,
                parities: parities as u8,
                symbol: Bytes::from(symbol),
            });
        }
        while self.ready.len() > READY_MAX {
            self.ready.pop_front();
            self.dropped += 1;
        }
    }
}

impl Block {
    fn add(&mut self, scheme: &Slot, number: u64, payload: &[u8]) {
        let offset = (number - self.first) as usize;
        if self.mask.len() <= offset / 8 {
            self.mask.resize(offset / 8 + 1, 0);
        }
        self.mask[offset / 8] |= 1 << (offset % 8);
        let symbol_bytes = SYMBOL_PREFIX_BYTES + payload.len();
        for parity in &mut self.parities {
            if parity.len() < symbol_bytes {
                parity.resize(symbol_bytes, 0);
            }
        }
        scheme.accumulate(self.sources, 0, &prefix(payload), &mut self.parities);
        scheme.accumulate(self.sources, SYMBOL_PREFIX_BYTES, payload, &mut self.parities);
        self.sources += 1;
        self.last = number;
    }
}

/// Repairs that may wait to be sent: four blocks of the largest kind. A sender takes them as it sends sources, so more
/// means that it cannot send at all, and old repairs are worth least.
const READY_MAX: usize = 4 * PARITIES_MAX;
