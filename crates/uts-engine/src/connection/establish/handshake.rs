//! Establishment: TLS 1.3 in establishment packets, three ways.
//!
//! The handshake carries the two libraries and the first profile in its transport parameters (a
//! [`Hello`](uts_wire::Hello)), so that they are authenticated with it. The client proposes the
//! first profile of both directions out of mandatory mechanisms, which every endpoint has: it needs
//! no answer. Everything else is a matter of exchange.

use crate::config::PACKET_BYTES_MIN;
use crate::connection::establish::early::Early;
use crate::connection::establish::handshake_memory::{CryptoStream, Ration};
use crate::connection::establish::protection::{Place, open, seal};
use crate::connection::establish::words;
use crate::connection::flows::Side;
use crate::connection::life::codes;
use crate::connection::receive::incoming::Ecn;
use crate::connection::watch::trace::{HandshakeRow, Trace};
use crate::endpoint::history::Known;
use crate::event::CloseReason;
use bytes::Bytes;
use core::ops::Range;
use core::time::Duration;
use rustls::AlertDescription;
use rustls::quic::{self, KeyChange, Keys};
use std::collections::BTreeMap;
use std::sync::Arc;
use uts_functions::establishment::{self, Establishment, Heard};
use uts_functions::{Profile, RangeSet, Time};
use uts_wire::ConnectionId;
use uts_wire::packet::chain::{EstablishmentBody, FunctionHeader, HeaderChain, parse_body};
use uts_wire::packet::establishment::{EstablishmentHeader, Level};
use uts_wire::packet::{is_long, sample_padding};

/// Repeats of a flight in whole datagrams; later ones are small, for the path may carry no larger
/// ones.
const TRIES_IN_FULL: u32 = 2;

/// Repeats in whole or small datagrams; later ones are as small as can be.
const TRIES_NOT_LEAST: u32 = 4;

/// A flight is not repeated sooner: the peer's TLS library computes for milliseconds.
const TIMEOUT_MIN: Duration = Duration::from_millis(30);

/// A farewell says no more of its reason, in bytes.
const REASON_BYTES_MAX: usize = 200;

/// One encryption level of the handshake.
pub(super) struct LevelState {
    keys: Keys,
    next_number: u32,
    /// All bytes of this level.
    pub(super) out: Vec<u8>,
    /// Bytes to send, the first time or again.
    pub(super) to_send: RangeSet,
    /// Time at which each packet was sent, and the bytes of the level that it carried, as
    /// positions.
    sent: BTreeMap<u32, (Time, Range<u64>)>,
    received: RangeSet,
    ack_due: bool,
    incoming: CryptoStream,
}

impl LevelState {
    pub(super) fn new(level: Level, keys: Keys) -> Self {
        LevelState {
            keys,
            next_number: 0,
            out: Vec::new(),
            to_send: RangeSet::new(),
            sent: BTreeMap::new(),
            received: RangeSet::new(),
            ack_due: false,
            incoming: CryptoStream::new(level),
        }
    }
}

/// The state of establishment.
pub(crate) struct Handshake {
    pub tls: quic::Connection,
    side: Side,
    pub(super) levels: [Option<LevelState>; Level::ALL.len()],
    /// Where the TLS library writes at present.
    writing: Level,
    pub token: Bytes,
    mechanism: establishment::Slot,
    tries: u32,
    pub timer: Option<Time>,
    pub started: Time,
    /// Something authentic arrived, so that a version refusal or retry is too late.
    pub heard: bool,
    ping_due: bool,
    /// Memory for what the peer makes this end store.
    pub ration: Ration,
    /// Round trip of the latest establishment packet that was acknowledged.
    pub rtt_sample: Option<Duration>,
    /// The longest such.
    pub flight: Duration,
    /// Knowledge of the way to the peer from before.
    pub known: Option<Box<Known>>,
    /// Reason that came without proof of its sender: told if nothing better comes.
    /// (establishment.md R-6)
    pub hint: Option<CloseReason>,
    /// Close of the handshake to be said: code and reason.
    pub close: Option<(u16, String)>,
    /// Size of its largest datagrams, in bytes. A client's datagrams that hold packets of the level
    /// Initial are filled up to it, so that a server may answer with three times as much (RFC 9000
    /// section 14.1).
    pub datagram_bytes: usize,
    /// The least that these go down to.
    least_bytes: usize,
    /// Bytes of the smallest and of the largest datagram so far.
    pub sent_bytes: (usize, usize),
    /// The first profile of both directions.
    pub proposal: Arc<Profile>,
    /// Packets that came before their keys: adaptive ones, and a server's of the level Handshake.
    pub ahead: Vec<(Option<Ecn>, Vec<u8>)>,
    /// A request that travels with the handshake, and its answer.
    pub early: Early,
}

