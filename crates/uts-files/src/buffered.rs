//! A flow's two halves with something gathered between them and their user. Who waits for the peer
//! holds none of it: room is made when something comes, or is written, and let go of afterwards.
//! What is more than a request takes is charged to the payer.

use super::{FLOW_BUFFER_BYTES, WriteShared};
use bytes::Bytes;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use uts_ledger::{Charge, Payer, Pulse, Resource};

/// Bytes that are gathered without a charge: they are part of what a request takes.
const FREE_BYTES: usize = 4 << 10;
/// Bytes that are read while nothing is known to have come.
const PROBE_BYTES: usize = 1 << 10;

/// The half that is read.
#[derive(Debug)]
pub(super) struct BufReader<R> {
    inner: R,
    payer: Payer,
    pulse: Arc<Pulse>,
    space: Vec<u8>,
    /// Part of it that has come, and is still to be read.
    start: usize,
    end: usize,
    charge: Option<Charge>,
}

impl<R: AsyncRead + Unpin> BufReader<R> {
    pub(super) fn new(inner: R, payer: &Payer, pulse: &Arc<Pulse>) -> Self {
        let (payer, pulse) = (payer.clone(), pulse.clone());
        BufReader { inner, payer, pulse, space: Vec::new(), start: 0, end: 0, charge: None }
    }

    /// Bytes that have come and were not read.
    pub(super) fn buffer(&self) -> &[u8] {
        self.space.get(self.start..self.end).unwrap_or_default()
    }

    /// Memory that it has, in bytes, beyond what a request takes.
    pub(super) fn charged(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::amount)
    }

    /// Reads what else has come, as far as there is room for it, and waits for nothing.
    pub(super) async fn top_up(&mut self) {
        poll_fn(|cx| {
            self.gather(cx);
            // Nobody waits: there is other work.
            self.pulse.waits(false);
            Poll::Ready(())
        })
        .await;
    }

    fn gather(&mut self, cx: &mut Context<'_>) {
        self.space.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.charge.is_none() {
            self.make_room();
        }
        // An error and the end show again.
        while self.end < self.space.len() && matches!(self.poll_more(cx), Poll::Ready(Ok(1..))) {}
        if self.end == 0 {
            self.let_go();
        }
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut read = ReadBuf::new(into);
        match Pin::new(&mut self.inner).poll_read(cx, &mut read) {
            Poll::Ready(Ok(())) => {
                let bytes = read.filled().len();
                self.pulse.moved(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.pulse.waits(true);
                Poll::Pending
            }
        }
    }

    /// Reads into the space behind `end`.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut space = std::mem::take(&mut self.space);
        let read = self.poll_inner(cx, space.get_mut(self.end..).unwrap_or_default());
        self.space = space;
        if let Poll::Ready(Ok(bytes)) = &read {
            self.end += bytes;
        }
        read
    }

    /// Makes as much room as is to be had.
    fn make_room(&mut self) {
        let charge = self.payer.charge(Resource::Memory, FLOW_BUFFER_BYTES).ok();
        self.space.resize(if charge.is_some() { FLOW_BUFFER_BYTES } else { FREE_BYTES }, 0);
        self.charge = charge;
    }

    fn let_go(&mut self) {
        (self.space, self.start, self.end, self.charge) = (Vec::new(), 0, 0, None);
    }
}

impl<R: AsyncRead + Unpin> AsyncBufRead for BufReader<R> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.start < this.end {
            return Poll::Ready(Ok(this.space.get(this.start..this.end).unwrap_or_default()));
        }
        (this.start, this.end) = (0, 0);
        if this.space.len() >= FREE_BYTES {
            match this.poll_more(cx) {
                Poll::Ready(read) => {
                    read?;
                    return Poll::Ready(Ok(this.space.get(..this.end).unwrap_or_default()));
                }
                Poll::Pending => {
                    this.let_go();
                    return Poll::Pending;
                }
            }
        }
        this.let_go();
        let mut probe = [0; PROBE_BYTES];
        let bytes = ready!(this.poll_inner(cx, &mut probe))?;
        this.space = probe.get(..bytes).unwrap_or_default().to_vec();
        this.end = bytes;
        if bytes == PROBE_BYTES {
            this.make_room();
            // An error shows again.
            let _ = this.poll_more(cx);
        }
        Poll::Ready(Ok(this.space.get(..this.end).unwrap_or_default()))
    }

    fn consume(mut self: Pin<&mut Self>, bytes: usize) {
        self.start = self.end.min(self.start + bytes);
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BufReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.start == self.end && buf.remaining() >= FLOW_BUFFER_BYTES / 2 {
            let bytes = ready!(self.poll_inner(cx, buf.initialize_unfilled()))?;
            buf.advance(bytes);
            return Poll::Ready(Ok(()));
        }
        let come = ready!(self.as_mut().poll_fill_buf(cx))?;
        let bytes = come.len().min(buf.remaining());
        buf.put_slice(come.get(..bytes).unwrap_or_default());
        self.consume(bytes);
        Poll::Ready(Ok(()))
    }
}

/// The half that is written.
#[derive(Debug)]
pub(super) struct BufWriter<W> {
    inner: W,
    payer: Payer,
    pulse: Arc<Pulse>,
    space: Vec<u8>,
    /// Bytes of it that have been written.
    start: usize,
    charge: Option<Charge>,
    /// Bytes that were passed on since the peer was last asked for.
    passed: usize,
}

impl<W: AsyncWrite + Unpin> BufWriter<W> {
    pub(super) fn new(inner: W, payer: &Payer, pulse: &Arc<Pulse>) -> Self {
        let (payer, pulse) = (payer.clone(), pulse.clone());
        BufWriter { inner, payer, pulse, space: Vec::new(), start: 0, charge: None, passed: 0 }
    }

