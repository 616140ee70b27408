//! The half of a flow that is written.

use super::{Stopped, WriteError, drop_half, keep};
use crate::connection::Connection;
use crate::driver::{FlowState, Inner};
use bytes::Bytes;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use tokio::io::AsyncWrite;
use uts_engine::requirements::Requirements;
use uts_engine::{
    ConnectionHandle, Direction, FlowError, FlowId, MessageBatch, MessageOptions, Point, Probes,
};
use uts_functions::{Profile, Time};

/// Bytes that one call of `AsyncWrite` copies at most.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// The half of a flow that is written. If it is dropped before it was finished, it resets the flow
/// with code 0, as [`SendFlow::reset_reliably`] does: the peer reads what was written, and must not
/// take half of something for the whole.
///
/// ```
/// # async fn example(mut send: uts::SendFlow) -> Result<(), uts::WriteError> {
/// use bytes::Bytes;
/// use std::time::Duration;
/// use uts::MessageOptions;
///
/// let urgent = MessageOptions { lifetime: Some(Duration::from_millis(100)),
/// ..MessageOptions::default() }; send.send_message(Bytes::from_static(b"frame"), urgent).await?;
/// send.finished().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SendFlow {
    connection: Connection,
    id: FlowId,
    /// Finished or reset.
    has_ended: bool,
    was_reset: bool,
}

impl SendFlow {
    pub(super) fn new(connection: Connection, id: FlowId) -> Self {
        SendFlow { connection, id, has_ended: false, was_reset: false }
    }

    /// Its number in the connection.
    pub fn id(&self) -> FlowId {
        self.id
    }

