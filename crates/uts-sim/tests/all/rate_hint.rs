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
    /// The encoder sends at nine tenths of what it is told, up to this.
    follows_to: Option<Rate>,
    /// Smoothed round trips at the sender, by when they were, in milliseconds.
    round_trips: Vec<(f64, f64)>,
    next_at: Time,
}

impl Call {
    fn new(path: &str, kbit: u64, seed: u64) -> Call {
        let config = |properties| with(ConnectionConfig::default(), properties, &[]);
        let mut ends = OneClient::connected(path, config(&PROPERTIES), config(&PROPERTIES[..1]), seed);
        let next_at = ends.world.now();
        ends.at(CLIENT).want_rate(true);
        let flow = ends.at(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
        let (hints, round_trips) = (Vec::new(), Vec::new());
        let rate = Rate::from_bits_per_sec(kbit * 1000);
        Call { ends, flow, rate, hints, follows_to: None, round_trips, next_at }
    }

    /// A picture.
    fn send(&mut self) {
        let now = self.ends.world.now();
        let rtt = self.ends.at(CLIENT).facts().rtt_smoothed;
        self.round_trips.push((now.as_nanos() as f64 / 1e9, rtt.as_secs_f64() * 1e3));
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
                    if let Some(most) = self.follows_to {
                        self.rate = rate.mul_f64(0.9).min(most);
                    }
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

/// An encoder that sends what it is told climbs from a voice's rate to what the path bears, without
/// filling its queue, and stays there (RFC 7661: what is in use may grow).
#[test]
fn an_encoder_climbs_to_what_the_path_bears_and_stays() {
    for (path, carries_mbit, base_ms, seed) in [
        ("rate=10mbit delay=20ms buffer=256p", 10.0, 40.0, 1),
        ("rate=3mbit delay=60ms buffer=128p", 3.0, 120.0, 2),
        ("rate=10mbit delay=20ms buffer=256p jitter=5ms", 10.0, 40.0, 3),
    ] {
        let mut call = Call::new(path, 100, seed);
        call.follows_to = Some(Rate::from_bits_per_sec(50_000_000));
        let begun = call.ends.world.now().as_nanos() as f64 / 1e9;
        call.run(Duration::from_secs(60));
        let hints: Vec<_> = call.hints.iter().map(|(at, rate)| (at - begun, rate / 1e6)).collect();
        let reached = hints.iter().find(|(_, mbit)| *mbit > 0.8 * carries_mbit);
        let settled = hints.iter().rposition(|(at, _)| *at <= 20.0).expect("a hint");
        let later: Vec<f64> = hints[settled..].iter().map(|(_, mbit)| *mbit).collect();
        let (least, most) =
            (later.iter().copied().fold(1e9, f64::min), later.iter().copied().fold(0.0, f64::max));
        let mut round_trips: Vec<f64> = call.round_trips.iter().map(|(_, ms)| *ms).collect();
        round_trips.sort_by(f64::total_cmp);
        let p95 = round_trips[round_trips.len() * 95 / 100];
        let (sent, lost) = (call.ends.at(CLIENT).stats(), call.ends.at(CLIENT).facts().loss);
        println!(
            "{path}: reached {reached:.1?}, {} hints, then {least:.1} to {most:.1} Mbit/s, round trip 95 % {p95:.0} ms, \
             expired {}, loss {lost:.4}\n  {:.2?}",
            hints.len(),
            sent.messages_expired,
            &hints[..hints.len().min(24)]
        );
        assert!(reached.is_some_and(|(at, _)| *at < 10.0), "{path}: {hints:.2?}");
        assert!(least > 0.75 * carries_mbit && most < 1.5 * carries_mbit, "{path}: {least} to {most}");
        assert!(hints.len() < 60, "{path}: {} hints in a minute", hints.len());
        assert!(p95 < base_ms + 60.0, "{path}: {p95}");
    }
}

/// To one that sends little, and goes on to, nothing is promised that it has not come near to.
#[test]
fn who_sends_little_is_told_twice_that_at_the_most() {
    let mut call = Call::new("rate=10mbit delay=20ms", 100, 5);
    call.run(Duration::from_secs(30));
    let (_, last) = *call.hints.last().expect("a hint");
    assert!(!call.ends.at(CLIENT).is_held_back());
    assert!((170_000.0..500_000.0).contains(&last), "{last}");
}
