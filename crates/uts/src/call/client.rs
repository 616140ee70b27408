//! The end that calls.

use super::body::{Found, MessageReader, MessageWriter, Part, RecvError};
use super::error::{CallError, CallErrorKind};
use super::value;
use super::wire::{Half, Header, Item, METHOD_BYTES_MAX, code};
use super::{CALL_TRIES, MESSAGE_MAX};
use crate::connection::Connection;
use crate::driver::Host;
use crate::early::{Early, Ticket};
use crate::endpoint::{ConnectOptions, connect_from};
use bytes::Bytes;
use core::num::NonZeroU32;
use core::time::Duration;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, MutexGuard, PoisonError};
use tokio::sync::Mutex;
use tokio::time::Instant;
use uts_engine::{FlowError, FlowOptions};

/// Time before the second try of a call. It doubles with each.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest time between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Terms on which a call is made.
#[derive(Clone, Debug)]
pub struct CallOptions {
    /// Time for the call as a whole, from connecting to the last byte of the answer, with all
    /// tries. The server is told how much of it is left, and stops the call when it is over. `None`
    /// = as long as the connection lasts.
    pub deadline: Option<Duration>,
    /// The call may run more than once. It is then made again where it is not known whether it has
    /// run: at most once otherwise. (L-9)
    pub is_idempotent: bool,
    /// The call may travel with the first flight of a connection, where it would else have to wait
    /// for one, if the server has given leave for that with an earlier connection. It is answered
    /// after one round trip then. It has to be one that may run more than once. (L-11)
    pub is_early: bool,
    /// Tries at the most, as far as another is possible. 4 at first.
    pub tries: NonZeroU32,
    /// The longest message of an answer that is gathered, in bytes. 1 MiB at first.
    pub answer_max: usize,
    /// Requirements and priority of the request.
    pub flow: FlowOptions,
}

impl Default for CallOptions {
    fn default() -> Self {
        CallOptions {
            deadline: None,
            is_idempotent: false,
            is_early: false,
            tries: CALL_TRIES,
            answer_max: MESSAGE_MAX,
            flow: FlowOptions::default(),
        }
    }
}

impl CallOptions {
    /// A call that may take so long.
    pub fn within(deadline: Duration) -> Self {
        CallOptions { deadline: Some(deadline), ..CallOptions::default() }
    }

    /// Marks the call as one that may run more than once.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.is_idempotent = true;
        self
    }

    /// Marks the call as one that may run more than once, and may travel with the first flight of a
    /// connection: [`CallOptions::is_early`]. An observer of the path can copy the packets, and
    /// have it run again.
    #[must_use]
    pub fn early(mut self) -> Self {
        (self.is_idempotent, self.is_early) = (true, true);
        self
    }
}

/// Calls methods of a server. Clones share their connection.
#[derive(Clone, Debug)]
pub struct Caller(pub(super) Arc<Link>);

#[derive(Debug)]
pub(super) enum Link {
    Over(Connection),
    To(Server),
}

/// A server to which connections are made as they are needed.
#[derive(Debug)]
pub(super) struct Server {
    pub host: Host,
    target: String,
    options: Box<ConnectOptions>,
    current: Mutex<Option<Connection>>,
    /// Leave for an early request, by the last connection.
    ticket: std::sync::Mutex<Option<Ticket>>,
}

impl Server {
    /// A connection that has not ended. If it has to be made, and there is leave for that, an early
    /// request goes with it: says whether it has.
    pub async fn connection(&self, early: Option<Bytes>) -> (Result<Connection, CallErrorKind>, bool) {
        // One connects, the others wait for that.
        let mut current = self.current.lock().await;
        if let Some(open) = current.as_ref().filter(|open| open.close_reason().is_none()) {
            return (Ok(open.clone()), false);
        }
        *current = None;
        let early = early.and_then(|request| Some(Early { ticket: self.ticket().take()?, request }));
        let has_gone = early.is_some();
        let options = ConnectOptions { early, ..ConnectOptions::clone(&self.options) };
        let fresh = match connect_from(self.host, None, &self.target, options).await {
            Ok(fresh) => fresh,
            Err(error) => return (Err(error.into()), has_gone),
        };
        if let Some(given) = fresh.take_ticket() {
            *self.ticket() = Some(given);
        }
        (Ok(current.insert(fresh).clone()), has_gone)
    }

