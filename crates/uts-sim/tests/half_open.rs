//! Memory of a server that an unfinished handshake holds, whatever its packets say: by a counting
//! allocator.

mod counting;

use counting::HELD;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::kx_group::X25519MLKEM768;
use rustls::crypto::ring::kx_group::X25519;
use rustls::quic::{self, Keys};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use uts_engine::{Endpoint, EndpointConfig};
use uts_functions::Time;
use uts_sim::identity::{Identities, SERVER_NAME};
use uts_wire::ConnectionId;
use uts_wire::packet::chain::{EstablishmentBody, FunctionHeader, HeaderChain};
use uts_wire::packet::establishment::{EstablishmentHeader, Level};
use uts_wire::packet::{mask_number, sample};

/// Bytes that a half-open handshake may take.
const BYTES_MAX: usize = 128 * 1024;

/// A datagram of a client.
const DATAGRAM_BYTES: usize = 1200;

/// The counters are the process's: tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// A client that follows no protocol but that of first packets, whose keys anybody can have.
struct Liar {
    address: SocketAddr,
    dcid: ConnectionId,
    keys: Keys,
    number: u32,
}

impl Liar {
    fn new(number: u32) -> Self {
        let dcid = ConnectionId::new(&[number.to_be_bytes(), [7; 4]].concat()).expect("8 bytes");
        let suite = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
        let suite = suite.tls13().and_then(|suite| suite.quic_suite()).expect("a suite");
        let keys = suite.keys(dcid.as_slice(), rustls::Side::Client, quic::Version::V1);
        let address = SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 4433));
        Liar { address, dcid, keys, number: 0 }
    }

    /// A first packet with handshake bytes at any position.
    fn packet(&mut self, crypto_offset: u32, crypto: &[u8]) -> Vec<u8> {
        let scid = ConnectionId::new(&[1; 4]).expect("4 bytes");
        let header = EstablishmentHeader { level: Level::Initial, dcid: self.dcid, scid, token: &[] };
        let mut chain = HeaderChain::new();
        chain.push(FunctionHeader::Establishment { crypto_offset, crypto }).expect("room");
        let mut out = Vec::new();
        let mark = header.emit(self.number, &mut out);
        let mut body = EstablishmentBody { chain, padding: 0 };
        body.padding = DATAGRAM_BYTES.saturating_sub(out.len() + body.encoded_len() + 16);
        body.emit(&mut out);
        mark.set_length(&mut out, 16).expect("short");
        let (head, payload) = out.split_at_mut(mark.body_offset());
        let tag = self.keys.local.packet.encrypt_in_place(u64::from(self.number), head, payload);
        out.extend_from_slice(tag.expect("sealed").as_ref());
        let (mut first, mut mask) = (0x83, [0; 5]);
        let sample = sample(&out, mark.pn_offset).expect("long enough");
        self.keys.local.header.encrypt_in_place(sample, &mut first, &mut mask[1..]).expect("masked");
        mask_number(&mut out[mark.pn_offset..mark.pn_offset + 4], &mask);
        self.number += 1;
        out
    }
}

/// The groups of the stock programs: a greeting with ML-KEM is the longest that is honest.
const GROUPS: &[&dyn SupportedKxGroup] = &[X25519MLKEM768, X25519];

fn identities() -> Identities {
    Identities::with_groups(1, [GROUPS; 2]).expect("keys")
}

fn server(config: EndpointConfig) -> Endpoint {
    let identities = identities();
    Endpoint::new(EndpointConfig { server: Some(identities.server), ..config }, [1; 32])
}

fn hand_over(server: &mut Endpoint, from: SocketAddr, mut datagram: Vec<u8>) {
    server.handle_datagram(Time::from_millis(1), from, None, &mut datagram);
    while server.poll_transmit(Time::from_millis(1), &mut Vec::new()).is_some() {}
}

