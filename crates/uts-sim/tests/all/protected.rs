//! Whole packets under given secrets (`spec/vectors/protected.json`), and a connection from its
//! first packet on (`spec/vectors/handshake.json`), opened by what the pages say and nothing else.

use crate::joined::{CLIENT, Pair, SERVER, address};
use crate::pages::{self, Keys, hex, unhex};
use rustls::CipherSuite;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use uts_engine::{ALPN, Direction, Endpoint, EndpointConfig, FlowOptions};
use uts_functions::protection::{Direction as Way, Protection as _, Secret};
use uts_functions::{Choice, Function, Time, detection, protection};
use uts_sim::identity::{Identities, SERVER_NAME};
use uts_wire::packet::chain::{EstablishmentBody, FunctionHeader, HeaderChain, parse_body};
use uts_wire::packet::{AdaptiveHeader, EstablishmentHeader, Level, LongPacket, is_long, parse_header};
use uts_wire::{ConnectionId, End, Frame, FrameIter, Hello};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors").join(name)
}

fn read(name: &str) -> Value {
    let text = std::fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn bytes(value: &Value, field: &str) -> Vec<u8> {
    unhex(value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}")))
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("no {field} in {value}"))
}

fn id(value: &Value, field: &str) -> ConnectionId {
    ConnectionId::new(&bytes(value, field)).expect("20 bytes at the most")
}

/// The packet that a vector describes, by the pages.
fn packet_of(vector: &Value) -> Vec<u8> {
    let numbered = number(vector, "number");
    match vector["packet"].as_str().expect("a kind") {
        "adaptive" => {
            let epoch = u32::try_from(number(vector, "epoch")).expect("32 bits");
            let secret = pages::secret_of_epoch(&bytes(vector, "E"), vector["from"] == "client", epoch);
            let header = AdaptiveHeader { epoch_low5: (epoch % 32) as u8, dcid: id(vector, "dcid") };
            let keys = Keys::of_epoch(number(vector, "protection") as u8, &secret);
            let number_bytes = number(vector, "number_bytes") as u8;
            keys.seal_short(&header, (numbered, number_bytes), &bytes(vector, "payload"))
        }
        level => {
            let token = bytes(vector, "token");
            let level = if level == "Initial" { Level::Initial } else { Level::Handshake };
            let header = EstablishmentHeader {
                level,
                dcid: id(vector, "dcid"),
                scid: id(vector, "scid"),
                token: &token,
            };
            keys_of_level(vector).seal_long(&header, numbered as u32, &bytes(vector, "body"))
        }
    }
}

/// Keys of an establishment packet: of the id that the first one went to, or of a secret of TLS.
fn keys_of_level(vector: &Value) -> Keys {
    if vector["packet"] == "Initial" {
        let [client, server] = pages::initial_secrets(&bytes(vector, "first_dcid"));
        return Keys::of_level(0x1301, if vector["from"] == "client" { &client } else { &server });
    }
    let suite = u16::from_str_radix(vector["suite"].as_str().expect("a suite"), 16).expect("hexadecimal");
    Keys::of_level(suite, &bytes(vector, "secret"))
}

