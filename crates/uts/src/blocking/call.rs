//! Remote procedure calls that the thread that uses them makes and serves: as [`crate::call`], by
//! calls that wait.
//!
//! A [`Caller`] makes calls. [`Methods`] serve them, one handler after the other in one thread.
//! Requests come in meanwhile: a handler of messages or values begins when its request is whole, so
//! that no slow caller holds up others. A handler of streams waits for its caller, and holds the
//! others up for so long.
//!
//! ```
//! use uts::blocking::Listener;
//! use uts::blocking::call::{Caller, Methods};
//! use uts::call::CallOptions;
//! use uts::{ConnectOptions, Identity, ServerOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = ServerOptions::new(Identity::generate()?);
//! let (at, told) = std::sync::mpsc::channel();
//! std::thread::spawn(move || {
//!     let listener = Listener::bind(([127, 0, 0, 1], 0).into(), options).expect("an address");
//!     at.send((listener.local_addr(), listener.fingerprint())).expect("a client");
//!     let methods = Methods::new().on_value("add", |(a, b): (u32, u32)| Ok(a + b));
//!     methods.serve_clients(&listener);
//! });
//!
//! let (target, fingerprint) = told.recv()?;
//! let caller = Caller::to(target.to_string(), ConnectOptions::pinned(fingerprint));
//! let sum: u32 = caller.call_value("add", &(3_u32, 4_u32), &CallOptions::default())?;
//! assert_eq!(sum, 7);
//! # Ok(())
//! # }
//! ```

use super::{Carrier, Connection, Listener};
use crate::call::{self, CallError, CallOptions, Failure, Part, RecvError, SendError};
use crate::driver::Host;
use crate::endpoint::ConnectOptions;
use crate::flow::WriteError;
use crate::ledger::Ledger;
use bytes::Bytes;
use core::fmt;
use core::time::Duration;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

/// Calls methods of a server, as [`call::Caller`]. Clones share their connection.
#[derive(Clone)]
pub struct Caller {
    inner: call::Caller,
    carrier: Carrier,
}

/// A call that is under way. If it is dropped, it is cancelled at the server.
#[derive(Debug)]
pub struct Call {
    /// The request, which this end sends.
    pub request: CallRequest,
    /// The answer, which the server sends, be it before it has the whole request.
    pub answer: CallAnswer,
}

/// The half of a call that is sent, as [`call::CallRequest`].
pub struct CallRequest {
    inner: call::CallRequest,
    carrier: Carrier,
}

/// The half of a call that is received, as [`call::CallAnswer`].
pub struct CallAnswer {
    inner: call::CallAnswer,
    carrier: Carrier,
}

impl Caller {
    /// Calls over this connection, and no other.
    pub fn over(connection: &Connection) -> Self {
        Caller { inner: call::Caller::over(connection.inner.clone()), carrier: connection.carrier.clone() }
    }

    /// Calls a server at `target`, as [`connect`](super::connect) takes it. The first call
    /// connects. Once the connection has ended, the next call makes another.
    pub fn to(target: impl Into<String>, options: ConnectOptions) -> Self {
        let inner = call::Caller::to_from(Host::Thread, target.into(), options);
        Caller { inner, carrier: Carrier::here() }
    }

    /// Begins a call whose request and answer are streams of messages, as [`call::Caller::begin`].
    ///
    /// # Errors
    /// [`CallError`]; it has not run.
    pub fn begin(&self, method: &str, options: &CallOptions) -> Result<Call, CallError> {
        let call::Call { request, answer } = self.carrier.wait(self.inner.begin(method, options))?;
        Ok(Call {
            request: CallRequest { inner: request, carrier: self.carrier.clone() },
            answer: CallAnswer { inner: answer, carrier: self.carrier.clone() },
        })
    }

    /// Makes a call whose request and answer are a message each, again where that is safe, as
    /// [`call::Caller::call`].
    ///
    /// # Errors
    /// [`CallError`], of the last try. It may have run if it may have in any of them.
    pub fn call(&self, method: &str, request: Bytes, options: &CallOptions) -> Result<Bytes, CallError> {
        self.carrier.conclude(self.inner.call(method, request, options))
    }

    /// Makes a call whose request and answer are values, in postcard's form, as [`Caller::call`]
    /// does.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call_value<Q, A>(&self, method: &str, request: &Q, options: &CallOptions) -> Result<A, CallError>
    where
        Q: Serialize + ?Sized,
        A: DeserializeOwned,
    {
        self.carrier.conclude(self.inner.call_value(method, request, options))
    }
}

impl CallRequest {
    /// Sends a message of the request. Waits while the flow is full.
    ///
    /// # Errors
    /// [`CallError`]. [`CallErrorKind::Unwanted`](call::CallErrorKind::Unwanted) is no end of the
    /// call.
    pub fn send(&mut self, message: Bytes) -> Result<(), CallError> {
        self.carrier.conclude(self.inner.send(message))
    }

