//! Every workload in virtual time: figures against closed forms, and every kind of fault.

mod common;

use bytes::Bytes;
use common::{Link, VirtualClock, pair};
use futures_util::future::join;
use std::cell::RefCell;
use std::time::Duration;
use uts_traffic::clock::Clock;
use uts_traffic::measure::Sample;
use uts_traffic::run::{self, CutShort, Outcome, RunError, RunOptions};
use uts_traffic::transport::{Capabilities, Local, Session, Status, Stream, TransportError};
use uts_traffic::workload::{Arrivals, Workload};

const ALL: Capabilities =
    Capabilities { streams: true, messages: true, message_bytes_max: 1 << 20, protected: false };
const DATAGRAMS: Capabilities =
    Capabilities { streams: false, messages: true, message_bytes_max: 1200, protected: false };

const GIVE_UP: Duration = Duration::from_secs(100);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

struct Both {
    client: Outcome,
    server: Outcome,
    samples: Vec<Sample>,
    /// When both had ended.
    at: Duration,
}

impl Both {
    /// A figure, which must come from one end only.
    fn find(&self, name: &str) -> Option<f64> {
        let both = [&self.client.measures, &self.server.measures];
        let found: Vec<f64> =
            both.into_iter().flatten().filter(|m| m.name == name).map(|m| m.value).collect();
        assert!(found.len() <= 1, "{name} comes twice");
        found.first().copied()
    }

    fn value(&self, name: &str) -> f64 {
        self.find(name).unwrap_or_else(|| panic!("{name} is not in {:?} {:?}", self.client, self.server))
    }

    fn assert_value(&self, name: &str, expected: f64) {
        let value = self.value(name);
        assert!(
            (value - expected).abs() <= 1e-6 * expected.abs().max(1e-3),
            "{name} is {value}, not {expected}"
        );
    }

    fn assert_whole(&self) {
        assert_eq!((&self.client.cut_short, &self.server.cut_short), (&None, &None));
    }

    fn latencies(&self) -> Vec<Option<Duration>> {
        let latency = |sample: &Sample| match sample {
            Sample::Latency { took, .. } => Some(*took),
            _ => None,
        };
        self.samples.iter().filter_map(latency).collect()
    }
}

type Ended = (Result<Outcome, RunError>, Result<Outcome, RunError>, Vec<Sample>, Duration);

fn try_both(workload: &Workload, capabilities: Capabilities, there: Link, back: Link) -> Ended {
    let clock = VirtualClock::default();
    let (a, b) = pair(&clock, there, back);
    let options = RunOptions { capabilities, seed: 11, give_up: GIVE_UP, sample_every: ms(10) };
    let samples = RefCell::new(Vec::new());
    let driving = async {
        let outcome = run::drive(workload, &a, &clock, &options, &samples).await;
        a.close().await;
        outcome
    };
    let serving = async {
        let outcome = run::serve(workload, &b, &clock, &options, &samples).await;
        b.close().await;
        outcome
    };
    let (client, server) = clock.run(join(driving, serving));
    (client, server, samples.into_inner(), Duration::from_nanos(clock.now_ns()))
}

fn both(workload: &Workload, capabilities: Capabilities, there: Link, back: Link) -> Both {
    let (client, server, samples, at) = try_both(workload, capabilities, there, back);
    Both { client: client.expect("driven"), server: server.expect("served"), samples, at }
}

fn over(workload: &Workload, capabilities: Capabilities, there: Link) -> Both {
    both(workload, capabilities, there, Link::default())
}

const BULK: Workload = Workload::Bulk { bytes: Some(1_000_000), duration: None };
const FOR_A_TIME: Workload = Workload::Bulk { bytes: None, duration: Some(ms(2000)) };
const SLOW: Workload = Workload::SlowReader { bytes: 100_000, read_bytes: 500, every: ms(10) };
const FILES: Workload = Workload::Files { count: 10, bytes: 10_000, concurrency: 2 };
const MANY_FILES: Workload = Workload::Files { count: 60, bytes: 10_000, concurrency: 2 };
const REQUESTS: Workload =
    Workload::Requests { count: 30, request_bytes: 100, answer_bytes: 5000, concurrency: 1 };
const VOICE: Workload =
    Workload::Messages { every: ms(20), bytes: 160, duration: ms(2000), deadline: ms(50) };
