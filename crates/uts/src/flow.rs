//! Flows: bytes or messages, both ways, each way with its own end.

use crate::connection::Connection;
use crate::driver::{FlowState, Inner, gone};
use bytes::Bytes;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use uts_engine::requirements::Requirements;
use uts_engine::{CloseReason, Direction, FlowError, FlowId, MessageOptions, Read};
use uts_functions::Profile;

/// Bytes that one call of `AsyncWrite` copies at most.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// With less than this taken from the connection, reading takes what comes next along: what arrived in small pieces would
/// otherwise need the endpoint's lock for each of them.
const AHEAD_BYTES: usize = 16 << 10;

/// A flow: the half that is written and the half that is read.
#[derive(Debug)]
pub struct Flow {
    send: SendFlow,
    recv: RecvFlow,
}

/// The half of a flow that is written. Dropped before it was finished, it resets the flow with code 0: the peer must not
/// take half of something for the whole.
#[derive(Debug)]
pub struct SendFlow {
    connection: Connection,
    id: FlowId,
    /// Finished or reset.
    has_ended: bool,
}

/// The half of a flow that is read. Dropped before its end was read, it tells the peer to stop, with code 0.
#[derive(Debug)]
pub struct RecvFlow {
    connection: Connection,
    id: FlowId,
    /// What a read brought beyond what the caller had room for.
    rest: Bytes,
    /// What was taken from the connection and is to be read next.
    ahead: VecDeque<Result<Read, ReadError>>,
    /// Where the next byte is in the flow.
    position: u64,
    has_ended: bool,
}

/// Why nothing can be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The peer wants no more of this flow.
    #[error("the peer wants no more of this flow (code {0})")]
    Stopped(u64),
    /// What the flow requires could not be agreed with the peer.
    #[error("the flow cannot have what it requires: {0}")]
    Refused(String),
    /// The flow was finished or reset here.
    #[error("the flow was ended by this end")]
    Finished,
    /// The message is larger than the profile allows.
    #[error("a message of {size} bytes is larger than the {max} bytes that the profile allows")]
    TooLarge {
        /// Its size.
        size: usize,
        /// The largest.
        max: usize,
    },
    /// The connection has ended.
    #[error("{0}")]
    Closed(CloseReason),
}

/// Why nothing more is read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The peer gave the flow up.
    #[error("the peer reset the flow (code {0})")]
    Reset(u64),
    /// The flow's end was read, or it was stopped.
    #[error("the flow has ended")]
    Ended,
    /// Bytes came where a message was asked for: the profile keeps no boundaries.
    #[error("the flow carries bytes, not messages: ask for preserveMsgBoundaries")]
    NotMessages,
    /// A message could not be converted back.
    #[error("a message is damaged: {0}")]
    Damaged(String),
    /// The connection has ended.
    #[error("{0}")]
    Closed(CloseReason),
}

/// What comes next in a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// A stretch of bytes, and its position in the flow, which matters where order is not kept or losses are not
    /// repaired.
    Bytes(u64, Bytes),
    /// A message.
    Message(Bytes),
}

impl Flow {
    pub(crate) fn new(connection: Connection, id: FlowId) -> Self {
        connection.shared().act(|inner, _| {
            let state = inner.connections.entry(connection.handle()).or_default();
            state.flows.entry(id).or_default().halves = 2;
        });
        Flow {
            send: SendFlow { connection: connection.clone(), id, has_ended: false },
            recv: RecvFlow {
                connection,
                id,
                rest: Bytes::new(),
                ahead: VecDeque::new(),
                position: 0,
                has_ended: false,
            },
        }
    }

    /// Its number in the connection.
    pub fn id(&self) -> FlowId {
        self.send.id
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

impl SendFlow {
    /// Its number in the connection.
    pub fn id(&self) -> FlowId {
        self.id
    }

    /// The connection that it belongs to.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Hands all of `data` over, without copying it; waits while the flow is full. If the wait is given up, a first
    /// part of it may have been taken.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn write_bytes(&mut self, mut data: Bytes) -> Result<(), WriteError> {
        while !data.is_empty() {
            let taken = poll_fn(|cx| self.poll_write_bytes(cx, &data)).await?;
            let _ = data.split_to(taken.min(data.len()));
        }
        Ok(())
    }

    /// Hands a message over, whole or not at all; waits while the flow is full. If the wait is given up, nothing was
    /// taken. Under a profile without message boundaries the peer reads bytes.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn send_message(&mut self, message: Bytes, options: MessageOptions) -> Result<(), WriteError> {
        poll_fn(|cx| {
            self.poll_send(cx, |inner, now, handle, id| {
                let Some(connection) = inner.connection(handle) else { return Err(None) };
                connection.send_message(now, id, message.clone(), options).map_err(Some)
            })
        })
        .await
    }

