//! Paths that are hard in one respect each: what a connection must not do there, however it adapts.

use std::collections::BTreeMap;
use std::time::Duration;
use uts_end::{Role, TransportSpec};
use uts_path::PathConfig;
use uts_sim_world::{self as sim, Recorder, SimCase, SimFlow, SimLink, SimRecord};
use uts_traffic::measure::{Measure, Sample};
use uts_traffic::workload::Workload;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// When what had arrived, in seconds and bytes.
#[derive(Default)]
struct Arrived(Vec<(f64, u64)>);

impl Recorder for Arrived {
    fn sample(&mut self, _flow: usize, role: Role, sample: &Sample) {
        if let (Role::Server, Sample::Delivered { at_ns, bytes }) = (role, sample) {
            self.0.push((*at_ns as f64 / 1e9, *bytes));
        }
    }
}

impl Arrived {
    /// The longest time without anything, in seconds.
    fn longest_gap(&self) -> f64 {
        self.0.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(0.0, f64::max)
    }
}

fn path(forward: &str, backward: &str, schedule: &str) -> PathConfig {
    let mut path = PathConfig::both(forward.parse().expect("a valid path"));
    path.backward = backward.parse().expect("a valid path");
    path.schedule = schedule.parse().expect("a valid schedule");
    path
}

/// Goodput of a neighbour under this transport beside a connection that adapts, both with this
/// workload.
fn carry_beside(neighbour: TransportSpec, path: PathConfig, workload: Workload, seed: u64) -> f64 {
    let flow = |n: u32, transport| SimFlow {
        name: format!("flow {n}"),
        transport,
        workload: workload.clone(),
        from: format!("client{n}"),
        to: format!("server{n}"),
        start: Duration::ZERO,
    };
    let flows = vec![flow(1, TransportSpec::new("uts")), flow(2, neighbour)];
    let case = case(SimLink::dumbbell("shared", path, 2), flows, seed);
    let result = sim::run(&case, &mut ()).expect("the case makes sense");
    value(&result.flows[1].server.measures, "goodput")
}

fn value(measures: &[Measure], name: &str) -> f64 {
    let measure = measures.iter().find(|m| m.name == name);
    measure.unwrap_or_else(|| panic!("no {name} among {measures:?}")).value
}

fn case(links: Vec<SimLink>, flows: Vec<SimFlow>, seed: u64) -> SimCase {
    let (timeout, sample_every) = (120 * SECOND, 50 * MS);
    SimCase {
        links,
        sources: Vec::new(),
        costs: BTreeMap::new(),
        flows,
        timeout,
        sample_every,
        seed,
        record: SimRecord::default(),
    }
}

/// Carries a workload from this seed; gives a figure by its name, the server's where both ends have
/// it, and when what arrived.
fn carry(path: PathConfig, workload: Workload, seed: u64, figure: &str) -> (f64, Arrived) {
    carry_over(TransportSpec::new("uts"), path, workload, seed, figure)
}

/// The same over a transport with settings.
fn carry_over(
    transport: TransportSpec,
    path: PathConfig,
    workload: Workload,
    seed: u64,
    figure: &str,
) -> (f64, Arrived) {
    let [from, to] = ["client", "server"].map(String::from);
    let flow = SimFlow { name: "uts".into(), transport, workload, from, to, start: Duration::ZERO };
    let case = case(SimLink::point_to_point("path", path), vec![flow], seed);
    let mut arrived = Arrived::default();
    let result = sim::run(&case, &mut arrived).expect("the case makes sense");
    let ends = &result.flows[0];
    let measures: Vec<Measure> = ends.server.measures.iter().chain(&ends.client.measures).cloned().collect();
    (value(&measures, figure), arrived)
}

/// A receiver that reports much must not run out of leave to say how far the sender may go on.
#[test]
fn reports_of_much_loss_do_not_hold_back_credit() {
    for seed in [1, 2] {
        let forward = "rate=50mbit delay=300ms buffer=3MB";
        let rain = "at=15s both loss=ge:0.05,4";
        let path = path(forward, "rate=5mbit delay=300ms buffer=500kB", rain);
        let bulk = Workload::Bulk { bytes: None, duration: Some(50 * SECOND) };
        let (goodput, arrived) = carry(path, bulk, seed, "goodput");
        println!("seed {seed}: {:.1} Mbit/s, nothing for {:.2} s", goodput / 1e6, arrived.longest_gap());
        assert!(arrived.longest_gap() < 4.0, "seed {seed}: nothing for {:.2} s", arrived.longest_gap());
    }
}

/// Reports leave as often as the sender has use for them, and no more often than the way back
/// carries.
#[test]
fn a_narrow_way_back_carries_the_reports_of_a_wide_way_there() {
    for back in ["64kbit", "100kbit"] {
        for delay in ["20ms", "50ms"] {
            let forward = format!("rate=50mbit delay={delay} buffer=500kB");
            let backward = format!("rate={back} delay={delay} buffer=20kB");
            let bulk = Workload::Bulk { bytes: None, duration: Some(20 * SECOND) };
            let (goodput, _) = carry(path(&forward, &backward, ""), bulk, 1, "goodput");
            println!("{back} back, {delay}: {:.1} Mbit/s", goodput / 1e6);
            assert!(goodput > 35e6, "{back} back, {delay}: {:.1} Mbit/s", goodput / 1e6);
        }
    }
}

