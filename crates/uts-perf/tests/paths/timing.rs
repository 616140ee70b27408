//! Times: of requests and their answers, and of messages on their way.

use crate::world::{request, run};
use crate::{WAYS, directions, figure, measured, messages, requests};
use std::time::Duration;
use uts::simulation::{Direction, Target};
use uts_perf::Way;

#[test]
fn a_request_takes_a_round_trip_to_the_microsecond() {
    for way in WAYS {
        let seen = measured("delay=100ms", 1, &request(requests(40, 1000, 1), 1, way));
        for direction in directions(&seen) {
            for name in ["request_p50", "request_max", "request_mean"] {
                assert_eq!(figure(direction.driven, name), 200.0, "{name} {way:?}");
            }
            assert!((figure(direction.driven, "completion") - 8.0).abs() < 1e-6);
            assert!((figure(direction.driven, "requests_per_s") - 5.0).abs() < 1e-6);
            assert_eq!(figure(direction.driven, "answered"), 40.0);
            assert_eq!(figure(direction.served, "served"), 40.0);
        }
    }
}

/// Of four requests at once two leave in a burst, and the others are paced (rate.md R-4).
#[test]
fn requests_at_once_share_round_trips() {
    for way in WAYS {
        let seen = measured("delay=100ms", 1, &request(requests(40, 1000, 4), 1, way));
        for direction in directions(&seen) {
            let [median, longest, completion] =
                ["request_p50", "request_max", "completion"].map(|name| figure(direction.driven, name));
            assert!((200.0..210.0).contains(&median) && longest < 240.0, "{median} {longest}");
            assert!((2.0..2.1).contains(&completion), "{completion}");
        }
    }
}

#[test]
fn a_message_takes_one_way_to_the_microsecond_and_so_do_the_first() {
    for way in WAYS {
        let seen = measured("delay=100ms", 1, &request(messages(120), 1, way));
        assert_eq!(seen.ended.wrong_by, Duration::from_millis(100));
        for direction in directions(&seen) {
            for name in ["latency_p50", "latency_max", "latency_mean"] {
                assert_eq!(figure(direction.served, name), 100.0, "{name} {way:?}");
            }
            let figures = ["due", "in_time", "late", "missing"].map(|name| figure(direction.served, name));
            assert_eq!(figures, [200.0, 1.0, 0.0, 0.0]);
            assert_eq!(figure(direction.served, "goodput"), 160.0 * 8.0 * 50.0);
        }
    }
}

/// Half of the difference of both delays, which is within what the client is told.
#[test]
fn clocks_are_wrong_where_ways_differ_and_by_no_more_than_is_said() {
    for [there, back] in [[50, 150], [150, 50], [30, 90]] {
        run("delay=100ms", 1, async |world| {
            for (direction, delay) in [(Direction::Forward, there), (Direction::Backward, back)] {
                let change = format!("delay={delay}ms");
                world.network.change(Target::One(direction), &change).expect("a change");
            }
            let seen = world.measure(&request(messages(400), 1, Way::Both)).await.expect("measured");
            let mean = (there + back) as f64 / 2.0;
            for direction in directions(&seen) {
                assert_eq!(figure(direction.served, "latency_max"), mean, "{there} {back}");
                let way = if direction.direction == "out" { there } else { back };
                let wrong_by = seen.ended.wrong_by.as_secs_f64() * 1e3;
                assert!((mean - way as f64).abs() <= wrong_by, "{there} {back}: {wrong_by}");
            }
        });
    }
}

#[test]
fn what_comes_after_its_deadline_is_of_no_use() {
    let seen = measured("delay=100ms", 1, &request(messages(90), 1, Way::Forward));
    let [direction] = directions(&seen)[..] else { panic!("one direction") };
    let figures = ["due", "in_time", "late", "missing", "goodput"].map(|name| direction.served.sum(name));
    let [due, in_time, late, missing, goodput] = figures.map(|figure| figure.expect("a figure"));
    assert_eq!((due, in_time, goodput), (200.0, 0.0, 0.0));
    assert_eq!(late + missing, due);
}

#[test]
fn what_is_lost_on_the_way_is_missing_or_late() {
    for seed in 0..5 {
        let seen = measured("delay=100ms loss=5%", seed, &request(messages(120), 1, Way::Forward));
        let [direction] = directions(&seen)[..] else { panic!("one direction") };
        let [due, in_time, late, missing] =
            ["due", "in_time", "late", "missing"].map(|name| figure(direction.served, name));
        assert!((in_time * due + late + missing - due).abs() < 1e-9);
        let lost = seen.paths[0].dropped() as f64;
        assert!(late + missing > 0.0 && late + missing <= lost, "seed {seed}: {late} {missing} of {lost}");
    }
}

/// Each answer takes six seconds, and the client asks for the time until it has waited for two.
#[test]
fn a_path_as_long_as_to_the_moon_and_back_is_measured() {
    let begun = run("delay=3s", 1, async |world| {
        let seen = world.measure(&request(requests(3, 1000, 1), 1, Way::Forward)).await.expect("measured");
        let [direction] = directions(&seen)[..] else { panic!("one direction") };
        assert_eq!(figure(direction.driven, "request_max"), 6000.0);
        assert_eq!(seen.ended.wrong_by, Duration::from_secs(3));
        world.now()
    });
    assert!(begun < Duration::from_secs(60), "{begun:?}");
}
