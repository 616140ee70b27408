//! Writers that wait, where connections share little memory: each is told when it may write,
//! whoever has held the memory, and whatever it has waited for besides.

use bytes::Bytes;
use core::time::Duration;
use std::collections::BTreeSet;
use uts_engine::{
    Connection, ConnectionConfig, ConnectionHandle, EndpointConfig, Event, FlowId, FlowOptions, WriteError,
};
use uts_sim::identity::Identities;
use uts_sim::{World, WorldConfig};

const SERVER: usize = 0;
const CLIENT: usize = 1;

/// Credit of a flow, and what it may hold, in bytes.
const CREDIT: usize = 8 << 10;
const FLOW: usize = 32 << 10;

const CONNECTIONS: usize = 5;

/// Connections of one client, whose server reads what it is told to.
struct Town {
    world: World,
    /// At both ends, in the order in which they began.
    connections: Vec<[ConnectionHandle; 2]>,
    accepted: Option<ConnectionHandle>,
    told: BTreeSet<(ConnectionHandle, FlowId)>,
}

impl Town {
    fn new() -> Self {
        let mut config = ConnectionConfig { credit_bytes_max: FLOW as u64, ..ConnectionConfig::default() };
        (config.send_buffer_bytes, config.send_buffer_bytes_max) = (FLOW, FLOW);
        let credit = CREDIT as u64;
        let accept = ConnectionConfig {
            credit_bytes_initial: credit,
            credit_bytes_max: credit,
            ..ConnectionConfig::default()
        };
        let endpoint = |accept: &ConnectionConfig| EndpointConfig {
            accept: accept.clone(),
            memory_bytes_max: 2 * FLOW,
            ..EndpointConfig::default()
        };
        let server = EndpointConfig { accept, ..EndpointConfig::default() };
        let world = WorldConfig { server, client: endpoint(&config), seed: 1, ..WorldConfig::default() };
        let mut world = World::new(world, Identities::new().expect("keys")).expect("a world");
        world.set_path(uts_path::Target::Both, "rate=10mbit delay=10ms").expect("a path");
        let mut town = Town { world, connections: Vec::new(), accepted: None, told: BTreeSet::new() };
        for _ in 0..CONNECTIONS {
            let handle = town.world.connect(CLIENT, config.clone()).expect("it begins");
            town.pass();
            town.connections.push([town.accepted.take().expect("accepted"), handle]);
        }
        town
    }

    fn pass(&mut self) {
        let until = self.world.now() + Duration::from_secs(1);
        while let Some(happening) = self.world.next(until) {
            match happening.event {
                Event::Connected if happening.node == SERVER => self.accepted = Some(happening.connection),
                Event::Writable(flow) if happening.node == CLIENT => {
                    self.told.insert((happening.connection, flow));
                }
                Event::Closed(reason) => panic!("{reason}"),
                _ => {}
            }
        }
    }

    fn end(&mut self, node: usize, at: usize) -> &mut Connection {
        self.world.connection(node, self.connections[at][node]).expect("open")
    }

    fn open(&mut self, at: usize) -> FlowId {
        self.end(CLIENT, at).open_flow(FlowOptions::default()).expect("a flow")
    }

    fn write(&mut self, at: usize, flow: FlowId, bytes: usize) -> usize {
        let now = self.world.now();
        let mut written = 0;
        while written < bytes {
            match self.end(CLIENT, at).write(now, flow, Bytes::from(vec![7; bytes - written])) {
                Ok(taken) => written += taken,
                Err(WriteError::Blocked) => break,
                Err(error) => panic!("{error}"),
            }
        }
        written
    }

    /// The server reads all that has come of a flow.
    fn read(&mut self, at: usize, flow: FlowId) {
        let now = self.world.now();
        while self.end(SERVER, at).read(now, flow, CREDIT).is_ok() {}
    }

    fn is_told(&mut self, at: usize, flow: FlowId) -> bool {
        self.pass();
        self.told.contains(&(self.connections[at][CLIENT], flow))
    }
}

/// One flow has used its credit, and waits for more. Meanwhile others take all memory: one of its
/// own connection, and those of the other connections. The credit comes, and there is no memory.
fn waiting() -> (Town, FlowId, FlowId, Vec<(usize, FlowId)>) {
    let mut town = Town::new();
    let flow = town.open(0);
    assert_eq!(town.write(0, flow, CREDIT), CREDIT);
    town.pass();
    assert_eq!(town.end(CLIENT, 0).granted(flow, 1, 1 << 20), Err(WriteError::Blocked), "no credit");
    let beside = town.open(0);
    assert_eq!(town.write(0, beside, FLOW), FLOW);
    town.pass();
    let others: Vec<(usize, FlowId)> =
        (0..3).flat_map(|_| 1..CONNECTIONS).map(|at| (at, town.open(at))).collect();
    for _ in 0..4 {
        for (at, other) in &others {
            town.write(*at, *other, FLOW);
        }
        town.pass();
    }
    town.read(0, flow);
    assert!(!town.is_told(0, flow), "there is no memory for it");
    assert!(town.end(CLIENT, 0).waits_for_memory());
    (town, flow, beside, others)
}

/// What the connection's own flow gives back is there for who had to wait when credit came.
#[test]
fn a_writer_is_told_when_a_flow_beside_gives_memory_back() {
    let (mut town, flow, beside, _) = waiting();
    town.end(CLIENT, 0).reset(beside, 1);
    assert!(town.is_told(0, flow));
    assert_eq!(town.write(0, flow, CREDIT), CREDIT);
}

/// So is what other connections give back, of which the connection hears nothing.
#[test]
fn a_writer_is_told_when_other_connections_give_memory_back() {
    let (mut town, flow, _, others) = waiting();
    for (at, other) in others {
        town.end(CLIENT, at).reset(other, 1);
    }
    assert!(town.is_told(0, flow));
    assert!(town.write(0, flow, CREDIT) > 0);
}

/// A writer that was told, and found too little, is told again.
#[test]
fn each_of_many_writers_is_told_in_the_end() {
    let mut town = Town::new();
    let flows: Vec<(usize, FlowId)> =
        (0..24).map(|n| n % CONNECTIONS).map(|at| (at, town.open(at))).collect();
    let mut left = [4 * CREDIT; 24];
    for _ in 0..600 {
        for (n, (at, flow)) in flows.iter().enumerate() {
            let handle = town.connections[*at][CLIENT];
            if town.told.remove(&(handle, *flow)) || left[n] == 4 * CREDIT {
                left[n] -= town.write(*at, *flow, left[n]);
            }
            town.read(*at, *flow);
        }
        if left == [0; 24] {
            return;
        }
        town.pass();
    }
    panic!("{left:?} bytes of each were not taken");
}
