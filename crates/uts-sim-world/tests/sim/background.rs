//! Background traffic: who meets it, and what passes.

use super::*;
use uts_sim_world::SimSource;

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
