//! From the handshake to an open connection: who the peer is, what it can do, and the first keys and profiles.

use super::exchanges::{from_wire, to_wire};
use super::handshake::Place;
use super::*;
use crate::consent::Answering;
use zeroize::Zeroizing;

impl Connection {
    pub(super) fn handle_establishment(
        &mut self,
        now: Time,
        datagram: &mut [u8],
        datagram_bytes: usize,
        place: &Place,
        scid: ConnectionId,
    ) {
        if matches!(self.phase, Phase::Draining { .. } | Phase::Over | Phase::Closing { .. }) {
            self.repeat_close();
            return;
        }
        let Some(handshake) = &mut self.handshake else {
            self.stats.dropped_forged += 1;
            return;
        };
        let first = !handshake.heard;
        let brought = handshake.handle_packet(now, datagram, place);
        if !brought.authentic {
            self.stats.dropped_forged += 1;
            return;
        }
        if place.level == Level::Initial && self.side == Side::Server {
            handshake.follow(datagram_bytes);
        }
        if let (Level::Initial, Some((code, reason))) = (place.level, &brought.closed) {
            handshake.hint.get_or_insert_with(|| refusal_of(*code, reason));
            return;
        }
        if brought.repeated {
            self.stats.dropped_duplicate += 1;
            return;
        }
        self.stats.packets_received += 1;
        self.last_heard_at = now;
        if first && self.side == Side::Client {
            self.peer_cid = scid;
        }
        if brought.proves_address {
            self.address_proved = true;
            if self.side == Side::Server {
                handshake.discard(Level::Initial);
            }
        }
        let is_done = handshake.is_done();
        if let Some((code, reason)) = brought.closed {
            let reason = match refusal_of(code, &reason) {
                // Whoever answered the first packet can have made this one: people are not to take it for the peer's word.
                CloseReason::Refused(said) if !is_done => CloseReason::Refused(unproved(said)),
                reason => reason,
            };
            self.drain(now, reason);
            return;
        }
        if let Some(error) = brought.tls_error {
            self.close_with(now, CloseReason::Tls(error));
            return;
        }
        if self.phase == Phase::Handshake && is_done {
            self.establish(now);
        }
    }

    /// The handshake is done: both ends are authenticated, keys and libraries are known.
    pub(super) fn establish(&mut self, now: Time) {
        match self.try_establish(now) {
            Ok(is_corrected) => {
                self.phase = Phase::Open;
                self.events.push_back(Event::Connected);
                if self.side == Side::Server {
                    // The client's handshake is confirmed by the first packet under the new keys.
                    self.confirmed = true;
                    self.handshake = None;
                    self.ping_wanted = true;
                } else if let Some(handshake) = &mut self.handshake {
                    handshake.discard(Level::Initial);
                }
                self.set_receive_rate(now, self.config.requirements.max_recv_rate);
                self.begin_adaptation(now, is_corrected);
                self.handle_early(now);
            }
            Err(reason) => {
                if let Some(handshake) = &mut self.handshake {
                    handshake.close = Some((1, reason.to_string()));
                }
                self.close_with(now, reason);
            }
        }
    }