#[test]
fn packets_under_given_secrets_are_as_the_pages_say() {
    let file = read("protected.json");
    let vectors = file["vectors"].as_array().expect("a list");
    let of = |packet: &str| vectors.iter().filter(|vector| vector["packet"] == packet).collect::<Vec<_>>();
    for vector in of("Initial").into_iter().chain(of("Handshake")).chain(of("adaptive")) {
        assert_eq!(hex(packet_of(vector)), vector["hex"], "{}", vector["name"]);
    }
    for vector in of("Retry") {
        let packet = bytes(vector, "hex");
        let (before, field) = packet.split_at(packet.len() - 16);
        assert_eq!(pages::integrity(&bytes(vector, "first_dcid"), before), field, "{}", vector["name"]);
    }
    let counts = ["Initial", "Handshake", "Retry", "adaptive", "unprotected"].map(|packet| of(packet).len());
    assert!(counts.iter().zip([2, 3, 1, 4, 2]).all(|(found, least)| *found >= least), "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), vectors.len());
}

/// The same packets by the library: adaptive ones of each cipher, and those that a checksum covers.
#[test]
fn the_library_makes_the_same_adaptive_packets() {
    let file = read("protected.json");
    for vector in file["vectors"].as_array().expect("a list") {
        let kind = vector["packet"].as_str().expect("a kind");
        if !["adaptive", "unprotected"].contains(&kind) {
            continue;
        }
        let epoch = number(vector, "epoch") as u32;
        let way = if vector["from"] == "client" { Way::ClientToServer } else { Way::ServerToClient };
        let exporter = bytes(vector, "E").try_into().expect("32 bytes");
        let secret = (0..epoch).fold(Secret::from_exporter(&exporter, way), |secret, _| secret.next());
        let choice = |function, field: &str| {
            let number = number(vector, field) as u8;
            uts_functions::library::find(function, number).map_or_else(Choice::default, |m| m.choice())
        };
        let cipher = protection::Slot::build(&choice(Function::Protection, "protection"), &secret);
        let checksum = detection::Slot::build(&choice(Function::Detection, "detection"), ());
        let (cipher, checksum) = (cipher.expect("a cipher"), checksum.expect("a checksum"));
        let frames = bytes(vector, "frames");
        let made = emit(vector, (&cipher, &checksum), &frames);
        assert_eq!(hex(&made), vector["hex"], "{}", vector["name"]);
    }
}

/// Checksum, cipher and mask over these frames.
fn emit(vector: &Value, (cipher, checksum): (&protection::Slot, &detection::Slot), frames: &[u8]) -> Vec<u8> {
    use uts_functions::detection::Detection as _;
    let numbered = number(vector, "number");
    let truncated =
        uts_wire::packet::TruncatedNumber::with_len(numbered, number(vector, "number_bytes") as u8);
    let header =
        AdaptiveHeader { epoch_low5: (number(vector, "epoch") % 32) as u8, dcid: id(vector, "dcid") };
    let mut out = Vec::new();
    let mark = header.emit(truncated, &mut out);
    out.extend_from_slice(frames);
    let mut trailer = vec![0; checksum.trailer_bytes()];
    checksum.append(&out, &mut trailer);
    detection::add_left_out(mark.left_out_of(numbered), &mut trailer);
    out.extend_from_slice(&trailer);
    let mut tag = vec![0; cipher.tag_bytes()];
    cipher.seal(numbered, header.dcid.filled(), &mut out[mark.payload_offset()..], &mut tag);
    out.extend_from_slice(&tag);
    if cipher.sample_bytes() > 0 {
        let sample = uts_wire::packet::sample(&out, mark.pn_offset).expect("a sample");
        let mask = cipher.header_mask(sample);
        mark.mask(&mut out, &mask);
    }
    out
}

/// A connection with a Retry, as it went by: who sent each datagram, and the secrets of TLS.
struct Recording {
    suite: u16,
    datagrams: Vec<(usize, Vec<u8>)>,
    secrets: BTreeMap<String, Vec<u8>>,
}

/// Keeps the secrets of a session.
#[derive(Debug, Default)]
struct Secrets(Mutex<BTreeMap<String, Vec<u8>>>);

impl rustls::KeyLog for Secrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        self.0.lock().expect("no panic").insert(label.to_owned(), secret.to_vec());
    }
}

/// TLS of both ends with this suite alone, as the stock programs have it otherwise.
fn identities(suite: CipherSuite, secrets: &Arc<Secrets>) -> Identities {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|known| known.suite() == suite);
    let provider = Arc::new(provider);
    let versions = &[&rustls::version::TLS13];
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let params = rcgen::CertificateParams::new(vec![SERVER_NAME.to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate").der().clone();
    let private = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let server = rustls::ServerConfig::builder_with_provider(provider.clone());
    let server = server.with_protocol_versions(versions).expect("TLS 1.3").with_no_client_auth();
    let mut server = server.with_single_cert(vec![certificate.clone()], private).expect("its key");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).expect("a root");
    let client = rustls::ClientConfig::builder_with_provider(provider);
    let client = client.with_protocol_versions(versions).expect("TLS 1.3").with_root_certificates(roots);
    let mut client = client.with_no_client_auth();
    (server.alpn_protocols, client.alpn_protocols) = (vec![ALPN.to_vec()], vec![ALPN.to_vec()]);
    server.send_tls13_tickets = 0;
    client.resumption = rustls::client::Resumption::disabled();
    client.key_log = secrets.clone();
    Identities { server: Arc::new(server), client: Arc::new(client) }
}