    fn ticket(&self) -> MutexGuard<'_, Option<Ticket>> {
        self.ticket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// A connection that has not ended.
    async fn connection(&self) -> Result<Connection, CallErrorKind> {
        match self {
            Link::Over(connection) => match connection.close_reason() {
                Some(reason) => Err(CallErrorKind::Lost(reason)),
                None => Ok(connection.clone()),
            },
            Link::To(server) => server.connection(None).await.0,
        }
    }

    fn can_reconnect(&self) -> bool {
        matches!(self, Link::To(_))
    }

    /// The host of the waits of calls.
    fn host(&self) -> Host {
        match self {
            Link::Over(connection) => connection.shared().host,
            Link::To(server) => server.host,
        }
    }
}

impl Caller {
    /// Calls over this connection, and no other.
    pub fn over(connection: Connection) -> Self {
        Caller(Arc::new(Link::Over(connection)))
    }

    /// Calls a server at `target`, as [`connect`](crate::connect) takes it. The first call
    /// connects. Once the connection has ended, the next call makes another.
    pub fn to(target: impl Into<String>, options: ConnectOptions) -> Self {
        Self::to_from(Host::Runtime, target.into(), options)
    }

    pub(crate) fn to_from(host: Host, target: String, options: ConnectOptions) -> Self {
        let (current, ticket) = (Mutex::new(None), std::sync::Mutex::default());
        Caller(Arc::new(Link::To(Server { host, target, options: Box::new(options), current, ticket })))
    }

    /// Begins a call whose request and answer are streams of messages. Nothing leaves before the
    /// first message, or the end, of the request. There is one try: a stream cannot be sent again.
    ///
    /// # Errors
    /// [`CallError`]; it has not run.
    pub async fn begin(&self, method: &str, options: &CallOptions) -> Result<Call, CallError> {
        let until = options.deadline.map(|deadline| Instant::now() + deadline);
        self.begin_until(method, options, until).await
    }

    async fn begin_until(
        &self,
        method: &str,
        options: &CallOptions,
        until: Option<Instant>,
    ) -> Result<Call, CallError> {
        let not_run = |kind| CallError::new(kind, false);
        if method.is_empty() || method.len() > METHOD_BYTES_MAX {
            let why = format!("the name of a method has 1 to {METHOD_BYTES_MAX} bytes");
            return Err(not_run(CallErrorKind::Request(why)));
        }
        let opened = async {
            let connection = self.0.connection().await?;
            connection.open_flow(options.flow.clone()).await.map_err(|error| match error {
                FlowError::Closed(reason) => CallErrorKind::Lost(reason),
                other => CallErrorKind::Request(other.to_string()),
            })
        };
        let host = self.0.host();
        let flow = match host.before(until, opened).await {
            Some(opened) => opened.map_err(not_run)?,
            None => return Err(not_run(CallErrorKind::DeadlinePassed)),
        };
        let (send, recv) = flow.split();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut header = Vec::new();
        // L-1
        Header { method: method.to_owned(), left }.emit(&mut header);
        Ok(Call {
            request: CallRequest { writer: MessageWriter::new(send, header), host, until, has_left: false },
            answer: CallAnswer {
                reader: MessageReader::new(recv, Half::Answer, None, options.answer_max),
                host,
                until,
                is_over: false,
            },
        })
    }

