//! Random sequences of events: no mechanism may panic, stall, or grow without cause, whatever
//! happens.

use super::bottleneck::invariants;
use crate::congestion::{
    Ack, Cause, Congestion, Context, Delivery, Loss, MECHANISMS, Slot, Snapshot, Summary, Timeout,
};
use crate::mechanism::{Mechanism, Promise};
use crate::time::Time;
use core::time::Duration;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Wait(Duration),
    Send(u8),
    /// Acknowledges that many of the packets outstanding, from a place in them.
    Acknowledge {
        from: u8,
        count: u8,
        marked: bool,
    },
    Lose {
        from: u8,
        count: u8,
        persistent: bool,
    },
    /// Nothing has come for a time-out; whether everything in flight counts as lost for that.
    TimeOut {
        is_loss: bool,
    },
    /// Packets lost arrive after all.
    Spurious,
    AppLimited,
    PacketBytes(u64),
    Exchange(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..60_000_000_000).prop_map(|n| Step::Wait(Duration::from_nanos(n >> (n % 30)))),
        6 => any::<u8>().prop_map(Step::Send),
        8 => (any::<u8>(), 1u8..40, prop::bool::weighted(0.05))
            .prop_map(|(from, count, marked)| Step::Acknowledge { from, count, marked }),
        3 => (any::<u8>(), 1u8..40, prop::bool::weighted(0.1))
            .prop_map(|(from, count, persistent)| Step::Lose { from, count, persistent }),
        1 => any::<bool>().prop_map(|is_loss| Step::TimeOut { is_loss }),
        1 => Just(Step::Spurious),
        1 => Just(Step::AppLimited),
        1 => prop_oneof![Just(1u64), Just(500), Just(1200), Just(9000), Just(65_507)].prop_map(Step::PacketBytes),
        1 => any::<u8>().prop_map(Step::Exchange),
    ]
}

struct Bench {
    slot: Slot,
    mechanism: &'static Mechanism,
    delivery: Delivery,
    now: Time,
    packet_bytes: u64,
    next: u64,
    sent: BTreeMap<u64, (u64, Snapshot)>,
    lost_bytes: u64,
    /// Time-outs in a row.
    timeouts: u32,
    /// Everything was lost at a time-out, and the window has not come up again since.
    is_restarting: bool,
    rtt_min: Duration,
    /// The largest window so far, of the mechanism in use.
    peak: u64,
}

impl Bench {
    fn new(mechanism: &'static Mechanism) -> Self {
        let summary = Summary::initial(1200);
        let context = Context { now: Time::ZERO, packet_bytes: 1200, summary, past: None, seed: 1 };
        let slot = Slot::build(&mechanism.choice(), &context).expect("defaults are in range");
        Bench {
            peak: slot.window_bytes(),
            slot,
            mechanism,
            delivery: Delivery::new(Time::ZERO),
            now: Time::ZERO,
            packet_bytes: 1200,
            next: 0,
            sent: BTreeMap::new(),
            lost_bytes: 0,
            timeouts: 0,
            is_restarting: false,
            rtt_min: Duration::from_secs(1000),
        }
    }