/// Outcome of reading an establishment packet.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    /// It was authentic.
    pub authentic: bool,
    /// Its number, if it was.
    pub number: u32,
    /// It was here before: its acknowledgement is repeated, nothing else.
    pub repeated: bool,
    /// Proof that the peer is at its address: it has the handshake keys.
    pub proves_address: bool,
    pub closed: Option<(u16, String)>,
    pub tls_error: Option<String>,
}

impl Handshake {
    pub fn new(
        now: Time,
        side: Side,
        tls: quic::Connection,
        initial: Keys,
        (mechanism, proposal): (establishment::Slot, Arc<Profile>),
        ration: Ration,
        (least_bytes, datagram_bytes): (usize, usize),
    ) -> Self {
        let mut handshake = Handshake {
            tls,
            side,
            levels: [Some(LevelState::new(Level::Initial, initial)), None, None],
            writing: Level::Initial,
            token: Bytes::new(),
            mechanism,
            tries: 0,
            timer: None,
            started: now,
            heard: false,
            ping_due: false,
            ration,
            rtt_sample: None,
            flight: Duration::ZERO,
            known: None,
            hint: None,
            close: None,
            datagram_bytes,
            least_bytes,
            sent_bytes: (0, 0),
            proposal,
            ahead: Vec::new(),
            early: Early::default(),
        };
        handshake.pump();
        handshake
    }

    /// Starts over with other initial keys and a token, after a retry. (K-21)
    pub fn restart(&mut self, initial: Keys, token: Bytes) {
        self.token = token;
        if let Some(level) = &mut self.levels[0] {
            level.keys = initial;
        }
        for level in self.levels.iter_mut().flatten() {
            let all = 0..level.out.len() as u64;
            level.to_send.insert(all);
            level.sent.clear();
        }
        self.timer = None;
    }

