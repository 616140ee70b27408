//! Cases in virtual time: what transports and workloads do there, that it follows from the seed,
//! and what is reported.

use std::collections::BTreeMap;
use std::time::Duration;
use uts_end::line::Status;
use uts_end::{Role, TransportSpec};
use uts_engine::{TraceKind, TraceRow};
use uts_path::{Applied, Direction, Passage, PathConfig};
use uts_sim::host::SenderState;
use uts_sim_world::{
    self as sim, Recorder, SimCase, SimError, SimFlow, SimLink, SimRecord, SimResult, SimSource,
};
use uts_traffic::measure::{Measure, Sample};
use uts_traffic::workload::{Arrivals, Workload};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn path(text: &str) -> PathConfig {
    PathConfig::both(text.parse().expect("a valid path"))
}

fn flow(transport: TransportSpec, workload: Workload) -> SimFlow {
    let [from, to] = ["client", "server"].map(String::from);
    SimFlow { name: transport.kind.clone(), transport, workload, from, to, start: Duration::ZERO }
}

fn case(links: Vec<SimLink>, flows: Vec<SimFlow>) -> SimCase {
    SimCase {
        sources: Vec::new(),
        costs: BTreeMap::new(),
        links,
        flows,
        timeout: 60 * SECOND,
        sample_every: 50 * MS,
        seed: 1,
        record: SimRecord::default(),
    }
}

fn uts() -> TransportSpec {
    TransportSpec::new("uts")
}

fn udp() -> TransportSpec {
    TransportSpec::new("udp")
}

fn bulk(bytes: u64) -> Workload {
    Workload::Bulk { bytes: Some(bytes), duration: None }
}

fn run(case: &SimCase) -> SimResult {
    sim::run(case, &mut ()).unwrap_or_else(|e| panic!("seed {}: {e}", case.seed))
}

fn value(measures: &[Measure], name: &str) -> f64 {
    let found = measures.iter().find(|m| m.name == name);
    found.unwrap_or_else(|| panic!("no {name} among {measures:?}")).value
}

/// Keeps everything.
#[derive(Default, PartialEq)]
struct Kept {
    samples: Vec<(usize, Role, Sample)>,
    packets: Vec<(usize, Role, TraceRow)>,
    states: Vec<SenderState>,
    passages: Vec<(usize, Direction, Passage)>,
    changes: Vec<(usize, Applied)>,
}

impl Recorder for Kept {
    fn sample(&mut self, flow: usize, role: Role, sample: &Sample) {
        self.samples.push((flow, role, sample.clone()));
    }

    fn packet(&mut self, flow: usize, role: Role, row: &TraceRow, state: &SenderState) {
        self.packets.push((flow, role, *row));
        self.states.push(*state);
    }

    fn passage(&mut self, link: usize, direction: Direction, passage: &Passage) {
        self.passages.push((link, direction, *passage));
    }

    fn applied(&mut self, link: usize, change: &Applied) {
        self.changes.push((link, change.clone()));
    }
}

fn workloads() -> Vec<Workload> {
    let duration = 3 * SECOND;
    vec![
        bulk(2_000_000),
        Workload::Bulk { bytes: None, duration: Some(2 * SECOND) },
        Workload::Files { count: 20, bytes: 30_000, concurrency: 4 },
        Workload::Requests { count: 50, request_bytes: 200, answer_bytes: 20_000, concurrency: 5 },
        Workload::Messages { every: 20 * MS, bytes: 160, duration, deadline: 150 * MS },
        Workload::Video {
            frames_per_s: 25,
            rate_bps: 2_000_000,
            key_every: 10,
            key_factor: 4.0,
            duration,
            deadline: 200 * MS,
        },
        Workload::Keystrokes { count: 30, every: 100 * MS },
    ]
}

#[test]
fn uts_carries_every_workload() {
    for settings in
        ["rate=20mbit delay=15ms buffer=100p", "rate=20mbit delay=15ms buffer=100p loss=ge:0.02,3"]
    {
        for workload in workloads() {
            let name = format!("{} over {settings}", workload.kind());
            let links = SimLink::point_to_point("path", path(settings));
            let result = run(&case(links, vec![flow(uts(), workload)]));
            let flow = &result.flows[0];
            for end in [&flow.client, &flow.server] {
                assert_eq!((end.end.status, &end.end.why), (Status::Ok, &None), "{name}");
                assert!(!end.measures.is_empty(), "{name}");
            }
            let connect_s = flow.client.end.connect_s.expect("it connected");
            assert!((0.03..1.0).contains(&connect_s), "{name}: connected after {connect_s}");
            assert!(result.elapsed < 30 * SECOND, "{name}: {:?}", result.elapsed);
        }
    }
}

