//! The content of a file on a flow, in chunks: length (4 bytes, big-endian,
//! 1..=[`CHUNK_BYTES_MAX`]) and that many bytes. Length 0 ends it and is followed by the BLAKE3
//! hash of the whole file, prefix included. Length [`HOLE`] is followed by 8 bytes, the number of
//! zeros that come next (1..=[`HOLE_BYTES_MAX`]). Length [`ABORT`] gives the content up and is
//! followed by a frame with the [`Fault`].
//!
//! Disk and hash work on a thread of their own, a few blocks ahead of or behind the flow.

use super::WriteShared;
use super::blocks::Lent;
use super::error::{Fault, FaultKind};
use super::hashing::{SLICE_BYTES, Turn, Turns};
use super::message::{Entry, Hash, invalid, read_frame, write_frame};
use super::sink::Sink;
use super::sparse::{HOLE_BYTES_MAX, Run, Runs, hash_zeros};
use super::tree::entry_of_file;
use crate::descriptor;
use blake3::Hasher;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

/// What is read from and written to disks at once.
pub(super) const BLOCK_BYTES: usize = 256 * 1024;
/// The longest chunk that is accepted.
pub(super) const CHUNK_BYTES_MAX: usize = 1024 * 1024;
/// What a chunk's length takes before it.
pub(super) const LENGTH_BYTES: usize = size_of::<u32>();
/// In place of the length of a chunk: the sender gives up.
pub(super) const ABORT: u32 = u32::MAX;
/// In place of the length of a chunk: a hole comes next.
pub(super) const HOLE: u32 = u32::MAX - 1;
/// Blocks between the flow and the disk.
const BLOCKS_AHEAD: usize = 4;
/// On a slow flow, what has arrived is written after this long. A resumed copy then loses little.
const BLOCK_AGE_MAX: Duration = Duration::from_millis(200);

/// Content that went or came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    /// Bytes of the file.
    pub(super) bytes: u64,
    /// Bytes of it that took room on the line.
    pub(super) carried: u64,
}

impl Moved {
    pub(super) fn data(bytes: usize) -> Moved {
        Moved { bytes: bytes as u64, carried: bytes as u64 }
    }

    pub(super) fn hole(bytes: u64) -> Moved {
        Moved { bytes, carried: 0 }
    }
}

/// How long a copy that another takes over from has to come to an orderly stop.
pub(super) const STOP_MAX: Duration = Duration::from_secs(1);

/// A file to send, from some byte on.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) file: File,
    pub(super) entry: Entry,
    /// Where to begin.
    pub(super) from: u64,
    /// With the first `from` bytes in it.
    pub(super) hasher: Hasher,
}

/// How sending ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// All of it.
    Whole(Hash),
    /// The source failed; the peer was told.
    Failed(Fault),
    /// The peer wanted no more.
    Stopped,
}

/// How receiving ended.
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

/// What goes to a flow: a chunk with its length before it.
enum Outgoing {
    Chunk(Bytes),
    Hole(u64),
    End(Hash),
    Failed(Fault),
}

/// What goes to the disk.
enum Incoming {
    Data(Vec<u8>),
    /// Zeros to be hashed, and the turn to do so.
    Hole(u64, Option<Turn>),
    End(Hash),
}

/// Sends content. `observe` is told what went each time; `stop` is asked before each chunk.
pub(super) async fn send_content<W: WriteShared>(
    flow: &mut W,
    content: Content,
    observe: &mut (dyn FnMut(Moved) + Send),
    stop: &(dyn Fn() -> bool + Sync),
) -> io::Result<Sent> {
    let path = content.entry.path.clone();
    send_blocks(flow, path, move |blocks| read_all(content, blocks), false, observe, stop).await
}

/// Sends what comes from a pipe or device until it ends; `name` is what people call it.
pub(super) async fn send_stream<W: WriteShared>(
    flow: &mut W,
    name: Vec<u8>,
    source: File,
    observe: &mut (dyn FnMut(Moved) + Send),
) -> io::Result<Sent> {
    let read = move |blocks: &_| read_stream(source, blocks).map_err(|e| Fault::io(b"", &e));
    send_blocks(flow, name, read, true, observe, &|| false).await
}

