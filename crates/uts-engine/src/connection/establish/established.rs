//! From the handshake to an open connection: who the peer is, what it can do, and the first keys
//! and profiles.

use super::handshake::{Brought, Handshake};
use super::protection::Place;
use super::words;
use crate::config::{ConnectionConfig, PACKET_BYTES_BASE, SERVICE_BYTES_MAX};
use crate::connection::agreement::exchanges::grants;
use crate::connection::agreement::numbers::Numbers;
use crate::connection::life::codes;
use crate::connection::parts::{PacketSize, SPARE_IDS};
use crate::connection::receive::inbound::Inbound;
use crate::connection::receive::incoming::Ecn;
use crate::connection::secrets::SecretChain;
use crate::connection::send::outbound::Outbound;
use crate::connection::stage::{Core, Fresh, Open, Stage};
use crate::connection::watch::trace::HandshakeRow;
use crate::connection::{Agreement, Connection, Side, State, Ways};
use crate::consent::Answering;
use crate::event::{CloseReason, Direction, Event};
use crate::requirements::Security;
use bytes::Bytes;
use core::time::Duration;
use std::sync::Arc;
use uts_functions::numbering::{FIRST_OWN, from_wire, to_wire};
use uts_functions::protection::{self, Secret};
use uts_functions::{Function, Profile, Time};
use uts_wire::library::Ticket;
use uts_wire::packet::establishment::Level;
use uts_wire::{ConnectionId, End, Hello};
use zeroize::Zeroizing;

/// Packets that may wait for the end of the handshake: a first window of them, from whoever sends
/// under this id.
const AHEAD_PACKETS_MAX: usize = 16;
const AHEAD_BYTES_MAX: usize = 16 * 1024;

impl<S: Stage> Core<S> {
    /// Takes in an establishment packet, which is at `place` in a datagram of so many bytes. Says
    /// which packets, that came before their keys did, are to be taken in behind it.
    pub(in crate::connection) fn handle_establishment(
        &mut self,
        now: Time,
        datagram: &mut [u8],
        datagram_bytes: usize,
        place: &Place,
        scid: ConnectionId,
    ) -> Vec<Vec<u8>> {
        if !self.life.is_live() {
            self.repeat_close();
            return Vec::new();
        }
        let Some(handshake) = &mut self.establishing.handshake else {
            self.on_forged();
            return Vec::new();
        };
        if handshake.awaits_keys(place.level) {
            self.keep_ahead(None, &datagram[..place.end]);
            return Vec::new();
        }
        let Some(brought) = self.open_establishment(now, datagram, place, scid) else { return Vec::new() };
        let Some(handshake) = &mut self.establishing.handshake else { return Vec::new() };
        if place.level == Level::Initial && self.identity.side == Side::Server {
            handshake.follow(datagram_bytes);
        }
        if let (Level::Initial, Some((code, reason))) = (place.level, &brought.closed) {
            handshake.hint.get_or_insert_with(|| refusal_of(*code, reason));
            return Vec::new();
        }
        if brought.repeated {
            return Vec::new();
        }
        if brought.proves_address {
            self.establishing.address_proved = true;
            if self.identity.side == Side::Server {
                handshake.discard(Level::Initial);
            }
        }
        let is_done = handshake.is_done();
        let overtakers = handshake.take_overtakers();
        if let Some((code, reason)) = brought.closed {
            let reason = match refusal_of(code, &reason) {
                // Whoever answered the first packet can have made this one: people are not to take
                // it for the peer's word.
                CloseReason::Refused(said) if !is_done => CloseReason::Refused(unproved(said)),
                reason => reason,
            };
            self.drain(now, reason);
            return Vec::new();
        }
        if let Some(error) = brought.tls_error {
            self.close_with(now, CloseReason::Tls(error));
            return Vec::new();
        }
        overtakers
    }

    /// Opens an establishment packet, and counts it. `None` if it is not authentic.
    pub(in crate::connection) fn open_establishment(
        &mut self,
        now: Time,
        datagram: &mut [u8],
        place: &Place,
        scid: ConnectionId,
    ) -> Option<Brought> {
        let handshake = self.establishing.handshake.as_mut()?;
        let first = !handshake.heard;
        let brought = handshake.handle_packet(now, datagram, place);
        if !brought.authentic {
            self.on_forged();
            return None;
        }
        self.ways.trace.on_handshake_packet(HandshakeRow {
            at: now,
            is_sent: false,
            level: place.level,
            number: brought.number,
            bytes: place.end as u64,
        });
        let is_hint = place.level == Level::Initial && brought.closed.is_some();
        if brought.repeated {
            self.ways.stats.dropped_duplicate += 1;
        } else if !is_hint {
            self.ways.stats.packets_received += 1;
            self.life.last_heard_at = now;
            if first && self.identity.side == Side::Client {
                self.identity.peer_cid = scid;
            }
        }
        Some(brought)
    }

