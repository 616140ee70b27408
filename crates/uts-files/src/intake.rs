//! Receiving content ([`super::stream`]): what comes is written to the disk a block at a time. A
//! flow that waits holds neither a thread nor a block. The next block fills while one is written.

use super::blocks::{BLOCK_BYTES, BLOCK_BYTES_MIN, Block, Blocks};
use super::buffered::BufReader;
use super::error::{Fault, FaultKind};
use super::hashing::SLICE_BYTES;
use super::message::Hash;
use super::packing::{PACKED, packed_lengths, unpack};
use super::sink::Sink;
use super::stream::{
    ABORT, COPY, Drain, HOLE, Moved, chunk_length, copied, hole_length, patiently, read_fault,
};
use super::work::at_work;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout_at};
use uts_ledger::{Charge, Payer, Resource};

/// On a slow flow, what has arrived is written after this long. A resumed copy then loses little.
const BLOCK_AGE_MAX: Duration = Duration::from_millis(200);
/// Time for a copy that another takes over from to come to an orderly stop.
pub(super) const STOP_MAX: Duration = Duration::from_secs(1);

/// End of receiving.
#[derive(Debug)]
pub(super) enum Received {
    /// Verified and under its final name.
    Stored(Hash),
    /// This end failed; where on the flow the content stands, if any of it is left.
    Failed(Fault, Option<Drain>),
    /// Another copy of the file took over; the flow is of no more use.
    Superseded(Fault),
    /// The sender gave up.
    Aborted(Fault),
}

pub(super) fn superseded_fault() -> Fault {
    Fault::new(FaultKind::Busy, b"", "another copy of this file has taken over")
}

pub(super) async fn until(superseded: Option<watch::Receiver<bool>>) {
    if let Some(mut superseded) = superseded
        && superseded.wait_for(|&yes| yes).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Where content goes. If this is given up, the sink is too.
struct Held<S: Sink>(Option<S>);

impl<S: Sink> Held<S> {
    fn give_up(mut self) -> Result<(), Fault> {
        self.0.take().map_or(Ok(()), S::give_up)
    }
}

impl<S: Sink> Drop for Held<S> {
    fn drop(&mut self) {
        let Some(sink) = self.0.take() else { return };
        // It may take its time, and nobody waits for what becomes of it.
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(|| sink.give_up())),
            Err(_) => drop(sink.give_up()),
        }
    }
}

/// The disk's end: at rest, or writing what came before.
enum Disk<S: Sink> {
    Idle(Held<S>),
    Busy(JoinHandle<Result<Held<S>, Fault>>),
    /// It has failed.
    Gone,
}

impl<S: Sink> Disk<S> {
    /// Waits until what came before is written.
    async fn settle(&mut self) -> Result<(), Fault> {
        if let Disk::Busy(written) = self {
            let written = written.await.map_err(|e| Fault::new(FaultKind::Io, b"", e.to_string()));
            *self = Disk::Gone;
            *self = Disk::Idle(written.flatten()?);
        }
        Ok(())
    }

    /// The sink, once what came before is written.
    async fn ready(&mut self) -> Result<Held<S>, Fault> {
        self.settle().await?;
        match std::mem::replace(self, Disk::Gone) {
            Disk::Idle(sink) => Ok(sink),
            _ => Err(Fault::new(FaultKind::Io, b"", "writing has ended")),
        }
    }

    /// Begins to do something, once all that came before is done. A failure is that of what came
    /// before. `turn` is held until it is done.
    async fn then(
        &mut self,
        stop: &AtomicBool,
        payer: &Payer,
        turn: Option<Charge>,
        act: impl FnOnce(&mut S) -> Result<(), Fault> + Send + 'static,
    ) -> Result<(), Fault> {
        self.settle().await?;
        let thread = payer.wait(Resource::Threads, 1, 1).await;
        let sink = self.ready().await?;
        if stop.load(Ordering::Relaxed) {
            give_up(sink).await?;
            return Err(superseded_fault());
        }
        *self = Disk::Busy(spawn_blocking(move || {
            let done = on(sink, act);
            drop((thread, turn));
            done
        }));
        Ok(())
    }
}

