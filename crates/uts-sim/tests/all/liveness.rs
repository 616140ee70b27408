//! Liveness of the peer: asked for while something is expected of it, and told to the application
//! (timing.md ).

use core::time::Duration;
use uts_engine::{CloseReason, ConnectionConfig, ConnectionHandle, Event, FlowOptions, Read};
use uts_functions::Time;
use uts_path::{PathConfig, Target};
use uts_sim::identity::Identities;
use uts_sim::world::SERVER;
use uts_sim::{World, WorldConfig};

const CLIENT: usize = 1;

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn connected() -> (World, ConnectionHandle) {
    connected_with(&[])
}

/// A connection over 20 Mbit/s and 20 ms, a second old.
fn connected_with(properties: &[&str]) -> (World, ConnectionHandle) {
    let mut own = ConnectionConfig::default();
    for property in properties {
        own.requirements.assign(property).expect("a valid property");
    }
    let path = PathConfig::both("rate=20mbit delay=10ms buffer=64p".parse().expect("a valid path"));
    let config = WorldConfig { path, ..WorldConfig::default() };
    let mut world = World::new(config, Identities::new().expect("keys")).expect("a valid world");
    let handle = world.connect(CLIENT, own).expect("begun");
    run(&mut world, at(1000));
    (world, handle)
}

/// Lets time pass until then. The server answers each piece of data with `answer` bytes; the client
/// reads what it is sent. Gives what else the client was told, and when.
fn run_with(world: &mut World, until: Time, answer: usize) -> Vec<(Time, Event)> {
    let mut told = Vec::new();
    while let Some(happening) = world.next(until) {
        let now = world.now();
        match happening.event {
            Event::Readable(flow) => {
                let connection = world.connection(happening.node, happening.connection).expect("open");
                let mut has_read = false;
                while let Ok(Read::Bytes(..)) = connection.read(now, flow, 1 << 16) {
                    has_read = true;
                }
                if has_read && happening.node == SERVER && answer > 0 {
                    connection.write(now, flow, vec![7; answer].into()).expect("written");
                }
            }
            event if happening.node == CLIENT => told.push((now, event)),
            _ => {}
        }
    }
    told
}

fn run(world: &mut World, until: Time) -> Vec<(Time, Event)> {
    run_with(world, until, 0)
}

/// The client sends a request, and waits to read.
fn ask(world: &mut World, handle: ConnectionHandle) {
    let now = world.now();
    let connection = world.connection(CLIENT, handle).expect("open");
    let flow = connection.open_flow(FlowOptions::default()).expect("opened");
    connection.write(now, flow, b"give me that".as_slice().into()).expect("written");
    assert!(connection.read(now, flow, 1).is_err(), "nothing is there yet");
}

fn silences(told: &[(Time, Event)]) -> Vec<(Time, Event)> {
    told.iter().filter(|(_, event)| matches!(event, Event::Silent(_) | Event::Heard(_))).cloned().collect()
}

#[test]
fn silence_is_told_while_data_is_unacknowledged_and_that_it_is_over() {
    let (mut world, handle) = connected();
    world.set_path(Target::Both, "down").expect("a change");
    ask(&mut world, handle);
    assert_eq!(silences(&run(&mut world, at(3900))), []);
    let told = silences(&run(&mut world, at(11_000)));
    let [(when, Event::Silent(long))] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((*when, *long), (at(4000), Duration::from_secs(3)));
    let silence = world.connection(CLIENT, handle).expect("open").silence(at(11_000));
    assert_eq!(silence, Some(Duration::from_secs(10)));
    world.set_path(Target::Both, "up").expect("a change");
    let told = silences(&run(&mut world, at(13_000)));
    let [(when, Event::Heard(after))] = told.as_slice() else { panic!("{told:?}") };
    assert!(*when < at(12_500) && *after == when.since(at(1000)), "{told:?}");
    assert_eq!(world.connection(CLIENT, handle).expect("open").silence(at(13_000)), None);
}

/// An end that waits to read has nothing unacknowledged. Without questions, only the idle time-out
/// would show that the server is gone.
#[test]
fn a_server_that_is_gone_is_noticed_while_its_answer_is_waited_for() {
    for answer in [0, 1000] {
        let (mut world, handle) = connected();
        ask(&mut world, handle);
        assert_eq!(silences(&run_with(&mut world, at(1500), answer)), []);
        world.set_path(Target::Both, "down").expect("a change");
        let told = run(&mut world, at(60_000));
        let (when, _) = silences(&told).into_iter().next().expect("told");
        assert!((at(4000)..=at(6000)).contains(&when), "{when:?}");
        let Some((when, Event::Closed(reason))) = told.last() else { panic!("{told:?}") };
        assert_eq!(*reason, CloseReason::IdleTimeout(Duration::from_secs(30)));
        assert!((at(31_000)..at(32_500)).contains(when), "{when:?}");
    }
}

