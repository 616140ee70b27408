//! Memory for messages that come whole: what a packet carries is copied once, and its messages are
//! slices of that.

use super::room::Room;
use bytes::Bytes;

/// A message that is kept for long keeps its buffer.
#[derive(Clone, Debug, Default)]
pub(super) struct Arena {
    /// Nothing is in it: what was copied has been split off.
    room: Room,
}

impl Arena {
    /// A copy of `payload`, in memory that is used again once nobody holds anything of it.
    pub fn keep(&mut self, payload: &[u8]) -> Bytes {
        // As early as can be: memory that was just left is in the processor's cache.
        self.room.reclaim();
        if self.room.bytes.capacity() < payload.len() {
            self.room.grow(payload.len());
        }
        self.room.bytes.extend_from_slice(payload);
        self.room.bytes.split().freeze()
    }

    /// Lets go of the buffer.
    pub fn shrink(&mut self) {
        *self = Arena::default();
    }

    /// Bytes of the buffer in use, also those that were handed out and are still held.
    pub fn buffer_bytes(&self) -> usize {
        self.room.buffer_bytes
    }

    /// Bytes of memory that hold nothing.
    pub fn spare_bytes(&self) -> usize {
        self.room.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A reader that keeps pace finds everything in the same memory; what is still held is left
    /// alone.
    #[test]
    fn a_buffer_that_was_left_is_used_again() {
        let mut arena = Arena::default();
        let round = |arena: &mut Arena, value: u8| -> Vec<Bytes> {
            (0..40).map(|_| arena.keep(&[value; 1400])).collect()
        };
        (0..8).for_each(|_| drop(round(&mut arena, 0)));
        let places: BTreeSet<_> = (0..100).map(|_| round(&mut arena, 0)[0].as_ptr()).collect();
        assert_eq!(places.len(), 1);
        let held = round(&mut arena, 1);
        (2..20).for_each(|value| drop(round(&mut arena, value)));
        assert!(held.iter().all(|packet| packet.iter().all(|byte| *byte == 1)));
    }
}
