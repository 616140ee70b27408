//! A connection: a small hub. Each step of the two ways is one call into one function; parts report their next time-out
//! and whether they want to send, the hub takes the minimum and the union.
//!
//! * the way out: [`outgoing`]; the way in: [`incoming`]; what becomes of packets: [`settle`];
//! * [`handshake`], [`establish`]: establishment; [`closing`]: the end; [`exchanges`]: from one profile to the next; [`adapt`]: when
//!   the policy wants one; [`groups`]: when flows have requirements of their own;
//! * [`application`]: what the application does; [`mod@time`]: when something is due;
//!   [`liveness`]: whether the peer is still there.

mod adapt;
mod application;
mod batch;
mod chunks;
mod closing;
mod contents;
mod draft;
mod establish;
mod exchanges;
mod flows;
mod groups;
mod halves;
mod handshake;
mod handshake_memory;
mod inbound;
pub mod incoming;
mod inspect;
pub(crate) mod keys;
mod liveness;
mod machines;
mod memory;
mod messages;
mod meter;
mod outbound;
pub mod outgoing;
mod receive_rate;
mod refusal;
mod rest;
mod run;
mod secrets;
mod settle;
mod size;
mod time;
mod trace;
pub(crate) mod words;

pub(crate) use establish::hello;
pub(crate) use receive_rate::first_credit;

pub use application::{FlowError, FlowOptions, MessageOptions, Read, ReadError, WriteError};
pub use batch::{IntoBatch, MessageBatch, ReadSink, UnevenMessages};
pub use exchanges::{ExchangeError, changes};
pub use flows::Side;
pub(crate) use handshake::{Place, is_authentic, refusal};
pub(crate) use handshake_memory::{HandshakeMemory, Ration};
pub use incoming::Ecn;
pub use refusal::{Refusal, RefusalReason};
pub use trace::{FrameKinds, Trace, TraceKind, TraceRow};

use crate::config::{ConnectionConfig, PACKET_BYTES_BASE, PACKET_BYTES_MIN};
use crate::endpoint::Leave;
use crate::event::{CloseReason, Direction, Event};
use crate::policy::Turns;
use crate::requirements::Security;
use crate::selector::Library;
use bytes::Bytes;
use core::time::Duration;
use flows::{Flows, Token};
use groups::Groups;
use handshake::Handshake;
use inbound::Inbound;
use liveness::Liveness;
use machines::Exchanges;
use outbound::Outbound;
pub(crate) use outbound::PROCESSORS_LIMIT;
use rustls::pki_types::CertificateDer;
use secrets::SecretChain;
use size::PacketSize;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use uts_functions::protection::{self, Secret};
use uts_functions::sequencing::reassembly::Spares;
use uts_functions::{Function, PathFacts, Profile, Time, establishment, fec};
use uts_wire::packet::establishment::Level;
use uts_wire::{ConnectionId, Hello, frame};

/// Control frames of the connection that may wait at once: answers to a peer that asks faster than it listens.
pub(crate) const CONTROL_MAX: usize = 16;

/// A closing connection answers at most this often to what still arrives (RFC 9000 section 10.2.1).
const CLOSES_MAX: u32 = 8;

/// Packets that may wait for the end of the handshake: a first window of them, from whoever sends under this id.
const EARLY_PACKETS_MAX: usize = 16;
const EARLY_BYTES_MAX: usize = 16 * 1024;