/// Sends what `read` hands over. Its faults name `path`. Live data goes out at once, because the
/// next may be long in coming.
async fn send_blocks<W: WriteShared>(
    flow: &mut W,
    path: Vec<u8>,
    read: impl FnOnce(&mpsc::Sender<Outgoing>) -> Result<Option<Hash>, Fault> + Send + 'static,
    is_live: bool,
    observe: &mut (dyn FnMut(Moved) + Send),
    stop: &(dyn Fn() -> bool + Sync),
) -> io::Result<Sent> {
    let (blocks, mut queue) = mpsc::channel(BLOCKS_AHEAD);
    let reader = tokio::task::spawn_blocking(move || {
        let last = match read(&blocks) {
            Ok(Some(hash)) => Outgoing::End(hash),
            Ok(None) => return,
            Err(fault) => Outgoing::Failed(Fault { path, ..fault }),
        };
        // Fails only if nobody waits for it.
        let _ = blocks.blocking_send(last);
    });
    loop {
        if is_live && queue.is_empty() {
            flow.flush().await?;
        }
        let Some(block) = queue.recv().await else { break };
        if stop() {
            abort(flow, &Fault::new(FaultKind::Aborted, b"", "the receiver failed")).await?;
            return Ok(Sent::Stopped);
        }
        match block {
            Outgoing::Chunk(chunk) => {
                let bytes = chunk.len().saturating_sub(LENGTH_BYTES);
                flow.write_shared(chunk).await?;
                observe(Moved::data(bytes));
            }
            Outgoing::Hole(bytes) => {
                flow.write_all(&HOLE.to_be_bytes()).await?;
                flow.write_all(&bytes.to_be_bytes()).await?;
                observe(Moved::hole(bytes));
            }
            Outgoing::End(hash) => {
                flow.write_all(&0u32.to_be_bytes()).await?;
                flow.write_all(&hash).await?;
                return Ok(Sent::Whole(hash));
            }
            Outgoing::Failed(fault) => {
                abort(flow, &fault).await?;
                return Ok(Sent::Failed(fault));
            }
        }
    }
    // Without an end: the reading thread died.
    let why = reader.await.err().map_or_else(|| "reading ended early".into(), |e| e.to_string());
    let fault = Fault::new(FaultKind::Io, b"", why);
    abort(flow, &fault).await?;
    Ok(Sent::Failed(fault))
}

/// Tells the receiver that no more content follows.
pub(super) async fn abort<W: AsyncWrite + Unpin>(flow: &mut W, fault: &Fault) -> io::Result<()> {
    flow.write_all(&ABORT.to_be_bytes()).await?;
    write_frame(flow, fault).await
}

/// `None` if nobody takes the blocks any more.
fn read_all(content: Content, blocks: &mpsc::Sender<Outgoing>) -> Result<Option<Hash>, Fault> {
    let Content { file, entry, from, mut hasher } = content;
    let fault = |e: io::Error| Fault::io(&entry.path, &e);
    let changed = || Fault::new(FaultKind::Changed, &entry.path, "changed while it was read");
    let mut at = from;
    let (mut runs, mut lent) = (Runs::of(&file), Lent::default());
    while at < entry.size {
        let left = match runs.next(&file, at, entry.size).map_err(fault)? {
            Run::Hole(bytes) => {
                let bytes = bytes.min(HOLE_BYTES_MAX);
                hash_zeros(&mut hasher, bytes);
                at += bytes;
                if blocks.blocking_send(Outgoing::Hole(bytes)).is_err() {
                    return Ok(None);
                }
                continue;
            }
            Run::Data(bytes) => bytes,
        };
        let want = usize::try_from(left).map_or(BLOCK_BYTES, |left| left.min(BLOCK_BYTES));
        let mut chunk = lent.take(LENGTH_BYTES + want);
        let (length, block) = chunk.split_at_mut(LENGTH_BYTES);
        length.copy_from_slice(&(want as u32).to_be_bytes());
        file.read_exact_at(block, at).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => changed(),
            _ => fault(e),
        })?;
        hasher.update(block);
        at += want as u64;
        if blocks.blocking_send(Outgoing::Chunk(lent.lend(chunk))).is_err() {
            return Ok(None);
        }
    }
    let now = entry_of_file(&file, &entry.path)?;
    if (now.size, now.mtime) != (entry.size, entry.mtime) {
        return Err(changed());
    }
    // Files of /proc have a size of 0 and content.
    if file.read_at(&mut [0], at).map_err(fault)? > 0 {
        let why =
            format!("has more content than its size of {} bytes; copy it to a plain file first", entry.size);
        return Err(Fault::new(FaultKind::Special, &entry.path, why));
    }
    Ok(Some(hasher.finalize().into()))
}

