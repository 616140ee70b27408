//! Packets that are longer than a path carries: in fragments, all or nothing.

use core::time::Duration;
use uts_functions::Time;
use uts_path::{Direction, PathConfig, Stats};
use uts_sim::network::{Counters, Network};
use uts_sim::topology::Chain;
use uts_sim::traffic::{Pattern, Received, Sink, Source, Traffic};

/// An IP packet of 1500 bytes.
const PAYLOAD_BYTES: u16 = 1472;

fn path(text: &str) -> PathConfig {
    PathConfig::both(text.parse().expect("a valid path"))
}

struct Played {
    received: Received,
    counters: Counters,
    /// By path.
    stats: Vec<Stats>,
}

fn play(paths: &[&str], instants: Vec<Time>, permits: bool, seed: u64) -> Played {
    let Chain { topology, hosts, paths, .. } = Chain::new(paths.iter().map(|text| path(text)).collect());
    let mut network = Network::new(&topology, seed).expect("a valid topology");
    network.set_headers(true);
    network.set_udp_checks(true);
    let sink = network.attach(hosts[1], 9, Traffic::Sink(Sink::new())).expect("a free port");
    let source = Source::new(network.address(sink), PAYLOAD_BYTES, Pattern::At(instants), Time::ZERO, seed);
    let source = if permits { source.with_fragments() } else { source };
    let source = network.attach(hosts[0], 9, Traffic::Source(source)).expect("a free port");
    network.run_until(Time::NEVER);
    let from = network.address(source);
    Played {
        received: network.app(sink).as_sink().expect("a sink").received(from),
        counters: network.counters(),
        stats: paths.iter().map(|path| network.path(*path).stats(Direction::Forward)).collect(),
    }
}

fn every(gap: Duration, count: u32) -> Vec<Time> {
    (0..count).map(|n| Time::ZERO + gap * n).collect()
}

#[test]
fn a_packet_is_as_many_fragments_as_it_takes_and_arrives_whole() {
    // 1480 bytes behind the IP header, in multiples of 8 beside a header of 20 in each fragment.
    for (paths, fragments) in [
        (&["mtu=1500"][..], &[1][..]),
        (&["mtu=1499"], &[2]),
        (&["mtu=576"], &[3]),
        (&["mtu=296"], &[6]),
        (&["mtu=604 overhead=28"], &[3]),
        // Routers fragment too, and fragments further; nobody puts them together on the way.
        (&["mtu=1500", "mtu=576", "mtu=296", "mtu=1500"], &[1, 3, 8, 8]),
        (&["mtu=576", "mtu=400"], &[3, 5]),
    ] {
        let played = play(paths, every(Duration::from_secs(1), 10), true, 1);
        assert_eq!(played.received.packets, 10, "{paths:?}");
        assert_eq!(played.received.bytes, 10 * u64::from(PAYLOAD_BYTES), "{paths:?}");
        for (stats, fragments) in played.stats.iter().zip(fragments) {
            assert_eq!(stats.delivered, 10 * fragments, "{paths:?}");
            assert_eq!(stats.bytes_delivered, 10 * (1480 + 20 * fragments), "{paths:?}");
        }
    }
}

#[test]
fn what_may_not_be_fragmented_is_lost_and_so_is_what_cannot_be() {
    for (mtu, permits) in [("mtu=576", false), ("mtu=27", true)] {
        let played = play(&[mtu], every(Duration::from_secs(1), 10), permits, 1);
        assert_eq!((played.received.packets, played.stats[0].dropped_mtu), (0, 10), "{mtu}");
    }
}

/// Of three fragments, each lost with 10 %, all arrive with a probability of 0.9^3.
#[test]
fn a_packet_is_lost_with_any_of_its_fragments() {
    let (count, seed) = (40_000, 2);
    let played = play(&["mtu=576 loss=0.1"], every(Duration::from_millis(10), count), true, seed);
    let expected = 0.9f64.powi(3);
    let error = (expected * (1.0 - expected) / f64::from(count)).sqrt();
    let share = played.received.packets as f64 / f64::from(count);
    println!("seed {seed}: {share:.4} arrived, closed form {expected:.4} +- {error:.4}");
    assert!((share - expected).abs() < 5.0 * error);
    // All but those that still wait at the end, and those of which nothing came.
    let nothing = 0.1f64.powi(3) * f64::from(count);
    let given_up = f64::from(count) * (1.0 - share) - nothing;
    let waiting = 256.0 + 5.0 * nothing.sqrt();
    assert!((played.counters.not_reassembled as f64 - given_up).abs() < waiting, "{:?}", played.counters);
}

/// Each fragment takes a place in the queue by itself: if two of three find one, nothing arrives.
#[test]
fn a_queue_that_is_full_for_one_fragment_loses_the_packet() {
    let burst = |buffer: &str| {
        let path = format!("rate=9600bit mtu=576 buffer={buffer}");
        play(&[&path], every(Duration::from_secs(10), 20), true, 1)
    };
    assert_eq!(burst("3p").received.packets, 20);
    let lost = burst("2p");
    assert_eq!((lost.received.packets, lost.stats[0].delivered), (0, 40));
}

#[test]
fn parts_wait_for_thirty_seconds_for_the_others() {
    // The last fragment of each packet finds no place. The next packet comes after this long, its
    // two fragments half a second apart.
    let given_up = |gap: u64| {
        let path = "rate=9600bit mtu=576 buffer=2p";
        play(&[path], every(Duration::from_millis(gap), 2), true, 1).counters.not_reassembled
    };
    assert_eq!((given_up(29_400), given_up(30_100)), (0, 1));
}

#[test]
fn a_flood_of_parts_is_bounded() {
    let played = play(&["rate=100mbit mtu=576 buffer=2p"], every(Duration::from_millis(1), 3000), true, 1);
    assert_eq!(played.received.packets, 0);
    assert!((2700..=2745).contains(&played.counters.not_reassembled), "{:?}", played.counters);
}