    #[cfg(test)]
    pub(super) fn get_ref(&self) -> &W {
        &self.inner
    }

    /// Memory that it has, in bytes, beyond what a request takes.
    pub(super) fn charged(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::amount)
    }

    /// True if so much was passed on that the peer is to be waited for before more is made.
    pub(super) fn has_passed_much(&self) -> bool {
        self.passed >= FLOW_BUFFER_BYTES
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.inner).poll_write(cx, data) {
            Poll::Ready(Ok(bytes)) => {
                self.pulse.moved(bytes);
                self.passed += bytes;
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.pulse.waits(true);
                Poll::Pending
            }
        }
    }

    fn poll_pass_on(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.start < self.space.len() {
            let space = std::mem::take(&mut self.space);
            let written = self.poll_inner(cx, space.get(self.start..).unwrap_or_default());
            self.space = space;
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => self.start += bytes,
            }
        }
        (self.space, self.start, self.charge) = (Vec::new(), 0, None);
        Poll::Ready(Ok(()))
    }

    /// Bytes that may stand in the space.
    fn capacity(&mut self, bytes: usize) -> usize {
        if bytes > FREE_BYTES && self.charge.is_none() {
            self.charge = self.payer.charge(Resource::Memory, FLOW_BUFFER_BYTES).ok();
        }
        if self.charge.is_some() { FLOW_BUFFER_BYTES } else { FREE_BYTES }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for BufWriter<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let bytes = self.space.len() + data.len();
        if bytes > self.capacity(bytes) {
            ready!(self.poll_pass_on(cx))?;
            if data.len() > FREE_BYTES {
                return self.poll_inner(cx, data);
            }
        }
        self.space.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pass_on(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pass_on(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<W: WriteShared> WriteShared for BufWriter<W> {
    /// Less than the space holds goes through it, with what stands in it already.
    async fn write_shared(&mut self, data: Bytes) -> io::Result<()> {
        if data.len() <= FREE_BYTES {
            return self.write_all(&data).await;
        }
        std::future::poll_fn(|cx| self.poll_pass_on(cx)).await?;
        let bytes = data.len();
        self.pulse.waits(true);
        self.inner.write_shared(data).await?;
        self.pulse.moved(bytes);
        Ok(())
    }

    async fn granted(&mut self, least: usize, ahead: usize) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_pass_on(cx)).await?;
        self.pulse.waits(true);
        let granted = self.inner.granted(least, ahead).await?;
        self.pulse.waits(false);
        self.passed = 0;
        Ok(granted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::tests::Notes;
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, duplex};
    use uts_ledger::{Budget, Ledger};

    fn memory(ledger: &Ledger) -> usize {
        ledger.rows()[Resource::Memory as usize].held
    }

    #[tokio::test]
    async fn who_waits_holds_nothing() {
        let ledger = Ledger::of_client(&Budget::of_process());
        let payer = ledger.payer("a");
        let (mut ours, theirs) = duplex(1 << 20);
        let mut reader = BufReader::new(theirs, &payer, &Arc::default());
        for bytes in [1, PROBE_BYTES - 1, PROBE_BYTES, 10_000, 200_000] {
            let data: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
            ours.write_all(&data).await.unwrap();
            assert!(!reader.fill_buf().await.unwrap().is_empty());
            let mut got = vec![0; bytes];
            reader.read_exact(&mut got).await.unwrap();
            assert_eq!(got, data);
            let waits = tokio::time::timeout(std::time::Duration::ZERO, reader.fill_buf());
            assert!(waits.await.is_err());
            assert_eq!((reader.space.capacity(), memory(&ledger)), (0, 0), "{bytes}");
        }
    }

    #[tokio::test]
    async fn without_room_in_the_ledger_little_is_gathered() {
        let ledger = Ledger::of(Resource::Memory, 1, false);
        let payer = ledger.payer("a");
        let mut writer = BufWriter::new(Notes::default(), &payer, &Arc::default());
        let data = vec![7; 1000];
        for _ in 0..20 {
            writer.write_all(&data).await.unwrap();
            assert!(writer.space.len() <= FREE_BYTES);
        }
        writer.flush().await.unwrap();
        assert_eq!(writer.space.capacity(), 0);
        let written: usize = writer.get_ref().0.iter().map(|(_, data)| data.len()).sum();
        assert_eq!(written, 20_000);
        let (mut ours, theirs) = duplex(1 << 20);
        let mut reader = BufReader::new(theirs, &payer, &Arc::default());
        ours.write_all(&[1; 100_000]).await.unwrap();
        assert_eq!(reader.fill_buf().await.unwrap().len(), FREE_BYTES);
    }

    #[tokio::test]
    async fn what_has_come_is_read_without_waiting_for_more() {
        let ledger = Ledger::of_client(&Budget::of_process());
        let (mut peer, ours) = duplex(1 << 20);
        let mut flow = BufReader::new(ours, &ledger.payer("a"), &Arc::default());
        flow.top_up().await;
        assert_eq!((flow.buffer().len(), memory(&ledger)), (0, 0));
        let data: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        peer.write_all(&data).await.unwrap();
        flow.read_exact(&mut [0; 100]).await.unwrap();
        let mut begin = 100;
        while begin < data.len() {
            flow.top_up().await;
            let come = FLOW_BUFFER_BYTES.min(data.len() - begin);
            assert_eq!(flow.buffer(), &data[begin..begin + come]);
            let mut read = vec![0; 30_000.min(come)];
            flow.read_exact(&mut read).await.unwrap();
            begin += read.len();
        }
        // The end is not lost.
        drop(peer);
        flow.top_up().await;
        assert_eq!(flow.read(&mut [0]).await.unwrap(), 0);
    }
}
