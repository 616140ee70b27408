//! Where content goes that is received: a part of a file, or something that is only written to.

use super::error::{Fault, FaultKind};
use super::message::Hash;
use super::sparse::hash_zeros;
use blake3::Hasher;
use std::fs::File;
use uts::descriptor;

/// Receiver of content, in order.
pub(super) trait Sink: Send + 'static {
    /// Takes content.
    fn write(&mut self, block: &[u8]) -> Result<(), Fault>;
    /// Takes this many zeros.
    fn skip(&mut self, bytes: u64) -> Result<(), Fault>;
    /// Takes bytes from a place of the file that stands where this one is to go.
    fn copy(&mut self, at: u64, bytes: u32) -> Result<(), Fault>;
    /// The content is complete, and has this hash at its sender.
    fn finish(self, theirs: &Hash) -> Result<Hash, Fault>;
    /// No more content comes, though it is not complete.
    fn give_up(self) -> Result<(), Fault>;
}

/// Of content that refers to a file of which nothing was told.
pub(super) fn not_told(path: &[u8]) -> Fault {
    Fault::new(FaultKind::Protocol, path, "content that refers to a file of which nothing was told")
}

/// Standard output, a pipe or a device: what is written there cannot be taken back.
#[derive(Debug)]
pub(super) struct Outlet {
    name: Vec<u8>,
    out: File,
    hasher: Hasher,
    /// Content that is still to come, in bytes.
    left: u64,
}

impl Outlet {
    /// Writes `size` bytes of content to `out`, which people call `name`.
    pub(super) fn new(name: &[u8], out: File, size: u64) -> Outlet {
        Outlet { name: name.to_vec(), out, hasher: Hasher::new(), left: size }
    }

    fn put(&mut self, block: &[u8]) -> Result<(), Fault> {
        descriptor::write_all(&self.out, block).1.map_err(|e| Fault::io(&self.name, &e))
    }

    fn count(&mut self, bytes: u64) -> Result<(), Fault> {
        let why = "more content than was announced";
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| Fault::new(FaultKind::Protocol, &self.name, why))?;
        Ok(())
    }
}

impl Sink for Outlet {
    fn write(&mut self, block: &[u8]) -> Result<(), Fault> {
        self.count(block.len() as u64)?;
        self.hasher.update(block);
        self.put(block)
    }

    fn skip(&mut self, mut bytes: u64) -> Result<(), Fault> {
        self.count(bytes)?;
        hash_zeros(&mut self.hasher, bytes);
        let zeros = [0; 64 * 1024];
        while bytes > 0 {
            let n = usize::try_from(bytes).map_or(zeros.len(), |bytes| bytes.min(zeros.len()));
            self.put(zeros.get(..n).unwrap_or_default())?;
            bytes -= n as u64;
        }
        Ok(())
    }

    fn copy(&mut self, _at: u64, _bytes: u32) -> Result<(), Fault> {
        Err(not_told(&self.name))
    }

    fn finish(self, theirs: &Hash) -> Result<Hash, Fault> {
        let ours = Hash::from(self.hasher.finalize());
        if self.left == 0 && ours == *theirs {
            return Ok(ours);
        }
        let why = "what was written is not the file: the hashes of both ends differ";
        Err(Fault::new(FaultKind::Corrupt, &self.name, why))
    }

    fn give_up(self) -> Result<(), Fault> {
        Ok(())
    }
}
