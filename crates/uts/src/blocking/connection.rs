//! Connections, as the thread that carries them holds them.

use super::{Carrier, Flow};
use crate::connection::PropertyError;
use crate::driver::ConnectionEvent;
use crate::early::Ticket;
use crate::fingerprint::Fingerprint;
use crate::stats::Stats;
use bytes::Bytes;
use core::fmt;
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use uts_engine::requirements::Requirements;
use uts_engine::{CloseReason, Direction, ExchangeError, FlowError, FlowOptions};
use uts_functions::{PathFacts, Profile};

/// A connection to one peer. Clones are handles of the same connection. When the last of them and
/// the last of its flows is dropped, it is closed with code 0.
#[derive(Clone)]
pub struct Connection {
    pub(super) inner: crate::Connection,
    pub(super) carrier: Carrier,
}

/// Events of a connection, in order; see [`Connection::events`].
pub struct Events {
    inner: crate::Events,
    carrier: Carrier,
}

impl Events {
    /// Waits for the next event; `None` after [`ConnectionEvent::Closed`].
    #[allow(clippy::should_implement_trait, reason = "as elsewhere in this crate")]
    pub fn next(&mut self) -> Option<ConnectionEvent> {
        self.carrier.wait(self.inner.next())
    }

    /// The next event, if there is one.
    pub fn try_next(&mut self) -> Option<ConnectionEvent> {
        self.inner.try_next()
    }
}

impl Connection {
    pub(super) fn new(inner: crate::Connection, carrier: Carrier) -> Self {
        Connection { inner, carrier }
    }

    /// Opens a flow, which goes both ways, as [`crate::Connection::open_flow`] does. Waits while
    /// the peer allows no more.
    ///
    /// # Errors
    /// [`FlowError::Closed`] if the connection has ended. Others (but never [`FlowError::Blocked`])
    /// if the flow cannot have what it requires.
    pub fn open_flow(&self, options: FlowOptions) -> Result<Flow, FlowError> {
        let flow = self.carrier.wait(self.inner.open_flow(options))?;
        Ok(Flow::new(flow, &self.carrier))
    }

    /// Waits for the next flow that the peer opens; `None` when the connection has ended.
    pub fn accept_flow(&self) -> Option<Flow> {
        let flow = self.carrier.wait(self.inner.accept_flow())?;
        Some(Flow::new(flow, &self.carrier))
    }

    /// Events of the connection: exchanges of mechanisms, the packet size, its end. The first
    /// stream of events also has the latest 256 from before.
    pub fn events(&self) -> Events {
        Events { inner: self.inner.events(), carrier: self.carrier.clone() }
    }

    /// Changes what is asked of the data that this end sends. The necessary exchanges follow.
    ///
    /// # Errors
    /// [`PropertyError::Contradiction`] if it cannot be met, or changes what is fixed once a
    /// connection is established, such as `uts.security`;
    /// [`PropertyError::Closed`] if the connection has ended. Nothing has changed then.
    pub fn set_requirements(&self, requirements: Requirements) -> Result<(), PropertyError> {
        self.carrier.act(|| self.inner.set_requirements(requirements))
    }

    /// Requirements on the data that this end sends.
    pub fn requirements(&self) -> Requirements {
        self.inner.requirements()
    }

    /// Changes one property by its TAPS name (RFC 9622), as on a command line.
    ///
    /// # Errors
    /// [`PropertyError`]: nothing has changed then.
    pub fn set_property(&self, name: &str, value: &str) -> Result<(), PropertyError> {
        self.carrier.act(|| self.inner.set_property(name, value))
    }

    /// Asks the peer to exchange the profile of a direction. Returns the epoch. The outcome is an
    /// event.
    ///
    /// # Errors
    /// [`ExchangeError`] if the profile cannot be had, another exchange is under way, or the
    /// connection has ended.
    pub fn request_profile(&self, direction: Direction, profile: Profile) -> Result<u32, ExchangeError> {
        self.carrier.act(|| self.inner.request_profile(direction, profile))
    }

    /// Uses a profile for what this end sends from now on, where that can be taken back: packets
    /// carry the request, and what the peer refuses is sent again under what was in use. Elsewhere
    /// it is asked for. Returns the epoch. The outcome is an event.
    ///
    /// # Errors
    /// As [`Self::request_profile`].
    pub fn use_profile(&self, profile: Profile) -> Result<u32, ExchangeError> {
        self.carrier.act(|| self.inner.use_profile(profile))
    }

    /// The profile of a direction. `None` while there is none, and once the endpoint has forgotten
    /// the connection, some time after its end.
    pub fn profile(&self, direction: Direction) -> Option<Profile> {
        self.inner.profile(direction)
    }

    /// Facts of the path of the data that this end sends, as of now or of the connection's end.
    pub fn facts(&self) -> PathFacts {
        self.inner.facts()
    }

    /// Figures of what the connection has done so far and of its path, or as they were when it
    /// ended.
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// Looks at the engine's side of the connection, if it still has one.
    pub fn inspect<R>(&self, look: impl FnOnce(&uts_engine::Connection) -> R) -> Option<R> {
        self.inner.inspect(look)
    }

    /// Bytes that were handed over and that the peer has not acknowledged, of all flows. `None`
    /// after the connection's end.
    pub fn undelivered_bytes(&self) -> Option<u64> {
        self.inner.undelivered_bytes()
    }

    /// For how long nothing has been heard of the peer although something is expected of it, as
    /// [`crate::Connection::silence`] says.
    pub fn silence(&self) -> Option<Duration> {
        self.inner.silence()
    }

    /// The peer's address. `None` once the endpoint has forgotten the connection, some time after
    /// its end.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.inner.remote_addr()
    }

    /// This end's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    /// Goes on from another address of this host, as [`crate::Connection::migrate`] says.
    ///
    /// # Errors
    /// If the address cannot be used, or is of another family; then nothing has changed.
    pub fn migrate(&self, addr: SocketAddr) -> io::Result<()> {
        self.inner.migrate(addr)
    }

    /// The key that the peer has shown to have; `None` for a client that was not asked for one.
    pub fn peer_fingerprint(&self) -> Option<Fingerprint> {
        self.inner.peer_fingerprint()
    }

    /// Closes the connection, and tells the peer. What was not delivered is lost: see
    /// [`SendFlow::finished`]. A connection that has ended stays as it ended.
    ///
    /// [`SendFlow::finished`]: super::SendFlow::finished
    pub fn close(&self, code: u64, reason: &str) {
        self.carrier.wait(self.inner.close(code, reason));
    }

    /// Leave for an early request with a later connection, as [`crate::Connection::take_ticket`]
    /// says.
    pub fn take_ticket(&self) -> Option<Ticket> {
        self.inner.take_ticket()
    }

    /// Waits for the answer to the early request, as [`crate::Connection::early_answer`] says.
    pub fn early_answer(&self) -> Option<Bytes> {
        self.carrier.wait(self.inner.early_answer())
    }

    /// Waits for the end of the connection.
    pub fn closed(&self) -> CloseReason {
        self.carrier.wait(self.inner.closed())
    }

    /// Why the connection has ended, if it has.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.inner.close_reason()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