    /// A packet of any level, and from anywhere, was not authentic.
    pub(in crate::connection) fn on_forged(&mut self) {
        self.ways.stats.dropped_forged += 1;
        // protection.md R-9, RFC 9001 section 6.6: beyond the cipher's limit, forgeries may begin
        // to succeed.
        if self.ways.stats.dropped_forged > S::forgeries_max(self) {
            self.fail(CloseReason::Protocol("too many forged packets arrived".into()));
        }
    }

    /// Keeps a packet that overtook the part of the handshake from which its keys follow: a client
    /// sends its first window right behind its confirmation, and a server's greeting with ML-KEM
    /// fills more than a packet. (establishment.md R-5)
    pub(in crate::connection) fn keep_ahead(&mut self, ecn: Option<Ecn>, packet: &[u8]) {
        let Some(handshake) = &mut self.establishing.handshake else { return };
        let kept: usize = handshake.ahead.iter().map(|(_, packet)| packet.len()).sum();
        let fits = kept + packet.len() <= AHEAD_BYTES_MAX && handshake.ahead.len() < AHEAD_PACKETS_MAX;
        if fits && handshake.ration.take(packet.len()) {
            handshake.ahead.push((ecn, packet.to_vec()));
        }
    }

    /// Builds a datagram of the handshake, if it has something to say and a whole one may be sent.
    /// Says its bytes.
    pub(in crate::connection) fn poll_handshake(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        let handshake = self.establishing.handshake.as_ref()?;
        if handshake.is_active() && handshake.wants_to_send() { self.write_handshake(now, out) } else { None }
    }

    /// The same, whatever it has to say.
    pub(in crate::connection) fn write_handshake(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        let before = out.len();
        let room = self.amplification_room();
        if let Some(handshake) = self.establishing.handshake.as_mut().filter(|h| room >= h.datagram_bytes) {
            let ids = (self.identity.peer_cid, self.identity.local_cid);
            handshake.poll_transmit(now, ids, out, &mut self.ways.trace);
        }
        let bytes = out.len() - before;
        if bytes == 0 {
            return None;
        }
        self.ways.stats.packets_sent += 1;
        self.ways.stats.bytes_sent += bytes as u64;
        Some(bytes)
    }

    /// Bytes that may still be sent to an address that has not been proved (RFC 9000 section 8.1).
    pub(in crate::connection) fn amplification_room(&self) -> usize {
        self.establishing.room()
    }
}

impl Connection {
    /// The handshake is done: both ends are authenticated, keys and libraries are known.
    pub(in crate::connection) fn establish(&mut self, now: Time) {
        let State::Establishing(fresh) = &mut self.state else { return };
        match fresh.agree(now) {
            Ok((mut open, is_corrected)) => {
                let ahead = open.begin(now, is_corrected);
                self.state = State::Open(open);
                // What came before the keys did.
                for (ecn, mut packet) in ahead {
                    self.handle_short(now, ecn, &mut packet);
                }
            }
            Err(reason) => {
                if let Some(handshake) = &mut fresh.establishing.handshake {
                    handshake.close = Some((codes::BREACH, reason.to_string()));
                }
                fresh.close_with(now, reason);
            }
        }
    }
}

/// Profiles with which a connection begins.
struct FirstProfiles {
    /// Of what this end sends.
    mine: Arc<Profile>,
    /// Of what the peer sends.
    theirs: Arc<Profile>,
    /// This end sends otherwise than the client proposed.
    is_corrected: bool,
}

impl Fresh {
    /// True if the handshake is done, so that the connection can be established.
    pub(in crate::connection) fn is_agreed(&self) -> bool {
        self.life.is_live() && self.establishing.handshake.as_ref().is_some_and(|h| h.is_done())
    }

