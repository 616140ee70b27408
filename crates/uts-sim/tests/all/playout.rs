//! Playout, end to end and in virtual time: messages come in the pace in which they were made, the
//! delay is changed without a gap, and a sender that lies is held to the delay.

use crate::one_client::{CLIENT, OneClient, SERVER, with};
use core::time::Duration;
use uts_engine::{
    ConnectionConfig, Direction, Event, ExchangeEvent, FlowId, FlowOptions, Made, MessageOptions, Read,
    ReadError, Timing,
};
use uts_functions::{Function, Time};

const EVERY: Duration = Duration::from_millis(20);

/// A message that was read.
#[derive(Clone, Copy, Debug)]
struct Played {
    number: u64,
    at: Time,
    made: Time,
    timing: Timing,
}

/// A client that sends a message each 20 ms to a server.
struct Stream {
    ends: OneClient,
    flow: FlowId,
    made: Vec<Time>,
    played: Vec<Played>,
    missing: u64,
    next_at: Time,
    bytes: usize,
    ended: Option<Time>,
    /// What was expected of exchanges that the sender asked for, and when.
    expected: Vec<(Time, String)>,
}

fn config(properties: &[&str]) -> ConnectionConfig {
    with(ConnectionConfig::default(), properties, &["preserveMsgBoundaries=require"])
}

