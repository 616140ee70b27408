//! An endpoint: many connections behind one address, found by the connection ids that it gave out.
//!
//! Whatever an unauthenticated datagram says, it changes nothing: it is matched, checked, and at
//! most answered with less than three times its size.
//!
//! * what comes in: [`routing`]; connections that others begin: [`accepting`], who has a place and
//!   who gives one up: [`places`], what is held from where: [`crowd`]; connections that go
//!   elsewhere: [`following`]; what belongs to no connection: [`strangers`];
//! * what goes out, and what is due: here; whose turn it is on the way to one address: [`peers`].

mod accepting;
pub(crate) mod budget;
mod crowd;
mod first_profile;
mod following;
pub(crate) mod history;
mod ids;
mod limits;
mod peers;
mod places;
mod reflectors;
mod routing;
mod stops;
mod strangers;
mod table;

pub(crate) use strangers::is_same;

use crate::config::{ConnectionConfig, EndpointConfig};
use crate::connection::{self, Birth, Connection, Ecn, HandshakeMemory, Side, Trace};
use crate::event::{ConnectionHandle, Event};
use crate::policy::Turns;
use crate::selector::Contradiction;
use crate::token::TokenKeys;
use budget::{Budget, Stores};
use crowd::Crowd;
use first_profile::first_profile;
use following::ResetKey;
use history::History;
use ids::OwnIds;
use limits::ResetLimit;
use peers::Peers;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::ServerName;
use rustls::quic::{self, Keys};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use table::{ByOwnId, ByRemote, Entry, Table};
use uts_functions::sequencing::reassembly::Spares;
use uts_functions::{Profile, Time};
use uts_wire::ConnectionId;

/// Answers to strangers (retries, refusals, resets) that may wait to be sent: more are not worth
/// the memory.
const ANSWERS_MAX: usize = 64;

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
    /// How to mark it.
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
}

/// An answer to a stranger.
struct Answer {
    remote: SocketAddr,
    local: Option<IpAddr>,
    bytes: Vec<u8>,
}

/// Many connections behind one address.
pub struct Endpoint {
    config: EndpointConfig,
    /// Settings of accepted connections, which share them.
    accept: Arc<ConnectionConfig>,
    /// Their first profile, unless the client proposes another.
    accept_profile: Arc<Profile>,
    /// What was last proposed, and under which settings.
    proposed: Option<(Arc<ConnectionConfig>, Arc<Profile>)>,
    rng: ChaCha20Rng,
    tokens: Option<TokenKeys>,
    ids: OwnIds,
    reset_limit: ResetLimit,
    connections: Table,
    by_cid: ByOwnId,
    /// Connections without an id of their own, and handshakes by the client's first id.
    by_remote: ByRemote,
    by_first: HashMap<(SocketAddr, ConnectionId), ConnectionHandle>,
    /// Connections by the word with which their peer says that it has forgotten them. Looked up
    /// through a keyed hash, so that the time it takes says nothing of the word (RFC 9000 section
    /// 10.3.1).
    by_reset: HashMap<ResetKey, ConnectionHandle>,
    /// Connections by the instant at which something is due, or was when that was last looked at. A
    /// deadline moves with each packet: one that has become later is put right when it stands
    /// first.
    timers: BTreeSet<(Time, ConnectionHandle)>,
    /// When whoever carries this endpoint was told to come back; `NEVER` = he has.
    expected: Time,
    polled_at: Time,
    /// Connections whose deadlines may have changed.
    stale: Vec<ConnectionHandle>,
    /// What is due: kept for its memory.
    due: Vec<ConnectionHandle>,
    /// Connections that may have something to send, in turn.
    ready: VecDeque<ConnectionHandle>,
    /// Connections that may have something to tell, in turn.
    telling: VecDeque<ConnectionHandle>,
    accepted: VecDeque<ConnectionHandle>,
    /// Counts of what is held from each address.
    crowd: Crowd,
    /// Connections that others have begun and whose handshake is done, how many of them have shown
    /// keys, and those that this end has begun.
    places: usize,
    places_of_keys: usize,
    own: usize,
    /// What the last peer to show any has shown.
    certificates: Option<Weak<[CertificateDer<'static>]>>,
    /// What they have in flight, by peer.
    peers: Peers,
    /// What those that are gone had learnt, by host.
    history: History,
    /// What they may spend on adaptation.
    turns: Turns,
    answers: VecDeque<Answer>,
    /// Large buffers for what flows receive.
    spares: Spares,
    /// Memory for what peers make connections hold.
    budget: Budget,
    /// The connection that datagrams were taken in for last, and the id by which, until what they
    /// made due is looked at.
    taking: Option<(ConnectionHandle, ConnectionId)>,
    /// The connection whose batch was sent last.
    sender: Option<ConnectionHandle>,
    /// The address of this host to which the datagram came that is being taken in.
    arrived_at: Option<IpAddr>,
    handshakes: usize,
    handshake_memory: HandshakeMemory,
    /// Whether connections are traced from their first packet on.
    traces_all: bool,
    refusing: bool,
    initial: Option<quic::Suite>,
    /// Datagrams that belonged to nothing, or that could not be read.
    pub strangers: u64,
}

impl Endpoint {
    /// An endpoint whose random choices (connection ids, tokens, the spread of probes) follow from
    /// `seed`.
    pub fn new(config: EndpointConfig, seed: [u8; 32]) -> Self {
        let mut rng = ChaCha20Rng::from_seed(seed);
        let mut token_key = [0; 32];
        rng.fill_bytes(&mut token_key);
        let peers = Peers::new(config.waiting_bytes_max);
        let crowd = Crowd::new(config.connections_per_address_max);
        let handshake_memory = HandshakeMemory::new(config.handshake_bytes_max);
        Endpoint {
            tokens: TokenKeys::new(&token_key),
            ids: OwnIds::new(&config.secret, config.cid_bytes),
            reset_limit: ResetLimit::new(rng.next_u64()),
            accept_profile: Arc::new(first_profile(&config.accept)),
            proposed: None,
            accept: Arc::new(config.accept.clone()),
            rng,
            connections: Table::default(),
            by_cid: ByOwnId::default(),
            by_remote: ByRemote::default(),
            by_first: HashMap::new(),
            by_reset: HashMap::new(),
            timers: BTreeSet::new(),
            expected: Time::NEVER,
            polled_at: Time::ZERO,
            stale: Vec::new(),
            due: Vec::new(),
            ready: VecDeque::new(),
            telling: VecDeque::new(),
            accepted: VecDeque::new(),
            crowd,
            places: 0,
            places_of_keys: 0,
            own: 0,
            certificates: None,
            peers,
            budget: Budget::new(config.memory_bytes_max),
            config,
            history: History::default(),
            turns: Turns::default(),
            answers: VecDeque::new(),
            spares: Spares::default(),
            taking: None,
            sender: None,
            arrived_at: None,
            handshakes: 0,
            handshake_memory,
            traces_all: false,
            refusing: false,
            initial: initial_suite(),
            strangers: 0,
        }
    }