/// The same, of what has neither length nor place.
fn read_stream(source: File, blocks: &mpsc::Sender<Outgoing>) -> io::Result<Option<Hash>> {
    let (mut hasher, mut lent) = (Hasher::new(), Lent::default());
    loop {
        let mut chunk = lent.take(LENGTH_BYTES + BLOCK_BYTES);
        let n = descriptor::read(&source, chunk.get_mut(LENGTH_BYTES..).unwrap_or_default())?;
        if n == 0 {
            return Ok(Some(hasher.finalize().into()));
        }
        chunk.truncate(LENGTH_BYTES + n);
        let (length, block) = chunk.split_at_mut(LENGTH_BYTES);
        length.copy_from_slice(&(n as u32).to_be_bytes());
        hasher.update(block);
        if blocks.blocking_send(Outgoing::Chunk(lent.lend(chunk))).is_err() {
            return Ok(None);
        }
    }
}

/// Receives content into `sink`. What has arrived is left there however it ends. Holes, which cost
/// the peer nothing, are hashed in its `turns`.
pub(super) async fn receive_content<R: AsyncRead + Unpin>(
    flow: &mut R,
    sink: impl Sink,
    observe: &mut (dyn FnMut(Moved) + Send),
    superseded: Option<watch::Receiver<bool>>,
    turns: Option<&Turns>,
) -> io::Result<Received> {
    let (blocks, queue) = mpsc::channel(BLOCKS_AHEAD);
    let (empty, emptied) = mpsc::channel(BLOCKS_AHEAD);
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = stop.clone();
    let writer = tokio::task::spawn_blocking(move || write_blocks(sink, queue, &empty, &stopping));
    let mut transfer = Box::pin(forward(flow, &blocks, emptied, observe, turns));
    let outcome = tokio::select! {
        outcome = &mut transfer => outcome,
        () = until(superseded) => {
            // A client that is there hears why, and can go on with its next file.
            stop.store(true, Ordering::Relaxed);
            timeout_at(Instant::now() + STOP_MAX, &mut transfer).await.unwrap_or(Ok(Ending::Superseded))
        }
    };
    drop(transfer);
    drop(blocks);
    // Even if the flow has failed: the lock on the part is free again when this returns.
    let written = writer.await.map_err(io::Error::other)?;
    Ok(match (outcome?, written) {
        (Ending::Superseded, _) => Received::Superseded(superseded_fault()),
        (Ending::Aborted(fault), _) => Received::Aborted(fault),
        (Ending::WriterGone(at), Err(fault)) => Received::Failed(fault, Some(at)),
        (Ending::Whole, Err(fault)) => Received::Failed(fault, None),
        (_, Ok(Some(hash))) => Received::Stored(hash),
        (_, Ok(None)) => return Err(io::Error::other("writing ended early")),
    })
}

pub(super) fn superseded_fault() -> Fault {
    Fault::new(FaultKind::Busy, b"", "another copy of this file has taken over")
}

enum Ending {
    Whole,
    WriterGone(Drain),
    Aborted(Fault),
    Superseded,
}

