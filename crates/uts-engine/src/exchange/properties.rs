//! Many exchanges in sequence, by both ends, over a network that loses, repeats and reorders. The
//! sender is always understood. Once the network delivers, both ends agree.

use super::{Busy, EPOCH_SPAN, Event, Machine, Message, Side};
use core::time::Duration;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::BTreeMap;
use uts_functions::Time;

type Letter = Message<u32, u8>;

const GROUPS: u8 = 3;
const TRIES_MAX: u8 = 3;

#[derive(Clone, Debug)]
enum Step {
    /// An end asks to change a group.
    Ask { end: usize, group: u8 },
    /// One of the letters in flight (chosen by the number) arrives; a copy may stay in flight.
    Arrive { choice: usize, repeat: bool, accept: bool },
    /// One of the letters in flight is lost.
    Lose { choice: usize },
    /// The sender uses another profile at once.
    UseAtOnce { group: u8 },
    /// A packet under what the sender uses for the group arrives, and may be acknowledged.
    Packet { group: u8, accept: bool, acknowledged: bool },
    /// Time passes; timers that are due fire.
    Wait { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..2usize, 0..GROUPS).prop_map(|(end, group)| Step::Ask { end, group }),
        6 => (any::<usize>(), prop::bool::weighted(0.2), prop::bool::weighted(0.8))
            .prop_map(|(choice, repeat, accept)| Step::Arrive { choice, repeat, accept }),
        2 => any::<usize>().prop_map(|choice| Step::Lose { choice }),
        1 => (0..GROUPS).prop_map(|group| Step::UseAtOnce { group }),
        3 => (0..GROUPS, prop::bool::weighted(0.8), any::<bool>())
            .prop_map(|(group, accept, acknowledged)| Step::Packet { group, accept, acknowledged }),
        3 => (1..400u64).prop_map(|ms| Step::Wait { ms }),
    ]
}

struct World {
    now: Time,
    ends: [Machine<u32, u8>; 2],
    flight: Vec<(usize, Letter)>,
    open: BTreeMap<u32, (u8, u32)>,
    using: BTreeMap<u8, (u32, u32)>,
    bound: BTreeMap<u32, (u8, u32)>,
    wishes: u32,
}

impl World {
    fn new() -> Self {
        let end = |side| {
            let mut end = Machine::new(side, 0).with_tries_max(TRIES_MAX);
            end.set_pto(Duration::from_millis(100));
            end
        };
        World {
            now: Time::ZERO,
            ends: [end(Side::DataSender), end(Side::DataReceiver)],
            flight: Vec::new(),
            open: [(0, (0, 0))].into(),
            using: [(0, (0, 0))].into(),
            bound: BTreeMap::new(),
            wishes: 0,
        }
    }

    fn ask(&mut self, end: usize, group: u8) -> Result<u32, Busy> {
        self.wishes += 1;
        self.ends[end].request(self.now, group, self.wishes)
    }

