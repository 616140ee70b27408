//! A handshake that one end refuses.

use core::time::Duration;
use uts_engine::{CloseReason, ConnectionConfig, Event};
use uts_functions::Time;
use uts_path::{Direction, PathConfig, Target};
use uts_sim::identity::Identities;
use uts_sim::{World, WorldConfig};

/// When, and why, a connection ends at each of two ends if the client does not trust the server.
/// One way takes 10 ms. `changes` says what happens to the way to the server, and when.
fn refused(changes: &[(u64, &str)]) -> [Option<(Time, CloseReason)>; 2] {
    let path = "rate=100mbit delay=10ms buffer=256kB".parse().expect("a path");
    let config = WorldConfig { path: PathConfig::both(path), ..WorldConfig::default() };
    let mut identities = Identities::new().expect("keys");
    identities.client = Identities::new().expect("keys").client;
    let mut world = World::new(config, identities).expect("a valid world");
    world.connect(1, ConnectionConfig::default()).expect("begun");
    let mut ends = [None, None];
    let whole = (40_000, None);
    for (until_ms, change) in changes.iter().map(|(at, change)| (*at, Some(*change))).chain([whole]) {
        while let Some(happening) = world.next(Time::from_millis(until_ms)) {
            if let Event::Closed(reason) = happening.event {
                ends[happening.node] = Some((world.now(), reason));
            }
        }
        if let Some(change) = change {
            world.set_path(Target::One(Direction::Forward), change).expect("a change");
        }
    }
    assert!((0..2).all(|node| world.endpoint(node).is_empty()), "both ends have forgotten it");
    ends
}

#[test]
fn a_server_learns_at_once_that_it_was_refused() {
    let [server, client] = refused(&[]);
    let (client_at, reason) = client.expect("the client's connection ends");
    assert!(matches!(reason, CloseReason::Tls(_)), "{reason}");
    let (server_at, reason) = server.expect("the server's connection ends");
    assert!(matches!(reason, CloseReason::Refused(_)), "{reason}");
    // One way over the path later, without a time-out.
    assert!(server_at.since(client_at) < Duration::from_millis(15), "{server_at:?} {client_at:?}");
}

#[test]
fn a_farewell_that_was_lost_is_said_again() {
    // The refusal is on its way from the 20th to the 30th millisecond.
    let [server, _] = refused(&[(15, "loss=1")]);
    let reason = server.map(|(_, reason)| reason);
    assert!(matches!(reason, Some(CloseReason::HandshakeTimeout { .. })), "nothing ever arrives: {reason:?}");
    let [server, client] = refused(&[(15, "loss=1"), (100, "loss=0")]);
    let (client_at, reason) = client.expect("the client's connection ends");
    assert!(matches!(reason, CloseReason::Tls(_)), "{reason}");
    let (server_at, reason) = server.expect("the server's connection ends");
    assert!(matches!(reason, CloseReason::Refused(_)), "{reason}");
    assert!(server_at.since(client_at) > Duration::from_millis(15), "it was not lost");
}