    /// The connection that it belongs to.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Hands all of `data` over, without copying it. Waits while the flow is full. If the wait is
    /// given up, a first part of it may have been taken.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn write_bytes(&mut self, mut data: Bytes) -> Result<(), WriteError> {
        while !data.is_empty() {
            let taken = poll_fn(|cx| self.poll_write_bytes(cx, &data, false)).await?;
            let _ = data.split_to(taken.min(data.len()));
        }
        Ok(())
    }

    /// Hands a message over, whole or not at all. Waits while the flow is full. If the wait is
    /// given up, nothing was taken. Under a profile without message boundaries the peer reads
    /// bytes.
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

    /// Hands messages over, each as [`SendFlow::send_message`] does, and as many at a time as the
    /// flow takes. For small ones this is much faster. If the wait is given up, or fails, those
    /// that were taken are no longer in `messages`.
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

    /// Hands the messages of a batch over, as [`SendFlow::send_messages`] does. This is the faster
    /// way: none of them needs a handle, and those of one length are kept together. If the wait is
    /// given up, or fails, those that were taken are no longer in the batch.
    ///
    /// # Errors
    /// [`WriteError`], of the message that is in front then.
    pub async fn send_batch(
        &mut self,
        batch: &mut MessageBatch,
        options: MessageOptions,
    ) -> Result<(), WriteError> {
        while !batch.is_empty() {
            poll_fn(|cx| {
                self.poll_send(cx, |inner, now, handle, id| {
                    let Some(connection) = inner.connection(handle) else { return Err(None) };
                    connection.send_batch(now, id, batch, options).map_err(Some)
                })
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until the peer lets this end send `least` bytes beyond those that were written, or
    /// nothing waits to leave, and less than `ahead` bytes wait to leave; says how many it lets.
    /// A caller that waits for this before it fetches what it sends holds nothing for a peer that
    /// takes nothing. Nothing is lost if the wait is given up.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn granted(&mut self, least: u64, ahead: u64) -> Result<u64, WriteError> {
        poll_fn(|cx| {
            self.poll_send(cx, |inner, _, handle, id| {
                let Some(connection) = inner.connection(handle) else { return Err(None) };
                connection.granted(id, least, ahead).map_err(Some)
            })
        })
        .await
    }

    /// The position behind everything that was handed over so far, for
    /// [`After::Positions`](crate::After::Positions). `None` if the connection is over.
    pub fn position(&self) -> Option<u64> {
        self.connection.shared().act(|inner, _| self.connection.open(inner).ok()?.position(self.id))
    }

    /// Bytes that were handed over and have not left this end yet; ends of messages count as one
    /// each. 0 if the connection is over.
    pub fn unsent_bytes(&self) -> u64 {
        let unsent = |connection: &uts_engine::Connection| connection.unsent_bytes(self.id);
        self.connection.inspect(unsent).flatten().unwrap_or(0)
    }

    /// Gives what is sent in the flow requirements of its own, as [`FlowOptions::requirements`]
    /// does: for flows that the peer has opened. Possible until something is written.
    ///
    /// # Errors
    /// [`FlowError`]; nothing has changed then.
    ///
    /// [`FlowOptions::requirements`]: crate::FlowOptions::requirements
    pub fn set_requirements(&self, requirements: &Requirements) -> Result<(), FlowError> {
        self.connection.shared().act(|inner, _| {
            inner.changed();
            let connection = self.connection.open(inner).map_err(FlowError::Closed)?;
            connection.set_flow_requirements(self.id, requirements)
        })
    }

    /// Gives what is sent in the flow another [`FlowOptions::priority`]: 0 = most urgent, 255 =
    /// least. It holds from the next packet on.
    ///
    /// # Errors
    /// [`FlowError::Unknown`] once the flow is over at both ends, [`FlowError::Closed`].
    ///
    /// [`FlowOptions::priority`]: crate::FlowOptions::priority
    pub fn set_priority(&self, priority: u8) -> Result<(), FlowError> {
        self.connection.shared().act(|inner, _| {
            let connection = self.connection.open(inner).map_err(FlowError::Closed)?;
            connection.set_flow_priority(self.id, priority)
        })
    }

    /// The profile under which its data leaves. `None` while that is not agreed, and after the
    /// flow's end.
    pub fn profile(&self) -> Option<Profile> {
        self.connection.shared().act(|inner, _| {
            self.connection.open(inner).ok().and_then(|c| c.flow_profile(Direction::Out, self.id))
        })
    }

    /// Ends the flow after what was written.
    ///
    /// # Errors
    /// [`WriteError::Finished`] if it has ended already, [`WriteError::Stopped`],
    /// [`WriteError::Closed`].
    pub fn finish(&mut self) -> Result<(), WriteError> {
        if self.has_ended {
            return Err(WriteError::Finished);
        }
        let (handle, id) = (self.connection.handle(), self.id);
        self.connection.shared().act(|inner, _| {
            if let Some(error) = inner.flow(handle, id).and_then(|flow| failure(flow)) {
                return Err(error);
            }
            self.connection.open(inner).map_err(WriteError::Closed)?.finish(id);
            inner.changed();
            Ok(())
        })?;
        self.has_ended = true;
        Ok(())
    }

    /// Finishes the flow, if that was not done, and waits until the peer has acknowledged
    /// everything (or, if losses are not repaired, until nothing is under way).
    ///
    /// Nothing is lost if the wait is given up.
    ///
    /// # Errors
    /// [`WriteError::Stopped`] or [`WriteError::Closed`] if that came first,
    /// [`WriteError::Finished`] if the flow was reset here.
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
                    // Nothing more will be heard of it.
                    _ if self.was_reset => Poll::Ready(Err(WriteError::Finished)),
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

    /// Hears of the peer that it wants no more of this half, for those who do something else than
    /// write meanwhile.
    pub fn stopped(&self) -> Stopped {
        Stopped::new(self.connection.clone(), self.id)
    }

    /// Resets the flow behind what was written: the peer reads all of that, and then learns that
    /// more was to come. If the peer takes nothing of it for the idle time-out, or wants no more of
    /// the flow, the rest is given up. Where the profile sends no positions it is given up at once.
    /// Without effect if the flow was finished. (As QUIC's RESET_STREAM_AT,
    /// draft-ietf-quic-reliable-stream-reset.)
    pub fn reset_reliably(&mut self, code: u64) {
        if self.has_ended {
            return;
        }
        (self.has_ended, self.was_reset) = (true, true);
        let (handle, id) = (self.connection.handle(), self.id);
        self.connection.shared().act(|inner, now| {
            if let Some(connection) = inner.connection(handle) {
                connection.reset_reliably(now, id, code);
            }
            inner.changed();
        });
    }

    /// Gives the flow up at once. What was not delivered will not be, and holds no memory any more.
    /// Without effect if everything has been delivered.
    pub fn reset(&mut self, code: u64) {
        (self.has_ended, self.was_reset) = (true, true);
        let (handle, id) = (self.connection.handle(), self.id);
        self.connection.shared().act(|inner, _| {
            if let Some(connection) = inner.connection(handle) {
                connection.reset(id, code);
            }
            inner.changed();
        });
    }

    /// Hands over what the flow takes of `data`, and says how much. If it takes all and `ends`, the
    /// flow ends behind that, in the same step: the end rides in the last packet.
    pub(crate) fn poll_write_bytes(
        &mut self,
        cx: &mut Context<'_>,
        data: &Bytes,
        ends: bool,
    ) -> Poll<Result<usize, WriteError>> {
        let (taken, has_ended) = ready!(self.poll_send(cx, |inner, now, handle, id| {
            let Some(connection) = inner.connection(handle) else { return Err(None) };
            let taken = connection.write(now, id, data.clone()).map_err(Some)?;
            let has_ended = ends && taken >= data.len();
            if has_ended {
                connection.finish(id);
            }
            Ok((taken, has_ended))
        }))?;
        self.has_ended |= has_ended;
        Poll::Ready(Ok(taken))
    }

    fn poll_send<R>(
        &mut self,
        cx: &mut Context<'_>,
        send: impl FnOnce(&mut Inner, Time, ConnectionHandle, FlowId) -> Result<R, Option<uts_engine::WriteError>>,
    ) -> Poll<Result<R, WriteError>> {
        use uts_engine::WriteError as E;
        let (handle, id) = (self.connection.handle(), self.id);
        if self.has_ended {
            return Poll::Ready(Err(WriteError::Finished));
        }
        let probes = &self.connection.shared().probes;
        let called = probes.now();
        self.connection.shared().act(|inner, now| {
            let handing = Handing::begin(probes, called, inner, (handle, id));
            if let Some(reason) = inner.stopped.as_ref().and_then(|_| inner.ended(handle)) {
                // The engine, which has not been told, would take it; nobody would ever send it.
                return Poll::Ready(Err(WriteError::Closed(self.connection.explain(reason))));
            }
            let error = match send(inner, now, handle, id) {
                Ok(sent) => {
                    if let Some(handing) = handing {
                        handing.end(probes, inner);
                    }
                    inner.on_written();
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
                        inner.on_blocked(handle);
                        return Poll::Pending;
                    }
                },
                Some(E::Stopped(code)) => {
                    // The engine's event may not have been handed on yet. The next caller that asks
                    // hears it.
                    if let Some(flow) = inner.flow(handle, id) {
                        flow.stopped = Some(code);
                    }
                    WriteError::Stopped(code)
                }
                Some(E::TooLarge { size, max }) => WriteError::TooLarge { size, max },
                Some(E::NotExpedited) => WriteError::NotExpedited,
                Some(E::Closed(reason)) => WriteError::Closed(self.connection.explain(reason)),
                Some(E::Refused(why)) => {
                    if let Some(flow) = inner.flow(handle, id) {
                        flow.refused = Some(why.clone());
                    }
                    WriteError::Refused(why)
                }
                Some(E::Finished | E::Unknown) | None => ended.or(failure).unwrap_or(WriteError::Finished),
            }))
        })
    }
}

