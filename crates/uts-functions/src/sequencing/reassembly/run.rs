//! Bytes in order, in one buffer that is used again once what was read of it has been dropped.

use bytes::{Bytes, BytesMut};

/// The first buffer of a flow, and the largest. A small one does for a flow of a few bytes; a large one holds what the
/// kernel hands over at once (a GRO batch of 64 KiB), and stays in the processor's cache.
const BUFFER_BYTES_MIN: usize = 2 * 1024;
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Bytes that came one behind the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    start: u64,
    bytes: BytesMut,
    /// What the next buffer holds.
    buffer_bytes: usize,
}

impl Run {
    /// Whether there is nothing in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether so many bytes fit into the buffer.
    pub fn has_room(&self, len: usize) -> bool {
        self.bytes.capacity() - self.bytes.len() >= len
    }

    /// Begins at the front of the buffer again, if all of it was read and dropped: what comes next then needs no other.
    pub fn rewind(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() < self.buffer_bytes {
            let _ = self.bytes.try_reclaim(self.buffer_bytes);
        }
    }

    /// Finds a buffer for at least `len` bytes: the present one, if nobody holds anything of it any more, else another. The
    /// run is empty.
    pub fn make_room(&mut self, len: usize) {
        self.buffer_bytes = (2 * self.buffer_bytes).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
        self.bytes.reserve(self.buffer_bytes.max(len));
    }

    /// Adds bytes behind the others; `start` is the position of the first, which matters if the run is empty.
    pub fn push(&mut self, start: u64, bytes: &[u8]) {
        if self.bytes.is_empty() {
            self.start = start;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes out at most so many bytes, with their position; `None` if there are none.
    pub fn take(&mut self, bytes_max: usize) -> Option<(u64, Bytes)> {
        let len = self.bytes.len().min(bytes_max);
        if len == 0 {
            return None;
        }
        let start = self.start;
        self.start += len as u64;
        Some((start, self.bytes.split_to(len).freeze()))
    }

    /// Gives the buffer back if nothing is in it.
    pub fn shrink(&mut self) {
        if self.bytes.is_empty() {
            *self = Run::default();
        }
    }

    /// Bytes of memory that hold nothing.
    pub fn spare_bytes(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that keeps pace finds everything in the same memory.
    #[test]
    fn a_buffer_that_was_read_is_used_again() {
        let mut run = Run::default();
        while run.buffer_bytes < BUFFER_BYTES_MAX {
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
