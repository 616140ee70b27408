//! Networks of sources and sinks: ways, counts, captures, and that all follows from the seed.

use core::time::Duration;
use etherparse::{Ipv4Header, UdpHeader};
use std::cell::RefCell;
use std::io::{self, Write};
use std::net::SocketAddrV4;
use std::rc::Rc;
use uts_engine::Ecn;
use uts_functions::Time;
use uts_path::{Direction, LinkConfig, PathConfig, Target};
use uts_sim::network::{AttachError, Network};
use uts_sim::topology::{Chain, Dumbbell, Node, PointToPoint, Topology};
use uts_sim::traffic::{Pattern, Received, Sink, Source, Traffic};

fn path(text: &str) -> PathConfig {
    PathConfig::both(text.parse::<LinkConfig>().expect("a valid path"))
}

fn network(topology: &Topology, seed: u64) -> Network<Traffic> {
    Network::new(topology, seed).expect("a valid topology")
}

/// A source of `count` packets at one node and a sink at another; gives their addresses.
fn flow(
    network: &mut Network<Traffic>,
    (from, to): (Node, Node),
    pattern: Pattern,
    count: u64,
) -> (SocketAddrV4, SocketAddrV4) {
    let sink = network.attach(to, 1000, Traffic::Sink(Sink::recording())).expect("a free port");
    let sink = network.address(sink);
    let source = Source::new(sink, 1000, pattern, Time::ZERO, from.index() as u64);
    let source = source.with_count(count).with_ecn(Ecn::Ect0);
    let source = network.attach(from, 2000, Traffic::Source(source)).expect("a free port");
    (network.address(source), sink)
}

fn received(network: &Network<Traffic>, (from, to): (SocketAddrV4, SocketAddrV4)) -> Received {
    let sink = network.app_at(to).expect("attached");
    network.app(sink).as_sink().expect("a sink").received(from)
}

fn every(duration: Duration) -> Pattern {
    Pattern::Constant { packets: 1, per: duration }
}

/// A bottleneck that damages in every way, between eight pairs in both directions.
fn run_dumbbell(seed: u64) -> (Network<Traffic>, Vec<(SocketAddrV4, SocketAddrV4)>) {
    let worn = "rate=20mbit delay=5ms buffer=20p jitter=2ms,reorder loss=ge:0.02,3 duplicate=0.01 ecn=10p overhead=28";
    let Dumbbell { topology, left, right, .. } =
        Dumbbell::new(8, path(worn), |pair, _| path(&format!("rate=100mbit delay={}ms", pair + 1)));
    let mut network = network(&topology, seed);
    let mut flows = Vec::new();
    for (l, r) in left.into_iter().zip(right) {
        for ends in [(l, r), (r, l)] {
            let pattern = Pattern::Poisson { mean: Duration::from_micros(2800) };
            flows.push(flow(&mut network, ends, pattern, 2000));
        }
    }
    network.run_until(Time::NEVER);
    (network, flows)
}