    /// Checks what the peer says of itself, and opens both ways. Says as well whether this end
    /// sends otherwise than the client proposed (S-40). The error: what the peer has broken.
    fn agree(&mut self, now: Time) -> Result<(Open, bool), CloseReason> {
        let protocol = |what: &str| CloseReason::Protocol(what.to_owned());
        let handshake = self.establishing.handshake.as_deref();
        let handshake = handshake.ok_or_else(|| protocol("it is established already"))?;
        let bytes = handshake.tls.quic_transport_parameters();
        let peer = if self.identity.side == Side::Client { End::Server } else { End::Client };
        let hello = Hello::parse(bytes.ok_or_else(|| protocol("it did not say what it can do"))?, peer)
            .map_err(|error| CloseReason::Protocol(format!("its greeting: {error}")))?;
        self.check_identity(&hello)?;
        let first = self.first_profiles(handshake, &hello)?;
        let initial = self.ways.config.packet_bytes_initial.max(self.ways.config.least_packet_bytes());
        let (outbound, inbound) = self.first_ways(now, handshake, &first, initial)?;
        let peer_certificates = match &handshake.tls {
            rustls::quic::Connection::Client(tls) => tls.peer_certificates(),
            rustls::quic::Connection::Server(tls) => tls.peer_certificates(),
        };
        let peer_certificates = peer_certificates.map(Arc::from);
        let flight_ms = u32::try_from(handshake.flight.as_millis()).unwrap_or(u32::MAX);
        let most = self.ways.config.most_packet_bytes();
        let max = usize::from(most.min(hello.limits.max_udp_payload_bytes));
        // establishment.md R-9: what the handshake came to pass with has been proved, or at least
        // nothing speaks against it.
        let proved = handshake.datagram_bytes.min(PACKET_BYTES_BASE);
        let initial = if proved < PACKET_BYTES_BASE { proved } else { initial };
        let size = PacketSize::new(now, self.ways.config.least_packet_bytes(), initial.min(max), max);
        let numbers = Numbers::agreed(&self.ways.config, &hello)
            .map_err(|error| CloseReason::Protocol(format!("its numbers: {error}")))?;
        let agreement = Agreement::new(&hello, numbers.as_deref());

        let mut open = self.opened((outbound, inbound), size, agreement);
        open.life.flight_ms = flight_ms;
        open.life.follow_idle_timeout(Duration::from_millis(u64::from(hello.limits.idle_timeout_ms)));
        open.identity.peer_reset_token = hello.reset_token.filter(|_| open.identity.side == Side::Client);
        open.establishing.peer_certificates = peer_certificates;
        if numbers.is_some() {
            open.ways.rare.get_or_insert_default().numbers = numbers;
        }
        open.ways.begin_flows(&hello, &first);
        open.begin_ids(hello.limits.spare_ids);
        if let Some(ticket) = hello.ticket {
            open.ways.events.push_back(Event::Ticket(Box::new(ticket)));
        }
        if !hello.service.is_empty() && open.identity.side == Side::Server {
            open.establishing.service = Some(hello.service.into_boxed_str());
        }
        Ok((open, first.is_corrected))
    }

    /// The profiles with which the connection begins.
    fn first_profiles(&self, handshake: &Handshake, hello: &Hello) -> Result<FirstProfiles, CloseReason> {
        let protocol = |what: &str| CloseReason::Protocol(what.to_owned());
        let proposal = &handshake.proposal;
        let (mine, theirs) = match self.identity.side {
            Side::Client => (**proposal, **proposal),
            Side::Server => {
                // P-52: the client chooses; its Hello has both.
                let read = |profile: &Option<uts_wire::WireProfile>| {
                    let profile = profile.as_ref().ok_or_else(|| protocol("it proposes no first profile"))?;
                    match from_wire(profile, None) {
                        (profile, None) => Ok(profile),
                        (_, Some(function)) => Err(protocol(&format!(
                            "its first profile has function {function}, which this end does not know"
                        ))),
                    }
                };
                // What the client sends is what this end receives.
                (read(&hello.profile_in)?, read(&hello.profile_out)?)
            }
        };
        let first = |why: String| CloseReason::Protocol(format!("its first profile: {why}"));
        for profile in [&mine, &theirs] {
            check_first(profile).map_err(first)?;
        }
        let asked = mine;
        let mine = match self.identity.side {
            Side::Client => mine,
            Side::Server => {
                let terms = &self.ways.config.requirements;
                if let Some(f) = Answering::new(terms, Direction::In).objects_to_first(&theirs) {
                    return Err(first(unnamed(&theirs, f)));
                }
                let sending = Answering::new(terms, Direction::Out);
                sending.corrected(&mine).map_err(|f| first(unnamed(&mine, f)))?
            }
        };
        // Most connections of an endpoint have one and the same.
        let shared = |p: Profile| if p == **proposal { Arc::clone(proposal) } else { Arc::new(p) };
        Ok(FirstProfiles { is_corrected: mine != asked, mine: shared(mine), theirs: shared(theirs) })
    }