    fn pick(&self, from: u8, count: u8) -> Vec<u64> {
        let start = usize::from(from) % self.sent.len().max(1);
        self.sent.keys().skip(start).take(usize::from(count)).copied().collect()
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Wait(time) => self.now += time,
            Step::Send(count) => self.send(count),
            Step::Acknowledge { from, count, marked } => self.acknowledge(&self.pick(from, count), marked),
            Step::Lose { from, count, persistent } => self.lose(&self.pick(from, count), persistent),
            Step::TimeOut { is_loss } => self.time_out(is_loss),
            Step::Spurious => self.slot.on_spurious_loss(core::mem::take(&mut self.lost_bytes)),
            Step::AppLimited => self.delivery.set_app_limited(),
            Step::PacketBytes(bytes) => {
                self.packet_bytes = bytes;
                self.slot.set_packet_bytes(bytes);
            }
            Step::Exchange(which) => self.exchange(MECHANISMS[usize::from(which) % MECHANISMS.len()]),
        }
        let least = self.mechanism.facts.window_packets_min;
        invariants(&self.slot, if self.is_restarting { 1 } else { least }, self.packet_bytes);
        let outstanding: u64 = self.sent.values().map(|(bytes, _)| *bytes).sum();
        assert_eq!(self.delivery.in_flight, outstanding);
        self.peak = self.peak.max(self.slot.window_bytes());
    }

    fn exchange(&mut self, to: &'static Mechanism) {
        let (now, packet_bytes, summary) = (self.now, self.packet_bytes, self.slot.summary());
        let context = Context { now, packet_bytes, summary, past: None, seed: 2 };
        self.slot = Slot::build(&to.choice(), &context).expect("defaults are in range");
        self.mechanism = to;
        self.is_restarting = false;
        self.peak = self.slot.window_bytes();
    }

    fn send(&mut self, count: u8) {
        for _ in 0..count {
            if self.delivery.in_flight.saturating_add(self.packet_bytes) > self.slot.window_bytes() {
                return;
            }
            let snapshot = self.delivery.on_sent(self.now, self.packet_bytes);
            self.sent.insert(self.next, (self.packet_bytes, snapshot));
            self.next += 1;
            self.slot.on_sent(self.now, self.packet_bytes, &self.delivery);
        }
    }

    fn acknowledge(&mut self, numbers: &[u64], marked: bool) {
        let Some(largest) = numbers.last().copied() else { return };
        self.timeouts = 0;
        let prior_in_flight = self.delivery.in_flight;
        let sent_at = self.sent[&largest].1.sent_at;
        for number in numbers {
            if let Some((bytes, snapshot)) = self.sent.remove(number) {
                self.delivery.on_acknowledged(self.now, bytes, &snapshot);
            }
        }
        let rtt = self.now.since(sent_at);
        self.rtt_min = self.rtt_min.min(rtt);
        let (sample, bytes) = self.delivery.sample(self.rtt_min);
        let ack = Ack {
            now: self.now,
            bytes,
            largest,
            sent_at,
            rtt: Some(rtt),
            rtt_smoothed: rtt,
            rtt_min: self.rtt_min,
            prior_in_flight,
            sample,
            ecn_marked: u64::from(marked),
            next_packet: self.next,
        };
        self.slot.on_ack(&ack, &self.delivery);
        let least = u64::from(self.mechanism.facts.window_packets_min) * self.packet_bytes;
        self.is_restarting &= self.slot.window_bytes() < least;
        if self.delivery.is_app_limited() && self.mechanism.promises(Promise::Restraint) {
            // The least that a mechanism has comes back behind a time-out, whatever limits it.
            let (window, peak) = (self.slot.window_bytes(), self.peak.max(4 * self.packet_bytes));
            assert!(window <= peak, "{}: {peak} to {window} while limited", self.mechanism.name);
        }
    }

    fn time_out(&mut self, is_loss: bool) {
        self.timeouts += 1;
        let before = self.slot.window_bytes();
        let (now, in_a_row, next_packet) = (self.now, self.timeouts, self.next);
        self.slot.on_timeout(&Timeout { now, is_loss, in_a_row, next_packet }, &self.delivery);
        self.is_restarting |= is_loss;
        if is_loss {
            self.lose(&self.pick(0, u8::MAX), false);
        }
        if self.mechanism.promises(Promise::Restraint) {
            let window = self.slot.window_bytes();
            let name = self.mechanism.name;
            assert!(window <= before, "{name}: {before} to {window} bytes at a time-out, no growth asked");
            let packet = self.packet_bytes;
            assert!(!is_loss || window == packet, "{name}: {window} bytes, one packet of {packet} asked");
        }
    }

    fn lose(&mut self, numbers: &[u64], persistent: bool) {
        let Some(largest) = numbers.last().copied() else { return };
        let snapshot = self.sent[&largest].1;
        let mut lost = 0;
        for number in numbers {
            if let Some((bytes, _)) = self.sent.remove(number) {
                self.delivery.on_lost(bytes);
                lost += bytes;
            }
        }
        self.lost_bytes += lost;
        let before = self.slot.window_bytes();
        let loss = Loss {
            now: self.now,
            bytes: lost,
            packets: numbers.len() as u64,
            cause: Cause::Overtaken,
            largest,
            sent_at: snapshot.sent_at,
            snapshot,
            persistent,
            next_packet: self.next,
        };
        self.slot.on_loss(&loss, &self.delivery);
        let window = self.slot.window_bytes();
        if self.mechanism.promises(Promise::Restraint) {
            let (name, least) = (self.mechanism.name, 4 * self.packet_bytes);
            let most = if persistent { least } else { before.max(least) };
            assert!(window <= most, "{name}: {before} to {window} bytes on loss, {most} at most");
        }
    }
}

