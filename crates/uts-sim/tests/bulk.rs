//! A transfer over a path that behaves, and over some that do not.

use uts_engine::ConnectionConfig;
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::transfer::{Transfers, checksum};
use uts_sim::{World, WorldConfig};

/// Goodput as a share of the path's rate, over a transfer of `megabytes`.
fn share(path: &str, rate_mbit: f64, megabytes: u64, properties: &[&str]) -> f64 {
    let mut config = ConnectionConfig::default();
    for property in properties {
        config.requirements.assign(property).expect("a valid property");
    }
    let bytes = megabytes * 1_000_000;
    let world =
        WorldConfig { path: PathConfig::both(path.parse().expect("a valid path")), ..WorldConfig::default() };
    let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
    let mut transfers = Transfers::start(&mut world, &[(1, config)], bytes);
    let done = transfers.run(&mut world, Time::from_millis(1_000_000));
    let progress = &transfers.progress[&1];
    for (at, exchange) in &progress.exchanges {
        println!("{at:?} {exchange:?}");
    }
    println!(
        "{:?}",
        world.connection(1, progress.connection).map(|c| (c.stats(), c.facts(), c.congestion()))
    );
    assert!(done, "{path}: {} of {bytes} bytes, closed: {:?}", progress.received, progress.closed);
    assert_eq!(progress.closed, None);
    assert_eq!((progress.received, progress.checksum), (bytes, checksum(bytes)));
    let share = progress.goodput(world.now()) * 8.0 / (rate_mbit * 1e6);
    println!("{path} {properties:?}: {:.1} % of {rate_mbit} Mbit/s", share * 100.0);
    share
}

const PATH: &str = "rate=100mbit delay=10ms buffer=256kB overhead=28";

#[test]
fn a_clean_path_is_filled() {
    assert!(share(PATH, 100.0, 60, &[]) > 0.9);
}