#[test]
fn everything_follows_from_the_seed() {
    let kept = |seed, record: SimRecord| {
        let settings = "rate=10mbit delay=20ms buffer=40p loss=ge:0.02,3 jitter=3ms";
        let links = SimLink::dumbbell("shared", path(settings), 2);
        let mut flows = vec![flow(uts(), bulk(1_500_000)), flow(udp(), workloads().remove(4))];
        for (n, flow) in flows.iter_mut().enumerate() {
            (flow.from, flow.to) = (format!("client{}", n + 1), format!("server{}", n + 1));
        }
        let case = SimCase { seed, record, ..case(links, flows) };
        let mut kept = Kept::default();
        let result = sim::run(&case, &mut kept).expect("the case makes sense");
        (result, kept)
    };
    let all = SimRecord { packets: true, queues: true, ..SimRecord::default() };
    let (result, told) = kept(3, all.clone());
    assert!(!told.samples.is_empty() && !told.packets.is_empty() && !told.passages.is_empty());
    let (again, told_again) = kept(3, all);
    assert_eq!(result, again);
    assert!(told == told_again);
    // Recording changes nothing.
    let (bare, told_bare) = kept(3, SimRecord::default());
    assert_eq!(result, bare);
    assert_eq!(told.samples, told_bare.samples);
    assert!(told_bare.packets.is_empty() && told_bare.passages.is_empty());
    assert_ne!(kept(4, SimRecord::default()).0, result);
}

#[test]
fn a_clean_path_is_filled() {
    let links = SimLink::point_to_point("path", path("rate=50mbit delay=10ms buffer=128kB"));
    let result = run(&case(links, vec![flow(uts(), bulk(30_000_000))]));
    let goodput = value(&result.flows[0].server.measures, "goodput");
    println!("{:.1} % of the rate", goodput / 50e6 * 100.0);
    assert!((0.88..1.0).contains(&(goodput / 50e6)), "{goodput}");
}

/// A voice packet over an empty path takes its bits over the rate, and the delay, to the
/// nanosecond, with its headers.
#[test]
fn a_message_alone_takes_transmission_and_propagation() {
    let links = SimLink::chain(vec![
        ("first".into(), path("rate=1mbit delay=10ms")),
        ("second".into(), path("rate=2mbit delay=5ms overhead=14")),
    ]);
    let workload =
        Workload::Messages { every: 20 * MS, bytes: 160, duration: 2 * SECOND, deadline: 150 * MS };
    let case = case(links, vec![flow(udp(), workload)]);
    let mut kept = Kept::default();
    let result = sim::run(&case, &mut kept).expect("the case makes sense");
    let expected = Duration::from_nanos(188 * 8_000 + 10_000_000 + 202 * 4_000 + 5_000_000);
    let latencies: Vec<_> = kept
        .samples
        .iter()
        .filter_map(|(_, _, sample)| match sample {
            Sample::Latency { took, .. } => Some(*took),
            _ => None,
        })
        .collect();
    assert_eq!(latencies, vec![Some(expected); 100]);
    assert_eq!(value(&result.flows[0].server.measures, "in_time"), 1.0);
    assert_eq!(result.flows[0].client.end.status, Status::Ok);
}

#[test]
fn what_is_lost_is_missing_to_raw_udp_and_repaired_by_uts() {
    let workload =
        Workload::Messages { every: 20 * MS, bytes: 160, duration: 20 * SECOND, deadline: 200 * MS };
    let in_time = |transport: TransportSpec| {
        let links = SimLink::point_to_point("path", path("rate=10mbit delay=20ms loss=0.1 corrupt=0.05"));
        let result = run(&case(links, vec![flow(transport, workload.clone())]));
        value(&result.flows[0].server.measures, "in_time")
    };
    let (raw, repaired) = (in_time(udp()), in_time(uts()));
    println!("in time: raw {raw:.3}, UTS {repaired:.3}");
    // 0.9 x 0.95 pass, of 1000.
    assert!((raw - 0.855).abs() < 0.05, "{raw}");
    assert!(repaired > 0.95, "{repaired}");
}

