//! Memory between a flow and the disk. It is charged to who it is for, until the flow or the disk
//! has let go of it. Blocks are used again: new ones would be zeroed, and their pages mapped, each
//! time. Who waits, for memory or for the peer, keeps none meanwhile, also of those that the flow
//! lets go of then: others may wait for just these.

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
    home: Home,
}

/// Where blocks go that nobody uses any more.
type Home = Arc<Mutex<Spares>>;

/// Blocks that are kept for later.
#[derive(Debug, Default)]
struct Spares {
    spaces: Vec<Space>,
    /// Blocks that come home are kept: their user will soon take one.
    keeps: bool,
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
    home: Home,
}

impl Blocks {
    pub(super) fn new(payer: &Payer) -> Self {
        Blocks { payer: payer.clone(), home: Arc::default() }
    }

    /// A block that was used before, if there is one; it may be shorter than `bytes`.
    pub(super) fn spare(&self, bytes: usize) -> Option<Block> {
        let space = lock(&self.home).spaces.pop();
        space.map(|space| self.block(space, bytes))
    }

    /// Waits for a block of up to `bytes`.
    pub(super) async fn take(&self, bytes: usize) -> Block {
        self.take_holding(bytes, 0).await
    }

    /// The same for one who holds some memory meanwhile, in bytes.
    pub(super) async fn take_holding(&self, bytes: usize, holds: usize) -> Block {
        let wanted = bytes.clamp(1, BLOCK_BYTES);
        let longest = |space: &Space| space.bytes.len() >= wanted || space.bytes.len() >= BLOCK_BYTES;
        let spare = lock(&self.home).spaces.pop_if(|space| longest(space));
        if let Some(space) = spare {
            return self.block(space, bytes);
        }
        // A shorter one is of no use, and counts.
        self.let_go();
        let least = wanted.min(BLOCK_BYTES_MIN);
        let charge = self.payer.wait_holding(Resource::Memory, (least, wanted), holds).await;
        let space = Space { bytes: vec![0; charge.amount()], _charge: charge };
        lock(&self.home).keeps = true;
        self.block(space, bytes)
    }

    fn block(&self, space: Space, bytes: usize) -> Block {
        let bytes = bytes.min(space.bytes.len());
        Block { space: Some(space), bytes, home: self.home.clone() }
    }

    /// Gives back what is kept for later, and keeps nothing until a block is taken.
    pub(super) fn let_go(&self) {
        *lock(&self.home) = Spares::default();
    }
}

fn lock(home: &Mutex<Spares>) -> MutexGuard<'_, Spares> {
    home.lock().unwrap_or_else(PoisonError::into_inner)
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
        if spares.keeps && spares.spaces.len() < SPARES_MAX && Arc::strong_count(&self.home) > 1 {
            spares.spaces.push(space);
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

    /// All memory is in a flow. Both of two that wait for some get it when the flow lets go of it.
    #[tokio::test(start_paused = true)]
    async fn who_waits_keeps_nothing_of_what_the_flow_lets_go_of() {
        let ledger = Ledger::of(Resource::Memory, 4 * BLOCK_BYTES_MIN, false);
        let payer = ledger.payer("a");
        let (one, other) = (Blocks::new(&payer), Blocks::new(&payer));
        for wanted in [1, 2, 4] {
            let mut under_way = Vec::new();
            for _ in 0..4 / wanted {
                under_way.push(one.take(wanted * BLOCK_BYTES_MIN).await.into_shared());
            }
            let takes = async |blocks: &Blocks| {
                drop(blocks.take(BLOCK_BYTES).await);
                blocks.let_go();
            };
            let lets_go = async {
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                drop(under_way);
            };
            let all = async { tokio::join!(takes(&one), takes(&other), lets_go) };
            let done = tokio::time::timeout(std::time::Duration::from_secs(10), all).await;
            assert!(done.is_ok(), "{wanted}: both wait, and nobody uses the memory");
            assert_eq!(held(&payer), 0);
        }
    }

    /// A flow that waits for its peer holds no memory, whenever what it has sent is acknowledged.
    #[tokio::test(start_paused = true)]
    async fn who_waits_for_the_peer_keeps_nothing() {
        let payer = payer();
        let blocks = Blocks::new(&payer);
        let shared = [blocks.take(BLOCK_BYTES).await, blocks.take(BLOCK_BYTES).await].map(Block::into_shared);
        let waits = crate::stream::patiently(&blocks, tokio::time::sleep(std::time::Duration::from_secs(9)));
        let acknowledged = async {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            drop(shared);
            assert_eq!(held(&payer), 0);
        };
        tokio::join!(waits, acknowledged);
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
