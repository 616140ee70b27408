//! Conformance harness: packets over a path that loses and reorders them, for every mechanism in
//! the registry and the variants that parameters make of it.

use super::{Alarm, Finding, Flight, MECHANISMS, Reported, Slot, wait};
use crate::mechanism::Choice;
use crate::range::RangeSet;
use crate::retransmission::ledger::{Carried, Departure, Ledger, Sent, Tokens};
use crate::time::Time;
use core::time::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};

const RTT: Duration = Duration::from_millis(40);
const TIMEOUT: Duration = Duration::from_millis(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Data(u64);

impl Carried for Data {
    fn ahead(&self, places: u64) -> Self {
        Data(self.0 + places)
    }
}

/// A sender of numbered data over a path. What counts as lost is sent again.
struct Run {
    rng: ChaCha8Rng,
    slot: Slot,
    ledger: Ledger<Data>,
    loss: f64,
    reorders: bool,
    now: Time,
    look_again: Option<Time>,
    timeouts: u32,
    waiting: Vec<Data>,
    delivered: BTreeSet<Data>,
    /// Packets under way, and the contents of reports under way, by the instant of arrival.
    forth: BTreeMap<(Time, u64), Data>,
    back: BTreeMap<(Time, u64), RangeSet>,
    received: RangeSet,
    found: u64,
    lost: u64,
}

impl Run {
    fn new(choice: &Choice, seed: u64, loss: f64, reorders: bool) -> Self {
        Run {
            rng: ChaCha8Rng::seed_from_u64(seed),
            slot: Slot::build(choice, ()).expect("registered"),
            ledger: Ledger::default(),
            loss,
            reorders,
            now: Time::from_millis(1),
            look_again: None,
            timeouts: 0,
            waiting: (0..200).rev().map(Data).collect(),
            delivered: BTreeSet::new(),
            forth: BTreeMap::new(),
            back: BTreeMap::new(),
            received: RangeSet::new(),
            found: 0,
            lost: 0,
        }
    }

    fn flight(&self) -> Flight {
        Flight {
            largest_acked: self.ledger.largest_acked(),
            reordering: self.ledger.reordering(),
            loss_delay: RTT * 9 / 8,
            patience: RTT * 2,
            timeout: TIMEOUT,
        }
    }

    fn transmit(&mut self, data: Data) {
        let number = self.ledger.next_number();
        let is_lost = self.rng.random_bool(self.loss);
        self.lost += u64::from(is_lost);
        if !is_lost {
            let jitter = if self.reorders { self.rng.random_range(0..8) } else { 0 };
            let at = self.now + RTT / 2 + Duration::from_millis(jitter);
            self.forth.insert((at, number), data);
        }
        let departure = Departure {
            timeouts: self.timeouts as u8,
            timeout_us: TIMEOUT.as_micros() as u32,
            ..Departure::default()
        };
        let snapshot = crate::congestion::Snapshot { sent_at: self.now, ..Default::default() };
        let tokens = Tokens::from_iter([data]);
        let (bytes, epoch, eliciting, size_probe) = (100, 0, true, false);
        let sent = Sent { bytes, epoch, eliciting, size_probe, departure, tokens, snapshot };
        self.ledger.record(sent);
        if self.slot.alarm() == Alarm::Each {
            self.look();
        }
    }

    fn look(&mut self) {
        let rule = self.slot.rule(&self.flight());
        let lost = self.ledger.take_lost(self.now, &rule);
        self.look_again = lost.look_again;
        self.timeouts += u32::from(rule.times_out() && !lost.packets.is_empty());
        self.take_back(lost.packets);
        let again = self.ledger.take_lost(self.now, &rule);
        assert!(again.packets.is_empty(), "the same rule finds no more");
    }

    fn take_back(&mut self, packets: Vec<(u64, Sent<Data>)>) {
        for (_, sent) in packets {
            self.found += 1;
            self.waiting.extend(sent.tokens);
        }
    }

    fn receive(&mut self) {
        while let Some(entry) = self.forth.first_entry().filter(|e| e.key().0 <= self.now) {
            let ((_, number), _) = entry.remove_entry();
            self.received.insert_one(number);
            if !self.rng.random_bool(self.loss) {
                self.back.insert((self.now + RTT / 2, number), self.received.clone());
            }
        }
        while let Some(entry) = self.back.first_entry().filter(|e| e.key().0 <= self.now) {
            let ranges = entry.remove();
            let done = self.ledger.on_ack(ranges.iter(), self.now).expect("sent");
            let newest = done.packets.iter().map(|run| run.numbers.end - 1).max();
            let runs = done.packets.iter().cloned().flat_map(|run| run.split().collect::<Vec<_>>());
            for (_, sent) in runs.chain(done.spurious.iter().cloned()) {
                self.delivered.extend(sent.tokens);
            }
            self.timeouts = if newest.is_some() { 0 } else { self.timeouts };
            let in_flight = self.ledger.eliciting();
            let left = self.slot.on_report(&Reported {
                now: self.now,
                newest,
                answers: newest.is_some_and(|newest| newest % 8 == 0) || self.timeouts > 0,
                acknowledged: done.packets.iter().map(|run| run.packets()).sum(),
                oldest: self.ledger.oldest().map(|(number, _)| number),
                in_flight,
                next_packet: self.ledger.next_number(),
            });
            assert!(left == 0 || left < in_flight, "{left} of {in_flight} packets have left");
            self.look();
        }
    }

    fn on_timer(&mut self) {
        let oldest = self.ledger.oldest();
        let at = match (self.look_again, oldest, self.slot.alarm()) {
            (Some(at), ..) => at,
            (None, Some((_, oldest)), Alarm::LoseAll { since }) => {
                oldest.max(since) + wait(TIMEOUT, self.timeouts)
            }
            (None, Some(_), Alarm::Probe | Alarm::Each) => {
                self.ledger.last_eliciting_at() + wait(TIMEOUT, self.timeouts)
            }
            (None, None, _) => return,
        };
        if at > self.now {
            return;
        }
        if self.look_again.is_some() {
            return self.look();
        }
        self.timeouts += 1;
        if let Alarm::LoseAll { .. } = self.slot.alarm() {
            let rule = super::Rule::all_below(self.ledger.next_number());
            let lost = self.ledger.take_lost(self.now, &rule);
            assert_eq!(self.ledger.eliciting(), 0);
            self.take_back(lost.packets);
        } else if let Some(oldest) = self.ledger.oldest_eliciting() {
            oldest.tokens.into_iter().for_each(|data| self.transmit(data));
        }
    }

    /// Sends all data, whatever it takes. Says how many milliseconds it took.
    fn finish(mut self, mut before_step: impl FnMut(&mut Run)) -> (u64, Run) {
        let steps_max = 2_000_000;
        for step in 0..steps_max {
            if self.delivered.len() == 200 {
                return (step, self);
            }
            before_step(&mut self);
            self.receive();
            self.on_timer();
            while self.ledger.eliciting() < 16 {
                let Some(data) = self.waiting.pop() else { break };
                if !self.delivered.contains(&data) {
                    self.transmit(data);
                }
            }
            self.now += Duration::from_millis(1);
        }
        panic!("no end: {} of 200, {} in flight", self.delivered.len(), self.ledger.eliciting());
    }
}

fn variants() -> Vec<(&'static str, Choice)> {
    let of = |settings: &[(&str, u64)]| {
        let mechanism = MECHANISMS.iter().find(|m| m.choice_with(settings).is_ok());
        let mechanism = mechanism.expect("a mechanism has these parameters");
        (mechanism.name, mechanism.choice_with(settings).expect("in range"))
    };
    let defaults = MECHANISMS.iter().map(|m| (m.name, m.choice()));
    let others = [
        of(&[("frozen", 1)]),
        of(&[("frozen", 1), ("back-off", 0)]),
        of(&[("back-off", 0)]),
        of(&[("partial", 0)]),
        of(&[("reports", 1)]),
    ];
    defaults.chain(others).collect()
}

#[test]
fn where_nothing_is_lost_nothing_is_found() {
    for (name, choice) in variants() {
        for seed in 0..20 {
            let (took, run) = Run::new(&choice, seed, 0.0, false).finish(|_| {});
            assert_eq!(run.found, 0, "{name}, seed {seed}");
            assert!(took < 700, "{name}: {took} ms for 13 round trips");
        }
    }
}

#[test]
fn what_is_lost_is_found_and_arrives() {
    for (name, choice) in variants() {
        for seed in 0..60 {
            let loss = [0.02, 0.1, 0.3][seed as usize % 3];
            let (_, run) = Run::new(&choice, seed, loss, seed % 2 == 1).finish(|_| {});
            assert!(run.lost == 0 || run.delivered.len() == 200, "{name}, seed {seed}");
        }
    }
}

#[test]
fn mechanisms_give_way_to_each_other_on_the_way() {
    let variants = variants();
    for seed in 0..100 {
        let mut rng = ChaCha8Rng::seed_from_u64(!seed);
        let run = Run::new(&variants[seed as usize % variants.len()].1, seed, 0.1, true);
        run.finish(|run| {
            if rng.random_ratio(1, 40) {
                let (_, choice) = &variants[rng.random_range(0..variants.len())];
                run.slot = Slot::build(choice, ()).expect("registered");
                run.look_again = Some(run.now);
            }
        });
    }
}

/// Reports find a loss sooner than a time-out, and a mechanism that takes only time for a sign
/// finds it last.
#[test]
fn who_reads_reports_finds_losses_sooner_than_who_waits() {
    let took = |name: &str| -> u64 {
        let (_, choice) = variants().into_iter().find(|(n, _)| *n == name).expect("registered");
        (0..30).map(|seed| Run::new(&choice, seed, 0.02, false).finish(|_| {}).0).sum()
    };
    let [overtaken, duplicates, expiry] = ["overtaken", "duplicates", "expiry"].map(took);
    assert!(overtaken <= duplicates && duplicates < expiry, "{overtaken} {duplicates} {expiry} ms");
}
