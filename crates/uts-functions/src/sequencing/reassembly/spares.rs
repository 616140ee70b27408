//! Large buffers that have been read, for whichever flow needs one next.

use super::room::BUFFER_BYTES_MAX;
use bytes::BytesMut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers that wait to be used again: what the kernel hands over at once is for fewer flows than this.
pub(super) const SPARES_MAX: usize = 16;

/// What flows share: a buffer that was just left is in the processor's cache, and of a thousand flows only those need one that hold
/// something. The last that was left is the first to be used.
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

    /// Finds a buffer of which nobody holds anything any more. Those that somebody holds something of are his.
    pub(super) fn find(&self) -> Option<BytesMut> {
        let mut buffers = self.lock();
        core::iter::from_fn(|| buffers.pop()).find_map(|mut buffer| {
            let is_free = buffer.try_reclaim(BUFFER_BYTES_MAX);
            is_free.then_some(buffer)
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

    /// How many wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}