    /// Sends a value as a message, in postcard's form.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn send_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CallError> {
        self.carrier.conclude(self.inner.send_value(value))
    }

    /// Sends the last message, and the end of the request with it.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn send_last(&mut self, message: Bytes) -> Result<(), CallError> {
        self.carrier.conclude(self.inner.send_last(message))
    }

    /// Ends the request: the server has all of it.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn finish(&mut self) -> Result<(), CallError> {
        self.carrier.conclude(self.inner.finish())
    }
}

impl CallAnswer {
    /// Waits for the next message of the answer, whole; `None` at its end: the call has run, and
    /// its handler is content.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn recv(&mut self) -> Result<Option<Bytes>, CallError> {
        let heard = self.carrier.hear(self.inner.recv());
        self.heard(heard)
    }

    /// Waits for the next part of a message, as it comes in; `None` at the end. Nothing is
    /// gathered, so that a message may be of any length.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn recv_part(&mut self) -> Result<Option<Part>, CallError> {
        let heard = self.carrier.hear(self.inner.recv_part());
        self.heard(heard)
    }

    /// Waits for the next message as a value, in postcard's form; `None` at the end.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn recv_value<T: DeserializeOwned>(&mut self) -> Result<Option<T>, CallError> {
        let heard = self.carrier.hear(self.inner.recv_value());
        self.heard(heard)
    }

    /// Waits for an answer that is one message, to its end.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn recv_only(&mut self) -> Result<Bytes, CallError> {
        self.carrier.conclude(self.inner.recv_only())
    }

    /// Behind the end nothing may be waited for any more: what is to be said of it leaves now.
    fn heard<T>(&self, heard: Result<Option<T>, CallError>) -> Result<Option<T>, CallError> {
        if !matches!(heard, Ok(Some(_))) {
            self.carrier.0.send();
        }
        heard
    }
}

/// Methods that can be called, by their names, as [`call::Methods`]. Clones share the methods, and
/// what is counted. A handler that panics does so in the thread that serves.
#[derive(Clone, Debug, Default)]
pub struct Methods(call::Methods);

/// A call, as its handler has it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Served {
    /// The request, as it comes in.
    pub request: MessageReader,
    /// The answer. It ends when the handler has come to its end and has let go of this.
    pub answer: MessageWriter,
    /// The connection that it came by: who calls, and from where.
    pub connection: Connection,
    deadline: Option<Instant>,
}

/// Messages of a request, as [`call::MessageReader`]. Waits end with the call's deadline.
pub struct MessageReader {
    inner: call::MessageReader,
    carrier: Carrier,
    deadline: Option<Instant>,
}

/// Messages of an answer, as [`call::MessageWriter`]. Waits end with the call's deadline.
pub struct MessageWriter {
    inner: call::Answer,
    carrier: Carrier,
    deadline: Option<Instant>,
}

impl Methods {
    /// None so far, and a ledger of this process ([`Methods::with_ledger`]).
    pub fn new() -> Self {
        Methods::default()
    }

    /// Counts calls and memory in this ledger, as [`call::Methods::with_ledger`] does.
    #[must_use]
    pub fn with_ledger(self, ledger: Ledger) -> Self {
        Methods(self.0.with_ledger(ledger))
    }

