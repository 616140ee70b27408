//! Memory between a flow and the disk. Blocks are used again: new ones would be zeroed, and their
//! pages mapped, each time.

use super::{FLOW_BUFFER_BYTES, WriteShared};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io;
use tokio::io::{AsyncWriteExt, BufWriter};

/// Blocks that a flow was given, the oldest first. It lets go of them once the peer has them. There
/// are then no more than the flow holds, and they come back in order.
#[derive(Debug, Default)]
pub(super) struct Lent(VecDeque<Bytes>);

impl Lent {
    /// A block of `bytes`; what stands in it is left over from before.
    pub(super) fn take(&mut self, bytes: usize) -> BytesMut {
        let mut block = match self.0.pop_front().map(Bytes::try_into_mut) {
            Some(Ok(block)) => block,
            Some(Err(held)) => {
                self.0.push_front(held);
                BytesMut::new()
            }
            None => BytesMut::new(),
        };
        block.resize(bytes, 0);
        block
    }

    /// The block, to be given to a flow.
    pub(super) fn lend(&mut self, block: BytesMut) -> Bytes {
        let block = block.freeze();
        self.0.push_back(block.clone());
        block
    }
}

impl<W: WriteShared> WriteShared for BufWriter<W> {
    /// Less than the buffer holds goes through it, with what stands in it already.
    async fn write_shared(&mut self, data: Bytes) -> io::Result<()> {
        if data.len() < FLOW_BUFFER_BYTES {
            return self.write_all(&data).await;
        }
        self.flush().await?;
        self.get_mut().write_shared(data).await
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use core::pin::Pin;
    use core::task::{Context, Poll};
    use tokio::io::AsyncWrite;

    #[test]
    fn a_block_is_used_again_once_the_flow_has_let_go_of_it() {
        let mut lent = Lent::default();
        let first = lent.take(1000);
        let place = first.as_ptr();
        let mut held = lent.lend(first);
        let _ = held.split_to(400);
        let second = lent.take(1000);
        assert_ne!(second.as_ptr(), place, "the flow still holds a part of it");
        let second = lent.lend(second);
        drop(held);
        assert_eq!(lent.take(900).as_ptr(), place);
        drop(second);
        assert_eq!(lent.take(1000).len(), 1000);
        assert!(lent.0.is_empty());
    }

    /// Notes what it is given, and whether that was copied.
    #[derive(Debug, Default)]
    pub(in super::super) struct Notes(pub(in super::super) Vec<(bool, Vec<u8>)>);

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
    async fn large_blocks_pass_the_buffer_by_and_keep_their_place() {
        let mut flow = BufWriter::with_capacity(FLOW_BUFFER_BYTES, Notes::default());
        flow.write_all(b"head").await.unwrap();
        flow.write_shared(Bytes::from_static(b"small")).await.unwrap();
        let large = Bytes::from(vec![7; FLOW_BUFFER_BYTES]);
        flow.write_shared(large.clone()).await.unwrap();
        flow.write_all(b"tail").await.unwrap();
        flow.flush().await.unwrap();
        let expected = [(true, b"headsmall".to_vec()), (false, large.to_vec()), (true, b"tail".to_vec())];
        assert_eq!(flow.get_ref().0, expected);
    }
}
