//! Number of packet events that a core handles in a second:
//! `cargo run --release -p uts-sim --example packet-events [PACKETS]`.
//!
//! A packet event is a packet that leaves its source, or that arrives at a node at the end of a
//! path. Losses on the way and the queue's own departures do not count.
//!
//! The processor's time counts, not the wall's. Other work on the machine does not change it.

use core::time::Duration;
use rustix::time::{ClockId, clock_gettime};
use uts_functions::Time;
use uts_path::{LinkConfig, PathConfig};
use uts_sim::network::Network;
use uts_sim::topology::{Chain, Dumbbell, Node, PointToPoint, Topology};
use uts_sim::traffic::{Pattern, Sink, Source, Traffic};

/// Bytes of UDP payload of every packet.
const PAYLOAD_BYTES: u16 = 1172;

/// A name, a topology, and between which nodes packets flow.
type World<'a> = (&'a str, &'a Topology, &'a [(Node, Node)]);

/// Time that this thread has used of its core.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn path(text: &str) -> PathConfig {
    PathConfig::both(text.parse::<LinkConfig>().expect("a valid path"))
}

/// Sends `packets` from each first node to each second one. Returns how many events that were and
/// how long it took.
fn run(topology: &Topology, pairs: &[(Node, Node)], mean: Duration, packets: u64) -> (u64, Duration) {
    let mut network = Network::new(topology, 1).expect("a valid topology");
    for (number, (from, to)) in pairs.iter().enumerate() {
        let sink = network.attach(*to, 9, Traffic::Sink(Sink::new())).expect("a free port");
        let to = network.address(sink);
        let source = Source::new(to, PAYLOAD_BYTES, Pattern::Poisson { mean }, Time::ZERO, number as u64);
        network.attach(*from, 9, Traffic::Source(source.with_count(packets))).expect("a free port");
    }
    let begin = processor_time();
    network.run_until(Time::NEVER);
    let took = processor_time() - begin;
    let counters = network.counters();
    (counters.sent + counters.hops, took)
}

fn main() {
    let packets: u64 = std::env::args().nth(1).map_or(2_000_000, |n| n.parse().expect("a number of packets"));
    // 1200 bytes at 1 Gbit/s take 9.6 us: the bottleneck of each world is loaded to 90 %.
    let link = "rate=1gbit delay=10ms buffer=1000p overhead=28";
    let service = Duration::from_nanos(9_600);
    let mean = |sources: u32| service * sources * 10 / 9;

    let one = PointToPoint::new(path(link));
    let hosts = [(one.hosts[0], one.hosts[1])];
    let chain = Chain::new(vec![path(link); 8]);
    let ends = [(chain.hosts[0], chain.hosts[1])];
    let dumbbell = Dumbbell::new(32, path(link), |_, _| path("rate=10gbit delay=1ms overhead=28"));
    let pairs: Vec<_> = dumbbell.left.iter().copied().zip(dumbbell.right.iter().copied()).collect();
    let lossy =
        PointToPoint::new(path("rate=1gbit delay=10ms jitter=1ms,reorder loss=ge:0.01,4 overhead=28"));
    let lossy_hosts = [(lossy.hosts[0], lossy.hosts[1])];

    let worlds: [World<'_>; 4] = [
        ("one path", &one.topology, &hosts),
        ("one path, jitter, loss", &lossy.topology, &lossy_hosts),
        ("chain of 8 paths", &chain.topology, &ends),
        ("dumbbell of 32 pairs", &dumbbell.topology, &pairs),
    ];
    for (name, topology, pairs) in worlds {
        let sources = pairs.len() as u32;
        let (events, took) = run(topology, pairs, mean(sources), packets / u64::from(sources));
        let seconds = took.as_secs_f64();
        println!("{name:24} {events:>10} events {seconds:>7.3} s {:>12.0} events/s", events as f64 / seconds);
    }
}