/// What a connection has done so far. All counts are of this end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named for what it counts")]
pub struct Stats {
    pub packets_sent: u64,
    pub bytes_sent: u64,
    pub packets_received: u64,
    pub bytes_received: u64,
    pub packets_lost: u64,
    /// Taken for lost, and arrived after all.
    pub packets_late: u64,
    /// Sent, lost, and recovered by the peer from redundancy.
    pub packets_repaired: u64,
    /// Lost on the way here, and recovered from redundancy.
    pub packets_recovered: u64,
    pub repairs_sent: u64,
    pub reports_sent: u64,
    pub data_bytes_sent: u64,
    pub data_bytes_received: u64,
    /// Data that had arrived before.
    pub data_bytes_repeated: u64,
    pub bytes_repeated: u64,
    pub chunks_repeated: u64,
    pub bytes_given_up: u64,
    pub positions_skipped: u64,
    pub messages_expired: u64,
    pub timeouts: u64,
    pub exchanges: u64,
    pub dropped_malformed: u64,
    pub dropped_forged: u64,
    pub dropped_duplicate: u64,
    pub dropped_unknown_epoch: u64,
    pub dropped_overrun: u64,
}

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake,
    Open,
    /// This end has closed; it repeats that to whatever still arrives.
    Closing {
        until: Time,
        said: u32,
        due: bool,
    },
    /// The peer has closed, or nobody is there: nothing is sent any more.
    Draining {
        until: Time,
    },
    /// Nothing is left to do.
    Over,
}

/// A connection to one peer.
pub struct Connection {
    side: Side,
    /// Shared by all that were set up alike.
    config: Arc<ConnectionConfig>,
    remote: SocketAddr,
    /// The address of this host that the peer talks to, where that is known.
    local: Option<IpAddr>,
    local_cid: ConnectionId,
    peer_cid: ConnectionId,
    original_dcid: ConnectionId,
    retry_scid: Option<ConnectionId>,
    phase: Phase,
    /// Until it is confirmed: nothing of it is needed afterwards.
    handshake: Option<Box<Handshake>>,
    peer_certificates: Option<Arc<[CertificateDer<'static>]>>,
    /// Adaptive packets that came before their keys.
    early: Vec<(Option<Ecn>, Vec<u8>)>,
    /// The first profile of both directions, until it is in use.
    proposal: Option<Arc<Profile>>,
    outbound: Option<Outbound>,
    inbound: Option<Inbound>,
    flows: Flows,
    groups: Groups,
    exchanges: Exchanges,
    adaptation: Option<Box<adapt::Adaptation>>,
    /// While the connection rests: the home profile of a policy that has learnt nothing yet.
    home: Option<Arc<Profile>>,
    size: PacketSize,
    events: VecDeque<Event>,
    close_reason: Option<Box<CloseReason>>,
    stats: Stats,
    trace: Trace,
    /// Control of the connection that waits to be sent.
    control: VecDeque<Token>,
    repairs_seen: Vec<fec::Repair>,
    peer_library: Option<Library>,
    peer_allows_unprotected: bool,
    peer_reset_token: Option<[u8; 16]>,
    /// Where what is received is to keep a rate.
    receive_rate: Option<Box<receive_rate::ReceiveRate>>,
    idle_timeout: Duration,
    last_heard_at: Time,
    last_eliciting_at: Time,
    last_write_at: Time,
    liveness: Liveness,
    /// Bytes that the application has handed over.
    bytes_written: u64,
    /// When to look whether the connection may rest; `None` while it does.
    rest_at: Option<Time>,
    /// The peer is at its address; before, at most three times what came from there is sent to it.
    address_proved: bool,
    bytes_from_address: u64,
    bytes_to_address: u64,
    /// The peer has shown that it has finished the handshake.
    confirmed: bool,
    ping_wanted: bool,
    /// The peer has seen our ECN marks, or has not yet had the occasion (RFC 9000 section 13.4.2).
    ecn_passes: bool,
    seed: u64,
}

/// What a connection is made from.
pub(crate) struct Birth {
    pub side: Side,
    pub config: Arc<ConnectionConfig>,
    pub remote: SocketAddr,
    pub local_cid: ConnectionId,
    pub peer_cid: ConnectionId,
    pub original_dcid: ConnectionId,
    pub retry_scid: Option<ConnectionId>,
    pub address_proved: bool,
    /// Bytes of the first datagram that is to be answered; `None` = it is this end that begins.
    pub first_bytes: Option<usize>,
    pub tls: rustls::quic::Connection,
    pub initial: rustls::quic::Keys,
    pub proposal: Arc<Profile>,
    pub seed: u64,
    pub spares: Spares,
    pub ration: Ration,
}

impl Connection {
    pub(crate) fn new(now: Time, birth: Birth) -> Option<Self> {
        let mechanism = establishment::Slot::build(birth.proposal.get(Function::Establishment), ())?;
        let config = birth.config;
        let flows = Flows::new(birth.side, config.clone(), birth.spares);
        let max = config.packet_bytes_max.min(usize::from(u16::MAX));
        let initial = config.packet_bytes_initial.max(PACKET_BYTES_MIN);
        let size = PacketSize::new(now, initial, max);
        // establishment.md
        let datagram_bytes =
            birth.first_bytes.map_or(initial, |first| first.clamp(PACKET_BYTES_MIN, initial));
        Some(Connection {
            side: birth.side,
            handshake: Some(Box::new(Handshake::new(
                now,
                birth.side,
                birth.tls,
                birth.initial,
                mechanism,
                birth.ration,
                datagram_bytes.min(PACKET_BYTES_BASE),
            ))),
            peer_certificates: None,
            early: Vec::new(),
            idle_timeout: config.idle_timeout,
            config,
            remote: birth.remote,
            local: None,
            local_cid: birth.local_cid,
            peer_cid: birth.peer_cid,
            original_dcid: birth.original_dcid,
            retry_scid: birth.retry_scid,
            phase: Phase::Handshake,
            proposal: Some(birth.proposal),
            outbound: None,
            inbound: None,
            flows,
            groups: Groups::default(),
            exchanges: Exchanges::new(),
            adaptation: None,
            home: None,
            size,
            events: VecDeque::new(),
            close_reason: None,
            stats: Stats::default(),
            trace: Trace::default(),
            control: VecDeque::new(),
            repairs_seen: Vec::new(),
            peer_library: None,
            peer_allows_unprotected: false,
            peer_reset_token: None,
            receive_rate: None,
            last_heard_at: now,
            last_eliciting_at: now,
            last_write_at: now,
            liveness: Liveness::new(now),
            bytes_written: 0,
            rest_at: Self::first_rest(now),
            address_proved: birth.address_proved || birth.side == Side::Client,
            bytes_from_address: 0,
            bytes_to_address: 0,
            confirmed: false,
            ping_wanted: false,
            ecn_passes: true,
            seed: birth.seed,
        })
    }

