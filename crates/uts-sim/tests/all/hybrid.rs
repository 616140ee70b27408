//! Key exchange with ML-KEM: a first flight of two packets, either of which may be lost, late, or
//! asked to prove where it comes from.

use core::time::Duration;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::kx_group::X25519MLKEM768;
use rustls::crypto::ring::kx_group::X25519;
use std::net::SocketAddr;
use uts_engine::{CLIENT_CID_BYTES, Connection, ConnectionConfig, Endpoint, EndpointConfig, Event};
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::{World, WorldConfig};

/// One way.
const DELAY: Duration = Duration::from_millis(20);
const CLIENT: usize = 0;
const SERVER: usize = 1;

/// Groups as the library has them.
const HYBRID: &[&dyn SupportedKxGroup] = &[X25519MLKEM768, X25519];
const CLASSICAL: &[&dyn SupportedKxGroup] = &[X25519];

/// Datagrams of an end that have a fate of their own, by their place in the order in which they
/// left.
#[derive(Clone, Copy, Debug, Default)]
struct Fates<'a> {
    lost: [&'a [usize]; 2],
    /// Takes 5 ms longer, so that what left with it overtakes it.
    late: [&'a [usize]; 2],
}

/// A handshake that has come to its end.
#[derive(Clone, Copy, Debug)]
struct Done {
    took: Duration,
    /// Datagrams and bytes of both ends.
    datagrams: [usize; 2],
    bytes: [usize; 2],
}

/// A datagram on its way.
struct Flying {
    at: Time,
    to: usize,
    /// Address of the client, from which it comes or to which it goes.
    client: SocketAddr,
    datagram: Vec<u8>,
}

/// A translator before the client, which gives it another port every so often: at first after
/// `first`. What goes to the port before is lost.
#[derive(Clone, Copy, Debug)]
struct Translator {
    first: Duration,
    every: Duration,
}

impl Translator {
    fn client_at(self, now: Time) -> SocketAddr {
        let since = now.since(Time::ZERO + self.first.min(now.since(Time::ZERO)));
        let is_later = now.since(Time::ZERO) >= self.first;
        let changes = if is_later { 1 + since.as_nanos() / self.every.as_nanos() } else { 0 };
        SocketAddr::from(([10, 0, 0, 1], 4433 + changes as u16))
    }
}

struct Ends {
    ends: [Endpoint; 2],
    now: Time,
    translator: Translator,
    wire: Vec<Flying>,
    sent: [Vec<usize>; 2],
}

fn server() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 4433))
}

