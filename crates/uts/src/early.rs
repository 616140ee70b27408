//! Early requests: a client that has met a server before sends a request with the first flight of
//! its next connection, and has the answer after one round trip, beside the handshake. (keys.md
//! K-23 to K-28)

use crate::connection::Connection;
use crate::driver::{Host, Shared};
use crate::listener::Listener;
use bytes::Bytes;
use core::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use uts_engine::{ConnectionHandle, EarlyError};
use uts_units::printable;

/// Leave of a server for one early request. [`Connection::take_ticket`] has it. A server forgets it
/// after an hour or two, or when it is started again; the request is then made by a flow.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket(pub(crate) uts_engine::Ticket);

impl fmt::Debug for Ticket {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A request that travels with the first flight of a connection
/// ([`ConnectOptions::early`](crate::ConnectOptions::early)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Early {
    /// Leave of the server.
    pub ticket: Ticket,
    /// The request: at most [`EARLY_BYTES_MAX`](crate::EARLY_BYTES_MAX).
    pub request: Bytes,
}

/// Part of the state of a client's connection that is there for early requests.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub is_asking: bool,
    /// The answer, or that there is none.
    pub answer: Option<Option<Bytes>>,
    pub ticket: Option<Ticket>,
}

/// An early request that has come to a server. Its client is not known to be where it seems to be.
/// The request may be a copy of one that was answered, and may come again by a flow.
pub struct EarlyRequest {
    shared: Arc<Shared>,
    handle: ConnectionHandle,
    remote: SocketAddr,
    request: uts_engine::EarlyRequest,
}

impl EarlyRequest {
    /// The request: at most [`EARLY_BYTES_MAX`](crate::EARLY_BYTES_MAX).
    pub fn bytes(&self) -> &Bytes {
        &self.request.bytes
    }

    /// The service that the client asks for; empty if it names none.
    pub fn service(&self) -> &str {
        &self.request.service
    }

    /// The address from which it came.
    pub fn remote_addr(&self) -> SocketAddr {
        self.remote
    }

    /// Carrier of its endpoint.
    pub(crate) fn host(&self) -> Host {
        self.shared.host
    }

    /// Answers it, with at most [`EARLY_BYTES_MAX`](crate::EARLY_BYTES_MAX).
    ///
    /// # Errors
    /// [`EarlyError`]: there is no answer. The client then makes its request again by a flow, as it
    /// does if this is never called.
    pub fn answer(self, answer: &[u8]) -> Result<(), EarlyError> {
        self.shared.act(|inner, _| {
            inner.engine.answer_early(self.handle, answer)?;
            inner.changed();
            Ok(())
        })
    }
}

impl fmt::Debug for EarlyRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EarlyRequest({} bytes of {})", self.request.bytes.len(), self.remote)
    }
}

impl Listener {
    /// Waits for the next early request
    /// ([`ServerOptions::early_requests`](crate::ServerOptions::early_requests)). `None` once the
    /// listener is closed. Those that nobody takes are made again by flows. Several tasks may wait.
    ///
    /// ```
    /// # async fn example(listener: uts::Listener) {
    /// while let Some(request) = listener.early_request().await {
    ///     let answer = request.bytes().to_ascii_uppercase();
    ///     // The client asks again if it came too late.
    ///     let _ = request.answer(&answer);
    /// }
    /// # }
    /// ```
    pub async fn early_request(&self) -> Option<EarlyRequest> {
        let (shared, (handle, remote, request)) = self
            .arrival(|inner| {
                let (handle, request) = inner.engine.next_early()?;
                Some((handle, inner.engine.peek(handle)?.remote(), request))
            })
            .await?;
        Some(EarlyRequest { shared, handle, remote: printable::address(remote), request })
    }
}

impl Connection {
    /// Leave of the server for an early request with a later connection
    /// ([`ConnectOptions::early`](crate::ConnectOptions::early)), once. `None` at a server, where
    /// the server gives none, and if it was taken.
    pub fn take_ticket(&self) -> Option<Ticket> {
        let handle = self.handle();
        self.shared().act(|inner, _| inner.connections.get_mut(&handle)?.kept.as_mut()?.ticket.take())
    }

    /// Waits for the answer to the early request that this connection was made with. `None`: there
    /// was no request, or there is no answer, and the request is to be made again by a flow. The
    /// server may have done it all the same.
    pub async fn early_answer(&self) -> Option<Bytes> {
        let (handle, notify) = (self.handle(), self.notify());
        loop {
            let changes = notify.state.notified();
            tokio::pin!(changes);
            changes.as_mut().enable();
            let known = self.shared().act(|inner, _| {
                let state = inner.connections.get(&handle);
                let kept = state.and_then(|state| state.kept.as_ref()).filter(|kept| kept.is_asking);
                let Some(kept) = kept else { return Some(None) };
                // With the connection ends the wait.
                let is_over = state.is_none_or(|state| state.closed.is_some());
                kept.answer.clone().or(is_over.then_some(None))
            });
            if let Some(answer) = known {
                return answer;
            }
            changes.await;
        }
    }
}

#[cfg(test)]
mod tests;
