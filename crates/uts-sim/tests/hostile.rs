//! Packets from strangers: counted and dropped, with no state made or changed, and answered sparingly.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use uts_engine::{
    CloseReason, ConnectionConfig, ConnectionHandle, Direction, Endpoint, EndpointConfig, Event, FlowOptions,
    Read,
};
use uts_functions::{Function, Time};
use uts_sim::identity::{Identities, SERVER_NAME};

const CLIENT: usize = 0;
const SERVER: usize = 1;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 4433))
}

/// Two endpoints joined by hand, so that every datagram can be seen.
struct Pair {
    now: Time,
    ends: [Endpoint; 2],
    client: ConnectionHandle,
    server: Option<ConnectionHandle>,
    /// Datagrams of each end, as they left.
    sent: [Vec<Vec<u8>>; 2],
    events: [Vec<Event>; 2],
    identities: Identities,
}

impl Pair {
    fn new(server: EndpointConfig) -> Self {
        Self::seeded(server, 1)
    }

    fn seeded(server: EndpointConfig, seed: u8) -> Self {
        let identities = Identities::new().expect("keys");
        let server = EndpointConfig { server: Some(identities.server.clone()), ..server };
        let ends =
            [Endpoint::new(EndpointConfig::default(), [seed; 32]), Endpoint::new(server, [seed + 100; 32])];
        let mut pair = Pair {
            now: Time::from_millis(1),
            ends,
            client: ConnectionHandle(0),
            server: None,
            sent: [Vec::new(), Vec::new()],
            events: [Vec::new(), Vec::new()],
            identities,
        };
        pair.client = pair.connect();
        pair
    }

    fn connect(&mut self) -> ConnectionHandle {
        let name = ServerName::try_from(SERVER_NAME).expect("a name");
        let tls = self.identities.client.clone();
        self.ends[CLIENT]
            .connect(self.now, address(1), name, tls, ConnectionConfig::default())
            .expect("the connection begins")
    }

    /// Takes what an end sends.
    fn drain(&mut self, end: usize) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut out = Vec::new();
        let mut buffer = Vec::new();
        while let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut buffer) {
            out.extend(buffer.chunks(transmit.segment_bytes).map(|bytes| (transmit.remote, bytes.to_vec())));
            assert!(out.len() < 10_000, "it does not stop sending");
        }
        while let Some((handle, event)) = self.ends[end].poll_event() {
            if event == Event::Connected && end == SERVER {
                self.server = Some(handle);
            }
            self.events[end].push(event);
        }
        out
    }

    /// One flight each way; says whether anything was sent.
    fn exchange(&mut self) -> bool {
        let mut any = false;
        for end in [CLIENT, SERVER] {
            for (to, mut datagram) in self.drain(end) {
                any = true;
                self.sent[end].push(datagram.clone());
                let from = address(end as u8);
                if to == address(1 - end as u8) {
                    self.ends[1 - end].handle_datagram(self.now, from, None, &mut datagram);
                }
            }
        }
        any
    }

    /// Lets time pass until nothing is due before `until_ms`.
    fn settle(&mut self, until_ms: u64) {
        for _ in 0..100_000 {
            if self.exchange() {
                continue;
            }
            let next = self.ends.iter_mut().filter_map(Endpoint::poll_timeout).min().unwrap_or(Time::NEVER);
            if next > Time::from_millis(until_ms) {
                self.now = Time::from_millis(until_ms);
                return;
            }
            self.now = self.now.max(next);
            for end in &mut self.ends {
                end.handle_timeout(self.now);
            }
        }
        panic!("it does not settle");
    }

    /// A stranger's datagram to an end: what it is answered with, in bytes.
    fn inject(&mut self, end: usize, from: SocketAddr, datagram: &[u8]) -> usize {
        let mut datagram = datagram.to_vec();
        self.ends[end].handle_datagram(self.now, from, None, &mut datagram);
        let out = self.drain(end);
        out.iter().filter(|(to, _)| *to == from).map(|(_, bytes)| bytes.len()).sum()
    }

    /// What must not change: connections, and what each keeps.
    fn state(&mut self) -> String {
        let (client, server) = (self.client, self.server);
        let of = |end: &Endpoint, handle: Option<ConnectionHandle>| {
            handle.and_then(|h| end.peek(h)).map(|c| {
                let s = c.stats();
                (
                    s.packets_received,
                    s.data_bytes_received,
                    s.exchanges,
                    c.memory_bytes(),
                    c.close_reason().cloned(),
                )
            })
        };
        let [a, b] = &self.ends;
        format!("{} {:?} {} {:?}", a.len(), of(a, Some(client)), b.len(), of(b, server))
    }

    fn works(&mut self) {
        let now = self.now;
        let connection = self.ends[CLIENT].connection(self.client).expect("it is there");
        let flow = connection.open_flow(FlowOptions::default()).expect("a flow");
        connection.write(now, flow, bytes::Bytes::from_static(b"still here")).expect("room");
        self.settle(now.as_nanos() / 1_000_000 + 100);
        let server = self.server.expect("connected");
        let read = self.ends[SERVER].connection(server).expect("it is there").read(self.now, flow, 100);
        assert_eq!(read, Ok(Read::Bytes(0, bytes::Bytes::from_static(b"still here"))));
    }
}