#[test]
fn random_events_break_no_invariant() {
    for mechanism in MECHANISMS {
        let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let outcome = runner.run(&prop::collection::vec(step(), 1..150), |steps| {
            let mut bench = Bench::new(mechanism);
            steps.iter().for_each(|step| bench.apply(step));
            Ok(())
        });
        if let Err(error) = outcome {
            panic!("{}: {error}", mechanism.name);
        }
    }
}

#[test]
fn persistent_congestion_collapses_the_window() {
    for mechanism in MECHANISMS.iter().filter(|m| m.promises(Promise::Restraint)) {
        let mut bench = Bench::new(mechanism);
        for _ in 0..40 {
            bench.apply(&Step::Send(255));
            bench.apply(&Step::Wait(Duration::from_millis(20)));
            bench.apply(&Step::Acknowledge { from: 0, count: 255, marked: false });
        }
        let before = bench.slot.window_bytes();
        assert!(before > 20 * 1200, "{}: {before} bytes before, 24,000 at least", mechanism.name);
        bench.apply(&Step::Send(100));
        bench.apply(&Step::Lose { from: 0, count: 255, persistent: true });
        let window = bench.slot.window_bytes();
        assert!(window <= 4 * 1200, "{}: {before} to {window} bytes, 4,800 at most", mechanism.name);
    }
}

/// C-43: everything in flight is lost at a time-out, and at the next one. The window comes up again
/// by no more than it was acknowledged, but for the fourth packet, which BBR's least window has.
#[test]
fn one_packet_is_the_window_once_everything_in_flight_has_timed_out() {
    for mechanism in MECHANISMS.iter().filter(|m| m.promises(Promise::Restraint)) {
        let mut bench = Bench::new(mechanism);
        let round = |bench: &mut Bench| {
            bench.apply(&Step::Send(255));
            bench.apply(&Step::Wait(Duration::from_millis(20)));
            bench.apply(&Step::Acknowledge { from: 0, count: 255, marked: false });
        };
        (0..40).for_each(|_| round(&mut bench));
        let window = bench.slot.window_bytes();
        assert!(window > 20 * 1200, "{}: {window} bytes before, 24,000 at least", mechanism.name);
        bench.apply(&Step::Send(100));
        bench.apply(&Step::TimeOut { is_loss: true });
        bench.apply(&Step::Send(100));
        assert_eq!(bench.sent.len(), 1, "{}: packets after a time-out", mechanism.name);
        bench.apply(&Step::TimeOut { is_loss: true });
        for least in [1, 4, 8, 16, 32] {
            let window = bench.slot.window_bytes() / 1200;
            assert!(window <= least, "{}: {window} packets, {least} at most", mechanism.name);
            round(&mut bench);
        }
    }
}

#[test]
fn a_spurious_loss_is_undone() {
    for mechanism in MECHANISMS.iter().filter(|m| m.promises(Promise::Restraint)) {
        let mut bench = Bench::new(mechanism);
        for _ in 0..6 {
            bench.apply(&Step::Send(255));
            bench.apply(&Step::Wait(Duration::from_millis(20)));
            bench.apply(&Step::Acknowledge { from: 0, count: 255, marked: false });
        }
        let before = bench.slot.window_bytes();
        bench.apply(&Step::Send(40));
        bench.apply(&Step::Lose { from: 0, count: 20, persistent: false });
        bench.apply(&Step::Spurious);
        assert_eq!(bench.slot.window_bytes(), before, "{}: the window of before", mechanism.name);
    }
}