    /// Hands messages over, each as [`SendFlow::send_message`] does, and as many at a time as the flow takes: of small ones
    /// that is much faster. If the wait is given up, or fails, those that were taken are no longer in `messages`.
    ///
    /// # Errors
    /// [`WriteError`], of the message that is in front then.
    pub async fn send_messages(
        &mut self,
        messages: &mut VecDeque<Bytes>,
        options: MessageOptions,
    ) -> Result<(), WriteError> {
        while !messages.is_empty() {
            poll_fn(|cx| {
                self.poll_send(cx, |inner, now, handle, id| {
                    let Some(connection) = inner.connection(handle) else { return Err(None) };
                    connection.send_messages(now, id, messages, options).map_err(Some)
                })
            })
            .await?;
        }
        Ok(())
    }

    /// Gives what is sent in the flow requirements of its own, as [`FlowOptions::requirements`] does: for flows that the
    /// peer has opened. Possible until something is written.
    ///
    /// # Errors
    /// [`FlowError`]; nothing has changed then.
    ///
    /// [`FlowOptions::requirements`]: crate::FlowOptions::requirements
    pub fn set_requirements(&self, requirements: &Requirements) -> Result<(), FlowError> {
        self.connection.shared().act(|inner, _| {
            inner.changed();
            let connection = inner.connection(self.connection.handle());
            let connection = connection.ok_or_else(|| FlowError::Closed(gone()))?;
            connection.set_flow_requirements(self.id, requirements)
        })
    }

    /// The profile under which its data leaves; `None` while that is not agreed, and after the flow's end.
    pub fn profile(&self) -> Option<Profile> {
        self.connection.inspect(|c| c.flow_profile(Direction::Out, self.id)).flatten()
    }

    /// Ends the flow after what was written.
    ///
    /// # Errors
    /// [`WriteError::Finished`] if it has ended already, [`WriteError::Stopped`], [`WriteError::Closed`].
    pub fn finish(&mut self) -> Result<(), WriteError> {
        if self.has_ended {
            return Err(WriteError::Finished);
        }
        let (handle, id) = (self.connection.handle(), self.id);
        self.connection.shared().act(|inner, _| {
            if let Some(reason) = inner.ended(handle) {
                return Err(WriteError::Closed(self.connection.explain(reason)));
            }
            if let Some(error) = inner.flow(handle, id).and_then(|flow| failure(flow)) {
                return Err(error);
            }
            if let Some(connection) = inner.connection(handle) {
                connection.finish(id);
            }
            inner.changed();
            Ok(())
        })?;
        self.has_ended = true;
        Ok(())
    }

    /// Finishes the flow, if that was not done, and waits until the peer has acknowledged everything (or, where losses
    /// are not repaired, until nothing is under way).
    ///
    /// # Errors
    /// [`WriteError::Stopped`] or [`WriteError::Closed`] if that came first.
    pub async fn finished(&mut self) -> Result<(), WriteError> {
        if !self.has_ended {
            self.finish()?;
        }
        let (handle, id) = (self.connection.handle(), self.id);
        poll_fn(|cx| {
            self.connection.shared().act(|inner, _| {
                let ended = inner.ended(handle);
                let Some(flow) = inner.flow(handle, id) else { return Poll::Ready(Ok(())) };
                match (flow.is_finished, failure(flow), ended) {
                    (true, _, _) => Poll::Ready(Ok(())),
                    (_, Some(error), _) => Poll::Ready(Err(error)),
                    (_, _, Some(reason)) => {
                        Poll::Ready(Err(WriteError::Closed(self.connection.explain(reason))))
                    }
                    _ => {
                        keep(&mut flow.writer, cx);
                        Poll::Pending
                    }
                }
            })
        })
        .await
    }

    /// Gives the flow up: what was not delivered will not be.
    pub fn reset(&mut self, code: u64) {
        self.has_ended = true;
        let (handle, id) = (self.connection.handle(), self.id);
        self.connection.shared().act(|inner, _| {
            if let Some(connection) = inner.connection(handle) {
                connection.reset(id, code);
            }
            inner.changed();
        });
    }