    /// Begins a connection.
    ///
    /// # Errors
    /// [`ConnectError`] if the requirements contradict each other or TLS does not accept its
    /// settings.
    pub fn connect(
        &mut self,
        now: Time,
        remote: SocketAddr,
        server_name: ServerName<'static>,
        tls: Arc<rustls::ClientConfig>,
        config: impl Into<Arc<ConnectionConfig>>,
    ) -> Result<ConnectionHandle, ConnectError> {
        let config = config.into();
        if self.own + self.places >= self.config.connections_max {
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
        let stores = Stores::new(&self.budget, self.spares.clone(), &config);
        let first = stores.first_credit;
        let params = connection::hello(&config, first, local_cid, (None, None), None, Some(&proposal));
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
            ration: self.handshake_memory.own_ration(),
            known: self.history.of(remote.ip(), now),
        };
        let connection = Connection::new(now, birth).ok_or(ConnectError::NoInitialSuite)?;
        Ok(self.insert(connection))
    }

    fn insert(&mut self, mut connection: Connection) -> ConnectionHandle {
        if self.traces_all {
            connection.trace().start();
        }
        let (remote, local_cid) = (connection.remote(), *connection.local_cid());
        self.handshakes += usize::from(connection.side() == Side::Server);
        self.own += usize::from(connection.side() == Side::Client);
        let handle = self.connections.insert(connection, self.peers.join(remote));
        if local_cid.is_empty() {
            self.by_remote.insert(remote, handle);
        } else {
            self.by_cid.insert(local_cid, handle);
        }
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
            if id.is_empty() || !self.by_cid.contains_key(&id) {
                return Some(id);
            }
        }
        None
    }

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

    /// What packets of a connection did. Unlike [`Endpoint::connection`] it changes no connection's
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

