//! Every adapter carries every workload that it can, over loopback.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "an end faces the world: real sockets, real time"
)]

use futures_util::future::join;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::timeout;
use uts_end::clock::MonotonicClock;
use uts_end::transport::by_spec;
use uts_end::{Context, Role, TransportSpec};
use uts_traffic::measure::Sample;
use uts_traffic::run::{self, Outcome, RunError, RunOptions};
use uts_traffic::transport::{Status, Transport};
use uts_traffic::workload::{Arrivals, Size, Workload, can_carry};

/// Far more than any of these takes, on a machine that does much else.
const GIVE_UP: Duration = Duration::from_secs(60);

fn workloads() -> Vec<Workload> {
    let ms = Duration::from_millis;
    vec![
        Workload::Bulk { bytes: Some(3_000_000), duration: None },
        Workload::Bulk { bytes: None, duration: Some(ms(300)) },
        Workload::SlowReader { bytes: 100_000, read_bytes: 5_000, every: ms(1) },
        Workload::Files { count: 9, bytes: 100_000, concurrency: 3 },
        Workload::Requests { count: 40, request_bytes: 100, answer_bytes: 20_000, concurrency: 4 },
        Workload::Messages { every: ms(5), bytes: 160, duration: ms(300), deadline: ms(20_000) },
        Workload::RandomMessages {
            arrivals: Arrivals::Spells { on: ms(40), off: ms(20), shape: Some(1.5) },
            every: ms(5),
            bytes: 160,
            sizes: vec![Size { bytes: 3000, share: 0.2 }],
            duration: ms(300),
            deadline: ms(20_000),
        },
        Workload::Video {
            frames_per_s: 50,
            rate_bps: 4_000_000,
            key_every: 10,
            key_factor: 5.0,
            duration: ms(500),
            deadline: ms(20_000),
        },
        Workload::Keystrokes { count: 20, every: ms(10) },
    ]
}

/// Both ends of a run, and what they saw.
struct Both {
    client: Outcome,
    server: Outcome,
    samples: Vec<Sample>,
    last: Status,
}

impl Both {
    fn value(&self, name: &str) -> Option<f64> {
        let all = self.client.measures.iter().chain(&self.server.measures);
        let found: Vec<f64> = all.filter(|m| m.name == name).map(|m| m.value).collect();
        assert!(found.len() <= 1, "{name} comes from both ends");
        found.first().copied()
    }
}

fn transport(spec: &TransportSpec, role: Role, workload: &Workload, peer: Option<&str>) -> Rc<dyn Transport> {
    by_spec(spec, &Context { role, workload, peer }).expect("a transport")
}

/// Runs both ends on one thread.
fn run_both(spec: &TransportSpec, workload: &Workload) -> Both {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let server = transport(spec, Role::Server, workload, None);
        let capabilities = server.capabilities();
        let options =
            RunOptions { capabilities, seed: 7, give_up: GIVE_UP, sample_every: Duration::from_millis(5) };
        let mut listener = server.listen("127.0.0.1:0".parse().expect("an address")).await.expect("listens");
        let (address, identity) = (listener.address(), server.identity());
        let client = transport(spec, Role::Client, workload, identity.as_deref());
        let samples = RefCell::new(Vec::new());
        let clock = MonotonicClock::new().expect("a clock");
        let serving = async {
            let session = listener.accept().await.expect("a session");
            let outcome = run::serve(workload, &*session, &clock, &options, &samples).await;
            session.close().await;
            outcome
        };
        let driving = async {
            let session = client.connect(address).await.expect("connects");
            let work = run::drive(workload, &*session, &clock, &options, &samples);
            let watch = run::watch(&*session, &clock, options.sample_every, &samples);
            let outcome = tokio::select! { outcome = work => outcome, () = watch => unreachable!() };
            run::sample_now(&*session, &clock, &samples);
            let last = session.status().expect("a status");
            session.close().await;
            (outcome, last)
        };
        let ended = timeout(2 * GIVE_UP, join(serving, driving)).await;
        let (server, (client, last)) = ended.expect("both end");
        let (server, client) = (server.expect("served"), client.expect("driven"));
        Both { client, server, samples: samples.into_inner(), last }
    })
}

