//! A connection to one peer: a hub over the ways out and in, and over parts that own their frames.
//!
//! Begin with [`hub`]: the two ways, and time, as lists. The fate of packets is in [`settle`],
//! what the ways share in [`ways`], a packet under construction in [`packet`]. A part is in
//! [`parts`]; it has frames of its own. A connection that is open is another type than one that is
//! not yet ([`stage`]); which it is is asked once, at the [`door`].
//!
//! * [`establish`]: from a first packet to keys and profiles; [`life`]: whether the peer is there,
//!   rest, and the end; [`migration`]: when one of the ends is reached at another address;
//! * [`send`], [`receive`]: epochs, batches, runs of packets that are alike; [`flows`]: what the
//!   application does;
//! * [`agreement`]: from one profile to the next, when the policy or a group of flows wants one;
//! * [`watch`]: statistics, traces, what is known of the path.

mod agreement;
mod allowance;
mod door;
mod establish;
mod flows;
mod hub;
mod identity;
#[cfg(debug_assertions)]
mod invariants;
pub(crate) mod life;
mod marking;
mod migration;
mod packet;
mod parts;
mod receive;
mod recovery;
mod secrets;
mod send;
mod settle;
mod stage;
#[cfg(test)]
mod testing;
mod watch;
mod ways;

pub(crate) use allowance::{Admission, Allowance, Polled};
pub(crate) use establish::early::{Prepared, SharedTickets};
pub(crate) use establish::established::hello;
pub(crate) use establish::handshake::refusal;
pub(crate) use establish::handshake_memory::{HandshakeMemory, Ration};
pub(crate) use establish::protection::{Place, is_authentic};
pub(crate) use establish::words;
pub(crate) use flows::incoming::but_for_flows;
pub(crate) use life::keys;
pub(crate) use migration::{News, PeerPlace};
pub(crate) use receive::receive_rate::first_credit;
pub(crate) use send::outbound::PROCESSORS_LIMIT;

pub use agreement::exchanges::{ExchangeError, changes};
pub use agreement::refusal::{Refusal, RefusalReason};
pub use establish::early::{EARLY_BYTES_MAX, EarlyError, EarlyRequest};
pub use flows::Side;
pub use flows::batch::{IntoBatch, MessageBatch, ReadSink, UnevenMessages};
pub use flows::interface::{
    After, FlowError, FlowOptions, Made, MessageOptions, Read, ReadError, WriteError,
};
pub use flows::tagged::{FindMemory, Memory};
pub use receive::incoming::Ecn;
pub use receive::presentations::Presented;
pub use watch::stats::Stats;
pub use watch::trace::{FrameKinds, HandshakeLevel, HandshakeRow, Trace, TraceKind, TraceRow};

use crate::config::{ConnectionConfig, PACKET_BYTES_BASE};
use crate::endpoint::budget::Stores;
use crate::endpoint::history::Known;
use crate::event::{CloseReason, Direction, Event};
use crate::requirements::Security;
use agreement::Agreement;
use core::time::Duration;
use establish::Establishing;
use establish::handshake::Handshake;
use flows::Flows;
use identity::Identity;
use life::{Life, Phase};
use receive::inbound::Inbound;
use rustls::pki_types::CertificateDer;
use send::outbound::Outbound;
use stage::{Core, Fresh, Open};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use uts_functions::congestion::Congestion as _;
use uts_functions::{Function, PathFacts, Profile, Rate, Time, establishment};
use uts_wire::ConnectionId;
use uts_wire::packet::{is_long, peek_epoch};
use ways::Ways;

/// A connection to one peer.
pub struct Connection {
    state: State,
}

/// State of a connection: the stage that it is in. Whether it has ended is in its [`Life`].
#[expect(clippy::large_enum_variant, reason = "all but new ones are open, and lie in a box already")]
enum State {
    Establishing(Fresh),
    Open(Open),
}

/// Does something with what both stages have.
macro_rules! both {
    ($state:expr, $core:ident => $do:expr) => {
        match $state {
            $crate::connection::State::Establishing($core) => $do,
            $crate::connection::State::Open($core) => $do,
        }
    };
}
use both;

