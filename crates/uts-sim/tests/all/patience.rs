//! Time that a handshake is waited for: by what has been heard of the peer (establishment.md R-2,
//! And handshakes that end at once.

use core::time::Duration;
use uts_engine::{CloseReason, ConnectionConfig, Event};
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::world::SERVER;
use uts_sim::{World, WorldConfig};

const CLIENT: usize = 1;

fn world(path: &str, schedule: &str, seed: u64, names: usize) -> World {
    let mut path = PathConfig::both(path.parse().expect("a valid path"));
    path.schedule = schedule.parse().expect("a valid schedule");
    let config = WorldConfig { path, seed, ..WorldConfig::default() };
    World::new(config, Identities::with_names(names).expect("keys")).expect("a valid world")
}

fn config(properties: &[&str]) -> ConnectionConfig {
    let mut config = ConnectionConfig::default();
    for property in properties {
        config.requirements.assign(property).expect("a valid property");
    }
    config
}

/// Events of each end until the client was connected, or gave up, and for some time more.
fn run(world: &mut World, until: Time) -> [Vec<(Time, Event)>; 2] {
    let mut told = [Vec::new(), Vec::new()];
    while let Some(happening) = world.next(until) {
        told[happening.node].push((world.now(), happening.event));
    }
    told
}

fn is_connected(told: &[(Time, Event)]) -> bool {
    told.iter().any(|(_, event)| *event == Event::Connected)
}

#[test]
fn a_round_trip_of_six_seconds_is_waited_for() {
    for names in [1, 100] {
        let mut world = world("rate=1mbit delay=3s buffer=64p", "", 1, names);
        world.connect(CLIENT, config(&[])).expect("begun");
        let told = run(&mut world, Time::from_millis(25_000));
        assert!(told.iter().all(|told| is_connected(told)), "{names} names: {told:?}");
        let closed = told.iter().flatten().any(|(_, event)| matches!(event, Event::Closed(_)));
        assert!(!closed, "{told:?}");
    }
}

#[test]
fn most_handshakes_succeed_where_three_packets_in_five_are_lost_and_with_more_patience_all() {
    const SEEDS: u64 = 60;
    let connected = |properties: &[&str]| {
        let is_good = |seed: &u64| {
            let mut world = world("rate=20mbit delay=25ms buffer=64p loss=0.6", "", *seed, 1);
            world.connect(CLIENT, config(properties)).expect("begun");
            let told = run(&mut world, Time::from_millis(130_000));
            is_connected(&told[CLIENT]) && is_connected(&told[SERVER])
        };
        (0..SEEDS).filter(is_good).count() as u64
    };
    let by_default = connected(&[]);
    let patiently = connected(&["uts.profile.establishment=three-way(patience=60000)"]);
    println!("{by_default} and {patiently} of {SEEDS}");
    assert!(by_default >= SEEDS * 9 / 10, "{by_default} of {SEEDS}");
    assert_eq!(patiently, SEEDS);
}

#[test]
fn who_hears_nothing_gives_up_soon_and_says_what_was_tried() {
    for (properties, after) in [
        (&[][..], 10_u32),
        (&["uts.profile.establishment=three-way(patience=3000)"], 3),
        (&["uts.profile.establishment=three-way(patience=60000)"], 60),
    ] {
        let mut world = world("rate=20mbit delay=25ms buffer=64p down", "", 1, 1);
        world.connect(CLIENT, config(properties)).expect("begun");
        let told = run(&mut world, Time::from_millis(200_000));
        let [(when, Event::Closed(reason))] = told[CLIENT].as_slice() else { panic!("{:?}", told[CLIENT]) };
        let CloseReason::HandshakeTimeout { after: waited, tried } = reason else { panic!("{reason}") };
        assert_eq!(
            (when.as_secs_f64().round(), *waited),
            (f64::from(after), Duration::from_secs(after.into()))
        );
        assert_eq!((tried.bytes.1, tried.heard), (1200, 0));
        assert!(
            u64::from(after) / 2 <= tried.datagrams && tried.datagrams <= 3 * u64::from(after),
            "{tried}"
        );
    }
}

#[test]
fn who_has_heard_the_server_waits_longer() {
    // The server has more to say than it may; what has come first is all that comes.
    let mut world = world("rate=20mbit delay=20ms buffer=64p", "at=41ms bwd down", 1, 200);
    world.connect(CLIENT, config(&[])).expect("begun");
    let told = run(&mut world, Time::from_millis(200_000));
    let [(when, Event::Closed(CloseReason::HandshakeTimeout { after, tried }))] = told[CLIENT].as_slice()
    else {
        panic!("{:?}", told[CLIENT])
    };
    assert_eq!((when.as_secs_f64().round(), *after), (60.0, Duration::from_secs(60)));
    assert!(tried.heard > 0, "{tried}");
}

/// The server learns that there was a client, who it was, and that it has gone, without waiting for
/// anything.
#[test]
fn a_client_that_closes_at_once_is_heard_of() {
    for (loss, names) in [(0.0, 1), (0.0, 100), (0.2, 1)] {
        for mtu in [1500, 576] {
            let path = format!("rate=20mbit delay=20ms buffer=64p overhead=28 mtu={mtu} loss={loss}");
            let mut world = world(&path, "", mtu + names as u64, names);
            let handle = world.connect(CLIENT, config(&[])).expect("begun");
            let (mut told, mut closed_at) = (Vec::new(), None);
            while let Some(happening) = world.next(Time::from_millis(30_000)) {
                let now = world.now();
                if happening.node == CLIENT && happening.event == Event::Connected {
                    world.connection(CLIENT, handle).expect("open").close(now, 7, "never mind");
                    closed_at = Some(now);
                } else if happening.node == SERVER {
                    let is_accepted = world.endpoint(SERVER).accept() == Some(happening.connection);
                    assert_eq!(is_accepted, happening.event == Event::Connected, "{happening:?}");
                    told.push((now, happening.event));
                }
            }
            let [(at, Event::Connected), (_, Event::Closed(CloseReason::Peer { code: 7, reason }))] =
                told.as_slice()
            else {
                panic!("loss {loss}, {names}, {mtu}: {told:?}")
            };
            assert_eq!(reason, "never mind");
            let took = at.since(closed_at.expect("closed"));
            assert!(took < Duration::from_millis(if loss > 0.0 { 2_000 } else { 25 }), "{took:?}");
            assert!(world.endpoint(SERVER).is_empty(), "nothing is kept");
        }
    }
}
