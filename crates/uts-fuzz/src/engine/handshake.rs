//! The handshake. Everybody who has seen the client's first connection id can have the keys of
//! first packets. Their content may be anything. The same holds for tokens.

use super::sealed::{self, Opened};
use super::{address, identities};
use crate::some_bytes;
use arbitrary::Unstructured;
use core::time::Duration;
use rustls::quic::Keys;
use std::collections::BTreeMap;
use uts_engine::{ConnectionConfig, Endpoint, EndpointConfig};
use uts_functions::Time;
use uts_wire::ConnectionId;
use uts_wire::packet::establishment::{LongPacket, parse_header};
use uts_wire::packet::{EstablishmentBody, FunctionHeader, HeaderChain};

const STEPS_MAX: usize = 40;

/// Bytes that a client's datagram is filled up to.
const DATAGRAM_BYTES: usize = 1200;

/// Number of datagrams that an end sends at most for each that it hears, a generous bound on what
/// must end.
const ANSWERS_MAX: usize = 200;

const CLIENT: u8 = 0;
const SERVER: u8 = 1;
const STRANGER: u8 = 9;

/// One end, attacked by the sender of its first packets.
struct Attack {
    victim: Endpoint,
    now: Time,
    /// The keys with which its first packets are made.
    keys: Keys,
    /// From whom to whom the next packet says it is.
    ids: (ConnectionId, ConnectionId),
    /// Bytes of the handshake as an honest peer says them.
    honest: Vec<u8>,
    tokens: Vec<Vec<u8>>,
    /// Bytes from and to each address that is not proved.
    counts: BTreeMap<u8, (usize, usize)>,
    /// Each address has shown a token of its own, or something else that only a host there can
    /// know.
    proved: [bool; 2],
    is_server: bool,
}

fn endpoint(is_server: bool, retries: bool) -> Endpoint {
    let server = is_server.then(|| identities().server.clone());
    let handshakes_before_retry = if retries { 0 } else { 256 };
    Endpoint::new(EndpointConfig { server, handshakes_before_retry, ..EndpointConfig::default() }, [7; 32])
}

/// A client that has begun, and its first datagram.
fn client() -> (Endpoint, Vec<u8>) {
    let mut client = endpoint(false, false);
    let config = ConnectionConfig::default();
    identities().connect(&mut client, Time::from_millis(1), address(SERVER), config).expect("it begins");
    let mut first = Vec::new();
    let sent = client.poll_transmit(Time::from_millis(1), &mut first).expect("a first packet");
    first.truncate(sent.segment_bytes);
    (client, first)
}

fn ids_of(datagram: &[u8]) -> (ConnectionId, ConnectionId) {
    let Ok(LongPacket::Establishment(packet)) = parse_header(datagram) else { panic!("no first packet") };
    (packet.header.dcid, packet.header.scid)
}

impl Attack {
    fn on_server(retries: bool) -> Self {
        let (_, first) = client();
        let (dcid, scid) = ids_of(&first);
        let honest = sealed::open(&sealed::keys(&dcid, rustls::Side::Server), &first).expect("whole").crypto;
        Attack {
            victim: endpoint(true, retries),
            now: Time::from_millis(1),
            keys: sealed::keys(&dcid, rustls::Side::Client),
            ids: (dcid, scid),
            honest,
            tokens: Vec::new(),
            counts: BTreeMap::new(),
            proved: [false; 2],
            is_server: true,
        }
    }

    fn on_client() -> Self {
        let (victim, mut first) = client();
        let (dcid, _) = ids_of(&first);
        let mut server = endpoint(true, false);
        server.handle_datagram(Time::from_millis(1), address(CLIENT), None, &mut first);
        let mut answer = Vec::new();
        server.poll_transmit(Time::from_millis(1), &mut answer).expect("an answer");
        let Opened { dcid: to, scid: from, crypto } =
            sealed::open(&sealed::keys(&dcid, rustls::Side::Client), &answer).expect("whole");
        Attack {
            victim,
            now: Time::from_millis(1),
            keys: sealed::keys(&dcid, rustls::Side::Server),
            ids: (to, from),
            honest: crypto,
            tokens: Vec::new(),
            counts: BTreeMap::new(),
            proved: [true; 2],
            is_server: false,
        }
    }

    fn hear(&mut self, from: u8, mut datagram: Vec<u8>) {
        self.counts.entry(from).or_default().0 += datagram.len();
        self.victim.handle_datagram(self.now, address(from), None, &mut datagram);
        self.drain();
    }

    /// Takes what the victim sends. Until an address is proved, that is at most three times what
    /// came from it.
    fn drain(&mut self) {
        let (mut out, mut answers) = (Vec::new(), 0);
        while let Some(transmit) = self.victim.poll_transmit(self.now, &mut out) {
            answers += 1;
            assert!(answers < ANSWERS_MAX, "it does not stop answering");
            let to = [CLIENT, SERVER, STRANGER].into_iter().find(|host| address(*host) == transmit.remote);
            let to = to.expect("an answer to whom nobody is");
            let count = self.counts.entry(to).or_default();
            count.1 += out.len();
            let is_proved = self.proved[usize::from(to == STRANGER)];
            assert!(is_proved || count.1 <= 3 * count.0, "{} bytes for {}", count.1, count.0);
            for datagram in out.chunks(transmit.segment_bytes.max(1)) {
                self.learn(datagram);
            }
        }
        while self.victim.poll_event().is_some() {}
    }

