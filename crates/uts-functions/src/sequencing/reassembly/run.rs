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
    /// Whether so many bytes fit into the buffer.
    pub fn has_room(&self, len: usize) -> bool {
        self.bytes.capacity() - self.bytes.len() >= len
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

    /// Bytes of memory that hold nothing.
    pub fn spare_bytes(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }
}
