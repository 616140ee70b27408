//! A buffer that grows with its use, and is used again once nobody holds anything of it.

use bytes::BytesMut;

/// The first buffer of a flow, and the largest. A small one does for a flow of little; a large one
/// holds what the kernel hands over at once (a GRO batch of 64 KiB), and stays in the processor's
/// cache.
const BUFFER_BYTES_MIN: usize = 2 * 1024;
pub(super) const BUFFER_BYTES_MAX: usize = 64 * 1024;

#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    pub bytes: BytesMut,
    /// Bytes that the next buffer holds.
    pub buffer_bytes: usize,
}

impl Room {
    /// Begins at the front of the buffer again, if all that was split off has been dropped. There
    /// is nothing in it.
    pub fn reclaim(&mut self) {
        if self.bytes.capacity() < self.buffer_bytes {
            let _ = self.bytes.try_reclaim(self.buffer_bytes);
        }
    }

    /// True if buffers have grown as large as they become.
    pub fn is_large(&self) -> bool {
        self.buffer_bytes == BUFFER_BYTES_MAX
    }

    /// Finds a larger buffer, for at least `len` bytes: the present one, if nobody holds anything
    /// of it any more, else another.
    pub fn grow(&mut self, len: usize) {
        self.buffer_bytes = (2 * self.buffer_bytes).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
        self.bytes.reserve(self.buffer_bytes.max(len));
    }
}
