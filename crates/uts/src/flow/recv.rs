//! The half of a flow that is read.

use super::ahead::{AHEAD_BYTES, Ahead, Gather, Sink};
use super::{ExpeditedFlow, ReadError, drop_half, keep};
use crate::connection::Connection;
use crate::driver::Inner;
use bytes::Bytes;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::future::poll_fn;
use std::io;
use tokio::io::{AsyncRead, ReadBuf};
use uts_engine::{FlowId, Memory, MessageBatch, PlayoutFigures, Point, Read, Timing};

/// The half of a flow that is read. If it is dropped before its end was read, it tells the peer to
/// stop, with code 0.
///
/// ```
/// # async fn example(mut recv: uts::RecvFlow) -> Result<(), uts::ReadError> {
/// while let Some(message) = recv.recv_message().await? {
///     println!("{} bytes", message.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RecvFlow {
    connection: Connection,
    id: FlowId,
    /// Bytes of a read that the caller had no room for.
    rest: Bytes,
    /// Data that was taken from the connection and is to be read next.
    ahead: Ahead,
    /// Where the next byte is in the flow.
    position: u64,
    ended: Option<Ended>,
    /// Expedited messages go to somebody else.
    has_given_expedited: bool,
}

/// Way in which reading has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// All was read.
    Read,
    /// The peer gave the flow up: what was read is not the whole.
    Reset(u64),
    /// This end wants no more.
    Stopped,
}

impl From<Ended> for ReadError {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Read | Ended::Stopped => ReadError::Ended,
            Ended::Reset(code) => ReadError::Reset(code),
        }
    }
}

/// Next piece of a flow.
///
/// ```
/// # async fn example(mut recv: uts::RecvFlow) -> Result<(), uts::ReadError> {
/// use uts::Chunk;
///
/// while let Some(chunk) = recv.recv_chunk(64 << 10).await? {
///     match chunk {
///         Chunk::Bytes(position, bytes) => println!("{position}: {bytes:?}"),
///         Chunk::Message(message) => println!("{message:?}"),
///         Chunk::Timed { message, timing } => println!("{message:?} {timing:?}"),
///         other => println!("{other:?}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// A stretch of bytes, and its position in the flow. The position matters if order is not kept
    /// or losses are not repaired.
    Bytes(u64, Bytes),
    /// A message.
    Message(Bytes),
    /// A message whose end may be damaged. Such are handed over only where both ends ask for it
    /// (`msgChecksumLen` of the sender, `recvChecksumLen` here) and nothing encrypts.
    Damaged {
        /// The message.
        message: Bytes,
        /// Number of its first bytes that are as they were sent.
        right_bytes: u64,
    },
    /// A message that was handed over in its time, where the sender asks for `uts.playoutDelay`.
    Timed {
        /// The message.
        message: Bytes,
        /// When it was made, and how it was handed over.
        timing: Timing,
    },
    /// Messages are missing here, in the order in which they were made: they were lost, were given
    /// up, or came too late. Something has to be shown in their place: the last picture again, or
    /// noise. Told only where the sender asks for `uts.playoutDelay`, and only by
    /// [`RecvFlow::recv_chunk`].
    Missing {
        /// Positions that they took: one for each byte, and one for each message.
        positions: u64,
    },
}

impl RecvFlow {
    pub(super) fn new(connection: Connection, id: FlowId) -> Self {
        RecvFlow {
            connection,
            id,
            rest: Bytes::new(),
            ahead: Ahead::default(),
            position: 0,
            ended: None,
            has_given_expedited: false,
        }
    }

    /// Its number in the connection.
    pub fn id(&self) -> FlowId {
        self.id
    }

    /// The connection that it belongs to.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Takes the receiver of the peer's expedited messages, once. If it is not taken, they are
    /// dropped with this half.
    pub fn take_expedited(&mut self) -> Option<ExpeditedFlow> {
        let is_first = !core::mem::replace(&mut self.has_given_expedited, true);
        is_first.then(|| ExpeditedFlow::new(self.connection.clone(), self.id))
    }

    /// Wakes the task that waits for expedited messages: none can come any more.
    fn on_ended(&self) {
        if self.has_given_expedited {
            let (handle, id) = (self.connection.handle(), self.id);
            let waits = |inner: &mut Inner, _| inner.flow(handle, id).and_then(|flow| flow.expedited.take());
            if let Some(waker) = self.connection.shared().act(waits) {
                waker.wake();
            }
        }
    }

    /// Waits for what comes next: up to `bytes_max` bytes (one at least), or a message, however
    /// long. `None` at the end. If a message was begun to be read as bytes, the rest of it comes as
    /// bytes. Nothing is lost if the wait is given up.
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
    /// [`ReadError`]. [`ReadError::NotMessages`] also if part of a message was read as bytes, and
    /// the rest is still to be read. [`ReadError::RightTo`] for a message whose end may be damaged,
    /// until [`RecvFlow::recv_chunk`] has taken it.
    pub async fn recv_message(&mut self) -> Result<Option<Bytes>, ReadError> {
        poll_fn(|cx| self.poll_message(cx)).await
    }