/// A greeting of TLS with as much of whatever is in it as a level takes.
fn long_greeting(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut body = [&[3, 3][..], &[9; 32], &[0]].concat();
    let suites: u16 = rng.random_range(1..1000);
    body.extend((suites * 2).to_be_bytes());
    (0..suites).for_each(|_| body.extend([0x13, 0x01]));
    body.extend([1, 0]);
    let (mut extensions, mut kind) = (Vec::new(), rng.random::<u16>());
    let each = rng.random_range(0..300_usize);
    while extensions.len() + each + 4 + body.len() < 16 * 1024 - 10 {
        kind = kind.wrapping_add(1);
        extensions.extend(kind.to_be_bytes());
        extensions.extend((each as u16).to_be_bytes());
        extensions.resize(extensions.len() + each, 0);
    }
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    [&[1, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat()
}

/// The first packet of an honest client. The server answers with all that it has to say, and keeps
/// it for repeats.
fn true_greeting() -> Vec<u8> {
    let config = identities().client;
    let name = SERVER_NAME.try_into().expect("a name");
    let tls = quic::ClientConnection::new(config, quic::Version::V1, name, vec![0; 100]);
    let mut greeting = Vec::new();
    let _ = tls.expect("a client").write_hs(&mut greeting);
    greeting
}

/// The handshake bytes of a sequence: where each piece lies, and how long it is.
fn sequence(rng: &mut ChaCha8Rng, kind: u32) -> Vec<(u32, Vec<u8>)> {
    let count = 3000;
    let piece = |rng: &mut ChaCha8Rng, len: usize| vec![rng.random(); len];
    match kind {
        // A byte further back each time, each piece as long as allowed: each would be stored whole.
        0 => (0..count).map(|n| (20_000 - n, piece(rng, 1000))).collect(),
        // A byte at every other position.
        1 => (0..count).map(|n| (2 * n + 1, piece(rng, 1))).collect(),
        2 => (0..count)
            .map(|_| (rng.random_range(1..70_000), rng.random_range(1..1000)))
            .map(|(at, len)| (at, vec![0; len]))
            .collect(),
        3 => (0..count).map(|n| (n * 900, piece(rng, 1000))).collect(),
        // A message of TLS that is said to be long, from its start.
        4 => {
            let mut message = vec![1, 0, 0xff, 0xff];
            message.resize(70_000, 0);
            message.chunks(900).enumerate().map(|(n, part)| (n as u32 * 900, part.to_vec())).collect()
        }
        // A true greeting, and then whatever there is room for.
        5 => {
            let greeting = true_greeting();
            let end = greeting.len() as u32;
            let parts = greeting.chunks(1000).enumerate().map(|(n, part)| (n as u32 * 1000, part.to_vec()));
            let rest: Vec<_> =
                (0..count).map(|n| (end + n % 2 * rng.random_range(0..20_000), piece(rng, 900))).collect();
            parts.chain(rest).collect()
        }
        _ => {
            let greeting = long_greeting(rng);
            greeting.chunks(1000).enumerate().map(|(n, part)| (n as u32 * 1000, part.to_vec())).collect()
        }
    }
}

#[test]
fn a_half_open_handshake_stays_small_whatever_it_is_sent() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for kind in 0..7 {
        for round in 0..3 {
            let sequence = sequence(&mut rng, kind);
            let (mut server, mut liar) = (server(EndpointConfig::default()), Liar::new(1));
            let datagrams: Vec<_> = sequence.iter().map(|(at, piece)| liar.packet(*at, piece)).collect();
            let before = HELD.load(Ordering::Relaxed);
            let mut most = 0;
            for datagram in datagrams {
                hand_over(&mut server, liar.address, datagram);
                most = most.max(HELD.load(Ordering::Relaxed).saturating_sub(before));
            }
            println!("sequence {kind}.{round}: {most} bytes at most, {} connections", server.len());
            assert_eq!(server.len(), 1, "sequence {kind}: it was taken for a handshake");
            assert!(most <= BYTES_MAX, "sequence {kind}.{round}: {most} bytes");
        }
    }
}

#[test]
fn all_half_open_handshakes_together_stay_within_their_bound() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let bound = 4 << 20;
    let config = EndpointConfig {
        handshake_bytes_max: bound,
        handshakes_before_retry: usize::MAX,
        ..EndpointConfig::default()
    };
    let mut server = server(config);
    let before = HELD.load(Ordering::Relaxed);
    for number in 0..1000 {
        let mut liar = Liar::new(number);
        for at in (1..16).rev() {
            let datagram = liar.packet(at * 1000, &[0; 1000]);
            hand_over(&mut server, liar.address, datagram);
        }
    }
    let held = HELD.load(Ordering::Relaxed) - before;
    println!("{held} bytes for {} handshakes", server.len());
    assert!((50..500).contains(&server.len()), "{} handshakes", server.len());
    assert!(held <= bound, "{held} bytes, bound {bound}");
}