async fn give_up<S: Sink>(sink: Held<S>) -> Result<(), Fault> {
    super::client::blocking(move || sink.give_up()).await
}

/// Does something with a sink. One that fails is given up.
fn on<S: Sink>(mut sink: Held<S>, act: impl FnOnce(&mut S) -> Result<(), Fault>) -> Result<Held<S>, Fault> {
    match sink.0.as_mut().map_or(Ok(()), act) {
        Ok(()) => Ok(sink),
        Err(fault) => {
            sink.give_up()?;
            Err(fault)
        }
    }
}

enum Ending {
    Whole(Hash),
    WriterGone(Fault, Drain),
    Aborted(Fault),
    Superseded,
}

/// Receives content into `sink`, on behalf of a payer. What has arrived is left there however it
/// ends.
pub(super) async fn receive_content<R: AsyncRead + Unpin + Send>(
    flow: &mut BufReader<R>,
    sink: impl Sink,
    observe: &mut (dyn FnMut(Moved) + Send),
    superseded: Option<watch::Receiver<bool>>,
    payer: &Payer,
) -> io::Result<Received> {
    let stop = AtomicBool::new(false);
    let mut disk = Disk::Idle(Held(Some(sink)));
    let outcome = {
        let mut transfer = std::pin::pin!(transfer(flow, &mut disk, &stop, observe, payer));
        tokio::select! {
            outcome = &mut transfer => outcome,
            () = until(superseded) => {
                // A client that is there hears why, and can go on with its next file.
                stop.store(true, Ordering::Relaxed);
                timeout_at(Instant::now() + STOP_MAX, &mut transfer).await.unwrap_or(Ok(Ending::Superseded))
            }
        }
    };
    if let Ok(Ending::WriterGone(fault, at)) = outcome {
        return Ok(Received::Failed(fault, Some(at)));
    }
    // Even if the flow has failed: the lock on the part is free again when this returns.
    let written = disk.ready().await;
    Ok(match (outcome, written) {
        (Ok(Ending::Whole(_)), Err(fault)) => Received::Failed(fault, None),
        (Ok(Ending::Whole(_)), Ok(sink)) if stop.load(Ordering::Relaxed) => give_up(sink).await.map_or_else(
            |fault| Received::Failed(fault, None),
            |()| Received::Failed(superseded_fault(), None),
        ),
        (Ok(Ending::Whole(theirs)), Ok(mut sink)) => {
            let finish = move || match sink.0.take() {
                Some(sink) => sink.finish(&theirs),
                None => Err(Fault::new(FaultKind::Io, b"", "writing has ended")),
            };
            at_work(payer, finish).await.map_or_else(|fault| Received::Failed(fault, None), Received::Stored)
        }
        (outcome, written) => {
            if let Ok(sink) = written {
                // What failed first is told.
                let _ = give_up(sink).await;
            }
            match outcome? {
                Ending::Aborted(fault) => Received::Aborted(fault),
                _ => Received::Superseded(superseded_fault()),
            }
        }
    })
}

