//! Connections, as their users hold them.

use crate::driver::{ConnectionEvent, Inner, OwnSocket, Shared, gone};
use crate::fingerprint::Fingerprint;
use crate::flow::Flow;
use crate::stats::Stats;
use core::fmt;
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::mpsc::UnboundedReceiver;
use uts_engine::requirements::{RequirementError, Requirements};
use uts_engine::selector::Contradiction;
use uts_engine::{CloseReason, ConnectionHandle, Direction, ExchangeError, FlowError, FlowOptions};
use uts_functions::{PathFacts, Profile};
use uts_units::printable;

/// A connection to one peer. Clones are handles of the same connection. When the last of them and
/// the last of its flows is dropped, it is closed with code 0.
///
/// ```
/// # async fn example(connection: uts::Connection) -> Result<(), Box<dyn std::error::Error>> {
/// use uts::{FlowOptions, Requirements};
///
/// let one = connection.open_flow(FlowOptions::default()).await?;
/// let other = connection.open_flow(FlowOptions::requiring(Requirements::messages())).await?;
/// connection.set_property("connPriority", "10")?;
/// println!("{:?} there and back", connection.stats().rtt);
/// connection.close(0, "done").await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Connection(Arc<ConnectionRef>);

struct ConnectionRef {
    shared: Arc<Shared>,
    handle: ConnectionHandle,
    own: Option<Fingerprint>,
    /// The peer's key, once it was looked at.
    peer: OnceLock<Fingerprint>,
    /// Requirements of this end's own side at first. Shared by connections of one listener.
    begun_with: Arc<Requirements>,
    /// Shared until they are changed.
    requirements: Mutex<Arc<Requirements>>,
}

