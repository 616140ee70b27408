//! Bytes: how many, at which rate, and what it takes to carry them.

use crate::world::{request, run};
use crate::{LINE, SATELLITE, WAYS, bulk_for, bulk_of, directions, figure, measured};
use std::time::Duration;
use uts::simulation::{Direction, Target};
use uts_perf::Way;

#[test]
fn goodput_is_what_a_line_leaves_to_content() {
    for way in WAYS {
        let seen = measured(LINE, 1, &request(bulk_for(10), 1, way));
        for direction in directions(&seen) {
            let goodput = figure(direction.served, "goodput");
            let delivered = figure(direction.served, "delivered");
            assert_eq!(goodput, delivered * 8.0 / 10.0, "of the time that was given");
            // 1434 bytes of 1500 on the line are content, and a second is lost to slow start.
            assert!((17.5e6..19.12e6).contains(&goodput), "{way:?} {}: {goodput}", direction.direction);
        }
    }
}

#[test]
fn each_direction_has_its_own_rate() {
    run(LINE, 1, async |world| {
        world.network.change(Target::One(Direction::Backward), "rate=5mbit").expect("a change");
        let seen = world.measure(&request(bulk_for(10), 1, Way::Both)).await.expect("measured");
        let goodputs: Vec<f64> =
            directions(&seen).iter().map(|direction| figure(direction.served, "goodput")).collect();
        // Its acknowledgements stand in the queue of the other direction.
        assert!((13e6..19.12e6).contains(&goodputs[0]), "{goodputs:?}");
        assert!((4.5e6..4.78e6).contains(&goodputs[1]), "{goodputs:?}");
    });
}

#[test]
fn bytes_are_counted_alike_by_both_ends_and_by_intervals() {
    for (way, flows) in [(Way::Forward, 4), (Way::Reverse, 4), (Way::Both, 4), (Way::Both, 1)] {
        let seen = measured(LINE, 2, &request(bulk_of(2_000_000), flows, way));
        let bytes = f64::from(flows) * 2e6;
        for direction in directions(&seen) {
            assert_eq!(figure(direction.driven, "sent"), bytes);
            assert_eq!(figure(direction.served, "delivered"), bytes);
            assert_eq!(direction.served.flows.len(), flows as usize);
            let told = seen.intervals.iter().flat_map(|interval| interval.directions(way));
            let told: u64 = told.filter(|(of, _)| *of == direction.direction).map(|(_, bytes)| bytes).sum();
            // What says when a flow began, that it has come, and what was seen, is content as well.
            let extra = told as f64 - bytes;
            assert!((f64::from(flows) * 8.0..2000.0).contains(&extra), "{told}");
            // Twenty million bits a second, less headers, and slow start.
            let lasted = seen.ended.lasted(&direction).as_secs_f64();
            assert!((bytes * 8.0 / 19.12e6..bytes * 8.0 / 15e6).contains(&lasted), "{lasted}");
        }
        assert_eq!(seen.intervals.last().map(|last| last.span().1), Some(seen.ended.took));
    }
}

/// Data that waits in a buffer when the time is over was not sent in that time.
#[test]
fn the_sender_counts_what_has_left_and_not_what_it_holds() {
    for (way, flows) in [(Way::Forward, 1), (Way::Forward, 3), (Way::Reverse, 1)] {
        let seen = measured("rate=2mbit delay=20ms buffer=20p", 3, &request(bulk_for(5), flows, way));
        for direction in directions(&seen) {
            let (sent, delivered) = (figure(direction.driven, "sent"), figure(direction.served, "delivered"));
            // On the line, and in its queue.
            assert!((0.0..40_000.0).contains(&(sent - delivered)), "{sent} of {delivered}");
        }
    }
}

#[test]
fn flows_share_a_line() {
    let seen = measured(LINE, 4, &request(bulk_for(10), 4, Way::Forward));
    let [direction] = directions(&seen)[..] else { panic!("one direction") };
    let delivered: Vec<f64> = direction.served.values("delivered").collect();
    let all: f64 = delivered.iter().sum();
    assert!(all * 8.0 / 10.0 > 17.5e6, "{delivered:?}");
    for flow in &delivered {
        assert!((0.24..0.26).contains(&(flow / all)), "{delivered:?}");
    }
}

#[test]
fn a_loss_is_a_repeat() {
    for seed in 0..5 {
        let seen = measured(SATELLITE, seed, &request(bulk_for(20), 1, Way::Forward));
        let [direction] = directions(&seen)[..] else { panic!("one direction") };
        let (repeated, lost) = (direction.driver.packets_repeated, seen.paths[0].dropped());
        // A packet that only acknowledges is not repeated.
        assert!((lost * 8..=lost * 11).contains(&(repeated * 10)), "seed {seed}: {repeated} of {lost}");
    }
    let seen = measured("rate=20mbit delay=20ms", 1, &request(bulk_for(5), 1, Way::Both));
    assert_eq!(seen.paths.map(|path| path.dropped()), [0, 0]);
    for direction in directions(&seen) {
        assert_eq!(direction.driver.packets_repeated, 0, "nothing was lost");
    }
}

/// What a path does in the meantime is in the intervals.
#[test]
fn an_interval_says_what_has_gone_in_it() {
    let seen = run(LINE, 5, async |world| {
        let (connection, measurement) =
            world.ask(&request(bulk_for(10), 1, Way::Forward)).await.expect("ready");
        let change = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            world.change("rate=2mbit");
        };
        tokio::join!(world.carry_out(connection, measurement), change).0.expect("measured")
    });
    let rates: Vec<u64> =
        seen.intervals.iter().flat_map(|i| i.directions(Way::Forward)).map(|(_, b)| b * 8).collect();
    assert!(rates[2..5].iter().all(|rate| (18_000_000..19_600_000).contains(rate)), "{rates:?}");
    assert!(rates[6..10].iter().all(|rate| (1_500_000..2_100_000).contains(rate)), "{rates:?}");
}
