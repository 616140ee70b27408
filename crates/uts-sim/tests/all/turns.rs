//! Flows of one connection take turns, and none holds up another.

use bytes::Bytes;
use std::collections::BTreeMap;
use uts_engine::requirements::Requirements;
use uts_engine::{ConnectionConfig, ConnectionHandle, Event, FlowId, FlowOptions, Read};
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::{World, WorldConfig};

const SERVER: usize = 0;
const CLIENT: usize = 1;

/// A client that opens a flow for each of some files; the server answers each with a byte.
struct Files {
    world: World,
    client: ConnectionHandle,
    server: Option<ConnectionHandle>,
    /// When the whole of each flow had arrived.
    ended: BTreeMap<FlowId, Time>,
    answered: usize,
}

impl Files {
    fn new(path: &str) -> Self {
        let path = PathConfig::both(path.parse().expect("a valid path"));
        let world = WorldConfig { path, ..WorldConfig::default() };
        let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
        let client = world.connect(CLIENT, ConnectionConfig::default()).expect("the connection begins");
        let mut files = Files { world, client, server: None, ended: BTreeMap::new(), answered: 0 };
        files.pass(Time::from_millis(2_000), |files| files.server.is_some());
        files
    }

    fn send(&mut self, bytes: usize) -> FlowId {
        let now = self.world.now();
        let connection = self.world.connection(CLIENT, self.client).expect("open");
        let flow = connection.open_flow(FlowOptions::default()).expect("a flow");
        let written = connection.write(now, flow, Bytes::from(vec![7; bytes])).expect("room");
        assert_eq!(written, bytes);
        connection.finish(flow);
        flow
    }

    fn pass(&mut self, until: Time, mut is_enough: impl FnMut(&Self) -> bool) {
        while let Some(happening) = self.world.next(until) {
            let now = self.world.now();
            match (happening.node, happening.event) {
                (SERVER, Event::Connected) => self.server = Some(happening.connection),
                (SERVER, Event::Readable(flow)) => {
                    let connection = self.world.connection(SERVER, happening.connection).expect("open");
                    while let Ok(read) = connection.read(now, flow, 1 << 20) {
                        if read == Read::End {
                            self.ended.insert(flow, now);
                            connection.write(now, flow, Bytes::from_static(b"!")).expect("room");
                            connection.finish(flow);
                            break;
                        }
                    }
                }
                (CLIENT, Event::Readable(flow)) => {
                    let connection = self.world.connection(CLIENT, self.client).expect("open");
                    while let Ok(read) = connection.read(now, flow, 1 << 20) {
                        if read == Read::End {
                            self.answered += 1;
                            break;
                        }
                    }
                }
                (node, Event::Closed(reason)) => panic!("at {node}: {reason}"),
                _ => {}
            }
            if is_enough(self) {
                return;
            }
        }
    }
}

/// A flow that had sent all it had used to keep its place before the others until it was
/// acknowledged: one file took a round trip.
#[test]
fn a_flow_that_has_sent_everything_stands_aside() {
    let mut files = Files::new("rate=50mbit delay=300ms buffer=1500kB");
    let (mut begun, total, at_once) = (0, 20, 4);
    while files.answered < total {
        while begun < total && begun < files.answered + at_once {
            files.send(20_000);
            begun += 1;
        }
        let answered = files.answered;
        files.pass(Time::from_millis(30_000), |files| files.answered > answered);
        assert!(files.answered > answered, "{answered} of {total} after 30 s");
    }
    // Twelve round trips; one file a round trip would be 20.
    assert!(files.world.now() < Time::from_millis(8_000), "{:?}", files.world.now());
}

#[test]
fn a_short_request_does_not_wait_for_a_long_file() {
    let mut files = Files::new("rate=10mbit delay=20ms buffer=64p");
    let long = files.send(2_000_000);
    let begun_at = files.world.now();
    let short = files.send(200);
    files.pass(Time::from_millis(30_000), |files| files.ended.len() == 2);
    let took = |flow: FlowId| files.ended[&flow].since(begun_at).as_millis();
    assert!(took(short) < 200 && took(long) > 1_500, "{} and {} ms", took(short), took(long));
}

/// Bytes of each of two flows that have arrived in a while, under this `connScheduler`.
fn shares(scheduler: &str, priorities: [u8; 2]) -> [u64; 2] {
    let mut files = Files::new("rate=20mbit delay=10ms buffer=100p");
    let mut requirements = Requirements::default();
    requirements.assign(&format!("connScheduler={scheduler}")).expect("a scheduler");
    let now = files.world.now();
    let connection = files.world.connection(CLIENT, files.client).expect("open");
    connection.set_requirements(now, requirements).expect("no contradiction");
    let flows = priorities.map(|priority| {
        let now = files.world.now();
        let connection = files.world.connection(CLIENT, files.client).expect("open");
        let flow = connection.open_flow(FlowOptions { priority, ..FlowOptions::default() }).expect("a flow");
        connection.write(now, flow, Bytes::from(vec![1; 4_000_000])).expect("room");
        flow
    });
    let until = files.world.now() + core::time::Duration::from_millis(1500);
    let mut arrived = BTreeMap::new();
    while let Some(happening) = files.world.next(until) {
        if let (SERVER, Event::Readable(flow)) = (happening.node, happening.event) {
            let now = files.world.now();
            let connection = files.world.connection(SERVER, happening.connection).expect("open");
            while let Ok(Read::Bytes(_, bytes)) = connection.read(now, flow, 1 << 20) {
                *arrived.entry(flow).or_insert(0) += bytes.len() as u64;
            }
        }
    }
    flows.map(|flow| arrived.get(&flow).copied().unwrap_or(0))
}

#[test]
fn flows_share_a_connection_as_its_scheduler_says() {
    let share = |scheduler, priorities| {
        let [a, b] = shares(scheduler, priorities);
        assert!(a + b > 2_000_000, "{scheduler}: {a} + {b} bytes in 1.5 seconds");
        a as f64 / (a + b) as f64
    };
    for (scheduler, priorities, expected) in [
        ("weighted-fair-queueing", [100, 100], 0.5),
        ("weighted-fair-queueing", [49, 149], 0.75),
        ("fair-capacity", [49, 149], 0.5),
        ("priority", [49, 149], 1.0),
    ] {
        let share = share(scheduler, priorities);
        assert!((share - expected).abs() < 0.02, "{scheduler} {priorities:?}: {share:.3}, not {expected}");
    }
}
