//! Many connections between two endpoints that all send what they can: over one path, into one
//! socket's buffer.

use bytes::Bytes;
use core::time::Duration;
use std::collections::BTreeMap;
use uts_engine::{
    Connection, ConnectionConfig, ConnectionHandle, EndpointConfig, Event, FlowId, FlowOptions, Read,
};
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::{World, WorldConfig};

const SERVER: usize = 0;
const CLIENT: usize = 1;

struct Outcome {
    /// Bytes that each connection brought.
    shares: Vec<f64>,
    lost: u64,
    sent: u64,
    /// Bytes that each wake of a writer let it write, on average.
    written_by_wake: usize,
    /// Delay of each word of the connection that is quiet else.
    delays: Vec<Duration>,
}

impl Outcome {
    fn jain(&self) -> f64 {
        let (sum, squares) = self.shares.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
        sum * sum / (self.shares.len() as f64 * squares)
    }

    fn bits(&self) -> f64 {
        self.shares.iter().sum::<f64>() * 8.0
    }
}

/// Interval at which the quiet connection says something.
const SILENCE: Duration = Duration::from_millis(50);

/// First byte of a word, which other data does not have.
const WORD: u8 = 0xff;

/// Connections that send what they can over one path.
#[derive(Clone)]
struct Setup {
    connections: usize,
    path: &'static str,
    /// Changes of the path.
    schedule: &'static str,
    waiting_bytes_max: u64,
    /// Memory of each end for all of them.
    memory_bytes_max: usize,
    /// There is another one, which only says a word now and then.
    with_quiet: bool,
}

impl Setup {
    fn new(connections: usize, path: &'static str) -> Self {
        let waiting_bytes_max = EndpointConfig::default().waiting_bytes_max;
        // Memory for hundreds of connections that all have much to send: it is the way that they
        // share here.
        let memory_bytes_max = 1 << 30;
        Setup { connections, path, schedule: "", waiting_bytes_max, memory_bytes_max, with_quiet: false }
    }

    /// Nothing bounds what waits on the way.
    fn unbounded(self) -> Self {
        Setup { waiting_bytes_max: u64::MAX / 4, ..self }
    }

    fn world(&self) -> World {
        let mut path = PathConfig::both(self.path.parse().expect("a valid path"));
        path.schedule = self.schedule.parse().expect("a valid schedule");
        let memory_bytes_max = self.memory_bytes_max;
        let endpoint = EndpointConfig { memory_bytes_max, ..EndpointConfig::default() };
        let client = EndpointConfig { waiting_bytes_max: self.waiting_bytes_max, ..endpoint.clone() };
        let server = EndpointConfig { handshakes_before_retry: usize::MAX, ..endpoint };
        let config = WorldConfig { path, server, client, ..WorldConfig::default() };
        World::new(config, Identities::new().expect("keys")).expect("a valid world")
    }

    /// Lets them send until the second time, in milliseconds. What arrives from the first on
    /// counts.
    fn run(&self, [from, until]: [u64; 2]) -> Outcome {
        let mut world = self.world();
        let mut flows: BTreeMap<ConnectionHandle, FlowId> = BTreeMap::new();
        let mut got: BTreeMap<ConnectionHandle, u64> = BTreeMap::new();
        let mut connect = || world.connect(CLIENT, ConnectionConfig::default()).expect("it begins");
        for _ in 0..self.connections {
            connect();
        }
        let quiet = self.with_quiet.then(connect);
        let (mut wakes, mut written) = (0, 0);
        let (mut delays, mut word_at) = (Vec::new(), Time::from_millis(from));
        let until = Time::from_millis(until);
        loop {
            let Some(happening) = world.next(word_at.min(until)) else {
                if word_at >= until {
                    break;
                }
                if word_at == Time::from_millis(from) {
                    got.clear();
                }
                if let Some(quiet) = quiet {
                    let word = [&[WORD][..], &word_at.as_nanos().to_be_bytes()].concat();
                    let connection = world.connection(CLIENT, quiet).expect("open");
                    connection.write(word_at, flows[&quiet], word.into()).expect("room");
                }
                word_at += SILENCE;
                continue;
            };
            let (now, handle) = (world.now(), happening.connection);
            match (happening.node, happening.event) {
                (_, Event::Closed(reason)) => panic!("{reason}"),
                (CLIENT, event @ (Event::Connected | Event::Writable(_))) => {
                    let connection = world.connection(CLIENT, handle).expect("open");
                    if event == Event::Connected {
                        let flow = connection.open_flow(FlowOptions::default()).expect("a flow");
                        flows.insert(handle, flow);
                    }
                    let data = Bytes::from_static(&[7; 64 << 10]);
                    wakes += 1;
                    while quiet != Some(handle)
                        && let Ok(taken) = connection.write(now, flows[&handle], data.clone())
                    {
                        written += taken;
                    }
                }
                (SERVER, Event::Readable(flow)) => {
                    let connection = world.connection(SERVER, handle).expect("open");
                    for chunk in received(connection, now, flow) {
                        if chunk[0] != WORD {
                            *got.entry(handle).or_default() += chunk.len() as u64;
                            continue;
                        }
                        delays.extend(chunk.chunks(9).map(|word| {
                            let at = u64::from_be_bytes(word[1..].try_into().expect("a word"));
                            now.since(Time::from_nanos(at))
                        }));
                    }
                }
                _ => {}
            }
        }
        let mut shares: Vec<_> = got.values().map(|bytes| *bytes as f64).collect();
        assert!(shares.len() <= self.connections);
        shares.resize(self.connections, 0.0);
        let mut outcome = Outcome { shares, lost: 0, sent: 0, written_by_wake: written / wakes, delays };
        for handle in flows.keys() {
            let stats = world.endpoint(CLIENT).peek(*handle).expect("open").stats();
            outcome.lost += stats.packets_lost;
            outcome.sent += stats.packets_sent;
        }
        outcome
    }
}