/// True if this user may have this congestion control.
fn is_allowed(congestion: &str) -> bool {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_tcp_congestion(congestion.as_bytes()).is_ok()
}

fn check_all(spec: &TransportSpec) {
    let mut carried = 0;
    for workload in workloads() {
        let capabilities = transport(spec, Role::Server, &workload, None).capabilities();
        if can_carry(&workload, &capabilities).is_err() {
            continue;
        }
        carried += 1;
        let both = run_both(spec, &workload);
        check(&format!("{spec}, {}", workload.kind()), &workload, &both, capabilities.streams);
    }
    assert_eq!(carried, if spec.kind == "udp" { 4 } else { 9 }, "{spec}");
}

fn check(what: &str, workload: &Workload, both: &Both, is_reliable: bool) {
    assert_eq!((&both.client.cut_short, &both.server.cut_short), (&None, &None), "{what}");
    let value = |name: &str| both.value(name).unwrap_or_else(|| panic!("{what}: {name} is missing"));
    let latencies =
        both.samples.iter().filter(|s| matches!(s, Sample::Latency { took: Some(_), .. })).count();
    match workload {
        Workload::Bulk { bytes: Some(bytes), .. } => {
            assert_eq!(value("delivered"), *bytes as f64, "{what}");
            let (goodput, took) = (value("goodput"), value("completion"));
            assert!((goodput * took / 8.0 / *bytes as f64 - 1.0).abs() < 1e-6, "{what}: {goodput} {took}");
            assert!(both.samples.iter().any(|s| matches!(s, Sample::Delivered { .. })), "{what}");
        }
        Workload::SlowReader { bytes, .. } => {
            assert_eq!(value("delivered"), *bytes as f64, "{what}");
            // Twenty readings, each but the last followed by a millisecond.
            assert!(value("completion") >= 0.019, "{what}: {}", value("completion"));
        }
        Workload::Bulk { bytes: None, .. } => {
            assert!(value("delivered") > 100_000.0, "{what}");
            assert!((value("goodput") * 0.3 / 8.0 / value("delivered") - 1.0).abs() < 1e-6, "{what}");
        }
        Workload::Files { count, bytes, .. } => {
            assert_eq!(value("files"), f64::from(*count), "{what}");
            assert_eq!(value("delivered"), f64::from(*count) * *bytes as f64, "{what}");
            assert_eq!(latencies, *count as usize, "{what}");
        }
        Workload::Requests { count, .. } => {
            assert_eq!(
                (value("answered"), value("served")),
                (f64::from(*count), f64::from(*count)),
                "{what}"
            );
            assert!(value("request_p99") >= value("request_p50") && value("request_p50") > 0.0, "{what}");
            assert_eq!(latencies, *count as usize, "{what}");
        }
        Workload::Messages { .. } | Workload::RandomMessages { .. } | Workload::Video { .. } => {
            let due = value("due");
            match workload.kind() {
                "video" => assert_eq!(due, 25.0, "{what}"),
                "messages" => assert_eq!(due, 60.0, "{what}"),
                // Silences leave some out, and both ends know which.
                _ => assert!((2.0..60.0).contains(&due), "{what}: {due}"),
            }
            let in_time = value("in_time");
            // Nothing is lost on loopback, unless a buffer overflows.
            assert!(in_time == 1.0 || !is_reliable && in_time > 0.8, "{what}: {in_time}");
            assert!(value("latency_p50") > 0.0, "{what}");
        }
        Workload::Keystrokes { count, .. } => {
            assert_eq!(value("typed"), f64::from(*count), "{what}");
            assert!(value("missing") == 0.0 || !is_reliable && value("missing") < 5.0, "{what}");
            assert!(value("echo_p99") > 0.0, "{what}");
        }
    }
    assert!(both.last.sent_packets.is_some_and(|n| n > 0), "{what}: {:?}", both.last);
}

fn tcp(congestion: &str) -> TransportSpec {
    TransportSpec::new("tcp").with("congestion", congestion)
}

