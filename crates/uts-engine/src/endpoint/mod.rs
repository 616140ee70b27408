//! An endpoint: many connections behind one address, found by the connection ids that it gave out.
//!
//! Whatever an unauthenticated datagram says, it changes nothing: it is matched, checked, and at
//! most answered with less than three times its size.
//!
//! * what comes in: [`routing`], which finds its connection in the [`routes`]; connections that
//!   others begin: [`accepting`], what is known of clients that come: [`door`], places of
//!   connections, and which of them give theirs up: [`places`], what is held from where: [`crowd`];
//!   connections that go elsewhere: [`following`]; what belongs to no connection: [`strangers`];
//! * what goes out: here; connections that have something to send, to tell, or to do, and when:
//!   [`agenda`];
//! * what connections share: [`shared`]; whose turn it is on the way to one address: [`peers`];
//!   what endpoints at one port share: [`workers`].

mod accepting;
mod agenda;
pub(crate) mod budget;
mod crowd;
mod door;
mod first_profile;
mod following;
pub(crate) mod history;
mod ids;
mod limits;
mod peers;
mod places;
mod reflectors;
mod routes;
mod routing;
mod shared;
mod stops;
mod strangers;
mod table;
pub(crate) mod tickets;
mod workers;

pub(crate) use strangers::is_same;
pub use workers::{STEERING_BYTES, WORKERS_MAX, Worker, worker_of};

use crate::config::{ConnectionConfig, EndpointConfig};
use crate::connection::{self, Birth, Connection, EARLY_BYTES_MAX, Ecn, Prepared, Side, Trace};
use crate::event::{ConnectionHandle, Event};
use crate::host::HostFacts;
use crate::selector::Contradiction;
use agenda::Agenda;
use budget::Stores;
use bytes::Bytes;
use door::{Answer, Door};
use first_profile::first_profile;
use ids::OwnIds;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use routes::Routes;
use rustls::pki_types::ServerName;
use rustls::quic::{self, Keys};
use shared::Shared;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use table::{Entry, Table};
use tickets::early_keys;
use uts_functions::{Profile, Time};
use uts_wire::ConnectionId;
use uts_wire::library::Ticket;

/// Random ids that are tried before they count as used up.
const CID_TRIES: usize = 1000;

/// The client's first connection id is this long (RFC 9000 section 7.2 asks for at least 8 bytes).
const FIRST_CID_BYTES: usize = 8;

/// A batch of datagrams to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub remote: SocketAddr,
    /// From which address of this host: the one that the peer knows. `None` = any.
    pub local: Option<IpAddr>,
    /// Mark of its datagrams for the network.
    pub ecn: Option<Ecn>,
    /// Bytes of each datagram in the buffer; the last may be shorter.
    pub segment_bytes: usize,
}