/// Why a property was not changed.
///
/// ```
/// # fn example(connection: uts::Connection) {
/// use uts::PropertyError;
///
/// match connection.set_property("msgLifetime", "soon") {
///     Err(PropertyError::Property(error)) => println!("no such property, or no such value:
///     {error}"), Err(PropertyError::Closed(reason)) => println!("too late: {reason}"),
///     other => println!("{other:?}"),
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PropertyError {
    /// No such property, or no such value.
    #[error(transparent)]
    Property(#[from] RequirementError),
    /// It contradicts others.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// The connection is over.
    #[error("{0}")]
    Closed(#[source] CloseReason),
}

impl From<PropertyError> for io::Error {
    fn from(error: PropertyError) -> Self {
        let kind = match &error {
            PropertyError::Property(_) | PropertyError::Contradiction(_) => io::ErrorKind::InvalidInput,
            PropertyError::Closed(reason) => reason.kind(),
        };
        io::Error::new(kind, error)
    }
}

/// Events of a connection, in order; see [`Connection::events`].
///
/// ```
/// # async fn example(connection: uts::Connection) {
/// use uts::{ConnectionEvent, ExchangeEvent};
///
/// let mut events = connection.events();
/// while let Some(event) = events.next().await {
///     if let ConnectionEvent::Exchange(step) = event
///         && let ExchangeEvent::Requested { seen, changes, .. } = *step
///     {
///         println!("{seen}: {changes}");
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Events(UnboundedReceiver<ConnectionEvent>);

impl Events {
    /// Waits for the next event. `None` after [`ConnectionEvent::Closed`]. Nothing is lost if the
    /// wait is given up.
    pub async fn next(&mut self) -> Option<ConnectionEvent> {
        self.0.recv().await
    }

    /// The next event, if there is one.
    pub fn try_next(&mut self) -> Option<ConnectionEvent> {
        self.0.try_recv().ok()
    }
}

impl Connection {
    /// The handle of a connection that has counted it already.
    pub(crate) fn adopted(
        shared: Arc<Shared>,
        handle: ConnectionHandle,
        own: Option<Fingerprint>,
        requirements: Arc<Requirements>,
    ) -> Self {
        let begun_with = requirements.clone();
        let (peer, requirements) = (OnceLock::new(), Mutex::new(requirements));
        Connection(Arc::new(ConnectionRef { shared, handle, own, peer, begun_with, requirements }))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(crate) fn handle(&self) -> ConnectionHandle {
        self.0.handle
    }

    /// The engine's side of the connection, while it has not ended.
    ///
    /// # Errors
    /// Why it has.
    pub(crate) fn open<'a>(
        &self,
        inner: &'a mut Inner,
    ) -> Result<&'a mut uts_engine::Connection, CloseReason> {
        let ended = inner.ended(self.handle());
        let Some(connection) = inner.connection(self.handle()) else {
            return Err(self.explain(ended.unwrap_or_else(gone)));
        };
        // The engine hears of a close at once, others when it has had its turn. It does not hear of
        // the end of its carrier.
        match ended.or_else(|| connection.close_reason().cloned()) {
            Some(reason) => Err(self.explain(reason)),
            None => Ok(connection),
        }
    }

    /// Opens a flow, which goes both ways. Waits while the peer allows no more. The peer learns of
    /// it with the first data (or end) that is sent on it.
    ///
    /// With [requirements of its own](FlowOptions::requirements), a flow has a profile of its own
    /// for what is sent on it. The profile is agreed with the peer meanwhile. Data may be written
    /// at once, and leaves when the profile is agreed.
    ///
    /// # Errors
    /// [`FlowError::Closed`] if the connection has ended. Others (but never [`FlowError::Blocked`])
    /// if the flow cannot have what it requires.
    pub async fn open_flow(&self, options: FlowOptions) -> Result<Flow, FlowError> {
        let notify = self.notify();
        loop {
            let may_open = notify.open.notified();
            tokio::pin!(may_open);
            may_open.as_mut().enable();
            let opened = self.shared().act(|inner, _| {
                match self.open(inner).map_err(FlowError::Closed)?.open_flow(options.clone()) {
                    Ok(id) => Ok(Some(id)),
                    Err(FlowError::Blocked) => {
                        inner.openers.push(self.handle());
                        Ok(None)
                    }
                    Err(error) => Err(error),
                }
            });
            match opened {
                Ok(Some(id)) => return Ok(Flow::new(self.clone(), id)),
                Ok(None) => may_open.await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for the next flow that the peer opens. `None` when the connection has ended. Nothing
    /// is lost if the wait is given up. Several tasks may wait.
    pub async fn accept_flow(&self) -> Option<Flow> {
        let notify = self.notify();
        loop {
            let accepts = notify.accept.notified();
            tokio::pin!(accepts);
            accepts.as_mut().enable();
            let (id, has_ended) = self.shared().act(|inner, _| {
                let id = inner.connection(self.handle()).and_then(|c| c.accept_flow());
                (id, inner.ended(self.handle()).is_some())
            });
            match id {
                Some(id) => return Some(Flow::new(self.clone(), id)),
                None if has_ended => return None,
                None => accepts.await,
            }
        }
    }

    /// Events of the connection: exchanges of mechanisms, the packet size, its end. The first
    /// stream of events also has the latest 256 from before.
    pub fn events(&self) -> Events {
        Events(self.shared().subscribe(self.handle()))
    }

    /// Changes what is asked of the data that this end sends. The necessary exchanges follow.
    ///
    /// # Errors
    /// [`PropertyError::Contradiction`] if it cannot be met, or changes what is fixed once a
    /// connection is established, such as `uts.security`;
    /// [`PropertyError::Closed`] if the connection has ended. Nothing has changed then.
    pub fn set_requirements(&self, requirements: Requirements) -> Result<(), PropertyError> {
        self.change_requirements(|r| {
            *r = requirements;
            Ok(())
        })
    }

    /// Requirements on the data that this end sends.
    pub fn requirements(&self) -> Requirements {
        Requirements::clone(&self.lock_requirements())
    }

    fn lock_requirements(&self) -> MutexGuard<'_, Arc<Requirements>> {
        self.0.requirements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_requirements(
        &self,
        change: impl FnOnce(&mut Requirements) -> Result<(), RequirementError>,
    ) -> Result<(), PropertyError> {
        let mut held = self.lock_requirements();
        let mut changed = Requirements::clone(&held);
        change(&mut changed)?;
        self.shared().act(|inner, now| {
            inner.changed();
            let connection = self.open(inner).map_err(PropertyError::Closed)?;
            connection.set_requirements(now, changed.clone()).map_err(PropertyError::from)
        })?;
        *held = Arc::new(changed);
        Ok(())
    }

    /// Changes one property by its TAPS name (RFC 9622), as on a command line.
    ///
    /// # Errors
    /// [`PropertyError`]: nothing has changed then.
    pub fn set_property(&self, name: &str, value: &str) -> Result<(), PropertyError> {
        self.change_requirements(|requirements| requirements.set(name, value))
    }

    /// Changes one property as the peer asks it, by a request of the application's protocol. What
    /// is owed to others is not for peers: congestion control, rates that sending needs, time-outs,
    /// protection, mechanisms.
    ///
    /// # Errors
    /// [`PropertyError`]: nothing has changed then.
    pub fn set_property_for_peer(&self, name: &str, value: &str) -> Result<(), PropertyError> {
        self.change_requirements(|requirements| requirements.set_for_peer(&self.0.begun_with, name, value))
    }

    /// Requirements of this end for the data that it sends, as they were when the connection began.
    pub fn requirements_at_first(&self) -> &Requirements {
        &self.0.begun_with
    }

    /// Asks the peer to exchange the profile of a direction. Returns the epoch. The outcome is an
    /// event.
    ///
    /// # Errors
    /// [`ExchangeError`] if the profile cannot be had, another exchange is under way, or the
    /// connection has ended.
    pub fn request_profile(&self, direction: Direction, profile: Profile) -> Result<u32, ExchangeError> {
        self.shared().act(|inner, now| {
            inner.changed();
            let connection = self.open(inner).map_err(|_| ExchangeError::NotConnected)?;
            connection.request_profile(now, direction, profile)
        })
    }

    /// Uses a profile for what this end sends from now on, where that can be taken back: packets
    /// carry the request, and what the peer refuses is sent again under what was in use. Elsewhere
    /// it is asked for. Returns the epoch. The outcome is an event.
    ///
    /// # Errors
    /// As [`Self::request_profile`].
    pub fn use_profile(&self, profile: Profile) -> Result<u32, ExchangeError> {
        self.shared().act(|inner, now| {
            inner.changed();
            let connection = self.open(inner).map_err(|_| ExchangeError::NotConnected)?;
            connection.use_profile(now, profile)
        })
    }

    /// The profile of a direction. `None` while there is none, and once the endpoint has forgotten
    /// the connection, some time after its end.
    pub fn profile(&self, direction: Direction) -> Option<Profile> {
        self.shared().act(|inner, _| inner.engine.peek(self.handle()).and_then(|c| c.profile(direction)))
    }

    /// Facts of the path of the data that this end sends, as of now or of the connection's end.
    pub fn facts(&self) -> PathFacts {
        self.inspect(|c| c.facts()).unwrap_or_else(|| self.last().1)
    }

    /// Figures of what the connection has done so far and of its path, or as they were when it
    /// ended.
    pub fn stats(&self) -> Stats {
        self.inspect(Stats::of).unwrap_or_else(|| self.last().0)
    }

    fn last(&self) -> (Stats, PathFacts) {
        self.shared()
            .act(|inner, _| inner.connections.get(&self.handle()).and_then(|s| s.last.as_deref().copied()))
            .unwrap_or_default()
    }

    /// Looks at the engine's side of the connection, if it still has one. The endpoint stands still
    /// meanwhile.
    pub fn inspect<R>(&self, look: impl FnOnce(&uts_engine::Connection) -> R) -> Option<R> {
        self.shared().act(|inner, _| inner.engine.peek(self.handle()).map(look))
    }

    /// Has the first bytes of flows that the peer opens shown to who may have memory for them.
    pub(crate) fn find_memory_by(&self, finder: Box<dyn uts_engine::FindMemory>) {
        self.shared().act(|inner, _| {
            if let Some(connection) = inner.connection(self.handle()) {
                connection.find_memory_by(finder);
            }
        });
    }

    /// From now on [`ConnectionEvent::MaySend`] tells an encoder at which rate this end may send,
    /// or no more. It is told when it has changed by more than a tenth, at most once in a round
    /// trip or 100 ms, whichever is longer. To one that sends less than the path carries it is at
    /// most twice what that sends: nobody has tried more.
    pub fn want_rate(&self, is_wanted: bool) {
        self.shared().act(|inner, _| {
            if let Ok(connection) = self.open(inner) {
                connection.want_rate(is_wanted);
            }
        });
    }

    /// Bytes that were handed over and that the peer has not acknowledged, of all flows. `None`
    /// after the connection's end.
    pub fn undelivered_bytes(&self) -> Option<u64> {
        self.shared().act(|inner, _| self.open(inner).ok().map(|c| c.undelivered_bytes()))
    }

    /// For how long nothing has been heard of the peer although something is expected of it: data
    /// is under way that it has not acknowledged, or somebody waits to read and the peer was asked
    /// whether it is there. `None` = nothing is expected, or the connection has ended.
    pub fn silence(&self) -> Option<Duration> {
        self.shared().act(|inner, now| inner.engine.peek(self.handle()).and_then(|c| c.silence(now)))
    }

    /// Asks at once whether the peer is there. If it does not answer within half a second, or
    /// within four probe time-outs if that is longer, the connection ends as by the idle time-out.
    /// For those who know that a peer that is there would answer.
    pub fn ask_for_answer(&self) {
        self.shared().act(|inner, now| {
            if let Ok(connection) = self.open(inner) {
                connection.ask_for_answer(now);
            }
            inner.changed();
        });
    }

    /// The peer's address. `None` once the endpoint has forgotten the connection, some time after
    /// its end.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.inspect(|c| c.remote()).map(printable::address)
    }

    /// At a server, the service that the client has asked for (`ConnectionConfig::service`); empty
    /// if it asked for none, or the connection is forgotten.
    pub fn service(&self) -> String {
        self.inspect(|connection| connection.service().to_owned()).unwrap_or_default()
    }

    /// This end's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared().local_addr()
    }

    /// Goes on from another address of this host: of port 0, from any port. All connections of the
    /// endpoint move with it. The peer follows once a packet comes from there. Flows go on, and
    /// nothing is lost; what was known of the path begins anew. [`ConnectionEvent::Moved`] tells
    /// when the peer has answered. Must be called within the runtime of the endpoint.
    ///
    /// # Errors
    /// If the address cannot be used, or is of another family; then nothing has changed.
    pub fn migrate(&self, addr: SocketAddr) -> io::Result<()> {
        self.shared().migrate(addr)
    }

    /// Goes on by this socket, which is bound and which nobody else reads: see
    /// [`Connection::migrate`].
    ///
    /// # Errors
    /// If the socket cannot be used, or is of another family; then nothing has changed.
    pub fn rebind(&self, socket: OwnSocket) -> io::Result<()> {
        self.shared().rebind(socket)
    }

    /// From now on the connection moves with this host, as long as anybody holds it: when the host
    /// reaches the peer by another of its addresses (another network, a cable, a VPN), the
    /// connection goes on from there, within half a second or so. Must be called within a tokio
    /// runtime. A second call changes nothing but the work.
    pub fn follow_network(&self) {
        if let Some(peer) = self.inspect(|connection| connection.remote()) {
            crate::roaming::follow(self.shared(), peer);
        }
    }

    /// The key that the peer has shown to have; `None` for a client that was not asked for one.
    pub fn peer_fingerprint(&self) -> Option<Fingerprint> {
        if self.0.peer.get().is_none() {
            let _ = self.0.peer.set(self.inspect(peer_key)??);
        }
        self.0.peer.get().copied()
    }

    /// Closes the connection and waits until the peer was told. What was not delivered is lost: see
    /// [`SendFlow::finished`](crate::SendFlow::finished). It is closed at once, even if the wait is
    /// given up. A connection that has ended stays as it ended.
    pub async fn close(&self, code: u64, reason: &str) {
        self.shared().act(|inner, now| {
            if let Ok(connection) = self.open(inner) {
                connection.close(now, code, reason);
            }
            inner.changed();
        });
        self.shared().flush().await;
    }

    /// Waits for the end of the connection. Several tasks may wait.
    pub async fn closed(&self) -> CloseReason {
        let notify = self.notify();
        loop {
            let changes = notify.state.notified();
            tokio::pin!(changes);
            changes.as_mut().enable();
            if let Some(reason) = self.close_reason() {
                return reason;
            }
            changes.await;
        }
    }

    /// Why the connection has ended, if it has.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.shared().act(|inner, _| inner.ended(self.handle())).map(|reason| self.explain(reason))
    }

    /// Names this end's key where that is what the peer objects to.
    pub(crate) fn explain(&self, reason: CloseReason) -> CloseReason {
        explain(reason, self.0.own)
    }

    pub(crate) fn notify(&self) -> Arc<crate::driver::ConnectionNotify> {
        self.shared().act(|inner, _| inner.connections.entry(self.handle()).or_default().notify())
    }
}

impl Drop for ConnectionRef {
    fn drop(&mut self) {
        self.shared.act(|inner, now| inner.disown(now, self.handle));
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({} of {})", self.0.handle.0, self.local_addr())
    }
}

/// The key that the peer has shown to have.
pub(crate) fn peer_key(connection: &uts_engine::Connection) -> Option<Fingerprint> {
    connection.peer_certificates()?.first().and_then(|first| Fingerprint::of_certificate(first).ok())
}

/// Names this end's key where that is what the peer objects to.
pub(crate) fn explain(reason: CloseReason, own: Option<Fingerprint>) -> CloseReason {
    match reason {
        CloseReason::Refused(why) if objects_to_key(&why) => {
            let own = own.map_or_else(|| "this end has shown none".to_owned(), |own| format!("it is {own}"));
            CloseReason::Refused(format!("{why}; {own}"))
        }
        other => other,
    }
}

/// True if the engine's words about a TLS alert of the peer are about this end's key.
pub(crate) fn objects_to_key(why: &str) -> bool {
    why.contains("this end's key") || why.contains("client key is required")
}
