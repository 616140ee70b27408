//! Bytes in order, in one buffer that is used again once what was read of it has been dropped.

use super::room::Room;
use bytes::Bytes;

/// Bytes that came one behind the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    start: u64,
    room: Room,
}

impl Run {
    /// Whether there is nothing in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.room.bytes.is_empty()
    }

    /// Position of the first byte, if there is one.
    #[inline]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Whether so many bytes fit into the buffer.
    pub fn has_room(&self, len: usize) -> bool {
        self.room.bytes.capacity() - self.room.bytes.len() >= len
    }

    /// Begins at the front of the buffer again, if all of it was read and dropped: what comes next then needs no other.
    pub fn rewind(&mut self) {
        if self.is_empty() {
            self.room.reclaim();
        }
    }

    /// Finds a buffer for at least `len` bytes. The run is empty.
    pub fn make_room(&mut self, len: usize) {
        self.room.grow(len);
    }

    /// Adds bytes behind the others; `start` is the position of the first, which matters if the run is empty.
    pub fn push(&mut self, start: u64, bytes: &[u8]) {
        if self.room.bytes.is_empty() {
            self.start = start;
        }
        self.room.bytes.extend_from_slice(bytes);
    }

    /// Takes out at most so many bytes, with their position; `None` if there are none.
    pub fn take(&mut self, bytes_max: usize) -> Option<(u64, Bytes)> {
        let len = self.room.bytes.len().min(bytes_max);
        if len == 0 {
            return None;
        }
        let start = self.start;
        self.start += len as u64;
        Some((start, self.room.bytes.split_to(len).freeze()))
    }

    /// Gives the buffer back if nothing is in it.
    pub fn shrink(&mut self) {
        if self.room.bytes.is_empty() {
            *self = Run::default();
        }
    }

    /// Bytes of memory that hold nothing.
    pub fn spare_bytes(&self) -> usize {
        self.room.bytes.capacity() - self.room.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::room::BUFFER_BYTES_MAX;
    use super::*;

    /// A reader that keeps pace finds everything in the same memory.
    #[test]
    fn a_buffer_that_was_read_is_used_again() {
        let mut run = Run::default();
        while run.room.buffer_bytes < BUFFER_BYTES_MAX {
            run.make_room(1);
        }
        let mut places = std::collections::BTreeSet::new();
        for n in 0..100 {
            run.rewind();
            assert!(run.has_room(1440 * 45), "round {n}");
            for _ in 0..45 {
                run.push(n, &[7; 1440]);
            }
            let (_, read) = run.take(usize::MAX).expect("something to read");
            places.insert(read.as_ptr());
        }
        assert_eq!(places.len(), 1);
        // What is still held is left alone.
        run.push(0, &[1; 40_000]);
        let (_, held) = run.take(usize::MAX).expect("something to read");
        run.rewind();
        run.push(0, &[2; 100]);
        assert!(held.iter().all(|byte| *byte == 1));
    }
}