/// Samples of the round trip from which on a connection has something to tell the next.
const SAMPLES_MIN: u64 = 4;

/// Parts from which a connection is made.
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
    pub stores: Stores,
    pub ration: Ration,
    /// Knowledge of the way to the host that the last connection there has gained.
    pub known: Option<Known>,
    /// A request that travels with the handshake, or what it takes to read one.
    pub early: Option<Prepared>,
}

impl Connection {
    pub(crate) fn new(now: Time, birth: Birth) -> Option<Self> {
        let mechanism = establishment::Slot::build(birth.proposal.get(Function::Establishment), ())?;
        let config = birth.config;
        let least = config.least_packet_bytes();
        let initial = config.packet_bytes_initial.max(least);
        // establishment.md
        let datagram_bytes = birth.first_bytes.map_or(initial, |first| first.clamp(least, initial));
        let mut handshake = Handshake::new(
            now,
            birth.side,
            birth.tls,
            birth.initial,
            (mechanism, birth.proposal),
            birth.ration,
            (least, datagram_bytes.min(PACKET_BYTES_BASE)),
        );
        handshake.known = birth.known.map(Box::new);
        if let Some(prepared) = birth.early {
            handshake.prepare_early(prepared);
        }
        let is_proved = birth.address_proved || birth.side == Side::Client;
        let fresh = Core {
            identity: Identity {
                side: birth.side,
                remote: birth.remote,
                local: None,
                local_cid: birth.local_cid,
                peer_cid: birth.peer_cid,
                original_dcid: birth.original_dcid,
                retry_scid: birth.retry_scid,
                peer_reset_token: None,
                has_news: false,
                seed: birth.seed,
            },
            life: Life::new(now, config.idle_timeout),
            establishing: Establishing::new(handshake, is_proved),
            migration: (),
            ways: Ways::new(config, birth.stores),
            agreement: (),
            parts: (),
        };
        Some(Connection { state: State::Establishing(fresh) })
    }

    /// The connection, if it is established.
    #[inline]
    fn open(&self) -> Option<&Open> {
        match &self.state {
            State::Open(open) => Some(open),
            State::Establishing(_) => None,
        }
    }

    /// The same, to be changed.
    #[inline]
    fn open_mut(&mut self) -> Option<&mut Open> {
        match &mut self.state {
            State::Open(open) => Some(open),
            State::Establishing(_) => None,
        }
    }

    /// The same, or the error of a call for which it has to be: why it never will be, if it has
    /// ended, else `before`.
    #[inline]
    fn open_or<E>(&mut self, closed: impl FnOnce(CloseReason) -> E, before: E) -> Result<&mut Open, E> {
        match &mut self.state {
            State::Open(open) => Ok(open),
            State::Establishing(fresh) => {
                Err(fresh.life.close_reason.as_deref().cloned().map_or(before, closed))
            }
        }
    }

    fn identity(&self) -> &Identity {
        both!(&self.state, core => &core.identity)
    }

    fn life(&self) -> &Life {
        both!(&self.state, core => &core.life)
    }

    fn establishing(&self) -> &Establishing {
        both!(&self.state, core => &core.establishing)
    }

    // ---- getters
    // --------------------------------------------------------------------------------

    /// End of the connection that this is.
    pub fn side(&self) -> Side {
        self.identity().side
    }

    /// The peer's address.
    pub fn remote(&self) -> SocketAddr {
        self.identity().remote
    }

    /// Counts of what it has done so far.
    pub fn stats(&self) -> Stats {
        match &self.state {
            State::Establishing(fresh) => fresh.ways.stats,
            State::Open(open) => Stats { exchanges: open.parts.exchanges.completed, ..open.ways.stats },
        }
    }

    /// Facts of the path in the direction of the data that this end sends, as far as they are
    /// known.
    pub fn facts(&self) -> PathFacts {
        self.open().map_or_else(PathFacts::default, Open::facts)
    }

