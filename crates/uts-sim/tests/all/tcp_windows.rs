//! TCP's windows are of bytes: what small packets need of them (congestion.md C-2), and how the
//! receiver's window follows its reader (flow.md R-20).

use bytes::Bytes;
use core::time::Duration;
use std::collections::VecDeque;
use uts_engine::{
    ConnectionConfig, ConnectionHandle, EndpointConfig, Event, FlowId, FlowOptions, MessageOptions, Read,
};
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::world::{NodeId, SERVER};
use uts_sim::{World, WorldConfig};

const CLIENT: NodeId = 1;
const MS: Duration = Duration::from_millis(1);

/// A client with one flow, and a server that reads when it is told to.
struct Ends {
    world: World,
    client: ConnectionHandle,
    flow: FlowId,
    /// The server's connection and flow, once something has come.
    server: Option<(ConnectionHandle, FlowId)>,
}

impl Ends {
    fn new(pins: &[&str]) -> Self {
        let mut config = ConnectionConfig { packet_bytes_max: 1200, ..ConnectionConfig::default() };
        for pin in pins.iter().chain(&["uts.consent=all", "uts.adapt=off"]) {
            config.requirements.assign(pin).unwrap_or_else(|error| panic!("{pin}: {error}"));
        }
        let server = EndpointConfig { accept: config.clone(), ..EndpointConfig::default() };
        let path = PathConfig::both("rate=10mbit delay=5ms buffer=200p".parse().expect("a path"));
        let config_of_world = WorldConfig { path, server, seed: 5, ..WorldConfig::default() };
        let mut world = World::new(config_of_world, Identities::new().expect("keys")).expect("a world");
        let client = world.connect(CLIENT, config).expect("it begins");
        // A handshake and an exchange.
        while world.next(Time::from_millis(300)).is_some() {}
        let connection = world.connection(CLIENT, client).expect("open");
        let flow = connection.open_flow(FlowOptions::default()).expect("a flow");
        Ends { world, client, flow, server: None }
    }

    /// Until then; says whether there was something to read.
    fn run(&mut self, until: Time) -> bool {
        let mut is_readable = false;
        while let Some(happening) = self.world.next(until) {
            if happening.node == SERVER
                && let Event::Readable(flow) = happening.event
            {
                self.server = Some((happening.connection, flow));
                is_readable = true;
            }
        }
        is_readable
    }

    /// The server reads up to so many bytes, or a message.
    fn read(&mut self, most: usize) -> Option<Bytes> {
        let (connection, flow) = self.server?;
        let now = self.world.now();
        match self.world.connection(SERVER, connection)?.read(now, flow, most) {
            Ok(Read::Bytes(_, bytes) | Read::Message(bytes)) => Some(bytes),
            _ => None,
        }
    }
}

/// Sixteen bytes each 10 ms, in a window of one packet and to a receiver that holds reports back
/// for 200 ms: what fits the window leaves.
#[test]
fn small_packets_fit_a_window_of_one_packet() {
    for profile in ["tcp-tahoe", "tcp-reno", "tcp-newreno", "tcp-reno-2.1"] {
        for (nagle, most_ms) in [(0, 20), (1, 260)] {
            let (profile, flow) = (
                format!("uts.profile={profile}"),
                format!("uts.profile.flow=sliding-window(window=16384,nagle={nagle})"),
            );
            let mut ends = Ends::new(&[&profile, &flow, "uts.profile.segmentation=messages"]);
            let (mut handed, mut ages) = (VecDeque::new(), Vec::new());
            for n in 0..5000 {
                let now = ends.world.now() + MS;
                ends.run(now);
                while ends.read(1 << 16).is_some() {
                    let at: Time = handed.pop_front().expect("it was handed over");
                    ages.push(now.since(at).as_millis());
                }
                if n % 10 == 0 && n < 4500 {
                    let connection = ends.world.connection(CLIENT, ends.client).expect("open");
                    connection
                        .send_message(now, ends.flow, Bytes::from_static(&[7; 16]), MessageOptions::default())
                        .expect("there is room");
                    handed.push_back(now);
                }
            }
            let worst = ages.iter().max().copied().unwrap_or(u128::MAX);
            println!("{profile} {flow}: at most {worst} ms");
            assert_eq!(ages.len(), 450, "{profile} {flow}");
            assert!(worst <= most_ms, "{profile} {flow}: {worst} ms");
        }
    }
}

/// A reader that takes 2000 bytes each 50 ms holds the sender back and is never without data for
/// longer, however little of the window an update needs: a window that is shut opens without being
/// asked (flow.md R-20).
#[test]
fn a_slow_reader_is_never_without_data() {
    for update in [0, 1, 25, 50, 100] {
        for profile in ["tcp-reno", "tcp-reno-2.1"] {
            let (profile, flow) = (
                format!("uts.profile={profile}"),
                format!("uts.profile.flow=sliding-window(window=16384,update={update},nagle=3)"),
            );
            let mut ends = Ends::new(&[&profile, &flow]);
            let (bytes, mut read, mut empty) = (200_000, 0, 0);
            let (mut written, mut at) = (0, ends.world.now());
            while read < bytes {
                at += MS * 50;
                let now = ends.world.now();
                let connection = ends.world.connection(CLIENT, ends.client).expect("open");
                while written < bytes {
                    let left = (bytes - written).min(8192);
                    match connection.write(now, ends.flow, vec![1; left].into()) {
                        Ok(taken) => written += taken,
                        Err(_) => break,
                    }
                }
                ends.run(at);
                match ends.read(2000) {
                    Some(data) => read += data.len(),
                    None => empty += 1,
                }
                assert!(empty < 40, "{profile} {flow}: {read} bytes, {empty} times nothing");
            }
            println!("{profile} {flow}: {empty} times nothing");
            assert!(empty <= 3, "{profile} {flow}: {empty} times nothing");
        }
    }
}
