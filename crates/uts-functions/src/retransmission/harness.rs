//! Conformance harness: a flow of positions over a path that loses, reorders and delays, for every
//! mechanism in the registry. It keeps no ledger, only what the contract with a mechanism speaks
//! of.

use super::demand::emit_ranges;
use super::{
    Awaited, Demand, LostData, MECHANISMS, Received, Response, Retransmission, SentData, Slot, Tries, blast,
};
use crate::mechanism::{Choice, Promise};
use crate::range::RangeSet;
use crate::time::Time;
use core::ops::Range;
use core::time::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

/// Positions in a packet.
const PACKET: u64 = 10;
/// One-way delay in steps.
const DELAY: u64 = 10;
/// Packets overtaken before a packet counts as lost (RFC 9002 section 6.1.1).
const REORDERING: u64 = 3;

/// A run: one flow, one path, a mechanism that may be exchanged on the way.
struct Run {
    rng: ChaCha8Rng,
    loss: f64,
    jitter: u64,
    window: usize,
    total: u64,
    now: u64,
    slot: Slot,
    next_packet: u64,
    sent_to: u64,
    repeat: RangeSet,
    acked: RangeSet,
    abandoned: RangeSet,
    received: RangeSet,
    /// Sent and neither acknowledged nor declared lost: positions and step of sending.
    in_flight: BTreeMap<u64, (Range<u64>, u64)>,
    /// Declared lost; an acknowledgement may still come.
    late: BTreeMap<u64, Range<u64>>,
    /// Messages under way, by step of arrival: packets forth, acknowledgements back.
    forth: BTreeMap<(u64, u64), Range<u64>>,
    back: BTreeMap<(u64, u64), Vec<u64>>,
    last_numbers: Vec<u64>,
    acked_largest: u64,
    finds_by_time_only: bool,
    /// Data that waits to be asked for, and losses of data.
    awaited: Awaited,
    tries: Tries,
    /// When the packet was sent that was found lost last.
    sent_at: Time,
    /// The half at the receiver, and what it has said, by step of arrival.
    demand: Option<Box<dyn Demand>>,
    words: BTreeMap<u64, Vec<u8>>,
    transmitted: u64,
    lost_positions: u64,
}

/// Result of a run.
struct Outcome {
    steps: u64,
    run: Run,
}

impl Run {
    fn new(choice: &Choice, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let slot = Slot::build(choice, ()).expect("a registered mechanism");
        Run {
            awaited: Awaited::default(),
            tries: Tries::default(),
            sent_at: Time::ZERO,
            demand: slot.demand(),
            words: BTreeMap::new(),
            loss: rng.random_range(0.0..0.3),
            jitter: if rng.random() { rng.random_range(0..20) } else { 0 },
            window: rng.random_range(1..64),
            total: rng.random_range(1..4000),
            rng,
            now: 0,
            slot,
            next_packet: 0,
            sent_to: 0,
            repeat: RangeSet::new(),
            acked: RangeSet::new(),
            abandoned: RangeSet::new(),
            received: RangeSet::new(),
            in_flight: BTreeMap::new(),
            late: BTreeMap::new(),
            forth: BTreeMap::new(),
            back: BTreeMap::new(),
            last_numbers: Vec::new(),
            acked_largest: 0,
            finds_by_time_only: false,
            transmitted: 0,
            lost_positions: 0,
        }
    }

    fn is_settled(&self) -> bool {
        let mut settled = self.acked.clone();
        self.abandoned.iter().for_each(|r| {
            settled.insert(r);
        });
        settled.contains_range(&(0..self.total))
    }

    fn next_data(&mut self) -> Option<Range<u64>> {
        while let Some(range) = self.repeat.pop_first() {
            let wanted = self.acked.gaps(range.clone()).next();
            let Some(wanted) = wanted else { continue };
            let cut = wanted.start..wanted.end.min(wanted.start + PACKET);
            self.repeat.insert(cut.end..range.end);
            return Some(cut);
        }
        let range = self.sent_to..self.total.min(self.sent_to + PACKET);
        self.sent_to = range.end;
        (!range.is_empty()).then_some(range)
    }