#[test]
fn flows_share_a_bottleneck_fairly_and_start_when_they_should() {
    let links = SimLink::dumbbell("shared", path("rate=20mbit delay=20ms buffer=100p"), 2);
    let long = Workload::Bulk { bytes: None, duration: Some(20 * SECOND) };
    let pair = |n: u32, start| SimFlow {
        name: format!("uts-{n}"),
        from: format!("client{n}"),
        to: format!("server{n}"),
        start,
        ..flow(uts(), long.clone())
    };
    let mut kept = Kept::default();
    let case = case(links, vec![pair(1, Duration::ZERO), pair(2, 500 * MS)]);
    let result = sim::run(&case, &mut kept).expect("the case makes sense");
    let goodputs: Vec<f64> = result.flows.iter().map(|f| value(&f.server.measures, "goodput")).collect();
    let (sum, squares) = (goodputs.iter().sum::<f64>(), goodputs.iter().map(|g| g * g).sum::<f64>());
    println!("{goodputs:?}, Jain's index {:.3}", sum * sum / 2.0 / squares);
    assert!(sum < 20e6 && sum > 17e6, "{goodputs:?}");
    assert!(sum * sum / 2.0 / squares > 0.85, "{goodputs:?}");
    let first_ns = |flow: usize| {
        let samples = kept.samples.iter().filter(|(f, ..)| *f == flow);
        samples
            .filter_map(|(_, _, s)| if let Sample::Delivered { at_ns, .. } = s { Some(*at_ns) } else { None })
            .next()
    };
    assert!(first_ns(0) < Some(400_000_000) && first_ns(1) > Some(500_000_000));
    let names: Vec<&str> = result.links.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["shared"; 2], "only links with names are told of");
}

/// Flows of one run that send at random do not send together: sources at random are bursty together
/// only by what each of them does. The first sends what it sends alone.
#[test]
fn flows_of_a_run_draw_each_for_itself() {
    let random = Workload::RandomMessages {
        arrivals: Arrivals::Poisson,
        every: 20 * MS,
        bytes: 160,
        sizes: Vec::new(),
        duration: 2 * SECOND,
        deadline: 150 * MS,
    };
    let named = |n: u32| SimFlow { name: format!("udp-{n}"), ..flow(udp(), random.clone()) };
    let left_ns = |flows: Vec<SimFlow>| -> BTreeMap<usize, Vec<u64>> {
        let mut kept = Kept::default();
        sim::run(&case(SimLink::point_to_point("path", path("delay=5ms")), flows), &mut kept)
            .expect("it makes sense");
        let mut left = BTreeMap::<usize, Vec<u64>>::new();
        for (flow, _, sample) in kept.samples {
            if let Sample::Latency { at_ns, .. } = sample {
                left.entry(flow).or_default().push(at_ns);
            }
        }
        left
    };
    let (alone, three) = (left_ns(vec![named(1)]), left_ns((1..=3).map(named).collect()));
    assert_eq!(alone[&0], three[&0]);
    let together = |a: usize, b: usize| three[&a].iter().filter(|at| three[&b].contains(at)).count();
    // All begin at the same instant.
    assert_eq!([together(0, 1), together(0, 2), together(1, 2)], [1; 3]);
}

