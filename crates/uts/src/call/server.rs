//! The end that is called.

use super::body::{Found, MessageReader, MessageWriter, RecvError};
use super::early::EarlyHandler;
use super::error::Failure;
use super::running::Running;
use super::wire::{Half, Header, Item, Refusal, code, put_failed, put_refused};
use super::{MESSAGE_MAX, value};
use crate::connection::Connection;
use crate::driver::Host;
use crate::flow::{Flow, ReadError};
use crate::ledger::{Budget, Ledger, Payer, Resource};
#[cfg(unix)]
use crate::listener::Listener;
use bytes::Bytes;
use core::fmt;
use core::future::Future;
use core::ops::{Deref, DerefMut};
use core::pin::Pin;
use core::time::Duration;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// Time for a header to be whole, and for more to come of a request that is handed over whole.
/// (L-10)
const REQUEST_TIME: Duration = Duration::from_secs(20);

/// Runs a call.
type Handling = Pin<Box<dyn Future<Output = Result<(), Stop>> + Send>>;
type Handler = Box<dyn Fn(Served) -> Handling + Send + Sync>;

/// Why a handler has not come to its end.
enum Stop {
    /// It has not begun: the request is none.
    Refused(Refusal, String),
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failed(failure)
    }
}

/// A request that a handler could not begin with.
impl From<RecvError> for Stop {
    fn from(error: RecvError) -> Self {
        let why = match error {
            RecvError::NoMemory(_) => Refusal::Busy,
            _ => Refusal::BadRequest,
        };
        Stop::Refused(why, error.to_string())
    }
}

/// Methods that can be called, by their names. Clones share the methods, and what is counted.
///
/// ```no_run
/// # async fn example(listener: uts::Listener) {
/// use uts::call::{Failure, Methods, Served};
/// use uts::Services;
///
/// let methods = Methods::new()
///     .on_value("add", |(a, b): (u32, u32)| async move {
///         a.checked_add(b).ok_or_else(|| Failure::new(1, "it does not fit"))
///     })
///     .on("echo", |mut call: Served| async move {
///         while let Some(message) = call.request.recv().await? {
///             call.answer.send(message).await?;
///         }
///         Ok(())
///     });
/// let services = Services::new().on("sums", move |connection| methods.clone().serve(connection));
/// services.serve(&listener).await;
/// # }
/// ```
#[derive(Clone)]
pub struct Methods {
    all: Arc<BTreeMap<String, Handler>>,
    pub(super) early: Arc<BTreeMap<String, EarlyHandler>>,
    pub(super) ledger: Ledger,
    pub(super) stopping: Arc<watch::Sender<bool>>,
}

/// A call, as its handler has it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Served {
    /// The request, as it comes in.
    pub request: MessageReader,
    /// The answer. It ends when the handler has come to its end and has let go of this.
    pub answer: Answer,
    /// Instant at which the call is stopped: its handler is dropped.
    pub deadline: Option<Instant>,
    /// The connection that it came by: who calls, and from where.
    pub connection: Connection,
}

/// The answer of a call.
#[derive(Debug)]
pub struct Answer {
    writer: Option<MessageWriter>,
    /// Takes the writer back, so that the call can be ended in order.
    back: Option<oneshot::Sender<MessageWriter>>,
}

impl Deref for Answer {
    type Target = MessageWriter;