async fn transfer<R: AsyncRead + Unpin + Send, S: Sink>(
    flow: &mut BufReader<R>,
    disk: &mut Disk<S>,
    stop: &AtomicBool,
    observe: &mut (dyn FnMut(Moved) + Send),
    payer: &Payer,
) -> io::Result<Ending> {
    let blocks = Blocks::new(payer);
    let mut size = BLOCK_BYTES_MIN;
    loop {
        patiently(&blocks, flow.fill_buf()).await?;
        match flow.read_u32().await? {
            0 => {
                let mut hash = Hash::default();
                flow.read_exact(&mut hash).await?;
                return Ok(Ending::Whole(hash));
            }
            ABORT => return read_fault(flow).await.map(Ending::Aborted),
            HOLE => {
                let mut left = hole_length(flow).await?;
                while left > 0 {
                    let bytes = left.min(SLICE_BYTES);
                    let turn = payer.wait(Resource::Processor, 1, 1).await;
                    if let Err(fault) = disk.then(stop, payer, Some(turn), move |s| s.skip(bytes)).await {
                        return Ok(Ending::WriterGone(fault, Drain::AtChunk));
                    }
                    left -= bytes;
                    observe(Moved::hole(bytes));
                }
            }
            PACKED => {
                let (moved, written) = take_packed(flow, disk, stop, &blocks, payer).await?;
                if let Err(fault) = written {
                    return Ok(Ending::WriterGone(fault, Drain::AtChunk));
                }
                observe(moved);
            }
            COPY => {
                let (at, bytes) = copied(flow).await?;
                let turn = payer.wait(Resource::Processor, 1, 1).await;
                if let Err(fault) = disk.then(stop, payer, Some(turn), move |s| s.copy(at, bytes)).await {
                    return Ok(Ending::WriterGone(fault, Drain::AtChunk));
                }
                observe(Moved::copied(bytes));
            }
            length => {
                let mut left = chunk_length(length)?;
                while left > 0 {
                    let (block, ended) = read_block(flow, &blocks, left.min(size)).await;
                    let n = block.as_ref().map_or(0, Block::len);
                    size = next_size(size, n);
                    left -= n;
                    if let Some(block) = block.filter(|_| n > 0) {
                        let write = move |s: &mut S| s.write(block.as_ref());
                        if let Err(fault) = disk.then(stop, payer, None, write).await {
                            return Ok(Ending::WriterGone(fault, Drain::InChunk(left)));
                        }
                    }
                    observe(Moved::data(n));
                    ended?;
                }
            }
        }
    }
}

/// Takes a packed piece, which is written as it was before it was packed.
async fn take_packed<R: AsyncRead + Unpin + Send, S: Sink>(
    flow: &mut BufReader<R>,
    disk: &mut Disk<S>,
    stop: &AtomicBool,
    blocks: &Blocks,
    payer: &Payer,
) -> io::Result<(Moved, Result<(), Fault>)> {
    let (bytes, packed_bytes) = packed_lengths(flow).await?;
    blocks.let_go();
    // Both forms at once: who holds one and waits for room for the other keeps both.
    let both = bytes + packed_bytes;
    let room = payer.wait_holding(Resource::Memory, (both, both), flow.charged()).await;
    let mut packed = vec![0; packed_bytes];
    flow.read_exact(&mut packed).await?;
    let turn = payer.wait(Resource::Processor, 1, 1).await;
    let write = move |s: &mut S| {
        let written = unpack(&packed, bytes).and_then(|content| s.write(&content));
        drop(room);
        written
    };
    Ok((Moved::packed(bytes, packed_bytes), disk.then(stop, payer, Some(turn), write).await))
}

/// Length of the next block, after one into which so much has come in time.
fn next_size(size: usize, came: usize) -> usize {
    if came >= size {
        (2 * size).min(BLOCK_BYTES)
    } else {
        came.next_power_of_two().clamp(BLOCK_BYTES_MIN, size)
    }
}

/// Fills a block, or as much of it as comes within [`BLOCK_AGE_MAX`]. What was read counts even if
/// an error follows.
async fn read_block<R: AsyncRead + Unpin>(
    flow: &mut BufReader<R>,
    blocks: &Blocks,
    bytes: usize,
) -> (Option<Block>, io::Result<()>) {
    if let Some(mut block) = blocks.spare(bytes) {
        let (n, ended) = fill(flow, block.bytes_mut()).await;
        if n > 0 || ended.is_err() {
            block.truncate(n);
            return (Some(block), ended);
        }
    }
    blocks.let_go();
    match flow.fill_buf().await {
        Ok([]) => return (None, Err(io::ErrorKind::UnexpectedEof.into())),
        Ok(_) => {}
        Err(error) => return (None, Err(error)),
    }
    let mut block = blocks.take_holding(bytes, flow.charged()).await;
    let (n, ended) = fill(flow, block.bytes_mut()).await;
    block.truncate(n);
    (Some(block), ended)
}