    /// Bytes of [`EndpointConfig::memory_bytes_max`] that connections hold, or have been promised,
    /// beyond the least that each has.
    pub fn memory_drawn(&self) -> usize {
        self.budget.drawn()
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// All connections, in no particular order.
    pub fn handles(&self) -> impl Iterator<Item = ConnectionHandle> + '_ {
        self.connections.handles()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    // ---- input
    // --------------------------------------------------------------------------------

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.settle_deadlines();
        self.notice_stop(now);
        // Each once: what is due may be something to send, which the next poll takes away.
        let mut due = core::mem::take(&mut self.due);
        while let Some((at, handle)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, handle));
            let Some(entry) = self.connections.get_mut(handle) else { continue };
            if entry.deadline <= now {
                entry.timer = Time::NEVER;
                due.push(handle);
            } else {
                self.timers.extend(entry.set_timer(handle));
            }
        }
        for handle in due.drain(..) {
            if let Some(Entry { connection, share, .. }) = self.connections.get_mut(handle) {
                let was_handshaking = connection.is_handshaking();
                connection.handle_timeout(now, &mut self.turns);
                self.peers.on_news(now, share, connection.in_flight_bytes(), None);
                if was_handshaking && connection.side() == Side::Server && !connection.is_handshaking() {
                    self.handshakes = self.handshakes.saturating_sub(1);
                }
            }
            self.follow(handle);
            self.touch(handle);
            self.call_waiting(handle);
        }
        self.due = due;
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
        let Some(entry) = self.connections.get_mut(handle) else { return };
        enlist(&mut entry.is_ready, || self.ready.push_back(handle));
        enlist(&mut entry.is_telling, || self.telling.push_back(handle));
        enlist(&mut entry.is_stale, || self.stale.push(handle));
    }

    /// Calls those that wait for their turn to send to the peer of this connection, as far as there
    /// is room.
    fn call_waiting(&mut self, of: ConnectionHandle) {
        while let Some(next) = self.connections.get(of).and_then(|entry| self.peers.next_turn(&entry.share)) {
            if let Some(entry) = self.connections.get_mut(next) {
                self.peers.call(&mut entry.share);
                enlist(&mut entry.is_ready, || self.ready.push_back(next));
            }
        }
    }

    /// Asks connections that have changed when something is due. Those that wait for their turn to
    /// send are asked after it: what is due may be just that, and while many wait it would be found
    /// due again and again.
    fn settle_deadlines(&mut self) {
        while let Some(handle) = self.stale.pop() {
            let Some(entry) = self.connections.get_mut(handle) else { continue };
            entry.is_stale = false;
            if !entry.is_ready {
                settle_deadline(handle, entry, &mut self.timers);
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
        self.polled_at = now;
        if let Some(Answer { remote, local, bytes }) = self.answers.pop_front() {
            buffer.extend_from_slice(&bytes);
            self.sender = None;
            return Some(Transmit { remote, local, ecn: None, segment_bytes: bytes.len() });
        }
        while let Some(handle) = self.ready.pop_front() {
            let Some(entry) = self.connections.get_mut(handle) else { continue };
            let connection = &mut entry.connection;
            let allowance = self.peers.allowance_of(&entry.share);
            let polled = connection.poll_transmit(now, allowance, buffer);
            self.peers.on_polled(handle, &mut entry.share, connection.in_flight_bytes(), polled);
            let aside = if polled.is_aside { connection.aside_place() } else { None };
            let (remote, local, ecn) = match aside {
                Some(place) => (place.remote, place.local, None),
                None => (connection.remote(), connection.local(), connection.ecn(now)),
            };
            entry.is_ready = polled.has_more;
            enlist(&mut entry.is_stale, || self.stale.push(handle));
            if entry.is_ready {
                self.ready.push_back(handle);
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
        while let Some(handle) = self.telling.front().copied() {
            let entry = self.connections.get_mut(handle);
            if let Some(entry) = entry {
                if let Some(event) = entry.connection.poll_event() {
                    return Some((handle, event));
                }
                entry.is_telling = false;
            }
            self.telling.pop_front();
            self.drop_if_over(handle);
        }
        None
    }

    /// Nobody will read any more of a connection: once it has ended, nothing of it is kept.
    pub fn release(&mut self, handle: ConnectionHandle) {
        if let Some(entry) = self.connections.get_mut(handle) {
            entry.is_released = true;
            enlist(&mut entry.is_telling, || self.telling.push_back(handle));
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
        self.timers.remove(&(entry.timer, handle));
        entry.timer = Time::NEVER;
        let is_kept = connection.has_unread() && !entry.is_released;
        if let Some((host, learnt)) = connection.learnt_of() {
            self.history.note(host, learnt);
        }
        let (remote, first_cid) = (entry.first_remote, *connection.first_cid());
        for id in connection.own_ids().chain([connection.local_cid()]) {
            if self.by_cid.get(id) == Some(&handle) {
                self.by_cid.remove(id);
            }
        }
        if self.by_remote.get(&remote) == Some(&handle) {
            self.by_remote.remove(&remote);
        }
        if self.by_first.get(&(remote, first_cid)) == Some(&handle) {
            self.by_first.remove(&(remote, first_cid));
        }
        if let Some(key) = entry.reset.take() {
            self.by_reset.remove(&*key);
        }
        self.peers.on_news(Time::ZERO, &mut entry.share, 0, None);
        if !is_kept {
            self.peers.leave(&mut entry.share);
            self.own -= usize::from(entry.connection.side() == Side::Client);
            self.leave_place(handle);
            self.connections.remove(handle);
            self.accepted.retain(|h| *h != handle);
        }
    }
}

/// Asks a connection when something is due.
fn settle_deadline(
    handle: ConnectionHandle,
    entry: &mut Entry,
    timers: &mut BTreeSet<(Time, ConnectionHandle)>,
) {
    entry.deadline = entry.connection.poll_timeout().unwrap_or(Time::NEVER);
    // One that has become later is put right when it stands first.
    if entry.deadline < entry.timer {
        timers.remove(&(entry.timer, handle));
        timers.extend(entry.set_timer(handle));
    }
}

/// Puts a connection into a list, unless its flag says that it is in it.
fn enlist(is_in: &mut bool, put: impl FnOnce()) {
    if !core::mem::replace(is_in, true) {
        put();
    }
}

/// The suite of first packets (RFC 9001 section 5.2).
fn initial_suite() -> Option<quic::Suite> {
    rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite())
}
