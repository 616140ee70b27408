//! Paths that carry less than first packets have: connections come to be, and live on when a path
//! becomes one.

use bytes::Bytes;
use core::time::Duration;
use uts_engine::{ConnectionConfig, ConnectionHandle, EndpointConfig, Event, FlowId, FlowOptions, Read};
use uts_functions::Time;
use uts_path::{Direction, PathConfig, Target};
use uts_sim::identity::Identities;
use uts_sim::transfer::{Progress, Transfers, checksum};
use uts_sim::{World, WorldConfig};

const CLIENT: usize = 1;
const FORWARD: Target = Target::One(Direction::Forward);
const REVERSE: Target = Target::One(Direction::Backward);
/// IP and UDP, in the path's bytes.
const OVERHEAD: u64 = 28;
const BYTES: u64 = 300_000;

/// A world whose path is changed like this before anything leaves.
fn world(identities: Identities, target: Target, change: &str, seed: u64) -> World {
    let path = format!("rate=20mbit delay=20ms buffer=64p overhead={OVERHEAD} mtu=1500");
    let path = PathConfig::both(path.parse().expect("a valid path"));
    let config = WorldConfig { path, seed, ..WorldConfig::default() };
    let mut world = World::new(config, identities).expect("a valid world");
    world.set_path(target, change).expect("a valid change");
    world
}

/// Facts of a transfer that has come to its end.
struct Done {
    progress: Progress,
    /// The client's packet size.
    bytes: u64,
}

fn transfer(world: &mut World, config: ConnectionConfig) -> Done {
    let mut transfers = Transfers::start(world, &[(CLIENT, config)], BYTES);
    let done = transfers.run(world, Time::from_millis(60_000));
    let progress = transfers.progress[&CLIENT].clone();
    assert!(done, "{} bytes, closed: {:?}", progress.received, progress.closed);
    assert_eq!(progress.checksum, checksum(BYTES));
    // The size is looked for further.
    world.run_for(Duration::from_secs(5));
    let bytes = world.connection(CLIENT, progress.connection).expect("open").facts().mtu_bytes;
    Done { progress, bytes }
}

#[test]
fn a_path_that_carries_less_than_first_packets_is_connected_over() {
    for target in [Target::Both, FORWARD, REVERSE] {
        for mtu in [296, 400, 575, 576, 700, 1000, 1227, 1228] {
            let identities = Identities::new().expect("keys");
            let mut world = world(identities, target, &format!("mtu={mtu}"), mtu);
            let done = transfer(&mut world, ConnectionConfig::default());
            let connected = done.progress.connected_at.expect("connected");
            println!("{target:?} {mtu}: {connected:?}, {} bytes, {:?}", done.bytes, done.progress.done_at);
            let most = if mtu < 576 { 9_000 } else { 3_500 };
            assert!(connected <= Time::from_millis(most), "{target:?} {mtu}: {connected:?}");
            let room = mtu - OVERHEAD;
            if target != REVERSE {
                assert!(done.bytes <= room && done.bytes + 40 > room, "{target:?} {mtu}: {}", done.bytes);
            } else {
                assert_eq!(done.bytes, 1472, "the way there is as large as ever");
            }
        }
    }
}

/// Slow serial lines carry packets of 296 bytes. An end goes down to these unless it was told not
/// to.
#[test]
fn a_path_may_carry_less_than_every_host_takes() {
    let path = format!("rate=20mbit delay=20ms buffer=64p overhead={OVERHEAD} mtu=1500");
    let told = ConnectionConfig { packet_bytes_min: 268, ..ConnectionConfig::default() };
    let less = ConnectionConfig { packet_bytes_min: 548, ..ConnectionConfig::default() };
    for (server_is_told, initial) in [(true, 1200), (true, 268), (false, 268)] {
        let accept = if server_is_told { told.clone() } else { less.clone() };
        let server = EndpointConfig { accept, ..EndpointConfig::default() };
        let path = PathConfig::both(path.parse().expect("a valid path"));
        let config = WorldConfig { path, server, seed: 3, ..WorldConfig::default() };
        let mut world = World::new(config, Identities::new().expect("keys")).expect("a valid world");
        world.set_path(Target::Both, "mtu=296").expect("a valid change");
        let config = ConnectionConfig { packet_bytes_initial: initial, ..told.clone() };
        if server_is_told {
            let done = transfer(&mut world, config);
            assert!(done.bytes <= 268, "{}", done.bytes);
        } else {
            let mut transfers = Transfers::start(&mut world, &[(CLIENT, config)], BYTES);
            transfers.run(&mut world, Time::from_millis(60_000));
            assert_eq!(transfers.progress[&CLIENT].connected_at, None, "it takes no such packets");
        }
    }
}

#[test]
fn who_knows_that_a_path_is_small_begins_so() {
    let mut world = world(Identities::new().expect("keys"), Target::Both, "mtu=600", 1);
    let config = ConnectionConfig { packet_bytes_initial: 560, ..ConnectionConfig::default() };
    let done = transfer(&mut world, config);
    assert!(done.progress.connected_at.is_some_and(|at| at < Time::from_millis(200)));
}

/// A chain of certificates takes many small packets, of which an address that is not proved is sent
/// three for each that it sent.
#[test]
fn large_certificates_pass_a_small_path() {
    for (names, loss) in [(1, 0.0), (100, 0.0), (600, 0.0), (100, 0.1), (600, 0.1)] {
        for seed in 0..5 {
            let identities = Identities::with_names(names).expect("keys");
            let change = format!("mtu=576 loss={loss}");
            let mut world = world(identities, Target::Both, &change, seed);
            let done = transfer(&mut world, ConnectionConfig::default());
            let connected = done.progress.connected_at.expect("connected");
            println!("{names} names, loss {loss}: {connected:?}");
            assert!(connected < Time::from_millis(10_000), "{names} {loss} {seed}: {connected:?}");
        }
    }
}

