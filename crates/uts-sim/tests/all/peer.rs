//! A peer that holds the keys, and lies. What it says is bounded in memory, time and effect
//! (selection.md S-37 to S-40, retransmission.md R-10, protection.md R-9).

use bytes::Bytes;
use core::iter::once;
use core::time::Duration;
use std::net::SocketAddr;
use uts_engine::{
    ConnectionConfig, ConnectionHandle, Direction, EndpointConfig, Event, ExchangeEvent, FlowOptions,
};
use uts_functions::{Function, Time};
use uts_sim::identity::Identities;
use uts_sim::pair::Pair;
use uts_sim::{NodeId, World, WorldConfig};
use uts_wire::frame::{EcnCounts, emit_ack, emit_repaired};

const SERVER: NodeId = 0;
const CLIENT: NodeId = 1;

fn with(properties: &[&str]) -> ConnectionConfig {
    let mut config = ConnectionConfig::default();
    properties.iter().for_each(|p| config.requirements.assign(p).expect("a valid property"));
    config
}

/// A server and a client with requirements of their own, over 8 Mbit/s and 40 ms.
struct Meeting {
    world: World,
    handles: [Option<ConnectionHandle>; 2],
    refused: Vec<(NodeId, Function)>,
    closed: [Option<String>; 2],
}

impl Meeting {
    fn new(server: &[&str], client: &[&str]) -> Self {
        let accept = with(server);
        let config = WorldConfig {
            server: EndpointConfig { accept, ..EndpointConfig::default() },
            seed: 5,
            ..WorldConfig::default()
        };
        let mut world = World::new(config, Identities::new().expect("keys")).expect("a valid world");
        world.limit_steps(20_000_000);
        world.set_path(uts_path::Target::Both, "rate=8mbit delay=20ms buffer=64p").expect("a change");
        let handle = world.connect(CLIENT, with(client)).expect("begun");
        let handles = [None, Some(handle)];
        let mut meeting = Meeting { world, handles, refused: Vec::new(), closed: [None, None] };
        meeting.pass(Duration::from_secs(1));
        meeting
    }

    fn connection(&mut self, node: NodeId) -> &mut uts_engine::Connection {
        let handle = self.handles[node].expect("connected");
        self.world.connection(node, handle).expect("it is there")
    }

    /// Lets time pass; the server writes as much as it may on all flows that the client opens.
    fn pass(&mut self, time: Duration) {
        let until = self.world.now() + time;
        while let Some(happening) = self.world.next(until) {
            match happening.event {
                Event::Connected => self.handles[happening.node] = Some(happening.connection),
                Event::Closed(reason) => self.closed[happening.node] = Some(reason.to_string()),
                Event::FlowOpened(flow) | Event::Writable(flow) if happening.node == SERVER => {
                    let now = self.world.now();
                    while self.connection(SERVER).write(now, flow, Bytes::from(vec![7; 65_536])).is_ok() {}
                }
                Event::Readable(flow) if happening.node == CLIENT => {
                    let now = self.world.now();
                    while self.connection(CLIENT).read(now, flow, 1 << 20).is_ok() {}
                }
                Event::Exchange(step) => {
                    if let ExchangeEvent::Refused { function, .. } = *step {
                        self.refused.push((happening.node, function));
                    }
                }
                _ => {}
            }
        }
        assert!(!self.world.is_exhausted(), "too many steps");
    }

