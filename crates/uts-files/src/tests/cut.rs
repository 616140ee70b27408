//! Flows that fail for good after this many bytes in both directions together.

use crate::memory::MemoryFlows;
use crate::{Flows, WriteShared};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(super) struct CutFlows {
    inner: MemoryFlows,
    left: Arc<AtomicUsize>,
}

impl CutFlows {
    pub(super) fn new(inner: MemoryFlows, after_bytes: usize) -> Self {
        CutFlows { inner, left: Arc::new(AtomicUsize::new(after_bytes)) }
    }
}

impl CutFlows {
    /// All flows fail as soon as something is done with them.
    pub(super) fn cut(&self) {
        self.left.store(0, Ordering::SeqCst);
    }

    /// A flow that the other end opened.
    pub(super) async fn take(
        &self,
    ) -> (Cut<<MemoryFlows as Flows>::Send>, Cut<<MemoryFlows as Flows>::Recv>) {
        let (send, recv) = self.inner.accept().await.unwrap().unwrap();
        (Cut { inner: send, left: self.left.clone() }, Cut { inner: recv, left: self.left.clone() })
    }
}

pub(super) struct Cut<T> {
    inner: T,
    left: Arc<AtomicUsize>,
}

fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl<T: AsyncRead + Unpin> AsyncRead for Cut<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.left.load(Ordering::SeqCst);
        if left == 0 {
            return Poll::Ready(Err(gone()));
        }
        let mut some = buf.take(left);
        ready!(Pin::new(&mut self.inner).poll_read(cx, &mut some))?;
        let n = some.filled().len();
        self.left.fetch_sub(n.min(left), Ordering::SeqCst);
        buf.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Cut<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let left = self.left.load(Ordering::SeqCst);
        if left == 0 {
            return Poll::Ready(Err(gone()));
        }
        let n = ready!(Pin::new(&mut self.inner).poll_write(cx, &data[..data.len().min(left)]))?;
        self.left.fetch_sub(n, Ordering::SeqCst);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<T: AsyncWrite + Unpin + Send> WriteShared for Cut<T> {}

impl Flows for CutFlows {
    type Send = Cut<<MemoryFlows as Flows>::Send>;
    type Recv = Cut<<MemoryFlows as Flows>::Recv>;

    async fn open(&self) -> io::Result<(Self::Send, Self::Recv)> {
        if self.left.load(Ordering::SeqCst) == 0 {
            return Err(gone());
        }
        let (send, recv) = self.inner.open().await?;
        Ok((Cut { inner: send, left: self.left.clone() }, Cut { inner: recv, left: self.left.clone() }))
    }

    async fn accept(&self) -> io::Result<Option<(Self::Send, Self::Recv)>> {
        Ok(None)
    }
}