#[test]
fn a_run_tells_of_packets_queues_changes_and_exchanges() {
    let mut link = path("rate=20mbit delay=20ms buffer=64p");
    link.schedule = "at=2s fwd loss=ge:0.05,4; at=6s both rate=5mbit".parse().expect("a valid schedule");
    let links = SimLink::point_to_point("path", link);
    let record = SimRecord { packets: true, queues: true, ..SimRecord::default() };
    let case = SimCase { record, ..case(links, vec![flow(uts(), bulk(16_000_000))]) };
    let mut kept = Kept::default();
    let result = sim::run(&case, &mut kept).expect("the case makes sense");

    let made: Vec<(usize, u64)> = kept.changes.iter().map(|(link, c)| (*link, c.at_ns / 1_000_000)).collect();
    assert_eq!(made, [(0, 2000), (0, 6000)]);

    // Each packet leaves the queue once, and its bytes are those that the link has counted.
    for (direction, stats) in result.links.iter().map(|(_, direction, stats)| (direction, stats)) {
        let passages: Vec<&Passage> =
            kept.passages.iter().filter(|(_, d, _)| d == direction).map(|(_, _, p)| p).collect();
        // What is still in the queue as the run ends has not left it.
        assert!(stats.packets_in - passages.len() as u64 <= stats.queue_packets + 1, "{direction}");
        assert!(passages.is_sorted_by_key(|p| p.left_ns), "{direction}");
        let lost = passages.iter().filter(|p| p.dropped.is_some()).count() as u64;
        assert_eq!(lost, stats.dropped(), "{direction}");
    }

    let (mut sent, mut ended) = (BTreeMap::new(), 0);
    for (_, role, row) in &kept.packets {
        if *role == Role::Client && row.data.is_some() {
            match row.kind {
                TraceKind::Sent | TraceKind::Repeated => {
                    assert_eq!(sent.insert(row.number, row.data), None);
                }
                TraceKind::Acknowledged | TraceKind::Lost => {
                    assert_eq!(sent.get(&row.number), Some(&row.data), "packet {}", row.number);
                    ended += 1;
                }
                TraceKind::Received => {}
            }
        }
    }
    assert!(sent.len() > 10_000 && ended > sent.len() * 99 / 100, "{} sent, {ended} ended", sent.len());

    let exchanges: Vec<&str> = kept
        .samples
        .iter()
        .filter_map(
            |(_, _, s)| if let Sample::Exchange { line, .. } = s { Some(line.as_str()) } else { None },
        )
        .collect();
    assert!(exchanges.iter().any(|line| line.contains("requested")), "{exchanges:?}");
    assert!(exchanges.iter().any(|line| line.contains("in force")), "{exchanges:?}");
    let windows = kept.samples.iter().filter(|(_, role, s)| {
        *role == Role::Client && matches!(s, Sample::Status { window_bytes: Some(_), rtt: Some(_), .. })
    });
    assert!(windows.count() > 50);
}

/// Reno has no threshold before its first loss (RFC 5681 section 3.1 begins with an arbitrarily
/// high one), and half of what was in flight, or two packets, after it.
#[test]
fn each_packet_tells_what_its_sender_goes_by() {
    let spec = r#"{"kind":"uts","properties":{"uts.profile":"tcp-reno","uts.consent":"all"}}"#;
    let reno: TransportSpec = serde_json::from_str(spec).expect("a transport");
    let links = SimLink::point_to_point("path", path("rate=10mbit delay=10ms buffer=10p"));
    let record = SimRecord { packets: true, ..SimRecord::default() };
    let case = SimCase { record, ..case(links, vec![flow(reno, bulk(3_000_000))]) };
    let mut kept = Kept::default();
    sim::run(&case, &mut kept).expect("the case makes sense");
    let of_client: Vec<(&TraceRow, &SenderState)> = kept
        .packets
        .iter()
        .zip(&kept.states)
        .filter_map(|((_, role, row), state)| (*role == Role::Client).then_some((row, state)))
        .collect();
    let lost = of_client.iter().position(|(row, _)| row.kind == TraceKind::Lost).expect("the queue is full");
    let (before, after) = of_client.split_at(lost);
    // A state is that after the whole event: acknowledgements that reveal the loss have it too.
    let earlier = before.iter().filter(|(row, _)| row.at < after[0].0.at);
    assert!(earlier.clone().count() > 20);
    assert!(earlier.clone().all(|(_, state)| state.threshold_bytes.is_none()));
    let most = before.iter().map(|(_, state)| state.in_flight_bytes).max().expect("packets");
    let threshold = after[0].1.threshold_bytes.expect("set by the loss");
    // What was in flight as the loss was noticed is a little less than the most.
    assert!((most / 3..=most / 2).contains(&threshold), "{threshold} of {most}");
    assert!(after.iter().all(|(_, state)| state.threshold_bytes.is_some()));
    assert!(of_client.iter().all(|(_, state)| state.window_bytes.is_some_and(|bytes| bytes >= 1000)));
    let sent = of_client.iter().filter(|(row, _)| row.kind == TraceKind::Sent && row.data.is_some());
    assert!(sent.clone().count() > 2000);
    assert!(sent.clone().all(|(row, state)| state.in_flight_bytes >= row.bytes), "it is in flight itself");
    assert_eq!(of_client.last().expect("packets").1.in_flight_bytes, 0);
}