const VIDEO: Workload = Workload::Video {
    frames_per_s: 25,
    rate_bps: 1_000_000,
    key_every: 25,
    key_factor: 5.0,
    duration: ms(2000),
    deadline: ms(100),
};
const KEYS: Workload = Workload::Keystrokes { count: 40, every: ms(50) };

#[test]
fn a_bulk_transfer_takes_as_long_as_the_link() {
    let run = over(&BULK, ALL, Link::default());
    run.assert_whole();
    // The header of 8 bytes goes first.
    run.assert_value("completion", 1.000_008 + 0.010);
    run.assert_value("goodput", 8e6 / 1.010_008);
    run.assert_value("delivered", 1e6);
    run.assert_value("sent", 1e6);
    let delivered: Vec<(u64, u64)> = run
        .samples
        .iter()
        .filter_map(|s| match s {
            Sample::Delivered { at_ns, bytes } => Some((*at_ns, *bytes)),
            _ => None,
        })
        .collect();
    assert!((90..=110).contains(&delivered.len()), "one in 10 ms: {}", delivered.len());
    assert!(delivered.is_sorted(), "{delivered:?}");
    assert_eq!(delivered.last(), Some(&(1_010_008_000, 1_000_000)));
}

#[test]
fn a_bulk_transfer_for_a_time_counts_what_arrived_in_it() {
    let run = over(&FOR_A_TIME, ALL, Link::default());
    run.assert_whole();
    assert_eq!(run.find("completion"), None);
    // In whole packets of 1000 bytes: 1.99 s of the link's rate.
    let delivered = run.value("delivered");
    assert!((1_988_000.0..=1_990_000.0).contains(&delivered), "{delivered}");
    run.assert_value("goodput", delivered * 8.0 / 2.0);
    assert!(run.at < ms(2500), "nobody waits for what does not count: {:?}", run.at);
    // Bytes that all come before the time is over end it.
    let both_bounds = Workload::Bulk { bytes: Some(1_000_000), duration: Some(ms(5000)) };
    let run = over(&both_bounds, ALL, Link::default());
    run.assert_value("completion", 1.010_008);
    assert!(run.at < ms(1100));
}

/// The link has 1 MB a second, the reader takes 500 bytes in 10 ms: 200 readings, the last of which
/// nobody waits for.
#[test]
fn a_slow_reader_takes_as_long_as_it_reads() {
    let run = over(&SLOW, ALL, Link::default());
    run.assert_whole();
    run.assert_value("delivered", 100_000.0);
    assert_eq!(SLOW.lasts(), Some(ms(1990)));
    // After the way of 10 ms, and the first packet with the header before it.
    let completion = run.value("completion");
    assert!((2.0..2.02).contains(&completion), "{completion}");
    run.assert_value("goodput", 8e5 / completion);
}

#[test]
fn files_take_their_turns() {
    let run = over(&FILES, ALL, Link::default());
    run.assert_whole();
    run.assert_value("files", 10.0);
    run.assert_value("delivered", 100_000.0);
    assert_eq!(run.latencies().len(), 10);
    // Two at a time share the link: 10 ms each, then 10 ms on the way.
    assert!((19.9..=31.0).contains(&run.value("file_p50")), "{}", run.value("file_p50"));
    // Alone, each takes the link, and the way there and back before the next begins.
    let alone = Workload::Files { count: 10, bytes: 10_000, concurrency: 1 };
    let run = over(&alone, ALL, Link::default());
    run.assert_value("file_p50", 10.0 + 0.012 + 10.0);
    // The answer of one byte takes 1 us.
    run.assert_value("completion", 10.0 * 0.020_012 + 9.0 * 0.010_001);
}

#[test]
fn requests_take_a_round_trip_and_their_bytes() {
    let run = over(&REQUESTS, ALL, Link::default());
    run.assert_whole();
    run.assert_value("answered", 30.0);
    run.assert_value("served", 30.0);
    // 100 bytes there, 5000 back.
    run.assert_value("request_p50", 0.1 + 10.0 + 5.0 + 10.0);
    run.assert_value("request_max", 25.1 + 0.004);
    run.assert_value("completion", (30.0 * 25.1 + 0.004) / 1e3);
    run.assert_value("requests_per_s", 30.0 / 0.753_004);
    assert_eq!(run.latencies().len(), 30);
    // Several at a time.
    let many = Workload::Requests { count: 100, request_bytes: 1, answer_bytes: 1, concurrency: 10 };
    let run = over(&many, ALL, Link::default());
    run.assert_whole();
    run.assert_value("answered", 100.0);
    assert!(run.value("completion") < 0.25, "{}", run.value("completion"));
}