    /// Waits for messages, and puts those that are there at the end of `messages`, `most` at most.
    /// Returns how many: 0 at the end only (or if `most` is 0). For small messages this is much
    /// faster than one by one. Nothing is lost if the wait is given up.
    ///
    /// Small messages are slices of memory that they share with others that arrived about the same
    /// time, up to 64 KiB. Copy a message that is to be kept for long.
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

    /// Waits for messages, and adds those that are there to `batch`, `most` at most. Returns how
    /// many, as [`RecvFlow::recv_messages`] does. This is the faster way: none of them needs a
    /// handle.
    ///
    /// # Errors
    /// [`ReadError`], of what comes next; nothing was added then.
    pub async fn recv_batch(&mut self, batch: &mut MessageBatch, most: usize) -> Result<usize, ReadError> {
        if most == 0 {
            return Ok(0);
        }
        poll_fn(|cx| self.poll_messages(cx, batch, most)).await
    }

    fn poll_messages(
        &mut self,
        cx: &mut Context<'_>,
        messages: &mut impl Gather,
        most: usize,
    ) -> Poll<Result<usize, ReadError>> {
        if let Some(ended) = self.ended {
            return Poll::Ready(Err(ended.into()));
        }
        if !self.rest.is_empty() {
            return Poll::Ready(Err(ReadError::NotMessages));
        }
        let before = messages.count();
        if self.ahead.is_empty() {
            ready!(self.poll_take(cx, usize::MAX, messages, most));
        }
        while messages.count() - before < most {
            match self.ahead.pop() {
                Some(Ok(Read::Message(message) | Read::Timed { message, .. })) => messages.add(message),
                Some(Ok(Read::Missing { .. })) => {}
                Some(other) => {
                    self.ahead.push_front(other);
                    break;
                }
                None => break,
            }
        }
        match messages.count() - before {
            0 => self.poll_message(cx).map_ok(|end| usize::from(end.map(|m| messages.add(m)).is_some())),
            count => Poll::Ready(Ok(count)),
        }
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ReadError>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Err(ReadError::NotMessages));
        }
        let chunk = loop {
            match ready!(self.poll_chunk(cx, usize::MAX))? {
                Some(Chunk::Missing { .. }) => {}
                chunk => break chunk,
            }
        };
        Poll::Ready(match chunk {
            Some(Chunk::Message(message) | Chunk::Timed { message, .. }) => Ok(Some(message)),
            Some(Chunk::Bytes(position, bytes)) => {
                // It can be read as what it is.
                self.position = position;
                self.ahead.push_front(Ok(Read::Bytes(position, bytes)));
                Err(ReadError::NotMessages)
            }
            Some(Chunk::Damaged { message, right_bytes }) => {
                self.ahead.push_front(Ok(Read::Damaged { message, right_bytes }));
                Err(ReadError::RightTo { right_bytes })
            }
            Some(Chunk::Missing { .. }) | None => Ok(None),
        })
    }

    /// Figures of how messages were handed over in their time; `None` where nothing has come of a
    /// sender that asks for `uts.playoutDelay`.
    pub fn playout(&self) -> Option<PlayoutFigures> {
        let (handle, id) = (self.connection.handle(), self.id);
        self.connection.shared().act(|inner, _| inner.connection(handle)?.playout(id))
    }

    /// Tells the peer that no more of this flow is wanted.
    pub fn stop(&mut self, code: u64) {
        self.ended = self.ended.or(Some(Ended::Stopped));
        self.rest = Bytes::new();
        self.ahead.clear();
        let (handle, id) = (self.connection.handle(), self.id);
        self.connection.shared().act(|inner, _| {
            if let Some(connection) = inner.connection(handle) {
                connection.stop(id, code);
            }
            inner.changed();
        });
        self.on_ended();
    }

    /// Places the bytes of the flow from a position on in this memory, as they arrive. False if it
    /// can bring no more.
    pub(crate) fn place_in(&self, from: u64, memory: Box<dyn Memory>) -> bool {
        let (handle, id) = (self.connection.handle(), self.id);
        self.connection.shared().act(|inner, now| {
            inner.changed();
            inner.connection(handle).is_some_and(|connection| connection.place_in(now, id, from, memory))
        })
    }

    /// Has what has arrived acknowledged at once.
    #[cfg(unix)]
    pub(crate) fn acknowledge(&self) {
        self.connection.shared().act(|inner, now| {
            if let Some(connection) = inner.connection(self.connection.handle()) {
                connection.acknowledge(now);
            }
            inner.changed();
        });
    }

    fn take_rest(&mut self, bytes_max: usize) -> Bytes {
        let bytes = self.rest.split_to(bytes_max.clamp(1, self.rest.len().max(1)).min(self.rest.len()));
        self.position += bytes.len() as u64;
        bytes
    }

    fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        bytes_max: usize,
    ) -> Poll<Result<Option<Chunk>, ReadError>> {
        if let Some(ended) = self.ended {
            return Poll::Ready(Err(ended.into()));
        }
        if self.ahead.is_empty() {
            // No message goes elsewhere.
            ready!(self.poll_take(cx, bytes_max, &mut Vec::new(), 0));
        }
        let Some(read) = self.ahead.pop() else { return Poll::Ready(Err(ReadError::Ended)) };
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
            Ok(Read::Damaged { message, right_bytes }) => {
                Poll::Ready(Ok(Some(Chunk::Damaged { message, right_bytes })))
            }
            Ok(Read::Timed { message, timing }) => Poll::Ready(Ok(Some(Chunk::Timed { message, timing }))),
            Ok(Read::Missing { positions }) => Poll::Ready(Ok(Some(Chunk::Missing { positions }))),
            Ok(Read::End) => {
                self.ended = Some(Ended::Read);
                self.on_ended();
                Poll::Ready(Ok(None))
            }
            Err(error) => {
                if let ReadError::Reset(code) = error {
                    self.ended = Some(Ended::Reset(code));
                    self.on_ended();
                }
                Poll::Ready(Err(error))
            }
        }
    }
}

