//! Overhead of a packet and of a connection.

use bytes::Bytes;
use core::time::Duration;
use uts_engine::{
    ConnectionConfig, ConnectionHandle, Direction, EndpointConfig, Event, FlowOptions, MessageOptions, Read,
};
use uts_functions::{Function, Profile, Time};
use uts_sim::identity::Identities;
use uts_sim::{NodeId, World, WorldConfig};

const SERVER: NodeId = 0;
const CLIENT: NodeId = 1;

/// Memory of a connection at rest. What its endpoint keeps for it is counted in `idle.rs`.
const IDLE_BYTES_MAX: usize = 4 << 10;

struct Pair {
    world: World,
    handles: [Option<ConnectionHandle>; 2],
}

impl Pair {
    fn new(cid_bytes: usize, security: &str) -> Self {
        let mut config = ConnectionConfig::default();
        for property in [security, "preserveMsgBoundaries=require", "uts.adapt=off", "uts.consent=all"] {
            config.requirements.assign(property).expect("a valid property");
        }
        let endpoint = || EndpointConfig { cid_bytes, accept: config.clone(), ..EndpointConfig::default() };
        let world = WorldConfig { server: endpoint(), client: endpoint(), ..WorldConfig::default() };
        let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
        world.limit_steps(100_000);
        world.set_path(uts_path::Target::Both, "rate=10mbit delay=10ms").expect("a valid change");
        let client = world.connect(CLIENT, config).expect("the connection begins");
        let mut pair = Pair { world, handles: [None, Some(client)] };
        pair.pass(Duration::from_secs(2));
        pair
    }

    /// Lets time pass; gives the messages that the server read.
    fn pass(&mut self, duration: Duration) -> Vec<Bytes> {
        let until = self.world.now() + duration;
        let mut messages = Vec::new();
        while let Some(happening) = self.world.next(until) {
            match happening.event {
                Event::Connected => self.handles[happening.node] = Some(happening.connection),
                Event::Readable(flow) if happening.node == SERVER => {
                    let now = self.world.now();
                    while let Ok(Read::Message(data)) = self.connection(SERVER).read(now, flow, 10_000) {
                        messages.push(data);
                    }
                }
                Event::Closed(reason) => panic!("{reason}"),
                _ => {}
            }
        }
        assert!(!self.world.is_exhausted());
        messages
    }

    fn connection(&mut self, node: NodeId) -> &mut uts_engine::Connection {
        let handle = self.handles[node].expect("connected");
        self.world.connection(node, handle).expect("it is open")
    }
}

/// Nothing but what carries a message.
fn smallest(protection: &str) -> Profile {
    let mut profile = Profile::bare();
    for (function, name) in [
        (Function::Segmentation, "messages"),
        (Function::Sequencing, "unordered"),
        (Function::Protection, protection),
    ] {
        profile = profile.with_named(function, name).expect("in the library");
    }
    profile
}

/// Bytes of the datagrams that carry messages of `len` bytes under `profile`, beyond them.
fn overhead(cid_bytes: usize, security: &str, profile: Profile, len: usize) -> u64 {
    let mut pair = Pair::new(cid_bytes, security);
    let now = pair.world.now();
    pair.connection(CLIENT).request_profile(now, Direction::Out, profile).expect("both have it");
    pair.pass(Duration::from_secs(2));
    assert_eq!(pair.connection(CLIENT).profile(Direction::Out), Some(profile));
    // The congestion and rate mechanisms of the profile are none: each message leaves at once, and
    // alone.
    let flow = pair.connection(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
    let mut overheads = Vec::new();
    for value in 0..20u8 {
        let now = pair.world.now();
        let before = pair.connection(CLIENT).stats();
        let message = Bytes::from(vec![value; len]);
        pair.connection(CLIENT)
            .send_message(now, flow, message.clone(), MessageOptions::default())
            .expect("room");
        // Sooner than anybody asks whether the other is still there.
        assert_eq!(pair.pass(Duration::from_millis(900)), [message]);
        let after = pair.connection(CLIENT).stats();
        assert_eq!(after.packets_sent - before.packets_sent, 1, "one packet for one message");
        overheads.push(after.bytes_sent - before.bytes_sent - len as u64);
    }
    overheads.into_iter().max().unwrap_or(0)
}

#[test]
fn the_smallest_profiles_add_six_bytes_and_their_tag_or_seven_bytes() {
    for (security, protection, tag) in
        [("uts.security=unprotected", "none", 0), ("uts.security=required", "aes-128-gcm", 16)]
    {
        for cid_bytes in 0..=2 {
            let bytes = overhead(cid_bytes, security, smallest(protection), 50);
            println!(
                "protection {protection}, ids of {cid_bytes} bytes: {bytes} bytes, {tag} of them the tag"
            );
            // Where nothing checks a packet's number it is longer (packets.md P-5).
            let number = u64::from(protection == "none");
            assert!(
                bytes <= 6 + number + tag,
                "{bytes} bytes with protection {protection} and ids of {cid_bytes} bytes"
            );
        }
    }
}

#[test]
fn a_connection_at_rest_is_small() {
    let mut pair = Pair::new(8, "uts.security=required");
    pair.pass(Duration::from_secs(5));
    for node in [SERVER, CLIENT] {
        let bytes = pair.connection(node).memory_bytes();
        println!("at rest: {bytes} bytes at {}", if node == SERVER { "the server" } else { "the client" });
        assert!(bytes <= IDLE_BYTES_MAX, "{bytes} bytes");
    }
    assert!(pair.world.now() > Time::ZERO);
}
