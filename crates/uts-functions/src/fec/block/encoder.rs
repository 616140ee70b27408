//! The sender's half: packets into blocks, blocks into repairs.

use super::BlockCode;
use crate::fec::{
    Encode, PARITIES_MAX, PAYLOAD_BYTES_MAX, Repair, RepairId, SYMBOL_PREFIX_BYTES, Shape, prefix,
};
use crate::time::Time;
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Groups the packets of one epoch into blocks and makes their parities.
///
/// [`Shape::interleave`] blocks are filled in turns and closed together: when they are full, when
/// the first source has waited for [`Shape::flush`], when their numbers would span too much, or by
/// [`Encode::flush`]. Their parities come in turns too, so that a burst harms each block equally.
/// Sources are not kept: the state is the parities of the open blocks.
#[derive(Clone, Debug)]
pub struct Encoder<C> {
    code: C,
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

impl<C: BlockCode> Encoder<C> {
    /// With no block open.
    pub fn new(code: C) -> Self {
        Encoder {
            shape: code.shape(),
            code,
            blocks: Vec::new(),
            sources: 0,
            last: None,
            deadline: None,
            ready: VecDeque::new(),
            dropped: 0,
        }
    }
}

impl<C: BlockCode> Encode for Encoder<C> {
    fn on_source(&mut self, now: Time, number: u64, payload: &[u8]) {
        // fec.md R-2: each number is taken in once.
        let unfit = payload.len() > PAYLOAD_BYTES_MAX || self.last.is_some_and(|last| number <= last);
        if self.shape.data == 0 || unfit {
            return;
        }
        // fec.md.
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
            block.add(&self.code, number, payload);
        }
        self.sources += 1;
        if self.sources >= self.shape.data * self.shape.interleave {
            self.flush();
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    fn on_flush(&mut self, now: Time) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.deadline = None;
        self.sources = 0;
        let mut blocks = core::mem::take(&mut self.blocks);
        // fec.md R-6: the first parity of each block, then the second.
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

    fn next_repair(&self) -> Option<&Repair> {
        self.ready.front()
    }

    fn pop_repair(&mut self) -> Option<Repair> {
        self.ready.pop_front()
    }

    fn has_repair(&self) -> bool {
        !self.ready.is_empty()
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl Block {
    fn new(first: u64, parities: usize) -> Self {
        Block { first, mask: SmallVec::new(), sources: 0, parities: vec![Vec::new(); parities] }
    }

    fn add(&mut self, code: &impl BlockCode, number: u64, payload: &[u8]) {
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
        code.accumulate(self.sources, 0, &prefix(payload), &mut self.parities);
        code.accumulate(self.sources, SYMBOL_PREFIX_BYTES, payload, &mut self.parities);
        self.sources += 1;
    }

    /// Takes out the parity at `index` of `parities`.
    fn repair(&mut self, index: usize, parities: usize) -> Repair {
        let symbol = self.parities.get_mut(index).map(core::mem::take).unwrap_or_default();
        Repair {
            first: self.first,
            mask: self.mask.clone(),
            id: RepairId::Block { index: index as u8, parities: parities as u8 },
            symbol: Bytes::from(symbol),
        }
    }
}

/// Repairs that may wait to be sent: all parities of the largest blocks, which are closed together.
/// A sender takes them as it sends sources, so more means that it cannot send at all, and old
/// repairs are worth least.
const READY_MAX: usize = crate::fec::reed_solomon::INTERLEAVE_MAX as usize * PARITIES_MAX;
