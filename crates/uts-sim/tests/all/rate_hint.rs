//! The rate that an application may send at, told to an encoder.

use crate::one_client::{CLIENT, OneClient, SERVER, with};
use core::time::Duration;
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

/// An encoder of a fixed rate, and what it was told.
struct Call {
    ends: OneClient,
    flow: FlowId,
    rate: Rate,
    /// Rates in bits per second, by when they were told.
    hints: Vec<(f64, f64)>,
    next_at: Time,
}

impl Call {
    fn new(path: &str, kbit: u64, seed: u64) -> Call {
        let config = |properties| with(ConnectionConfig::default(), properties, &[]);
        let mut ends = OneClient::connected(path, config(&PROPERTIES), config(&PROPERTIES[..1]), seed);
        let next_at = ends.world.now();
        ends.at(CLIENT).want_rate(true);
        let flow = ends.at(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
        Call { ends, flow, rate: Rate::from_bits_per_sec(kbit * 1000), hints: Vec::new(), next_at }
    }

    /// A picture.
    fn send(&mut self) {
        let now = self.ends.world.now();
        let bytes = self.rate.bytes_in(EVERY) as usize;
        let flow = self.flow;
        let mut left = bytes;
        while left > 0 {
            let part = left.min(1000);
            let sent =
                self.ends.at(CLIENT).send_message(now, flow, vec![7; part].into(), MessageOptions::default());
            if sent.is_err() {
                break;
            }
            left -= part;
        }
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
                }
                Event::Readable(flow) if happening.node == SERVER => {
                    while let Ok(Read::Message(_)) = self.ends.at(SERVER).read(now, flow, 1 << 20) {}
                }
                Event::Closed(reason) => panic!("at {}: {reason}", happening.node),
                _ => {}
            }
        }
    }
}

#[test]
fn a_rate_is_told_seldom_and_only_to_those_who_want_it() {
    let mut call = Call::new("rate=4mbit delay=30ms", 100, 7);
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
