//! The first round trips on paths that lose or delay just the wrong packet.

use uts_engine::ConnectionConfig;
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::transfer::{Progress, Transfers, checksum};
use uts_sim::{World, WorldConfig};

/// 200 kB over 50 Mbit/s and 20 ms.
fn transfer(schedule: &str) -> (Progress, uts_engine::Stats) {
    transfer_over("rate=50mbit delay=10ms", schedule, 200_000)
}

/// When a transfer was done, and what its sender counted.
fn transfer_over(path: &str, schedule: &str, bytes: u64) -> (Progress, uts_engine::Stats) {
    let mut path = PathConfig::both(path.parse().expect("a valid path"));
    path.schedule = schedule.parse().expect("a valid schedule");
    let world = WorldConfig { path, ..WorldConfig::default() };
    let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
    let mut transfers = Transfers::start(&mut world, &[(1, ConnectionConfig::default())], bytes);
    let done = transfers.run(&mut world, Time::from_millis(20_000));
    let progress = transfers.progress[&1].clone();
    assert!(done, "{} of {bytes} bytes, closed: {:?}", progress.received, progress.closed);
    assert_eq!((progress.received, progress.checksum), (bytes, checksum(bytes)));
    let stats = world.connection(1, progress.connection).map(|c| c.stats()).expect("the connection");
    (progress, stats)
}

#[test]
fn a_lost_confirmation_is_repeated_by_the_round_trip_that_is_known() {
    let (whole, _) = transfer("");
    let (cut, stats) = transfer("at=19ms fwd down; at=30ms fwd up");
    let (whole, cut) = (whole.done_at.expect("done"), cut.done_at.expect("done"));
    // The confirmation left at 20 ms with the first window behind it; all of it is lost. Without a round trip known the
    // first repeat would come after a second.
    assert!(stats.packets_lost + stats.timeouts > 0, "{stats:?}");
    assert!(whole < Time::from_millis(200) && cut < Time::from_millis(700), "{whole:?} {cut:?}");
}

#[test]
fn data_that_overtakes_the_confirmation_is_kept() {
    // What departs before 20.4 ms takes 5 ms longer: the confirmation, and not the window behind it.
    let (_, stats) = transfer("at=19ms fwd reorder=1,5ms; at=20400us fwd reorder=0,0ms");
    assert_eq!((stats.packets_lost, stats.bytes_repeated, stats.timeouts), (0, 0, 0), "{stats:?}");
}

#[test]
fn a_line_slower_than_the_first_time_out_is_measured_all_the_same() {
    // A full packet takes 1.3 s: the first packet is repeated, and its answer still tells the round trip, so that nothing else is.
    let (done, stats) = transfer_over("rate=9600bit delay=5ms framing=slip buffer=8p", "", 8_000);
    assert_eq!((stats.packets_lost, stats.bytes_repeated, stats.timeouts), (0, 0, 0), "{stats:?}");
    assert!(done.done_at.expect("done") < Time::from_millis(13_000), "{done:?}");
}