    pub fn is_done(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// True if packets are still to be sent, or to be waited for.
    pub fn is_active(&self) -> bool {
        self.levels.iter().any(Option::is_some)
    }

    /// Forgets the keys of a level: nothing under them is of use any more. (K-20)
    pub fn discard(&mut self, level: Level) {
        self.levels[level.index()] = None;
        if !self.is_active() {
            self.timer = None;
        }
    }

    fn level(&mut self, level: Level) -> Option<&mut LevelState> {
        self.levels[level.index()].as_mut()
    }

    /// Takes what the TLS library has to say.
    fn pump(&mut self) {
        loop {
            let mut out = Vec::new();
            let change = self.tls.write_hs(&mut out);
            let nothing = out.is_empty();
            if let Some(level) = self.levels[self.writing.index()].as_mut() {
                let start = level.out.len() as u64;
                level.to_send.insert(start..start + out.len() as u64);
                level.out.extend_from_slice(&out);
            }
            match change {
                // K-16
                Some(KeyChange::Handshake { keys }) => {
                    self.levels[1] = Some(LevelState::new(Level::Handshake, keys));
                    self.writing = Level::Handshake;
                }
                // Adaptive packets have keys of their own, from the exporter.
                Some(KeyChange::OneRtt { .. }) => {}
                None if nothing => return,
                None => {}
            }
        }
    }

    /// True if the keys of a level are still to come from the server's greeting. A server has them
    /// with all of the client's.
    pub fn awaits_keys(&self, level: Level) -> bool {
        self.side == Side::Client && level == Level::Handshake && self.writing == Level::Initial
    }

    /// Takes out packets of the level Handshake that came before its keys, once these are there.
    pub fn take_overtakers(&mut self) -> Vec<Vec<u8>> {
        if self.ahead.is_empty() || self.awaits_keys(Level::Handshake) {
            return Vec::new();
        }
        let is_long = |(_, packet): &(Option<Ecn>, Vec<u8>)| packet.first().is_some_and(|b| is_long(*b));
        let (long, short) = core::mem::take(&mut self.ahead).into_iter().partition(is_long);
        self.ahead = short;
        let long: Vec<(Option<Ecn>, Vec<u8>)> = long;
        long.into_iter().map(|(_, packet)| packet).collect()
    }

    /// Takes in an establishment packet; `packet` starts with it.
    pub fn handle_packet(&mut self, now: Time, packet: &mut [u8], parsed: &Place) -> Brought {
        let mut brought = Brought::default();
        let Some(level) = self.levels[parsed.level.index()].as_mut() else { return brought };
        let Some((number, body)) = open(&level.keys, packet, parsed) else { return brought };
        let Ok(body) = parse_body(body) else { return brought };
        (brought.authentic, brought.number) = (true, number);
        // Anybody who has seen a first packet has the keys of this level: a farewell under them
        // changes nothing, not even which packets have been here. (establishment.md R-6)
        if parsed.level == Level::Initial
            && let Some(closed) = body.chain.headers().iter().find_map(farewell)
        {
            brought.closed = Some(closed);
            return brought;
        }
        brought.proves_address = parsed.level == Level::Handshake;
        self.heard = true;
        let is_new = level.received.insert_one(u64::from(number));
        level.ack_due |= body.elicits_ack();
        level.received.trim_front(16);
        if !is_new {
            brought.repeated = true;
            return brought;
        }
        for header in body.chain.headers() {
            self.handle_header(now, parsed.level, header, &mut brought);
        }
        brought
    }

    fn handle_header(&mut self, now: Time, level: Level, header: &FunctionHeader<'_>, brought: &mut Brought) {
        match header {
            FunctionHeader::Establishment { crypto_offset, crypto } => {
                self.on_crypto(level, *crypto_offset, crypto, brought);
            }
            FunctionHeader::Acknowledgement { ranges, .. } => self.on_ack(now, level, ranges),
            // K-27
            FunctionHeader::Close { .. } if level == Level::Early => {}
            FunctionHeader::Close { .. } => brought.closed = farewell(header),
            FunctionHeader::Ping | FunctionHeader::Unknown { .. } => {}
        }
    }

    fn on_crypto(&mut self, level: Level, offset: u32, crypto: &[u8], brought: &mut Brought) {
        let Some(state) = self.levels[level.index()].as_mut() else { return };
        state.incoming.insert(offset, crypto, &mut self.ration);
        if level == Level::Early {
            while let Some(data) = state.incoming.read() {
                self.early.on_bytes(&data);
            }
            return;
        }
        while let Some(data) = self.level(level).and_then(|state| state.incoming.read()) {
            if let Err(error) = self.tls.read_hs(&data) {
                // An alert tells the peer; its number is RFC 8446's. (K-12, P-59)
                let alert = u8::from(self.tls.alert().unwrap_or_else(|| alert_of(&error)));
                let words = words::of_tls(&error);
                self.close = Some((codes::ALERT + u16::from(alert), words.clone()));
                brought.tls_error = Some(words);
                return;
            }
            self.pump();
        }
    }

    fn on_ack(&mut self, now: Time, level: Level, ranges: &[Range<u64>]) {
        let Some(state) = self.level(level) else { return };
        let mut newest = None;
        for range in ranges {
            let low = u32::try_from(range.start).unwrap_or(u32::MAX);
            let high = u32::try_from(range.end).unwrap_or(u32::MAX);
            let acked: Vec<u32> = state.sent.range(low..high).map(|(n, _)| *n).collect();
            for number in acked {
                if let Some((sent_at, carried)) = state.sent.remove(&number) {
                    state.to_send.remove(carried);
                    newest = newest.max(Some((number, sent_at)));
                }
            }
        }
        if let Some((_, sent_at)) = newest {
            let took = now.since(sent_at);
            self.rtt_sample = Some(took);
            self.flight = self.flight.max(took);
            self.tries = 0;
            self.timer = self.timer.map(|_| now + self.timeout());
        }
        let is_settled = |l: &LevelState| l.to_send.is_empty() && l.sent.values().all(|(_, c)| c.is_empty());
        if self.side == Side::Server && self.levels.iter().flatten().all(is_settled) {
            self.timer = None;
        }
    }

    /// Nothing came back in time: everything unacknowledged is sent again; a client that has
    /// nothing left to repeat says something, so that the server may send more (RFC 9002 section
    /// 6.2.2.1).
    pub fn on_timeout(&mut self, now: Time) {
        self.tries += 1;
        if self.tries >= TRIES_IN_FULL {
            // establishment.md R-7
            let small = if self.tries >= TRIES_NOT_LEAST { self.least_bytes } else { PACKET_BYTES_MIN };
            self.datagram_bytes = self.datagram_bytes.min(small.max(self.least_bytes));
        }
        let repeats = self.repeat();
        self.ping_due = !repeats && self.side == Side::Client;
        self.timer = Some(now + self.timeout());
    }

    /// All that was sent and not acknowledged is to be sent again; says whether there is any.
    pub fn repeat(&mut self) -> bool {
        let mut repeats = false;
        for level in self.levels.iter_mut().flatten() {
            // When it was sent is kept: it may still be acknowledged, and on a slow line that is
            // the only measured round trip.
            for (_, carried) in level.sent.values_mut() {
                let carried = core::mem::take(carried);
                repeats |= !carried.is_empty();
                level.to_send.insert(carried);
            }
        }
        repeats
    }

    /// A client fills its first datagrams: one that has gone down to smaller ones has heard nothing
    /// of what this end sent, or could not be heard (establishment.md R-8).
    pub fn follow(&mut self, client_bytes: usize) {
        if client_bytes < self.datagram_bytes && self.datagram_bytes > self.least_bytes {
            self.datagram_bytes = client_bytes.max(self.least_bytes);
            self.repeat();
        }
    }

    /// Time to wait for an answer (establishment.md R-2).
    fn timeout(&self) -> Duration {
        let unmeasured = self.mechanism.timeout(self.tries);
        // establishment.md R-11
        let guess = self.known.as_ref().map(|known| known.flight_time());
        self.rtt_sample.or(guess).map_or(unmeasured, |rtt| {
            let first = (3 * rtt).max(TIMEOUT_MIN);
            let most = unmeasured.max(rtt * 3 / 2);
            first.saturating_mul(1_u32.checked_shl(self.tries).unwrap_or(u32::MAX)).min(most)
        })
    }

    pub fn give_up_after(&self, heard: Heard) -> Duration {
        self.mechanism.give_up_after(heard)
    }

    /// True if there is anything to send.
    pub fn wants_to_send(&self) -> bool {
        self.close.is_some()
            || self.ping_due
            || self.levels.iter().flatten().any(|level| level.ack_due || !level.to_send.is_empty())
    }

    /// Builds one datagram: packets of all levels that have something to say, one after the other.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        ids: (ConnectionId, ConnectionId),
        out: &mut Vec<u8>,
        trace: &mut Trace,
    ) {
        let (start, room) = (out.len(), self.datagram_bytes);
        let highest = if self.levels[1].is_some() { Level::Handshake } else { Level::Initial };
        for level in Level::ALL {
            let left = room.saturating_sub(out.len() - start);
            if left > 200 {
                let before = out.len();
                let written = self.write_packet(now, level, level == highest, ids, (start, left), out);
                if let Some(number) = written {
                    let bytes = (out.len() - before) as u64;
                    trace.on_handshake_packet(HandshakeRow { at: now, is_sent: true, level, number, bytes });
                }
            }
        }
        self.ping_due = false;
        if out.len() > start {
            let (smallest, largest) = self.sent_bytes;
            let bytes = out.len() - start;
            self.sent_bytes = (if smallest == 0 { bytes } else { smallest.min(bytes) }, largest.max(bytes));
            self.timer = self.timer.or(Some(now + self.timeout()));
        }
    }

