//! Paths and ends that die in the middle of a measurement, and clients that come at once.

use crate::world::{CLIENT, SERVER, World, request, run};
use crate::{DISORDER, LINE, SATELLITE, WAYS, bulk_for, bulk_of, directions, figure, messages, requests};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use uts_perf::{MeasureError, Way};

/// The longest silence of a connection.
const SILENCE: Duration = Duration::from_secs(30);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The server has its place free: another client measures.
async fn measures_again(world: &World) {
    let seen = world.measure(&request(bulk_of(100_000), 1, Way::Forward)).await.expect("measured again");
    assert_eq!(figure(directions(&seen)[0].served, "delivered"), 1e5);
}

#[test]
fn a_path_that_dies_ends_a_measurement_with_an_error_in_time() {
    for (workload, way) in [
        (bulk_for(60), Way::Forward),
        (bulk_for(60), Way::Reverse),
        (bulk_for(60), Way::Both),
        (bulk_of(1 << 30), Way::Forward),
        (requests(100_000, 1000, 1), Way::Reverse),
        (messages(400), Way::Both),
    ] {
        run(LINE, 1, async |world| {
            let (connection, measurement) =
                world.ask(&request(workload.clone(), 1, way)).await.expect("ready");
            let died = async {
                sleep(seconds(2)).await;
                world.change("down");
                world.now()
            };
            let (measured, died) = tokio::join!(world.carry_out(connection, measurement), died);
            let (took, why) = (world.now() - died, measured.expect_err("there is no path").to_string());
            assert!(took >= SILENCE - seconds(1) && took <= SILENCE + seconds(1), "{took:?}: {why}");
            assert_eq!(why, "nothing heard from the peer for 30 s");
            let (ended, said) = world.until_served(1).await.remove(0);
            assert!(ended - died <= SILENCE + seconds(1), "{:?}", ended - died);
            assert_eq!(said.expect_err("there is no path"), why);
            world.change("up");
            measures_again(world).await;
        });
    }
}

#[test]
fn a_path_that_comes_back_is_measured_to_the_end() {
    for way in WAYS {
        run(LINE, 1, async |world| {
            let (connection, measurement) = world.ask(&request(bulk_for(30), 1, way)).await.expect("ready");
            let outage = async {
                sleep(seconds(5)).await;
                world.change("down");
                sleep(seconds(10)).await;
                world.change("up");
            };
            let (measured, ()) = tokio::join!(world.carry_out(connection, measurement), outage);
            let seen = measured.expect("measured");
            for direction in directions(&seen) {
                let goodput = figure(direction.served, "goodput");
                // Two thirds of the time, less what it takes to find out that the path is back.
                assert!((9e6..12.8e6).contains(&goodput), "{way:?}: {goodput}");
            }
        });
    }
}

#[test]
fn another_address_of_the_client_does_not_end_a_measurement() {
    run(LINE, 1, async |world| {
        let (connection, measurement) = world.ask(&request(bulk_for(10), 1, Way::Both)).await.expect("ready");
        let at = connection.local_addr();
        let moved = async {
            sleep(seconds(3)).await;
            world.network.rebind(at, SocketAddr::new(CLIENT, 999)).expect("moved");
        };
        let (measured, ()) = tokio::join!(world.carry_out(connection, measurement), moved);
        for direction in directions(&measured.expect("measured")) {
            let goodput = figure(direction.served, "goodput");
            assert!(goodput > 13e6, "{}: {goodput}", direction.direction);
        }
    });
}

#[test]
fn the_death_of_either_end_frees_the_other_in_time() {
    for server_dies in [false, true] {
        run(LINE, 1, async |world| {
            let (connection, measurement) =
                world.ask(&request(bulk_for(60), 1, Way::Both)).await.expect("ready");
            let at = if server_dies { SocketAddr::from(SERVER) } else { connection.local_addr() };
            let died = async {
                sleep(seconds(2)).await;
                assert!(world.network.kill(at));
                world.now()
            };
            let (measured, died) = tokio::join!(world.carry_out(connection, measurement), died);
            assert!(measured.is_err() && world.now() - died <= SILENCE + seconds(1));
            if !server_dies {
                let (ended, said) = world.until_served(1).await.remove(0);
                assert!(said.is_err() && ended - died <= SILENCE + seconds(1), "{said:?}");
                measures_again(world).await;
            }
        });
    }
}

#[test]
fn a_client_that_leaves_has_its_place_freed_within_a_round_trip() {
    run(LINE, 1, async |world| {
        let (connection, measurement) = world.ask(&request(bulk_for(60), 1, Way::Both)).await.expect("ready");
        let left = timeout(seconds(3), world.carry_out(connection.clone(), measurement)).await;
        assert!(left.is_err(), "it leaves in the middle");
        let at = world.now();
        connection.close(0, "interrupted").await;
        let (ended, said) = world.until_served(1).await.remove(0);
        assert!(said.is_err() && ended - at <= Duration::from_millis(100), "{:?}: {said:?}", ended - at);
        measures_again(world).await;
    });
}

/// As it is documented, a server measures for one client at a time, and says so to others.
#[test]
fn of_two_clients_one_is_measured_and_the_other_is_told_that_the_server_is_busy() {
    run(LINE, 1, async |world| {
        let wanted = request(bulk_for(5), 1, Way::Forward);
        let (first, second) = tokio::join!(world.measure(&wanted), async {
            sleep(seconds(2)).await;
            let begun = world.now();
            (world.measure(&wanted).await, world.now() - begun)
        });
        let (refused, took) = (second.0.expect_err("busy"), second.1);
        assert!(
            matches!(&refused, MeasureError::Refused(why) if why.contains("busy with another measurement"))
        );
        assert!(took < Duration::from_millis(200), "it is told at once: {took:?}");
        let goodput = figure(directions(&first.expect("measured"))[0].served, "goodput");
        assert!(goodput > 16e6, "{goodput}");
        measures_again(world).await;
    });
    run(LINE, 1, async |world| {
        let wanted = request(bulk_for(5), 1, Way::Forward);
        let (a, b) = tokio::join!(world.measure(&wanted), world.measure(&wanted));
        assert_eq!([a.is_ok(), b.is_ok()].iter().filter(|is| **is).count(), 1, "one of two at one instant");
    });
}

/// Over every path each workload comes to its end, and both ends agree on what has come.
#[test]
fn every_workload_is_measured_over_every_path() {
    for (seed, path) in (0..).zip([LINE, SATELLITE, DISORDER, "rate=200kbit delay=80ms loss=1% mtu=1300"]) {
        for way in WAYS {
            for (workload, flows) in
                [(bulk_for(5), 3), (bulk_of(40_000), 8), (requests(60, 5000, 8), 1), (messages(1000), 1)]
            {
                let seen = crate::measured(path, seed, &request(workload.clone(), flows, way));
                for direction in directions(&seen) {
                    let [sent, delivered, asked, served] = [
                        direction.driven.sum("sent"),
                        direction.served.sum("delivered"),
                        direction.driven.sum("answered"),
                        direction.served.sum("served"),
                    ];
                    assert!(delivered <= sent && asked == served, "{direction:?}");
                    assert!(asked.is_none_or(|asked| asked == 60.0), "{direction:?}");
                }
            }
        }
    }
}