impl Stream {
    fn new(path: &str, client: &[&str], seed: u64) -> Self {
        let clean = "rate=20mbit delay=20ms";
        let ends = OneClient::connected(clean, config(client), config(&[]), seed);
        let (next_at, made, played) = (ends.world.now(), Vec::new(), Vec::new());
        let mut stream = Stream {
            ends,
            flow: FlowId(0),
            made,
            played,
            missing: 0,
            next_at,
            bytes: 160,
            ended: None,
            expected: Vec::new(),
        };
        stream.ends.set_path(path);
        stream.flow = stream.ends.at(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
        stream
    }

    fn delay_agreed(&mut self) -> String {
        self.ends.at(CLIENT).profile(Direction::Out).expect("connected").describe(Function::Playout)
    }

    /// The client asks for something else.
    fn ask(&mut self, properties: &[&str]) {
        let now = self.ends.world.now();
        let requirements = config(properties).requirements;
        self.ends.at(CLIENT).set_requirements(now, requirements).expect("it may change");
    }

    fn send(&mut self, age: Duration) {
        let now = self.ends.world.now();
        let mut message = vec![7; self.bytes];
        message[..8].copy_from_slice(&(self.made.len() as u64).to_be_bytes());
        let options = MessageOptions { made: Made::Before(age), ..MessageOptions::default() };
        let flow = self.flow;
        self.ends.at(CLIENT).send_message(now, flow, message.into(), options).expect("room");
        self.made.push(now);
    }

    fn read(&mut self) {
        let (now, flow) = (self.ends.world.now(), self.flow);
        loop {
            match self.ends.at(SERVER).read(now, flow, 1 << 20) {
                Ok(Read::Timed { message, timing }) => {
                    let number = u64::from_be_bytes(message[..8].try_into().expect("a number"));
                    let made = self.made[number as usize];
                    self.played.push(Played { number, at: now, made, timing });
                }
                Ok(Read::Missing { positions }) => {
                    self.missing += positions / (self.bytes as u64 + 1);
                }
                Ok(Read::Message(_)) => {}
                Ok(Read::End) => self.ended = Some(now),
                Ok(other) => panic!("{other:?}"),
                Err(ReadError::Blocked | ReadError::Unknown) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Sends messages until then, each `age` old, and reads what is told to be there.
    fn run(&mut self, duration: Duration, mut age: impl FnMut(u64) -> Duration) {
        let until = self.ends.world.now() + duration;
        while self.ends.world.now() < until {
            match self.ends.next(self.next_at.min(until)) {
                Some(happening) => match happening.event {
                    Event::Readable(_) if happening.node == SERVER => self.read(),
                    Event::Exchange(step) if happening.node == CLIENT => {
                        if let ExchangeEvent::Requested { expects, .. } = *step {
                            self.expected.push((self.ends.world.now(), expects));
                        }
                    }
                    Event::Closed(reason) => panic!("at {}: {reason}", happening.node),
                    _ => {}
                },
                None if self.ends.world.now() >= self.next_at => {
                    self.send(age(self.made.len() as u64));
                    self.next_at += EVERY;
                }
                None => {}
            }
        }
    }

    fn pass(&mut self, duration: Duration) {
        self.next_at = Time::NEVER;
        self.run(duration, |_| Duration::ZERO);
    }

    /// Mean delay of what came in time, in milliseconds, of messages from `from` on.
    fn mean_ms(&self, from: usize) -> f64 {
        let delays: Vec<f64> =
            self.played.iter().skip(from).map(|p| p.at.since(p.made).as_secs_f64() * 1e3).collect();
        delays.iter().sum::<f64>() / delays.len().max(1) as f64
    }

    fn longest_pause(&self, from: Time) -> Duration {
        let later: Vec<Time> = self.played.iter().map(|p| p.at).filter(|at| *at >= from).collect();
        later.windows(2).map(|two| two[1].since(two[0])).max().expect("several")
    }
}

const JITTERY: &str = "rate=20mbit delay=20ms jitter=15ms";

const MEDIA: [&str; 3] =
    ["reliability=no-preference", "preserveOrder=no-preference", "connCapacityProfile=constant-rate"];

fn with_delay(delay: &'static str) -> Vec<&'static str> {
    [&MEDIA[..], &[delay]].concat()
}

#[test]
fn messages_come_in_the_pace_in_which_they_were_made() {
    for seed in 1..4 {
        let mut stream = Stream::new(JITTERY, &with_delay("uts.playoutDelay=60ms"), seed);
        assert_eq!(stream.delay_agreed(), "fixed(delay=60)");
        stream.run(Duration::from_secs(20), |_| Duration::ZERO);
        let uneven = stream.played.windows(2).filter(|two| {
            let distance = two[1].at.since(two[0].at);
            distance.abs_diff(EVERY) > Duration::from_millis(2)
        });
        let (uneven, all) = (uneven.count(), stream.played.len());
        println!("seed {seed}: {uneven} of {all}, mean {:.1} ms", stream.mean_ms(0));
        assert!(all > 980 && uneven * 20 < all, "seed {seed}: {uneven} of {all}");
        // The quickest way is 20 ms, and what lies beyond a packet's own time.
        assert!((78.0..90.0).contains(&stream.mean_ms(0)), "{}", stream.mean_ms(0));
        assert_eq!(stream.ends.at(SERVER).stats().messages_late, 0);
    }
}

/// A change is an exchange of parameters: nothing is lost, and what is shown goes at least at four
/// fifths of its pace.
#[test]
fn the_delay_is_changed_in_mid_stream_without_a_gap() {
    let (short, long) = ("uts.playoutDelay=60ms", "uts.playoutDelay=300ms");
    for (first, second, ms) in [(short, long, 300.0), (long, short, 60.0)] {
        let mut stream = Stream::new(JITTERY, &with_delay(first), 5);
        stream.run(Duration::from_secs(5), |_| Duration::ZERO);
        let changed_at = stream.ends.world.now();
        stream.ask(&with_delay(second));
        stream.run(Duration::from_secs(10), |_| Duration::ZERO);
        let (pause, count) = (stream.longest_pause(changed_at), stream.played.len());
        stream.pass(Duration::from_secs(1));
        assert_eq!(stream.delay_agreed(), format!("fixed(delay={ms})"));
        println!(
            "{first} to {second}: pause {pause:?}, mean at the end {:.1} ms",
            stream.mean_ms(count - 50)
        );
        assert_eq!((stream.played.len(), stream.missing), (stream.made.len(), 0));
        assert!(pause <= Duration::from_millis(29), "{first} to {second}: {pause:?}");
        let mean = stream.mean_ms(count - 50);
        assert!((mean - ms - 23.0).abs() < 12.0, "{first} to {second}: {mean} ms");
    }
}

/// A path that is calm, rough, and calm again: the delay follows.
#[test]
fn an_adaptive_delay_follows_the_path() {
    let properties = [
        "reliability=no-preference",
        "preserveOrder=no-preference",
        "connCapacityProfile=low-latency-interactive",
        "uts.playoutDelay=400ms",
    ];
    for seed in 1..4 {
        let mut stream = Stream::new("rate=20mbit delay=20ms jitter=2ms", &properties, seed);
        assert!(stream.delay_agreed().starts_with("adaptive(max=400"), "{}", stream.delay_agreed());
        let mut means = Vec::new();
        for path in ["jitter=2ms", "jitter=60ms", "jitter=2ms"] {
            stream.ends.set_path(&format!("rate=20mbit delay=20ms {path}"));
            stream.run(Duration::from_secs(25), |_| Duration::ZERO);
            means.push(stream.mean_ms(stream.played.len() - 200));
        }
        let share = stream.played.len() as f64 / stream.made.len() as f64;
        println!("seed {seed}: {means:.1?} ms, {share:.4} in time");
        assert!(share > 0.98, "seed {seed}: {share}");
        assert!(means[0] < 35.0 && means[2] < 40.0 && means[1] > 50.0, "seed {seed}: {means:?}");
        let figures = stream.ends.at(SERVER).playout(FlowId(0)).expect("it plays");
        assert!(figures.delay < Duration::from_millis(20) && figures.in_time > 3000, "{figures:?}");
    }
}

/// Losses that nothing repairs are told in their places, also those that come too late.
#[test]
fn what_is_lost_is_missing_where_it_would_have_come() {
    let mut properties = with_delay("uts.playoutDelay=80ms");
    properties[0] = "reliability=prohibit";
    let mut stream = Stream::new("rate=20mbit delay=20ms jitter=10ms loss=0.05", &properties, 3);
    stream.run(Duration::from_secs(20), |_| Duration::ZERO);
    stream.pass(Duration::from_secs(1));
    let (all, played, missing) = (stream.made.len() as u64, stream.played.len() as u64, stream.missing);
    println!("{played} of {all}, {missing} missing");
    let last = stream.played.last().expect("some").number + 1;
    assert_eq!(played + missing, last, "each is played or told");
    assert!(missing > all / 40, "{missing}");
    let numbers: Vec<u64> = stream.played.iter().map(|p| p.number).collect();
    assert!(numbers.is_sorted());
}

/// Where all has to arrive, what is late is handed over late, and nothing is missing.
#[test]
fn where_all_has_to_arrive_late_messages_come_late() {
    let properties = ["uts.playoutDelay=30ms"];
    let mut stream = Stream::new("rate=20mbit delay=20ms loss=0.05", &properties, 4);
    assert_eq!(stream.delay_agreed(), "fixed(delay=30,late=1)");
    stream.run(Duration::from_secs(20), |_| Duration::ZERO);
    let flow = stream.flow;
    stream.ends.at(CLIENT).finish(flow);
    stream.pass(Duration::from_secs(3));
    assert_eq!(stream.played.len(), stream.made.len());
    assert!(stream.ended.is_some(), "the end is told behind the last");
    let late = stream.played.iter().filter(|p| p.timing.is_late).count() as u64;
    assert!(late > 20 && late == stream.ends.at(SERVER).stats().messages_late, "{late}");
    assert!(stream.played.is_sorted_by_key(|p| p.number));
}

/// A connection that ends takes nothing with it that has arrived.
#[test]
fn what_waits_can_be_read_when_the_connection_has_ended() {
    let mut stream = Stream::new("rate=20mbit delay=20ms", &with_delay("uts.playoutDelay=2s"), 9);
    stream.run(Duration::from_millis(500), |_| Duration::ZERO);
    stream.pass(Duration::from_millis(100));
    assert!(stream.played.is_empty() && stream.made.len() > 20);
    let now = stream.ends.world.now();
    stream.ends.at(SERVER).close(now, 0, "");
    loop {
        match stream.ends.at(SERVER).read(now, FlowId(0), 1 << 20) {
            Ok(Read::Timed { .. }) => stream.missing += 1,
            Err(ReadError::Closed(_)) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(stream.missing, stream.made.len() as u64);
}

/// Media times that lie: each message is held for the delay at the most, and memory stays bounded.
#[test]
fn a_sender_that_lies_about_its_clock_delays_only_itself() {
    let mut properties = with_delay("uts.playoutDelay=500ms");
    properties.push("uts.profile.playout=fixed(delay=500,late=1)");
    let mut stream = Stream::new("rate=20mbit delay=20ms", &properties, 6);
    let mut state = 12345u64;
    stream.run(Duration::from_secs(60), |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Duration::from_micros(state >> 32)
    });
    stream.pass(Duration::from_secs(2));
    assert_eq!(stream.played.len(), stream.made.len(), "late ones are handed over");
    let longest = stream.played.iter().map(|p| p.at.since(p.made)).max().expect("some");
    assert!(longest < Duration::from_millis(560), "{longest:?}");
}

/// Two exchanges a second, to and fro between all mechanisms: nothing is lost or comes twice.
#[test]
fn exchanges_between_all_mechanisms_lose_nothing() {
    let mut stream = Stream::new(JITTERY, &["uts.playoutDelay=100ms"], 7);
    for n in 0..60 {
        let to = ["none", "fixed(delay=40,late=1)", "adaptive(max=200,late=1)"][n % 3];
        stream.ask(&[&format!("uts.profile.playout={to}")]);
        stream.run(Duration::from_millis(500), |_| Duration::ZERO);
    }
    let flow = stream.flow;
    stream.ends.at(CLIENT).finish(flow);
    stream.pass(Duration::from_secs(2));
    assert!(stream.ended.is_some());
    let received = stream.ends.at(SERVER).stats().data_bytes_received;
    assert_eq!(received, stream.made.len() as u64 * stream.bytes as u64);
}

#[test]
fn a_stream_of_bytes_has_no_playout() {
    let mut requirements = uts_engine::requirements::Requirements::default();
    requirements.set("uts.playoutDelay", "100ms").expect("a time");
    requirements.set("preserveMsgBoundaries", "prohibit").expect("a preference");
    let facts = uts_functions::PathFacts::default();
    let local = uts_engine::selector::Library::offered(&requirements);
    let contradiction = uts_engine::selector::select(&requirements, &facts, &local, None);
    assert!(contradiction.is_err_and(|why| why.rule == "S-23"));
    for bad in ["0", "11s", "-1", "soon"] {
        assert!(requirements.set("uts.playoutDelay", bad).is_err(), "{bad}");
    }
}

/// Time for which the receiver holds messages on purpose is none of the path's: what is expected to
/// be in time is what is there when it is due (selection.md A-17).
#[test]
fn what_waits_for_its_time_is_expected_in_time() {
    let asked = [&with_delay("uts.playoutDelay=120ms")[..], &["msgLifetime=200ms"]].concat();
    let mut told = 0;
    for (one_way_ms, loss, seed) in [(60.0, "3%", 3), (60.0, "5%", 1), (60.0, "2%", 4)] {
        let path = format!("rate=20mbit delay={one_way_ms}ms loss={loss}");
        let mut stream = Stream::new(&path, &asked, seed);
        stream.run(Duration::from_secs(60), |_| Duration::ZERO);
        for (at, expects) in &stream.expected {
            // `within 140 ms 96.83 -> 99.70 %, delay 20.9 -> 20.9 ms`.
            let Some(words) = expects.strip_prefix("within ") else { continue };
            let figures: Vec<f64> = words.split(' ').filter_map(|word| word.parse().ok()).collect();
            let (within_ms, to) = (figures[0], figures[2]);
            let due_ms: f64 = f64::min(one_way_ms + 120.0, 200.0);
            assert!((within_ms - due_ms).abs() < 3.0, "{path}: {expects}");
            let made = stream.made.iter().filter(|made| *made > at).count();
            let came = stream.played.iter().filter(|played| played.made > *at).count();
            let measured = came as f64 / made as f64 * 100.0;
            println!("{path}: {at:?}: {expects}; {measured:.2} % in time from then on");
            assert!(made < 500 || (measured - to).abs() < 2.0, "{path}: {expects}; measured {measured:.2}");
            told += 1;
        }
    }
    assert!(told >= 3, "{told} exchanges");
}