    /// Both ways under these profiles, with keys from the handshake.
    fn first_ways(
        &self,
        now: Time,
        handshake: &Handshake,
        first: &FirstProfiles,
        initial_bytes: usize,
    ) -> Result<(Outbound, Inbound), CloseReason> {
        // protection.md R-1, K-17
        let mut exporter = Zeroizing::new([0; Secret::BYTES]);
        let exported = handshake.tls.export_keying_material(&mut exporter[..], b"EXPORTER-uts", None);
        exported.map_err(|error| CloseReason::Tls(words::of_tls(&error)))?;
        let (out, inward) = match self.identity.side {
            Side::Client => (protection::Direction::ClientToServer, protection::Direction::ServerToClient),
            Side::Server => (protection::Direction::ServerToClient, protection::Direction::ClientToServer),
        };
        let chain = |direction| SecretChain::new(Secret::from_exporter(&exporter, direction));
        let packet_bytes = initial_bytes.min(handshake.datagram_bytes) as u64;
        let lacking = || CloseReason::Protocol("a first profile that this library lacks".to_owned());
        let mut outbound = Outbound::new(now, &first.mine, chain(out), packet_bytes, self.identity.seed)
            .ok_or_else(lacking)?;
        if let Some(known) = &handshake.known {
            outbound.begin_with(known);
        }
        let inbound = Inbound::new(&first.theirs, chain(inward)).ok_or_else(lacking)?;
        if let Some(sample) = handshake.rtt_sample {
            use uts_functions::timing::Timing;
            let sample = outbound.rtt.on_sample(now, sample, Duration::ZERO);
            outbound.timing.on_sample(&mut outbound.rtt, sample);
        }
        outbound.set_rate_max(self.ways.config.requirements.max_send_rate);
        Ok((outbound, inbound))
    }

    /// The ids in the greeting are authentic; they must be those of the packets (RFC 9000 section
    /// 7.3).
    pub(in crate::connection) fn check_identity(&self, hello: &Hello) -> Result<(), CloseReason> {
        let mut same = hello.initial_scid == self.identity.peer_cid;
        if self.identity.side == Side::Client {
            same &= hello.original_dcid == Some(self.identity.original_dcid)
                && hello.retry_scid == self.identity.retry_scid;
        }
        if same {
            Ok(())
        } else {
            Err(CloseReason::Protocol("its greeting names other connection ids".into()))
        }
    }

    pub(in crate::connection) fn on_retry(
        &mut self,
        initial: rustls::quic::Keys,
        scid: ConnectionId,
        token: Bytes,
    ) -> bool {
        let Some(handshake) = self.establishing.handshake.as_mut().filter(|h| !h.heard) else { return false };
        if self.identity.retry_scid.is_some() || self.identity.side != Side::Client {
            return false;
        }
        self.identity.retry_scid = Some(scid);
        self.identity.peer_cid = scid;
        handshake.restart(initial, token);
        true
    }

    pub(in crate::connection) fn on_version_refusal(&mut self, ours: String, theirs: String) {
        let is_asking = self.identity.side == Side::Client && self.life.is_live();
        if let Some(handshake) = self.establishing.handshake.as_mut().filter(|h| is_asking && !h.heard) {
            // P-10, establishment.md R-6
            handshake.hint.get_or_insert(CloseReason::Version { ours, theirs });
        }
    }
}

impl Open {
    /// The connection is established: begins. Returns packets that came before their keys did.
    fn begin(&mut self, now: Time, is_corrected: bool) -> Vec<(Option<Ecn>, Vec<u8>)> {
        self.ways.events.push_back(Event::Connected);
        let handshake = self.establishing.handshake.as_mut();
        let ahead = handshake.map(|handshake| core::mem::take(&mut handshake.ahead)).unwrap_or_default();
        if self.identity.side == Side::Server {
            // K-18: the client's handshake is confirmed by the first packet under the new keys.
            self.on_confirmed();
            self.parts.ping.is_wanted = true;
        } else if let Some(handshake) = &mut self.establishing.handshake {
            handshake.discard(Level::Initial);
        }
        self.ways.set_receive_rate(now, self.ways.config.requirements.max_recv_rate);
        self.begin_adaptation(now, is_corrected);
        ahead
    }

    /// An authentic adaptive packet arrived, the first of which confirms the handshake. (K-19)
    pub(in crate::connection) fn on_authentic(&mut self, now: Time) {
        self.life.last_heard_at = now;
        if self.life.liveness.is_doubted() {
            self.on_heard_again(now);
        }
        if !self.establishing.confirmed {
            self.on_confirmed();
        }
    }
}

