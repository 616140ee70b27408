//! The end that moves bytes into memory of its peer's, or out of it.

use super::memory::Filling;
use super::wire::{Header, Operation};
use super::{MoveRefusal, Repeats, Tag};
use crate::connection::Connection;
use crate::flow::{Chunk, ReadError, RecvFlow, SendFlow, WriteError};
use bytes::{Bytes, BytesMut};
use core::future::{Future, poll_fn};
use core::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;
use uts_engine::{CloseReason, FlowError, FlowOptions, Memory};

/// Most that is read of a flow at once.
pub(super) const READ_BYTES: usize = 64 << 10;

/// Terms of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveOptions {
    /// Repeats of what is lost: as of all else in the connection at first.
    pub repeats: Repeats,
    /// Time for the move as a whole; `None` = as long as the connection lasts.
    pub deadline: Option<Duration>,
}

impl MoveOptions {
    /// A move that repeats by blasts of this strategy.
    pub fn blasts(strategy: super::Strategy) -> Self {
        let repeats = Repeats::Blasts { strategy, kibibytes: None };
        MoveOptions { repeats, ..MoveOptions::default() }
    }
}

/// Why a move was not made. What was named may have been written in part; what was not written
/// whole may be moved again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The end that has the memory does not take it, or does not give it.
    #[error("the move of {bytes} bytes at offset {offset} of memory {tag} is refused: {why}")]
    Refused {
        /// The memory.
        tag: Tag,
        /// Of the first byte in it.
        offset: u64,
        /// Bytes to be moved.
        bytes: u64,
        /// Its reason.
        why: MoveRefusal,
    },
    /// The move has no flow: the connection cannot have what it requires.
    #[error("the move cannot begin: {0}")]
    NotBegun(FlowError),
    /// The connection has ended.
    #[error("the connection of the move is lost: {0}")]
    Lost(CloseReason),
    /// The peer has given the move up.
    #[error("the peer has given the move up (code {0})")]
    GivenUp(u64),
    /// The time of the move is over.
    #[error("the deadline of the move has passed")]
    DeadlinePassed,
    /// The peer breaks the rules of moves.md.
    #[error("the peer breaks the rules of moves: {0}")]
    Breach(String),
}

impl From<ReadError> for MoveError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Reset(code) => MoveError::GivenUp(code),
            ReadError::Closed(reason) => MoveError::Lost(reason),
            other => MoveError::Breach(other.to_string()),
        }
    }
}

/// A move that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Bytes that were moved.
    pub bytes: u64,
    /// Bytes that this end has copied twice, into memory of the connection and from there into that
    /// which was named, since they came before it was known what they are.
    pub held_bytes: u64,
}

/// Moves bytes into memory that the peer has named, to this offset. They are there when this is
/// done. If the wait is given up, so is the move, and what it has written may be moved again.
///
/// # Errors
/// [`MoveError`].
pub async fn move_to(
    connection: &Connection,
    tag: Tag,
    offset: u64,
    bytes: Bytes,
    options: &MoveOptions,
) -> Result<Moved, MoveError> {
    let len = bytes.len() as u64;
    let header = Header { operation: Operation::To, tag, offset, bytes: len, repeats: options.repeats };
    within(options.deadline, async {
        // B-1
        let (send, mut recv) = open(connection, options.repeats).await?.split();
        let mut send = Unsettled(Some(send));
        // Why it takes no more, the answer says.
        match write(send.half(), header.emit().into(), bytes).await {
            Ok(()) | Err(WriteError::Stopped(_)) => {}
            Err(WriteError::Closed(reason)) => return Err(MoveError::Lost(reason)),
            Err(WriteError::Refused(why)) => {
                return Err(MoveError::Breach(format!("it refuses the strategy: {why}")));
            }
            Err(other) => return Err(MoveError::Breach(other.to_string())),
        }
        let outcome = outcome(&mut recv).await?;
        end_of(&mut recv).await?;
        send.settle();
        refused(&header, outcome)?;
        Ok(Moved { bytes: len, held_bytes: 0 })
    })
    .await
}