    /// Makes a call whose request and answer are a message each.
    ///
    /// If there is no answer, the call is made again where it is known that it has not run, or
    /// where it is marked as [idempotent](CallOptions::is_idempotent); over a new connection, if
    /// this one is lost and the caller can make another. (L-9)
    ///
    /// If the wait is given up, the call is cancelled at the server.
    ///
    /// # Errors
    /// [`CallError`], of the last try. It may have run if it may have in any of them.
    pub async fn call(
        &self,
        method: &str,
        request: Bytes,
        options: &CallOptions,
    ) -> Result<Bytes, CallError> {
        let until = options.deadline.map(|deadline| Instant::now() + deadline);
        let (mut may_have_run, mut pause) = (false, PAUSE);
        for _ in 1..options.tries.get() {
            let error = match self.attempt(method, request.clone(), options, until).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error.after(may_have_run),
            };
            may_have_run = error.may_have_run();
            // L-9
            let is_safe = options.is_idempotent || !may_have_run;
            let has_way = !matches!(error.kind(), CallErrorKind::Lost(_)) || self.0.can_reconnect();
            if !(is_safe && has_way && error.is_temporary()) {
                return Err(error);
            }
            let host = self.0.host();
            if host.before(until, host.sleep(pause)).await.is_none() {
                return Err(CallError::new(CallErrorKind::DeadlinePassed, may_have_run));
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        let last = self.attempt(method, request, options, until).await;
        last.map_err(|error| error.after(may_have_run))
    }

    async fn attempt(
        &self,
        method: &str,
        request: Bytes,
        options: &CallOptions,
        until: Option<Instant>,
    ) -> Result<Bytes, CallError> {
        if options.is_early
            && let Some(answered) = self.attempt_early(method, &request, until).await
        {
            return answered;
        }
        let Call { request: mut asked, mut answer } = self.begin_until(method, options, until).await?;
        match asked.send_last(request).await {
            // Why it reads no more, the answer says.
            Ok(()) => {}
            Err(error) if matches!(error.kind(), CallErrorKind::Unwanted) => {}
            Err(error) => return Err(error),
        }
        answer.recv_only().await
    }

    /// Makes a call whose request and answer are values, in postcard's form, as [`Caller::call`]
    /// does.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call_value<Q, A>(
        &self,
        method: &str,
        request: &Q,
        options: &CallOptions,
    ) -> Result<A, CallError>
    where
        Q: Serialize + ?Sized,
        A: DeserializeOwned,
    {
        let request = value::encode(request)
            .map_err(|error| CallError::new(CallErrorKind::Request(error.to_string()), false))?;
        let answer = self.call(method, request, options).await?;
        value::decode(&answer).map_err(|error| CallError::new(CallErrorKind::Answer(error.into()), true))
    }
}

/// A call that is under way. If it is dropped, it is cancelled at the server.
#[derive(Debug)]
pub struct Call {
    /// The request, which this end sends.
    pub request: CallRequest,
    /// The answer, which the server sends, be it before it has the whole request.
    pub answer: CallAnswer,
}

/// The half of a call that is sent.
#[derive(Debug)]
pub struct CallRequest {
    writer: MessageWriter,
    host: Host,
    until: Option<Instant>,
    /// Something was handed over: the server may run the call.
    has_left: bool,
}

impl CallRequest {
    /// Sends a message of the request. Waits while the flow is full. If the wait is given up, the
    /// message is sent all the same, with what follows it.
    ///
    /// # Errors
    /// [`CallError`]. [`CallErrorKind::Unwanted`] is no end of the call.
    pub async fn send(&mut self, message: Bytes) -> Result<(), CallError> {
        self.has_left = true;
        let sent = self.host.before(self.until, self.writer.send(message)).await;
        self.on_sent(sent)
    }

