//! Calls over a path that loses, doubles and reorders, in virtual time from a seed.

use core::time::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use uts_rx::call::{Client, DATA_BYTES, Failure, Places, Server};
use uts_rx::{Body, Flags, Header, Packet, Type};

const PLACES: Places = Places { channels: 4, request_bytes: 200_000 };
const SERVICE: u16 = 147;

/// A path between a client and a server.
struct World {
    now: Duration,
    client: Client,
    server: Server<u8>,
    rng: ChaCha8Rng,
    loss: f64,
    /// Datagrams under way, by when they arrive and in which order they left.
    under_way: BTreeMap<(Duration, u64), (bool, Vec<u8>)>,
    sent: u64,
    /// Requests that were executed.
    executed: Vec<Vec<u8>>,
    ended: Option<Result<Vec<u8>, Failure>>,
}

fn answer_to(request: &[u8]) -> Result<Vec<u8>, i32> {
    match request.first() {
        Some(255) => Err(42),
        _ => Ok([request, request].concat()),
    }
}

impl World {
    fn new(seed: u64, loss: f64) -> Self {
        World {
            now: Duration::ZERO,
            client: Client::new(77, 4, SERVICE, 500_000),
            server: Server::new(SERVICE, PLACES),
            rng: ChaCha8Rng::seed_from_u64(seed),
            loss,
            under_way: BTreeMap::new(),
            sent: 0,
            executed: Vec::new(),
            ended: None,
        }
    }

    fn put(&mut self, to_server: bool, bytes: Vec<u8>) {
        if self.rng.random_bool(self.loss) {
            return;
        }
        let copies = if self.rng.random_bool(self.loss) { 2 } else { 1 };
        for _ in 0..copies {
            self.sent += 1;
            let arrives = self.now + Duration::from_millis(self.rng.random_range(10..40));
            self.under_way.insert((arrives, self.sent), (to_server, bytes.clone()));
        }
    }

    fn step(&mut self) {
        while let Some(bytes) = self.client.poll_transmit(self.now) {
            self.put(true, bytes);
        }
        while let Some((_, bytes)) = self.server.poll_transmit(self.now) {
            self.put(false, bytes);
        }
        let arrival = self.under_way.keys().next().map(|(at, _)| *at);
        let due = [arrival, self.client.poll_timeout(), self.server.poll_timeout()];
        self.now = self.now.max(due.into_iter().flatten().min().expect("something is due"));
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (to_server, bytes) = entry.remove();
            if to_server {
                let executed = &mut self.executed;
                self.server.handle_datagram(self.now, 1, &bytes, |request| {
                    executed.push(request.clone());
                    answer_to(&request)
                });
            } else if let Some(ended) = self.client.handle_datagram(self.now, &bytes) {
                assert!(self.ended.replace(ended).is_none(), "a call ends once");
            }
        }
        self.server.handle_timeout(self.now);
        if let Some(failure) = self.client.handle_timeout(self.now) {
            self.ended = Some(Err(failure));
        }
    }

    fn call(&mut self, request: &[u8]) -> Result<Vec<u8>, Failure> {
        self.client.call(self.now, request.to_vec());
        self.ended = None;
        for _ in 0..1_000_000 {
            if let Some(ended) = self.ended.take() {
                return ended;
            }
            self.step();
        }
        panic!("the call does not end");
    }
}

#[test]
fn each_call_is_executed_once_and_has_its_answer() {
    for seed in 0..20 {
        for loss in [0.0, 0.05, 0.15] {
            let mut world = World::new(seed, loss);
            for n in 0..12u8 {
                let most = if n == 0 { 1 } else { 40 * DATA_BYTES };
                let bytes = world.rng.random_range(0..most);
                let request: Vec<u8> =
                    (0..bytes).map(|at| (at as u8).wrapping_mul(7) ^ n).map(|b| b & 127).collect();
                let got = world.call(&request);
                let place = format!("seed {seed}, loss {loss}, call {n}");
                assert!(
                    got == Ok([&request[..], &request].concat()),
                    "{place}: {:?}",
                    got.map(|got| got.len())
                );
                assert!(world.executed.last() == Some(&request), "{place}");
                assert_eq!(world.executed.len(), usize::from(n) + 1, "seed {seed}, loss {loss}");
            }
        }
    }
}

#[test]
fn an_error_is_told_and_told_again() {
    for seed in 0..20 {
        let mut world = World::new(seed, 0.15);
        assert_eq!(world.call(&[255]), Err(Failure::Aborted(42)), "seed {seed}");
        assert_eq!(world.executed.len(), 1, "seed {seed}");
        assert_eq!(world.call(&[1]), Ok(vec![1, 1]), "seed {seed}");
    }
}

#[test]
fn bounds_hold() {
    let mut world = World::new(1, 0.0);
    assert_eq!(world.call(&vec![0; 200_001]), Err(Failure::Aborted(-5)));
    world.client = Client::new(78, 4, SERVICE, 1000);
    assert_eq!(world.call(&[0; 501]), Err(Failure::TooLong(1000)));
    // Silence ends a call.
    world.loss = 1.0;
    let before = world.now;
    assert_eq!(world.call(&[1]), Err(Failure::Silent));
    assert_eq!(world.now - before, Duration::from_secs(12));
}

fn data(connection: u32, sequence: u32) -> Vec<u8> {
    let header = Header {
        epoch: 9,
        connection,
        call: 1,
        sequence,
        serial: 1,
        kind: Type::Data,
        flags: Flags::FROM_CLIENT,
        status: 0,
        security: 0,
        verifier: 0,
        service: SERVICE,
    };
    Packet::new(header, Body::Data(b"x")).to_bytes()
}

#[test]
fn a_full_server_is_busy_and_forgets_who_is_silent() {
    let mut server: Server<u8> = Server::new(SERVICE, PLACES);
    let mut kinds = Vec::new();
    let later = Duration::from_secs(61);
    for (n, now) in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 61)] {
        let now = Duration::from_secs(now);
        server.handle_timeout(now);
        server.handle_datagram(now, 1, &data(4 * n, 2), |_| Ok(Vec::new()));
        while let Some((_, bytes)) = server.poll_transmit(now) {
            kinds.push((n, Packet::parse(&bytes).expect("of Rx").body().kind()));
        }
    }
    // Each is told that its packet has come out of its turn.
    let acks = [0, 1, 2, 3, 5].map(|n| (n, Type::Ack));
    assert_eq!(kinds, [&acks[..4], &[(4, Type::Busy)], &acks[4..]].concat());
    assert_eq!(server.poll_timeout(), Some(later + Duration::from_secs(60)));
    // Anything else is passed over.
    server.handle_datagram(later, 1, b"junk", |_| Ok(Vec::new()));
    server.handle_datagram(later, 1, &data(20, 2000), |_| Ok(Vec::new()));
    let (_, bytes) = server.poll_transmit(later).expect("it is beyond the window");
    assert!(matches!(Packet::parse(&bytes).expect("of Rx").body(), Body::Ack(_)));
}