    /// From now on [`Event::MaySend`] tells at which rate this end may send,
    /// or no more. It begins with the next report of the peer.
    pub fn want_rate(&mut self, is_wanted: bool) {
        let hint = is_wanted.then(Default::default);
        both!(&mut self.state, core => core.ways.rare.get_or_insert_default().rate_hint = hint);
    }

    /// The rate at which this end may send now, in UDP payload; `None` until a round trip is known.
    /// On a path of which nothing shows the limit, it is twice what has been delivered at the most:
    /// who sends more is told more.
    pub fn may_send(&self) -> Option<Rate> {
        let open = self.open()?;
        open.ways.outbound.may_send(open.parts.size.current() as u64)
    }

    /// Number of the first packet that took the way which packets take now: it grows when either
    /// end moves to another address, and after the host has slept.
    pub fn first_of_path(&self) -> u64 {
        self.open().map_or(0, |open| open.ways.outbound.first_of_place)
    }

    /// True if something shows that the path carries no more than this end sends: data waits for
    /// congestion control, packets queue, or congestion loses some. False before that is known, and
    /// while the application itself is the limit.
    pub fn is_held_back(&self) -> bool {
        let Some(open) = self.open() else { return false };
        let sending = open.ways.outbound.sending(open.parts.size.current() as u64);
        sending.is_some_and(|sending| !sending.has_unused)
    }

    /// The profile in use; `None` before the handshake is done.
    pub fn profile(&self, direction: Direction) -> Option<Profile> {
        Some(self.open()?.profile_of(direction, 0))
    }

    /// The profile under which an adaptive packet of a direction was built, as its first byte says
    /// [P-17]; `None` for packets of the handshake, and of epochs that are over.
    pub fn profile_under(&self, direction: Direction, packet: &[u8]) -> Option<Profile> {
        let first = *packet.first().filter(|first| !is_long(**first))?;
        let (low5, ways) = (peek_epoch(first), &self.open()?.ways);
        match direction {
            Direction::Out => {
                let stacks = &ways.outbound.stacks;
                stacks.iter().rev().find(|s| s.epoch % 32 == u32::from(low5)).map(|s| *s.profile)
            }
            Direction::In => {
                let inbound = &ways.inbound;
                inbound.by_low_bits(low5).map(|at| *inbound.stacks[at].profile)
            }
        }
    }

