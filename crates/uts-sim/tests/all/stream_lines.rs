//! Text as a stream of bytes whose lines end as on the network while it travels, and not where it
//! is written and read (presentation.md ).

use bytes::Bytes;
use core::time::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uts_engine::{ConnectionConfig, Direction, EndpointConfig, Event, FlowOptions, Read};
use uts_functions::Function;
use uts_sim::identity::Identities;
use uts_sim::{NodeId, World, WorldConfig};

const SERVER: NodeId = 0;
const CLIENT: NodeId = 1;

fn text(rng: &mut ChaCha8Rng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| b"some text\n\r\n\0"[rng.random_range(0..13)]).collect()
}

/// Sends text in pieces over a path that loses and reorders; now and then the mechanism is
/// exchanged. Says how many bytes travelled for the first time, and how many were written.
fn carry(seed: u64, exchanges: bool) -> (u64, Vec<u8>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut config = ConnectionConfig { send_buffer_bytes: 8 << 20, ..ConnectionConfig::default() };
    for property in ["uts.profile.presentation=ascii-lines", "uts.adapt=off", "uts.consent=all"] {
        config.requirements.assign(property).expect("a property");
    }
    let server = EndpointConfig { accept: config.clone(), ..EndpointConfig::default() };
    let world = WorldConfig { server, seed, ..WorldConfig::default() };
    let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
    world.limit_steps(5_000_000);
    world
        .set_path(uts_path::Target::Both, "rate=20mbit delay=20ms loss=0.03 jitter=3ms,reorder")
        .expect("a valid change");
    let client = world.connect(CLIENT, config).expect("the connection begins");
    let (mut server, mut flow, mut written, mut read) = (None, None, Vec::new(), Vec::new());
    for step in 0..400 {
        let until = world.now() + Duration::from_millis(20);
        while let Some(happening) = world.next(until) {
            match happening.event {
                Event::Connected if happening.node == SERVER => server = Some(happening.connection),
                Event::Readable(id) if happening.node == SERVER => {
                    let now = world.now();
                    let connection = world.connection(SERVER, happening.connection).expect("open");
                    let most = rng.random_range(1..5000);
                    while let Ok(Read::Bytes(position, bytes)) = connection.read(now, id, most) {
                        assert_eq!(position, read.len() as u64, "seed {seed}: where it was written");
                        read.extend_from_slice(&bytes);
                    }
                }
                Event::Closed(reason) => panic!("seed {seed}: {reason}"),
                _ => {}
            }
        }
        let now = world.now();
        let connection = world.connection(CLIENT, client).expect("open");
        if step < 50 {
            continue;
        }
        let id = *flow.get_or_insert_with(|| connection.open_flow(FlowOptions::default()).expect("a flow"));
        if step < 250 {
            let bytes = rng.random_range(1..3000);
            let more = text(&mut rng, bytes);
            assert_eq!(connection.write(now, id, Bytes::from(more.clone())).expect("room"), more.len());
            written.extend(more);
        }
        if exchanges && step % 20 == 0 {
            let name = ["ascii-lines", "none"][step / 20 % 2];
            let profile = connection.profile(Direction::Out).expect("connected");
            let profile = profile.with_named(Function::Presentation, name).expect("in the library");
            // One that is under way stays so.
            let _ = connection.request_profile(now, Direction::Out, profile);
        }
    }
    assert!(server.is_some() && read == written, "seed {seed}: {} of {}", read.len(), written.len());
    let stats = world.connection(CLIENT, client).expect("open").stats();
    (stats.data_bytes_sent - stats.bytes_repeated, written)
}

#[test]
fn lines_travel_in_the_form_of_the_network() {
    for seed in 0..3 {
        let (travelled, written) = carry(seed, false);
        let ends = written.iter().filter(|byte| b"\r\n".contains(byte)).count();
        assert_eq!(travelled, (written.len() + ends) as u64, "seed {seed}: a byte more for each");
    }
}

#[test]
fn text_stays_whole_through_exchanges() {
    for seed in 10..16 {
        let (travelled, written) = carry(seed, true);
        let ends = written.iter().filter(|byte| b"\r\n".contains(byte)).count() as u64;
        let least = written.len() as u64;
        assert!((least + 1..least + ends).contains(&travelled), "seed {seed}: some of it as it was");
    }
}