#[test]
fn hosts_are_captured_and_connections_logged() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = Some(directory.path().to_owned());
    let record = SimRecord { pcap: place.clone(), qlog: place, ..SimRecord::default() };
    let links = SimLink::point_to_point("path", path("rate=20mbit delay=5ms loss=0.01"));
    let flows = vec![flow(uts(), bulk(500_000)), flow(udp(), workloads().remove(4))];
    let case = SimCase { record, ..case(links, flows) };
    let result = sim::run(&case, &mut ()).expect("the case makes sense");
    let files = std::fs::read_dir(directory.path()).expect("it is there");
    let mut names: Vec<String> =
        files.map(|file| file.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, ["client.pcap", "server.pcap", "uts.client.sqlog", "uts.server.sqlog"]);

    let [forward, backward] = [&result.links[0].2, &result.links[1].2];
    for (host, sent, received) in [("client", forward, backward), ("server", backward, forward)] {
        let file = std::fs::File::open(directory.path().join(format!("{host}.pcap"))).expect("it is there");
        let mut reader = pcap_file::pcap::PcapReader::new(file).expect("a capture");
        let (mut packets, mut bytes) = (0, 0);
        while let Some(packet) = reader.next_packet() {
            bytes += u64::from(packet.expect("a packet").orig_len);
            packets += 1;
        }
        assert_eq!(packets, sent.packets_in + received.delivered, "{host}");
        assert_eq!(bytes, sent.bytes_in + received.bytes_delivered, "{host}");
    }
    for role in ["client", "server"] {
        let log = std::fs::read(directory.path().join(format!("uts.{role}.sqlog"))).expect("it is there");
        let records: Vec<serde_json::Value> = log
            .split(|byte| *byte == 0x1e)
            .skip(1)
            .map(|record| serde_json::from_slice(record).expect("JSON"))
            .collect();
        assert_eq!(records[0]["trace"]["vantage_point"]["type"], role);
        assert!(records.iter().filter(|r| r["name"] == "quic:packet_sent").count() > 50, "{role}");
    }

    let gone = directory.path().join("gone");
    let record = SimRecord { pcap: Some(gone.clone()), ..SimRecord::default() };
    let error = sim::run(&SimCase { record, ..case }, &mut ()).expect_err("refused").to_string();
    assert!(error.starts_with(&format!("cannot write {}", gone.join("client.pcap").display())), "{error}");
}

#[test]
fn what_does_not_finish_is_cut_short_and_what_does_not_connect_fails() {
    let mut dying = path("rate=20mbit delay=5ms");
    dying.schedule = "at=500ms both down".parse().expect("a valid schedule");
    let dead = path("rate=20mbit delay=5ms down");
    for (link, status) in [(dying, Status::CutShort), (dead, Status::Failed)] {
        let links = SimLink::point_to_point("path", link);
        let case = SimCase { timeout: 5 * SECOND, ..case(links, vec![flow(uts(), bulk(50_000_000))]) };
        let result = run(&case);
        for end in [&result.flows[0].client, &result.flows[0].server] {
            assert_eq!(end.end.status, status);
            assert!(end.end.why.as_ref().is_some_and(|why| why.contains("5 s")), "{:?}", end.end);
            assert_eq!(end.measures.is_empty(), status == Status::Failed);
        }
        assert!(result.elapsed < 40 * SECOND);
    }
}

#[test]
fn a_recorder_can_stop_a_run() {
    struct Stop;
    impl Recorder for Stop {
        fn is_stopped(&self) -> bool {
            true
        }
    }
    let links = SimLink::point_to_point("path", path("rate=20mbit delay=5ms"));
    let stopped = sim::run(&case(links, vec![flow(uts(), bulk(50_000_000))]), &mut Stop);
    assert!(matches!(stopped, Err(SimError::Stopped)));
}

