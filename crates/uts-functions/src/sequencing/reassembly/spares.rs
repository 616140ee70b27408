//! Large buffers that have been read, for whichever flow needs one next.

use super::room::BUFFER_BYTES_MAX;
use bytes::BytesMut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers that wait to be used again: what the kernel hands over at once is for fewer flows than
/// this.
pub(super) const SPARES_MAX: usize = 16;

/// A buffer of which less is left is worn out.
pub(super) const WORN_BYTES: usize = BUFFER_BYTES_MAX / 2;

/// Buffers that flows share: a buffer that was just left is in the processor's cache, and of a
/// thousand flows only those need one that hold something. The last that was left is the first to
/// be used.
#[derive(Clone, Debug, Default)]
pub struct Spares(Arc<Mutex<Vec<BytesMut>>>);

impl Spares {
    /// Leaves a buffer in which nothing is.
    pub(super) fn leave(&self, buffer: BytesMut) {
        let mut buffers = self.lock();
        if buffers.len() < SPARES_MAX {
            buffers.push(buffer);
        }
    }

    /// Finds a buffer for at least `len` bytes of which nothing is held any more, or of which much
    /// is left: a holder of a little should not keep the rest from being used. A buffer that is
    /// mostly held is left to its holder.
    pub(super) fn find(&self, len: usize) -> Option<BytesMut> {
        let mut buffers = self.lock();
        core::iter::from_fn(|| buffers.pop()).find_map(|mut buffer| {
            let is_usable =
                buffer.try_reclaim(BUFFER_BYTES_MAX.max(len)) || buffer.capacity() >= WORN_BYTES.max(len);
            is_usable.then_some(buffer)
        })
    }

    /// Gives their memory back.
    pub(super) fn clear(&self) {
        *self.lock() = Vec::new();
    }

    /// Whoever panicked has left buffers, whatever else.
    fn lock(&self) -> MutexGuard<'_, Vec<BytesMut>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of buffers that wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}