/// Bad datagrams made out of good ones.
fn bad(rng: &mut ChaCha8Rng, good: &[Vec<u8>]) -> Vec<u8> {
    let mut datagram = good[rng.random_range(0..good.len())].clone();
    match rng.random_range(0..5) {
        0 => datagram.truncate(rng.random_range(0..datagram.len())),
        1 => {
            let bit = rng.random_range(0..datagram.len() * 8);
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
        2 => rng.fill(&mut datagram[..]),
        3 => {
            let head = rng.random_range(1..datagram.len().min(30));
            rng.fill(&mut datagram[head..]);
        }
        _ => {
            datagram[0] ^= rng.random_range(1..=255u8);
            datagram.resize(rng.random_range(1..3000), 0);
        }
    }
    datagram
}

#[test]
fn bad_packets_change_nothing_at_any_stage() {
    for flights in 0..5 {
        let mut pair = Pair::new(EndpointConfig::default());
        // Another connection's packets: right in form, and of no concern here.
        let mut rehearsal = Pair::seeded(EndpointConfig::default(), 2);
        rehearsal.settle(200);
        for _ in 0..flights {
            pair.exchange();
        }
        if flights == 4 {
            pair.settle(200);
        }
        let good: Vec<Vec<u8>> =
            rehearsal.sent.iter().chain(&pair.sent).flatten().filter(|d| !d.is_empty()).cloned().collect();
        let mut rng = ChaCha8Rng::seed_from_u64(flights);
        for end in [CLIENT, SERVER] {
            pair.drain(end);
        }
        let before = pair.state();
        for _ in 0..3000 {
            let datagram = bad(&mut rng, &good);
            let end = rng.random_range(0..2);
            let from = address(if rng.random_bool(0.5) { 9 } else { 1 - end as u8 });
            let answered = pair.inject(end, from, &datagram);
            assert!(answered <= 3 * datagram.len(), "{answered} bytes for {}", datagram.len());
        }
        assert_eq!(pair.state(), before, "after {flights} flights");
        if flights == 4 {
            pair.works();
        }
    }
}

/// P-35: of a header the id is authenticated, the number is the nonce, its length says where the payload begins and the epoch which keys.
#[test]
fn a_packet_with_another_header_is_dropped() {
    for cipher in ["aes-128-gcm", "chacha20-poly1305"] {
        let mut pair = Pair::new(EndpointConfig::default());
        pair.settle(200);
        let (now, client) = (pair.now, pair.client);
        let connection = pair.ends[CLIENT].connection(client).expect("it is there");
        let profile = connection.profile(Direction::Out).expect("open");
        let profile = profile.with_named(Function::Protection, cipher).expect("in the library");
        connection.request_profile(now, Direction::Out, profile).expect("idle");
        pair.settle(1000);
        pair.works();
        let now = pair.now;
        let connection = pair.ends[CLIENT].connection(client).expect("it is there");
        assert_eq!(connection.profile(Direction::Out), Some(profile));
        let fresh = connection.packet_of(now, &[0x01]).expect("open");
        pair.drain(CLIENT);
        let before = pair.state();
        let header = 1 + EndpointConfig::default().cid_bytes + 4;
        for bit in 0..header * 8 {
            let mut changed = fresh.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            pair.inject(SERVER, address(CLIENT as u8), &changed);
            assert_eq!(pair.state(), before, "{cipher}: bit {bit}");
        }
        pair.inject(SERVER, address(CLIENT as u8), &fresh);
        assert_ne!(pair.state(), before, "{cipher}: as it was made it is taken in");
        pair.works();
    }
}

#[test]
fn replayed_packets_are_dropped_and_make_no_second_connection() {
    let mut pair = Pair::new(EndpointConfig::default());
    pair.settle(200);
    pair.works();
    let before = pair.state();
    for end in [CLIENT, SERVER] {
        for datagram in pair.sent[end].clone() {
            pair.inject(1 - end, address(end as u8), &datagram);
        }
    }
    assert_eq!(pair.state(), before);
    // From elsewhere a first packet is a first packet; what follows of it is bounded, and others are nothing.
    let firsts = pair.sent[CLIENT].clone();
    let answered: usize = firsts.iter().map(|datagram| pair.inject(SERVER, address(9), datagram)).sum();
    assert!(answered <= 3 * firsts.iter().map(Vec::len).sum::<usize>());
    assert!(pair.ends[SERVER].len() <= 2);
    pair.settle(60_000);
    assert!(pair.ends[SERVER].len() <= 1, "a handshake that nobody finishes is forgotten");
}

#[test]
fn datagrams_that_come_together_are_each_judged_alone() {
    let mut pair = Pair::new(EndpointConfig::default());
    pair.settle(200);
    pair.works();
    let (before, strangers) = (pair.state(), pair.ends[SERVER].strangers);
    // A forged one under a known id, and three under none.
    let good = pair.sent[CLIENT].iter().rev().find(|d| d[0] & 0x80 == 0).expect("a short packet").clone();
    let mut batch = vec![0x11; 4 * 60];
    batch[60..69].copy_from_slice(&good[..9]);
    pair.ends[SERVER].take_in(pair.now, address(CLIENT as u8), None, None, 60, &mut batch);
    pair.ends[SERVER].taken_in(pair.now);
    assert_eq!(pair.ends[SERVER].strangers - strangers, 3);
    let forged = pair.server.and_then(|h| pair.ends[SERVER].peek(h)).expect("open").stats();
    assert_eq!(forged.dropped_forged + forged.dropped_malformed, 1, "{forged:?}");
    assert_eq!(pair.state(), before);
    pair.works();
}

#[test]
fn an_unproved_address_gets_at_most_three_times_what_it_sent() {
    for handshakes_before_retry in [0, 256] {
        let mut pair = Pair::new(EndpointConfig { handshakes_before_retry, ..EndpointConfig::default() });
        let first = pair.drain(CLIENT);
        let mut received = 0;
        let mut answered = 0;
        for (_, datagram) in &first {
            received += datagram.len();
            answered += pair.inject(SERVER, address(0), datagram);
            assert!(answered <= 3 * received);
        }
        assert!(answered > 0);
        // Nothing more comes from there; time passes.
        for _ in 0..200 {
            let Some(next) = pair.ends[SERVER].poll_timeout() else { break };
            pair.now = pair.now.max(next);
            let now = pair.now;
            pair.ends[SERVER].handle_timeout(now);
            answered += pair.drain(SERVER).iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
            assert!(answered <= 3 * received, "{answered} bytes for {received}");
        }
        assert_eq!(pair.ends[SERVER].len(), 0, "it is forgotten");
    }
}

#[test]
fn a_retry_proves_the_address_and_only_that_one() {
    let mut pair = Pair::new(EndpointConfig { handshakes_before_retry: 0, ..EndpointConfig::default() });
    pair.exchange();
    assert_eq!(pair.ends[SERVER].len(), 0, "no state before the address is proved");
    let second = pair.drain(CLIENT);
    for (_, datagram) in &second {
        pair.inject(SERVER, address(9), datagram);
        assert_eq!(pair.ends[SERVER].len(), 0, "a token of another address is worth nothing");
    }
    for (_, datagram) in &second {
        pair.inject(SERVER, address(0), datagram);
    }
    assert_eq!(pair.ends[SERVER].len(), 1);
    let mut pair = Pair::new(EndpointConfig { handshakes_before_retry: 0, ..EndpointConfig::default() });
    pair.settle(500);
    pair.works();
}

#[test]
fn another_version_is_refused_naming_both() {
    let mut pair = Pair::new(EndpointConfig::default());
    let first = pair.drain(CLIENT);
    let (_, datagram) = &first[0];
    let mut other = datagram.clone();
    other[1..5].copy_from_slice(b"UTS\x09");
    let mut other_in = other.clone();
    pair.ends[SERVER].handle_datagram(pair.now, address(0), None, &mut other_in);
    let answers = pair.drain(SERVER);
    assert_eq!((answers.len(), pair.ends[SERVER].len()), (1, 0));
    // The same refusal, as it would come from a server that speaks version 9 only.
    let mut refusal = answers[0].1.clone();
    let at = refusal.len() - 4;
    refusal[at..].copy_from_slice(b"UTS\x09");
    let mut forged = refusal.clone();
    forged[8] ^= 1;
    pair.inject(CLIENT, address(1), &forged);
    assert!(pair.events[CLIENT].is_empty(), "an answer to nothing we sent");
    pair.inject(CLIENT, address(1), &refusal);
    let Some(Event::Closed(reason @ CloseReason::Version { .. })) = pair.events[CLIENT].last() else {
        panic!("{:?}", pair.events[CLIENT])
    };
    assert_eq!(reason.to_string(), "the peer speaks version UTS 9, this end speaks version UTS 2");
}

#[test]
fn only_the_right_token_resets() {
    let secret = [7; 32];
    let mut pair = Pair::new(EndpointConfig { secret, ..EndpointConfig::default() });
    pair.settle(200);
    // A server that was restarted: the same secret, no connections.
    let config =
        EndpointConfig { secret, server: Some(pair.identities.server.clone()), ..EndpointConfig::default() };
    let mut restarted = Endpoint::new(config, [3; 32]);
    pair.works();
    let mut short =
        pair.sent[CLIENT].iter().rev().find(|d| d[0] & 0x80 == 0 && d.len() > 30).expect("one").clone();
    restarted.handle_datagram(pair.now, address(0), None, &mut short);
    let mut answer = Vec::new();
    restarted.poll_transmit(pair.now, &mut answer).expect("a reset");
    assert!(answer.len() < short.len());
    for place in [0, 8, 15] {
        let mut wrong = answer.clone();
        let at = wrong.len() - 16 + place;
        wrong[at] ^= 1;
        pair.inject(CLIENT, address(1), &wrong);
        pair.inject(CLIENT, address(9), &answer);
    }
    assert!(pair.ends[CLIENT].peek(pair.client).expect("it is there").is_open());
    pair.inject(CLIENT, address(1), &answer);
    assert_eq!(pair.events[CLIENT].last(), Some(&Event::Closed(CloseReason::Reset)));
}

/// An address has so many connections and no more. Who sends in its name keeps nobody out.
#[test]
fn an_address_has_its_part_and_no_more() {
    let config = EndpointConfig { connections_per_address_max: 2, ..EndpointConfig::default() };
    let mut pair = Pair::new(config);
    pair.settle(200);
    pair.connect();
    pair.settle(400);
    assert_eq!(pair.ends[SERVER].len(), 2);
    for _ in 0..2 {
        pair.connect();
        pair.settle(400);
        let last = pair.events[CLIENT].last();
        let Some(Event::Closed(reason)) = last else { panic!("{:?}", pair.events[CLIENT]) };
        assert!(
            reason.to_string().contains("this address has as many connections to it as it may"),
            "{reason}"
        );
        assert_eq!(pair.ends[SERVER].len(), 2);
    }
    // A place that becomes free is taken again.
    let (now, first) = (pair.now, pair.client);
    pair.ends[CLIENT].connection(first).expect("it is there").close(now, 0, "");
    pair.settle(2000);
    assert_eq!(pair.ends[SERVER].len(), 1);
    pair.client = pair.connect();
    pair.settle(400);
    pair.works();
}

#[test]
fn a_full_endpoint_says_so() {
    let mut pair = Pair::new(EndpointConfig { connections_max: 1, ..EndpointConfig::default() });
    pair.settle(200);
    pair.connect();
    pair.settle(400);
    let Some(Event::Closed(reason)) = pair.events[CLIENT].last() else { panic!("{:?}", pair.events[CLIENT]) };
    let told = reason.to_string();
    assert!(told.starts_with("refused by the peer: it has as many connections as it may"), "{told}");
    assert!(told.ends_with("(said before it had shown who it is)"), "{told}");
    assert_eq!(pair.ends[SERVER].len(), 1);
    pair.works();
}