impl Ends {
    /// Two ends with these groups, with datagrams of so many bytes at first.
    fn new(groups: [&[&'static dyn SupportedKxGroup]; 2], bytes: usize, proof: bool) -> Self {
        let identities = Identities::with_groups(1, groups).expect("keys");
        let accept = ConnectionConfig { packet_bytes_min: 268, ..ConnectionConfig::default() };
        let config = EndpointConfig {
            server: Some(identities.server.clone()),
            accept: accept.clone(),
            handshakes_before_retry: if proof { 0 } else { usize::MAX },
            ..EndpointConfig::default()
        };
        let client = EndpointConfig { cid_bytes: CLIENT_CID_BYTES, ..EndpointConfig::default() };
        let mut ends = [Endpoint::new(client, [1; 32]), Endpoint::new(config, [2; 32])];
        let config = ConnectionConfig { packet_bytes_initial: bytes, ..accept };
        identities.connect(&mut ends[CLIENT], Time::ZERO, server(), config).expect("begun");
        let never = Duration::from_secs(3600);
        let translator = Translator { first: never, every: never };
        Ends { ends, now: Time::ZERO, translator, wire: Vec::new(), sent: [Vec::new(), Vec::new()] }
    }

    fn send(&mut self, fates: &Fates<'_>) {
        for from in [CLIENT, SERVER] {
            let mut out = Vec::new();
            while let Some(transmit) = self.ends[from].poll_transmit(self.now, &mut out) {
                for datagram in core::mem::take(&mut out).chunks(transmit.segment_bytes) {
                    let place = self.sent[from].len();
                    self.sent[from].push(datagram.len());
                    let extra = if fates.late[from].contains(&place) { 5 } else { 0 };
                    if !fates.lost[from].contains(&place) {
                        let at = self.now + DELAY + Duration::from_millis(extra);
                        let here = self.translator.client_at(self.now);
                        let client = if from == CLIENT { here } else { transmit.remote };
                        self.wire.push(Flying { at, to: 1 - from, client, datagram: datagram.to_vec() });
                    }
                }
            }
        }
    }

    fn is_open(&self, end: usize) -> bool {
        let end = &self.ends[end];
        end.handles().any(|handle| end.peek(handle).is_some_and(Connection::is_open))
    }

    /// Until both ends are connected. Nothing else is sent.
    fn connect(mut self, fates: &Fates<'_>) -> Done {
        loop {
            self.send(fates);
            let ports = self.translator.client_at(self.now).port() - 4433;
            assert!(self.ends[SERVER].len() <= 1 + usize::from(ports), "one handshake is one connection");
            if self.is_open(CLIENT) && self.is_open(SERVER) {
                return Done {
                    took: self.now.since(Time::ZERO),
                    datagrams: [0, 1].map(|end: usize| self.sent[end].len()),
                    bytes: [0, 1].map(|end: usize| self.sent[end].iter().sum()),
                };
            }
            let arrives = self.wire.iter().map(|flying| flying.at).min();
            let due = self.ends.iter_mut().filter_map(Endpoint::poll_timeout).min();
            self.now = arrives.into_iter().chain(due).min().expect("something is to come").max(self.now);
            let translator = self.translator;
            assert!(self.now < Time::from_millis(60_000), "{fates:?}, {translator:?}: it is not connected");
            self.wire.sort_by_key(|flying| flying.at);
            let (here, later): (Vec<_>, _) =
                core::mem::take(&mut self.wire).into_iter().partition(|flying| flying.at <= self.now);
            self.wire = later;
            for Flying { to, client, mut datagram, .. } in here {
                if to == SERVER {
                    self.ends[SERVER].handle_datagram(self.now, client, None, &mut datagram);
                } else if client == translator.client_at(self.now) {
                    self.ends[CLIENT].handle_datagram(self.now, server(), None, &mut datagram);
                }
            }
            self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
            self.ends.iter_mut().for_each(|end| while end.poll_event().is_some() {});
        }
    }
}

/// All ways to choose one or two of the first `count` datagrams of an end.
fn ones_and_twos(count: usize) -> Vec<Vec<usize>> {
    let ones = (0..count).map(|one| vec![one]);
    let twos = (0..count).flat_map(|one| (one + 1..count).map(move |other| vec![one, other]));
    ones.chain(twos).collect()
}

#[test]
fn a_first_flight_with_ml_kem_is_one_full_datagram_more() {
    for proof in [false, true] {
        let classical = Ends::new([CLASSICAL, CLASSICAL], 1200, proof).connect(&Fates::default());
        let hybrid = Ends::new([HYBRID, HYBRID], 1200, proof).connect(&Fates::default());
        println!("proof {proof}: {classical:?}\n{hybrid:?}");
        let flights = 1 + usize::from(proof);
        assert_eq!(hybrid.took, classical.took, "a round trip more");
        assert_eq!(hybrid.datagrams[CLIENT], classical.datagrams[CLIENT] + flights);
        assert!(hybrid.bytes[CLIENT] <= classical.bytes[CLIENT] + flights * 1200, "{hybrid:?}");
        assert!(hybrid.bytes[SERVER] <= classical.bytes[SERVER] + 1500, "{hybrid:?}");
    }
}

/// An end that has no ML-KEM, or leaves it out, costs nobody another round trip.
#[test]
fn ends_with_different_groups_agree_in_the_same_time() {
    let both = Ends::new([CLASSICAL, CLASSICAL], 1200, false).connect(&Fates::default());
    for groups in [[HYBRID, CLASSICAL], [CLASSICAL, HYBRID]] {
        let done = Ends::new(groups, 1200, false).connect(&Fates::default());
        assert_eq!(done.took, both.took);
        assert!(done.bytes[SERVER] < 1200, "the server has not answered with ML-KEM: {done:?}");
    }
}

#[test]
fn any_packets_of_a_handshake_with_ml_kem_may_be_lost() {
    let mut longest = Duration::ZERO;
    for (proof, bytes) in [(false, 1200), (true, 1200), (false, 548), (true, 548)] {
        let count = Ends::new([HYBRID, HYBRID], bytes, proof).connect(&Fates::default());
        for end in [CLIENT, SERVER] {
            for lost in ones_and_twos(count.datagrams[end].min(8)) {
                let mut fates = Fates::default();
                fates.lost[end] = &lost;
                let done = Ends::new([HYBRID, HYBRID], bytes, proof).connect(&fates);
                longest = longest.max(done.took);
                // A first packet and its repeat after a second (establishment.md R-2).
                assert!(done.took <= Duration::from_millis(3_500), "{proof} {bytes} {fates:?}: {done:?}");
            }
        }
    }
    println!("{longest:?} at most");
}

#[test]
fn any_packets_of_a_handshake_with_ml_kem_may_overtake_others() {
    for (proof, bytes) in [(false, 1200), (true, 1200), (false, 548), (true, 548), (false, 268)] {
        let whole = Ends::new([HYBRID, HYBRID], bytes, proof).connect(&Fates::default());
        for end in [CLIENT, SERVER] {
            for late in ones_and_twos(whole.datagrams[end].min(8)) {
                let mut fates = Fates::default();
                fates.late[end] = &late;
                let done = Ends::new([HYBRID, HYBRID], bytes, proof).connect(&fates);
                let most = whole.took + 2 * Duration::from_millis(5);
                assert!(done.took <= most, "{proof} {bytes} {fates:?}: {done:?}, {whole:?}");
            }
        }
    }
}

/// The port of the client changes once, at each instant of the handshake and with each datagram of
/// the server lost, or again and again.
#[test]
fn a_port_that_changes_at_any_time_ends_no_handshake() {
    let mut longest = Duration::ZERO;
    for (groups, bytes, proof) in [
        (HYBRID, 1200, false),
        (HYBRID, 1200, true),
        (HYBRID, 548, true),
        (CLASSICAL, 1200, false),
        (CLASSICAL, 1200, true),
    ] {
        for (first, lost) in (0..24).flat_map(|n| (0..5).map(move |lost| (5 * n, lost))) {
            // A round trip takes 40 ms: with a port for 70 ms three tries of seven are answered.
            for (every_ms, most_s) in [(3_600_000, 8), (70, 30), (170, 20)] {
                let every = Duration::from_millis(every_ms);
                let mut ends = Ends::new([groups, groups], bytes, proof);
                ends.translator = Translator { first: Duration::from_millis(first), every };
                let lost = [lost];
                let done = ends.connect(&Fates { lost: [&[], &lost], late: [&[], &[]] });
                longest = longest.max(done.took);
                let most = Duration::from_secs(most_s);
                assert!(done.took <= most, "{proof} {bytes} {first} ms, {every:?}, {lost:?}: {done:?}");
            }
        }
    }
    println!("{longest:?} at most");
}

/// Packets of 296 bytes, with and without a token.
#[test]
fn a_path_of_least_packets_is_connected_over_with_ml_kem() {
    for (bytes, proof) in [(548, false), (548, true), (268, false), (268, true)] {
        let done = Ends::new([HYBRID, HYBRID], bytes, proof).connect(&Fates::default());
        println!("{bytes} bytes, proof {proof}: {done:?}");
        assert!(done.took <= Duration::from_millis(500), "{bytes} {proof}: {done:?}");
        let full = 1800_usize.div_ceil(bytes.saturating_sub(130));
        assert!(done.datagrams[CLIENT] <= (1 + usize::from(proof)) * full + 6, "{bytes} {proof}: {done:?}");
    }
}

/// Time to a connection over a serial line, in milliseconds.
fn over_line(bits: u32, groups: &[&'static dyn SupportedKxGroup]) -> Option<(u64, [u64; 2], [u64; 2])> {
    let line = format!("rate={bits}bit delay=5ms framing=slip buffer=8p overhead=28");
    let path = PathConfig::both(line.parse().expect("a valid path"));
    let config = WorldConfig { path, ..WorldConfig::default() };
    let mut world =
        World::new(config, Identities::with_groups(1, [groups; 2]).expect("keys")).expect("a valid world");
    world.connect(1, ConnectionConfig::default()).expect("begun");
    let ways = [uts_path::Direction::Forward, uts_path::Direction::Backward];
    while let Some(happening) = world.next(Time::from_millis(120_000)) {
        if (happening.node, &happening.event) == (1, &Event::Connected) {
            let stats = ways.map(|way| world.path_stats(way));
            let took = (world.now().as_secs_f64() * 1000.0) as u64;
            return Some((took, stats.map(|s| s.packets_in), stats.map(|s| s.bytes_in)));
        }
    }
    None
}

/// Figures of docs/security.md.
#[test]
fn on_slow_lines_ml_kem_costs_what_its_bytes_take() {
    for bits in [2400, 4800, 9600, 19200, 64000, 1_000_000] {
        let [classical, hybrid] = [CLASSICAL, HYBRID].map(|groups| over_line(bits, groups));
        println!("{bits} bit/s: {classical:?}, with ML-KEM {hybrid:?} (ms, packets, bytes)");
        if bits >= 9600 {
            let (classical, hybrid) = (classical.expect("connected").0, hybrid.expect("connected").0);
            // What is sent again because it takes long comes on top.
            let bytes = 1228 + 1300;
            let more = (bytes * 10 * 1000 / u64::from(bits)) * 3;
            assert!(hybrid <= classical + more, "{bits} bit/s: {classical} and {hybrid} ms");
        }
    }
}