#[test]
fn a_case_that_makes_no_sense_is_refused_with_the_reason() {
    let links = SimLink::point_to_point("path", path("delay=5ms"));
    let good = case(links, vec![flow(uts(), bulk(1000))]);
    let refused = |change: &dyn Fn(&mut SimCase)| {
        let mut case = good.clone();
        change(&mut case);
        sim::run(&case, &mut ()).expect_err("refused").to_string()
    };
    for (change, expected) in [
        (
            (&|c: &mut SimCase| c.flows[0].to = "servant".into()) as &dyn Fn(&mut SimCase),
            "flow uts: there is no host servant; there are client, server",
        ),
        (
            &|c| c.flows[0].transport = TransportSpec::new("tcp"),
            "flow uts: virtual time has uts and udp, not tcp",
        ),
        (&|c| c.flows[0].transport = udp(), "flow uts: "),
        (&|c| c.flows[0].transport = uts().with("windows", 1), "flow uts: uts: unknown field `windows`"),
        (&|c| c.flows[0].workload = bulk(0), "flow uts: bytes: "),
        (&|c| c.flows.push(c.flows[0].clone()), "flow uts: another has this name"),
        (&|c| c.sample_every = Duration::ZERO, "sample_every: is 0"),
        (&|c| c.links[0].ends[1] = "client".into(), "link path: both ends are client"),
        (
            &|c| {
                let mut apart = c.links[0].clone();
                apart.ends = ["a", "b"].map(String::from);
                c.links.push(apart);
                c.flows[0].to = "b".into();
            },
            "flow uts: no way leads from client to b",
        ),
    ] {
        let error = refused(change);
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(sim::refuses(&uts(), &bulk(1)), None);
    assert!(sim::refuses(&udp(), &bulk(1)).is_some(), "raw UDP has no streams");
    assert!(sim::refuses(&TransportSpec::new("quinn"), &bulk(1)).is_some());
}

/// A processor of 1 ms for each packet is a bottleneck of 1000 packets a second. It is one of half
/// as many if its load doubles.
#[test]
fn a_transfer_is_as_fast_as_the_processor_of_its_receiver() {
    let goodput = |costs: &[(&str, &str)]| {
        let links = SimLink::point_to_point("wan", path("rate=100mbit delay=1ms buffer=1000p"));
        let costs = costs.iter().map(|(host, text)| ((*host).to_owned(), text.parse().expect("valid costs")));
        let case = SimCase { costs: costs.collect(), ..case(links, vec![flow(uts(), bulk(4_000_000))]) };
        let result = run(&case);
        assert_eq!(result.flows[0].server.end.status, Status::Ok);
        value(&result.flows[0].server.measures, "goodput") / 1e6
    };
    let free = goodput(&[]);
    let (one, two) = (goodput(&[("server", "receive=1ms")]), goodput(&[("server", "receive=1ms load=0s:2")]));
    println!("{free} Mbit/s, {one} with 1 ms a packet, {two} with 2 ms");
    assert!(free > 60.0 && (8.0..11.8).contains(&one) && (4.0..5.9).contains(&two));
    let nobody = SimCase {
        costs: BTreeMap::from([("nobody".to_owned(), uts_sim::cost::Costs::default())]),
        ..case(SimLink::point_to_point("wan", path("delay=1ms")), vec![flow(uts(), bulk(1000))])
    };
    let error = sim::run(&nobody, &mut ()).expect_err("refused").to_string();
    assert_eq!(error, "costs of nobody: there is no host of this name");
}

/// Raw UDP is fragmented where it does not fit, as kernels do.
#[test]
fn messages_that_are_longer_than_the_path_carries_arrive_in_fragments() {
    let links = SimLink::point_to_point("wan", path("rate=20mbit delay=1ms buffer=100p mtu=1500"));
    let workload =
        Workload::Messages { every: 20 * MS, bytes: 4000, duration: 2 * SECOND, deadline: 150 * MS };
    let result = run(&case(links, vec![flow(udp(), workload)]));
    assert_eq!(value(&result.flows[0].server.measures, "in_time"), 1.0);
    let (_, _, stats) = &result.links[0];
    assert!(stats.delivered >= 300 && stats.dropped_mtu == 0, "three fragments for each of 100: {stats:?}");
}

fn source(name: &str, from: &str, to: &str, json: &str) -> SimSource {
    let [name, from, to] = [name, from, to].map(String::from);
    SimSource { name, from, to, spec: serde_json::from_str(json).expect("a source") }
}

/// Packets of sources arrive at a queue at the same instants whoever else uses it, and others with
/// another seed.
#[test]
fn every_transport_meets_the_same_background_traffic() {
    let met = |transport: TransportSpec, seed: u64| {
        let links = SimLink::point_to_point("wan", path("rate=10mbit delay=5ms buffer=1000p"));
        let workload =
            Workload::Messages { every: 20 * MS, bytes: 100, duration: 2 * SECOND, deadline: 150 * MS };
        let bursts = r#"{"kind": "self-similar", "rate": "2mbit", "hurst": 0.8, "on": "50ms", "off": "50ms",
                         "packet": 777}"#;
        let case = SimCase {
            seed,
            sources: vec![
                source("a", "client", "server", r#"{"kind": "poisson", "rate": "1mbit", "packet": 777}"#),
                source("b", "client", "server", bursts),
            ],
            record: SimRecord { queues: true, ..SimRecord::default() },
            ..case(links, vec![flow(transport, workload)])
        };
        let mut kept = Kept::default();
        let result = sim::run(&case, &mut kept).expect("a valid case");
        assert_eq!(value(&result.flows[0].server.measures, "in_time"), 1.0);
        let arrivals = kept.passages.iter().filter(|(_, direction, passage)| {
            *direction == Direction::Forward && passage.len == 777 && passage.arrived_ns < 2_000_000_000
        });
        (arrivals.map(|(_, _, passage)| passage.arrived_ns).collect::<Vec<_>>(), result.sources)
    };
    let (with_uts, sources) = met(uts(), 4);
    assert_eq!(with_uts, met(udp(), 4).0);
    assert_ne!(with_uts, met(uts(), 5).0);
    assert!(sources.iter().all(|source| source.sent > 100 && source.received > source.sent - 20));
}

/// Two senders into one gateway: each of them sends at 0.8 of its rate, so that five eighths of
/// what comes pass. What is sent the other way takes nothing of it.
#[test]
fn senders_share_a_gateway_and_what_goes_elsewhere_does_not() {
    let constant = r#"{"kind": "constant", "rate": "8mbit", "packet": 1250, "start": "1s", "stop": "11s"}"#;
    let links = || {
        SimLink::chain(vec![
            ("near".into(), path("rate=100mbit delay=1ms buffer=100p")),
            ("far".into(), path("rate=10mbit delay=1ms buffer=20p")),
        ])
    };
    let received = |to_second: [&str; 2]| {
        let workload =
            Workload::Messages { every: 200 * MS, bytes: 50, duration: 12 * SECOND, deadline: 150 * MS };
        let [from, to] = to_second;
        let case = SimCase {
            sources: vec![source("a", "client", "server", constant), source("b", from, to, constant)],
            ..case(links(), vec![flow(udp(), workload)])
        };
        run(&case).sources
    };
    let shared = received(["router1", "server"]);
    assert_eq!(shared.iter().map(|source| source.sent).collect::<Vec<_>>(), [8000, 8000]);
    let passed: u64 = shared.iter().map(|source| source.received).sum();
    println!("{passed} of 16000 packets passed, of 10 s at 1000 a second, and 20 in the buffer");
    assert!((9990..=10_030).contains(&passed), "{shared:?}");
    let apart = received(["server", "router1"]);
    assert!(apart.iter().all(|source| source.received == 8000), "{apart:?}");
}

#[test]
fn background_traffic_that_makes_no_sense_is_refused() {
    let poisson = r#"{"kind": "poisson", "rate": "1mbit"}"#;
    for (source, expected) in [
        (
            source("x", "nobody", "server", poisson),
            "source x: there is no node nobody; there are client, server",
        ),
        (source("x", "client", "client", poisson), "source x: no way leads from client to client"),
        (
            source("x", "client", "server", r#"{"kind": "poisson", "rate": "1mbit", "hurst": 0.8}"#),
            "source x: hurst: is not for `poisson`, but for self-similar",
        ),
    ] {
        let links = SimLink::point_to_point("wan", path("delay=1ms"));
        let case = SimCase { sources: vec![source], ..case(links, vec![flow(uts(), bulk(1000))]) };
        assert_eq!(sim::run(&case, &mut ()).expect_err("refused").to_string(), expected);
    }
}
