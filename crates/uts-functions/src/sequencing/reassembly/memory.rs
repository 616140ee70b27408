//! Memory that what is held takes, and how it is given back.

use super::{Piece, Ready, Reassembly};
use crate::sequencing::message_row::MessageRow;

/// Least load of a message, or of a stretch of bytes that does not follow on another, against the
/// room that a flow has, in bytes: a quarter of what it takes to keep track of it.
pub const PIECE_BYTES: usize = size_of::<Ready>() / 4;

/// Places that a list keeps when it is empty.
const LIST_MIN: usize = 16;

/// Memory that it takes to keep track of data which does not follow on other, in bytes: a place in
/// the tree of pieces, half of whose places are free in the worst case; the handle of its memory;
/// and places among the ranges that have arrived and what may be read.
pub const PIECE_MEMORY_BYTES: usize = 2 * (size_of::<Piece>() + 16) + 32 + 2 * size_of::<Ready>();

impl Reassembly {
    /// Load of the held data against the room that a flow has, in bytes: the data or, where its
    /// pieces are so small that to keep track of them takes a multiple of that, [`PIECE_BYTES`] for
    /// each.
    #[inline]
    pub fn load_bytes(&self) -> usize {
        let pieces = self.ready.len() + self.unplaced.len() + self.pieces.len();
        self.held_bytes.max(pieces * PIECE_BYTES)
    }

    /// Gives back memory that nothing is in.
    pub fn shrink(&mut self) {
        self.run.shrink();
        self.arena.shrink();
        self.ready.shrink_to_fit();
        self.unplaced.shrink_to_fit();
        for set in [&mut self.settled, &mut self.delivered, &mut self.skipped, &mut self.damaged] {
            set.shrink();
        }
    }

    /// All memory that is held, in bytes.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        self.held_bytes + self.heap_bytes()
    }

    /// Gives back memory that only waits to be used again, and copies what is held of a large
    /// buffer into a small one.
    pub fn compact(&mut self) {
        self.run.compact();
        if self.arena.spare_bytes() > 0 {
            self.arena.shrink();
        }
        self.let_go();
    }

    /// Gives back what lists have grown to, if next to nothing is in them.
    pub fn let_go(&mut self) {
        if self.ready.capacity() > LIST_MIN && self.ready.len() < self.ready.capacity() / 8 {
            self.ready.shrink_to(LIST_MIN);
        }
        if self.unplaced.capacity() > LIST_MIN && self.unplaced.len() < self.unplaced.capacity() / 8 {
            self.unplaced.shrink_to(LIST_MIN);
        }
        for set in [&mut self.settled, &mut self.delivered, &mut self.skipped, &mut self.damaged] {
            set.let_go();
        }
    }

    /// Bytes of heap memory beyond the data held.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        self.settled.heap_bytes()
            + self.delivered.heap_bytes()
            + self.skipped.heap_bytes()
            + self.damaged.heap_bytes()
            + self.orders.as_ref().map_or(0, |orders| orders.heap_bytes())
            + self.unplaced.capacity() * size_of::<MessageRow>()
            + self.pieces.len() * (2 * (size_of::<Piece>() + 16) + 32)
            + (self.begins.len() + self.ends.len()) * 2 * size_of::<u64>()
            + self.ready.capacity() * size_of::<Ready>()
            + self.run.spare_bytes()
            + self.arena_bytes()
    }

    /// Memory of the arena that no message accounts for: what is free of it, and of the buffer that
    /// any message keeps as much as may be free.
    fn arena_bytes(&self) -> usize {
        let spare = self.arena.spare_bytes();
        if self.ready.is_empty() && self.unplaced.is_empty() {
            spare
        } else {
            spare.max(self.arena.buffer_bytes())
        }
    }
}
