//! A flow as the client uses it: requests are written ahead of the answers.

use super::Flows;
use super::buffered::{BufReader, BufWriter};
use super::client::unexpected;
use super::error::FileError;
use super::message::{MAGIC, Reply, Request, VERSION, read_frame, write_frame};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use uts_ledger::Payer;

/// Work that can share a round trip with other such work.
pub(super) trait Batch {
    /// Most items in a batch. A bound on the server's open parts, too.
    const ITEMS_MAX: usize = 64;
    /// Content that a batch may have unless it is a single item.
    const BYTES_MAX: u64 = 1024 * 1024;
    /// Content of this item.
    fn bytes(&self) -> u64;
}

/// A flow that was opened here.
pub(super) struct Conversation<F: Flows> {
    pub(super) send: BufWriter<F::Send>,
    pub(super) recv: BufReader<F::Recv>,
}

impl<F: Flows> Conversation<F> {
    pub(super) async fn open(flows: &F, payer: &Payer) -> Result<Self, FileError> {
        let (send, recv) = flows.open().await?;
        let pulse = Arc::default();
        let mut send = BufWriter::new(send, payer, &pulse);
        send.write_all(MAGIC).await?;
        send.write_u8(VERSION).await?;
        Ok(Conversation { send, recv: BufReader::new(recv, payer, &pulse) })
    }

    /// A flow on which the server sets modes as it is told.
    pub(super) async fn open_to_put(
        flows: &F,
        payer: &Payer,
        preserve_mode: bool,
    ) -> Result<Self, FileError> {
        let mut flow = Conversation::open(flows, payer).await?;
        if preserve_mode {
            flow.demand(&Request::PreserveModes).await?;
        }
        Ok(flow)
    }

    /// A flow on which the server compresses content where that pays, if it is asked to.
    pub(super) async fn open_to_get(flows: &F, payer: &Payer, compress: bool) -> Result<Self, FileError> {
        let mut flow = Conversation::open(flows, payer).await?;
        if compress {
            flow.demand(&Request::Compress).await?;
        }
        Ok(flow)
    }

    /// Asks for one thing that is done, or not.
    pub(super) async fn demand(&mut self, request: &Request) -> Result<(), FileError> {
        match self.ask(request).await? {
            Reply::Done => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Asks one thing and waits for the answer.
    pub(super) async fn ask(&mut self, request: &Request) -> Result<Reply, FileError> {
        write_frame(&mut self.send, request).await?;
        self.send.flush().await?;
        next_reply(&mut self.recv).await
    }

    /// Asks many things at once; `answered` is told the answer to each, in their order.
    pub(super) async fn ask_all(
        &mut self,
        requests: &[Request],
        mut answered: impl FnMut(usize, Reply),
    ) -> Result<(), FileError> {
        let Conversation { send, recv } = self;
        let asking = async {
            for request in requests {
                write_frame(send, request).await?;
            }
            send.flush().await?;
            Ok::<_, FileError>(())
        };
        let hearing = async {
            for i in 0..requests.len() {
                answered(i, next_reply(recv).await?);
            }
            Ok::<_, FileError>(())
        };
        both(asking, hearing).await.map(|_| ())
    }

    /// Ends the flow in order.
    pub(super) async fn end(mut self) -> Result<(), FileError> {
        Ok(self.send.shutdown().await?)
    }
}

/// Says what is to be said, and hears what is answered. A peer that takes no more may have said
/// why: what it has said is heard to its end first.
pub(super) async fn both<A, H>(
    asking: impl Future<Output = Result<A, FileError>>,
    hearing: impl Future<Output = Result<H, FileError>>,
) -> Result<(A, H), FileError> {
    tokio::pin!(asking, hearing);
    tokio::select! {
        heard = &mut hearing => {
            let heard = heard?;
            Ok((asking.await?, heard))
        }
        asked = &mut asking => {
            let heard = hearing.await?;
            Ok((asked?, heard))
        }
    }
}

/// The next answer; a fault that concerns the flow itself is an error.
pub(super) async fn next_reply<R>(flow: &mut R) -> Result<Reply, FileError>
where
    R: tokio::io::AsyncRead + Unpin,
{
    let reply = read_frame::<_, Reply>(flow).await?;
    let reply = reply.ok_or_else(|| FileError::Connection("the peer ended the flow too early".into()))?;
    match reply {
        Reply::Fault(fault) => match FileError::Peer(fault) {
            error if error.is_fatal() => Err(error),
            FileError::Peer(fault) => Ok(Reply::Fault(fault)),
            error => Err(error),
        },
        reply => Ok(reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Fault, FaultKind};
    use std::future::{pending, ready};
    use tokio::task::yield_now;

    fn broken() -> FileError {
        FileError::Connection("the peer takes no more".into())
    }

    fn said() -> FileError {
        FileError::Peer(Fault::new(FaultKind::Protocol, b"", "the disk is full"))
    }

    #[tokio::test]
    async fn what_a_peer_says_counts_before_that_it_takes_no_more() {
        for _ in 0..100 {
            let late = async {
                yield_now().await;
                Err::<(), _>(said())
            };
            assert_eq!(both(ready(Err::<(), _>(broken())), late).await, Err(said()));
            assert_eq!(both(ready(Err::<(), _>(broken())), ready(Err::<(), _>(said()))).await, Err(said()));
            assert_eq!(both(pending::<Result<(), _>>(), ready(Err::<(), _>(said()))).await, Err(said()));
            assert_eq!(both(ready(Err::<(), _>(broken())), ready(Ok(2))).await, Err(broken()));
            assert_eq!(both(ready(Ok(1)), ready(Ok(2))).await, Ok((1, 2)));
        }
    }
}