    /// Takes from an answer what an attacker can use: tokens, and the server's id.
    fn learn(&mut self, datagram: &[u8]) {
        match parse_header(datagram) {
            Ok(LongPacket::Retry(retry)) if self.tokens.len() < 4 => self.tokens.push(retry.token.to_vec()),
            Ok(LongPacket::Establishment(packet)) if self.is_server => self.ids.0 = packet.header.scid,
            _ => {}
        }
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let honest_from = if self.is_server { CLIENT } else { SERVER };
        let from = if u.ratio(7, 8)? { honest_from } else { STRANGER };
        match u.int_in_range(0..=7)? {
            0 => {
                self.now += Duration::from_millis(u64::from(u.arbitrary::<u16>()?) / 8);
                self.victim.handle_timeout(self.now);
                self.drain();
            }
            1 => {
                let datagram = some_bytes(u, 255)?.to_vec();
                if !datagram.is_empty() {
                    self.hear(from, datagram);
                }
            }
            _ => {
                let body = self.body(u)?;
                let token = self.token(u, from)?;
                let mut ids = self.ids;
                if u.ratio(1, 16)? {
                    ids.1 = ConnectionId::new(u.bytes(4)?).expect("short");
                }
                let number = u32::from(u.arbitrary::<u8>()?);
                if let Some(packet) = sealed::initial(&self.keys, ids, &token, number, &body) {
                    self.hear(from, packet);
                }
            }
        }
        Ok(())
    }

    fn token(&mut self, u: &mut Unstructured<'_>, from: u8) -> arbitrary::Result<Vec<u8>> {
        Ok(match u.int_in_range(0..=7)? {
            0 => some_bytes(u, 128)?.to_vec(),
            1 | 2 if !self.tokens.is_empty() => {
                let mut token = u.choose(&self.tokens)?.clone();
                if u.arbitrary()? {
                    let at = u.choose_index(token.len())?;
                    token[at] ^= u.int_in_range(1..=255u8)?;
                } else {
                    // Whole, it proves an address: whose it is the victim knows.
                    self.proved[usize::from(from == STRANGER)] = true;
                }
                token
            }
            _ => Vec::new(),
        })
    }

    /// A body, of headers or of any bytes.
    fn body(&self, u: &mut Unstructured<'_>) -> arbitrary::Result<Vec<u8>> {
        if u.ratio(1, 8)? {
            return Ok(some_bytes(u, 255)?.to_vec());
        }
        let fields = [0; 8];
        let mut chain = HeaderChain::new();
        // Pieces of what an honest peer says, in any order and any overlap; or of anything.
        let crypto_offset = match u.int_in_range(0..=3)? {
            0 => 0,
            1 => u32::from(u.arbitrary::<u8>()?),
            2 => u32::from(u.arbitrary::<u16>()?),
            _ => u.arbitrary()?,
        };
        let crypto: &[u8] = if u.ratio(3, 4)? {
            let start = (crypto_offset as usize).min(self.honest.len());
            let len = usize::from(u.arbitrary::<u16>()?).min(self.honest.len() - start);
            &self.honest[start..start + len]
        } else {
            some_bytes(u, 255)?
        };
        for kind in [0, 1, 2, 3, 4] {
            if !u.ratio(if kind == 0 { 7 } else { 1 }, 8)? {
                continue;
            }
            let header = match kind {
                0 => FunctionHeader::Establishment { crypto_offset, crypto },
                1 => {
                    let start = u64::from(u.arbitrary::<u8>()?);
                    let ranges =
                        core::iter::once(start..start + 1 + u64::from(u.arbitrary::<u8>()?)).collect();
                    FunctionHeader::Acknowledgement { delay_us: u.arbitrary()?, ranges }
                }
                2 => FunctionHeader::Ping,
                3 => FunctionHeader::Close { code: u.arbitrary()?, reason: "\u{1b}]0;x\u{7}" },
                _ => FunctionHeader::Unknown {
                    function: 0x40,
                    mechanism: u.arbitrary()?,
                    fields: &fields,
                    trailer: &[9],
                },
            };
            let _ = chain.push(header);
        }
        let mut body = EstablishmentBody { chain, padding: 0 };
        let bytes = body.encoded_len();
        body.padding = if u.ratio(7, 8)? { DATAGRAM_BYTES.saturating_sub(bytes) } else { 0 };
        let mut out = Vec::new();
        body.emit(&mut out);
        Ok(out)
    }
}

pub fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let mut attack = match first % 4 {
        0 => Attack::on_client(),
        1 => Attack::on_server(true),
        _ => Attack::on_server(false),
    };
    let mut u = Unstructured::new(rest);
    for _ in 0..STEPS_MAX {
        if u.is_empty() || attack.step(&mut u).is_err() {
            break;
        }
    }
    // Nobody finishes the handshake: all of it is forgotten.
    for _ in 0..10_000 {
        let Some(next) = attack.victim.poll_timeout() else { break };
        attack.now = attack.now.max(next);
        attack.victim.handle_timeout(attack.now);
        attack.drain();
    }
    assert!(attack.victim.is_empty(), "{} handshakes are kept for ever", attack.victim.len());
}