/// Small messages that take nine tenths of a slow line: whatever else takes of it makes them late
/// for long.
#[test]
fn a_stream_that_just_fits_is_not_pushed_aside() {
    for seed in [1, 2, 3] {
        let line = "rate=92kbit delay=10ms buffer=5kB";
        let voice =
            Workload::Messages { every: 20 * MS, bytes: 160, duration: 20 * SECOND, deadline: 150 * MS };
        let (in_time, _) = carry(path(line, line, ""), voice, seed, "in_time");
        println!("seed {seed}: {:.2} % in time", in_time * 100.0);
        assert!(in_time > 0.99, "seed {seed}: {:.2} % in time", in_time * 100.0);
    }
}

/// A file over a long path waits for slow start, and not for credit.
#[test]
fn credit_keeps_ahead_of_a_sender_that_doubles() {
    let line = "rate=50mbit delay=300ms buffer=3750kB";
    let file = Workload::Bulk { bytes: Some(20_000_000), duration: None };
    let (took_s, _) = carry(path(line, line, ""), file, 1, "completion");
    println!("20 MB took {took_s:.2} s");
    assert!(took_s < 9.0, "{took_s:.2} s");
}

/// Over a long path that loses packets at random, the first seconds are a large part: what bears
/// losses comes soon.
#[test]
fn random_loss_on_a_long_path_is_answered_within_seconds() {
    let mut all = 0.0;
    for seed in [1, 2, 3] {
        let line = "rate=50mbit delay=300ms buffer=3MB loss=0.01";
        let bulk = Workload::Bulk { bytes: None, duration: Some(20 * SECOND) };
        let (goodput, _) = carry(path(line, line, ""), bulk, seed, "goodput");
        println!("seed {seed}: {:.1} Mbit/s", goodput / 1e6);
        assert!(goodput > 1e6, "seed {seed}: {:.1} Mbit/s", goodput / 1e6);
        all += goodput;
    }
    // CUBIC has 0.5 each. The fewer packets are in flight, the longer it takes to tell the cause.
    assert!(all > 25e6, "{:.1} Mbit/s of three", all / 1e6);
}

/// Redundancy takes room that a path hardly wider than the video has not: it must not make more
/// late than it repairs.
#[test]
fn redundancy_makes_no_video_late_that_was_in_time_without() {
    for seed in [1, 2, 3] {
        let line = "rate=6mbit delay=40ms buffer=100kB loss=ge:0.05,4";
        let deadline = 200 * MS;
        let video = || Workload::Video {
            frames_per_s: 30,
            rate_bps: 4_000_000,
            key_every: 60,
            key_factor: 6.0,
            duration: 30 * SECOND,
            deadline,
        };
        let in_time = |adaptive| {
            let transport = TransportSpec::new("uts").with("adaptive", adaptive);
            carry_over(transport, path(line, line, ""), video(), seed, "in_time").0
        };
        let (adaptive, fixed) = (in_time(true), in_time(false));
        println!("seed {seed}: {:.2} % in time, {:.2} % without exchanges", adaptive * 100.0, fixed * 100.0);
        assert!(adaptive > fixed - 0.1, "seed {seed}: {adaptive:.4} in time, {fixed:.4} without exchanges");
    }
}

/// In a buffer of ten packets a loss is congestion's. A threshold that lets a sender bear its own
/// losses starves who yields.
#[test]
fn a_shallow_buffer_is_shared_with_who_yields() {
    for seed in [1, 2] {
        let line = "rate=86mbit delay=10ms buffer=10p";
        let bulk = Workload::Bulk { bytes: None, duration: Some(20 * SECOND) };
        let fixed = TransportSpec::new("uts").with("adaptive", false);
        let neighbour = carry_beside(fixed, path(line, line, ""), bulk, seed);
        println!("seed {seed}: {:.1} Mbit/s for the neighbour", neighbour / 1e6);
        assert!(neighbour > 8.5e6, "seed {seed}: {:.1} Mbit/s for the neighbour", neighbour / 1e6);
    }
}

/// A dialogue goes on only when its answer has come: over a path that loses packets for a while now
/// and then, redundancy answers for repeats, and is kept over the times between.
#[test]
fn a_dialogue_does_not_wait_for_repeats_where_packets_are_lost() {
    let line = "rate=20mbit delay=20ms buffer=200kB";
    let flaps = "at=1s both loss=0.05; at=4s both loss=0; at=7s both loss=0.05; at=10s both loss=0; \
                 at=13s both loss=0.05; at=16s both loss=0";
    for seed in [1, 2] {
        let requests =
            Workload::Requests { count: 1000, request_bytes: 200, answer_bytes: 2000, concurrency: 2 };
        let (p99_ms, _) = carry(path(line, line, flaps), requests, seed, "request_p99");
        println!("seed {seed}: 99 of 100 answered within {p99_ms:.0} ms");
        assert!(p99_ms < 75.0, "seed {seed}: {p99_ms:.0} ms");
    }
}