fn check_tcp(congestion: &str) {
    if !is_allowed(congestion) {
        return eprintln!("skipped: {congestion} is not in net.ipv4.tcp_allowed_congestion_control");
    }
    check_all(&tcp(congestion));
}

#[test]
fn tcp_cubic_carries_all() {
    check_tcp("cubic");
}

#[test]
fn tcp_bbr_carries_all() {
    check_tcp("bbr");
}

#[test]
fn tcp_reno_carries_all() {
    check_tcp("reno");
}

#[test]
fn mptcp_carries_all() {
    let spec = TransportSpec::new("mptcp").with("congestion", "reno");
    let protocol = Some(socket2::Protocol::MPTCP);
    if socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, protocol).is_err() {
        return eprintln!("skipped: this kernel has no MPTCP, or net.mptcp.enabled is 0");
    }
    check_all(&spec);
}

#[test]
fn udp_carries_messages() {
    check_all(&TransportSpec::new("udp"));
}

#[test]
fn uts_carries_all() {
    check_all(&TransportSpec::new("uts"));
}

#[test]
fn uts_with_mechanisms_by_hand_carries_all() {
    let profile = serde_json::json!({"congestion": "new-reno", "fec": "none"});
    check_all(&TransportSpec::new("uts").with("profile", profile).with("adaptive", false));
}

#[test]
fn a_wrong_seed_is_noticed() {
    let workload = Workload::Bulk { bytes: Some(10_000), duration: None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let server = transport(&tcp("reno"), Role::Server, &workload, None);
        let mut listener = server.listen("127.0.0.1:0".parse().expect("an address")).await.expect("listens");
        let client = transport(&tcp("reno"), Role::Client, &workload, None);
        let clock = MonotonicClock::new().expect("a clock");
        let options = |seed| RunOptions {
            capabilities: server.capabilities(),
            seed,
            give_up: GIVE_UP,
            sample_every: Duration::from_millis(5),
        };
        let (theirs, ours) = (options(1), options(2));
        let address = listener.address();
        let serving = async {
            let session = listener.accept().await.expect("a session");
            run::serve(&workload, &*session, &clock, &theirs, &()).await
        };
        let driving = async {
            let session = client.connect(address).await.expect("connects");
            run::drive(&workload, &*session, &clock, &ours, &()).await
        };
        let (served, driven) = join(serving, driving).await;
        assert!(matches!(&served, Err(RunError::Content(why)) if why.contains("seed 1")), "{served:?}");
        assert!(driven.expect("an outcome").cut_short.is_some(), "the client learns that the server left");
    });
}

#[test]
fn bad_specs_are_explained() {
    let workload = Workload::Bulk { bytes: Some(1), duration: None };
    let refused = |spec: TransportSpec| {
        let made = by_spec(&spec, &Context { role: Role::Client, workload: &workload, peer: None });
        made.err().unwrap_or_else(|| panic!("{spec} was taken"))
    };
    let cases = [
        (TransportSpec::new("sctp"), "there is no transport `sctp`; there are tcp, mptcp, udp, uts"),
        (tcp("cubic").with("window", "wide"), "tcp: window: `wide` is not a size"),
        (tcp("cubic").with("window", 7), "tcp: window: 7 bytes are not between"),
        (tcp("a name that is too long"), "tcp: congestion: `a name that is too long` is no name"),
        (tcp("cubic").with("windows", 7), "tcp: unknown field `windows`"),
        (TransportSpec::new("udp").with("message", 7), "udp: message: 7 bytes are not between"),
        (
            TransportSpec::new("uts").with("properties", serde_json::json!({"reliabilty": "avoid"})),
            "uts: properties: there is no property `reliabilty`; did you mean `reliability`?",
        ),
        (
            TransportSpec::new("uts").with("profile", serde_json::json!({"congestion": "cubik"})),
            "uts: properties: uts.profile.congestion: `cubik` cannot be used",
        ),
        (
            TransportSpec::new("uts").with("requirements", "media"),
            "uts: requirements: timely and media need deadlines",
        ),
    ];
    for (spec, expected) in cases {
        let why = refused(spec);
        assert!(why.starts_with(expected), "{why}");
    }
}
