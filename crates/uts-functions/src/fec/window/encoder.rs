//! The sender's half: the packets sent last, and sums over them.

use super::{Shape, coefficients};
use crate::fec::{Encode, PAYLOAD_BYTES_MAX, Repair, RepairId, SPAN_MAX, SYMBOL_PREFIX_BYTES, gf256, prefix};
use crate::time::Time;
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Keeps the last sources of one epoch, and makes a repair of them after each [`Shape::every`].
#[derive(Clone, Debug)]
pub struct Encoder {
    shape: Shape,
    sources: VecDeque<(u64, Bytes)>,
    /// Sources since the last repair.
    uncovered: usize,
    key: u16,
    deadline: Option<Time>,
    ready: VecDeque<Repair>,
    dropped: u64,
}

impl Encoder {
    /// With an empty window.
    pub fn new(shape: Shape) -> Self {
        Encoder {
            shape,
            sources: VecDeque::new(),
            uncovered: 0,
            key: 0,
            deadline: None,
            ready: VecDeque::new(),
            dropped: 0,
        }
    }

    /// A sum over the window.
    fn repair(&self) -> Option<Repair> {
        let first = self.sources.front()?.0;
        let longest = self.sources.iter().map(|(_, payload)| payload.len()).max()?;
        let mut mask: SmallVec<[u8; 16]> = SmallVec::new();
        let mut rows = [vec![0; SYMBOL_PREFIX_BYTES + longest]];
        for ((number, payload), coefficient) in self.sources.iter().zip(coefficients(self.key)) {
            let offset = (number - first) as usize;
            mask.resize(offset / 8 + 1, 0);
            mask[offset / 8] |= 1 << (offset % 8);
            gf256::accumulate(&[coefficient], 0, &prefix(payload), &mut rows);
            gf256::accumulate(&[coefficient], SYMBOL_PREFIX_BYTES, payload, &mut rows);
        }
        let [symbol] = rows;
        Some(Repair { first, mask, id: RepairId::Window { key: self.key }, symbol: symbol.into() })
    }
}

impl Encode for Encoder {
    fn on_source(&mut self, now: Time, number: u64, payload: &[u8]) {
        let is_unfit =
            payload.len() > PAYLOAD_BYTES_MAX || self.sources.back().is_some_and(|(last, _)| number <= *last);
        if is_unfit {
            return;
        }
        // fec.md R-18.
        while self.sources.len() >= self.shape.sources
            || self.sources.front().is_some_and(|(first, _)| number - first >= SPAN_MAX)
        {
            self.sources.pop_front();
        }
        self.sources.push_back((number, Bytes::copy_from_slice(payload)));
        self.deadline.get_or_insert(now + self.shape.flush);
        self.uncovered += 1;
        if self.uncovered >= self.shape.every {
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
        if core::mem::take(&mut self.uncovered) == 0 {
            return;
        }
        self.ready.extend(self.repair());
        // fec.md R-19.
        self.key = self.key.wrapping_add(1);
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

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Repairs that may wait to be sent. A sender takes them as it sends sources, so more means that it
/// cannot send at all, and the newest covers what the oldest does.
const READY_MAX: usize = 16;