    fn send(&mut self) {
        while self.in_flight.len() < self.window {
            let Some(range) = self.next_data() else { return };
            let number = self.next_packet;
            self.next_packet += 1;
            self.transmitted += range.end - range.start;
            if !self.rng.random_bool(self.loss) {
                let arrival = self.now + DELAY + self.rng.random_range(0..=self.jitter);
                self.forth.insert((arrival, number), range.clone());
            }
            self.in_flight.insert(number, (range, self.now));
        }
    }

    fn receive(&mut self) {
        while let Some(entry) = self.forth.first_entry().filter(|e| e.key().0 <= self.now) {
            let ((_, number), range) = entry.remove_entry();
            self.received.insert(range);
            self.last_numbers.push(number);
            if self.last_numbers.len() > 16 {
                self.last_numbers.remove(0);
            }
            if !self.rng.random_bool(self.loss) {
                self.back.insert((self.now + DELAY, number), self.last_numbers.clone());
            }
        }
    }

    fn acknowledge(&mut self) {
        while let Some(entry) = self.back.first_entry().filter(|e| e.key().0 <= self.now) {
            for number in entry.remove() {
                let range =
                    self.in_flight.remove(&number).map(|(r, _)| r).or_else(|| self.late.remove(&number));
                if let Some(range) = range {
                    self.awaited.remove(range.clone());
                    self.tries.remove(&range);
                    self.acked.insert(range);
                    self.acked_largest = self.acked_largest.max(number);
                }
            }
        }
    }

    fn find_losses(&mut self) {
        let timeout = 4 * DELAY + self.jitter;
        let largest = if self.finds_by_time_only { 0 } else { self.acked_largest };
        let now = self.now;
        let is_lost = |n: u64, at: u64| n + REORDERING <= largest || at + timeout <= now;
        let lost: Vec<u64> =
            self.in_flight.iter().filter(|(n, (_, at))| is_lost(**n, *at)).map(|(n, _)| *n).collect();
        for packet in lost {
            let Some((range, at)) = self.in_flight.remove(&packet) else { continue };
            self.sent_at = Time::from_millis(at);
            self.late.insert(packet, range.clone());
            self.lost_positions += range.end - range.start;
            self.recover(range, packet, false);
        }
        if self.awaited.until().is_some_and(|until| until <= self.time()) {
            let (ranges, packet) = self.awaited.take();
            ranges.into_iter().for_each(|range| self.recover(range, packet, true));
        }
    }

    fn recover(&mut self, range: Range<u64>, packet: u64, has_waited: bool) {
        let flow = self.seen();
        let sent_at = self.sent_at;
        let (losses, first) = self.tries.on_lost(&range, sent_at);
        let age = self.time().since(first);
        let lost = LostData { range: range.clone(), packet, has_waited, losses, age, flow };
        match self.slot.on_lost(&lost) {
            Response::Repeat(range) => self.order(range),
            Response::Abandon(range) => {
                self.tries.remove(&range);
                self.abandoned.insert(range);
            }
            Response::Covered => {}
            Response::Wait(until) => {
                assert!(!has_waited && until > self.time(), "waits for ever");
                self.awaited.insert(range, packet, until);
            }
        }
    }

    fn order(&mut self, range: Range<u64>) {
        assert!(!range.is_empty() && range.end <= self.sent_to, "repeats {range:?} of {}", self.sent_to);
        self.awaited.remove(range.clone());
        self.repeat.insert(range);
    }

    fn time(&self) -> Time {
        Time::from_millis(self.now)
    }

    /// The flow as its sender sees it.
    fn seen(&self) -> SentData {
        SentData {
            now: self.time(),
            timeout: Duration::from_millis(4 * DELAY + self.jitter),
            sent_to: self.sent_to,
            heard_to: self.acked.last().map_or(0, |last| last.end),
            next_packet: self.next_packet,
            acked_to: self.next_packet,
            repeats_from: self.repeat.first().map_or(0, |first| first.start),
            repeats_to: self.repeat.last().map_or(0, |last| last.end),
            brought: self.received.iter().map(|range| range.end - range.start).sum(),
        }
    }