    /// Sends a value as a message, in postcard's form.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn send_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CallError> {
        let message = value::encode(value)
            .map_err(|error| CallError::new(CallErrorKind::Request(error.to_string()), self.has_left))?;
        self.send(message).await
    }

    /// Sends the last message, and the end of the request with it.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn send_last(&mut self, message: Bytes) -> Result<(), CallError> {
        self.has_left = true;
        let sent = self.host.before(self.until, self.writer.send_last(message)).await;
        self.on_sent(sent)
    }

    /// Ends the request: the server has all of it.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn finish(&mut self) -> Result<(), CallError> {
        self.has_left = true;
        let sent = self.host.before(self.until, self.writer.finish()).await;
        self.on_sent(sent)
    }

    fn on_sent(&mut self, sent: Option<Result<(), crate::flow::WriteError>>) -> Result<(), CallError> {
        match sent {
            Some(sent) => sent.map_err(|error| CallError::of_request(error, true)),
            None => {
                // L-8
                self.writer.flow().reset(code::DEADLINE);
                Err(CallError::new(CallErrorKind::DeadlinePassed, true))
            }
        }
    }
}

/// The half of a call that is received.
#[derive(Debug)]
pub struct CallAnswer {
    reader: MessageReader,
    host: Host,
    until: Option<Instant>,
    is_over: bool,
}

impl CallAnswer {
    /// Waits for the next message of the answer, whole; `None` at its end: the call has run, and
    /// its handler is content. Nothing is lost if the wait is given up.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn recv(&mut self) -> Result<Option<Bytes>, CallError> {
        loop {
            let Some(part) = self.recv_part().await? else { return Ok(None) };
            let gathered = self.reader.gather(part).map_err(|error| {
                self.is_over = true;
                self.reader.flow().stop(code::CANCELLED);
                CallError::of_answer(error, true)
            })?;
            if let Some(message) = gathered {
                return Ok(Some(message));
            }
        }
    }

    /// Waits for the next part of a message, as it comes in; `None` at the end. Nothing is
    /// gathered, so that a message may be of any length.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn recv_part(&mut self) -> Result<Option<Part>, CallError> {
        if self.is_over {
            return Ok(None);
        }
        let ended = match self.host.before(self.until, self.reader.next()).await {
            None => {
                // L-8
                self.reader.flow().stop(code::DEADLINE);
                CallError::new(CallErrorKind::DeadlinePassed, true)
            }
            Some(Ok(Found::Part(part))) => return Ok(Some(part)),
            Some(Ok(Found::End)) => {
                self.is_over = true;
                #[cfg(unix)]
                if self.host == Host::Thread {
                    // A thread may never wait again. The server learns at once that all has come.
                    self.reader.flow().acknowledge();
                }
                return Ok(None);
            }
            Some(Ok(Found::Other(item))) => on_end_frame(item),
            Some(Err(error)) => CallError::of_answer(error, true),
        };
        self.is_over = true;
        Err(ended)
    }

    /// Waits for the next message as a value, in postcard's form; `None` at the end.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn recv_value<T: DeserializeOwned>(&mut self) -> Result<Option<T>, CallError> {
        let Some(message) = self.recv().await? else { return Ok(None) };
        let value = value::decode(&message);
        value.map(Some).map_err(|error| CallError::new(CallErrorKind::Answer(error.into()), true))
    }

    /// Waits for an answer that is one message, to its end.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn recv_only(&mut self) -> Result<Bytes, CallError> {
        let unexpected = |error| CallError::new(CallErrorKind::Answer(error), true);
        let message = self.recv().await?.ok_or_else(|| unexpected(RecvError::Missing))?;
        match self.recv_part().await? {
            None => Ok(message),
            Some(_) => Err(unexpected(super::wire::Breach("a second message in an answer".into()).into())),
        }
    }
}

#[cfg(test)]
impl CallAnswer {
    /// This end's clock stands still.
    pub(super) fn until_never(&mut self) {
        self.until = None;
    }
}

/// The end of a call by a frame of the server's.
pub(super) fn on_end_frame(item: Item) -> CallError {
    match item {
        Item::Refused(why, text) => CallError::new(CallErrorKind::Refused { why, text }, false),
        Item::Failed(code, text) => CallError::new(CallErrorKind::Failed { code, text }, true),
        // The reader of an answer gives neither of them.
        Item::Header(_) | Item::Part(..) => {
            let error = super::wire::Breach("an answer that is none".into());
            CallError::new(CallErrorKind::Answer(error.into()), true)
        }
    }
}