    fn poll_write_bytes(&mut self, cx: &mut Context<'_>, data: &Bytes) -> Poll<Result<usize, WriteError>> {
        self.poll_send(cx, |inner, now, handle, id| {
            let Some(connection) = inner.connection(handle) else { return Err(None) };
            connection.write(now, id, data.clone()).map_err(Some)
        })
    }

    fn poll_send<R>(
        &mut self,
        cx: &mut Context<'_>,
        send: impl FnOnce(
            &mut Inner,
            uts_functions::Time,
            uts_engine::ConnectionHandle,
            FlowId,
        ) -> Result<R, Option<uts_engine::WriteError>>,
    ) -> Poll<Result<R, WriteError>> {
        use uts_engine::WriteError as E;
        let (handle, id) = (self.connection.handle(), self.id);
        if self.has_ended {
            return Poll::Ready(Err(WriteError::Finished));
        }
        self.connection.shared().act(|inner, now| {
            let error = match send(inner, now, handle, id) {
                Ok(sent) => {
                    inner.said();
                    return Poll::Ready(Ok(sent));
                }
                Err(error) => error,
            };
            let ended = inner.ended(handle).map(|reason| WriteError::Closed(self.connection.explain(reason)));
            let failure = inner.flow(handle, id).and_then(|flow| failure(flow));
            Poll::Ready(Err(match error {
                Some(E::Blocked) => match ended {
                    Some(ended) => ended,
                    None => {
                        if let Some(flow) = inner.flow(handle, id) {
                            keep(&mut flow.writer, cx);
                        }
                        return Poll::Pending;
                    }
                },
                Some(E::Stopped(code)) => WriteError::Stopped(code),
                Some(E::TooLarge { size, max }) => WriteError::TooLarge { size, max },
                Some(E::Closed(reason)) => WriteError::Closed(self.connection.explain(reason)),
                Some(E::Refused(why)) => WriteError::Refused(why),
                Some(E::Finished | E::Unknown) | None => ended.or(failure).unwrap_or(WriteError::Finished),
            }))
        })
    }
}

impl RecvFlow {
    /// Its number in the connection.
    pub fn id(&self) -> FlowId {
        self.id
    }

