//! Requirements that change in mid-connection (selection.md S-43).

use uts_engine::requirements::Requirements;
use uts_engine::{ConnectionConfig, Event};
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::{World, WorldConfig};

#[test]
fn what_is_fixed_once_a_connection_is_established_does_not_change() {
    let path = PathConfig::both("rate=20mbit delay=10ms".parse().expect("a path"));
    let config = WorldConfig { path, ..WorldConfig::default() };
    let mut world = World::new(config, Identities::new().expect("keys")).expect("a valid world");
    let client = world.connect(1, ConnectionConfig::default()).expect("begun");
    let mut is_open = false;
    while let Some(happening) = world.next(Time::from_millis(1_000)) {
        is_open |= happening.node == 1 && happening.event == Event::Connected;
    }
    assert!(is_open);
    let now = world.now();
    let connection = world.connection(1, client).expect("open");
    for (setting, before) in [
        ("uts.security=unprotected", "uts.security=required"),
        ("uts.expedited=on", "uts.expedited=off"),
        ("direction=unidirectional-send", "direction=bidirectional"),
        ("zeroRttMsg=prohibit", "zeroRttMsg=no-preference"),
    ] {
        let mut requirements = Requirements::default();
        requirements.assign(setting).expect("known");
        let refused = connection.set_requirements(now, requirements).expect_err(setting);
        assert_eq!(refused.rule, "S-43", "{refused}");
        let told = format!("`{setting}` and `{before}` of the established connection contradict");
        assert!(refused.to_string().starts_with(&told), "{refused}");
    }
    let mut requirements = Requirements::default();
    requirements.assign("connCapacityProfile=scavenger").expect("known");
    assert_eq!(connection.set_requirements(now, requirements), Ok(()));
}