/// The client says something, changes its cipher, says something more, and closes.
fn record(suite: CipherSuite) -> Recording {
    let secrets = Arc::new(Secrets::default());
    let identities = identities(suite, &secrets);
    let config = EndpointConfig { handshakes_before_retry: 0, ..EndpointConfig::default() };
    let mut pair = Pair::with_identities(config, 1, identities);
    let mut datagrams = Vec::new();
    pass(&mut pair, &mut datagrams, 200);
    let (now, client) = (pair.now, pair.client);
    let connection = pair.ends[CLIENT].connection(client).expect("open");
    let flow = connection.open_flow(FlowOptions::default()).expect("a flow");
    connection.write(now, flow, bytes::Bytes::from_static(b"under the first cipher")).expect("room");
    pass(&mut pair, &mut datagrams, 400);
    let now = pair.now;
    let connection = pair.ends[CLIENT].connection(client).expect("open");
    let profile = connection.profile(Direction::Out).expect("open");
    let profile = profile.with_named(Function::Protection, "chacha20-poly1305").expect("in the library");
    connection.request_profile(now, Direction::Out, profile).expect("idle");
    pass(&mut pair, &mut datagrams, 600);
    let now = pair.now;
    let connection = pair.ends[CLIENT].connection(client).expect("open");
    connection.write(now, flow, bytes::Bytes::from_static(b"under the second")).expect("room");
    connection.finish(flow);
    pass(&mut pair, &mut datagrams, 800);
    let now = pair.now;
    pair.ends[CLIENT].connection(client).expect("open").close(now, 0, "done");
    pass(&mut pair, &mut datagrams, 900);
    let secrets = secrets.0.lock().expect("no panic").clone();
    Recording { suite: u16::from(suite), datagrams, secrets }
}

/// Lets time pass, and keeps what is sent in its order.
fn pass(pair: &mut Pair, datagrams: &mut Vec<(usize, Vec<u8>)>, until_ms: u64) {
    let until = Time::from_millis(until_ms);
    loop {
        let mut any = false;
        for end in [CLIENT, SERVER] {
            for (_, mut datagram) in pair.drain(end) {
                any = true;
                datagrams.push((end, datagram.clone()));
                pair.ends[1 - end].handle_datagram(pair.now, address(end as u8), None, &mut datagram);
            }
        }
        if any {
            continue;
        }
        let next = pair.ends.iter_mut().filter_map(Endpoint::poll_timeout).min().unwrap_or(Time::NEVER);
        pair.now = pair.now.max(next.min(until));
        if next > until {
            return;
        }
        pair.ends.iter_mut().for_each(|end| end.handle_timeout(pair.now));
    }
}

/// A reader of both directions, by the pages.
struct Listener {
    suite: u16,
    secrets: BTreeMap<String, Vec<u8>>,
    /// The id from which keys of the level Initial follow.
    first_dcid: Vec<u8>,
    ids: [usize; 2],
    largest: [Option<u64>; 2],
    /// Bytes of TLS of each end and level.
    tls: BTreeMap<(usize, &'static str), Vec<u8>>,
}

impl Listener {
    fn new(recording: &Recording) -> Self {
        let (suite, secrets) = (recording.suite, recording.secrets.clone());
        Listener {
            suite,
            secrets,
            first_dcid: Vec::new(),
            ids: [0; 2],
            largest: [None; 2],
            tls: BTreeMap::new(),
        }
    }

    /// Packets of a datagram, as JSON.
    fn read(&mut self, from: usize, mut rest: &[u8]) -> Vec<Value> {
        let mut packets = Vec::new();
        while !rest.is_empty() {
            if !is_long(rest[0]) {
                packets.push(self.read_short(from, rest));
                return packets;
            }
            let long = parse_header(rest).expect("a long packet");
            let LongPacket::Establishment(packet) = &long else {
                let LongPacket::Retry(retry) = &long else { panic!("{long:?}") };
                let (before, field) = rest.split_at(rest.len() - 16);
                assert_eq!(pages::integrity(&self.first_dcid, before), field, "K-22");
                self.first_dcid = retry.scid.as_slice().to_vec();
                packets.push(json!({ "packet": "Retry", "token": hex(retry.token) }));
                return packets;
            };
            let (whole, behind) = rest.split_at(packet.range.end);
            packets.push(self.read_long(from, whole, packet));
            rest = behind;
        }
        packets
    }