/// Moves bytes out of memory that the peer has named, from this offset, into all of `memory`.
/// Strategies of repeats are a wish: the peer sends.
///
/// # Errors
/// [`MoveError`]; the memory is gone then.
pub async fn move_from(
    connection: &Connection,
    tag: Tag,
    offset: u64,
    memory: BytesMut,
    options: &MoveOptions,
) -> Result<(BytesMut, Moved), MoveError> {
    let len = memory.len() as u64;
    let header = Header { operation: Operation::From, tag, offset, bytes: len, repeats: options.repeats };
    within(options.deadline, async {
        let (mut send, mut recv) = open(connection, Repeats::AsConnection).await?.split();
        let (back, mut given_back) = oneshot::channel();
        let target = Target { filling: Filling::new(memory), back: Some(back) };
        // Behind the byte that says how it ends.
        if len > 0 {
            recv.place_in(1, Box::new(target));
        } else {
            drop(target);
        }
        match write(&mut send, header.emit().into(), Bytes::new()).await {
            Ok(()) | Err(WriteError::Stopped(_)) => {}
            Err(WriteError::Closed(reason)) => return Err(MoveError::Lost(reason)),
            Err(other) => return Err(MoveError::Breach(other.to_string())),
        }
        let outcome = outcome(&mut recv).await?;
        refused(&header, outcome)?;
        end_of(&mut recv).await?;
        let filled =
            given_back.try_recv().map_err(|_| MoveError::Breach("the memory is still in use".to_owned()))?;
        if !filled.is_whole() {
            return Err(MoveError::Breach(format!("{} bytes of {len} have come", filled.placed)));
        }
        Ok((filled.memory, Moved { bytes: len, held_bytes: filled.held }))
    })
    .await
}

/// The half that brings the bytes of a move. If it is dropped before the move has its answer, the
/// move is given up, be it that all of it was handed over.
struct Unsettled(Option<SendFlow>);

impl Unsettled {
    fn half(&mut self) -> &mut SendFlow {
        self.0.as_mut().expect("it is there until it is settled")
    }

    fn settle(&mut self) {
        self.0 = None;
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if let Some(mut send) = self.0.take() {
            send.reset(0);
        }
    }
}

async fn within<T>(
    deadline: Option<Duration>,
    moving: impl Future<Output = Result<T, MoveError>>,
) -> Result<T, MoveError> {
    match deadline {
        Some(deadline) => timeout(deadline, moving).await.unwrap_or(Err(MoveError::DeadlinePassed)),
        None => moving.await,
    }
}

async fn open(connection: &Connection, repeats: Repeats) -> Result<crate::flow::Flow, MoveError> {
    let requirements = repeats.requirements(connection);
    let options = FlowOptions { requirements, ..FlowOptions::default() };
    connection.open_flow(options).await.map_err(|error| match error {
        FlowError::Closed(reason) => MoveError::Lost(reason),
        other => MoveError::NotBegun(other),
    })
}

/// Writes the begin of a half and what follows it, and ends it. The bytes are not copied.
pub(super) async fn write(send: &mut SendFlow, head: Bytes, bytes: Bytes) -> Result<(), WriteError> {
    let is_all = bytes.is_empty();
    write_all(send, head, is_all).await?;
    if is_all { Ok(()) } else { write_all(send, bytes, true).await }
}

/// Writes bytes, which are not copied; `ends` = the half ends behind them.
async fn write_all(send: &mut SendFlow, mut bytes: Bytes, ends: bool) -> Result<(), WriteError> {
    while !bytes.is_empty() {
        let taken = poll_fn(|cx| send.poll_write_bytes(cx, &bytes, ends)).await?;
        bytes = bytes.split_off(taken);
    }
    Ok(())
}

/// Reads the byte that says how the move ends, or goes on. (B-4)
async fn outcome(recv: &mut RecvFlow) -> Result<u8, MoveError> {
    match recv.recv_chunk(1).await? {
        Some(Chunk::Bytes(0, byte)) => Ok(byte.first().copied().unwrap_or_default()),
        Some(_) => Err(MoveError::Breach("an answer that is none".to_owned())),
        None => Err(MoveError::Breach("there is no answer".to_owned())),
    }
}

fn refused(header: &Header, outcome: u8) -> Result<(), MoveError> {
    let &Header { tag, offset, bytes, .. } = header;
    match outcome {
        0 => Ok(()),
        number => Err(MoveError::Refused { tag, offset, bytes, why: MoveRefusal::of(number) }),
    }
}

/// Waits for the end of an answer.
async fn end_of(recv: &mut RecvFlow) -> Result<(), MoveError> {
    match recv.recv_chunk(READ_BYTES).await? {
        None => Ok(()),
        Some(_) => {
            recv.stop(super::wire::code::BREACH);
            Err(MoveError::Breach("something follows the end of an answer".to_owned()))
        }
    }
}

/// Memory that bytes are moved into from the peer's.
#[derive(Debug)]
struct Target {
    filling: Filling,
    back: Option<oneshot::Sender<Filling>>,
}

impl Memory for Target {
    fn bytes(&self) -> usize {
        self.filling.memory.len()
    }

    fn place(&mut self, at: usize, bytes: &[u8], was_held: bool) {
        self.filling.place(at, bytes, was_held);
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            // Nobody wants it where the move was given up.
            let _ = back.send(core::mem::take(&mut self.filling));
        }
    }
}