    /// The connection that it belongs to.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Waits for what comes next: up to `bytes_max` bytes, or a message; `None` at the end. Nothing is lost if the
    /// wait is given up.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn recv_chunk(&mut self, bytes_max: usize) -> Result<Option<Chunk>, ReadError> {
        if !self.rest.is_empty() {
            return Ok(Some(Chunk::Bytes(self.position, self.take_rest(bytes_max))));
        }
        poll_fn(|cx| self.poll_chunk(cx, bytes_max)).await
    }

    /// Waits for the next message; `None` at the end. Nothing is lost if the wait is given up.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn recv_message(&mut self) -> Result<Option<Bytes>, ReadError> {
        poll_fn(|cx| self.poll_message(cx)).await
    }

    /// Waits for messages, and puts those that are there at the end of `messages`, `most` at most; gives how many, which is 0 at
    /// the end only (or if `most` is). Of small messages that is much faster than one by one. Nothing is lost if the wait is
    /// given up.
    ///
    /// Small messages are slices of memory that they share with others that came about the same time, up to 64 KiB: what is
    /// kept for long is better copied.
    ///
    /// # Errors
    /// [`ReadError`], of what comes next; nothing was put then.
    pub async fn recv_messages(
        &mut self,
        messages: &mut Vec<Bytes>,
        most: usize,
    ) -> Result<usize, ReadError> {
        if most == 0 {
            return Ok(0);
        }
        poll_fn(|cx| self.poll_messages(cx, messages, most)).await
    }

    fn poll_messages(
        &mut self,
        cx: &mut Context<'_>,
        messages: &mut Vec<Bytes>,
        most: usize,
    ) -> Poll<Result<usize, ReadError>> {
        if self.has_ended {
            return Poll::Ready(Err(ReadError::Ended));
        }
        let before = messages.len();
        if self.ahead.is_empty() {
            ready!(self.poll_take(cx, usize::MAX, Some((&mut *messages, most))));
        }
        while messages.len() - before < most {
            match self.ahead.pop_front() {
                Some(Ok(Read::Message(message))) => messages.push(message),
                Some(other) => {
                    self.ahead.push_front(other);
                    break;
                }
                None => break,
            }
        }
        match messages.len() - before {
            0 => self.poll_message(cx).map_ok(|end| usize::from(end.map(|m| messages.push(m)).is_some())),
            count => Poll::Ready(Ok(count)),
        }
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ReadError>> {
        Poll::Ready(match ready!(self.poll_chunk(cx, usize::MAX))? {
            Some(Chunk::Message(message)) => Ok(Some(message)),
            Some(Chunk::Bytes(position, bytes)) => {
                // It can be read as what it is.
                self.position = position;
                self.ahead.push_front(Ok(Read::Bytes(position, bytes)));
                Err(ReadError::NotMessages)
            }
            None => Ok(None),
        })
    }

    /// Tells the peer that no more of this flow is wanted.
    pub fn stop(&mut self, code: u64) {
        self.has_ended = true;
        self.rest = Bytes::new();
        self.ahead.clear();
        let (handle, id) = (self.connection.handle(), self.id);
        self.connection.shared().act(|inner, _| {
            if let Some(connection) = inner.connection(handle) {
                connection.stop(id, code);
            }
            inner.changed();
        });
    }

    fn take_rest(&mut self, bytes_max: usize) -> Bytes {
        let bytes = self.rest.split_to(bytes_max.min(self.rest.len()));
        self.position += bytes.len() as u64;
        bytes
    }

    fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        bytes_max: usize,
    ) -> Poll<Result<Option<Chunk>, ReadError>> {
        if self.has_ended {
            return Poll::Ready(Err(ReadError::Ended));
        }
        if self.ahead.is_empty() {
            ready!(self.poll_take(cx, bytes_max, None));
        }
        let Some(read) = self.ahead.pop_front() else { return Poll::Ready(Err(ReadError::Ended)) };
        match read {
            Ok(Read::Bytes(position, mut bytes)) => {
                let taken = bytes_max.clamp(1, bytes.len().max(1));
                if taken < bytes.len() {
                    let rest = bytes.split_off(taken);
                    self.ahead.push_front(Ok(Read::Bytes(position + taken as u64, rest)));
                }
                self.position = position + bytes.len() as u64;
                Poll::Ready(Ok(Some(Chunk::Bytes(position, bytes))))
            }
            Ok(Read::Message(message)) => Poll::Ready(Ok(Some(Chunk::Message(message)))),
            Ok(Read::End) => {
                self.has_ended = true;
                Poll::Ready(Ok(None))
            }
            Err(error) => {
                self.has_ended |= matches!(error, ReadError::Reset(_));
                Poll::Ready(Err(error))
            }
        }
    }
}

impl RecvFlow {
    /// Takes what there is, and a little more if that is little, out of the connection; waits until there is something. Messages
    /// go to `messages`, if given, as many as are wanted there, the rest to `ahead`.
    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        bytes_max: usize,
        mut messages: Option<(&mut Vec<Bytes>, usize)>,
    ) -> Poll<()> {
        use uts_engine::ReadError as E;
        let (handle, id, ahead) = (self.connection.handle(), self.id, &mut self.ahead);
        let connection = &self.connection;
        connection.shared().act(|inner, now| {
            let (mut bytes, mut count) = (0, 0);
            let put = |read| match (read, &mut messages) {
                (Read::Message(message), Some((messages, most))) => {
                    messages.push(message);
                    count += 1;
                    count < *most
                }
                (read, _) => {
                    if let Read::Bytes(_, data) | Read::Message(data) = &read {
                        bytes += data.len().max(1);
                    }
                    ahead.push_back(Ok(read));
                    bytes < AHEAD_BYTES
                }
            };
            let read = match inner.connection(handle) {
                Some(connection) => connection.read_many(now, id, bytes_max.max(AHEAD_BYTES), put),
                None => Err(E::Unknown),
            };
            let ended = || inner.ended(handle).map(|reason| ReadError::Closed(connection.explain(reason)));
            let error = match read {
                Ok(()) => None,
                Err(E::Blocked | E::Unknown) if count > 0 || !ahead.is_empty() => None,
                Err(E::Blocked) => match ended() {
                    Some(error) => Some(error),
                    None => {
                        if let Some(flow) = inner.flow(handle, id) {
                            keep(&mut flow.reader, cx);
                        }
                        return Poll::Pending;
                    }
                },
                Err(E::Reset(code)) => Some(ReadError::Reset(code)),
                Err(E::Presentation(why)) => Some(ReadError::Damaged(why)),
                Err(E::Closed(reason)) => Some(ReadError::Closed(connection.explain(reason))),
                Err(E::Unknown) => Some(ended().unwrap_or(ReadError::Ended)),
            };
            ahead.extend(error.map(Err));
            // The peer may have to be granted more.
            inner.changed();
            Poll::Ready(())
        })
    }
}