    // ---- getters -------------------------------------------------------------------------------------------------

    /// Which end this is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The peer's address.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        Stats { exchanges: self.exchanges.completed, ..self.stats }
    }

    /// What is known of the path in the direction of the data that this end sends.
    pub fn facts(&self) -> PathFacts {
        let bytes = self.size.current() as u64;
        self.outbound.as_ref().map_or_else(PathFacts::default, |o| o.facts(bytes))
    }

    /// The profile in use; `None` before the handshake is done.
    pub fn profile(&self, direction: Direction) -> Option<Profile> {
        self.outbound.as_ref()?;
        Some(self.profile_of(direction, 0))
    }

    /// The peer's certificate chain, as TLS verified it; empty for a client without one.
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.peer_certificates.as_deref()
    }

    /// Why the connection has ended, if it has.
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.close_reason.as_deref()
    }

    /// Whether the handshake is done and the connection not closed.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Where congestion control is, in words, and its window in bytes.
    pub fn congestion(&self) -> Option<(&'static str, u64)> {
        use uts_functions::congestion::Congestion;
        self.outbound.as_ref().map(|o| (o.congestion.phase(), o.congestion.window_bytes()))
    }

    /// Bytes of packets that were sent and neither acknowledged nor taken for lost; zero once the connection is closed.
    pub fn in_flight_bytes(&self) -> u64 {
        self.outbound.as_ref().filter(|_| self.is_open()).map_or(0, |o| o.delivery.in_flight)
    }

    /// What the next [`Self::poll_transmit`] may do, since others share the way to the peer.
    pub(crate) fn set_leave(&mut self, leave: Leave) {
        self.outbound_mut(|o| o.set_leave(leave));
    }

    /// Whether something has waited for its turn.
    pub(crate) fn has_waited(&self) -> bool {
        self.outbound.as_ref().is_some_and(|o| o.has_waited)
    }

    /// The last round trip, less the peer's delay; `None` = none was measured.
    pub(crate) fn latest_round_trip(&self) -> Option<Duration> {
        self.outbound.as_ref().filter(|o| o.rtt.samples > 0).map(|o| o.rtt.latest)
    }

    /// What packets did, if tracing was asked for.
    pub fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    pub(crate) fn allows_unprotected(&self) -> bool {
        self.config.requirements.security == Security::Unprotected
    }

    pub(crate) fn local_cid(&self) -> &ConnectionId {
        &self.local_cid
    }

    pub(crate) fn local(&self) -> Option<IpAddr> {
        self.local
    }

    pub(crate) fn set_local(&mut self, local: Option<IpAddr>) {
        self.local = local;
    }

    pub(crate) fn original_dcid(&self) -> &ConnectionId {
        &self.original_dcid
    }

    /// The id under which the client's first packets came that this end has answered.
    pub(crate) fn first_cid(&self) -> &ConnectionId {
        self.retry_scid.as_ref().unwrap_or(&self.original_dcid)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether it has ended otherwise than by this end's own wish, and the application has not read all that had arrived.
    pub(crate) fn has_unread(&self) -> bool {
        let is_own = matches!(self.close_reason(), None | Some(CloseReason::Local { .. }));
        !is_own && self.flows.has_unread()
    }

    /// Whether anything of the peer has arrived that is authentic, or that at least somebody sent
    /// who sees the path.
    pub fn has_heard_peer(&self) -> bool {
        self.handshake.as_ref().is_none_or(|handshake| handshake.heard)
    }

    /// Whether it was established, and the peer has closed it.
    pub(crate) fn was_closed_by_peer(&self) -> bool {
        self.outbound.is_some() && matches!(self.close_reason(), Some(CloseReason::Peer { .. }))
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.phase == Phase::Handshake
    }

    pub(crate) fn peer_reset_token(&self) -> Option<&[u8; 16]> {
        self.peer_reset_token.as_ref()
    }

    /// How packets are marked for the network: as capable of ECN, unless the path was found to lose the mark.
    pub(crate) fn ecn(&self) -> Option<Ecn> {
        (self.phase == Phase::Open && self.ecn_passes).then_some(Ecn::Ect0)
    }

    fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    fn outbound_mut(&mut self, change: impl FnOnce(&mut Outbound)) {
        if let Some(outbound) = &mut self.outbound {
            change(outbound);
        }
    }

    // ---- input ---------------------------------------------------------------------------------------------------

    /// Takes in a datagram from the peer's address.
    pub(crate) fn handle_datagram(&mut self, now: Time, ecn: Option<Ecn>, mut datagram: &mut [u8]) {
        self.stats.bytes_received += datagram.len() as u64;
        self.bytes_from_address += datagram.len() as u64;
        let datagram_bytes = datagram.len();
        while let Some(first) = datagram.first() {
            if !uts_wire::packet::is_long(*first) {
                self.handle_short(now, ecn, datagram);
                break;
            }
            let Ok(uts_wire::packet::establishment::LongPacket::Establishment(packet)) =
                uts_wire::packet::establishment::parse_header(datagram)
            else {
                self.stats.dropped_malformed += 1;
                break;
            };
            let (place, scid) = (Place::of(&packet), packet.header.scid);
            self.handle_establishment(now, datagram, datagram_bytes, &place, scid);
            datagram = &mut datagram[place.end..];
        }
    }

    /// All datagrams that came together have been taken in.
    pub(crate) fn after_datagrams(&mut self, now: Time, turns: &mut Turns) {
        // What was forged, or has been here before, is no occasion for anything.
        if self.last_heard_at == now {
            self.renew_keys_if_due(now);
            self.adapt(now, turns);
        }
    }

    fn handle_short(&mut self, now: Time, ecn: Option<Ecn>, packet: &mut [u8]) {
        match self.phase {
            Phase::Open => self.handle_adaptive(now, ecn, packet),
            Phase::Handshake => self.keep_early(ecn, packet),
            _ => self.repeat_close(),
        }
    }

    /// Keeps a packet that overtook the end of the handshake, whose keys are still to come; a client sends its first
    /// window right behind its confirmation.
    fn keep_early(&mut self, ecn: Option<Ecn>, packet: &[u8]) {
        let kept: usize = self.early.iter().map(|(_, packet)| packet.len()).sum();
        let fits = kept + packet.len() <= EARLY_BYTES_MAX && self.early.len() < EARLY_PACKETS_MAX;
        if fits && self.handshake.as_mut().is_some_and(|h| h.ration.take(packet.len())) {
            self.early.push((ecn, packet.to_vec()));
        }
    }

    /// Takes in what came before the keys did.
    fn handle_early(&mut self, now: Time) {
        for (ecn, mut packet) in core::mem::take(&mut self.early) {
            self.handle_short(now, ecn, &mut packet);
        }
    }

    /// Holds the peer's certificates together with the connection that was made before, if they are the same: a client often
    /// has many connections to one server.
    pub(crate) fn share_certificates(&mut self, last: &mut Option<Weak<[CertificateDer<'static>]>>) {
        let Some(own) = &mut self.peer_certificates else { return };
        match last.as_ref().and_then(Weak::upgrade).filter(|last| last == own) {
            Some(last) => *own = last,
            None => *last = Some(Arc::downgrade(own)),
        }
    }

    pub(crate) fn peer_cid(&self) -> &ConnectionId {
        &self.peer_cid
    }

    // ---- output --------------------------------------------------------------------------------------------------

    /// The next thing to tell the application.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Fills `out` with datagrams of one size; says the size.
    pub(crate) fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        if self.phase == Phase::Open {
            self.end_if_keys_are_spent();
        }
        match self.phase {
            Phase::Over | Phase::Draining { .. } => return None,
            Phase::Closing { due: false, .. } => return None,
            Phase::Closing { until, said, due: true } => {
                self.phase = Phase::Closing { until, said: said + 1, due: false };
                return self.write_close(now, out);
            }
            Phase::Handshake | Phase::Open => {}
        }
        if self.handshake.as_ref().is_some_and(|h| h.is_active() && h.wants_to_send()) {
            let before = out.len();
            self.write_handshake(now, out);
            if out.len() > before {
                return Some(self.count_sent(out.len() - before));
            }
        }
        if self.phase != Phase::Open {
            return None;
        }
        self.pursue_groups(now);
        self.hold_limit(now);
        let before = out.len();
        let segment = self.poll_adaptive(now, out)?;
        self.bytes_to_address += (out.len() - before) as u64;
        Some(segment)
    }

    /// Builds a datagram of the handshake, if it has something to say and a whole one may be sent.
    fn write_handshake(&mut self, now: Time, out: &mut Vec<u8>) {
        let room = self.amplification_room();
        if let Some(handshake) = self.handshake.as_mut().filter(|h| room >= h.datagram_bytes) {
            handshake.poll_transmit(now, (self.peer_cid, self.local_cid), out);
        }
    }

    fn count_sent(&mut self, bytes: usize) -> usize {
        self.stats.packets_sent += 1;
        self.stats.bytes_sent += bytes as u64;
        self.bytes_to_address += bytes as u64;
        bytes
    }

    /// What may still be sent to an address that has not been proved (RFC 9000 section 8.1).
    fn amplification_room(&self) -> usize {
        if self.address_proved {
            return usize::MAX;
        }
        let room = (3 * self.bytes_from_address).saturating_sub(self.bytes_to_address);
        usize::try_from(room).unwrap_or(usize::MAX)
    }
}