    fn read_long(
        &mut self,
        from: usize,
        packet: &[u8],
        parsed: &uts_wire::packet::EstablishmentPacket<'_>,
    ) -> Value {
        if self.first_dcid.is_empty() {
            self.first_dcid = parsed.header.dcid.as_slice().to_vec();
        }
        self.ids[from] = parsed.header.scid.len();
        let (level, secret) = match parsed.header.level {
            Level::Initial => ("Initial", pages::initial_secrets(&self.first_dcid)[from].clone()),
            Level::Handshake => {
                let label = ["CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_HANDSHAKE_TRAFFIC_SECRET"][from];
                ("Handshake", self.secrets[label].clone())
            }
            Level::Early => panic!("nothing is asked early"),
        };
        let suite = if level == "Initial" { 0x1301 } else { self.suite };
        let keys = Keys::of_level(suite, &secret);
        let (number, body) = keys.open_long(packet, parsed.pn_offset).expect("K-13 to K-16");
        for header in parse_body(&body).expect("a body").chain.headers() {
            if let FunctionHeader::Establishment { crypto_offset, crypto } = header {
                let stream = self.tls.entry((from, level)).or_default();
                let (start, end) = (*crypto_offset as usize, *crypto_offset as usize + crypto.len());
                stream.resize(stream.len().max(end), 0);
                stream[start..end].copy_from_slice(crypto);
            }
        }
        json!({ "packet": level, "number": number, "body": hex(body) })
    }

    fn read_short(&mut self, from: usize, packet: &[u8]) -> Value {
        let exporter = pages::exporter(self.suite, &self.secrets["EXPORTER_SECRET"]);
        let expected = self.largest[from].map_or(0, |largest| largest + 1);
        // The sender of data allots even numbers, the receiver odd ones.
        for epoch in 0..4 {
            let secret = pages::secret_of_epoch(&exporter, from == CLIENT, epoch);
            for cipher in [1, 2] {
                let keys = Keys::of_epoch(cipher, &secret);
                let Some((number, payload)) = keys.open_short(packet, self.ids[1 - from], expected) else {
                    continue;
                };
                let frames: Result<Vec<Frame<'_>>, _> = FrameIter::new(&payload).collect();
                assert!(frames.is_ok_and(|frames| !frames.is_empty()), "packet {number}");
                self.largest[from] = self.largest[from].max(Some(number));
                return json!({
                    "packet": "adaptive", "epoch": epoch, "protection": cipher, "number": number,
                    "payload": hex(payload),
                });
            }
        }
        panic!("an adaptive packet of {from} does not open");
    }
}

/// Messages of TLS in a stream: type and body.
fn messages(mut stream: &[u8]) -> Vec<(u8, &[u8])> {
    let mut found = Vec::new();
    while let Some((head, rest)) = stream.split_first_chunk::<4>() {
        let (body, behind) = rest.split_at(u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize);
        found.push((head[0], body));
        stream = behind;
    }
    found
}

/// Takes a part with a length of so many bytes off the front.
fn part<'a>(from: &mut &'a [u8], length_bytes: usize) -> &'a [u8] {
    let (length, rest) = from.split_at(length_bytes);
    let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let (part, behind) = rest.split_at(length);
    *from = behind;
    part
}

/// Extensions by number.
fn extensions(mut all: &[u8]) -> BTreeMap<u16, &[u8]> {
    let mut found = BTreeMap::new();
    while let Some((number, rest)) = all.split_first_chunk::<2>() {
        all = rest;
        found.insert(u16::from_be_bytes(*number), part(&mut all, 2));
    }
    found
}