/// Why a connection could not be begun.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The requirements contradict each other.
    #[error("{0}")]
    Contradiction(#[from] Contradiction),
    /// TLS does not accept the settings.
    #[error("TLS settings: {0}")]
    Tls(#[from] rustls::Error),
    /// The TLS settings lack TLS 1.3 with AES-128-GCM, which protects first packets.
    #[error("the TLS settings lack the cipher suite TLS13_AES_128_GCM_SHA256")]
    NoInitialSuite,
    /// The endpoint has as many connections as it may.
    #[error("{0} connections are open, which is the most that are allowed")]
    TooMany(usize),
    /// The early request is too long, in bytes.
    #[error("the early request has {0} bytes, where at most {EARLY_BYTES_MAX} fit")]
    LongRequest(usize),
}

/// Many connections behind one address.
pub struct Endpoint {
    config: EndpointConfig,
    /// Settings of accepted connections, which share them.
    accept: Arc<ConnectionConfig>,
    /// Their first profile, unless the client proposes another.
    accept_profile: Arc<Profile>,
    /// Settings under which a profile was last proposed, and that profile.
    proposed: Option<(Arc<ConnectionConfig>, Arc<Profile>)>,
    rng: ChaCha20Rng,
    ids: OwnIds,
    connections: Table,
    routes: Routes,
    agenda: Agenda,
    door: Door,
    shared: Shared,
    /// The connection that datagrams were taken in for last, and the id by which, until what they
    /// made due is looked at.
    taking: Option<(ConnectionHandle, ConnectionId)>,
    /// The connection whose batch was sent last.
    sender: Option<ConnectionHandle>,
    /// The address of this host to which the datagram came that is being taken in.
    arrived_at: Option<IpAddr>,
    /// Connections are traced from their first packet on.
    traces_all: bool,
    initial: Option<quic::Suite>,
    /// Datagrams that belonged to nothing, or that could not be read.
    pub strangers: u64,
}

impl Endpoint {
    /// An endpoint whose random choices (connection ids, tokens, the spread of probes) follow from
    /// `seed`.
    pub fn new(config: EndpointConfig, seed: [u8; 32]) -> Self {
        let mut rng = ChaCha20Rng::from_seed(seed);
        let door = Door::new(&config, &mut rng);
        Endpoint {
            ids: OwnIds::new(&config.secret, config.cid_bytes, door.worker.clone()),
            door,
            shared: Shared::new(&config),
            accept_profile: Arc::new(first_profile(&config.accept)),
            proposed: None,
            accept: Arc::new(config.accept.clone()),
            config,
            rng,
            connections: Table::default(),
            routes: Routes::default(),
            agenda: Agenda::default(),
            taking: None,
            sender: None,
            arrived_at: None,
            traces_all: false,
            initial: initial_suite(),
            strangers: 0,
        }
    }

    /// Begins a connection.
    ///
    /// `early` = a request that goes with its first flight, by a ticket of the same server
    /// ([`Event::Ticket`]), which is used up by it. The request must be one that may be done twice
    /// (`safelyReplayable`, RFC 9622). [`Event::EarlyAnswer`] tells what comes of it.
    ///
    /// # Errors
    /// [`ConnectError`] if the requirements contradict each other, TLS does not accept its
    /// settings, or the request is too long.
    pub fn connect(
        &mut self,
        now: Time,
        remote: SocketAddr,
        server_name: ServerName<'static>,
        tls: Arc<rustls::ClientConfig>,
        config: impl Into<Arc<ConnectionConfig>>,
        early: Option<(Ticket, Bytes)>,
    ) -> Result<ConnectionHandle, ConnectError> {
        if let Some((_, request)) = early.as_ref().filter(|(_, request)| request.len() > EARLY_BYTES_MAX) {
            return Err(ConnectError::LongRequest(request.len()));
        }
        let config = config.into();
        let taken = {
            let counts = self.door.counts();
            counts.own + counts.places
        };
        if taken >= self.config.connections_max {
            return Err(ConnectError::TooMany(self.config.connections_max));
        }
        let proposal = match &self.proposed {
            Some((of, proposal)) if Arc::ptr_eq(of, &config) => Arc::clone(proposal),
            _ => {
                let proposal = Arc::new(first_profile::proposal(&config)?);
                self.proposed = Some((Arc::clone(&config), Arc::clone(&proposal)));
                proposal
            }
        };
        let local_cid = self.new_cid(remote).ok_or(ConnectError::TooMany(self.connections.len()))?;
        let original_dcid = self.random_cid(FIRST_CID_BYTES);
        let stores = Stores::new(&self.shared.budget, self.shared.spares.clone(), &config);
        let first = stores.first_credit;
        let params = connection::hello(&config, first, local_cid, (None, None), None, Some(&proposal), None);
        let tls = quic::ClientConnection::new(tls, quic::Version::V1, server_name, params)?;
        let initial =
            self.initial_keys(&original_dcid, rustls::Side::Client).ok_or(ConnectError::NoInitialSuite)?;
        let birth = Birth {
            side: Side::Client,
            config,
            remote,
            local_cid,
            peer_cid: original_dcid,
            original_dcid,
            retry_scid: None,
            address_proved: true,
            first_bytes: None,
            tls: quic::Connection::Client(tls),
            initial,
            proposal,
            seed: self.rng.next_u64(),
            stores,
            ration: self.door.handshake_memory.own_ration(),
            known: self.shared.history.of(remote.ip(), now),
            early: self.initial.as_ref().zip(early).map(|(suite, (ticket, request))| Prepared::Request {
                keys: early_keys(suite, &ticket.secret, &original_dcid, rustls::Side::Client),
                words: Bytes::copy_from_slice(&ticket.words),
                request,
            }),
        };
        let connection = Connection::new(now, birth).ok_or(ConnectError::NoInitialSuite)?;
        Ok(self.insert(connection))
    }

    fn insert(&mut self, mut connection: Connection) -> ConnectionHandle {
        if self.traces_all {
            connection.trace().start();
        }
        if self.config.probes.is_on() {
            connection.trace().probe(self.config.probes.clone());
        }
        let (remote, local_cid) = (connection.remote(), *connection.local_cid());
        self.door.handshakes += usize::from(connection.side() == Side::Server);
        self.door.counts().own += usize::from(connection.side() == Side::Client);
        let handle = self.connections.insert(connection, self.shared.peers.join(remote));
        self.routes.add(remote, local_cid, handle);
        self.touch(handle);
        handle
    }

    fn random_cid(&mut self, bytes: usize) -> ConnectionId {
        let mut id = [0; 20];
        let bytes = bytes.min(id.len());
        self.rng.fill_bytes(&mut id[..bytes]);
        ConnectionId::new(&id[..bytes]).unwrap_or(ConnectionId::EMPTY)
    }

    /// An id that no connection has; `None` if they are (nearly) used up.
    fn new_cid(&mut self, remote: SocketAddr) -> Option<ConnectionId> {
        // Ids so short that they are used up: longer ones could not be told apart from them.
        for _ in 0..CID_TRIES {
            let id = self.ids.draw(&mut self.rng, remote);
            if id.is_empty() || !self.routes.knows(&id) {
                return Some(id);
            }
        }
        None
    }

    // K-13
    fn initial_keys(&self, dcid: &ConnectionId, side: rustls::Side) -> Option<Keys> {
        Some(self.initial.as_ref()?.keys(dcid.as_slice(), side, quic::Version::V1))
    }

    // ---- access
    // --------------------------------------------------------------------------------

    /// A connection, to look at or to change. What a change makes due is found by the next poll.
    pub fn connection(&mut self, handle: ConnectionHandle) -> Option<&mut Connection> {
        // The caller may write, close or ask for an exchange: whether it did is found out when
        // sending.
        self.touch(handle);
        Some(&mut self.connections.get_mut(handle)?.connection)
    }

    /// A connection, to look at.
    pub fn peek(&self, handle: ConnectionHandle) -> Option<&Connection> {
        self.connections.get(handle).map(|entry| &entry.connection)
    }

    /// Trace of a connection's packets. Unlike [`Endpoint::connection`] it changes no connection's
    /// turn to send.
    pub fn trace(&mut self, handle: ConnectionHandle) -> Option<&mut Trace> {
        self.connections.get_mut(handle).map(|entry| entry.connection.trace())
    }

    /// Traces all connections from their first packet on, that begin from now on.
    pub fn trace_all(&mut self) {
        self.traces_all = true;
    }

    /// The connection of the last batch that [`Endpoint::poll_transmit`] has given; `None` for an
    /// answer to a stranger, and before the first.
    pub fn last_sender(&self) -> Option<ConnectionHandle> {
        self.sender
    }

    /// Takes in what was measured of the host. What its owner does not know stays `None`, and
    /// changes nothing.
    pub fn on_host(&mut self, now: Time, measured: HostFacts) {
        self.shared.turns.host.on_measured(now, measured);
    }

    /// Takes the advice of a manager, which counts more than what was measured, until other advice
    /// comes.
    pub fn advise(&mut self, now: Time, advice: HostFacts) {
        self.shared.turns.host.on_advice(now, advice);
    }

    /// Facts of the host as they were told: advice, and what was measured where there is none.
    pub fn host(&self) -> HostFacts {
        self.shared.turns.host.told()
    }

    /// Advice that was taken.
    pub fn advice(&self) -> HostFacts {
        self.shared.turns.host.advised()
    }

    /// Bytes of [`EndpointConfig::memory_bytes_max`] that connections hold, or have been promised,
    /// beyond the least that each has.
    pub fn memory_drawn(&self) -> usize {
        self.shared.budget.drawn()
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// All connections, in no particular order.
    pub fn handles(&self) -> impl Iterator<Item = ConnectionHandle> + '_ {
        self.connections.handles()
    }

    /// True if there is no connection.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    // ---- input
    // --------------------------------------------------------------------------------

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.agenda.settle(&mut self.connections);
        self.notice_stop(now);
        let due = self.agenda.take_due(now, &mut self.connections);
        for handle in due.iter().copied() {
            if let Some(Entry { connection, share, .. }) = self.connections.get_mut(handle) {
                let was_handshaking = connection.is_handshaking();
                connection.handle_timeout(now, &mut self.shared.turns);
                self.shared.peers.on_news(now, share, connection.in_flight_bytes(), None);
                if was_handshaking && connection.side() == Side::Server && !connection.is_handshaking() {
                    self.door.on_handshake_over();
                }
            }
            self.follow(handle);
            self.touch(handle);
            self.call_waiting(handle);
        }
        self.agenda.done(due);
    }

    /// The network says that nobody listens at the port of `remote`, or that there is no way to it
    /// (ICMP): its connections ask whether it is so. What is said may be forged, and ends nothing.
    pub fn on_unreachable(&mut self, now: Time, remote: SocketAddr) {
        let of_remote: Vec<_> = self
            .connections
            .handles()
            .filter(|handle| self.peek(*handle).is_some_and(|connection| connection.remote() == remote))
            .collect();
        for handle in of_remote {
            if let Some(entry) = self.connections.get_mut(handle) {
                entry.connection.on_unreachable(now);
            }
            self.touch(handle);
        }
    }

    /// A connection has changed: it may have something to send and to tell, and its deadline may be
    /// another.
    fn touch(&mut self, handle: ConnectionHandle) {
        if let Some(entry) = self.connections.get_mut(handle) {
            self.agenda.touch(handle, entry);
        }
    }

    /// Calls those that wait for their turn to send to the peer of this connection, as far as there
    /// is room.
    fn call_waiting(&mut self, of: ConnectionHandle) {
        while let Some(next) =
            self.connections.get(of).and_then(|entry| self.shared.peers.next_turn(&entry.share))
        {
            if let Some(entry) = self.connections.get_mut(next) {
                self.shared.peers.call(&mut entry.share);
                self.agenda.call(next, entry);
            }
        }
    }

    // ---- output
    // --------------------------------------------------------------------------------

    /// Fills `buffer` with datagrams of one size for one peer. Connections take turns.
    pub fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<Transmit> {
        buffer.clear();
        self.poll_transmit_more(now, buffer)
    }

    /// The same, behind what `buffer` holds already.
    pub fn poll_transmit_more(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<Transmit> {
        self.agenda.polled_at = now;
        if let Some(Answer { remote, local, bytes }) = self.door.next_answer() {
            buffer.extend_from_slice(&bytes);
            self.sender = None;
            return Some(Transmit { remote, local, ecn: None, segment_bytes: bytes.len() });
        }
        while let Some(handle) = self.agenda.next_ready() {
            let Some(entry) = self.connections.get_mut(handle) else { continue };
            let connection = &mut entry.connection;
            let allowance = self.shared.peers.allowance_of(&entry.share);
            let polled = connection.poll_transmit(now, allowance, buffer);
            self.shared.peers.on_polled(handle, &mut entry.share, connection.in_flight_bytes(), polled);
            let aside = if polled.is_aside { connection.aside_place() } else { None };
            let (remote, local, ecn) = match aside {
                Some(place) => (place.remote, place.local, None),
                None => (connection.remote(), connection.local(), connection.ecn(now)),
            };
            entry.is_ready = polled.has_more;
            self.agenda.doubt(handle, entry);
            if entry.is_ready {
                self.agenda.stay_ready(handle);
            }
            self.call_waiting(handle);
            if let Some(segment_bytes) = polled.segment_bytes {
                self.sender = Some(handle);
                return Some(Transmit { remote, local, ecn, segment_bytes });
            }
            self.drop_if_over(handle);
        }
        None
    }

    /// The next thing to tell the application.
    pub fn poll_event(&mut self) -> Option<(ConnectionHandle, Event)> {
        while let Some(handle) = self.agenda.first_telling() {
            let entry = self.connections.get_mut(handle);
            if let Some(entry) = entry {
                if let Some(event) = entry.connection.poll_event() {
                    return Some((handle, event));
                }
                entry.is_telling = false;
            }
            self.agenda.end_telling();
            self.drop_if_over(handle);
        }
        None
    }

    /// Nobody will read any more of a connection: once it has ended, nothing of it is kept.
    pub fn release(&mut self, handle: ConnectionHandle) {
        if let Some(entry) = self.connections.get_mut(handle) {
            entry.is_released = true;
            self.agenda.tell(handle, entry);
        }
    }

    /// Forgets a connection that has told everything and has nothing left to do. What its peer has
    /// sent, and takes for delivered, stays until it is read, or [released](Self::release).
    fn drop_if_over(&mut self, handle: ConnectionHandle) {
        let Some(entry) = self.connections.get_mut(handle) else { return };
        let connection = &entry.connection;
        if !connection.is_over() || entry.is_telling {
            return;
        }
        self.agenda.forget(handle, entry);
        let is_kept = entry.connection.has_unread() && !entry.is_released;
        if let Some((host, learnt)) = entry.connection.learnt_of() {
            self.shared.history.note(host, learnt);
        }
        self.routes.forget(handle, entry);
        self.shared.peers.on_news(Time::ZERO, &mut entry.share, 0, None);
        if !is_kept {
            self.shared.peers.leave(&mut entry.share);
            self.door.counts().own -= usize::from(entry.connection.side() == Side::Client);
            self.leave_place(handle);
            self.connections.remove(handle);
            self.door.accepted.retain(|h| *h != handle);
        }
    }
}

/// The suite of first packets (RFC 9001 section 5.2).
pub(crate) fn initial_suite() -> Option<quic::Suite> {
    rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite())
}