#[test]
fn voice_counts_what_came_in_time() {
    let clean = over(&VOICE, DATAGRAMS, Link::default());
    clean.assert_whole();
    for (name, expected) in
        [("due", 100.0), ("in_time", 1.0), ("late", 0.0), ("missing", 0.0), ("wasted", 0.0)]
    {
        clean.assert_value(name, expected);
    }
    clean.assert_value("latency_p50", 10.16);
    clean.assert_value("goodput", 100.0 * 160.0 * 8.0 / 2.0);
    let faulty = Link {
        lost: |n| n % 10 == 3,
        late: |n| if n % 25 == 0 { ms(200) } else { ms(0) },
        ..Link::default()
    };
    let run = over(&VOICE, DATAGRAMS, faulty);
    run.assert_whole();
    for (name, expected) in [("in_time", 0.86), ("late", 4.0), ("missing", 10.0), ("wasted", 640.0)] {
        run.assert_value(name, expected);
    }
    run.assert_value("latency_max", 210.16);
    let latencies = run.latencies();
    assert_eq!(latencies.iter().filter(|took| took.is_none()).count(), 10);
    assert_eq!(latencies.len(), 100);
}

#[test]
fn messages_that_come_twice_count_once() {
    let run = over(&VOICE, DATAGRAMS, Link { duplicates: true, ..Link::default() });
    run.assert_whole();
    run.assert_value("in_time", 1.0);
    run.assert_value("goodput", 64_000.0);
}

#[test]
fn a_receiver_learns_that_the_rest_is_lost() {
    // The last ones are lost; that the sender closed says that they will not come.
    let run = over(&VOICE, DATAGRAMS, Link { lost: |n| n >= 90, ..Link::default() });
    run.assert_whole();
    run.assert_value("missing", 10.0);
    assert!(run.at < ms(2500), "{:?}", run.at);
}

#[test]
fn what_is_out_of_date_is_not_sent() {
    // Half of the rate that is needed: 8000 bytes each 20 ms, at 200 kB/s.
    let large = Workload::Messages { every: ms(20), bytes: 8000, duration: ms(2000), deadline: ms(100) };
    let slow = Link { bytes_per_s: 200_000, buffer_bytes: 8000, ..Link::default() };
    let run = over(&large, ALL, slow);
    run.assert_whole();
    let (skipped, in_time) = (run.value("skipped"), run.value("in_time") * 100.0);
    assert!((40.0..=55.0).contains(&skipped), "{skipped}");
    assert_eq!(skipped + in_time + run.value("late"), 100.0);
    assert_eq!(run.value("missing"), skipped);
}

#[test]
fn frames_are_of_use_when_whole() {
    let clean = over(&VIDEO, DATAGRAMS, Link::default());
    clean.assert_whole();
    clean.assert_value("due", 50.0);
    clean.assert_value("in_time", 1.0);
    // A group of 25 frames has 29 parts of 1 Mbit, the key frame five of them.
    let other_bytes = (1e6f64 / 8.0 / 29.0).round();
    clean.assert_value("latency_p50", 10.0 + other_bytes / 1e3);
    clean.assert_value("latency_max", 10.0 + (1e6f64 / 8.0 / 29.0 * 5.0).round() / 1e3);
    let goodput = clean.value("goodput");
    assert!((goodput / 1e6 - 1.0).abs() < 0.001, "{goodput}");
    // One piece of one frame is lost: the whole frame is of no use, and what came of it wasted.
    let run = over(&VIDEO, DATAGRAMS, Link { lost: |n| n == 40, ..Link::default() });
    run.assert_value("missing", 1.0);
    run.assert_value("in_time", 0.98);
    let pieces = (other_bytes / 1200.0).ceil();
    let wasted = run.value("wasted");
    assert!((wasted - other_bytes * (pieces - 1.0) / pieces).abs() < 2.0, "{wasted}");
    // Where messages may be large, a frame is one.
    let whole = over(&VIDEO, ALL, Link { lost: |n| n == 40, ..Link::default() });
    whole.assert_value("missing", 1.0);
    whole.assert_value("wasted", 0.0);
}