impl Ways {
    /// Flows begin with what the peer's greeting grants them.
    fn begin_flows(&mut self, hello: &Hello, first: &FirstProfiles) {
        let flows = &mut self.flows;
        if let Some(stack) = self.inbound.stacks.first() {
            flows.flow_template = stack.flow.clone();
        }
        flows.window_out = self.outbound.window_of_flows(0);
        flows.opened_max = hello.limits.max_flows;
        flows.has_come_free = !grants(&first.theirs);
        flows.credit_initial_out = hello.limits.initial_credit_bytes;
        if let Some(limit) = hello.limits.connection_credit_bytes {
            // flow.md R-36
            flows.incoming.begin(grants(&first.theirs));
            if grants(&first.mine) {
                flows.outgoing.begin(limit);
            }
        }
        flows.peer_reads_messages = hello.reads_messages;
        flows.peer_takes_expedited = hello.takes_expedited;
    }
}

/// The first profile is made of what every endpoint has, so that it needs no answer.
fn check_first(profile: &Profile) -> Result<(), String> {
    profile.check().map_err(|error| error.to_string())?;
    let optional = Function::ALL.iter().find(|f| !profile.mechanism(**f).is_some_and(|m| m.mandatory));
    match optional {
        Some(f) => Err(format!("{}/{} is not mandatory; ask for it by exchange", f.name(), profile.name(*f))),
        None => Ok(()),
    }
}

/// Why a first profile is refused that this end would have had to name (selection.md S-37).
fn unnamed(profile: &Profile, function: Function) -> String {
    let asked = format!("{}/{}", function.name(), profile.describe(function));
    format!("{asked} has to be named by the end that accepts it (uts.consent)")
}

/// Why the peer ends the handshake, by the code and the words that it gives.
fn refusal_of(code: u16, said: &str) -> CloseReason {
    CloseReason::Refused(match code.checked_sub(codes::ALERT) {
        Some(alert) => tls_refusal(alert, said),
        None => said.to_owned(),
    })
}

/// Adds to words that their speaker had not shown who it is.
fn unproved(said: String) -> String {
    said + " (said before it had shown who it is)"
}

/// A TLS alert of the peer, in words (RFC 8446 section 6.2).
fn tls_refusal(alert: u16, said: &str) -> String {
    match alert {
        42 | 43 | 46 => format!("it does not accept this end's key ({said})"),
        48 => format!("it does not know who vouches for this end's certificate ({said})"),
        116 => "it wants to know who is asking: a client key is required".to_owned(),
        120 => "it does not speak this protocol (ALPN)".to_owned(),
        _ => format!("TLS alert {alert}: {said}"),
    }
}

/// As much of a name as the greeting has room for.
fn bounded(service: &str) -> &str {
    &service[..service.floor_char_boundary(SERVICE_BYTES_MAX)]
}

/// Hello of this end, as bytes: its ids, library, limits and proposal for the handshake. (K-4)
pub(crate) fn hello(
    config: &ConnectionConfig,
    first_credit: u64,
    initial_scid: ConnectionId,
    ids: (Option<ConnectionId>, Option<ConnectionId>),
    reset_token: Option<[u8; 16]>,
    proposal: Option<&Profile>,
    ticket: Option<Ticket>,
) -> Vec<u8> {
    let limits = uts_wire::Limits {
        max_flows: config.flows_max,
        initial_credit_bytes: config.first_credit(),
        // One that cannot be said is kept all the same, by this end.
        idle_timeout_ms: u32::try_from(config.idle_timeout.as_millis()).unwrap_or(0),
        max_udp_payload_bytes: config.most_packet_bytes().max(uts_wire::MIN_UDP_PAYLOAD_BYTES),
        connection_credit_bytes: Some(first_credit),
        spare_ids: SPARE_IDS,
        ..uts_wire::Limits::default()
    };
    // P-67: a greeting has the numbers of the specification, and says what differs in frames.
    let library = config.library();
    let specified = |(_, number): &(u8, u8)| *number < FIRST_OWN;
    let first = |profile: &Profile| to_wire(profile, None);
    let hello = Hello {
        versions: [uts_wire::VERSION].into_iter().collect(),
        initial_scid,
        original_dcid: ids.0,
        retry_scid: ids.1,
        mechanisms: library.pairs().filter(specified).collect(),
        limits,
        reset_token,
        profile_out: proposal.map(first),
        profile_in: proposal.map(first),
        allows_unprotected: config.requirements.security == Security::Unprotected,
        service: proposal.map_or_else(String::new, |_| bounded(&config.service).to_owned()),
        reads_messages: true,
        takes_expedited: config.requirements.expedited,
        reads_use: true,
        ticket,
        numbers: config.numbering_of(&library).map(|numbering| Box::new(numbering.said())),
    };
    let mut out = Vec::new();
    hello.emit(&mut out);
    out
}
