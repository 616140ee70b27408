//! Measurements in virtual time, from a seed: both ends as `uts perf` and `uts serve --perf` run
//! them, over paths whose properties are known.

mod bulk;
mod hostile;
mod timing;
mod trouble;
mod world;

use std::time::Duration;
use uts_perf::{Request, Seen as Direction, Way};
use uts_traffic::workload::Workload;
use world::{Seen, request, run};

/// A line of 20 Mbit/s, with a queue of its bandwidth and round trip.
const LINE: &str = "rate=20mbit delay=20ms buffer=68p";
const SATELLITE: &str = "rate=20mbit delay=300ms loss=2% buffer=300p";
const DISORDER: &str = "rate=20mbit delay=30ms jitter=8ms,uniform,reorder duplicate=0.05 reorder=0.05,20ms";

const WAYS: [Way; 3] = [Way::Forward, Way::Reverse, Way::Both];

fn bulk_for(seconds: u64) -> Workload {
    Workload::Bulk { bytes: None, duration: Some(Duration::from_secs(seconds)) }
}

fn bulk_of(bytes: u64) -> Workload {
    Workload::Bulk { bytes: Some(bytes), duration: None }
}

fn requests(count: u32, answer_bytes: u64, concurrency: u32) -> Workload {
    Workload::Requests { count, request_bytes: 100, answer_bytes, concurrency }
}

fn messages(deadline_ms: u64) -> Workload {
    let (every, duration) = (Duration::from_millis(20), Duration::from_secs(4));
    Workload::Messages { every, bytes: 160, duration, deadline: Duration::from_millis(deadline_ms) }
}

/// Measures once.
fn measured(path: &str, seed: u64, request: &Request) -> Seen {
    run(path, seed, async |world| world.measure(request).await.expect("measured"))
}

/// The directions of a measurement that went to its end.
fn directions(seen: &Seen) -> Vec<Direction<'_>> {
    assert_eq!(seen.ended.measured.cut_short(), None);
    seen.ended.measured.seen().collect()
}

/// A figure that one end of a direction must have.
fn figure(half: &uts_perf::Half, name: &str) -> f64 {
    half.sum(name).unwrap_or_else(|| panic!("no {name}: {half:?}"))
}

/// All that both ends know of a measurement, as text.
fn record(path: &str, seed: u64, request: &Request) -> String {
    run(path, seed, async |world| {
        let seen = world.measure(request).await.expect("measured");
        format!("{seen:#?} {:#?}", world.until_served(1).await)
    })
}

#[test]
fn the_same_seed_is_the_same_run() {
    for workload in [bulk_for(3), requests(20, 3000, 2), messages(400)] {
        let wanted = request(workload, 1, Way::Both);
        for path in [LINE, SATELLITE, DISORDER] {
            let (first, second) = (record(path, 7, &wanted), record(path, 7, &wanted));
            let differs = first.lines().zip(second.lines()).find(|(a, b)| a != b);
            assert!(first == second, "{path}: {wanted:?}: {differs:?}");
        }
        assert_ne!(record(SATELLITE, 7, &wanted), record(SATELLITE, 8, &wanted), "chance has no part");
    }
}