#[test]
fn a_connection_lives_on_when_its_path_shrinks_below_that() {
    for mtu in [576, 800, 1000, 1200] {
        for chatter in [0, 20] {
            let mut world = world(Identities::new().expect("keys"), Target::Both, "mtu=1500", mtu);
            let config = ConnectionConfig::default();
            let mut transfers = Transfers::start(&mut world, &[(CLIENT, config)], 4_000_000);
            transfers.run(&mut world, Time::from_millis(1000));
            let connection = transfers.progress[&CLIENT].connection;
            let size = |world: &mut World| world.connection(CLIENT, connection).map(|c| c.facts().mtu_bytes);
            assert_eq!(size(&mut world), Some(1472));
            world.set_path(Target::Both, &format!("mtu={mtu}")).expect("a valid change");
            let (mut at, mut resumed, mut small) = (world.now(), None, None);
            let before = transfers.progress[&CLIENT].received;
            while at < Time::from_millis(12_000) {
                at += Duration::from_millis(20);
                if chatter > 0 {
                    // Something small is sent beside the data, and acknowledged.
                    let now = world.now();
                    let client = world.connection(CLIENT, connection).expect("open");
                    let flow = *small
                        .get_or_insert_with(|| client.open_flow(FlowOptions::default()).expect("opened"));
                    client.write(now, flow, b"still here".as_slice().into()).expect("written");
                }
                transfers.run(&mut world, at);
                // What was on its way still arrives.
                if resumed.is_none() && transfers.progress[&CLIENT].received > before + 400_000 {
                    resumed = Some(at);
                }
            }
            let resumed = resumed.unwrap_or_else(|| panic!("{mtu}, {chatter}: it has died"));
            let bytes = size(&mut world).unwrap_or_default();
            println!(
                "{mtu}, chatter {chatter}: {resumed:?}, {bytes}, {}",
                transfers.progress[&CLIENT].received
            );
            assert!(resumed < Time::from_millis(6_000), "{mtu}, {chatter}: {resumed:?}");
            assert!((mtu - OVERHEAD - 60..=mtu - OVERHEAD).contains(&bytes), "{mtu}, {chatter}: {bytes}");
        }
    }
}

/// The path falls to the smallest that there is while data flows either way, on either way or both,
/// at many instants: what is said is heard in the end, and with all of it nothing is lost.
#[test]
fn a_connection_lives_on_when_its_path_falls_to_the_smallest() {
    for mtu in [296, 400, 560] {
        for target in [Target::Both, FORWARD, REVERSE] {
            for at in [30, 60, 90, 150, 500] {
                let seed = mtu + at;
                let mut world = world(Identities::new().expect("keys"), Target::Both, "mtu=1500", seed);
                let mut echoes = Echoes::new(&mut world);
                echoes.run(&mut world, Time::from_millis(at));
                world.set_path(target, &format!("mtu={mtu}")).expect("a valid change");
                let fell = world.now();
                let end = fell + Duration::from_secs(40);
                while echoes.back < Echoes::BYTES && world.now() < end {
                    let until = world.now() + Duration::from_millis(50);
                    echoes.run(&mut world, until);
                }
                let took = world.now().since(fell);
                println!("{target:?} {mtu} at {at} ms: all after {took:?}");
                assert_eq!(echoes.back, Echoes::BYTES, "{target:?} {mtu} at {at} ms");
            }
        }
    }
}

/// A client that sends data, and a server that sends it back.
struct Echoes {
    client: ConnectionHandle,
    flow: Option<FlowId>,
    written: usize,
    /// Bytes that the server has yet to send back.
    owed: usize,
    server: Option<(ConnectionHandle, FlowId)>,
    back: usize,
}

impl Echoes {
    const BYTES: usize = 2_000_000;

    fn new(world: &mut World) -> Self {
        let client = world.connect(CLIENT, ConnectionConfig::default()).expect("it begins");
        Echoes { client, flow: None, written: 0, owed: 0, server: None, back: 0 }
    }

    fn run(&mut self, world: &mut World, until: Time) {
        while let Some(happening) = world.next(until) {
            let (now, node, handle) = (world.now(), happening.node, happening.connection);
            match happening.event {
                Event::Connected if node == CLIENT => {
                    let client = world.connection(CLIENT, self.client).expect("open");
                    self.flow = client.open_flow(FlowOptions::default()).ok();
                }
                Event::Readable(flow) => {
                    let connection = world.connection(node, handle).expect("open");
                    let mut had = 0;
                    while let Ok(Read::Bytes(_, bytes)) = connection.read(now, flow, 1 << 20) {
                        had += bytes.len();
                    }
                    if node == CLIENT {
                        self.back += had;
                    } else {
                        self.owed += had;
                        self.server = Some((handle, flow));
                    }
                }
                Event::Closed(reason) => panic!("it has ended: {reason}"),
                _ => {}
            }
            if let Some(flow) = self.flow {
                let client = world.connection(CLIENT, self.client).expect("open");
                let data = Bytes::from(vec![7; Self::BYTES - self.written]);
                self.written += if data.is_empty() { 0 } else { client.write(now, flow, data).unwrap_or(0) };
            }
            if let Some((handle, flow)) = self.server.filter(|_| self.owed > 0) {
                let server = world.connection(0, handle).expect("open");
                self.owed -= server.write(now, flow, Bytes::from(vec![7; self.owed])).unwrap_or(0);
            }
        }
    }
}
