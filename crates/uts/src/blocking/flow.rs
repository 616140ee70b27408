//! Flows, as the thread that carries them holds them.

use super::Carrier;
use crate::flow::Chunk;
use bytes::Bytes;
use core::fmt;
use core::pin::Pin;
use core::time::Duration;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, Read, Write};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use uts_engine::requirements::Requirements;
use uts_engine::{FlowError, FlowId, MessageBatch, MessageOptions, seconds};
use uts_functions::Profile;

/// A flow: the half that is written and the half that is read.
#[derive(Debug)]
pub struct Flow {
    send: SendFlow,
    recv: RecvFlow,
}

/// The half of a flow that is written. If it is dropped before it was finished, it resets the flow
/// with code 0: the peer must not take half of something for the whole.
pub struct SendFlow {
    inner: crate::SendFlow,
    carrier: Carrier,
    timeout: Option<Duration>,
}

/// The half of a flow that is read. If it is dropped before its end was read, it tells the peer to
/// stop, with code 0.
pub struct RecvFlow {
    inner: crate::RecvFlow,
    carrier: Carrier,
    timeout: Option<Duration>,
}

/// The expedited messages that the peer sends in a flow, as [`crate::ExpeditedFlow`].
pub struct ExpeditedFlow {
    inner: crate::ExpeditedFlow,
    carrier: Carrier,
    timeout: Option<Duration>,
}

impl Flow {
    pub(super) fn new(flow: crate::Flow, carrier: &Carrier) -> Self {
        let (send, recv) = flow.split();
        Flow {
            send: SendFlow { inner: send, carrier: carrier.clone(), timeout: None },
            recv: RecvFlow { inner: recv, carrier: carrier.clone(), timeout: None },
        }
    }

    /// Its number in the connection.
    pub fn id(&self) -> FlowId {
        self.send.id()
    }

    /// The two halves.
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
}

impl SendFlow {
    /// Its number in the connection.
    pub fn id(&self) -> FlowId {
        self.inner.id()
    }

    /// Sets the time that a call waits while the flow is full. After that it fails with
    /// [`io::ErrorKind::TimedOut`]. `None` (the default) = without limit.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Hands all of `data` over, without copying it; waits while the flow is full.
    ///
    /// # Errors
    /// A [`WriteError`](crate::WriteError), or a time-out. A first part of the data may have been
    /// taken then.
    pub fn write_bytes(&mut self, data: Bytes) -> io::Result<()> {
        let sent = self.carrier.say(self.inner.write_bytes(data), self.timeout);
        Ok(sent.ok_or_else(|| full(self.timeout))??)
    }

    /// Hands a message over, whole or not at all; waits while the flow is full.
    ///
    /// # Errors
    /// A [`WriteError`](crate::WriteError), or that it took too long: nothing was taken then.
    pub fn send_message(&mut self, message: Bytes, options: MessageOptions) -> io::Result<()> {
        let sent = self.carrier.say(self.inner.send_message(message, options), self.timeout);
        Ok(sent.ok_or_else(|| full(self.timeout))??)
    }

    /// Hands messages over, each as [`SendFlow::send_message`] does, and as many at a time as the
    /// flow takes. For small ones this is much faster. If it fails, those that were taken are no
    /// longer in `messages`.
    ///
    /// # Errors
    /// A [`WriteError`](crate::WriteError) of the message that is then in front, or a time-out.
    pub fn send_messages(
        &mut self,
        messages: &mut VecDeque<Bytes>,
        options: MessageOptions,
    ) -> io::Result<()> {
        let sent = self.carrier.say(self.inner.send_messages(messages, options), self.timeout);
        Ok(sent.ok_or_else(|| full(self.timeout))??)
    }

    /// Hands the messages of a batch over, as [`SendFlow::send_messages`] does. This is the faster
    /// way. If it fails, those that were taken are no longer in the batch.
    ///
    /// # Errors
    /// A [`WriteError`](crate::WriteError) of the message that is then in front, or a time-out.
    pub fn send_batch(&mut self, batch: &mut MessageBatch, options: MessageOptions) -> io::Result<()> {
        let sent = self.carrier.say(self.inner.send_batch(batch, options), self.timeout);
        Ok(sent.ok_or_else(|| full(self.timeout))??)
    }