    /// The receiver asks, and what it has asked for arrives, or not.
    fn ask(&mut self) {
        if let Some(demand) = &mut self.demand {
            let reaches = self.received.last().map_or(0, |last| last.end);
            let mut missing = self.received.gaps(0..reaches);
            let (now, rtt) = (Time::from_millis(self.now), Duration::from_millis(2 * DELAY));
            let is_ended = reaches == self.total;
            demand.look(&mut Received { now, reaches, is_ended, missing: &mut missing, rtt });
            let ranges = demand.take(now, rtt);
            let mut words = Vec::new();
            if emit_ranges(&ranges, 255, &mut words) > 0 && !self.rng.random_bool(self.loss) {
                self.words.insert(self.now + DELAY, words);
            }
        }
        while let Some(entry) = self.words.first_entry().filter(|e| *e.key() <= self.now) {
            let (words, flow) = (entry.remove(), self.seen());
            // After an exchange, another mechanism may have said them.
            let orders = self.slot.on_feedback(&words, &flow).unwrap_or_default();
            orders.into_iter().for_each(|range| self.order(range));
        }
    }

    fn step(&mut self) {
        self.now += 1;
        self.receive();
        self.ask();
        self.acknowledge();
        self.find_losses();
        self.send();
    }

    /// Steps until all is settled, or until far more time has passed than any mechanism may need.
    fn finish(mut self, mut before_step: impl FnMut(&mut Run)) -> Outcome {
        let steps_max = 200_000;
        while !self.is_settled() && self.now < steps_max {
            before_step(&mut self);
            self.step();
        }
        assert!(self.is_settled(), "no end in {steps_max} steps: {} of {}", self.acked.count(), self.total);
        Outcome { steps: self.now, run: self }
    }
}

/// Runs `check` with every seed, so that a failure names the seed that re-runs alone.
fn for_each_seed(name: &str, seeds: Range<u64>, check: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in seeds {
        if let Err(cause) = std::panic::catch_unwind(|| check(seed)) {
            eprintln!("{name}: failing seed {seed}");
            std::panic::resume_unwind(cause);
        }
    }
}

/// All mechanisms, and what their parameters make of them.
fn variants() -> Vec<(&'static crate::Mechanism, Choice)> {
    let small = |strategy| {
        let settings = [("unit", 1), ("strategy", strategy)];
        (&blast::Blast::INFO, blast::Blast::INFO.choice_with(&settings).expect("in range"))
    };
    MECHANISMS.iter().map(|m| (*m, m.choice())).chain((1..=4).map(small)).collect()
}

#[test]
fn everything_is_delivered_or_given_up() {
    for (m, choice) in variants() {
        for_each_seed(m.name, 0..300, |seed| {
            let run = Run::new(&choice, seed).finish(|_| {}).run;
            if !m.facts.repeats {
                assert_eq!(run.transmitted, run.total, "none repeats nothing");
            } else if !m.promises(Promise::Reliability) {
                let mut settled = run.received.clone();
                run.abandoned.iter().for_each(|range| {
                    settled.insert(range);
                });
                assert!(settled.contains_range(&(0..run.total)), "arrived or given up");
            } else {
                assert!(run.abandoned.is_empty(), "repeats, so gives nothing up");
                assert!(run.received.contains_range(&(0..run.total)));
            }
        });
    }
}

#[test]
fn nothing_is_sent_twice_without_a_loss() {
    for (m, choice) in variants() {
        for_each_seed(m.name, 0..50, |seed| {
            let mut run = Run::new(&choice, seed);
            (run.loss, run.jitter) = (0.0, 0);
            let run = run.finish(|_| {}).run;
            assert_eq!(run.transmitted, run.total);
            assert!(run.abandoned.is_empty());
        });
    }
}

#[test]
fn selective_repeats_what_was_lost_and_go_back_n_at_least_that() {
    for_each_seed("selective, go-back-n", 0..200, |seed| {
        let [_, go_back_n, selective] = [0, 1, 2].map(|i: usize| MECHANISMS[i].choice());
        let run = Run::new(&selective, seed).finish(|_| {}).run;
        assert!(run.transmitted <= run.total + run.lost_positions, "nothing but what was lost");
        let steps_bound = 100 + 4 * (4 * DELAY + run.jitter) * (run.total / PACKET + 1);
        let back = Run::new(&go_back_n, seed).finish(|_| {});
        assert!(back.run.transmitted >= back.run.total);
        assert!(back.steps <= steps_bound, "{} > {steps_bound}: live-locked", back.steps);
    });
}

