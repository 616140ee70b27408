//! Small files that arrive whole. They are held in memory until several can be
//! [stored](super::store) together. The disk's cost of a synchronisation is then paid once for all
//! of them. Such a file never stands under the name of a part, and needs no note.
//!
//! A group waits for nobody. It is stored when it is full, and before this end waits for more of
//! the flow.

use super::buffered::BufReader;
use super::claim::Claim;
use super::error::{Fault, FaultKind};
use super::intake::{Received, STOP_MAX, superseded_fault, until};
use super::message::{Entry, Hash, frame_is_in};
use super::modes::Modes;
use super::packing::{PACKED, PACKED_HEAD_BYTES, packed_lengths, unpack};
use super::path::RelPath;
use super::stream::{ABORT, Drain, HOLE, LENGTH_BYTES, Moved, chunk_length, hole_length, read_fault};
use super::tree::Tree;
use std::io;
use std::ops::Range;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use uts_ledger::{Charge, Payer, Resource};

/// The longest file that is small, in bytes. At most this much is lost if a file is cut off,
/// because the copy does not go on from it.
const SMALL_BYTES_MAX: u64 = 64 * 1024;
/// Files of a group. A bound on open files, and on what is sent again after a cut.
const GROUP_FILES_MAX: usize = 64;
/// Content of a group, in bytes. A bound on memory.
const GROUP_BYTES_MAX: usize = 1024 * 1024;

/// A file that has arrived whole, with the hash that its sender gave it.
#[derive(Debug)]
pub(super) struct Small {
    pub(super) tree: Tree,
    pub(super) target: RelPath,
    pub(super) entry: Entry,
    pub(super) modes: Modes,
    /// The key of the client that sends it, if this is a server that knows it.
    pub(super) by: Option<String>,
    pub(super) content: Content,
    /// The right to receive it, at a server.
    #[expect(dead_code, reason = "held until the file is stored")]
    pub(super) claim: Option<Claim>,
    /// Memory of its content.
    pub(super) memory: Charge,
}

/// Content with its holes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// All of it. Holes are zeros.
    pub(super) bytes: Vec<u8>,
    /// Where it is no hole, in order.
    pub(super) data: Vec<Range<usize>>,
    pub(super) hash: Hash,
}

impl Content {
    /// Stretches that are no holes, each with its position.
    pub(super) fn data(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.data.iter().filter_map(|range| Some((range.start, self.bytes.get(range.clone())?)))
    }

    pub(super) fn ends_in_a_hole(&self) -> bool {
        self.data.last().map_or(0, |range| range.end) < self.bytes.len()
    }
}

/// True if a file is small, and all its content comes.
pub(super) fn is_small(size: u64, from: u64) -> bool {
    size <= SMALL_BYTES_MAX && from == 0
}

/// Room for the content of a small file. Without it, the file is received as one that is not small.
pub(super) fn room_for(payer: &Payer, size: u64) -> Option<Charge> {
    payer.charge(Resource::Memory, usize::try_from(size).unwrap_or(usize::MAX).max(1)).ok()
}

/// Files that are stored together, each with what its owner wants to know of it later.
#[derive(Debug)]
pub(super) struct Group<T> {
    pub(super) files: Vec<(Small, T)>,
    bytes: usize,
}

impl<T> Default for Group<T> {
    fn default() -> Self {
        Group { files: Vec::new(), bytes: 0 }
    }
}

impl<T> Group<T> {
    /// Memory that its files take, in bytes.
    pub(super) fn charged(&self) -> usize {
        self.files.iter().map(|(small, _)| small.memory.amount()).sum()
    }

    pub(super) fn push(&mut self, small: Small, about: T) {
        self.bytes += small.content.bytes.len();
        self.files.push((small, about));
    }

    /// True if the group is to be stored before the next message is read: it is full, or the
    /// message is not here. What has come of the flow is read for this.
    pub(super) async fn is_due<R: AsyncRead + Unpin>(&self, flow: &mut BufReader<R>) -> bool {
        if self.files.is_empty() {
            return false;
        }
        if self.files.len() >= GROUP_FILES_MAX || self.bytes >= GROUP_BYTES_MAX {
            return true;
        }
        if !frame_is_in(flow.buffer()) {
            flow.top_up().await;
        }
        !frame_is_in(flow.buffer())
    }

    /// True if it is to be stored before the content of a file of `size` bytes is read.
    pub(super) async fn is_due_before<R: AsyncRead + Unpin>(
        &self,
        size: u64,
        flow: &mut BufReader<R>,
    ) -> bool {
        if self.files.is_empty() {
            return false;
        }
        if !content_is_in(size, flow.buffer()) {
            flow.top_up().await;
        }
        !content_is_in(size, flow.buffer())
    }