    fn renew(&mut self, end: usize, group: u8) {
        self.wishes += 1;
        let _ = self.ends[end].renew(self.now, group, self.wishes);
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Ask { end, group } => {
                if let Err(Busy::Span { group }) = self.ask(end, group) {
                    self.renew(end, group);
                }
            }
            Step::Arrive { choice, repeat, accept } if !self.flight.is_empty() => {
                let index = choice % self.flight.len();
                let (to, letter) =
                    if repeat { self.flight[index].clone() } else { self.flight.swap_remove(index) };
                self.deliver(to, letter, accept);
            }
            Step::Lose { choice } if !self.flight.is_empty() => {
                self.flight.swap_remove(choice % self.flight.len());
            }
            Step::Arrive { .. } | Step::Lose { .. } => {}
            Step::UseAtOnce { group } => {
                self.wishes += 1;
                let _ = self.ends[0].use_at_once(self.now, group, self.wishes);
            }
            Step::Packet { group, accept, acknowledged } => self.arrive(group, accept, acknowledged),
            Step::Wait { ms } => {
                self.now += Duration::from_millis(ms);
                self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
            }
        }
        self.drain();
    }

    /// A packet of what the sender uses for a group arrives.
    fn arrive(&mut self, group: u8, accept: bool, acknowledged: bool) {
        let Some(&(epoch, _)) = self.using.get(&group) else { return };
        let carried = self.ends[0].carried().filter(|carried| carried.group == group);
        let is_read = match carried {
            Some(carried) => {
                let answer = |_, _: &u32| if accept { Ok(()) } else { Err(1) };
                self.ends[1].handle_carried(self.now, carried, answer)
            }
            None => {
                self.ends[1].on_packet(self.now, epoch);
                true
            }
        };
        if is_read && acknowledged {
            self.ends[0].on_acknowledged(self.now, epoch);
        }
    }

    fn deliver(&mut self, to: usize, letter: Letter, accept: bool) {
        self.ends[to].handle(self.now, letter, |_, _| if accept { Ok(()) } else { Err(1) });
    }

    fn drain(&mut self) {
        for end in [0, 1] {
            while let Some(event) = self.ends[end].poll_event() {
                match event {
                    Event::Open { epoch, group, profile } => {
                        self.bind(epoch, group, profile);
                        assert!(self.open.insert(epoch, (group, profile)).is_none());
                    }
                    Event::Use { epoch, group, profile } => {
                        self.bind(epoch, group, profile);
                        let old = self.using.insert(group, (epoch, profile));
                        assert!(old.is_none_or(|(old, _)| old < epoch));
                    }
                    Event::Back { epoch, group, .. } => {
                        let profile = self.bound.get(&epoch).map_or(0, |(_, profile)| *profile);
                        self.using.insert(group, (epoch, profile));
                    }
                    Event::Retire { epoch } => assert!(self.open.remove(&epoch).is_some()),
                    _ => {}
                }
            }
            while let Some(letter) = self.ends[end].poll_message() {
                self.flight.push((1 - end, letter));
            }
        }
        let carried = self.ends[0].carried();
        for (group, (epoch, profile)) in &self.using {
            if let Some(carried) = carried.as_ref().filter(|carried| carried.group == *group) {
                // What opens the envelope, and what there is to go back to.
                let known = [carried.using[0], carried.using[usize::from(*group)]];
                assert!(known.iter().flatten().all(|epoch| self.open.contains_key(epoch)));
                continue;
            }
            assert_eq!(self.open.get(epoch), Some(&(*group, *profile)), "epoch {epoch} in use");
        }
        let span = self.open.keys().next_back().zip(self.open.keys().next());
        assert!(span.is_some_and(|(last, first)| last - first < EPOCH_SPAN));
    }

    fn bind(&mut self, epoch: u32, group: u8, profile: u32) {
        let old = self.bound.insert(epoch, (group, profile));
        assert!(old.is_none_or(|old| old == (group, profile)), "epoch {epoch} bound to two profiles");
    }

    /// Continues over a network that delivers everything at once and accepts everything, until
    /// nothing moves.
    fn settle(&mut self) {
        for _ in 0..1000 {
            if let Some(carried) = self.ends[0].carried() {
                self.arrive(carried.group, true, true);
                self.drain();
            }
            if self.flight.is_empty() {
                self.ends[0].settle(|_| false);
                for group in 0..GROUPS {
                    self.arrive(group, true, true);
                }
                self.drain();
                let Some(due) = self.ends.iter().filter_map(Machine::poll_timeout).min() else { return };
                self.now = self.now.max(due);
                self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
            }
            for (to, letter) in core::mem::take(&mut self.flight) {
                self.deliver(to, letter, true);
            }
            self.drain();
        }
        panic!("does not come to rest");
    }

    /// An exchange of `group` by `end` on the good network. An exchange that is in doubt, spent or
    /// too old may cost some attempts.
    fn exchange(&mut self, end: usize, group: u8) {
        for _ in 0..4 * u32::from(GROUPS) {
            let asked = self.ask(end, group);
            if let Err(Busy::Span { group }) = asked {
                self.renew(end, group);
            }
            self.drain();
            self.settle();
            if asked.is_ok_and(|epoch| self.ends.iter().all(|end| end.current(group) == Some(epoch))) {
                return;
            }
        }
        panic!("end {end} cannot change group {group}: {:?}", self.ends);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::with_cases(400)
    })]

    #[test]
    fn ends_reconverge(schedules in prop::collection::vec((prop::collection::vec(step(), 1..60), 0..2usize), 1..12)) {
        let mut world = World::new();
        for (steps, end) in schedules {
            for step in steps {
                world.take(step);
            }
            world.settle();
            for group in 0..GROUPS {
                world.exchange(end, group);
            }
            for group in 0..GROUPS {
                let agreed = world.ends[0].current(group);
                prop_assert_eq!(agreed, world.ends[1].current(group));
                prop_assert_eq!(agreed, world.using.get(&group).map(|(epoch, _)| *epoch));
            }
            prop_assert_eq!(world.open.len(), world.using.len());
        }
    }
}