    /// The peer's certificate chain, as TLS verified it; empty for a client without one.
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.establishing().peer_certificates.as_deref()
    }

    /// At a server, the service that the client has asked for in the handshake; empty if none. It
    /// is the client's word, authenticated as the rest of its greeting.
    pub fn service(&self) -> &str {
        self.establishing().service.as_deref().unwrap_or_default()
    }

    /// Why the connection has ended, if it has.
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.life().close_reason.as_deref()
    }

    /// True if the handshake is done and the connection not closed.
    pub fn is_open(&self) -> bool {
        self.open().is_some_and(|open| open.life.is_live())
    }

    /// Where congestion control is, in words, and its window in bytes.
    pub fn congestion(&self) -> Option<(&'static str, u64)> {
        use uts_functions::congestion::Congestion;
        let congestion = &self.open()?.ways.outbound.congestion;
        Some((congestion.phase(), congestion.window_bytes()))
    }

    /// The window in bytes at which slow start ends; `None` if nothing has set it yet, or the
    /// mechanism has none.
    pub fn slow_start_threshold(&self) -> Option<u64> {
        use uts_functions::congestion::Congestion;
        let threshold = self.open()?.ways.outbound.congestion.summary().threshold_bytes;
        (threshold != u64::MAX).then_some(threshold)
    }

    /// Bytes of packets that were sent and neither acknowledged nor taken for lost; zero once the
    /// connection is closed.
    pub fn in_flight_bytes(&self) -> u64 {
        let live = self.open().filter(|open| open.life.is_live());
        live.map_or(0, |open| open.ways.outbound.delivery.in_flight)
    }

    /// The last round trip, less the peer's delay; `None` = none was measured.
    pub(crate) fn latest_round_trip(&self) -> Option<Duration> {
        let rtt = &self.open()?.ways.outbound.rtt;
        (rtt.samples > 0).then_some(rtt.latest)
    }

    /// Trace of its packets, if tracing was asked for.
    pub fn trace(&mut self) -> &mut Trace {
        both!(&mut self.state, core => &mut core.ways.trace)
    }

    pub(crate) fn local_cid(&self) -> &ConnectionId {
        &self.identity().local_cid
    }

    pub(crate) fn local(&self) -> Option<IpAddr> {
        self.identity().local
    }

    pub(crate) fn set_local(&mut self, local: Option<IpAddr>) {
        both!(&mut self.state, core => core.identity.local = local);
    }

    pub(crate) fn original_dcid(&self) -> &ConnectionId {
        &self.identity().original_dcid
    }

    /// The id under which the client's first packets came that this end has answered.
    pub(crate) fn first_cid(&self) -> &ConnectionId {
        let identity = self.identity();
        identity.retry_scid.as_ref().unwrap_or(&identity.original_dcid)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.life().phase == Phase::Over
    }

    /// True if it has ended otherwise than by this end's own wish, and the application has not read
    /// all that had arrived.
    pub(crate) fn has_unread(&self) -> bool {
        let is_own = matches!(self.close_reason(), None | Some(CloseReason::Local { .. }));
        !is_own && self.open().is_some_and(|open| open.ways.flows.has_unread())
    }

    /// True if anything authentic of the peer has arrived, or at least anything of a sender that
    /// sees the path.
    pub fn has_heard_peer(&self) -> bool {
        self.establishing().handshake.as_ref().is_none_or(|handshake| handshake.heard)
    }

    /// True if it was established, and the peer has closed it.
    pub(crate) fn was_closed_by_peer(&self) -> bool {
        self.open().is_some() && matches!(self.close_reason(), Some(CloseReason::Peer { .. }))
    }

    /// When the peer was heard last, or the connection began.
    pub fn heard_at(&self) -> Time {
        self.life().last_heard_at
    }

    /// True if either end has ever opened a flow.
    pub(crate) fn has_asked(&self) -> bool {
        self.open().is_some_and(|open| open.ways.flows.has_had_any())
    }

    /// True if a flow is open.
    pub(crate) fn has_under_way(&self) -> bool {
        self.open().is_some_and(|open| open.ways.flows.iter().next().is_some())
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self.state, State::Establishing(_)) && self.life().is_live()
    }

    pub(crate) fn peer_reset_token(&self) -> Option<&[u8; 16]> {
        self.identity().peer_reset_token.as_ref()
    }

    /// Mark for the network on packets that were built at this instant: they are capable of ECN
    /// where some of them ask for an acknowledgement, unless the path was found to lose the mark,
    /// or the packets that carry it.
    pub(crate) fn ecn(&self, now: Time) -> Option<Ecn> {
        let ways = &self.open().filter(|open| open.life.is_live())?.ways;
        let is_marked = ways.marking.is_on() && ways.last_eliciting_at() == now;
        let is_scalable = || ways.outbound.congestion.is_scalable();
        is_marked.then(|| if is_scalable() { Ecn::Ect1 } else { Ecn::Ect0 })
    }

    pub(crate) fn peer_cid(&self) -> &ConnectionId {
        &self.identity().peer_cid
    }
}

impl Open {
    /// Facts of the path in the direction of the data that this end sends.
    fn facts(&self) -> PathFacts {
        self.ways.outbound.facts(self.parts.size.current() as u64)
    }

    /// Knowledge of the way to its peer, if that has been measured often enough.
    fn learnt(&self) -> Option<Known> {
        let outbound = &self.ways.outbound;
        if outbound.rtt.samples < SAMPLES_MIN {
            return None;
        }
        let (smoothed, deviation) = (outbound.rtt.smoothed, outbound.rtt.deviation);
        let summary = outbound.congestion.summary();
        let flight = Duration::from_millis(self.life.flight_ms.into());
        Some(Known { smoothed, deviation, flight, summary, at: self.life.last_heard_at })
    }

    fn allows_unprotected(&self) -> bool {
        self.ways.config.requirements.security == Security::Unprotected
    }

    fn is_confirmed(&self) -> bool {
        self.establishing.confirmed
    }
}