    /// The position behind everything that was handed over so far, for
    /// [`After::Positions`](crate::After::Positions). `None` if the connection is over.
    pub fn position(&self) -> Option<u64> {
        self.inner.position()
    }

    /// Gives what is sent in the flow requirements of its own, as
    /// [`FlowOptions::requirements`](crate::FlowOptions::requirements) does: for flows that the
    /// peer has opened. Possible until something is written.
    ///
    /// # Errors
    /// [`FlowError`]; nothing has changed then.
    pub fn set_requirements(&self, requirements: &Requirements) -> Result<(), FlowError> {
        self.carrier.act(|| self.inner.set_requirements(requirements))
    }

    /// The profile under which its data leaves. `None` while that is not agreed, and after the
    /// flow's end.
    pub fn profile(&self) -> Option<Profile> {
        self.inner.profile()
    }

    /// Ends the flow after what was written.
    ///
    /// # Errors
    /// A [`WriteError`](crate::WriteError).
    pub fn finish(&mut self) -> io::Result<()> {
        Ok(self.carrier.act(|| self.inner.finish())?)
    }

    /// Finishes the flow, if that was not done, and waits until the peer has acknowledged
    /// everything (or, if losses are not repaired, until nothing is under way).
    ///
    /// # Errors
    /// A [`WriteError`](crate::WriteError), or that it took too long.
    pub fn finished(&mut self) -> io::Result<()> {
        let done = self.carrier.say(self.inner.finished(), self.timeout);
        Ok(done.ok_or_else(|| timed_out(self.timeout, "the peer has not acknowledged everything"))??)
    }

    /// Resets the flow behind what was written, as [`SendFlow::reset_reliably`] of the library
    /// without `blocking` does: the peer reads all of that, and then learns that more was to come.
    pub fn reset_reliably(&mut self, code: u64) {
        self.carrier.act(|| self.inner.reset_reliably(code));
    }

    /// Gives the flow up at once: what was not delivered will not be.
    pub fn reset(&mut self, code: u64) {
        self.carrier.act(|| self.inner.reset(code));
    }
}

impl RecvFlow {
    /// Its number in the connection.
    pub fn id(&self) -> FlowId {
        self.inner.id()
    }

    /// Sets the time that a call waits for something to arrive. After that it fails with
    /// [`io::ErrorKind::TimedOut`], and nothing is lost. `None` (the default) = without limit.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Waits for what comes next: up to `bytes_max` bytes, or a message; `None` at the end.
    ///
    /// # Errors
    /// A [`ReadError`](crate::ReadError), or that it took too long.
    pub fn recv_chunk(&mut self, bytes_max: usize) -> io::Result<Option<Chunk>> {
        let chunk = self.carrier.0.wait_within(self.inner.recv_chunk(bytes_max), self.timeout);
        let chunk = self.took(chunk)?;
        self.heard(chunk.is_none());
        Ok(chunk)
    }

    /// Waits for the next message; `None` at the end.
    ///
    /// # Errors
    /// A [`ReadError`](crate::ReadError), or that it took too long.
    pub fn recv_message(&mut self) -> io::Result<Option<Bytes>> {
        let message = self.carrier.0.wait_within(self.inner.recv_message(), self.timeout);
        let message = self.took(message)?;
        self.heard(message.is_none());
        Ok(message)
    }

    /// Waits for messages, and puts those that are there at the end of `messages`, `most` at most.
    /// Returns how many, as [`crate::RecvFlow::recv_messages`] does.
    ///
    /// # Errors
    /// A [`ReadError`](crate::ReadError) of what comes next, or a time-out. Nothing was put then.
    pub fn recv_messages(&mut self, messages: &mut Vec<Bytes>, most: usize) -> io::Result<usize> {
        let count = self.carrier.0.wait_within(self.inner.recv_messages(messages, most), self.timeout);
        let count = self.took(count)?;
        self.heard(count == 0 && most > 0);
        Ok(count)
    }