/// Both ends know from the seed what is due when, so that what is missing is known.
#[test]
fn random_messages_are_due_when_both_ends_say() {
    let every = ms(20);
    let spells = Arrivals::Spells { on: ms(100), off: ms(300), shape: Some(1.5) };
    for arrivals in [Arrivals::Poisson, spells] {
        let (sizes, duration, deadline) = (Vec::new(), ms(2000), ms(50));
        let random = Workload::RandomMessages { arrivals, every, bytes: 160, sizes, duration, deadline };
        let lossy = Link { lost: |n| n % 10 == 3, ..Link::default() };
        let run = over(&random, DATAGRAMS, lossy);
        run.assert_whole();
        let due = run.value("due");
        assert!((5.0..140.0).contains(&due) && due != 100.0, "{due}, seed 11");
        run.assert_value("sent", 160.0 * due);
        run.assert_value("missing", ((due + 6.0) / 10.0).floor());
        run.assert_value("late", 0.0);
    }
}

#[test]
fn keystrokes_are_echoed() {
    for capabilities in [ALL, DATAGRAMS] {
        let run = over(&KEYS, capabilities, Link::default());
        run.assert_whole();
        run.assert_value("typed", 40.0);
        run.assert_value("echoed", 40.0);
        run.assert_value("missing", 0.0);
        run.assert_value("echo_p50", 20.072);
    }
    let run = over(&KEYS, DATAGRAMS, Link { lost: |n| n % 8 == 7, ..Link::default() });
    run.assert_whole();
    run.assert_value("missing", 5.0);
    run.assert_value("echoed", 35.0);
    assert_eq!(run.latencies().iter().filter(|took| took.is_none()).count(), 5);
}

#[test]
fn keystrokes_come_at_a_persons_pace() {
    let many = Workload::Keystrokes { count: 2000, every: ms(50) };
    let run = over(&many, ALL, Link::default());
    let at: Vec<u64> = run
        .samples
        .iter()
        .filter_map(|s| match s {
            Sample::Latency { at_ns, .. } => Some(*at_ns),
            _ => None,
        })
        .collect();
    let gaps: Vec<f64> = at.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e6).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let deviation = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
    // Of an exponential distribution both are 50 ms; five standard errors of 2000 draws.
    assert!((mean - 50.0).abs() < 5.6 && (deviation - 50.0).abs() < 8.0, "{mean} {deviation}, seed 11");
}

#[test]
fn a_stalled_transport_yields_what_there_is() {
    for workload in [BULK, MANY_FILES, REQUESTS, VOICE, VIDEO, KEYS] {
        let kind = workload.kind();
        let stalled = Link { stalls_at: Some(ms(300)), ..Link::default() };
        // Keystrokes over datagrams end by themselves, so streams are tried.
        let run = both(&workload, ALL, stalled.clone(), stalled);
        let gave_up = Some(CutShort::GaveUp(GIVE_UP));
        assert_eq!(run.client.cut_short, gave_up, "{kind}");
        match workload {
            Workload::Messages { .. } | Workload::RandomMessages { .. } | Workload::Video { .. } => {
                let in_time = run.value("in_time");
                assert!((0.05..0.5).contains(&in_time), "{kind}: {in_time}");
            }
            Workload::Bulk { .. } => {
                assert_eq!(run.server.cut_short, gave_up);
                let delivered = run.value("delivered");
                // What had left by then, and what waited in the buffer.
                assert!((300_000.0..=402_000.0).contains(&delivered), "{delivered}");
                run.assert_value("goodput", delivered * 8.0 / 100.0);
                assert_eq!(run.find("completion"), None);
            }
            Workload::SlowReader { .. } => unreachable!("not among them"),
            Workload::Files { .. } => {
                assert!(run.value("files") > 0.0 && run.find("completion").is_none(), "{kind}");
            }
            Workload::Requests { .. } => {
                assert!((1.0..30.0).contains(&run.value("answered")), "{kind}");
                assert_eq!(run.latencies().iter().filter(|took| took.is_none()).count(), 1, "{kind}");
            }
            Workload::Keystrokes { .. } => {
                assert!(run.value("missing") > 0.0 && run.value("missing") < 40.0, "{kind}");
            }
        }
        assert!(run.at >= GIVE_UP && run.at < GIVE_UP + ms(1000), "{kind}: {:?}", run.at);
    }
}

#[test]
fn a_broken_transport_says_why() {
    for workload in [BULK, FOR_A_TIME, MANY_FILES, REQUESTS, VOICE, VIDEO, KEYS] {
        let broken = Link { fails_at: Some(ms(300)), ..Link::default() };
        let run = both(&workload, ALL, broken.clone(), broken);
        let why = run.client.cut_short.as_ref().map(ToString::to_string).unwrap_or_default();
        assert_eq!(why, "the transport failed: the link is broken", "{}", workload.kind());
        assert!(run.at < GIVE_UP, "{}: {:?}", workload.kind(), run.at);
    }
}

