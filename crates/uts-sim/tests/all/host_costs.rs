//! Hosts whose work takes time: pipelines against closed forms, and what is lost and when.

use core::time::Duration;
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::cost::{Cost, Costs, HostCounters, Load, Waiting, WorkKind};
use uts_sim::network::Network;
use uts_sim::topology::PointToPoint;
use uts_sim::traffic::{Arrival, Pattern, Sink, Source, Traffic};

const PAYLOAD_BYTES: u16 = 1000;
/// 1000 bytes at 10 Mbit/s.
const TRANSMISSION_US: u64 = 800;

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// An interface of 10 Mbit/s, and copies of this length each way.
fn copying(copy_us: u64, buffers: u32) -> Costs {
    Costs {
        copy_in: Cost::fixed(us(copy_us)),
        copy_out: Cost::fixed(us(copy_us)),
        rate_bps: Some(10_000_000),
        send_buffers: Some(buffers),
        receive_buffers: Some(buffers),
        waiting: Waiting::Busy,
        ..Costs::default()
    }
}

struct Played {
    arrivals: Vec<Arrival>,
    receiver: HostCounters,
    work: Vec<uts_sim::cost::Work>,
}

/// Plays packets that are there at `instants`.
fn play(sender: Costs, receiver: Costs, instants: Vec<Time>) -> Played {
    let PointToPoint { topology, hosts, .. } = PointToPoint::new(PathConfig::default());
    let mut network = Network::new(&topology, 1).expect("a valid topology");
    network.set_costs(hosts[0], sender).expect("valid costs");
    network.set_costs(hosts[1], receiver).expect("valid costs");
    network.record_work(hosts[1]);
    let sink = network.attach(hosts[1], 9, Traffic::Sink(Sink::recording())).expect("a free port");
    let (to, count) = (network.address(sink), instants.len() as u64);
    let source = Source::new(to, PAYLOAD_BYTES, Pattern::At(instants), Time::ZERO, 1).with_count(count);
    network.attach(hosts[0], 9, Traffic::Source(source)).expect("a free port");
    network.run_until(Time::NEVER);
    Played {
        arrivals: network.app(sink).as_sink().expect("a sink").arrivals().to_vec(),
        receiver: network.host_counters(hosts[1]),
        work: network.take_work(hosts[1]),
    }
}

/// The last of a train leaves a single-buffered interface after N (C + T), and is copied out C
/// later. A double-buffered one repeats the longer of both alone (Zwaenepoel 1985, section 2.1.3).
/// A third buffer changes nothing.
#[test]
fn a_train_takes_what_the_pipeline_of_copies_and_transmissions_takes() {
    for copy in [300, 799, 800, 801, 1350, 5000] {
        for n in [1, 2, 3, 64, 512] {
            let train = || vec![Time::ZERO; n as usize];
            let last = |buffers| {
                let played = play(copying(copy, buffers), copying(copy, buffers), train());
                assert_eq!(played.arrivals.len() as u64, n, "C {copy}, {buffers} buffers: none is lost");
                played.arrivals.last().expect("arrivals").at
            };
            let t = TRANSMISSION_US;
            assert_eq!(last(1), Time::from_micros(n * (copy + t) + copy), "one buffer, C {copy}, N {n}");
            let double = if t <= copy { n * copy + t + copy } else { n * t + 2 * copy };
            assert_eq!(last(2), Time::from_micros(double), "two buffers, C {copy}, N {n}");
            assert_eq!(last(3), last(2), "three buffers, C {copy}, N {n}");
        }
    }
}

#[test]
fn a_receiver_that_copies_more_slowly_than_packets_come_loses_what_finds_no_buffer() {
    let (sender, train) = (copying(100, 2), vec![Time::ZERO; 300]);
    // Packets come each 800 us, and one of 1600 us is copied out: of two, one finds a buffer.
    let played = play(sender.clone(), copying(1600, 1), train.clone());
    assert_eq!(played.receiver.overruns, 200, "a buffer is free again as the third begins to arrive");
    assert_eq!(played.arrivals.len(), 100);
    let faster = copying(TRANSMISSION_US, 1);
    assert_eq!(
        play(sender.clone(), faster, train.clone()).receiver.overruns,
        150,
        "it cannot do both at once"
    );
    assert_eq!(play(sender, copying(TRANSMISSION_US, 2), train).receiver.overruns, 0);
}

#[test]
fn load_makes_work_longer_from_its_instant_on() {
    let receive = Cost::fixed(us(100));
    let load = vec![
        Load { at: Duration::from_millis(2), factor: 5.0 },
        Load { at: Duration::from_millis(4), factor: 0.5 },
    ];
    let receiver = Costs { receive, load, ..Costs::default() };
    let instants = [0, 1000, 1999, 2500, 3999, 5000].map(Time::from_micros);
    let played = play(Costs::default(), receiver, instants.to_vec());
    let took: Vec<u64> = played.arrivals.iter().map(|a| a.at.since(a.sent_at).as_micros() as u64).collect();
    assert_eq!(took, [100, 100, 100, 500, 500, 50]);
}

