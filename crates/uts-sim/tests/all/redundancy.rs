//! Redundancy repairs what a path loses, without a repetition, under every scheme; in virtual time.

use bytes::Bytes;
use core::time::Duration;
use uts_engine::{
    ConnectionConfig, ConnectionHandle, Direction, EndpointConfig, Event, FlowOptions, MessageOptions,
};
use uts_functions::{Function, library};
use uts_sim::identity::Identities;
use uts_sim::{NodeId, World, WorldConfig};

const SERVER: NodeId = 0;
const CLIENT: NodeId = 1;
const MESSAGES: u32 = 4000;

/// Messages that arrive of [`MESSAGES`], each once and undamaged, where one in twenty packets is
/// lost.
fn arrived(fec: &str) -> usize {
    let mut config = ConnectionConfig::default();
    let pin = format!("uts.profile.fec={fec}");
    // Losses shall not slow the sender down.
    let calm = "uts.profile.congestion=bbr(loss-threshold=300)";
    for property in [
        &pin,
        calm,
        "uts.adapt=off",
        "preserveMsgBoundaries=require",
        "reliability=prohibit",
        "preserveOrder=prohibit",
    ] {
        config.requirements.assign(property).unwrap_or_else(|e| panic!("{e}"));
    }
    let server = EndpointConfig { accept: config.clone(), ..EndpointConfig::default() };
    let world = WorldConfig { server, seed: 11, ..WorldConfig::default() };
    let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
    world.limit_steps(5_000_000);
    let client = world.connect(CLIENT, config).expect("the connection begins");
    let mut server: Option<ConnectionHandle> = None;
    let mut received = vec![0u32; MESSAGES as usize];
    let mut pass = |world: &mut World, until| {
        while let Some(happening) = world.next(until) {
            match happening.event {
                Event::Connected if happening.node == SERVER => server = Some(happening.connection),
                Event::Readable(flow) if happening.node == SERVER => {
                    let now = world.now();
                    let connection = world.connection(SERVER, server.expect("connected")).expect("open");
                    while let Ok(uts_engine::Read::Message(data)) = connection.read(now, flow, 10_000) {
                        let number = u32::from_be_bytes([data[0], data[1], data[2], data[3]]);
                        assert!(data[4..].iter().all(|byte| *byte == number as u8), "{number} is damaged");
                        received[number as usize] += 1;
                    }
                }
                Event::Closed(reason) => panic!("at {}: {reason}", happening.node),
                _ => {}
            }
        }
        assert!(!world.is_exhausted(), "too many steps");
    };
    let second = Duration::from_secs(1);
    world.set_path(uts_path::Target::Both, "rate=50mbit delay=20ms").expect("a valid change");
    let until = world.now() + 2 * second;
    pass(&mut world, until);
    let flow =
        world.connection(CLIENT, client).expect("open").open_flow(FlowOptions::default()).expect("a flow");
    world.set_path(uts_path::Target::Both, "loss=0.05").expect("a valid change");
    for number in 0..MESSAGES {
        let now = world.now();
        let mut data = vec![number as u8; 900];
        data[..4].copy_from_slice(&number.to_be_bytes());
        let connection = world.connection(CLIENT, client).expect("open");
        connection.send_message(now, flow, Bytes::from(data), MessageOptions::default()).expect("room");
        let until = world.now() + Duration::from_millis(2);
        pass(&mut world, until);
    }
    let until = world.now() + 5 * second;
    pass(&mut world, until);
    let connection = world.connection(CLIENT, client).expect("open");
    let profile = connection.profile(Direction::Out).expect("connected");
    assert!(fec.starts_with(profile.name(Function::Fec)), "{profile} in use instead of {fec}");
    assert!(received.iter().all(|count| *count <= 1), "{fec}: a message came twice");
    received.iter().filter(|count| **count == 1).count()
}

#[test]
fn every_scheme_repairs_most_of_what_is_lost() {
    let bare = arrived("none");
    assert!((3700..3900).contains(&bare), "{bare} of {MESSAGES} without redundancy");
    for m in library::built_in(Function::Fec).iter().filter(|m| !m.facts.inert) {
        let repaired = arrived(m.name);
        println!("{}: {repaired} of {MESSAGES}, {bare} without redundancy", m.name);
        let lost = (MESSAGES as usize - repaired) as f64 / (MESSAGES as usize - bare) as f64;
        assert!(lost < 0.5, "{}: {repaired} arrived, {bare} without it", m.name);
    }
    let dense = arrived("sliding-window(window=40,every=3)");
    assert!(dense >= MESSAGES as usize - 4, "{dense} arrived with a repair for three packets");
}