    /// Bytes that a server sends in ten seconds to a client that reads whatever comes.
    fn sent_in_ten_seconds(&mut self) -> u64 {
        let now = self.world.now();
        let flow = self.connection(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
        self.connection(CLIENT).write(now, flow, Bytes::from_static(b"go")).expect("room");
        self.pass(Duration::from_secs(10));
        self.connection(SERVER).stats().bytes_sent
    }
}

/// The line takes 10 MB in that time.
const TEN_SECONDS_BYTES: u64 = 13_000_000;

#[test]
fn a_client_cannot_switch_the_servers_congestion_control_off() {
    let hostile = ["congestionControl=avoid", "uts.profile.congestion=none", "uts.adapt=off"];
    for client in [&hostile[..], &[hostile[0], hostile[1], "uts.profile.rate=none"]] {
        let mut meeting = Meeting::new(&[], client);
        let profile = meeting.connection(SERVER).profile(Direction::Out).expect("open");
        assert_ne!(profile.name(Function::Congestion), "none", "{client:?}");
        assert_ne!(profile.name(Function::Rate), "none", "{client:?}");
        let told = meeting.connection(CLIENT).profile(Direction::In).expect("open");
        assert_eq!(told, profile, "{client:?}: the client is told");
        let own = meeting.connection(CLIENT).profile(Direction::Out).expect("open");
        assert_eq!(own.name(Function::Congestion), "none", "{client:?}: what it sends is its own affair");
        // Nor in flight.
        let now = meeting.world.now();
        let wish = profile.with_named(Function::Congestion, "none").expect("it exists");
        meeting.connection(CLIENT).request_profile(now, Direction::In, wish).expect("idle");
        meeting.pass(Duration::from_secs(2));
        assert_eq!(meeting.refused, [(CLIENT, Function::Congestion)]);
        let sent = meeting.sent_in_ten_seconds();
        assert!((4_000_000..TEN_SECONDS_BYTES).contains(&sent), "{client:?}: {sent} bytes");
        assert_eq!(meeting.closed, [None, None]);
    }
}

#[test]
fn a_server_that_consents_by_name_is_taken_at_its_word() {
    for server in ["uts.consent=congestion/none,rate/none", "congestionControl=avoid"] {
        let mut meeting = Meeting::new(&[server], &["congestionControl=avoid", "uts.adapt=off"]);
        let profile = meeting.connection(SERVER).profile(Direction::Out).expect("open");
        assert_eq!(profile.name(Function::Congestion), "none", "{server}");
    }
}

#[test]
fn what_else_a_sender_owes_is_not_to_be_had_for_the_asking() {
    let asks = [
        ("timing", "fixed(timeout=1)", Function::Timing),
        ("rate", "pacing-bucket(burst=64)", Function::Rate),
        ("congestion", "bbr(loss-threshold=500)", Function::Congestion),
        ("acknowledgement", "delayed(packets=256,delay=1000)", Function::Acknowledgement),
        ("acknowledgement", "poll-status(every=1024)", Function::Acknowledgement),
        ("flow", "none", Function::Flow),
        ("retransmission", "none", Function::Retransmission),
    ];
    for (function, choice, refused) in asks {
        let mut meeting = Meeting::new(&[], &["uts.adapt=off"]);
        let mut wish = meeting.connection(CLIENT).profile(Direction::In).expect("open");
        let pinned = with(&[&format!("uts.profile.{function}={choice}")]).requirements.pins[0];
        wish.set(pinned.function, pinned.choice);
        let now = meeting.world.now();
        meeting.connection(CLIENT).request_profile(now, Direction::In, wish).expect("idle");
        meeting.pass(Duration::from_secs(2));
        assert_eq!(meeting.refused, [(CLIENT, refused)], "{function}={choice}");
    }
    // Nor may a sender take a receiver's flow control away.
    let mut meeting = Meeting::new(&[], &["uts.adapt=off"]);
    let profile = meeting.connection(CLIENT).profile(Direction::Out).expect("open");
    let now = meeting.world.now();
    let wish = profile.with_named(Function::Flow, "none").expect("it exists");
    meeting.connection(CLIENT).request_profile(now, Direction::Out, wish).expect("idle");
    meeting.pass(Duration::from_secs(2));
    assert_eq!(meeting.refused, [(CLIENT, Function::Flow)]);
    // As a first profile it is refused with the handshake, since nobody can do without it alone.
    let meeting = Meeting::new(&[], &["uts.profile.flow=none", "uts.adapt=off"]);
    let why = meeting.closed[CLIENT].clone().expect("refused");
    assert!(why.contains("flow/none has to be named by the end that accepts it"), "{why}");
}

const CLIENT_ADDRESS: ([u8; 4], u16) = ([10, 0, 0, 1], 4433);

/// A pair whose server has much to send and whose client's answers are made up.
struct Liar {
    pair: Pair,
    client: ConnectionHandle,
    server: ConnectionHandle,
}

impl Liar {
    fn new(seed: u8) -> Self {
        let mut pair =
            Pair::seeded(ConnectionConfig::default(), Duration::from_millis(5), seed).expect("keys");
        let client = pair.connect(ConnectionConfig::default()).expect("connected");
        let server = pair.server.handles().next().expect("accepted");
        let mut liar = Liar { pair, client, server };
        let now = liar.pair.now;
        let connection = liar.pair.server.connection(server).expect("there");
        for _ in 0..8 {
            let flow = connection.open_flow(FlowOptions::default()).expect("a flow");
            while connection.write(now, flow, Bytes::from(vec![1; 65_536])).is_ok() {}
        }
        liar.pair.now = now + Duration::from_millis(50);
        liar
    }

    /// Bytes that the server sends now, of which nothing arrives.
    fn send(&mut self) -> u64 {
        let mut buffer = Vec::new();
        let mut bytes = 0;
        while self.pair.server.poll_transmit(self.pair.now, &mut buffer).is_some() {
            bytes += buffer.len() as u64;
            buffer.clear();
        }
        bytes
    }

    /// A packet of these frames from the client.
    fn say(&mut self, frames: &[u8]) {
        let now = self.pair.now;
        let client = self.pair.client.connection(self.client).expect("there");
        let mut packet = client.packet_of(now, frames).expect("open");
        self.pair.server.handle_datagram(now, SocketAddr::from(CLIENT_ADDRESS), None, &mut packet);
    }