#[test]
fn a_quiet_peer_is_asked_ever_more_rarely_and_the_idle_time_out_ends_it() {
    let (mut world, handle) = connected();
    ask(&mut world, handle);
    run(&mut world, at(1500));
    let sent = |world: &mut World| world.connection(CLIENT, handle).map(|c| c.stats().packets_sent);
    let before = sent(&mut world).expect("open");
    // After 1, 2, 4, 8 and 16 s; the server, which waits for more, asks as often, and is answered.
    assert_eq!(silences(&run(&mut world, at(40_000))), []);
    let packets = sent(&mut world).expect("open") - before;
    assert!((5..=11).contains(&packets), "{packets}");
    let told = run(&mut world, at(100_000));
    assert!(matches!(told.last(), Some((_, Event::Closed(CloseReason::IdleTimeout(_))))), "{told:?}");
}

#[test]
fn of_whom_nothing_is_expected_nothing_is_asked() {
    let (mut world, handle) = connected();
    let before = world.connection(CLIENT, handle).expect("open").stats().packets_sent;
    world.set_path(Target::Both, "down").expect("a change");
    assert_eq!(run(&mut world, at(25_000)), []);
    assert_eq!(world.connection(CLIENT, handle).expect("open").stats().packets_sent, before);
    let told = run(&mut world, at(40_000));
    assert!(matches!(told.as_slice(), [(_, Event::Closed(CloseReason::IdleTimeout(_)))]), "{told:?}");
}

#[test]
fn what_the_network_says_is_a_hint_that_the_peer_can_refute() {
    for is_gone in [true, false] {
        let (mut world, handle) = connected();
        ask(&mut world, handle);
        run(&mut world, at(1500));
        let before = world.connection(CLIENT, handle).expect("open").stats().packets_sent;
        if is_gone {
            world.set_path(Target::Both, "down").expect("a change");
        }
        let remote = world.connection(CLIENT, handle).expect("open").remote();
        for _ in 0..10 {
            world.endpoint(CLIENT).on_unreachable(at(1500), remote);
        }
        let told = silences(&run(&mut world, at(2000)));
        let packets = world.connection(CLIENT, handle).expect("open").stats().packets_sent - before;
        if is_gone {
            let [(when, Event::Silent(_))] = told.as_slice() else { panic!("{told:?}") };
            assert!(*when <= at(1900), "{when:?}");
            assert!(packets <= 10, "{packets}");
        } else {
            assert_eq!((told, packets), (Vec::new(), 1));
        }
    }
}

#[test]
fn who_says_how_long_to_wait_waits_no_longer() {
    for seconds in [1, 5, 100] {
        let (mut world, handle) = connected_with(&[&format!("connTimeout={seconds}s")]);
        // While nothing is expected, nothing fails.
        let told = run(&mut world, at(20_000));
        assert_eq!(told, []);
        world.set_path(Target::Both, "down").expect("a change");
        ask(&mut world, handle);
        let told = run(&mut world, at(200_000));
        let Some((when, Event::Closed(CloseReason::IdleTimeout(after)))) = told.last() else {
            panic!("{told:?}")
        };
        // Or the idle time-out, if that is earlier: the handshake was the last that was heard.
        let wanted = if seconds == 100 { (30, 30) } else { (20 + seconds, seconds) };
        assert_eq!((when.as_secs_f64().round() as u64, after.as_secs()), wanted);
    }
}

#[test]
fn a_connection_that_is_to_be_kept_alive_is() {
    for (properties, lives, most) in [
        (&[][..], false, 0),
        (&["keepAlive=require"], true, 12),
        (&["keepAlive=prefer", "keepAliveTimeout=5s"], true, 24),
        (&["keepAliveTimeout=5s"], false, 0),
    ] {
        let (mut world, handle) = connected_with(properties);
        let before = world.connection(CLIENT, handle).expect("open").stats().packets_sent;
        run(&mut world, at(100_000));
        let sent = world.connection(CLIENT, handle).filter(|c| c.is_open()).map(|c| c.stats().packets_sent);
        assert_eq!(sent.is_some(), lives, "{properties:?}");
        assert!(
            sent.is_none_or(|sent| (most / 2..=most).contains(&(sent - before))),
            "{properties:?}: {sent:?}"
        );
    }
}