#[test]
fn everything_follows_from_the_seed() {
    let trace = |seed| {
        let (network, flows) = run_dumbbell(seed);
        let arrivals = flows.iter().map(|(_, to)| {
            let sink = network.app(network.app_at(*to).expect("attached"));
            sink.as_sink().expect("a sink").arrivals().to_vec()
        });
        arrivals.collect::<Vec<_>>()
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

#[test]
fn no_packet_is_lost_uncounted() {
    let (network, flows) = run_dumbbell(1);
    let counters = network.counters();
    assert_eq!(counters.sent, 16 * 2000);
    let bottleneck = network.path(Dumbbell::new(0, path(""), |_, _| path("")).bottleneck);
    let (mut dropped, mut copies) = (0, 0);
    for direction in Direction::ALL {
        let stats = bottleneck.stats(direction);
        assert!(
            stats.dropped_queue > 0 && stats.dropped_loss > 0 && stats.duplicated > 0 && stats.marked > 0
        );
        dropped += stats.dropped();
        copies += stats.duplicated;
    }
    assert_eq!(counters.delivered, counters.sent + copies - dropped);
    let all: Vec<Received> = flows.iter().map(|flow| received(&network, *flow)).collect();
    assert_eq!(all.iter().map(|r| r.packets).sum::<u64>(), counters.delivered);
    assert!(all.iter().map(|r| r.marked).sum::<u64>() > 0);
    assert!(all.iter().map(|r| r.late).sum::<u64>() > 0, "jitter reorders");
    assert_eq!((counters.unreachable, counters.unclaimed, counters.hops_exceeded), (0, 0, 0));
}

#[test]
fn hops_are_counted_and_bounded() {
    for (paths, arrives) in [(1, true), (2, true), (64, true), (65, false), (80, false)] {
        let Chain { topology, hosts, routers, .. } = Chain::new(vec![path("delay=1ms"); paths]);
        assert_eq!(routers.len(), paths - 1);
        let mut network = network(&topology, 0);
        let ends = flow(&mut network, (hosts[0], hosts[1]), every(Duration::from_millis(1)), 5);
        network.run_until(Time::NEVER);
        let counters = network.counters();
        assert_eq!(received(&network, ends).packets, if arrives { 5 } else { 0 }, "{paths} paths");
        assert_eq!(counters.hops_exceeded, if arrives { 0 } else { 5 });
        assert_eq!(counters.hops, 5 * paths.min(64) as u64);
    }
}

#[test]
fn what_nobody_takes_is_counted() {
    let mut topology = Topology::new();
    let (a, b, apart) = (topology.node(), topology.node(), topology.node());
    topology.join(a, b, path(""));
    let mut network = network(&topology, 0);
    let send = |network: &mut Network<Traffic>, port, to| {
        let source = Source::new(to, 10, every(Duration::from_secs(1)), Time::ZERO, 0).with_count(3);
        network.attach(a, port, Traffic::Source(source)).expect("a free port");
    };
    send(&mut network, 1, SocketAddrV4::new(Topology::address(b), 9));
    send(&mut network, 2, SocketAddrV4::new(Topology::address(apart), 9));
    send(&mut network, 3, "192.0.2.1:9".parse().expect("an address"));
    network.run_until(Time::NEVER);
    assert_eq!(network.counters().unclaimed, 3);
    assert_eq!(network.counters().unreachable, 6);

    let taken = network.attach(a, 1, Traffic::Sink(Sink::new()));
    assert_eq!(taken, Err(AttachError::Taken(SocketAddrV4::new(Topology::address(a), 1))));
    let elsewhere =
        network.attach_at(a, SocketAddrV4::new(Topology::address(b), 5), Traffic::Sink(Sink::new()));
    assert_eq!(elsewhere, Err(AttachError::Elsewhere(Topology::address(b))));
}

#[test]
fn a_host_reaches_itself_and_many_hosts_share_a_node() {
    let PointToPoint { topology, hosts, .. } = PointToPoint::new(path("delay=1ms"));
    let mut network = network(&topology, 0);
    let own = flow(&mut network, (hosts[0], hosts[0]), every(Duration::from_secs(1)), 2);
    let second = "10.9.0.1:7".parse().expect("an address");
    network.attach_at(hosts[1], second, Traffic::Sink(Sink::new())).expect("a free address");
    let source = Source::new(second, 10, every(Duration::from_secs(1)), Time::ZERO, 0).with_count(4);
    let source = network.attach(hosts[0], 2, Traffic::Source(source)).expect("a free port");
    network.run_until(Time::NEVER);
    assert_eq!(received(&network, own).delay_range, Some((Duration::ZERO, Duration::ZERO)));
    assert_eq!(received(&network, (network.address(source), second)).packets, 4);
}

#[test]
fn paths_change_on_schedule_and_by_hand() {
    let mut config = path("delay=10ms");
    config.schedule = "at=100ms fwd delay=30ms; at=200ms fwd down".parse().expect("a valid schedule");
    let PointToPoint { topology, hosts, path } = PointToPoint::new(config);
    let mut network = network(&topology, 0);
    let ends = flow(&mut network, (hosts[0], hosts[1]), every(Duration::from_millis(10)), 100);
    let delays = |network: &Network<Traffic>| {
        let received = received(network, ends);
        (received.packets, received.delay_range.expect("arrivals").1.as_millis())
    };
    network.run_until(Time::from_millis(99));
    assert_eq!(delays(&network), (9, 10));
    network.run_until(Time::from_millis(205));
    // A packet that leaves as the change is due meets the changed path.
    assert_eq!(delays(&network), (10 + 8, 30));
    network.run_until(Time::from_millis(500));
    assert_eq!(delays(&network), (20, 30));
    let made: Vec<u64> =
        std::iter::from_fn(|| network.poll_applied(path)).map(|c| c.at_ns / 1_000_000).collect();
    assert_eq!(made, [100, 200]);
    network.set_path(path, Target::Both, &"up delay=0ms".parse().expect("a change")).expect("in range");
    network.run_until(Time::NEVER);
    assert_eq!(delays(&network).0, 20 + 49);
    assert_eq!(network.now(), Time::NEVER);
}

#[test]
fn a_network_that_never_rests_can_be_limited() {
    let PointToPoint { topology, hosts, .. } = PointToPoint::new(path(""));
    let mut network = network(&topology, 0);
    flow(&mut network, (hosts[0], hosts[1]), every(Duration::ZERO), u64::MAX);
    network.limit_steps(10_000);
    network.run_until(Time::from_millis(1));
    assert!(network.is_exhausted());
    assert_eq!(network.counters().sent, 10_000);
}

#[test]
fn damaged_datagrams_are_dropped_where_hosts_check() {
    for checks in [false, true] {
        let PointToPoint { topology, hosts, path } = PointToPoint::new(path("corrupt=0.1"));
        let mut network = network(&topology, 3);
        network.set_udp_checks(checks);
        let ends = flow(&mut network, (hosts[0], hosts[1]), every(Duration::from_millis(1)), 1000);
        network.run_until(Time::NEVER);
        let damaged = network.path(path).stats(Direction::Forward).corrupted;
        assert!(damaged > 50);
        let dropped = if checks { damaged } else { 0 };
        assert_eq!(
            (network.counters().bad_checksum, received(&network, ends).packets),
            (dropped, 1000 - dropped)
        );
    }
}

#[test]
fn paths_carry_headers_where_they_are_counted() {
    for (headers, delay_ns) in [(false, 1_000_000), (true, 1_028_000)] {
        // A byte takes a microsecond.
        let PointToPoint { topology, hosts, path } = PointToPoint::new(path("rate=8mbit corrupt=0.5"));
        let mut network = network(&topology, 3);
        network.set_headers(headers);
        let ends = flow(&mut network, (hosts[0], hosts[1]), every(Duration::from_millis(2)), 4000);
        network.run_until(Time::NEVER);
        let received = received(&network, ends);
        let delay = Duration::from_nanos(delay_ns);
        assert_eq!(received.delay_range, Some((delay, delay)));
        assert_eq!(network.path(path).stats(Direction::Forward).bytes_in, delay_ns / 1000 * 4000);
        // A packet whose headers were damaged does not arrive. One packet in two is damaged, and 28
        // of 1028 bytes are headers.
        let expected = if headers { 4000.0 * 0.5 * 28.0 / 1028.0 } else { 0.0 };
        let dropped = network.counters().bad_checksum as f64;
        assert!((dropped - expected).abs() <= 5.0 * expected.sqrt(), "{dropped} of {expected}");
        assert_eq!(received.packets, 4000 - dropped as u64);
    }
}

// ---- captures ----

/// A writer whose bytes can be looked at.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A packet of a capture: when, how long it was, its headers, and what was kept of its content.
type Captured = (u64, usize, Ipv4Header, UdpHeader, Vec<u8>);

/// Reads a capture by the format's description.
fn read(file: &[u8]) -> Vec<Captured> {
    let word = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().expect("four bytes"));
    // Nanoseconds, version 2.4, packets that begin with the IP header.
    assert_eq!((word(0), word(4), word(16), word(20)), (0xa1b2_3c4d, 0x0002_0004, 65_535, 101));
    let (mut at, mut packets) = (24, Vec::new());
    while at < file.len() {
        let when = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
        let (kept, whole) = (word(at + 8) as usize, word(at + 12) as usize);
        let packet = &file[at + 16..at + 16 + kept];
        let (ip, rest) = Ipv4Header::from_slice(packet).expect("an IPv4 header");
        let (udp, content) = UdpHeader::from_slice(rest).expect("a UDP header");
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        assert_eq!((usize::from(ip.total_len), usize::from(udp.length)), (whole, whole - 20));
        packets.push((when, whole, ip, udp, content.to_vec()));
        at += 16 + kept;
    }
    packets
}

#[test]
fn captures_hold_what_hosts_send_and_receive() {
    let Chain { topology, hosts, .. } =
        Chain::new(vec![path("delay=1ms ecn=0p"), path("rate=8mbit delay=2ms overhead=28")]);
    let mut network = network(&topology, 0);
    let ends = flow(&mut network, (hosts[0], hosts[1]), every(Duration::from_millis(10)), 3);
    let files = [Shared::default(), Shared::default()];
    for (file, end) in files.iter().zip([ends.0, ends.1]) {
        network.capture(*end.ip(), Box::new(file.clone())).expect("memory takes all");
    }
    network.run_until(Time::NEVER);
    network.finish_captures().expect("memory takes all");
    let [sent, arrived] = files.map(|file| read(&file.0.borrow()));
    assert_eq!((sent.len(), arrived.len()), (3, 3));
    for (number, (at_sender, at_receiver)) in sent.iter().zip(&arrived).enumerate() {
        let (left_ns, len, ip, udp, content) = at_sender;
        assert_eq!((*left_ns, *len), (number as u64 * 10_000_000, 1028));
        assert_eq!((ip.source, ip.destination), (ends.0.ip().octets(), ends.1.ip().octets()));
        assert_eq!((udp.source_port, udp.destination_port), (ends.0.port(), ends.1.port()));
        assert_eq!(content, &(number as u64).to_be_bytes(), "a blank body shows its number");
        let mut whole = content.clone();
        whole.resize(1000, 0);
        assert_eq!(udp.checksum, udp.calc_checksum_ipv4(ip, &whole).expect("it is short enough"));
        assert!(ip.dont_fragment && ip.time_to_live == 64 && ip.ecn.value() == 2);
        // 1 ms, then 1028 bytes at 8 Mbit/s and 2 ms; one router, which marked it.
        let (came_ns, _, ip_later, udp_later, _) = at_receiver;
        assert_eq!(*came_ns, left_ns + 1_000_000 + 1_028_000 + 2_000_000);
        assert_eq!((ip_later.time_to_live, ip_later.ecn.value()), (63, 3));
        assert_eq!((ip_later.identification, udp_later), (ip.identification, udp));
    }
}

#[test]
fn an_error_of_a_capture_is_told_at_its_end() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let PointToPoint { topology, hosts, .. } = PointToPoint::new(path(""));
    let mut network = network(&topology, 0);
    let ends = flow(&mut network, (hosts[0], hosts[1]), every(Duration::from_millis(10)), 30);
    network.capture(*ends.0.ip(), Box::new(Full(100))).expect("there is room for the header");
    assert!(network.capture(*ends.1.ip(), Box::new(Full(10))).is_err());
    network.run_until(Time::NEVER);
    assert_eq!(received(&network, ends).packets, 30, "the network goes on");
    assert_eq!(network.finish_captures().map_err(|e| e.kind()), Err(io::ErrorKind::StorageFull));
}