impl RecvFlow {
    /// Takes what there is out of the connection, and a little more if that is little. Waits until
    /// there is something. Up to `most` messages go to `messages`, the rest to `ahead`.
    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        bytes_max: usize,
        messages: &mut impl Gather,
        most: usize,
    ) -> Poll<()> {
        use uts_engine::ReadError as E;
        let (handle, id, ahead) = (self.connection.handle(), self.id, &mut self.ahead);
        let (connection, before) = (&self.connection, messages.count());
        let probes = &connection.shared().probes;
        connection.shared().act_by(|inner, clock| {
            let asked = probes.now();
            // Who only looks changes nothing that would have to be looked after.
            let has_read_all =
                inner.engine.peek(handle).is_some_and(|connection| connection.has_read_all(id));
            let read = if has_read_all {
                Err(E::Blocked)
            } else if let Some(connection) = inner.connection(handle) {
                let sink = Sink { messages: &mut *messages, left: most, ahead: &mut *ahead };
                connection.read_into(clock.now(), id, bytes_max.max(AHEAD_BYTES), sink)
            } else {
                Err(E::Unknown)
            };
            if let (Some(asked), Ok(()) | Err(E::Blocked)) = (asked, &read)
                && (messages.count() > before || !ahead.is_empty())
            {
                probes.passed(asked, Point::Asked, ahead.bytes());
                probes.pass(Point::Read, ahead.bytes());
            }
            let ended = || inner.ended(handle).map(|reason| ReadError::Closed(connection.explain(reason)));
            let error = match read {
                Ok(()) => None,
                Err(E::Blocked | E::Unknown) if messages.count() > before || !ahead.is_empty() => None,
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
            if let Some(error) = error {
                ahead.fail(error);
            }
            // The peer may have to be granted more.
            inner.changed();
            Poll::Ready(())
        })
    }
}

impl Drop for RecvFlow {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.stop(0);
        }
        let (handle, id) = (self.connection.handle(), self.id);
        self.connection.shared().act(|inner, _| {
            if !self.has_given_expedited
                && let Some(connection) = inner.connection(handle)
            {
                connection.stop_expedited(id);
            }
            drop_half(inner, handle, id)
        });
    }
}

impl AsyncRead for RecvFlow {
    /// Reads bytes in order. If the profile leaves gaps or keeps no order, this is an error: use
    /// [`RecvFlow::recv_chunk`]. Messages are read as the bytes that they are made of.
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
            match self.ended {
                None => {}
                Some(Ended::Read) => return Poll::Ready(Ok(())),
                Some(ended) => return Poll::Ready(Err(ReadError::from(ended).into())),
            }
            let expected = self.position;
            match ready!(self.poll_chunk(cx, buf.remaining())) {
                Ok(None) => return Poll::Ready(Ok(())),
                Ok(Some(Chunk::Bytes(position, _))) if position != expected => {
                    let what =
                        format!("bytes {expected} to {position} are missing: the profile gives bytes up");
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, what)));
                }
                Ok(Some(Chunk::Damaged { message, right_bytes })) => {
                    self.ahead.push_front(Ok(Read::Damaged { message, right_bytes }));
                    return Poll::Ready(Err(ReadError::RightTo { right_bytes }.into()));
                }
                Ok(Some(Chunk::Missing { .. })) => {}
                Ok(Some(
                    Chunk::Bytes(_, bytes) | Chunk::Message(bytes) | Chunk::Timed { message: bytes, .. },
                )) => {
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
