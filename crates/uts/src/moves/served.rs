//! The end that has named memory.

use super::MoveRefusal;
use super::memory::{Begun, Claim, Moves, Parts};
use super::mover::{READ_BYTES, write};
use super::wire::{HEADER_BYTES_MAX, Header, Operation, code, outcome_byte};
use crate::flow::{Chunk, Flow, RecvFlow, SendFlow};
use bytes::Bytes;
use core::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use uts_engine::Memory as _;

/// Time for a header to be whole. (B-5)
const HEADER_TIME: Duration = Duration::from_secs(20);

/// An end of a move that is not in order.
enum Stop {
    /// The peer is told why.
    Refused(MoveRefusal),
    /// The peer is gone, or has given the move up.
    Gone,
}

impl From<crate::flow::ReadError> for Stop {
    fn from(_: crate::flow::ReadError) -> Self {
        Stop::Gone
    }
}

impl Moves {
    /// Serves the moves of the peer, which are all flows that it opens, until the connection ends.
    /// A program that serves other flows as well accepts them, and gives those that are moves to
    /// [`Moves::serve_flow`].
    pub async fn serve(self) {
        let mut moves = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                Some(_) = moves.join_next(), if !moves.is_empty() => {}
                flow = self.connection.accept_flow() => {
                    let Some(flow) = flow else { break };
                    let this = self.clone();
                    moves.spawn(async move { this.serve_flow(flow).await });
                }
            }
        }
    }

    /// Serves a move: a flow that the peer has opened.
    pub async fn serve_flow(&self, flow: Flow) {
        let begun = self.table.begun(flow.id());
        let (mut send, mut recv) = flow.split();
        let served = match begun {
            Some(begun) => take_placed(&mut recv, begun, 0).await.map(|()| Bytes::new()),
            None => self.begin(&send, &mut recv).await,
        };
        let (outcome, bytes) = match served {
            Ok(bytes) => (Ok(()), bytes),
            Err(Stop::Gone) => return send.reset(0),
            Err(Stop::Refused(why)) => {
                // B-6
                recv.stop(if why == MoveRefusal::BadMove { code::BREACH } else { code::REFUSED });
                (Err(why), Bytes::new())
            }
        };
        // B-4. A peer that does not take it has given the move up.
        let said = Bytes::copy_from_slice(&[outcome_byte(outcome)]);
        let _ = write(&mut send, said, bytes).await;
    }

    /// Carries out a move that was not given memory as it began: one out of memory, one that is
    /// refused, or one whose header came in parts. Gives the bytes that go out.
    async fn begin(&self, send: &SendFlow, recv: &mut RecvFlow) -> Result<Bytes, Stop> {
        let head = timeout(HEADER_TIME, read_header(recv)).await;
        let (header, rest) = head.unwrap_or(Err(Stop::Refused(MoveRefusal::BadMove)))?;
        // It may have been given memory since, if its begin came late.
        if let Some(begun) = self.table.begun(recv.id()) {
            let head_bytes = begun.head_bytes + rest.len();
            return take_placed(recv, begun, head_bytes).await.map(|()| Bytes::new());
        }
        match header.operation {
            Operation::To => {
                let (claim, begun) = self.table.claim(&header).map_err(Stop::Refused)?;
                take_held(recv, claim, begun, rest).await?;
                Ok(Bytes::new())
            }
            Operation::From => {
                if !rest.is_empty() || recv.recv_chunk(1).await?.is_some() {
                    return Err(Stop::Refused(MoveRefusal::BadMove));
                }
                let bytes = self.table.lent(&header).map_err(Stop::Refused)?;
                if let Some(requirements) = header.repeats.requirements(&self.connection) {
                    // B-7: a wish that cannot be had is none.
                    let _ = send.set_requirements(&requirements);
                }
                Ok(bytes)
            }
        }
    }
}

/// Reads a header, and what came with it.
async fn read_header(recv: &mut RecvFlow) -> Result<(Header, Bytes), Stop> {
    let mut head = Vec::new();
    loop {
        let Some(Chunk::Bytes(_, bytes)) = recv.recv_chunk(READ_BYTES).await? else {
            return Err(Stop::Refused(MoveRefusal::BadMove));
        };
        let before = head.len();
        head.extend_from_slice(&bytes[..bytes.len().min(HEADER_BYTES_MAX)]);
        match Header::parse(&head) {
            Ok(Some((header, len))) => return Ok((header, bytes.slice(len - before..))),
            Ok(None) if head.len() < HEADER_BYTES_MAX => {}
            Ok(None) | Err(_) => return Err(Stop::Refused(MoveRefusal::BadMove)),
        }
    }
}

/// Waits for a move whose bytes are placed as they arrive. So many bytes of it were read.
async fn take_placed(recv: &mut RecvFlow, mut begun: Begun, mut read: usize) -> Result<(), Stop> {
    // All that is read is the header.
    while read <= begun.head_bytes {
        let Some(bytes) = next(recv, &mut begun.region).await? else {
            return begun.settle().map_err(Stop::Refused);
        };
        read += bytes.len();
    }
    Err(Stop::Refused(MoveRefusal::BadMove))
}

/// Takes a move whose bytes were not placed as they arrived.
async fn take_held(recv: &mut RecvFlow, mut claim: Claim, mut begun: Begun, rest: Bytes) -> Result<(), Stop> {
    let (mut at, mut next_bytes) = (0, Some(rest));
    while let Some(bytes) = next_bytes {
        if at + bytes.len() > claim.bytes() {
            return Err(Stop::Refused(MoveRefusal::BadMove));
        }
        claim.place(at, &bytes, true);
        at += bytes.len();
        next_bytes = next(recv, &mut begun.region).await?;
    }
    drop(claim);
    begun.settle().map_err(Stop::Refused)
}

/// Waits for the next bytes of a move into memory; `None` at its end.
async fn next(recv: &mut RecvFlow, region: &mut watch::Receiver<Parts>) -> Result<Option<Bytes>, Stop> {
    tokio::select! {
        biased;
        chunk = recv.recv_chunk(READ_BYTES) => match chunk? {
            Some(Chunk::Bytes(_, bytes)) => Ok(Some(bytes)),
            Some(_) => Err(Stop::Refused(MoveRefusal::BadMove)),
            None => Ok(None),
        },
        _ = region.wait_for(|parts| parts.is_withdrawn) => Err(Stop::Refused(MoveRefusal::NoSuchMemory)),
    }
}
