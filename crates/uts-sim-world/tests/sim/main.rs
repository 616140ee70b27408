//! Cases in virtual time: what transports and workloads do there, that it follows from the seed,
//! and what is reported.

mod background;
mod records;

use std::collections::BTreeMap;
use std::time::Duration;
use uts_end::line::Status;
use uts_end::{Role, TransportSpec};
use uts_engine::TraceRow;
use uts_path::{Applied, Direction, Passage, PathConfig};
use uts_sim::host::SenderState;
use uts_sim_world::{self as sim, Recorder, SimCase, SimFlow, SimLink, SimRecord, SimResult};
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
