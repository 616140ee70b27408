//! Calls that travel with the first flight of a connection, as early requests. (L-11)

use super::client::{Caller, Link, on_end_frame};
use super::error::{CallError, CallErrorKind, Failure};
use super::running::Running;
use super::server::Methods;
use super::wire::{Breach, Frames, Half, Header, Item, METHOD_BYTES_MAX, put_failed, put_message_head};
use crate::early::EarlyRequest;
use crate::ledger::Resource;
use crate::listener::Listener;
use bytes::Bytes;
use core::future::Future;
use core::pin::Pin;
use std::sync::Arc;
use tokio::time::Instant;
use uts_engine::EARLY_BYTES_MAX;

type EarlyHandling = Pin<Box<dyn Future<Output = Result<Bytes, Failure>> + Send>>;

/// Runs a method for an early request.
pub(super) type EarlyHandler = Box<dyn Fn(Bytes) -> EarlyHandling + Send + Sync>;

impl Methods {
    /// With a method more, as [`Methods::on_message`], which early requests may ask for as well
    /// ([`Methods::serve_early`]). It may then run twice for one call, and for who has shown no key
    /// and may not be where he seems to be. Request and answer of those have at most 8 kB with
    /// what goes around them; longer ones go by flows.
    ///
    /// # Panics
    /// If clones are in use.
    #[must_use]
    pub fn on_early<F>(
        self,
        method: impl Into<String>,
        handler: impl Fn(Bytes) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Bytes, Failure>> + Send + 'static,
    {
        let (method, handler) = (method.into(), Arc::new(handler));
        let early = handler.clone();
        let early: EarlyHandler = Box::new(move |message| Box::pin(early(message)));
        self.on_message(method.clone(), move |message| handler(message)).with_early(method, early)
    }

    /// Serves the early requests of a listener
    /// ([`ServerOptions::early_requests`](crate::ServerOptions::early_requests)) until that is
    /// closed. What cannot be served is left to the flow by which the client then calls.
    pub async fn serve_early(self, listener: &Listener) {
        let serve = |request| self.clone().serve_request(request);
        Running::tasks().each(|| listener.early_request(), serve).await;
    }

    /// Answers an early request, if it is a call of a method for such, and there is time.
    pub(super) async fn serve_request(self, request: EarlyRequest) {
        let payer = self.ledger.payer(&request.remote_addr().ip().to_string());
        // L-10
        let Ok(_room) = payer.charge(Resource::Requests, 1) else { return };
        let Some((header, message)) = one_call(request.bytes()) else { return };
        let Some(handler) = self.early.get(&header.method).filter(|_| !*self.stopping.borrow()) else {
            return;
        };
        // L-8
        let deadline = header.left.and_then(|left| Instant::now().checked_add(left));
        let Some(outcome) = request.host().before(deadline, handler(message)).await else { return };
        // A handler that holds its thread is not stopped in time.
        if deadline.is_some_and(|deadline| deadline < Instant::now()) {
            return;
        }
        // One that is too late, or too long, is given by a flow.
        let _ = request.answer(&framed(outcome));
    }
}

/// The call that an early request is.
fn one_call(bytes: &Bytes) -> Option<(Header, Bytes)> {
    match <[Item; 2]>::try_from(items(Half::Request, bytes.clone()).ok()?).ok()? {
        [Item::Header(header), Item::Part(message, true)] => Some((header, message)),
        _ => None,
    }
}

/// An answer of one message or of one failure.
fn framed(outcome: Result<Bytes, Failure>) -> Vec<u8> {
    let mut answer = Vec::new();
    match outcome {
        Ok(message) => {
            put_message_head(&mut answer, message.len());
            answer.extend_from_slice(&message);
        }
        Err(Failure { code, text }) => put_failed(&mut answer, code, &text),
    }
    answer
}

/// All that a half of a call consists of.
fn items(half: Half, mut bytes: Bytes) -> Result<Vec<Item>, Breach> {
    let (mut frames, mut all) = (Frames::new(half), Vec::new());
    while let Some(item) = frames.next(&mut bytes)? {
        all.push(item);
    }
    if frames.may_end() { Ok(all) } else { Err(Breach("a half ends in the middle of a frame".to_owned())) }
}

/// The answer that came early.
fn read(answer: Bytes) -> Result<Bytes, CallError> {
    let breach = |why: Breach| CallError::new(CallErrorKind::Answer(why.into()), true);
    let items = items(Half::Answer, answer).map_err(breach)?;
    match <[Item; 1]>::try_from(items) {
        Ok([Item::Part(message, true)]) => Ok(message),
        Ok([item]) => Err(on_end_frame(item)),
        Err(_) => Err(breach(Breach("an early answer is one message, or a failure".to_owned()))),
    }
}

impl Caller {
    /// Makes a call with the first flight of a new connection. `None` = it has to be made by a
    /// flow: there is a connection, there is no ticket, or no early answer has come.
    pub(super) async fn attempt_early(
        &self,
        method: &str,
        request: &Bytes,
        until: Option<Instant>,
    ) -> Option<Result<Bytes, CallError>> {
        let Link::To(server) = &*self.0 else { return None };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut call = Vec::new();
        Header { method: method.to_owned(), left }.emit(&mut call);
        put_message_head(&mut call, request.len());
        if method.is_empty()
            || method.len() > METHOD_BYTES_MAX
            || call.len() + request.len() > EARLY_BYTES_MAX
        {
            return None;
        }
        call.extend_from_slice(request);
        let asked = async {
            match server.connection(Some(call.into())).await {
                (Ok(connection), true) => connection.early_answer().await.map(read),
                (Ok(_), false) => None,
                (Err(kind), may_have_run) => Some(Err(CallError::new(kind, may_have_run))),
            }
        };
        match server.host.before(until, asked).await {
            Some(answered) => answered,
            None => Some(Err(CallError::new(CallErrorKind::DeadlinePassed, true))),
        }
    }
}