    /// Waits for messages, and adds those that are there to `batch`, `most` at most. Returns how
    /// many, as [`crate::RecvFlow::recv_batch`] does.
    ///
    /// # Errors
    /// A [`ReadError`](crate::ReadError) of what comes next, or a time-out. Nothing was added then.
    pub fn recv_batch(&mut self, batch: &mut MessageBatch, most: usize) -> io::Result<usize> {
        let count = self.carrier.0.wait_within(self.inner.recv_batch(batch, most), self.timeout);
        let count = self.took(count)?;
        self.heard(count == 0 && most > 0);
        Ok(count)
    }

    /// Takes the receiver of the peer's expedited messages, once, as
    /// [`crate::RecvFlow::take_expedited`] does.
    pub fn take_expedited(&mut self) -> Option<ExpeditedFlow> {
        let inner = self.inner.take_expedited()?;
        Some(ExpeditedFlow { inner, carrier: self.carrier.clone(), timeout: None })
    }

    /// Tells the peer that no more of this flow is wanted.
    pub fn stop(&mut self, code: u64) {
        self.carrier.act(|| self.inner.stop(code));
    }

    /// A caller that has read the end may never wait for anything again. The peer learns at once
    /// that all has arrived.
    fn heard(&self, is_end: bool) {
        if is_end {
            self.carrier.act(|| self.inner.acknowledge());
        }
    }

    fn took<T, E: Into<io::Error>>(&self, taken: Option<Result<T, E>>) -> io::Result<T> {
        self.carrier.0.took();
        taken.ok_or_else(|| timed_out(self.timeout, "nothing has arrived"))?.map_err(Into::into)
    }
}

impl ExpeditedFlow {
    /// Sets the time that a call waits for a message. After that it fails with
    /// [`io::ErrorKind::TimedOut`]. `None` (the default) = without limit.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Waits for the next expedited message; `None` when none can come any more.
    ///
    /// # Errors
    /// A [`ReadError`](crate::ReadError), or that it took too long.
    pub fn recv(&mut self) -> io::Result<Option<Bytes>> {
        let message = self.carrier.0.wait_within(self.inner.recv(), self.timeout);
        self.carrier.0.took();
        Ok(message.ok_or_else(|| timed_out(self.timeout, "nothing has arrived"))??)
    }
}

fn full(timeout: Option<Duration>) -> io::Error {
    timed_out(timeout, "the flow has been full")
}

fn timed_out(timeout: Option<Duration>, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} for {}", seconds(&timeout.unwrap_or_default())))
}

impl Write for SendFlow {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let inner = &mut self.inner;
        let written = poll_fn(|cx| Pin::new(&mut *inner).poll_write(cx, data));
        self.carrier.say(written, self.timeout).ok_or_else(|| full(self.timeout))?
    }

    /// Written data is sent without a flush, as soon as the peer and the path take it and the
    /// thread is in a call.
    fn flush(&mut self) -> io::Result<()> {
        self.carrier.act(|| Ok(()))
    }
}

impl Read for RecvFlow {
    /// Reads bytes in order. If the profile leaves gaps or keeps no order, this is an error: use
    /// [`RecvFlow::recv_chunk`]. Messages are read as the bytes that they are made of.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let has_room = !buffer.is_empty();
        let mut buffer = ReadBuf::new(buffer);
        let inner = &mut self.inner;
        let read = poll_fn(|cx| Pin::new(&mut *inner).poll_read(cx, &mut buffer));
        let read = self.carrier.0.wait_within(read, self.timeout);
        self.took(read)?;
        let count = buffer.filled().len();
        self.heard(count == 0 && has_room);
        Ok(count)
    }
}

impl Write for Flow {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.send.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send.flush()
    }
}

impl Read for Flow {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv.read(buffer)
    }
}

impl fmt::Debug for SendFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for ExpeditedFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for RecvFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