    fn deref(&self) -> &MessageWriter {
        self.writer.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for Answer {
    fn deref_mut(&mut self) -> &mut MessageWriter {
        self.writer.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let (Some(writer), Some(back)) = (self.writer.take(), self.back.take()) {
            // Nobody takes it where the call has ended.
            let _ = back.send(writer);
        }
    }
}

impl Methods {
    /// None so far, and a ledger of this process ([`Methods::with_ledger`]).
    pub fn new() -> Self {
        Methods {
            all: Arc::default(),
            early: Arc::default(),
            ledger: Ledger::of_server(&Budget::of_process()),
            stopping: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Counts calls and memory in this ledger, which other services of the process may share: calls
    /// as [`Resource::Requests`], messages that are gathered as [`Resource::Memory`]. Who calls
    /// pays, by key or address. A call for which there is no room is refused ([`Refusal::Busy`]).
    #[must_use]
    pub fn with_ledger(mut self, ledger: Ledger) -> Self {
        self.ledger = ledger;
        self
    }

    fn with(mut self, method: impl Into<String>, handler: Handler) -> Self {
        let (method, message) = (method.into(), "methods are named before they are shared");
        // One of the same name is replaced as a whole.
        Arc::get_mut(&mut self.early).expect(message).remove(&method);
        Arc::get_mut(&mut self.all).expect(message).insert(method, handler);
        self
    }

    pub(super) fn with_early(mut self, method: String, handler: EarlyHandler) -> Self {
        let early = Arc::get_mut(&mut self.early).expect("methods are named before they are shared");
        early.insert(method, handler);
        self
    }

    /// With a method more, whose request and answer are streams of messages. One of the same name
    /// is replaced. The handler is dropped where the caller gives the call up, or its deadline
    /// passes. A handler that panics has its call cancelled, and harms no others.
    ///
    /// # Panics
    /// If clones are in use.
    #[must_use]
    pub fn on<F>(
        self,
        method: impl Into<String>,
        handler: impl Fn(Served) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let handle = move |call| {
            let handled = handler(call);
            let handling: Handling = Box::pin(async move { handled.await.map_err(Stop::Failed) });
            handling
        };
        self.with(method, Box::new(handle))
    }

    /// With a method more, whose request and answer are a message each, of up to 1 MiB. The handler
    /// begins when the request is whole: a request that is none is refused. (L-5)
    ///
    /// # Panics
    /// If clones are in use.
    #[must_use]
    pub fn on_message<F>(
        self,
        method: impl Into<String>,
        handler: impl Fn(Bytes) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Bytes, Failure>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let handle = move |call: Served| {
            let handler = handler.clone();
            let handling: Handling = Box::pin(async move {
                let Served { mut request, mut answer, connection, .. } = call;
                let message = whole(connection.shared().host, &mut request).await?;
                let said = handler(message).await?;
                answer.send_last(said).await.map_err(Failure::from)?;
                Ok(())
            });
            handling
        };
        self.with(method, Box::new(handle))
    }

    /// With a method more, whose request and answer are values, in postcard's form, as
    /// [`Methods::on_message`]. A request that is no value of its type is refused.
    ///
    /// # Panics
    /// If clones are in use.
    #[must_use]
    pub fn on_value<Q, A, F>(
        self,
        method: impl Into<String>,
        handler: impl Fn(Q) -> F + Send + Sync + 'static,
    ) -> Self
    where
        Q: DeserializeOwned + Send + 'static,
        A: Serialize + Send + 'static,
        F: Future<Output = Result<A, Failure>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let handle = move |call: Served| {
            let handler = handler.clone();
            let handling: Handling = Box::pin(async move {
                let Served { mut request, mut answer, connection, .. } = call;
                let asked = whole(connection.shared().host, &mut request).await?;
                let asked = value::decode(&asked).map_err(RecvError::from)?;
                let said = value::encode(&handler(asked).await?).map_err(Failure::from)?;
                answer.send_last(said).await.map_err(Failure::from)?;
                Ok(())
            });
            handling
        };
        self.with(method, Box::new(handle))
    }

    /// Refuses all calls from now on ([`Refusal::Stopping`]), which are then known not to have run.
    /// Those that run go on.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Serves the calls of a connection until it ends. If this is given up, they are stopped.
    pub async fn serve(self, connection: Connection) {
        self.serve_in(Running::tasks(), connection).await;
    }

    /// Serves the calls of a connection until it ends, in the task, or the thread, that waits for
    /// this: one handler after the other goes on.
    #[cfg(unix)]
    pub(crate) async fn serve_here(self, connection: Connection) {
        self.serve_in(Running::here(), connection).await;
    }

    async fn serve_in(self, calls: Running, connection: Connection) {
        let payer = self.ledger.payer(&payer_name(&connection));
        let serve = |flow| self.clone().serve_call(flow, connection.clone(), payer.clone());
        calls.each(|| connection.accept_flow(), serve).await;
    }

    /// Serves those who connect, and the early requests of the listener, in the task or the thread
    /// that waits for this, until the listener is closed or the methods are stopped, and the last
    /// client has gone.
    #[cfg(unix)]
    pub(crate) async fn serve_clients_here(self, listener: &Listener) {
        let (mut running, mut accepts) = (Running::here(), true);
        let mut stopping = self.stopping.subscribe();
        while accepts || !running.is_empty() {
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stops| *stops), if accepts => accepts = false,
                connection = listener.accept(), if accepts => match connection {
                    Some(connection) => running.add(self.clone().serve_here(connection)),
                    None => accepts = false,
                },
                // The end of the listener is told by the other.
                Some(request) = listener.early_request(), if accepts && !self.early.is_empty() => {
                    running.add(self.clone().serve_request(request));
                }
                () = running.ended() => {}
            }
        }
    }

    async fn serve_call(self, flow: Flow, connection: Connection, payer: Payer) {
        let host = connection.shared().host;
        let (send, recv) = flow.split();
        let mut writer = MessageWriter::new(send, Vec::new());
        let mut request = MessageReader::new(recv, Half::Request, Some(payer.clone()), MESSAGE_MAX);
        // L-10: before anything is held for it.
        let room = payer.charge(Resource::Requests, 1);
        let begun = match &room {
            Ok(_) => self.begin(host, &mut request).await,
            Err(refused) => Err(Some((Refusal::Busy, refused.to_string()))),
        };
        let (header, handler) = match begun {
            Ok(begun) => begun,
            Err(Some((why, text))) => return refuse(writer, why, &text).await,
            // It is gone before it was one.
            Err(None) => return writer.flow().reset(code::CANCELLED),
        };
        // L-8
        let deadline = header.left.and_then(|left| Instant::now().checked_add(left));
        let mut stopped = writer.stopped();
        let (back, mut returned) = oneshot::channel();
        let answer = Answer { writer: Some(writer), back: Some(back) };
        let handled = async {
            let outcome = handler(Served { request, answer, deadline, connection }).await;
            if let Ok(mut writer) = (&mut returned).await {
                // A handler that holds its thread is not stopped in time.
                match deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                    true => writer.flow().reset(code::DEADLINE),
                    false => end(writer, outcome).await,
                }
            }
        };
        let is_in_time = tokio::select! {
            biased;
            () = handled => true,
            // L-7: the caller has given it up, or is gone. An answer that has arrived is no reason.
            Err(_) = stopped.wait() => true,
            () = passed(host, deadline) => false,
        };
        if let (false, Ok(mut writer)) = (is_in_time, returned.try_recv()) {
            writer.flow().reset(code::DEADLINE);
        }
    }