    /// Why the server has ended the connection, if it has.
    fn ended(&self) -> Option<String> {
        self.pair.server.peek(self.server)?.close_reason().map(ToString::to_string)
    }

    fn packets_sent(&self) -> u64 {
        self.pair.server.peek(self.server).expect("there").stats().packets_sent
    }
}

#[test]
fn who_acknowledges_what_it_has_not_received_is_found_out() {
    for seed in 1..40 {
        let mut liar = Liar::new(seed);
        let mut sent = 0;
        for _ in 0..1000 {
            sent += liar.send();
            if liar.ended().is_some() {
                break;
            }
            // It cannot see the numbers, but knows about how many packets were sent.
            let upto = liar.packets_sent().saturating_sub(4);
            let mut frames = Vec::new();
            emit_ack(&mut frames, once(0..upto.max(1)), 0, None, 64);
            liar.say(&frames);
            liar.pair.now += Duration::from_millis(10);
        }
        let why = liar.ended().unwrap_or_else(|| panic!("seed {seed}: {sent} bytes for nothing"));
        assert!(why.contains("acknowledged a packet that was never sent"), "{why}");
        assert!(sent < 150_000, "seed {seed}: {sent} bytes for nothing");
    }
}

#[test]
fn reports_of_packets_that_were_never_sent_end_the_connection() {
    let mut repaired = Vec::new();
    emit_repaired(&mut repaired, once(1_000_000..1_000_001), 64);
    let mut ahead = Vec::new();
    emit_ack(&mut ahead, once(1_000_000..1_000_001), 0, None, 64);
    for frames in [repaired, ahead] {
        let mut liar = Liar::new(1);
        liar.send();
        liar.say(&frames);
        let why = liar.ended().expect("a lie");
        assert!(why.contains("a packet that was never sent"), "{why}");
    }
}

#[test]
fn counts_of_marks_that_cannot_be_turn_ecn_off_and_no_more() {
    let mut liar = Liar::new(1);
    liar.send();
    let mut frames = Vec::new();
    let ecn = EcnCounts { ect0: 0, ect1: 0, ce: 1 << 40 };
    emit_ack(&mut frames, once(0..1), 0, Some(ecn), 64);
    let window =
        |liar: &Liar| liar.pair.server.peek(liar.server).expect("there").congestion().expect("open").1;
    let before = window(&liar);
    liar.say(&frames);
    assert_eq!((liar.ended(), window(&liar) >= before), (None, true));
}

#[test]
fn keys_are_renewed_in_time() {
    let mut pair = Pair::new(ConnectionConfig::default(), Duration::from_millis(5)).expect("keys");
    let client = pair.connect(ConnectionConfig::default()).expect("connected");
    let flow = pair.open_flow(client).expect("a flow");
    pair.carry(client, flow, 100_000).expect("carried");
    pair.client.connection(client).expect("there").age_keys(1 << 22);
    pair.carry(client, flow, 1_000_000).expect("carried");
    let connection = pair.client.connection(client).expect("there");
    assert!(connection.stats().exchanges >= 1, "the same profile, new keys");
    // From here on the old count is of no account.
    let exchanges = connection.stats().exchanges;
    pair.pass(pair.now + Duration::from_secs(5)).expect("quiet");
    let connection = pair.client.connection(client).expect("there");
    assert_eq!(connection.stats().exchanges, exchanges);
    connection.age_keys(1 << 22);
    pair.carry(client, flow, 1_000_000).expect("carried");
    pair.pass(pair.now + Duration::from_secs(1)).expect("acknowledged");
    assert!(pair.client.connection(client).expect("there").stats().exchanges > exchanges);
}

#[test]
fn a_peer_that_agrees_to_no_new_keys_ends_with_the_old_ones() {
    // It has its cipher from the first profile, and takes part in no other.
    let ciphers = ["aes-128-gcm", "chacha20-poly1305"]
        .map(|name| uts_functions::library::by_name(Function::Protection, name).expect("mandatory").number);
    let stubborn = ConnectionConfig {
        withdrawn: ciphers.iter().map(|number| (Function::Protection, *number)).collect(),
        ..ConnectionConfig::default()
    };
    let mut pair = Pair::new(stubborn, Duration::from_millis(5)).expect("keys");
    let client = pair.connect(ConnectionConfig::default()).expect("connected");
    let flow = pair.open_flow(client).expect("a flow");
    pair.client.connection(client).expect("there").age_keys((1 << 23) - 4096);
    let error = pair.carry(client, flow, 1 << 30).expect_err("the limit is reached").to_string();
    assert!(error.contains("cipher's limit"), "{error}");
    let sent = pair.client.peek(client).map(|c| c.stats().packets_sent);
    assert!(sent.is_none_or(|sent| sent < 4096), "{sent:?} packets");
    assert!(pair.now < Time::from_millis(60_000));
}
