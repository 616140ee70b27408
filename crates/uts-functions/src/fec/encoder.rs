//! The sender's half: packets into blocks, blocks into repairs.

use super::{Fec, PARITIES_MAX, PAYLOAD_BYTES_MAX, Repair, SYMBOL_PREFIX_BYTES, Shape, Slot, prefix};
use crate::time::Time;
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Groups the packets of one epoch into blocks and makes their parities.
///
/// Feed every source in the order of its number, then take repairs until there are none. [`Shape::interleave`] blocks
/// are filled in turns and closed together: when they are full, when the first source has waited for [`Shape::flush`],
/// when their numbers would span too much, or by [`Encoder::flush`]. Their parities come in turns too, so that a burst
/// harms each block equally. Sources are not kept: the state is the parities of the open blocks.
#[derive(Clone, Debug)]
pub struct Encoder {
    scheme: Slot,
    shape: Shape,
    /// Open blocks; those that have no source yet are not there.
    blocks: Vec<Block>,
    /// Sources of all open blocks.
    sources: usize,
    /// Highest number taken in.
    last: Option<u64>,
    deadline: Option<Time>,
    ready: VecDeque<Repair>,
    dropped: u64,
}

#[derive(Clone, Debug)]
struct Block {
    first: u64,
    mask: SmallVec<[u8; 16]>,
    sources: usize,
    parities: Vec<Vec<u8>>,
}

impl Encoder {
    /// With no block open.
    pub fn new(scheme: Slot) -> Self {
        Encoder {
            shape: scheme.shape(),
            scheme,
            blocks: Vec::new(),
            sources: 0,
            last: None,
            deadline: None,
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
        let unfit = payload.len() > PAYLOAD_BYTES_MAX || self.last.is_some_and(|last| number <= last);
        if self.shape.data == 0 || unfit {
            return;
        }
        if self.blocks.first().is_some_and(|b| number - b.first >= self.shape.span_max()) {
            self.flush();
        }
        self.last = Some(number);
        self.deadline.get_or_insert(now + self.shape.flush);
        let turn = self.sources % self.shape.interleave.max(1);
        if self.blocks.len() <= turn {
            self.blocks.push(Block::new(number, self.shape.parities));
        }
        if let Some(block) = self.blocks.get_mut(turn) {
            block.add(&self.scheme, number, payload);
        }
        self.sources += 1;
        if self.sources >= self.shape.data * self.shape.interleave {
            self.flush();
        }
    }

    /// When [`Encoder::on_flush`] wants to be called.
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Closes the blocks if they have waited long enough.
    pub fn on_flush(&mut self, now: Time) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.flush();
        }
    }

    /// Closes the blocks: the epoch ends, or nothing more will be sent for long.
    pub fn flush(&mut self) {
        self.deadline = None;
        self.sources = 0;
        let mut blocks = core::mem::take(&mut self.blocks);
        for index in 0..self.shape.parities {
            for block in &mut blocks {
                let parities = self.shape.parities_for(block.sources);
                if index < parities {
                    self.ready.push_back(block.repair(index, parities));
                }
            }
        }
        while self.ready.len() > READY_MAX {
            self.ready.pop_front();
            self.dropped += 1;
        }
    }

    /// The next repair to send, which stays.
    pub fn next_repair(&self) -> Option<&Repair> {
        self.ready.front()
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
}

impl Block {
    fn new(first: u64, parities: usize) -> Self {
        Block { first, mask: SmallVec::new(), sources: 0, parities: vec![Vec::new(); parities] }
    }

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
    }

    /// Takes out the parity at `index` of `parities`.
    fn repair(&mut self, index: usize, parities: usize) -> Repair {
        let symbol = self.parities.get_mut(index).map(core::mem::take).unwrap_or_default();
        Repair {
            first: self.first,
            mask: self.mask.clone(),
            index: index as u8,
            parities: parities as u8,
            symbol: Bytes::from(symbol),
        }
    }
}

/// Repairs that may wait to be sent: all parities of the largest blocks, which are closed together. A sender takes them
/// as it sends sources, so more means that it cannot send at all, and old repairs are worth least.
const READY_MAX: usize = super::reed_solomon::INTERLEAVE_MAX as usize * PARITIES_MAX;
