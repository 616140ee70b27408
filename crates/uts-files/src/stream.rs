//! The content of a file on a flow, in chunks: length (4 bytes, big-endian,
//! 1..=[`CHUNK_BYTES_MAX`]) and that many bytes. Length 0 ends it and is followed by the BLAKE3
//! hash of the whole file, prefix included. Length [`HOLE`] is followed by 8 bytes, the number of
//! zeros that come next (1..=[`HOLE_BYTES_MAX`]). Length [`COPY`] is followed by a place (8 bytes)
//! and a number of bytes (4 bytes, 1..=[`COPY_BYTES_MAX`]) of the receiver's own file, which come
//! next; only if it has told of which pieces that consists. Length [`PACKED`] is followed by two
//! numbers of bytes (4 bytes each): those of a piece of content (1..=[`PACKED_BYTES_MAX`]), and,
//! fewer, those that follow, which are the piece as presentation/zstd presents a message
//! (presentation.md R-11). Length [`ABORT`] gives the content up and is followed by a frame with
//! the [`Fault`].
//!
//! What the peer has not granted is not read from the disk. A flow that waits holds neither a
//! thread nor a block: it asks for the next block when it can take it. How content is received is
//! in [`super::intake`].

use super::WriteShared;
use super::blocks::{BLOCK_BYTES, BLOCK_BYTES_MIN, Block, Blocks};
use super::delta::{COPY_BYTES_MAX, Delta, Known, Step};
use super::error::{Fault, FaultKind};
use super::message::{Entry, Hash, invalid, read_frame, write_frame};
use super::packing::{PACKED, PACKED_BYTES_MAX, Packing, packed_head, packed_lengths};
use super::sparse::{HOLE_BYTES_MAX, Run, Runs, hash_zeros};
use super::tree::entry_of_file;
use super::work::{at_work, in_turn};
use blake3::Hasher;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use uts::descriptor;
use uts_ledger::Payer;

/// The longest chunk that is accepted.
pub(super) const CHUNK_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of the length before a chunk.
pub(super) const LENGTH_BYTES: usize = size_of::<u32>();
/// In place of the length of a chunk: the sender gives up.
pub(super) const ABORT: u32 = u32::MAX;
/// In place of the length of a chunk: a hole comes next.
pub(super) const HOLE: u32 = u32::MAX - 1;
/// In place of the length of a chunk: bytes come next that the receiver has.
pub(super) const COPY: u32 = u32::MAX - 2;
/// Bytes that may wait in a flow to leave: the next blocks are read while those leave.
pub(super) const AHEAD_BYTES: usize = 2 * BLOCK_BYTES;
/// Blocks of a stream that are read ahead of the flow.
const BLOCKS_AHEAD: usize = 4;
/// Blocks are kept for so long while nothing moves.
const KEPT_MAX: Duration = Duration::from_millis(20);

/// Content that went or came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    /// Bytes of the file.
    pub(super) bytes: u64,
    /// Bytes of it that took room on the line.
    pub(super) carried: u64,
    /// Bytes of the file that were sent, compressed or not.
    pub(super) literal: u64,
    /// Bytes of the file that the receiver had.
    pub(super) matched: u64,
}

impl Moved {
    pub(super) fn data(bytes: usize) -> Moved {
        Moved::packed(bytes, bytes)
    }

    /// A piece that took `carried` bytes on the line.
    pub(super) fn packed(bytes: usize, carried: usize) -> Moved {
        Moved { bytes: bytes as u64, carried: carried as u64, literal: bytes as u64, matched: 0 }
    }

    /// Zeros that the receiver makes.
    pub(super) fn hole(bytes: u64) -> Moved {
        Moved { bytes, carried: 0, literal: 0, matched: 0 }
    }

    /// Bytes that the receiver has.
    pub(super) fn copied(bytes: u32) -> Moved {
        Moved { bytes: bytes.into(), carried: 0, literal: 0, matched: bytes.into() }
    }
}