/// A path that has become four times as long by a hand-over is not taken for a queue: it is filled
/// within seconds, not when the old round trip is forgotten.
#[test]
fn a_longer_path_after_a_hand_over_is_filled_soon() {
    let line = "rate=50mbit delay=15ms buffer=500kB loss=0.005";
    let longer = "at=4s both delay=60ms";
    for seed in [1, 2] {
        let bulk = Workload::Bulk { bytes: None, duration: Some(9 * SECOND) };
        let (_, arrived) = carry(path(line, line, longer), bulk, seed, "goodput");
        let at = |s: f64| arrived.0.iter().find(|(at, _)| *at >= s).map_or(0, |(_, bytes)| *bytes);
        let mbit = (at(9.0).max(at(8.5)) - at(6.0)) as f64 * 8.0 / 3e6;
        println!("seed {seed}: {mbit:.1} Mbit/s");
        assert!(mbit > 25.0, "seed {seed}: {mbit:.1} Mbit/s");
    }
}

/// A path begins to lose packets in bursts, as in the demonstration. What bears losses needs a
/// while to bring what is expected of it. It is kept, as it brings more than there was.
#[test]
fn a_path_that_begins_to_lose_is_answered_soon() {
    for seed in 1..=6 {
        let goodput = |adaptive| {
            let line = "rate=50mbit delay=20ms buffer=64p overhead=28";
            let bulk = Workload::Bulk { bytes: None, duration: Some(30 * SECOND) };
            let transport = TransportSpec::new("uts").with("adaptive", adaptive);
            let path = path(line, line, "at=3.7s fwd loss=ge:0.05,4");
            carry_over(transport, path, bulk, seed, "goodput").0 / 1e6
        };
        let (adaptive, fixed) = (goodput(true), goodput(false));
        println!("seed {seed}: {adaptive:.1} Mbit/s, {fixed:.1} without exchanges");
        assert!(adaptive > 2.0 * fixed, "seed {seed}: {adaptive:.1} Mbit/s, {fixed:.1} without exchanges");
    }
}

/// Rates of several connections that share a line, all with as much as they can carry.
fn share(line: &str, transports: &[TransportSpec], seed: u64) -> Vec<f64> {
    let flows = transports.iter().zip(1..).map(|(transport, n)| SimFlow {
        name: format!("flow {n}"),
        transport: transport.clone(),
        workload: Workload::Bulk { bytes: None, duration: Some(20 * SECOND) },
        from: format!("client{n}"),
        to: format!("server{n}"),
        start: Duration::ZERO,
    });
    let case = case(
        SimLink::dumbbell("shared", path(line, line, ""), transports.len() as u32),
        flows.collect(),
        seed,
    );
    let result = sim::run(&case, &mut ()).expect("the case makes sense");
    result.flows.iter().map(|flow| value(&flow.server.measures, "goodput")).collect()
}

/// Beside a flow under CUBIC neither gets less than a third of the line, or half of what it would
/// get alone where that is less. Four that adapt share alike (Jain's index above 0.9).
#[test]
fn connections_that_adapt_share_a_line_with_cubic_and_with_each_other() {
    const LINE_BPS: f64 = 50e6;
    let adaptive = TransportSpec::new("uts");
    let cubic = TransportSpec::new("uts").with("adaptive", false);
    for line in [
        "rate=50mbit delay=20ms buffer=250kB",
        "rate=50mbit delay=20ms buffer=20p",
        "rate=50mbit delay=20ms buffer=250kB loss=0.01",
    ] {
        let pair = share(line, &[adaptive.clone(), cubic.clone()], 1);
        let alone = [&adaptive, &cubic].map(|transport| share(line, std::slice::from_ref(transport), 1)[0]);
        println!("{line}: adaptive beside CUBIC {pair:.3?} bit/s, alone {alone:.3?}");
        for (own, alone) in pair.iter().zip(alone) {
            let due = (LINE_BPS / 3.0).min(alone / 2.0);
            assert!(*own > due * 0.95, "{line}: {pair:?} of {LINE_BPS}, alone {alone}");
        }
    }
    // Where packets are lost at random they share less evenly.
    for (line, least) in
        [("rate=50mbit delay=20ms buffer=250kB", 0.9), ("rate=50mbit delay=20ms buffer=250kB loss=0.01", 0.8)]
    {
        let jains = [2, 3, 4].map(|seed| {
            let four = share(line, &[(); 4].map(|()| adaptive.clone()), seed);
            let (sum, squares) = four.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
            sum * sum / 4.0 / squares
        });
        println!("{line}: Jain's index of four alike {jains:.3?}");
        let jain = jains.iter().sum::<f64>() / 3.0;
        assert!(jain > least, "{line}: {jains:?}");
    }
}