#[test]
fn a_server_that_is_gone_is_noticed() {
    let clock = VirtualClock::default();
    let (a, b) = pair(&clock, Link::default(), Link::default());
    let options = RunOptions { capabilities: ALL, seed: 11, give_up: GIVE_UP, sample_every: ms(10) };
    let serving = async {
        let mut stream = b.accept().await.expect("a stream");
        stream.receive.read(&mut [0; 100]).await.expect("read");
    };
    let (outcome, ()) = clock.run(join(run::drive(&BULK, &a, &clock, &options, &()), serving));
    let expected = CutShort::Transport(TransportError::Failed("reset by the peer".into()));
    assert_eq!(outcome.expect("driven").cut_short, Some(expected));
}

#[test]
fn any_wrong_byte_is_an_error() {
    for (workload, capabilities) in [
        (BULK, ALL),
        (FOR_A_TIME, ALL),
        (FILES, ALL),
        (REQUESTS, ALL),
        (VOICE, DATAGRAMS),
        (VIDEO, DATAGRAMS),
        (VIDEO, ALL),
        (KEYS, ALL),
        (KEYS, DATAGRAMS),
    ] {
        for at in [100, 777, 1337] {
            let wrong = Link { wrong_at: Some(at), ..Link::default() };
            let (_, server, ..) = try_both(&workload, capabilities, wrong, Link::default());
            let what = format!("{} {capabilities:?}, byte {at}", workload.kind());
            assert!(matches!(&server, Err(RunError::Content(_))), "{what}: {server:?}");
        }
    }
    // And on the way back.
    for workload in [REQUESTS, KEYS] {
        let wrong = Link { wrong_at: Some(50), ..Link::default() };
        let (client, ..) = try_both(&workload, ALL, Link::default(), wrong);
        assert!(matches!(&client, Err(RunError::Content(_))), "{}: {client:?}", workload.kind());
    }
}

#[test]
fn what_cannot_be_carried_is_refused() {
    let (client, server, ..) = try_both(&BULK, DATAGRAMS, Link::default(), Link::default());
    let why = RunError::Workload("bulk needs reliable streams, and the transport has none".into());
    assert_eq!((client, server), (Err(why.clone()), Err(why)));
    let nonsense = Workload::Bulk { bytes: None, duration: None };
    let (client, ..) = try_both(&nonsense, ALL, Link::default(), Link::default());
    assert_eq!(client, Err(RunError::Workload("bytes: say how many, or give a duration".into())));
}

#[test]
fn a_transport_is_watched() {
    let clock = VirtualClock::default();
    let samples = RefCell::new(Vec::new());
    let told = Told(Default::default());
    let watch = run::watch(&told, &clock, ms(10), &samples);
    let rest = clock.sleep_until(95_000_000);
    clock.run(futures_util::future::select(Box::pin(watch), rest));
    let samples = samples.into_inner();
    let status = samples.iter().filter(|s| matches!(s, Sample::Status { window_bytes: Some(7), .. })).count();
    let exchanges = samples.iter().filter(|s| matches!(s, Sample::Exchange { .. })).count();
    assert_eq!((status, exchanges), (10, 1), "{samples:?}");
}

/// Tells of itself, and does nothing else.
struct Told(std::cell::Cell<bool>);

impl Session for Told {
    fn open(&self) -> Local<'_, Result<Stream, TransportError>> {
        Box::pin(async { Err(TransportError::Closed) })
    }

    fn accept(&self) -> Local<'_, Result<Stream, TransportError>> {
        self.open()
    }

    fn send_message(&self, _: Bytes, _: Option<Duration>) -> Local<'_, Result<(), TransportError>> {
        Box::pin(async { Err(TransportError::Closed) })
    }

    fn receive_message(&self) -> Local<'_, Result<Bytes, TransportError>> {
        Box::pin(async { Err(TransportError::Closed) })
    }

    fn status(&self) -> Option<Status> {
        Some(Status { window_bytes: Some(7), ..Default::default() })
    }

    fn take_samples(&self) -> Vec<Sample> {
        let first = !self.0.replace(true);
        first.then(|| Sample::Exchange { at_ns: 0, line: "something".into() }).into_iter().collect()
    }

    fn close(&self) -> Local<'_, ()> {
        Box::pin(async {})
    }
}
