//! The rate that an application may send at, and the levels that it chooses by it: they fall when
//! the path becomes narrow, at once, and return when it is wide again.

use crate::one_client::{CLIENT, OneClient, SERVER, with};
use core::time::Duration;
use uts_engine::levels::{Level, Levels};
use uts_engine::{ConnectionConfig, Event, FlowId, FlowOptions, MessageOptions, Read};
use uts_functions::{Rate, Time};

const EVERY: Duration = Duration::from_millis(20);

const PROPERTIES: [&str; 5] = [
    "preserveMsgBoundaries=require",
    "connCapacityProfile=low-latency-non-interactive",
    "reliability=prefer",
    "uts.degradation=reliability",
    "msgLifetime=200ms",
];

/// An encoder that follows the levels, and what it was told.
struct Call {
    ends: OneClient,
    flow: FlowId,
    levels: Levels,
    /// Levels with the instants from which on they were in use.
    history: Vec<(f64, usize)>,
    hints: Vec<(f64, f64)>,
    sent: u64,
    received: u64,
    next_at: Time,
}

impl Call {
    fn new(path: &str, kbit: &[u64], seed: u64) -> Call {
        let level = |kbit: &u64| Level {
            name: format!("{kbit} kbit/s"),
            rate: Rate::from_bits_per_sec(kbit * 1000),
            loss: 1.0,
        };
        let levels = Levels::new(kbit.iter().map(level).collect()).expect("in order");
        let config = |properties| with(ConnectionConfig::default(), properties, &[]);
        let mut ends = OneClient::connected(path, config(&PROPERTIES), config(&PROPERTIES[..1]), seed);
        let next_at = ends.world.now();
        ends.at(CLIENT).want_rate(true);
        let flow = ends.at(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
        let (history, hints) = (Vec::new(), Vec::new());
        Call { ends, flow, levels, history, hints, sent: 0, received: 0, next_at }
    }

    fn level(&self) -> usize {
        self.history.last().map_or(0, |(_, level)| *level)
    }

    fn note(&mut self, level: Option<usize>) {
        if let Some(level) = level {
            self.history.push((self.ends.world.now().as_nanos() as f64 / 1e9, level));
        }
    }

    /// A picture of the level.
    fn send(&mut self) {
        let now = self.ends.world.now();
        let bytes = self.levels.current().rate.bytes_in(EVERY) as usize;
        let flow = self.flow;
        let mut left = bytes;
        while left > 0 {
            let part = left.min(1000);
            let sent =
                self.ends.at(CLIENT).send_message(now, flow, vec![7; part].into(), MessageOptions::default());
            if sent.is_err() {
                break;
            }
            self.sent += part as u64;
            left -= part;
        }
        let level = self.levels.on_time(now);
        self.note(level);
    }

    fn run(&mut self, duration: Duration) {
        let until = self.ends.world.now() + duration;
        while self.ends.world.now() < until {
            let Some(happening) = self.ends.next(self.next_at.min(until)) else {
                if self.ends.world.now() >= self.next_at {
                    self.send();
                    self.next_at += EVERY;
                }
                continue;
            };
            let now = self.ends.world.now();
            match happening.event {
                Event::MaySend(rate) if happening.node == CLIENT => {
                    self.hints.push((now.as_nanos() as f64 / 1e9, rate.bits_per_sec() as f64));
                    let level = self.levels.on_rate(now, rate);
                    self.note(level);
                }
                Event::Readable(flow) if happening.node == SERVER => {
                    while let Ok(Read::Message(data)) = self.ends.at(SERVER).read(now, flow, 1 << 20) {
                        self.received += data.len() as u64;
                    }
                }
                Event::Closed(reason) => panic!("at {}: {reason}", happening.node),
                _ => {}
            }
        }
    }
}

#[test]
fn levels_fall_when_the_path_becomes_narrow_and_return() {
    for seed in 1..=3 {
        let mut call = Call::new("rate=8mbit delay=20ms buffer=40p", &[100, 400, 1500, 4000], seed);
        call.run(Duration::from_secs(40));
        println!("{seed}: {:?}\n{:?}", call.history, call.hints);
        assert_eq!(call.level(), 3, "seed {seed}: the best is reached");
        let begun = call.ends.world.now();
        call.ends.set_path("rate=800kbit");
        call.run(Duration::from_secs(20));
        println!("{seed}: {:?}\n{:?}", call.history, call.hints);
        let fell = call.history.iter().find(|(at, level)| *at > begun.as_nanos() as f64 / 1e9 && *level < 2);
        let took = fell.expect("it falls").0 - begun.as_nanos() as f64 / 1e9;
        assert!(took < 3.0, "seed {seed}: it falls after {took} s");
        assert!(call.level() <= 1, "seed {seed}: {:?}", call.history);
        // What is sent in the narrow path mostly arrives.
        let (sent, received) = (call.sent, call.received);
        call.run(Duration::from_secs(10));
        let share = (call.received - received) as f64 / (call.sent - sent) as f64;
        assert!(share > 0.9, "seed {seed}: {share} arrives");
        call.ends.set_path("rate=8mbit");
        call.run(Duration::from_secs(90));
        println!("{seed}: {:?}\n{:?}", call.history, call.hints);
        assert_eq!(call.level(), 3, "seed {seed}: {:?}", call.history);
    }
}

#[test]
fn a_rate_is_told_seldom_and_only_to_those_who_want_it() {
    let mut call = Call::new("rate=4mbit delay=30ms", &[100, 400], 7);
    call.run(Duration::from_secs(30));
    assert!(!call.hints.is_empty());
    for pair in call.hints.windows(2) {
        let ((at, rate), (next_at, next)) = (pair[0], pair[1]);
        assert!(next_at - at >= 0.1 && (next - rate).abs() > 0.1 * rate, "{pair:?}");
    }
    let before = call.hints.len();
    call.ends.at(CLIENT).want_rate(false);
    call.ends.set_path("rate=500kbit");
    call.run(Duration::from_secs(10));
    assert_eq!(call.hints.len(), before);
    assert!(call.ends.at(CLIENT).may_send().is_some());
}
