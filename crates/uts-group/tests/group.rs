//! Groups in virtual time: what receivers get, and how much is asked and repeated for it.

use core::time::Duration;
use uts_functions::Rate;
use uts_group::backoff::expected_requests;
use uts_group::simulation::{Scene, run};
use uts_group::{Answers, SenderSettings};

const MS: fn(u64) -> Duration = Duration::from_millis;

#[test]
fn every_receiver_gets_all_in_order_whatever_is_lost() {
    for seed in 0..8u64 {
        let sources = [1, 4, 16, 64][seed as usize % 4];
        let scene = Scene {
            receivers: 1 + seed as usize * 2,
            sender: SenderSettings {
                sources,
                parities: seed as usize % 3,
                answers: if seed % 2 == 0 { Answers::Prompt } else { Answers::Gathered },
                ..SenderSettings::default()
            },
            shared_loss: 0.02,
            own_loss: 0.08,
            messages: 400,
            seed,
            ..Scene::default()
        };
        let outcome = run(&scene);
        assert_eq!(outcome.whole, scene.receivers, "seed {seed}: {outcome:?}");
        assert_eq!(outcome.receivers.messages, 400 * scene.receivers as u64, "seed {seed}");
        assert_eq!(outcome.receivers.missing, 0, "seed {seed}");
        assert!(outcome.losses > 0 && outcome.receivers.repaired > 0, "seed {seed}");
    }
}

/// A member gets all that was sent since it joined, the first packets as well.
#[test]
fn a_late_member_gets_all_from_when_it_joined() {
    for seed in 0..8u64 {
        let scene = Scene {
            receivers: 12,
            joins_every: MS(163),
            sender: SenderSettings { parities: seed as usize % 2, ..SenderSettings::default() },
            shared_loss: 0.1,
            own_loss: 0.2,
            messages: 400,
            seed,
            ..Scene::default()
        };
        let outcome = run(&scene);
        assert_eq!(outcome.whole, 12, "seed {seed}: {outcome:?}");
        assert_eq!(outcome.receivers.missing, 0, "seed {seed}: {outcome:?}");
        // One message is sent each 5 ms.
        let passed: u64 = (0..12u64).map(|at| (at * 163).div_ceil(5)).sum();
        assert_eq!(outcome.receivers.messages, 400 * 12 - passed, "seed {seed}: {outcome:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let scene = Scene { receivers: 20, ..Scene::default() };
    assert_eq!(format!("{:?}", run(&scene)), format!("{:?}", run(&scene)));
    let other = Scene { seed: 2, ..scene.clone() };
    assert_ne!(format!("{:?}", run(&scene)), format!("{:?}", run(&other)));
}

/// RFC 5401 section 3.2.2: with the random wait the requests that a loss of all brings hardly grow
/// with the group.
#[test]
fn requests_for_a_loss_of_all_are_as_many_as_the_rfc_expects() {
    for receivers in [1, 10, 100, 1000] {
        let scene = Scene {
            receivers,
            shared_loss: 0.01,
            own_loss: 0.0,
            way: (MS(20), MS(20)),
            messages: 1500,
            ..Scene::default()
        };
        let outcome = run(&scene);
        let expected = expected_requests(receivers as u32, MS(40 * 6), MS(40));
        let measured = outcome.requests_per_loss_event();
        assert!(outcome.loss_events >= 10, "{outcome:?}");
        assert!(measured < 2.0 * expected + 0.5, "{receivers}: {measured}, expected {expected}");
        assert_eq!(outcome.whole, receivers);
    }
}

/// A parity repairs a different loss at each receiver.
#[test]
fn repairs_for_a_thousand_receivers_are_fewer_than_their_losses_by_far() {
    let scene = Scene { receivers: 1000, messages: 400, ..Scene::default() };
    let outcome = run(&scene);
    assert_eq!(outcome.whole, 1000);
    let sent = outcome.sender.repairs as f64;
    assert!(outcome.losses > 3500, "{outcome:?}");
    assert!(sent * 20.0 < outcome.losses as f64, "{outcome:?}");
    // To send each lost source again would take as many packets as there were sources.
    assert!(sent < 0.5 * outcome.sources_lost as f64, "{outcome:?}");
    let requests = outcome.sender.requests as f64 / outcome.losses as f64;
    assert!(requests < 0.1, "{requests} requests by loss");
}

#[test]
fn unasked_parities_spare_requests() {
    let of = |parities| {
        let sender = SenderSettings { parities, ..SenderSettings::default() };
        run(&Scene { receivers: 100, sender, messages: 640, ..Scene::default() })
    };
    let (none, two) = (of(0), of(2));
    assert_eq!((none.whole, two.whole), (100, 100));
    assert!(two.sender.requests * 5 < none.sender.requests, "{none:?} {two:?}");
}

/// What misses its time is told, and what comes is handed over at its age.
#[test]
fn with_a_latency_messages_come_at_their_age_or_are_told_missing() {
    for (latency, own_loss) in [(60, 0.1), (600, 0.02)] {
        let scene = Scene {
            receivers: 30,
            latency: Some(MS(latency)),
            own_loss,
            way: (MS(10), MS(30)),
            messages: 1200,
            ..Scene::default()
        };
        let outcome = run(&scene);
        assert_eq!(outcome.whole, 30, "{latency}: {outcome:?}");
        let all = outcome.receivers.messages + outcome.receivers.missing;
        assert_eq!(all, 1200 * 30, "{latency}: {outcome:?}");
        assert!(outcome.delay_max <= MS(latency + 30 + 1), "{latency}: {outcome:?}");
        // A repair takes up to six round trips: in 60 ms few come.
        let missing = outcome.receivers.missing;
        assert!(if latency == 60 { missing > 1000 } else { missing < 20 }, "{latency}: {outcome:?}");
    }
}

/// A sender that keeps little gives up what is older, and all receivers hear of it.
#[test]
fn what_the_sender_gives_up_is_told_missing() {
    let sender = SenderSettings {
        history: MS(100),
        rate: Rate::from_bits_per_sec(10_000_000),
        ..SenderSettings::default()
    };
    let scene = Scene { receivers: 20, sender, own_loss: 0.1, messages: 800, ..Scene::default() };
    let outcome = run(&scene);
    assert!(outcome.receivers.missing > 0, "{outcome:?}");
    let told = outcome.receivers.messages + outcome.receivers.missing;
    // Of a block whose size nobody has told, as many are missing as a full one has.
    assert!((16_000..16_100).contains(&told), "{told}: {outcome:?}");
}