/// A file to send, from some byte on.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) file: File,
    pub(super) entry: Entry,
    /// Where to begin.
    pub(super) from: u64,
    /// With the first `from` bytes in it.
    pub(super) hasher: Hasher,
    /// Its difference from what the receiver has, if one is known.
    pub(super) delta: Option<Box<Delta>>,
    /// Its compressor, if that is wanted.
    pub(super) packing: Option<Packing>,
}

impl Content {
    /// The same content, told by pieces that its receiver has, if that is of use.
    pub(super) fn by(self, known: Option<Known>, payer: &Payer) -> Content {
        let known = known.filter(|known| !known.is_empty() && self.from < self.entry.size);
        let delta = known.and_then(|known| Delta::new(&self.file, known, self.from, payer));
        Content { delta: delta.map(Box::new), ..self }
    }

    /// The same content, compressed where that pays if `is_wanted`.
    pub(super) fn packed(self, is_wanted: bool) -> Content {
        Content { packing: Packing::new(is_wanted), ..self }
    }
}

/// Way in which sending ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// All of it.
    Whole(Hash),
    /// The source failed; the peer was told.
    Failed(Fault),
    /// The peer wanted no more.
    Stopped,
}

/// Waits for something of which nobody knows how long it takes. Blocks that are kept for later are
/// given back if it takes long.
pub(super) async fn patiently<T>(blocks: &Blocks, waited_for: impl Future<Output = T>) -> T {
    let mut waited_for = std::pin::pin!(waited_for);
    if let Ok(come) = timeout(KEPT_MAX, &mut waited_for).await {
        return come;
    }
    blocks.let_go();
    waited_for.await
}

/// Sends content, on behalf of a payer. `observe` is told what went each time; `stop` is asked
/// before each chunk.
pub(super) async fn send_content<W: WriteShared>(
    flow: &mut W,
    content: Content,
    payer: &Payer,
    observe: &mut (dyn FnMut(Moved) + Send),
    stop: &(dyn Fn() -> bool + Sync),
) -> io::Result<Sent> {
    let path = content.entry.path.clone();
    let (mut reading, blocks) = (Reading::of(content), Blocks::new(payer));
    loop {
        let granted = patiently(&blocks, flow.granted(BLOCK_BYTES_MIN, AHEAD_BYTES)).await?;
        if stop() {
            abort(flow, &Fault::new(FaultKind::Aborted, b"", "the receiver failed")).await?;
            return Ok(Sent::Stopped);
        }
        let is_packed = reading.content.packing.is_some();
        let left = if is_packed { reading.left().min(PACKED_BYTES_MAX) } else { reading.left() };
        let bytes = left.saturating_add(LENGTH_BYTES).min(granted.max(LENGTH_BYTES + 1));
        let block = blocks.take(bytes).await;
        let is_costly = is_packed || reading.runs.has_holes() || reading.content.delta.is_some();
        let step = move || reading.step(block);
        let stepped = if is_costly { in_turn(payer, step).await } else { at_work(payer, step).await };
        let piece = match stepped {
            Ok((again, piece)) => {
                reading = again;
                piece
            }
            Err(fault) => {
                let fault = Fault { path, ..fault };
                abort(flow, &fault).await?;
                return Ok(Sent::Failed(fault));
            }
        };
        match piece {
            Piece::Data(block) => {
                let bytes = block.len().saturating_sub(LENGTH_BYTES);
                patiently(&blocks, flow.write_shared(block.into_shared())).await?;
                observe(Moved::data(bytes));
            }
            Piece::Packed(block, packed) => {
                let bytes = block.len().saturating_sub(LENGTH_BYTES);
                let carried = packed.len();
                flow.write_all(&packed_head(bytes, carried)).await?;
                flow.write_shared(packed.into()).await?;
                observe(Moved::packed(bytes, carried));
            }
            Piece::Hole(bytes) => {
                flow.write_all(&HOLE.to_be_bytes()).await?;
                flow.write_all(&bytes.to_be_bytes()).await?;
                observe(Moved::hole(bytes));
            }
            Piece::Copy(at, bytes) => {
                flow.write_all(&COPY.to_be_bytes()).await?;
                flow.write_all(&at.to_be_bytes()).await?;
                flow.write_all(&bytes.to_be_bytes()).await?;
                observe(Moved::copied(bytes));
            }
            Piece::End(hash) => {
                flow.write_all(&0u32.to_be_bytes()).await?;
                flow.write_all(&hash).await?;
                return Ok(Sent::Whole(hash));
            }
        }
    }
}

