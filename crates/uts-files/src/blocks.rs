//! Memory between a flow and the disk. It is charged to who it is for, until the flow or the disk
//! has let go of it. Blocks are used again: new ones would be zeroed, and their pages mapped, each
//! time.

use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uts_ledger::{Charge, Payer, Resource};

/// Bytes that are read from and written to disks at once, if there is room.
pub(super) const BLOCK_BYTES: usize = 256 * 1024;
/// Bytes that are waited for, if there is not.
pub(super) const BLOCK_BYTES_MIN: usize = 8 * 1024;

/// Blocks that are kept for later.
const SPARES_MAX: usize = 4;

/// Blocks of one file on its way.
#[derive(Debug)]
pub(super) struct Blocks {
    payer: Payer,
    spares: Arc<Mutex<Vec<Space>>>,
}

#[derive(Debug)]
struct Space {
    bytes: Vec<u8>,
    _charge: Charge,
}

/// A block. What stands in it at first is left over from before.
#[derive(Debug)]
pub(super) struct Block {
    /// Empty only while it is dropped.
    space: Option<Space>,
    bytes: usize,
    home: Arc<Mutex<Vec<Space>>>,
}

impl Blocks {
    pub(super) fn new(payer: &Payer) -> Self {
        Blocks { payer: payer.clone(), spares: Arc::default() }
    }

    /// A block that was used before, if there is one; it may be shorter than `bytes`.
    pub(super) fn spare(&self, bytes: usize) -> Option<Block> {
        lock(&self.spares).pop().map(|space| self.block(space, bytes))
    }

    /// Waits for a block of up to `bytes`.
    pub(super) async fn take(&self, bytes: usize) -> Block {
        let wanted = bytes.clamp(1, BLOCK_BYTES);
        let longest = |space: &Space| space.bytes.len() >= wanted || space.bytes.len() >= BLOCK_BYTES;
        let spare = lock(&self.spares).pop_if(|space| longest(space));
        if let Some(space) = spare {
            return self.block(space, bytes);
        }
        // A shorter one is of no use, and counts.
        self.let_go();
        let least = wanted.min(BLOCK_BYTES_MIN);
        let charge = self.payer.wait(Resource::Memory, least, wanted).await;
        let space = Space { bytes: vec![0; charge.amount()], _charge: charge };
        self.block(space, bytes)
    }

    fn block(&self, space: Space, bytes: usize) -> Block {
        let bytes = bytes.min(space.bytes.len());
        Block { space: Some(space), bytes, home: self.spares.clone() }
    }

    /// Gives back what is kept for later.
    pub(super) fn let_go(&self) {
        lock(&self.spares).clear();
    }
}

fn lock(spares: &Mutex<Vec<Space>>) -> MutexGuard<'_, Vec<Space>> {
    spares.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Block {
    /// Cuts it to this length.
    pub(super) fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let space = self.space.as_mut().and_then(|space| space.bytes.get_mut(..self.bytes));
        space.unwrap_or_default()
    }

    /// The block, to be given to a flow.
    pub(super) fn into_shared(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self.space.as_ref().and_then(|space| space.bytes.get(..self.bytes)).unwrap_or_default()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some(space) = self.space.take() else { return };
        let mut spares = lock(&self.home);
        // Of a file that is done, only what is under way holds the list.
        if spares.len() < SPARES_MAX && Arc::strong_count(&self.home) > 1 {
            spares.push(space);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::WriteShared;
    use crate::buffered::BufWriter;
    use core::pin::Pin;
    use core::task::{Context, Poll};
    use std::io;
    use tokio::io::{AsyncWrite, AsyncWriteExt};
    use uts_ledger::{Budget, Ledger};

    pub(crate) fn payer() -> Payer {
        Ledger::of_client(&Budget::of_process()).payer("a")
    }

    fn held(payer: &Payer) -> usize {
        payer.ledger().rows()[Resource::Memory as usize].held
    }

    #[tokio::test]
    async fn a_block_is_used_again_once_the_flow_has_let_go_of_it() {
        let payer = payer();
        let blocks = Blocks::new(&payer);
        let first = blocks.take(BLOCK_BYTES).await;
        let place = first.as_ref().as_ptr();
        let mut shared = first.into_shared();
        let _ = shared.split_to(400);
        let second = blocks.take(BLOCK_BYTES).await;
        assert_ne!(second.as_ref().as_ptr(), place, "the flow still holds a part of it");
        assert_eq!(held(&payer), 2 * BLOCK_BYTES);
        drop(shared);
        let mut again = blocks.take(BLOCK_BYTES).await;
        assert_eq!((again.as_ref().as_ptr(), again.bytes_mut().len()), (place, BLOCK_BYTES));
        drop((again, second));
        assert_eq!(held(&payer), 2 * BLOCK_BYTES);
        blocks.let_go();
        assert_eq!(held(&payer), 0);
    }

    #[tokio::test]
    async fn what_the_flow_still_holds_of_a_file_that_is_done_is_given_back() {
        let payer = payer();
        let blocks = Blocks::new(&payer);
        let (first, second) = (blocks.take(BLOCK_BYTES).await, blocks.take(BLOCK_BYTES).await);
        let shared = [first.into_shared(), second.into_shared()];
        drop(blocks);
        assert_eq!(held(&payer), 2 * BLOCK_BYTES);
        drop(shared);
        assert_eq!(held(&payer), 0);
    }

    #[tokio::test]
    async fn blocks_are_as_long_as_there_is_room_for() {
        let ledger = Ledger::of(Resource::Memory, 100_000, false);
        let payer = ledger.payer("a");
        let blocks = Blocks::new(&payer);
        let block = blocks.take(BLOCK_BYTES).await;
        assert_eq!(block.len(), 100_000);
        let waits = tokio::time::timeout(std::time::Duration::ZERO, blocks.take(1));
        assert!(waits.await.is_err());
        drop(block.into_shared());
        assert_eq!(blocks.take(50).await.len(), 50);
    }

    /// Notes what it is given, and whether that was copied.
    #[derive(Debug, Default)]
    pub(crate) struct Notes(pub(crate) Vec<(bool, Vec<u8>)>);

    impl AsyncWrite for Notes {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
            self.0.push((true, data.to_vec()));
            Poll::Ready(Ok(data.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl WriteShared for Notes {
        async fn write_shared(&mut self, data: Bytes) -> io::Result<()> {
            self.0.push((false, data.to_vec()));
            Ok(())
        }
    }

    #[tokio::test]
    async fn large_blocks_pass_the_space_by_and_keep_their_place() {
        let mut flow = BufWriter::new(Notes::default(), &payer(), &Arc::default());
        flow.write_all(b"head").await.unwrap();
        flow.write_shared(Bytes::from_static(b"small")).await.unwrap();
        let large = Bytes::from(vec![7; 10_000]);
        flow.write_shared(large.clone()).await.unwrap();
        flow.write_all(b"tail").await.unwrap();
        flow.flush().await.unwrap();
        let expected = [(true, b"headsmall".to_vec()), (false, large.to_vec()), (true, b"tail".to_vec())];
        assert_eq!(flow.get_ref().0, expected);
    }
}