pub(super) async fn until(superseded: Option<watch::Receiver<bool>>) {
    if let Some(mut superseded) = superseded
        && superseded.wait_for(|&yes| yes).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

async fn forward<R: AsyncRead + Unpin>(
    flow: &mut R,
    blocks: &mpsc::Sender<Incoming>,
    mut emptied: mpsc::Receiver<Vec<u8>>,
    observe: &mut (dyn FnMut(Moved) + Send),
    turns: Option<&Turns>,
) -> io::Result<Ending> {
    loop {
        match flow.read_u32().await? {
            0 => {
                let mut hash = Hash::default();
                flow.read_exact(&mut hash).await?;
                // If the writer is gone, its fault says why.
                let _ = blocks.send(Incoming::End(hash)).await;
                return Ok(Ending::Whole);
            }
            ABORT => return read_fault(flow).await.map(Ending::Aborted),
            HOLE => {
                let mut left = hole_length(flow).await?;
                while left > 0 {
                    let bytes = left.min(SLICE_BYTES);
                    let turn = match turns {
                        Some(turns) => Some(turns.next().await?),
                        None => None,
                    };
                    if blocks.send(Incoming::Hole(bytes, turn)).await.is_err() {
                        return Ok(Ending::WriterGone(Drain::AtChunk));
                    }
                    left -= bytes;
                    observe(Moved::hole(bytes));
                }
            }
            length => {
                let mut left = chunk_length(length)?;
                while left > 0 {
                    let mut block = emptied.try_recv().unwrap_or_default();
                    block.resize(left.min(BLOCK_BYTES), 0);
                    let (n, ended) = read_block(flow, &mut block).await;
                    block.truncate(n);
                    left -= n;
                    if n > 0 && blocks.send(Incoming::Data(block)).await.is_err() {
                        return Ok(Ending::WriterGone(Drain::InChunk(left)));
                    }
                    observe(Moved::data(n));
                    ended?;
                }
            }
        }
    }
}

/// Fills a block, or as much of it as comes within [`BLOCK_AGE_MAX`]. What was read counts even if
/// an error follows.
async fn read_block<R: AsyncRead + Unpin>(flow: &mut R, block: &mut [u8]) -> (usize, io::Result<()>) {
    let mut n = 0;
    let mut deadline = None;
    while let Some(rest) = block.get_mut(n..).filter(|rest| !rest.is_empty()) {
        let read = match deadline {
            None => flow.read(rest).await,
            Some(deadline) => match timeout_at(deadline, flow.read(rest)).await {
                Ok(read) => read,
                Err(_) => break,
            },
        };
        match read {
            Ok(0) => return (n, Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(more) => n += more,
            Err(e) => return (n, Err(e)),
        }
        deadline.get_or_insert_with(|| Instant::now() + BLOCK_AGE_MAX);
    }
    (n, Ok(()))
}

/// `None` if the sender ended without an end.
fn write_blocks(
    mut sink: impl Sink,
    mut queue: mpsc::Receiver<Incoming>,
    empty: &mpsc::Sender<Vec<u8>>,
    stop: &AtomicBool,
) -> Result<Option<Hash>, Fault> {
    while let Some(block) = queue.blocking_recv() {
        let written = match block {
            _ if stop.load(Ordering::Relaxed) => Err(superseded_fault()),
            Incoming::Data(block) => {
                let written = sink.write(&block);
                // To be used again, if there is room.
                let _ = empty.try_send(block);
                written
            }
            Incoming::Hole(bytes, _turn) => sink.skip(bytes),
            Incoming::End(theirs) => return sink.finish(&theirs).map(Some),
        };
        if let Err(fault) = written {
            sink.give_up()?;
            return Err(fault);
        }
    }
    sink.give_up().map(|()| None)
}

/// Reads and drops the rest of content that this end cannot use.
pub(super) async fn drain<R: AsyncRead + Unpin>(flow: &mut R, mut into_chunk: Drain) -> io::Result<()> {
    loop {
        let mut left = match into_chunk {
            Drain::InChunk(left) => left,
            Drain::AtChunk => match flow.read_u32().await? {
                0 => return flow.read_exact(&mut Hash::default()).await.map(|_| ()),
                ABORT => return read_fault(flow).await.map(|_| ()),
                HOLE => {
                    hole_length(flow).await?;
                    0
                }
                length => chunk_length(length)?,
            },
        };
        let mut scrap = vec![0; left.min(64 * 1024)];
        while left > 0 {
            let want = left.min(scrap.len());
            flow.read_exact(scrap.get_mut(..want).unwrap_or_default()).await?;
            left -= want;
        }
        into_chunk = Drain::AtChunk;
    }
}

/// Where in the content draining begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Drain {
    /// Before the length of a chunk.
    AtChunk,
    /// With this many bytes of a chunk to come.
    InChunk(usize),
}

pub(super) fn chunk_length(length: u32) -> io::Result<usize> {
    match length as usize {
        length if length <= CHUNK_BYTES_MAX => Ok(length),
        length => Err(invalid(format!("a chunk of {length} bytes; the limit is {CHUNK_BYTES_MAX}"))),
    }
}

pub(super) async fn hole_length<R: AsyncRead + Unpin>(flow: &mut R) -> io::Result<u64> {
    match flow.read_u64().await? {
        length @ 1..=HOLE_BYTES_MAX => Ok(length),
        length => Err(invalid(format!("a hole of {length} bytes; from 1 to {HOLE_BYTES_MAX} can be"))),
    }
}

pub(super) async fn read_fault<R: AsyncRead + Unpin>(flow: &mut R) -> io::Result<Fault> {
    read_frame(flow).await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::super::blocks::tests::Notes;
    use super::super::modes::Modes;
    use super::super::part::{Part, Terms};
    use super::super::path::RelPath;
    use super::super::tree::{Source, Tree};
    use super::*;

    fn directory() -> (tempfile::TempDir, Tree) {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        (dir, tree)
    }

    #[tokio::test]
    async fn content_is_handed_over_without_a_copy() {
        let (dir, _) = directory();
        let data: Vec<u8> = (0..3 * BLOCK_BYTES + 5).map(|i| (i % 251) as u8).collect();
        std::fs::write(dir.path().join("f"), &data).unwrap();
        let (file, entry) = Source::Ambient(dir.path().join("f")).open().unwrap();
        let mut flow = Notes::default();
        let content = Content { file, entry, from: 0, hasher: Hasher::new() };
        let sent = send_content(&mut flow, content, &mut |_| {}, &|| false).await.unwrap();
        assert_eq!(sent, Sent::Whole(blake3::hash(&data).into()));
        let chunks = data.chunks(BLOCK_BYTES).map(|block| {
            let length = (block.len() as u32).to_be_bytes();
            (false, [&length[..], block].concat())
        });
        let end = [(true, vec![0; LENGTH_BYTES]), (true, blake3::hash(&data).as_bytes().to_vec())];
        assert_eq!(flow.0, chunks.chain(end).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn what_was_written_to_the_disk_is_filled_again() {
        let (_dir, tree) = directory();
        let data = vec![1; 2 * BLOCK_BYTES];
        let entry = Entry { size: data.len() as u64, ..tree.stat(&RelPath::ROOT).unwrap().unwrap() };
        let part =
            Part::open(&tree, &RelPath::parse(b"g").unwrap(), &entry, None, Terms::client(Modes::Preserve))
                .unwrap();
        let (blocks, queue) = mpsc::channel(BLOCKS_AHEAD);
        let (empty, mut emptied) = mpsc::channel(BLOCKS_AHEAD);
        let first = vec![2; BLOCK_BYTES];
        let place = first.as_ptr();
        blocks.try_send(Incoming::Data(first)).unwrap();
        drop(blocks);
        let written =
            tokio::task::spawn_blocking(move || write_blocks(part, queue, &empty, &AtomicBool::new(false)));
        assert!(written.await.unwrap().unwrap().is_none());
        let block = emptied.try_recv().unwrap();
        assert_eq!(block.as_ptr(), place);

        let (empty, emptied) = mpsc::channel(BLOCKS_AHEAD);
        let (blocks, mut queue) = mpsc::channel(BLOCKS_AHEAD);
        empty.try_send(block).unwrap();
        let length = (data.len() as u32).to_be_bytes();
        let flow = [&length[..], &data, &[0; LENGTH_BYTES], &[3; 32]].concat();
        let ending = forward(&mut &flow[..], &blocks, emptied, &mut |_| {}, None).await.unwrap();
        assert!(matches!(ending, Ending::Whole));
        let Incoming::Data(block) = queue.try_recv().unwrap() else { panic!("no content") };
        assert_eq!((block.as_ptr(), &block[..]), (place, &data[..BLOCK_BYTES]));
    }
}