    /// Takes the files that are to be stored; the group is empty again.
    pub(super) fn take(&mut self) -> Vec<(Small, T)> {
        self.bytes = 0;
        std::mem::take(&mut self.files)
    }
}

/// True if what has arrived of a flow has all of the content of a file of `size` bytes.
pub(super) fn content_is_in(size: u64, arrived: &[u8]) -> bool {
    let ends = LENGTH_BYTES + size_of::<Hash>();
    let content = match arrived.first_chunk::<PACKED_HEAD_BYTES>() {
        // Most have but this one piece.
        Some([a, b, c, d, .., w, x, y, z]) if u32::from_be_bytes([*a, *b, *c, *d]) == PACKED => {
            (PACKED_HEAD_BYTES as u64).saturating_add(u32::from_be_bytes([*w, *x, *y, *z]).into())
        }
        _ => size.saturating_add(LENGTH_BYTES as u64),
    };
    arrived.len() as u64 >= content.saturating_add(ends as u64)
}

/// Receives the content of a small file of `size` bytes. `observe` is told what came each time.
///
/// The inner error is how receiving ended if not with the whole file.
pub(super) async fn receive<R: AsyncRead + Unpin>(
    flow: &mut BufReader<R>,
    target: &RelPath,
    size: u64,
    observe: &mut (dyn FnMut(Moved) + Send),
    superseded: Option<watch::Receiver<bool>>,
) -> io::Result<Result<Content, Received>> {
    let mut transfer = Box::pin(read(flow, target, size, observe));
    tokio::select! {
        biased;
        read = &mut transfer => read,
        () = until(superseded) => {
            let read = timeout_at(Instant::now() + STOP_MAX, &mut transfer).await;
            read.unwrap_or_else(|_| Ok(Err(Received::Superseded(superseded_fault()))))
        }
    }
}

async fn read<R: AsyncRead + Unpin>(
    flow: &mut BufReader<R>,
    target: &RelPath,
    size: u64,
    observe: &mut (dyn FnMut(Moved) + Send),
) -> io::Result<Result<Content, Received>> {
    let mut content = Content::default();
    let corrupt = |why| Fault::new(FaultKind::Corrupt, target.as_bytes(), why);
    let fits = |held: usize, more: u64| (held as u64).checked_add(more).is_some_and(|end| end <= size);
    let too_much = |at| {
        let why = "more content than was announced";
        let fault = Fault::new(FaultKind::Protocol, target.as_bytes(), why);
        Ok(Err(Received::Failed(fault, Some(at))))
    };
    loop {
        let start = content.bytes.len();
        match flow.read_u32().await? {
            0 => {
                flow.read_exact(&mut content.hash).await?;
                let ours = Hash::from(blake3::hash(&content.bytes));
                let fault = match (ours == content.hash, start as u64 == size) {
                    (true, true) => return Ok(Ok(content)),
                    (true, false) => corrupt("less content than was announced"),
                    (false, _) => corrupt("the hashes of both ends differ"),
                };
                return Ok(Err(Received::Failed(fault, None)));
            }
            ABORT => return Ok(Err(Received::Aborted(read_fault(flow).await?))),
            HOLE => {
                let bytes = hole_length(flow).await?;
                if !fits(start, bytes) {
                    return too_much(Drain::AtChunk);
                }
                // No more than a small file has.
                content.bytes.resize(start + bytes as usize, 0);
                observe(Moved::hole(bytes));
            }
            PACKED => {
                let (bytes, packed_bytes) = packed_lengths(flow).await?;
                if !fits(start, bytes as u64) {
                    return too_much(Drain::InChunk(packed_bytes));
                }
                let mut packed = vec![0; packed_bytes];
                flow.read_exact(&mut packed).await?;
                match unpack(&packed, bytes) {
                    Ok(piece) => content.bytes.extend_from_slice(&piece),
                    Err(fault) => {
                        let fault = Fault { path: target.as_bytes().to_vec(), ..fault };
                        return Ok(Err(Received::Failed(fault, Some(Drain::AtChunk))));
                    }
                }
                content.data.push(start..start + bytes);
                observe(Moved::packed(bytes, packed_bytes));
            }
            length => {
                let bytes = chunk_length(length)?;
                if !fits(start, bytes as u64) {
                    return too_much(Drain::InChunk(bytes));
                }
                content.bytes.resize(start + bytes, 0);
                flow.read_exact(content.bytes.get_mut(start..).unwrap_or_default()).await?;
                content.data.push(start..start + bytes);
                observe(Moved::data(bytes));
            }
        }
    }
}