/// Checks the messages against keys.md K-1 to K-4.
fn check_messages(tls: &BTreeMap<(usize, &'static str), Vec<u8>>) {
    let of = |end, level| messages(&tls[&(end, level)]);
    let kinds = |end, level| of(end, level).iter().map(|(kind, _)| *kind).collect::<Vec<u8>>();
    let all = [(CLIENT, "Initial"), (SERVER, "Initial"), (SERVER, "Handshake"), (CLIENT, "Handshake")];
    let found = all.map(|(end, level)| kinds(end, level));
    assert_eq!(found, [vec![1], vec![2], vec![8, 11, 15, 20], vec![20]], "K-1, K-2");
    let mut client_hello = &of(CLIENT, "Initial")[0].1[2 + 32..];
    assert!(part(&mut client_hello, 1).is_empty(), "K-1: the session id is empty");
    let suites = part(&mut client_hello, 2);
    assert!(!suites.is_empty(), "K-5");
    part(&mut client_hello, 1);
    let offered = extensions(part(&mut client_hello, 2));
    let mut encrypted = of(SERVER, "Handshake")[0].1;
    let answered = extensions(part(&mut encrypted, 2));
    for extensions in [&offered, &answered] {
        assert_eq!(extensions[&16], b"\x00\x06\x05uts/1", "K-3");
    }
    assert!(Hello::parse(offered[&57], End::Client).is_ok(), "K-4");
    assert!(Hello::parse(answered[&57], End::Server).is_ok(), "K-4");
    assert!(offered[&10].windows(2).any(|group| group == [0x00, 0x1d]), "K-6");
    assert!(offered[&13].windows(2).any(|scheme| scheme == [0x08, 0x07]), "K-7");
    assert!(!offered.contains_key(&41) && !offered.contains_key(&42), "K-2: nothing is resumed or early");
}

/// A recording as `handshake.json` has it.
fn described(recording: &Recording) -> Value {
    let mut listener = Listener::new(recording);
    let name = |end: usize| if end == CLIENT { "client" } else { "server" };
    let datagrams: Vec<Value> = recording
        .datagrams
        .iter()
        .map(|(from, datagram)| {
            json!({ "from": name(*from), "hex": hex(datagram), "packets": listener.read(*from, datagram) })
        })
        .collect();
    check_messages(&listener.tls);
    let tls = listener
        .tls
        .iter()
        .map(|((end, level), bytes)| json!({ "from": name(*end), "level": level, "hex": hex(bytes) }));
    let secrets: BTreeMap<&str, String> = recording
        .secrets
        .iter()
        .filter(|(label, _)| label.contains("HANDSHAKE") || *label == "EXPORTER_SECRET")
        .map(|(label, secret)| (label.as_str(), hex(secret)))
        .collect();
    let exporter = pages::exporter(recording.suite, &recording.secrets["EXPORTER_SECRET"]);
    json!({
        "about": "A connection from its first packet to its close, with a Retry: the client sends in flow 0, \
                  changes its cipher, ends the flow, and closes. The suite is 0x1301. `secrets` are those of TLS \
                  by their names in RFC 8446, and E. `tls` are the handshake bytes of each end and level. A body \
                  or payload is what stands inside the protection.",
        "secrets": secrets, "E": hex(exporter), "tls": tls.collect::<Value>(), "vectors": datagrams,
    })
}

/// The engine's packets open by the pages alone, as they are today.
#[test]
fn a_connection_opens_as_the_pages_say() {
    use CipherSuite as Suite;
    for suite in [
        Suite::TLS13_AES_128_GCM_SHA256,
        Suite::TLS13_AES_256_GCM_SHA384,
        Suite::TLS13_CHACHA20_POLY1305_SHA256,
    ] {
        check_recording(&record(suite));
    }
}

fn check_recording(recording: &Recording) {
    let read = described(recording);
    let packets: Vec<&Value> = read["vectors"]
        .as_array()
        .expect("a list")
        .iter()
        .flat_map(|d| d["packets"].as_array())
        .flatten()
        .collect();
    for kind in ["Initial", "Retry", "Handshake", "adaptive"] {
        assert!(packets.iter().any(|packet| packet["packet"] == kind), "no packet is {kind}");
    }
    let ciphers = [1, 2].map(|cipher| packets.iter().filter(|p| p["protection"] == cipher).count());
    assert!(ciphers.iter().all(|count| *count >= 3), "packets of each cipher: {ciphers:?}");
    // K-18: a server sends nothing adaptive before the client's Finished.
    let datagrams = read["vectors"].as_array().expect("a list");
    let first = |from: &str, kind: &str| {
        datagrams.iter().position(|d| {
            d["from"] == from
                && d["packets"].as_array().is_some_and(|all| all.iter().any(|p| p["packet"] == kind))
        })
    };
    assert!(first("server", "adaptive") > first("client", "Handshake"), "K-18");
}

/// The recording of `handshake.json` opens, and is what it is said to be.
#[test]
fn the_recorded_connection_opens_as_the_pages_say() {
    let file = read("handshake.json");
    let of = |end: &Value| if end == "client" { CLIENT } else { SERVER };
    let datagrams = file["vectors"].as_array().expect("a list");
    let secrets = file["secrets"].as_object().expect("an object");
    let recording = Recording {
        suite: 0x1301,
        datagrams: datagrams.iter().map(|d| (of(&d["from"]), bytes(d, "hex"))).collect(),
        secrets: secrets
            .iter()
            .map(|(name, secret)| (name.clone(), unhex(secret.as_str().expect("text"))))
            .collect(),
    };
    assert!(described(&recording) == file, "the file says otherwise");
}

/// K-14: a server with ids of 8 bytes takes a first packet that goes to an id of at least 8 bytes,
/// one with shorter ids to one as long as these, and none to an id without bytes.
#[test]
fn a_first_packet_goes_to_an_id_that_is_long_enough() {
    for cid_bytes in [0, 1, 5, 8, 20] {
        for length in 0..=20 {
            let dcid = ConnectionId::new(&vec![7; length]).expect("20 bytes at the most");
            let [secret, _] = pages::initial_secrets(dcid.as_slice());
            let header =
                EstablishmentHeader { level: Level::Initial, dcid, scid: ConnectionId::EMPTY, token: &[] };
            let packet = Keys::of_level(0x1301, &secret).seal_long(&header, 0, &[0; 1100]);
            let identities = Identities::new().expect("keys");
            let config =
                EndpointConfig { server: Some(identities.server), cid_bytes, ..EndpointConfig::default() };
            let mut server = Endpoint::new(config, [1; 32]);
            server.handle_datagram(Time::from_millis(1), address(0), None, &mut packet.clone());
            let least = if cid_bytes < 8 { cid_bytes.max(1) } else { 8 };
            assert_eq!(server.len(), usize::from(length >= least), "{length} bytes, {cid_bytes} of its own");
        }
    }
}

/// K-12: what cannot be read as a message of TLS is answered with the alert for that.
#[test]
fn a_message_that_cannot_be_read_has_its_own_code() {
    let dcid = ConnectionId::new(&[7; 8]).expect("8 bytes");
    let [client, server] = pages::initial_secrets(dcid.as_slice());
    // ClientHellos: of three bytes, with lists that are longer than they are, and one before bytes
    // that begin no message.
    for message in [
        vec![1, 0, 0, 3, 3, 3, 0],
        [vec![1, 0, 0, 60, 3, 3], vec![0xff; 58]].concat(),
        [&b"\x01\x00\x00\x04none"[..], &[0x55; 200]].concat(),
        [&b"\x01\x00\x00\x04none"[..], &[0; 200]].concat(),
    ] {
        let mut chain = HeaderChain::new();
        chain.push(FunctionHeader::Establishment { crypto_offset: 0, crypto: &message }).expect("short");
        let mut body = Vec::new();
        EstablishmentBody { chain, padding: 1000 }.emit(&mut body);
        let header =
            EstablishmentHeader { level: Level::Initial, dcid, scid: ConnectionId::EMPTY, token: &[] };
        let mut packet = Keys::of_level(0x1301, &client).seal_long(&header, 0, &body);
        let identities = Identities::new().expect("keys");
        let config = EndpointConfig { server: Some(identities.server), ..EndpointConfig::default() };
        let (mut end, now) = (Endpoint::new(config, [1; 32]), Time::from_millis(1));
        end.handle_datagram(now, address(0), None, &mut packet);
        let mut answer = Vec::new();
        end.poll_transmit(now, &mut answer).expect("a close");
        let Ok(LongPacket::Establishment(parsed)) = parse_header(&answer) else { panic!("{answer:x?}") };
        let keys = Keys::of_level(0x1301, &server);
        let (_, body) = keys.open_long(&answer[..parsed.range.end], parsed.pn_offset).expect("K-13");
        let body = parse_body(&body).expect("a body");
        let code = body.chain.headers().iter().find_map(|header| match header {
            FunctionHeader::Close { code, .. } => Some(*code),
            _ => None,
        });
        assert_eq!(code, Some(0x100 + 50), "{message:x?}");
    }
}

/// Writes `handshake.json` anew: TLS draws new secrets each time.
#[test]
#[ignore = "writes into the specification"]
fn write_the_recorded_connection() {
    let text = serde_json::to_string_pretty(&described(&record(CipherSuite::TLS13_AES_128_GCM_SHA256)));
    let text = text.expect("JSON");
    std::fs::write(file("handshake.json"), text + "\n").expect("written");
}