/// Why the peer takes no more of a flow.
fn failure(flow: &FlowState) -> Option<WriteError> {
    let refused = flow.refused.clone().map(WriteError::Refused);
    refused.or(flow.stopped.map(WriteError::Stopped))
}

fn keep(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}

fn drop_half(inner: &mut Inner, handle: uts_engine::ConnectionHandle, id: FlowId) {
    let Some(state) = inner.connections.get_mut(&handle) else { return };
    let Some(flow) = state.flows.get_mut(&id) else { return };
    flow.halves = flow.halves.saturating_sub(1);
    if flow.halves == 0 {
        state.flows.remove(&id);
    }
}

impl Drop for SendFlow {
    fn drop(&mut self) {
        if !self.has_ended {
            self.reset(0);
        }
        let (handle, id) = (self.connection.handle(), self.id);
        self.connection.shared().act(|inner, _| drop_half(inner, handle, id));
    }
}

impl Drop for RecvFlow {
    fn drop(&mut self) {
        if !self.has_ended {
            self.stop(0);
        }
        let (handle, id) = (self.connection.handle(), self.id);
        self.connection.shared().act(|inner, _| drop_half(inner, handle, id));
    }
}

impl AsyncWrite for SendFlow {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let copy = Bytes::copy_from_slice(&data[..data.len().min(WRITE_BYTES_MAX)]);
        self.poll_write_bytes(cx, &copy).map_err(io::Error::from)
    }

    /// What was written is sent without being asked for.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// [`SendFlow::finish`]; that all arrived, [`SendFlow::finished`] says.
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_ended {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(self.finish().map_err(io::Error::from))
    }
}

impl AsyncRead for RecvFlow {
    /// Reads bytes in order. Where the profile leaves gaps or keeps no order, use [`RecvFlow::recv_chunk`]: here that is
    /// an error. Messages are read as the bytes that they are made of.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        // An empty message is not the end.
        while self.rest.is_empty() {
            if self.has_ended {
                return Poll::Ready(Ok(()));
            }
            let expected = self.position;
            match ready!(self.poll_chunk(cx, buf.remaining())) {
                Ok(None) => return Poll::Ready(Ok(())),
                Ok(Some(Chunk::Bytes(position, _))) if position != expected => {
                    let what =
                        format!("bytes {expected} to {position} are missing: the profile gives bytes up");
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, what)));
                }
                Ok(Some(Chunk::Bytes(_, bytes) | Chunk::Message(bytes))) => {
                    self.position = expected;
                    self.rest = bytes;
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        let bytes = self.take_rest(buf.remaining());
        buf.put_slice(&bytes);
        Poll::Ready(Ok(()))
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

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        let kind = match &error {
            WriteError::Stopped(_) | WriteError::Finished => io::ErrorKind::BrokenPipe,
            WriteError::TooLarge { .. } => io::ErrorKind::InvalidInput,
            WriteError::Refused(_) => io::ErrorKind::Unsupported,
            WriteError::Closed(reason) => kind_of(reason),
        };
        io::Error::new(kind, error)
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        let kind = match &error {
            ReadError::Reset(_) => io::ErrorKind::ConnectionReset,
            ReadError::Ended => io::ErrorKind::UnexpectedEof,
            ReadError::NotMessages | ReadError::Damaged(_) => io::ErrorKind::InvalidData,
            ReadError::Closed(reason) => kind_of(reason),
        };
        io::Error::new(kind, error)
    }
}

fn kind_of(reason: &CloseReason) -> io::ErrorKind {
    match reason {
        CloseReason::Local { .. } => io::ErrorKind::NotConnected,
        CloseReason::Peer { .. } => io::ErrorKind::ConnectionAborted,
        CloseReason::IdleTimeout(_) | CloseReason::HandshakeTimeout(_) => io::ErrorKind::TimedOut,
        CloseReason::Refused(_) | CloseReason::Tls(_) => io::ErrorKind::ConnectionRefused,
        CloseReason::Version { .. } => io::ErrorKind::Unsupported,
        CloseReason::Protocol(_) => io::ErrorKind::InvalidData,
        CloseReason::Reset => io::ErrorKind::ConnectionReset,
    }
}
