//! Answers to an unproved address: every short sequence of datagrams that may come from it, and of
//! time.

use core::time::Duration;
use rustls::crypto::aws_lc_rs::kx_group::X25519MLKEM768;
use std::net::SocketAddr;
use uts_engine::{ConnectionConfig, Endpoint, EndpointConfig};
use uts_functions::Time;
use uts_sim::identity::Identities;
use uts_wire::packet::establishment::{EstablishmentHeader, Level, LongPacket, parse_header};

/// Steps of a sequence.
const STEPS: u32 = 4;

/// Use of a client's first datagram, which is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Whole,
    /// Its first half: too short for an answer.
    Half,
    /// With a bit changed behind its header, where a tag finds it.
    Changed,
    /// With bytes behind it, which belong to no packet.
    Longer,
    /// Of another connection from the same address.
    Other,
    /// A packet of no connection, from another address, under the id that the server has given.
    Elsewhere,
    /// Until something is due, and that.
    Due,
}

const ALL: [Step; 7] =
    [Step::Whole, Step::Half, Step::Changed, Step::Longer, Step::Other, Step::Elsewhere, Step::Due];

/// The host of an address that is not the client's.
const ELSEWHERE: u8 = 7;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 4433))
}

fn first_flight(identities: &Identities, seed: u8, packet_bytes_initial: usize) -> Vec<Vec<u8>> {
    let mut client = Endpoint::new(EndpointConfig::default(), [seed; 32]);
    let config = ConnectionConfig { packet_bytes_initial, ..ConnectionConfig::default() };
    identities.connect(&mut client, Time::ZERO, address(1), config).expect("it begins");
    let (mut flight, mut out) = (Vec::new(), Vec::new());
    while client.poll_transmit(Time::ZERO, &mut out).is_some() {
        assert_eq!(out.len(), packet_bytes_initial, "it is full");
        flight.push(core::mem::take(&mut out));
    }
    flight
}

/// Bytes that came and that went, step by step.
struct Account {
    server: Endpoint,
    now: Time,
    heard: usize,
    said: usize,
    /// The latest answer.
    answer: Vec<u8>,
}

impl Account {
    fn hear(&mut self, mut datagram: Vec<u8>) {
        self.heard += datagram.len();
        self.server.handle_datagram(self.now, address(0), None, &mut datagram);
    }

    /// Says something with the id of the server that the latest answer has. It is no packet of the
    /// connection, so that it is not followed, and nobody's address has said more for it.
    fn hear_from_elsewhere(&mut self) {
        let Ok(LongPacket::Establishment(answer)) = parse_header(&self.answer) else { return };
        let (dcid, scid) = (answer.header.scid, answer.header.dcid);
        let mut datagram = Vec::new();
        let mark =
            EstablishmentHeader { level: Level::Initial, dcid, scid, token: &[] }.emit(7, &mut datagram);
        datagram.extend_from_slice(&[5; 1100]);
        mark.set_length(&mut datagram, 0).expect("it fits");
        self.server.handle_datagram(self.now, address(ELSEWHERE), None, &mut datagram);
    }

    fn pass(&mut self) {
        if let Some(due) = self.server.poll_timeout() {
            self.now = self.now.max(due);
            self.server.handle_timeout(self.now);
        }
    }

    /// RFC 9000 section 8.1: three times what came, and it stops.
    fn settle(&mut self, steps: &[Step]) {
        let mut out = Vec::new();
        while let Some(transmit) = self.server.poll_transmit(self.now, &mut out) {
            assert_eq!(transmit.remote, address(0), "{steps:?}");
            self.said += out.len();
            self.answer.clone_from(&out);
            assert!(self.said <= 3 * self.heard, "{steps:?}: {} bytes for {}", self.said, self.heard);
        }
        while self.server.poll_event().is_some() {}
    }
}

#[test]
fn an_address_that_is_not_proved_gets_three_times_what_came_from_it() {
    // Certificates as large as a chain of some: there is more to say than may be said.
    let classical = Identities::with_names(100).expect("keys");
    let hybrid = Identities::with_groups(100, [&[X25519MLKEM768]; 2]).expect("keys");
    let sizes = [(1200, 256), (1200, 0), (548, 256), (548, 0)];
    let all = [&classical, &hybrid].into_iter().flat_map(|identities| sizes.map(|size| (identities, size)));
    for (identities, (bytes, handshakes_before_retry)) in all {
        let flight = |seed| first_flight(identities, seed, bytes);
        let (whole, other) = (flight(1), flight(2));
        let first = &whole[0];
        let mut most = 0.0_f64;
        for sequence in 0..ALL.len().pow(STEPS) {
            let steps: Vec<Step> =
                (0..STEPS).map(|place| ALL[sequence / ALL.len().pow(place) % ALL.len()]).collect();
            let server = Some(identities.server.clone());
            let config = EndpointConfig { server, handshakes_before_retry, ..EndpointConfig::default() };
            let server = Endpoint::new(config, [3; 32]);
            let (now, answer) = (Time::from_millis(1), Vec::new());
            let mut account = Account { server, now, heard: 0, said: 0, answer };
            for step in &steps {
                match step {
                    Step::Whole => whole.iter().cloned().for_each(|datagram| account.hear(datagram)),
                    Step::Half => account.hear(first[..first.len() / 2].to_vec()),
                    Step::Changed => {
                        let mut changed = first.clone();
                        changed[100] ^= 1;
                        account.hear(changed);
                    }
                    Step::Longer => account.hear([&first[..], &[0; 272]].concat()),
                    Step::Other => other.iter().cloned().for_each(|datagram| account.hear(datagram)),
                    Step::Elsewhere => account.hear_from_elsewhere(),
                    Step::Due => account.pass(),
                }
                account.settle(&steps);
            }
            // Nothing more comes; all that is repeated is within the same bound.
            for _ in 0..100 {
                account.pass();
                account.settle(&steps);
                account.now += Duration::from_millis(1);
            }
            if account.heard > 0 {
                most = most.max(account.said as f64 / account.heard as f64);
            }
            assert!(account.server.is_empty(), "{steps:?}: a handshake is kept");
        }
        println!("{bytes} bytes, retry from {handshakes_before_retry}: at most {most:.2} times");
        // It does answer.
        assert!(most > if handshakes_before_retry == 0 { 0.01 } else { 1.0 }, "{most}");
    }
}

/// Services that answer whoever asks them are asked nothing in the name of others.
#[test]
fn nothing_is_answered_to_ports_of_services_that_answer() {
    let identities = Identities::new().expect("keys");
    let first = first_flight(&identities, 1, 1200);
    let said = |port: u16, datagram: &[u8]| {
        let config = EndpointConfig { server: Some(identities.server.clone()), ..EndpointConfig::default() };
        let mut server = Endpoint::new(config, [9; 32]);
        let from = SocketAddr::from(([192, 0, 2, 1], port));
        server.handle_datagram(Time::ZERO, from, None, &mut datagram.to_vec());
        let mut out = Vec::new();
        let mut bytes = 0;
        while server.poll_transmit(Time::ZERO, &mut out).is_some() {
            bytes += core::mem::take(&mut out).len();
        }
        bytes
    };
    // Another version, and a packet of no connection.
    let mut version = first[0].clone();
    version[1..5].copy_from_slice(&[9; 4]);
    for datagram in [&first[0], &version] {
        for port in [53, 123, 1900, 11211, 0] {
            assert_eq!(said(port, datagram), 0, "port {port}");
        }
        for port in [1, 54, 443, 4433, 65535] {
            assert!(said(port, datagram) > 0, "port {port}");
        }
    }
}