    /// Says whether this end sends otherwise than the client proposed (S-40).
    pub(super) fn try_establish(&mut self, now: Time) -> Result<bool, CloseReason> {
        let protocol = |what: &str| CloseReason::Protocol(what.to_owned());
        let handshake = self.handshake.as_ref().ok_or_else(|| protocol("it is established already"))?;
        let bytes = handshake.tls.quic_transport_parameters();
        let hello = Hello::parse(bytes.ok_or_else(|| protocol("it did not say what it can do"))?)
            .map_err(|error| CloseReason::Protocol(format!("its greeting: {error}")))?;
        self.check_identity(&hello)?;
        let proposal = self.proposal.as_ref().ok_or_else(|| protocol("it is established already"))?;
        let (mine, theirs) = match self.side {
            Side::Client => (**proposal, **proposal),
            Side::Server => {
                let read = |profile: &Option<uts_wire::WireProfile>| match profile {
                    Some(profile) => from_wire(profile).map_err(|r| protocol(r.reason.words())),
                    None => Ok(**proposal),
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
        let mine = match self.side {
            Side::Client => mine,
            Side::Server => {
                let terms = &self.config.requirements;
                if let Some(f) = Answering::new(terms, Direction::In).objects_to_first(&theirs) {
                    return Err(first(unnamed(&theirs, f)));
                }
                let sending = Answering::new(terms, Direction::Out);
                sending.corrected(&mine).map_err(|f| first(unnamed(&mine, f)))?
            }
        };
        let is_corrected = mine != asked;
        let mut exporter = Zeroizing::new([0; Secret::BYTES]);
        let tls = &handshake.tls;
        tls.export_keying_material(&mut exporter[..], b"EXPORTER-uts", None)
            .map_err(|error| CloseReason::Tls(words::of_tls(&error)))?;
        let (out, inward) = match self.side {
            Side::Client => (protection::Direction::ClientToServer, protection::Direction::ServerToClient),
            Side::Server => (protection::Direction::ServerToClient, protection::Direction::ClientToServer),
        };
        let chain = |direction| SecretChain::new(Secret::from_exporter(&exporter, direction));
        // Most connections of an endpoint have one and the same.
        let shared = |p: Profile| if p == **proposal { Arc::clone(proposal) } else { Arc::new(p) };
        let (mine, theirs) = (shared(mine), shared(theirs));
        let packet_bytes = self.size.current().min(handshake.datagram_bytes) as u64;
        let lacking = || protocol("a first profile that this library lacks");
        let mut outbound =
            Outbound::new(now, &mine, chain(out), packet_bytes, self.seed).ok_or_else(lacking)?;
        let inbound = Inbound::new(&theirs, chain(inward)).ok_or_else(lacking)?;
        let peer_certificates = match tls {
            rustls::quic::Connection::Client(tls) => tls.peer_certificates(),
            rustls::quic::Connection::Server(tls) => tls.peer_certificates(),
        };
        let peer_certificates = peer_certificates.map(Arc::from);
        if let Some(sample) = handshake.rtt_sample {
            use uts_functions::timing::Timing;
            let sample = outbound.rtt.on_sample(now, sample, Duration::ZERO);
            outbound.timing.on_sample(&mut outbound.rtt, sample);
        }
        outbound.set_rate_max(self.config.requirements.max_send_rate);
        self.flows.flow_template = inbound.stacks.first().map(|s| s.flow.clone());
        self.flows.opened_max = hello.limits.max_flows;
        self.flows.credit_initial_out = hello.limits.initial_credit_bytes;
        self.flows.peer_reads_messages = hello.reads_messages;
        let peer_idle = Duration::from_millis(u64::from(hello.limits.idle_timeout_ms));
        self.idle_timeout = match (self.idle_timeout.is_zero(), peer_idle.is_zero()) {
            (true, _) => peer_idle,
            (_, true) => self.idle_timeout,
            _ => self.idle_timeout.min(peer_idle),
        };
        let max = self.config.packet_bytes_max.min(usize::from(hello.limits.max_udp_payload_bytes));
        // What the handshake came to pass with has been proved, or at least nothing speaks against
        // it.
        let proved = handshake.datagram_bytes.min(PACKET_BYTES_BASE);
        let initial = if proved < PACKET_BYTES_BASE { proved } else { self.size.current() };
        self.size = PacketSize::new(now, initial.min(max), max);
        self.peer_library = Some(Library::from_pairs(hello.mechanisms.iter().copied()));
        self.peer_allows_unprotected = hello.allows_unprotected;
        self.peer_reset_token = hello.reset_token.filter(|_| self.side == Side::Client);
        self.peer_certificates = peer_certificates;
        self.proposal = None;
        (self.outbound, self.inbound) = (Some(outbound), Some(inbound));
        Ok(is_corrected)
    }

    /// The ids in the greeting are authentic; they must be those of the packets (RFC 9000 section 7.3).
    pub(super) fn check_identity(&self, hello: &Hello) -> Result<(), CloseReason> {
        let mut same = hello.initial_scid == self.peer_cid;
        if self.side == Side::Client {
            same &= hello.original_dcid == Some(self.original_dcid) && hello.retry_scid == self.retry_scid;
        }
        if same {
            Ok(())
        } else {
            Err(CloseReason::Protocol("its greeting names other connection ids".into()))
        }
    }

    /// An authentic adaptive packet arrived.
    pub(super) fn on_authentic(&mut self, now: Time) {
        self.last_heard_at = now;
        if self.liveness.is_doubted() {
            self.on_heard_again(now);
        }
        if !self.confirmed {
            self.confirmed = true;
            self.handshake = None;
        }
    }

    /// The server asks for proof of address.
    pub(crate) fn on_retry(&mut self, initial: rustls::quic::Keys, scid: ConnectionId, token: Bytes) -> bool {
        let Some(handshake) = self.handshake.as_mut().filter(|h| !h.heard) else { return false };
        if self.retry_scid.is_some() || self.side != Side::Client {
            return false;
        }
        self.retry_scid = Some(scid);
        self.peer_cid = scid;
        handshake.restart(initial, token);
        true
    }

    /// The server speaks other versions.
    pub(crate) fn on_version_refusal(&mut self, ours: String, theirs: String) {
        let is_asking = self.side == Side::Client && self.phase == Phase::Handshake;
        if let Some(handshake) = self.handshake.as_mut().filter(|h| is_asking && !h.heard) {
            // P-10, establishment.md R-6
            handshake.hint.get_or_insert(CloseReason::Version { ours, theirs });
        }
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
    CloseReason::Refused(match code.checked_sub(0x100) {
        Some(alert) => tls_refusal(alert, said),
        None => said.to_owned(),
    })
}

/// What was said before its speaker had shown who it is.
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

/// What this end says of itself in the handshake.
pub(crate) fn hello(
    config: &ConnectionConfig,
    initial_scid: ConnectionId,
    ids: (Option<ConnectionId>, Option<ConnectionId>),
    reset_token: Option<[u8; 16]>,
    proposal: Option<&Profile>,
) -> Vec<u8> {
    let limits = uts_wire::Limits {
        max_flows: config.flows_max,
        initial_credit_bytes: config.first_credit(),
        idle_timeout_ms: u32::try_from(config.idle_timeout.as_millis()).unwrap_or(u32::MAX),
        max_udp_payload_bytes: u16::try_from(config.packet_bytes_max).unwrap_or(u16::MAX),
        ..uts_wire::Limits::default()
    };
    let hello = Hello {
        versions: [uts_wire::VERSION].into_iter().collect(),
        initial_scid,
        original_dcid: ids.0,
        retry_scid: ids.1,
        mechanisms: config.library().pairs().collect(),
        limits,
        reset_token,
        profile_out: proposal.map(to_wire),
        profile_in: proposal.map(to_wire),
        allows_unprotected: config.requirements.security == Security::Unprotected,
        service: String::new(),
        reads_messages: true,
    };
    let mut out = Vec::new();
    hello.emit(&mut out);
    out
}