/// A call that hands data over, where somebody is told of points.
struct Handing {
    called: Time,
    admitted: Time,
    flow: (ConnectionHandle, FlowId),
    /// Position that the flow had before.
    position: u64,
}

impl Handing {
    fn begin(
        probes: &Probes,
        called: Option<Time>,
        inner: &Inner,
        flow: (ConnectionHandle, FlowId),
    ) -> Option<Self> {
        let (called, admitted) = called.zip(probes.now())?;
        Some(Handing { called, admitted, flow, position: Self::position(inner, flow)? })
    }

    fn position(inner: &Inner, (handle, id): (ConnectionHandle, FlowId)) -> Option<u64> {
        inner.engine.peek(handle)?.position(id)
    }

    /// The call has done what it was to do.
    #[cold]
    fn end(self, probes: &Probes, inner: &Inner) {
        let position = Self::position(inner, self.flow).unwrap_or_default();
        let bytes = usize::try_from(position.saturating_sub(self.position)).unwrap_or(usize::MAX);
        if bytes > 0 {
            probes.passed(self.called, Point::Called, bytes);
            probes.passed(self.admitted, Point::Admitted, bytes);
            probes.pass(Point::Taken, bytes);
        }
    }
}

/// Why the peer takes no more of a flow.
pub(super) fn failure(flow: &FlowState) -> Option<WriteError> {
    let refused = flow.refused.clone().map(WriteError::Refused);
    refused.or(flow.stopped.map(WriteError::Stopped))
}

impl Drop for SendFlow {
    fn drop(&mut self) {
        self.reset_reliably(0);
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
        self.poll_write_bytes(cx, &copy, false).map_err(io::Error::from)
    }

    /// Written data is sent without a flush.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// [`SendFlow::finish`]; that all arrived, [`SendFlow::finished`] says.
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_ended && !self.was_reset {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(self.finish().map_err(io::Error::from))
    }
}