/// A file while it is read.
struct Reading {
    content: Content,
    runs: Runs,
    at: u64,
}

/// Next piece of it.
enum Piece {
    /// A chunk, with its length before it.
    Data(Block),
    /// A chunk, and how it travels.
    Packed(Block, Vec<u8>),
    Hole(u64),
    /// A place in the receiver's file, and a number of bytes.
    Copy(u64, u32),
    End(Hash),
}

impl Reading {
    fn of(content: Content) -> Reading {
        Reading { runs: Runs::of(&content.file), at: content.from, content }
    }

    fn left(&self) -> usize {
        usize::try_from(self.content.entry.size.saturating_sub(self.at)).unwrap_or(usize::MAX)
    }

    /// Reads what comes next, into the block if it is data, and compresses it if that is wanted.
    fn step(self, block: Block) -> Result<(Reading, Piece), Fault> {
        let (mut reading, piece) = self.read(block)?;
        let piece = match (piece, &mut reading.content.packing) {
            (Piece::Data(block), Some(packing)) => {
                match packing.pack(block.as_ref().get(LENGTH_BYTES..).unwrap_or_default()) {
                    Some(packed) => Piece::Packed(block, packed),
                    None => Piece::Data(block),
                }
            }
            (piece, _) => piece,
        };
        Ok((reading, piece))
    }

    fn read(mut self, mut block: Block) -> Result<(Reading, Piece), Fault> {
        if let Some(delta) = self.content.delta.take() {
            return self.read_by(delta, block);
        }
        let Content { file, entry, hasher, .. } = &mut self.content;
        let fault = |e: io::Error| Fault::io(&entry.path, &e);
        if self.at >= entry.size {
            check_end(file, entry, self.at)?;
            let hash = hasher.finalize().into();
            return Ok((self, Piece::End(hash)));
        }
        let left = match self.runs.next(file, self.at, entry.size).map_err(fault)? {
            Run::Hole(bytes) => {
                let bytes = bytes.min(HOLE_BYTES_MAX);
                hash_zeros(hasher, bytes);
                self.at += bytes;
                return Ok((self, Piece::Hole(bytes)));
            }
            Run::Data(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
        };
        let want = left.min(block.len().saturating_sub(LENGTH_BYTES));
        block.truncate(LENGTH_BYTES + want);
        let (length, data) = block.bytes_mut().split_at_mut(LENGTH_BYTES);
        length.copy_from_slice(&(want as u32).to_be_bytes());
        file.read_exact_at(data, self.at).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => changed(entry),
            _ => fault(e),
        })?;
        hasher.update(data);
        self.at += want as u64;
        Ok((self, Piece::Data(block)))
    }

    /// Reads on where the receiver has pieces of the file.
    fn read_by(mut self, mut delta: Box<Delta>, mut block: Block) -> Result<(Reading, Piece), Fault> {
        let Content { file, entry, hasher, .. } = &mut self.content;
        let most = block.len().saturating_sub(LENGTH_BYTES);
        let fault = |entry: &Entry, e: &io::Error| match e.kind() {
            io::ErrorKind::UnexpectedEof => changed(entry),
            _ => Fault::io(&entry.path, e),
        };
        let step = delta.step(file, entry.size, most).map_err(|e| fault(entry, &e))?;
        let (bytes, piece) = match step {
            Step::End => {
                check_end(file, entry, self.at)?;
                (0, Piece::End(hasher.finalize().into()))
            }
            Step::Hole(bytes) => {
                hash_zeros(hasher, bytes);
                delta.skip(bytes);
                (bytes, Piece::Hole(bytes))
            }
            Step::Copy(at, bytes) => {
                let copied = delta.take_copied(file, entry.size, (at, bytes), |piece| {
                    hasher.update(piece);
                });
                let copied = copied.map_err(|e| fault(entry, &e))?;
                (copied.into(), Piece::Copy(at, copied))
            }
            Step::Data(bytes) => {
                block.truncate(LENGTH_BYTES + bytes);
                let (length, data) = block.bytes_mut().split_at_mut(LENGTH_BYTES);
                length.copy_from_slice(&(bytes as u32).to_be_bytes());
                data.copy_from_slice(delta.front(bytes));
                hasher.update(data);
                delta.take(bytes);
                (bytes as u64, Piece::Data(block))
            }
        };
        self.at += bytes;
        self.content.delta = Some(delta);
        Ok((self, piece))
    }
}