/// Bytes that can be read of a flow.
fn received(connection: &mut Connection, now: Time, flow: FlowId) -> Vec<Bytes> {
    core::iter::from_fn(|| match connection.read(now, flow, 1 << 20).ok()? {
        Read::Bytes(_, chunk) => Some(chunk),
        other => panic!("{other:?}"),
    })
    .collect()
}

/// The buffer of a socket on a machine of its own: short, and deep beside what the path itself
/// holds.
const MACHINE: &str = "rate=1gbit delay=100us buffer=4MB";

#[test]
fn many_share_a_peer_evenly_and_lose_nothing() {
    let many = Setup::new(300, MACHINE);
    let outcome = many.run([1_500, 3_500]);
    assert!(outcome.jain() > 0.95, "{}", outcome.jain());
    assert!(outcome.lost * 1000 < outcome.sent, "{} of {}", outcome.lost, outcome.sent);
    // Headers of IP, UDP and UTS take 5 %.
    assert!(outcome.bits() > 0.9 * 2e9, "{}", outcome.bits());
    // The test can fail: each by itself overflows the buffer.
    let alone = many.unbounded().run([1_500, 3_500]);
    assert!(alone.lost * 100 > alone.sent, "{} of {}", alone.lost, alone.sent);
}

/// A connection that seldom sends waits for what is on the way already. It does not wait for a turn
/// of each connection that sends without end.
#[test]
fn among_many_that_send_what_they_can_one_is_heard_at_once() {
    let outcome = Setup { with_quiet: true, ..Setup::new(300, MACHINE) }.run([1_500, 3_500]);
    assert!(outcome.delays.len() > 35, "{} words", outcome.delays.len());
    let longest = outcome.delays.iter().max().expect("words");
    // 2 MiB take 17 ms, 300 turns 160.
    assert!(*longest < Duration::from_millis(40), "{longest:?}");
    assert!(outcome.jain() > 0.95, "{}", outcome.jain());
    assert_eq!(outcome.lost, 0);
}

/// For a while nothing waits on the way. Hundreds of windows have grown by turns, and must not send
/// at once all that they allow.
#[test]
fn many_lose_nothing_when_a_queue_that_was_gone_comes_back() {
    let schedule = "at=1s both rate=2gbit; at=1100ms both rate=1gbit";
    let many = Setup { schedule, ..Setup::new(300, "rate=1gbit delay=5ms buffer=5MB") };
    let outcome = many.run([1_000, 2_000]);
    assert_eq!(outcome.lost, 0, "of {}", outcome.sent);
    assert!(outcome.jain() > 0.95, "{}", outcome.jain());
    assert!(outcome.bits() > 0.9 * 1.1e9, "{}", outcome.bits());
}

/// Slow start would overflow the buffer by thousands of packets.
#[test]
fn one_alone_loses_nothing_either() {
    let one = Setup::new(1, MACHINE);
    let bounded = one.run([0, 1_000]);
    assert_eq!(bounded.lost, 0);
    assert!(bounded.bits() > 0.94 * 1e9, "{}", bounded.bits());
    // The test can fail.
    let free = one.unbounded().run([0, 1_000]);
    assert!(free.lost > 100, "{} of {}", free.lost, free.sent);
}

/// 10 MB are on their way on such a path, which is not to be taken for a queue; nor are losses.
#[test]
fn a_long_path_is_filled_whatever_may_wait() {
    let eight = Setup::new(8, "rate=400mbit delay=100ms buffer=10MB loss=0.001");
    let bounded = Setup { waiting_bytes_max: 1 << 20, ..eight.clone() }.run([4_000, 8_000]);
    let free = eight.unbounded().run([4_000, 8_000]);
    assert!(bounded.bits() > 0.9 * free.bits(), "{} to {}", bounded.bits(), free.bits());
}

/// Memory is short: each has 64 KiB for what it has written. A writer that is woken for each packet
/// that has arrived writes as little each time, and what it writes leaves in small batches.
#[test]
fn writers_that_share_little_memory_write_much_at_a_time() {
    let outcome = Setup { memory_bytes_max: 100 << 16, ..Setup::new(100, MACHINE) }.run([1_500, 3_500]);
    assert!(outcome.written_by_wake > 16 << 10, "{} bytes", outcome.written_by_wake);
    assert!(outcome.bits() > 0.9 * 2e9, "{}", outcome.bits());
    assert!(outcome.jain() > 0.95, "{}", outcome.jain());
}