async fn fill<R: AsyncRead + Unpin>(flow: &mut BufReader<R>, space: &mut [u8]) -> (usize, io::Result<()>) {
    let deadline = Instant::now() + BLOCK_AGE_MAX;
    let mut n = 0;
    while let Some(rest) = space.get_mut(n..).filter(|rest| !rest.is_empty()) {
        match timeout_at(deadline, flow.read(rest)).await {
            Err(_) => break,
            Ok(Ok(0)) => return (n, Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(Ok(more)) => n += more,
            Ok(Err(error)) => return (n, Err(error)),
        }
    }
    (n, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::tests::payer;
    use crate::sink::not_told;
    use std::sync::{Arc, Mutex};
    use tokio::io::{AsyncWriteExt, duplex};

    /// Keeps what it is given.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<(Vec<u8>, Option<&'static str>)>>);

    impl Kept {
        fn end(&self, how: &'static str) {
            self.0.lock().unwrap().1 = Some(how);
        }
    }

    impl Sink for Kept {
        fn write(&mut self, block: &[u8]) -> Result<(), Fault> {
            self.0.lock().unwrap().0.extend_from_slice(block);
            Ok(())
        }

        fn skip(&mut self, bytes: u64) -> Result<(), Fault> {
            self.0.lock().unwrap().0.extend(vec![0; bytes as usize]);
            Ok(())
        }

        fn copy(&mut self, _at: u64, _bytes: u32) -> Result<(), Fault> {
            Err(not_told(b""))
        }

        fn finish(self, theirs: &Hash) -> Result<Hash, Fault> {
            self.end("finished");
            Ok(*theirs)
        }

        fn give_up(self) -> Result<(), Fault> {
            self.end("given up");
            Ok(())
        }
    }

    fn chunk(data: &[u8]) -> Vec<u8> {
        [&(data.len() as u32).to_be_bytes()[..], data].concat()
    }

    #[tokio::test]
    async fn what_comes_is_written_in_order_and_a_flow_that_waits_holds_nothing() {
        let payer = payer();
        let held = |resource: Resource| payer.ledger().rows()[resource as usize].held;
        let (mut peer, ours) = duplex(1 << 20);
        let mut flow = BufReader::new(ours, &payer, &Arc::default());
        let kept = Kept::default();
        let data: Vec<u8> = (0..800_000).map(|i| (i % 251) as u8).collect();
        let receiving = {
            let (kept, payer) = (kept.clone(), payer.clone());
            async move { receive_content(&mut flow, kept, &mut |_| {}, None, &payer).await }
        };
        let receiving = tokio::spawn(receiving);
        let pieces = [chunk(&data[..100_000]), chunk(&data[100_000..])];
        for piece in pieces.concat().chunks(150_000) {
            peer.write_all(piece).await.unwrap();
            let mut left = 500;
            while (held(Resource::Memory), held(Resource::Threads)) != (0, 0) {
                tokio::time::sleep(Duration::from_millis(10)).await;
                left -= 1;
                assert!(left > 0, "it holds {} {}", held(Resource::Memory), held(Resource::Threads));
            }
        }
        peer.write_all(&[&[0; 4][..], &[7; 32]].concat()).await.unwrap();
        assert!(matches!(receiving.await.unwrap().unwrap(), Received::Stored(hash) if hash == [7; 32]));
        let (kept, how) = kept.0.lock().unwrap().clone();
        assert!(kept == data && how == Some("finished"));
    }

    #[tokio::test]
    async fn what_is_given_up_is_given_up_where_it_goes() {
        for cut in [true, false] {
            let payer = payer();
            let (mut peer, ours) = duplex(1 << 20);
            let mut flow = BufReader::new(ours, &payer, &Arc::default());
            let kept = Kept::default();
            peer.write_all(&chunk(&[1; 5000])[..4000]).await.unwrap();
            {
                let mut observe = |_| {};
                let receiving = receive_content(&mut flow, kept.clone(), &mut observe, None, &payer);
                if cut {
                    drop(peer);
                    receiving.await.unwrap_err();
                } else {
                    let waits = tokio::time::timeout(Duration::from_millis(500), receiving);
                    assert!(waits.await.is_err());
                }
            }
            let mut left = 500;
            while kept.0.lock().unwrap().1.is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
                left -= 1;
                assert!(left > 0, "nobody has given it up");
            }
            let (bytes, how) = kept.0.lock().unwrap().clone();
            assert_eq!((bytes.len(), how), (3996, Some("given up")), "{cut}");
        }
    }
}