    /// Says the packet's number.
    fn write_packet(
        &mut self,
        now: Time,
        level: Level,
        is_highest: bool,
        (dcid, scid): (ConnectionId, ConnectionId),
        (datagram_start, room): (usize, usize),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let (client, ping_due) = (self.side == Side::Client, self.ping_due && is_highest);
        // A server does not know which keys the client has got to, so it says farewell under all of
        // them (RFC 9000 section 10.2.3). A client's server has all; its first packets are padded
        // and would leave no room for others.
        let close = self.close.clone().filter(|_| is_highest || !client);
        if self.close.is_some() && (close.is_none() || level == Level::Early) {
            return None;
        }
        let token = if level == Level::Early { self.early.words.clone() } else { self.token.clone() };
        let full_bytes = self.datagram_bytes;
        let state = self.levels[level.index()].as_mut()?;
        let range = state.to_send.first();
        if !(state.ack_due || range.is_some() || ping_due || close.is_some()) {
            return None;
        }
        let header = EstablishmentHeader { level, dcid, scid, token: &token };
        let number = state.next_number;
        // establishment.md R-4
        let mut chain = HeaderChain::new();
        if !state.received.is_empty() {
            let ranges = state.received.iter().rev().take(8).collect();
            let _ = chain.push(FunctionHeader::Acknowledgement { delay_us: 0, ranges });
        }
        let tag_bytes = state.keys.local.packet.tag_len();
        let around = header.encoded_len() + around_crypto(&chain) + tag_bytes;
        let bytes_max = room.saturating_sub(around) as u64;
        let carried = range.map_or(0..0, |r| r.start..r.end.min(r.start + bytes_max));
        if let Some((code, reason)) = &close {
            let reason = shortened(reason);
            let _ = chain.push(FunctionHeader::Close { code: *code, reason });
        } else if !carried.is_empty() {
            let crypto = &state.out[carried.start as usize..carried.end as usize];
            let _ = chain.push(FunctionHeader::Establishment { crypto_offset: carried.start as u32, crypto });
        } else if ping_due {
            let _ = chain.push(FunctionHeader::Ping);
        }
        let mark = header.emit(number, out);
        let mut body = EstablishmentBody { chain, padding: 0 };
        // A client's datagrams with an initial packet are full, and those that ask for more, so
        // that the server may send it. What else there is must be long enough to be masked.
        let asks = ping_due && carried.is_empty() && close.is_none();
        body.padding = if client && (level == Level::Initial || asks) {
            (datagram_start + full_bytes).saturating_sub(out.len() + body.encoded_len() + tag_bytes)
        } else {
            sample_padding(4, body.encoded_len(), tag_bytes)
        };
        body.emit(out);
        if mark.set_length(out, tag_bytes).is_err() || seal(&state.keys, number, mark, out).is_none() {
            out.truncate(mark.start);
            return None;
        }
        state.next_number += 1;
        state.ack_due = false;
        if !carried.is_empty() && close.is_none() {
            state.to_send.remove(carried.clone());
            state.sent.insert(number, (now, carried));
        }
        Some(number)
    }
}

