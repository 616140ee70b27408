//! A block that the sender keeps, and its repairs.

use crate::code::{Code, PARITIES};
use crate::wire::Lack;
use bytes::Bytes;
use uts_functions::Time;

/// A block: its sources, its parities as far as they were made, and what was sent of it again.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) made: Time,
    pub(super) sources: Vec<Bytes>,
    pub(super) is_closed: bool,
    /// Sources that have left.
    left: usize,
    parities: Vec<Bytes>,
    /// The next parity that nobody has yet.
    fresh: usize,
    /// Unasked parities that are to be sent.
    pub(super) unasked: usize,
    /// Repairs that are to leave, unasked ones as well.
    pub(super) queued: usize,
    /// Repairs that were asked for, and wait for other requests.
    pub(super) asked: usize,
    pub(super) gathers_until: Option<Time>,
    /// Sources that are to be sent again, once there is no fresh parity.
    again: u64,
    /// Numbers of the packets that carried repairs of it.
    sent: Vec<u64>,
}

/// Repairs of one block at the most: all parities, and all sources three times. (G-17)
const REPAIRS_MAX: usize = PARITIES + 3 * crate::SOURCES_MAX;

pub(super) enum Repair {
    Parity(u8, Bytes),
    Source(u8, Bytes),
}

impl Block {
    pub(super) fn new(now: Time) -> Self {
        Block {
            made: now,
            sources: Vec::new(),
            is_closed: false,
            left: 0,
            parities: Vec::new(),
            fresh: 0,
            unasked: 0,
            queued: 0,
            asked: 0,
            gathers_until: None,
            again: 0,
            sent: Vec::new(),
        }
    }

    /// Takes a source. Returns its place.
    pub(super) fn push(&mut self, source: Bytes) -> u8 {
        self.sources.push(source);
        (self.sources.len() - 1) as u8
    }

    /// A source, which leaves.
    pub(super) fn sent(&mut self, index: u8) -> Option<Bytes> {
        self.left = usize::from(index) + 1;
        self.sources.get(usize::from(index)).cloned()
    }

    /// True if all sources have left once.
    pub(super) fn has_left(&self) -> bool {
        self.left == self.sources.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.sources.iter().chain(&self.parities).map(Bytes::len).sum()
    }

    /// Repairs that a member lacks beyond those that it could not know of: what has left since the
    /// last packet that it has seen, and what is to leave. (G-16)
    pub(super) fn lacking(&self, lack: &Lack, seen: u64) -> usize {
        let under_way = self.sent.iter().filter(|number| **number > seen).count() + self.queued + self.asked;
        let mut needs = usize::from(lack.needs).min(self.sources.len());
        if self.fresh + self.queued + self.asked + needs > PARITIES {
            // No parity is fresh any more: each source that is missing is sent.
            needs = self.named(lack).count_ones() as usize;
        }
        let room = REPAIRS_MAX.saturating_sub(self.sent.len() + self.queued + self.asked);
        needs.saturating_sub(under_way).min(room)
    }

    /// Has repairs sent, at `until`.
    pub(super) fn grant(&mut self, lack: &Lack, granted: usize, until: Time) {
        if self.fresh + self.queued + self.asked + granted > PARITIES {
            self.again |= self.named(lack);
        }
        self.asked += granted;
        self.gathers_until.get_or_insert(until);
    }

    /// Sources of this block that a member says it misses.
    fn named(&self, lack: &Lack) -> u64 {
        lack.missing & (u64::MAX >> (64 - self.sources.len().clamp(1, 64)))
    }

    /// The next repair, in the packet of this number, and the bytes of parities that were made for
    /// it. Fresh parities come first, since they repair any loss. (G-11)
    pub(super) fn repair(&mut self, code: &Code, packet: u64) -> (Repair, usize) {
        self.queued = self.queued.saturating_sub(1);
        self.sent.push(packet);
        if self.fresh >= PARITIES && self.again != 0 {
            let index = self.again.trailing_zeros() as u8;
            self.again &= self.again - 1;
            if let Some(source) = self.sources.get(usize::from(index)) {
                return (Repair::Source(index, source.clone()), 0);
            }
        }
        let parity = self.fresh % PARITIES;
        self.fresh += 1;
        let mut made = 0;
        if parity >= self.parities.len() {
            let before: usize = self.parities.iter().map(Bytes::len).sum();
            // Some at a time: those of most blocks are never asked for.
            self.parities = code.parities(&self.sources, (parity + 1).next_power_of_two());
            made = self.parities.iter().map(Bytes::len).sum::<usize>() - before;
        }
        (Repair::Parity(parity as u8, self.parities[parity].clone()), made)
    }
}