#[test]
fn exchanges_on_the_way_lose_nothing() {
    for_each_seed("exchanges", 0..300, |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(!seed);
        let repeating: Vec<Choice> = variants()
            .into_iter()
            .filter(|(m, _)| m.promises(Promise::Reliability))
            .map(|(_, choice)| choice)
            .collect();
        let run = Run::new(&repeating[0], seed).finish(|run| {
            if rng.random_ratio(1, 20) {
                let choice = &repeating[rng.random_range(0..repeating.len())];
                run.slot = Slot::build(choice, ()).expect("registered");
                run.demand = run.slot.demand();
            }
        });
        assert!(run.run.abandoned.is_empty());
        assert!(run.run.received.contains_range(&(0..run.run.total)));
    });
}

#[test]
fn go_back_n_covers_what_it_has_ordered_and_no_more() {
    let mut slot = Slot::build(&MECHANISMS[1].choice(), ()).expect("mandatory");
    let mut lost = |range, packet, next_packet| {
        let flow = SentData {
            now: Time::ZERO,
            timeout: Duration::ZERO,
            sent_to: 100,
            heard_to: 0,
            next_packet,
            acked_to: 0,
            repeats_from: 0,
            repeats_to: 0,
            brought: 0,
        };
        slot.on_lost(&LostData { range, packet, has_waited: false, losses: 1, age: Duration::ZERO, flow })
    };
    assert_eq!(lost(50..60, 5, 10), Response::Repeat(50..100));
    assert_eq!(lost(60..70, 6, 10), Response::Covered);
    assert_eq!(lost(30..40, 3, 10), Response::Repeat(30..50), "an earlier loss is found later");
    assert_eq!(lost(40..50, 4, 10), Response::Covered);
    assert_eq!(lost(70..80, 10, 14), Response::Repeat(70..100), "the repeat is lost too");
    assert_eq!(lost(30..40, 11, 14), Response::Repeat(30..70));
}

/// Acknowledgements that hardly ever come: a mechanism that asks for missing data is not slower for
/// that.
#[test]
fn what_is_asked_for_needs_no_acknowledgements() {
    let steps = |choice: &Choice| -> u64 {
        (0..40)
            .map(|seed| {
                let mut run = Run::new(choice, seed);
                (run.loss, run.jitter, run.total, run.window) = (0.05, 0, 3000, 64);
                let mut arrived = 0;
                run.finds_by_time_only = true;
                run.finish(|run| {
                    arrived += u64::from(!run.received.contains_range(&(0..run.total)));
                });
                arrived
            })
            .sum()
    };
    let (selective, nak) = (steps(&MECHANISMS[2].choice()), steps(&MECHANISMS[3].choice()));
    assert!(nak < selective, "{nak} steps, {selective} without asking");
}

#[test]
fn limits_are_kept_and_more_repeats_lose_less() {
    let given_up = |name: &str, settings: &[(&str, u64)]| -> u64 {
        let m = MECHANISMS.iter().find(|m| m.name == name).expect("registered");
        let choice = m.choice_with(settings).expect("in range");
        let runs = (0..40).map(|seed| {
            let mut run = Run::new(&choice, seed);
            (run.loss, run.jitter, run.total) = (0.3, 0, 2000);
            run.finish(|_| {}).run
        });
        runs.map(|run| run.total - run.received.count().min(run.total)).sum()
    };
    // Of 80,000 positions, those that are lost so many times in a row.
    for (tries, share) in [(1, 0.3), (2, 0.09), (4, 0.0081)] {
        let lost = given_up("count-limited", &[("tries", tries)]) as f64 / 80_000.0;
        assert!((lost / share).ln().abs() < 0.5, "{tries} tries: {lost} for {share}");
    }
    let [soon, late] =
        [1, 150].map(|deadline| given_up("deadline-limited", &[("deadline", deadline)]) as f64 / 80_000.0);
    assert!((soon / 0.3).ln().abs() < 0.3 && late < 0.09, "{soon}, {late}");
}