    /// Reads the header; says who is to run the call, or why nobody is. No reason = the caller is
    /// gone.
    async fn begin(
        &self,
        host: Host,
        request: &mut MessageReader,
    ) -> Result<(Header, &Handler), Option<(Refusal, String)>> {
        let header = match host.within(REQUEST_TIME, request.next()).await {
            Some(Ok(Found::Other(Item::Header(header)))) => header,
            Some(Err(RecvError::Flow(ReadError::Reset(_) | ReadError::Closed(_)))) => return Err(None),
            Some(Err(error)) => return Err(Some((Refusal::BadRequest, error.to_string()))),
            Some(Ok(_)) => return Err(Some((Refusal::BadRequest, "it has no header".to_owned()))),
            None => return Err(Some((Refusal::TooLate, "its header was not whole in time".to_owned()))),
        };
        if *self.stopping.borrow() {
            return Err(Some((Refusal::Stopping, "the server stops".to_owned())));
        }
        match self.all.get(&header.method) {
            Some(handler) => Ok((header, handler)),
            None => Err(Some((Refusal::NoSuchMethod, format!("it has no method `{}`", header.method)))),
        }
    }
}

impl Default for Methods {
    fn default() -> Self {
        Methods::new()
    }
}

impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.all.keys()).finish()
    }
}

/// A request that is one message. A slow line takes its time; a caller that has stopped is not
/// waited for.
async fn whole(host: Host, request: &mut MessageReader) -> Result<Bytes, Stop> {
    let mut message = None;
    loop {
        let Some(part) = host.within(REQUEST_TIME, request.recv_part()).await else {
            let text = "nothing more of the request has come for a while".to_owned();
            return Err(Stop::Refused(Refusal::TooLate, text));
        };
        match part? {
            None => return Ok(message.ok_or(RecvError::Missing)?),
            Some(part) if message.is_none() => message = request.gather(part)?,
            Some(_) => return Err(RecvError::several().into()),
        }
    }
}

/// Ends a call in order.
async fn end(mut writer: MessageWriter, outcome: Result<(), Stop>) {
    let mut frame = Vec::new();
    match outcome {
        // It has ended already if the last message was said to be the last.
        Ok(()) => drop(writer.finish().await),
        Err(Stop::Refused(why, text)) => refuse(writer, why, &text).await,
        Err(Stop::Failed(Failure { code, text })) => {
            put_failed(&mut frame, code, &text);
            let _ = writer.finish_with(frame).await;
        }
    }
}

async fn refuse(mut writer: MessageWriter, why: Refusal, text: &str) {
    let mut frame = Vec::new();
    put_refused(&mut frame, why, text);
    // One that is not taken was not asked for.
    let _ = writer.finish_with(frame).await;
}

/// Waits for an instant, if there is one.
async fn passed(host: Host, deadline: Option<Instant>) {
    host.before(deadline, core::future::pending::<()>()).await;
}

/// The name of who pays for what is held for a connection: a key, or an address.
fn payer_name(connection: &Connection) -> String {
    let key = connection.peer_fingerprint().map(|key| key.to_string());
    key.or_else(|| connection.remote_addr().map(|at| at.ip().to_string())).unwrap_or_default()
}
