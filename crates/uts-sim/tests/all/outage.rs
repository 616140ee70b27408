//! Outages: nothing passes for a while, in either direction. Cheap probes find the path's return
//! (timing.md R-11).

use core::time::Duration;
use uts_engine::ConnectionConfig;
use uts_functions::Time;
use uts_path::{Direction, Target};
use uts_sim::identity::Identities;
use uts_sim::transfer::{Transfers, checksum};
use uts_sim::{World, WorldConfig};

const BYTES: u64 = 10_000_000;

/// When the path goes.
const DOWN_AT: Time = Time::from_millis(3000);

/// Time for which probes carry data.
const FIRST_PROBES: Duration = Duration::from_secs(3);

/// A transfer over 10 Mbit/s and 60 ms, cut off for a while. Returns how long after the path's
/// return data arrives again.
fn resumes_after(seed: u64, outage: Duration) -> Duration {
    let path = "rate=10mbit delay=30ms buffer=100kB".parse().expect("a path");
    let config = WorldConfig { path: uts_path::PathConfig::both(path), seed, ..WorldConfig::default() };
    let mut world = World::new(config, Identities::new().expect("keys")).expect("a valid world");
    let mut transfers = Transfers::start(&mut world, &[(1, ConnectionConfig::default())], BYTES);
    transfers.run(&mut world, DOWN_AT);
    world.set_path(Target::Both, "down").expect("a change");
    // What was on its way arrives, and the first probes go out, with data.
    transfers.run(&mut world, DOWN_AT + FIRST_PROBES);
    let before = transfers.progress[&1].received;
    let sent = world.path_stats(Direction::Forward).bytes_in;
    let up_at = DOWN_AT + outage;
    transfers.run(&mut world, up_at);
    assert_eq!(transfers.progress[&1].received, before);
    let probes = world.path_stats(Direction::Forward).bytes_in - sent;
    let seconds = (outage - FIRST_PROBES).as_secs();
    // Each has 62 bytes: 32 in the first 3 s, as many in the next 6 s, and in the next 13 s.
    assert!(probes <= 62 * 120 && seconds < 30, "seed {seed}: {probes} bytes of probes in {outage:?}");
    world.set_path(Target::Both, "up").expect("a change");
    let mut at = up_at;
    while transfers.progress[&1].received == before && at < up_at + Duration::from_secs(60) {
        at += Duration::from_millis(10);
        transfers.run(&mut world, at);
    }
    assert!(transfers.run(&mut world, at + Duration::from_secs(60)), "seed {seed}: {outage:?}");
    let progress = &transfers.progress[&1];
    assert_eq!((progress.closed.clone(), progress.checksum), (None, checksum(BYTES)), "seed {seed}");
    at.since(up_at)
}

#[test]
fn data_flows_again_soon_after_the_path_is_back() {
    for seed in 0..5 {
        for outage in [4, 5, 13, 27] {
            let outage = Duration::from_millis(1000 * outage + 190 * seed);
            let after = resumes_after(seed, outage);
            println!("seed {seed}: out for {outage:?}, data {after:?} after its return");
            // A probe within a fifteenth of the outage, then two round trips: its acknowledgement,
            // and the lost data.
            let wait = Duration::from_millis(100).max(outage / 15);
            let round_trips = Duration::from_millis(2 * 60 + 30);
            assert!(after <= wait + round_trips, "seed {seed}: {after:?} after {outage:?}");
        }
    }
}