/// With interrupts, what arrives is copied out before what was copied out is received. At too high
/// a rate the receive queue overflows. The higher the rate, the less gets through (receive
/// livelock, Mogul and Ramakrishnan 1997).
#[test]
fn a_host_that_is_interrupted_more_often_than_it_can_receive_is_livelocked() {
    let through = |gap_us: u64| {
        let receiver = Costs {
            copy_out: Cost::fixed(us(10)),
            receive: Cost::fixed(us(60)),
            waiting: Waiting::Interrupts(us(30)),
            receive_queue: Some(8),
            ..Costs::default()
        };
        let instants = (0..2000).map(|n| Time::from_micros(n * gap_us)).collect();
        let played = play(Costs::default(), receiver, instants);
        assert_eq!(played.arrivals.len() as u64 + played.receiver.queue_drops, 2000);
        played.arrivals.len()
    };
    assert_eq!(through(100), 2000);
    let rates = [90, 70, 50, 41].map(|gap| through(gap) as f64 / (2000.0 * gap as f64));
    assert!(rates.is_sorted_by(|a, b| a > b), "less gets through the more comes: {rates:?}");
    assert!(rates[3] < 0.1 * rates[0], "almost nothing: {rates:?}");
}

#[test]
fn a_full_send_queue_holds_applications_back_and_loses_nothing() {
    let sender = Costs { send_queue: Some(3), ..copying(500, 1) };
    let played = play(sender, Costs::default(), vec![Time::ZERO; 50]);
    assert_eq!(played.arrivals.len(), 50);
    let late = played.arrivals.iter().filter(|a| a.at.since(a.sent_at) > us(5 * 1300)).count();
    assert_eq!(late, 0, "no more than three wait, and one in either place");
}

#[test]
fn work_is_recorded_in_the_order_of_its_ends_and_does_not_overlap() {
    let receiver = Costs { receive: Cost { packet: us(20), kilobyte: us(30) }, ..copying(700, 2) };
    let played = play(copying(700, 2), receiver, vec![Time::ZERO; 20]);
    let processor: Vec<_> = played.work.iter().filter(|work| work.kind != WorkKind::Transmit).collect();
    assert_eq!(processor.len(), 40);
    assert!(processor.windows(2).all(|pair| pair[0].end <= pair[1].begin), "one thing at a time");
    let receive = processor.iter().find(|work| work.kind == WorkKind::Receive).expect("received");
    assert_eq!(receive.end.since(receive.begin), us(50), "20 us, and 30 us for 1000 bytes");
    let busy: Duration = processor.iter().map(|work| work.end.since(work.begin)).sum();
    assert_eq!(busy, played.receiver.busy);
}

#[test]
fn costs_out_of_range_are_refused_by_name() {
    let load = |at: [u64; 2], factor| at.map(|at| Load { at: Duration::from_secs(at), factor }).to_vec();
    for (costs, expected) in [
        (Costs { send_buffers: Some(0), ..Costs::default() }, "send_buffers: must be at least 1"),
        (Costs { receive_queue: Some(0), ..Costs::default() }, "receive_queue: must be at least 1"),
        (Costs { rate_bps: Some(0), ..Costs::default() }, "rate: must be above 0"),
        (Costs { load: load([1, 2], 0.0), ..Costs::default() }, "load: a factor must be a number above 0"),
        (Costs { load: load([2, 2], 1.0), ..Costs::default() }, "load: must be in the order of time"),
    ] {
        assert_eq!(costs.check().expect_err("out of range").to_string(), expected);
    }
}

/// Layers in processes of their own hand each packet over once less than there are processes, on
/// both sides. The sender's side repeats its part for each packet of a train.
#[test]
fn each_boundary_between_processes_is_paid_for_in_both_directions() {
    for (processes, ipc_us) in [(1, 700), (2, 700), (3, 700), (3, 0)] {
        let costs = Costs {
            processes,
            ipc: Cost::fixed(us(ipc_us)),
            copy_in: Cost::fixed(us(100)),
            ..Costs::default()
        };
        let played = play(costs.clone(), costs, vec![Time::ZERO; 5]);
        let boundaries = u64::from(processes - 1) * ipc_us;
        let last = 5 * (100 + boundaries) + boundaries;
        assert_eq!(
            played.arrivals.last().expect("arrivals").at,
            Time::from_micros(last),
            "{processes} {ipc_us}"
        );
    }
}
