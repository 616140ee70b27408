//! Flows: bytes or messages, both ways, each way with its own end.
//!
//! The half that is written is in [`send`], the half that is read in [`recv`]. Here is what both
//! are together, and share.

mod ahead;
mod error;
mod expedited;
mod recv;
mod send;
mod stopped;

pub use error::{ReadError, WriteError};
pub use expedited::ExpeditedFlow;
pub use recv::{Chunk, RecvFlow};
pub use send::SendFlow;
pub use stopped::Stopped;

use crate::connection::Connection;
use crate::driver::Inner;
use bytes::Bytes;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::io;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use uts_engine::{ConnectionHandle, FlowId, MessageOptions};

/// A flow: the half that is written and the half that is read.
///
/// ```
/// # async fn example(mut flow: uts::Flow) -> Result<(), Box<dyn std::error::Error>> {
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// flow.write_all(b"question").await?;
/// flow.finish()?;
/// let mut answer = Vec::new();
/// flow.read_to_end(&mut answer).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Flow {
    send: SendFlow,
    recv: RecvFlow,
}

impl Flow {
    pub(crate) fn new(connection: Connection, id: FlowId) -> Self {
        connection.shared().act(|inner, _| {
            let state = inner.connections.entry(connection.handle()).or_default();
            state.flows.entry(id).or_default().halves = 2;
        });
        Flow { send: SendFlow::new(connection.clone(), id), recv: RecvFlow::new(connection, id) }
    }

    /// Its number in the connection.
    pub fn id(&self) -> FlowId {
        self.send.id()
    }

    /// The two halves, which may go to different tasks.
    pub fn split(self) -> (SendFlow, RecvFlow) {
        (self.send, self.recv)
    }

    /// The half that is written.
    pub fn send_half(&mut self) -> &mut SendFlow {
        &mut self.send
    }

    /// The half that is read.
    pub fn recv_half(&mut self) -> &mut RecvFlow {
        &mut self.recv
    }

    /// As [`SendFlow::send_message`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn send_message(&mut self, message: Bytes, options: MessageOptions) -> Result<(), WriteError> {
        self.send.send_message(message, options).await
    }

    /// As [`RecvFlow::recv_message`].
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn recv_message(&mut self) -> Result<Option<Bytes>, ReadError> {
        self.recv.recv_message().await
    }

    /// As [`SendFlow::finish`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.send.finish()
    }
}

impl AsyncRead for Flow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.recv).poll_read(cx, buf)
    }
}

impl AsyncWrite for Flow {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.send).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.send).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.send).poll_shutdown(cx)
    }
}

fn keep(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}

fn drop_half(inner: &mut Inner, handle: ConnectionHandle, id: FlowId) {
    let Some(state) = inner.connections.get_mut(&handle) else { return };
    let Some(flow) = state.flows.get_mut(&id) else { return };
    flow.halves = flow.halves.saturating_sub(1);
    if flow.halves == 0 {
        state.flows.remove(&id);
    }
}