/// The alert for an error of which the TLS library names none (RFC 8446 section 6.2).
fn alert_of(error: &rustls::Error) -> AlertDescription {
    match error {
        rustls::Error::InvalidMessage(why) => AlertDescription::from(*why),
        rustls::Error::InappropriateMessage { .. } | rustls::Error::InappropriateHandshakeMessage { .. } => {
            AlertDescription::UnexpectedMessage
        }
        _ => AlertDescription::HandshakeFailure,
    }
}

/// Bytes of a body with these headers and one of handshake bytes, without these.
fn around_crypto(chain: &HeaderChain<'_>) -> usize {
    let mut chain = chain.clone();
    let _ = chain.push(FunctionHeader::Establishment { crypto_offset: 0, crypto: &[] });
    EstablishmentBody { chain, padding: 0 }.encoded_len()
}

/// Code and reason of a header that ends the handshake.
fn farewell(header: &FunctionHeader<'_>) -> Option<(u16, String)> {
    match header {
        FunctionHeader::Close { code, reason } => Some((*code, (*reason).to_owned())),
        _ => None,
    }
}

/// An initial packet that refuses a connection, made without any state: answer to a packet whose
/// keys these are.
pub(crate) fn refusal(
    keys: &Keys,
    (dcid, scid): (ConnectionId, ConnectionId),
    reason: &str,
) -> Option<Vec<u8>> {
    let mut chain = HeaderChain::new();
    chain.push(FunctionHeader::Close { code: codes::NO_PLACE, reason: shortened(reason) }).ok()?;
    let mut body = EstablishmentBody { chain, padding: 0 };
    let tag_bytes = keys.local.packet.tag_len();
    body.padding = sample_padding(4, body.encoded_len(), tag_bytes);
    let mut out = Vec::new();
    let mark = EstablishmentHeader { level: Level::Initial, dcid, scid, token: &[] }.emit(0, &mut out);
    body.emit(&mut out);
    mark.set_length(&mut out, tag_bytes).ok()?;
    seal(keys, 0, mark, &mut out)?;
    Some(out)
}

/// As much of a reason as a farewell says.
fn shortened(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}