fn changed(entry: &Entry) -> Fault {
    Fault::new(FaultKind::Changed, &entry.path, "changed while it was read")
}

/// Checks that a file that was read up to its end is what it was.
fn check_end(file: &File, entry: &Entry, at: u64) -> Result<(), Fault> {
    let now = entry_of_file(file, &entry.path)?;
    if (now.size, now.mtime) != (entry.size, entry.mtime) {
        return Err(changed(entry));
    }
    // Files of /proc have a size of 0 and content.
    if file.read_at(&mut [0], at).map_err(|e| Fault::io(&entry.path, &e))? > 0 {
        let why =
            format!("has more content than its size of {} bytes; copy it to a plain file first", entry.size);
        return Err(Fault::new(FaultKind::Special, &entry.path, why));
    }
    Ok(())
}

/// Pieces that come from a pipe or device.
enum Live {
    /// As it travels, with its length before it, and what that is of the content.
    Chunk(Vec<u8>, Moved),
    End(Hash),
    Failed(Fault),
}

/// Sends what comes from a pipe or device until it ends; `name` is what people call it. Live data
/// goes out at once, because the next may be long in coming: a thread waits for it.
pub(super) async fn send_stream<W: WriteShared>(
    flow: &mut W,
    name: Vec<u8>,
    source: File,
    packing: Option<Packing>,
    observe: &mut (dyn FnMut(Moved) + Send),
) -> io::Result<Sent> {
    let (blocks, mut queue) = mpsc::channel(BLOCKS_AHEAD);
    let reader = tokio::task::spawn_blocking(move || {
        let last = match read_stream(source, packing, &blocks) {
            Ok(Some(hash)) => Live::End(hash),
            Ok(None) => return,
            Err(error) => Live::Failed(Fault::io(&name, &error)),
        };
        // Fails only if nobody waits for it.
        let _ = blocks.blocking_send(last);
    });
    loop {
        if queue.is_empty() {
            flow.flush().await?;
        }
        let Some(block) = queue.recv().await else { break };
        match block {
            Live::Chunk(chunk, moved) => {
                flow.write_shared(chunk.into()).await?;
                observe(moved);
            }
            Live::End(hash) => {
                flow.write_all(&0u32.to_be_bytes()).await?;
                flow.write_all(&hash).await?;
                return Ok(Sent::Whole(hash));
            }
            Live::Failed(fault) => {
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
fn read_stream(
    source: File,
    mut packing: Option<Packing>,
    blocks: &mpsc::Sender<Live>,
) -> io::Result<Option<Hash>> {
    let mut hasher = Hasher::new();
    let mut space = vec![0; if packing.is_some() { PACKED_BYTES_MAX } else { BLOCK_BYTES }];
    loop {
        let n = descriptor::read(&source, &mut space)?;
        if n == 0 {
            return Ok(Some(hasher.finalize().into()));
        }
        let data = space.get(..n).unwrap_or_default();
        hasher.update(data);
        let packed = packing.as_mut().and_then(|packing| packing.pack(data));
        let (chunk, moved) = match packed {
            Some(packed) => {
                ([&packed_head(n, packed.len())[..], &packed].concat(), Moved::packed(n, packed.len()))
            }
            None => ([&(n as u32).to_be_bytes()[..], data].concat(), Moved::data(n)),
        };
        if blocks.blocking_send(Live::Chunk(chunk, moved)).is_err() {
            return Ok(None);
        }
    }
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
                COPY => {
                    copied(flow).await?;
                    0
                }
                PACKED => packed_lengths(flow).await?.1,
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

/// The place and the number of bytes of what the receiver has.
pub(super) async fn copied<R: AsyncRead + Unpin>(flow: &mut R) -> io::Result<(u64, u32)> {
    let at = flow.read_u64().await?;
    match flow.read_u32().await? {
        bytes @ 1..=COPY_BYTES_MAX => Ok((at, bytes)),
        bytes => Err(invalid(format!("a copy of {bytes} bytes; from 1 to {COPY_BYTES_MAX} can be"))),
    }
}

pub(super) async fn read_fault<R: AsyncRead + Unpin>(flow: &mut R) -> io::Result<Fault> {
    read_frame(flow).await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::tests::{Notes, payer};
    use crate::tree::Source;
    use bytes::Bytes;
    use std::path::Path;
    use uts_ledger::Resource;

    fn content(dir: &Path, data: &[u8]) -> Content {
        std::fs::write(dir.join("f"), data).unwrap();
        let (file, entry) = Source::Ambient(dir.join("f")).open().unwrap();
        Content { file, entry, from: 0, hasher: Hasher::new(), delta: None, packing: None }
    }

    #[tokio::test]
    async fn content_is_handed_over_without_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let data: Vec<u8> = (0..3 * BLOCK_BYTES + 5).map(|i| (i % 251) as u8).collect();
        let mut flow = Notes::default();
        let content = content(dir.path(), &data);
        let sent = send_content(&mut flow, content, &payer(), &mut |_| {}, &|| false).await.unwrap();
        assert_eq!(sent, Sent::Whole(blake3::hash(&data).into()));
        let chunks = data.chunks(BLOCK_BYTES - LENGTH_BYTES).map(|block| {
            let length = (block.len() as u32).to_be_bytes();
            (false, [&length[..], block].concat())
        });
        let end = [(true, vec![0; LENGTH_BYTES]), (true, blake3::hash(&data).as_bytes().to_vec())];
        assert_eq!(flow.0, chunks.chain(end).collect::<Vec<_>>());
    }

    /// Takes what is granted, and nothing more.
    struct Slow {
        taken: Notes,
        grants: mpsc::Receiver<usize>,
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            data: &[u8],
        ) -> std::task::Poll<io::Result<usize>> {
            std::pin::Pin::new(&mut self.taken).poll_write(cx, data)
        }

        fn poll_flush(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn poll_shutdown(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Ready(Ok(()))
        }
    }

    impl WriteShared for Slow {
        async fn write_shared(&mut self, data: Bytes) -> io::Result<()> {
            self.taken.write_shared(data).await
        }

        async fn granted(&mut self, _: usize, _: usize) -> io::Result<usize> {
            self.grants.recv().await.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
        }
    }

    /// A peer that grants nothing costs neither memory nor a thread.
    #[tokio::test]
    async fn what_is_not_granted_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let content = content(dir.path(), &vec![1; 1_000_000]);
        let payer = payer();
        let (granted, grants) = mpsc::channel(8);
        let mut flow = Slow { taken: Notes::default(), grants };
        let held = |resource: Resource| payer.ledger().rows()[resource as usize].held;
        {
            let mut observe = |_| {};
            let sending = send_content(&mut flow, content, &payer, &mut observe, &|| false);
            let mut sending = std::pin::pin!(sending);
            for bytes in [10_000, 300_000, 100] {
                granted.send(bytes).await.unwrap();
                // Until it waits again, and has waited for longer than blocks are kept.
                let waits = timeout(Duration::from_secs(1), &mut sending);
                assert!(waits.await.is_err());
                assert_eq!((held(Resource::Memory), held(Resource::Threads)), (0, 0));
            }
        }
        let lengths: Vec<usize> = flow.taken.0.iter().map(|(_, data)| data.len()).collect();
        assert_eq!(lengths, [10_000, BLOCK_BYTES, 100]);
    }
}