    /// With a method more, whose request and answer are streams of messages. One of the same name
    /// is replaced. Where the caller gives the call up, or its deadline passes, the handler hears
    /// it as an error of what it reads or writes.
    ///
    /// # Panics
    /// If clones are in use.
    #[must_use]
    pub fn on(
        self,
        method: impl Into<String>,
        handler: impl Fn(Served) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self {
        Methods(self.0.on(method, move |call| {
            let outcome = handler(Served::new(call));
            async move { outcome }
        }))
    }

    /// With a method more, whose request and answer are a message each, of up to 1 MiB. The handler
    /// begins when the request is whole: a request that is none is refused. (L-5)
    ///
    /// # Panics
    /// If clones are in use.
    #[must_use]
    pub fn on_message(
        self,
        method: impl Into<String>,
        handler: impl Fn(Bytes) -> Result<Bytes, Failure> + Send + Sync + 'static,
    ) -> Self {
        Methods(self.0.on_message(method, move |message| {
            let outcome = handler(message);
            async move { outcome }
        }))
    }

    /// With a method more, whose request and answer are values, in postcard's form, as
    /// [`Methods::on_message`]. A request that is no value of its type is refused.
    ///
    /// # Panics
    /// If clones are in use.
    #[must_use]
    pub fn on_value<Q, A>(
        self,
        method: impl Into<String>,
        handler: impl Fn(Q) -> Result<A, Failure> + Send + Sync + 'static,
    ) -> Self
    where
        Q: DeserializeOwned + Send + 'static,
        A: Serialize + Send + 'static,
    {
        Methods(self.0.on_value(method, move |asked| {
            let outcome = handler(asked);
            async move { outcome }
        }))
    }

    /// With a method more, as [`Methods::on_message`], which early requests may ask for as well
    /// ([`ServerOptions::early_requests`](crate::ServerOptions::early_requests)), as
    /// [`call::Methods::on_early`] says: it may run twice for one call.
    ///
    /// # Panics
    /// If clones are in use.
    #[must_use]
    pub fn on_early(
        self,
        method: impl Into<String>,
        handler: impl Fn(Bytes) -> Result<Bytes, Failure> + Send + Sync + 'static,
    ) -> Self {
        Methods(self.0.on_early(method, move |message| {
            let outcome = handler(message);
            async move { outcome }
        }))
    }

    /// Refuses all calls from now on ([`Refusal::Stopping`](call::Refusal::Stopping)), which are
    /// then known not to have run. Another thread that serves notices it with what arrives next.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Serves the calls of a connection, in this thread, until the connection ends.
    pub fn serve(&self, connection: &Connection) {
        connection.carrier.wait(self.0.clone().serve_here(connection.inner.clone()));
    }

    /// Serves the calls of all who connect, and of early requests, in this thread, until the
    /// listener is closed or the methods are [stopped](Methods::stop), and the last client has
    /// gone.
    pub fn serve_clients(&self, listener: &Listener) {
        listener.carrier.wait(self.0.clone().serve_clients_here(&listener.inner));
    }
}

impl Served {
    fn new(call: call::Served) -> Self {
        let (carrier, deadline) = (Carrier::here(), call.deadline);
        Served {
            request: MessageReader { inner: call.request, carrier: carrier.clone(), deadline },
            answer: MessageWriter { inner: call.answer, carrier: carrier.clone(), deadline },
            connection: Connection::new(call.connection, carrier),
            deadline,
        }
    }

    /// Time that is left for the call; `None` = it has no deadline.
    pub fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

impl MessageReader {
    /// The longest message that [`MessageReader::recv`] gathers, in bytes. 1 MiB at first.
    pub fn set_message_max(&mut self, bytes: usize) {
        self.inner.set_message_max(bytes);
    }

    /// Waits for the next message, whole; `None` at the end.
    ///
    /// # Errors
    /// [`RecvError`]; after [`RecvError::TooLong`] and [`RecvError::NoMemory`] the half is of no
    /// more use.
    pub fn recv(&mut self) -> Result<Option<Bytes>, RecvError> {
        let heard = Host::Thread.before(self.deadline, self.inner.recv());
        self.carrier.hear(heard).ok_or(RecvError::DeadlinePassed)?
    }

    /// Waits for the next part of a message, as it comes in; `None` at the end of the half. Nothing
    /// is gathered, so that a message may be of any length.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv_part(&mut self) -> Result<Option<Part>, RecvError> {
        let heard = Host::Thread.before(self.deadline, self.inner.recv_part());
        self.carrier.hear(heard).ok_or(RecvError::DeadlinePassed)?
    }

    /// Waits for the next message as a value, in postcard's form; `None` at the end.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv_value<T: DeserializeOwned>(&mut self) -> Result<Option<T>, RecvError> {
        let heard = Host::Thread.before(self.deadline, self.inner.recv_value());
        self.carrier.hear(heard).ok_or(RecvError::DeadlinePassed)?
    }

    /// Waits for a half that is one message.
    ///
    /// # Errors
    /// [`RecvError::Missing`], and others. A second message is a breach.
    pub fn recv_only(&mut self) -> Result<Bytes, RecvError> {
        let heard = Host::Thread.before(self.deadline, self.inner.recv_only());
        self.carrier.hear(heard).ok_or(RecvError::DeadlinePassed)?
    }
}

impl MessageWriter {
    /// Sends a message. Waits while the flow is full.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send(&mut self, message: Bytes) -> Result<(), SendError> {
        let sent = Host::Thread.before(self.deadline, self.inner.send(message));
        said(self.carrier.conclude(sent))
    }

    /// Sends the last message, and the end with it: both ride in one packet if they fit.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send_last(&mut self, message: Bytes) -> Result<(), SendError> {
        let sent = Host::Thread.before(self.deadline, self.inner.send_last(message));
        said(self.carrier.conclude(sent))
    }

    /// Sends a value as a message, in postcard's form.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), SendError> {
        self.send(call::encode(value)?)
    }

    /// Ends the half: the other end learns that it has all.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn finish(&mut self) -> Result<(), SendError> {
        let sent = Host::Thread.before(self.deadline, self.inner.finish());
        said(self.carrier.conclude(sent))
    }
}

fn said(sent: Option<Result<(), WriteError>>) -> Result<(), SendError> {
    Ok(sent.ok_or(SendError::DeadlinePassed)??)
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for CallRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for CallAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for MessageReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for MessageWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
