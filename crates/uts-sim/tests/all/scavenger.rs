//! Scavengers take what others leave, by whichever name `scavenger` is said.

use core::time::Duration;
use uts_engine::ConnectionConfig;
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::transfer::Transfers;
use uts_sim::{World, WorldConfig};

/// The scavenger's share of what arrives beside somebody who says nothing.
fn share(said: &[&str], line: &str) -> f64 {
    let path = PathConfig::both(line.parse().expect("a valid path"));
    let config = WorldConfig { path, clients: 2, seed: 3, ..WorldConfig::default() };
    let mut world = World::new(config, Identities::new().expect("keys")).expect("a valid world");
    let mut scavenger = ConnectionConfig::default();
    for property in said {
        scavenger.requirements.assign(property).expect("a valid property");
    }
    let clients = [(1, ConnectionConfig::default()), (2, scavenger)];
    let mut transfers = Transfers::start(&mut world, &clients, u64::MAX / 2);
    let start = world.now();
    transfers.run(&mut world, start + Duration::from_secs(10));
    let before = [1, 2].map(|client| transfers.progress[&client].received);
    transfers.run(&mut world, start + Duration::from_secs(40));
    let received = [1, 2].map(|client| transfers.progress[&client].received - before[client - 1]);
    received[1] as f64 / (received[0] + received[1]) as f64
}

#[test]
fn a_scavenger_yields_by_whichever_name_it_is_asked_for() {
    for line in ["rate=10mbit delay=20ms buffer=150kB", "rate=20mbit delay=10ms buffer=300kB"] {
        for said in [&["connCapacityProfile=scavenger"][..], &["uts.profile=scavenger"]] {
            let share = share(said, line);
            println!("{line}, {said:?}: {share:.3}");
            assert!(share < 0.25, "{line}, {said:?}: {share:.3}");
        }
        let fair = share(&[], line);
        println!("{line}, nothing said: {fair:.3}");
        assert!(fair > 0.35, "{line}: who says nothing takes {fair:.3}");
    }
}
