//! Many connections between two endpoints that all send what they can: over one path, into one socket's buffer.

use bytes::Bytes;
use std::collections::BTreeMap;
use uts_engine::{ConnectionConfig, ConnectionHandle, EndpointConfig, Event, FlowId, FlowOptions};
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::{World, WorldConfig};

const SERVER: usize = 0;
const CLIENT: usize = 1;

/// What became of it.
struct Outcome {
    /// Bytes that each connection brought.
    shares: Vec<f64>,
    lost: u64,
    sent: u64,
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

/// So many connections send over a path from `from` on, of which what arrives until `until` counts.
fn share(connections: usize, path: &str, waiting_bytes_max: u64, times: [u64; 2]) -> Outcome {
    share_changing(connections, path, "", waiting_bytes_max, times)
}

/// The same over a path that changes.
fn share_changing(
    connections: usize,
    path: &str,
    schedule: &str,
    waiting_bytes_max: u64,
    [from, until]: [u64; 2],
) -> Outcome {
    let mut path = PathConfig::both(path.parse().expect("a valid path"));
    path.schedule = schedule.parse().expect("a valid schedule");
    let endpoint = EndpointConfig { waiting_bytes_max, ..EndpointConfig::default() };
    let server = EndpointConfig { handshakes_before_retry: usize::MAX, ..EndpointConfig::default() };
    let config = WorldConfig { path, server, client: endpoint, ..WorldConfig::default() };
    let mut world = World::new(config, Identities::new().expect("keys")).expect("a valid world");
    let mut flows: BTreeMap<ConnectionHandle, FlowId> = BTreeMap::new();
    let mut got: BTreeMap<ConnectionHandle, u64> = BTreeMap::new();
    for _ in 0..connections {
        world.connect(CLIENT, ConnectionConfig::default()).expect("the connection begins");
    }
    let data = Bytes::from(vec![7; 64 << 10]);
    let (from, until) = (Time::from_millis(from), Time::from_millis(until));
    let mut started = false;
    loop {
        let Some(happening) = world.next(if started { until } else { from }) else {
            if core::mem::replace(&mut started, true) {
                break;
            }
            got.clear();
            continue;
        };
        let (now, handle) = (world.now(), happening.connection);
        match (happening.node, happening.event) {
            (_, Event::Closed(reason)) => panic!("{reason}"),
            (CLIENT, Event::Connected) => {
                let connection = world.connection(CLIENT, handle).expect("open");
                let flow = connection.open_flow(FlowOptions::default()).expect("a flow");
                flows.insert(handle, flow);
                while connection.write(now, flow, data.clone()).is_ok() {}
            }
            (CLIENT, Event::Writable(flow)) => {
                let connection = world.connection(CLIENT, handle).expect("open");
                while connection.write(now, flow, data.clone()).is_ok() {}
            }
            (SERVER, Event::Readable(flow)) => {
                let connection = world.connection(SERVER, handle).expect("open");
                let mut bytes = 0;
                while let Ok(read) = connection.read(now, flow, 1 << 20) {
                    match read {
                        uts_engine::Read::Bytes(_, chunk) => bytes += chunk.len() as u64,
                        other => panic!("{other:?}"),
                    }
                }
                *got.entry(handle).or_default() += bytes;
            }
            _ => {}
        }
    }
    assert_eq!(flows.len(), connections);
    let mut outcome = Outcome { shares: got.values().map(|b| *b as f64).collect(), lost: 0, sent: 0 };
    outcome.shares.resize(connections, 0.0);
    for handle in flows.keys() {
        let stats = world.endpoint(CLIENT).peek(*handle).expect("open").stats();
        outcome.lost += stats.packets_lost;
        outcome.sent += stats.packets_sent;
    }
    outcome
}

/// The buffer of a socket on a machine of its own: short, and deep beside what the path itself holds.
const MACHINE: &str = "rate=1gbit delay=100us buffer=4MB";

#[test]
fn many_share_a_peer_evenly_and_lose_nothing() {
    let outcome = share(300, MACHINE, EndpointConfig::default().waiting_bytes_max, [1_500, 3_500]);
    assert!(outcome.jain() > 0.95, "{}", outcome.jain());
    assert!(outcome.lost * 1000 < outcome.sent, "{} of {}", outcome.lost, outcome.sent);
    // Headers of IP, UDP and UTS take 5 %.
    assert!(outcome.bits() > 0.9 * 2e9, "{}", outcome.bits());
    // The test can fail: each by itself overflows the buffer.
    let alone = share(300, MACHINE, u64::MAX / 4, [1_500, 3_500]);
    assert!(alone.lost * 100 > alone.sent, "{} of {}", alone.lost, alone.sent);
}

/// For a while nothing waits on the way. That is no reason to send at once what hundreds of windows allow, which they have grown to
/// by turns.
#[test]
fn many_lose_nothing_when_a_queue_that_was_gone_comes_back() {
    let path = "rate=1gbit delay=5ms buffer=5MB";
    let schedule = "at=1s both rate=2gbit; at=1100ms both rate=1gbit";
    let waiting_max = EndpointConfig::default().waiting_bytes_max;
    let outcome = share_changing(300, path, schedule, waiting_max, [1_000, 2_000]);
    assert_eq!(outcome.lost, 0, "of {}", outcome.sent);
    assert!(outcome.jain() > 0.95, "{}", outcome.jain());
    assert!(outcome.bits() > 0.9 * 1.1e9, "{}", outcome.bits());
}

/// Slow start would overflow the buffer by thousands of packets.
#[test]
fn one_alone_loses_nothing_either() {
    let bounded = share(1, MACHINE, EndpointConfig::default().waiting_bytes_max, [0, 1_000]);
    assert_eq!(bounded.lost, 0);
    assert!(bounded.bits() > 0.94 * 1e9, "{}", bounded.bits());
    // The test can fail.
    let free = share(1, MACHINE, u64::MAX / 4, [0, 1_000]);
    assert!(free.lost > 100, "{} of {}", free.lost, free.sent);
}

/// 10 MB are on their way on such a path, which is not to be taken for a queue; nor are losses.
#[test]
fn a_long_path_is_filled_whatever_may_wait() {
    let path = "rate=400mbit delay=100ms buffer=10MB loss=0.001";
    let bounded = share(8, path, 1 << 20, [4_000, 8_000]);
    let free = share(8, path, u64::MAX / 4, [4_000, 8_000]);
    assert!(bounded.bits() > 0.9 * free.bits(), "{} to {}", bounded.bits(), free.bits());
}
