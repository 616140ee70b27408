//! The first round trips on paths that lose or delay just the wrong packet.

use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;
use uts_engine::{ConnectionConfig, Endpoint, EndpointConfig};
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
    // The confirmation left at 20 ms with the first window behind it. All of it is lost. Without a
    // known round trip, the first repeat would come after a second.
    assert!(stats.packets_lost + stats.timeouts > 0, "{stats:?}");
    assert!(whole < Time::from_millis(200) && cut < Time::from_millis(700), "{whole:?} {cut:?}");
}

#[test]
fn data_that_overtakes_the_confirmation_is_kept() {
    // What departs before 20.4 ms takes 5 ms longer: the confirmation, and not the window behind
    // it.
    let (_, stats) = transfer("at=19ms fwd reorder=1,5ms; at=20400us fwd reorder=0,0ms");
    assert_eq!((stats.packets_lost, stats.bytes_repeated, stats.timeouts), (0, 0, 0), "{stats:?}");
}

#[test]
fn a_line_slower_than_the_first_time_out_is_measured_all_the_same() {
    // A full packet takes 1.3 s. The first packet is repeated, and its answer still gives the round
    // trip. Nothing else is repeated.
    let (done, stats) = transfer_over("rate=9600bit delay=5ms framing=slip buffer=8p", "", 8_000);
    assert_eq!((stats.packets_lost, stats.bytes_repeated, stats.timeouts), (0, 0, 0), "{stats:?}");
    assert!(done.done_at.expect("done") < Time::from_millis(13_000), "{done:?}");
}

/// Sends all that an endpoint has, into one buffer, checks the report of each batch, and hands it
/// to the other.
fn pass_on(from: &mut Endpoint, to: &mut Endpoint, now: Time, from_address: SocketAddr) -> u64 {
    let mut buffer = Vec::new();
    let mut start = 0;
    while let Some(transmit) = from.poll_transmit_more(now, &mut buffer) {
        let bytes = buffer.len() - start;
        assert!(bytes > 0 && transmit.segment_bytes <= bytes, "{transmit:?} of {bytes} bytes");
        to.take_in(now, from_address, None, None, transmit.segment_bytes, &mut buffer[start..]);
        to.taken_in(now);
        start = buffer.len();
    }
    buffer.len() as u64
}

#[test]
fn what_many_connections_send_into_one_buffer_is_counted_as_each_ones_own() {
    let identities = Identities::new().expect("keys");
    let server = EndpointConfig { server: Some(identities.server.clone()), ..EndpointConfig::default() };
    let mut ends = [Endpoint::new(EndpointConfig::default(), [1; 32]), Endpoint::new(server, [2; 32])];
    let addresses = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 4433)));
    let mut now = Time::ZERO;
    let config = Arc::new(ConnectionConfig::default());
    let handles: Vec<_> = (0..20)
        .map(|_| identities.connect(&mut ends[0], now, addresses[1], config.clone()).expect("begun"))
        .collect();
    let mut sent = [0, 0];
    for turn in 0..40 {
        now += Duration::from_millis(1);
        if turn == 20 {
            // All answers fit into one round trip each. What others had been sent held nobody back.
            assert!(handles.iter().all(|h| ends[0].peek(*h).is_some_and(uts_engine::Connection::is_open)));
            handles.iter().for_each(|h| ends[0].connection(*h).expect("open").close(now, 0, "done"));
        }
        let [client, server] = &mut ends;
        sent[0] += pass_on(client, server, now, addresses[0]);
        sent[1] += pass_on(server, client, now, addresses[1]);
        ends.iter_mut().for_each(|end| end.handle_timeout(now));
        for (end, sent) in ends.iter().zip(sent) {
            let counted: u64 = end.handles().filter_map(|h| end.peek(h)).map(|c| c.stats().bytes_sent).sum();
            assert!(turn >= 20 || counted == sent, "turn {turn}: {counted} bytes counted, {sent} sent");
        }
    }
}
