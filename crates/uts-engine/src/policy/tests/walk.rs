//! A random walk over paths, requirements and libraries.

use super::super::due::EXCHANGES_PER_MINUTE;
use super::*;
use crate::appraisal::rules;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Seeds of the random walk; a failing one is printed.
const SEEDS: u64 = 40;

fn random_requirements(rng: &mut ChaCha8Rng) -> Requirements {
    let mut r = match rng.random_range(0..4) {
        0 => Requirements::bulk(),
        1 => Requirements::interactive(),
        2 => Requirements::media(Duration::from_millis(rng.random_range(60..400))),
        _ => Requirements::messages(),
    };
    let pins =
        ["congestion=cubic", "congestion=bbr", "congestion=new-reno", "fec=xor", "fec=none", "rate=none"];
    if rng.random_bool(0.4) {
        let pin = pins[rng.random_range(0..pins.len())];
        r.assign(&format!("uts.profile.{pin}")).unwrap_or_else(|e| panic!("{e}"));
    }
    r
}

fn random_library(rng: &mut ChaCha8Rng, requirements: &Requirements) -> Library {
    let mut library = Library::local();
    for (function, number) in
        [(Function::Congestion, 1), (Function::Congestion, 3), (Function::Fec, 1), (Function::Fec, 2)]
    {
        let pinned = requirements.pinned(function).is_some_and(|p| p.choice.number == number);
        if rng.random_bool(0.25) && !pinned {
            library.remove(function, number);
        }
    }
    library
}

#[test]
fn a_random_walk_breaks_no_rule() {
    for seed in 0..SEEDS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let requirements = random_requirements(&mut rng);
        let usable = random_library(&mut rng, &requirements);
        let mut world = World::new(requirements.clone(), usable);
        if rng.random_bool(0.3) {
            world.offered = Some(Rate::from_bits_per_sec(rng.random_range(100_000..20_000_000)));
        }
        while world.now_ms < 120_000 {
            let weather = Weather {
                mbit: rng.random_range(0.5..200.0),
                rtt_ms: rng.random_range(1..300),
                loss: if rng.random_bool(0.5) { 0.0 } else { rng.random_range(0.0..0.3) },
                burst: rng.random_range(1.0..8.0),
            };
            let ms = rng.random_range(100..12_000);
            world.run(&weather, ms);
        }
        for (at, decision) in &world.decisions {
            let told = format!("seed {seed} ({requirements}), at {at} ms: {decision}");
            assert!(usable.has_all(&decision.to), "{told}");
            assert!(decision.to.check().is_ok(), "{told}");
            for (function, choice) in decision.to.choices() {
                assert!(rules::allows(&requirements, function, choice.number), "{told}");
                let pin = requirements.pinned(function);
                assert!(pin.is_none_or(|p| p.choice == choice), "{told}");
            }
            let within = world.decisions.iter().filter(|(t, _)| *t >= *at && *t < at + 60_000).count();
            assert!(within <= EXCHANGES_PER_MINUTE, "{within} exchanges in a minute; {told}");
        }
    }
}
