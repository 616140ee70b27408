//! Exhaustive exploration of one end of the exchange whose peer lies. The peer may say any message
//! at any time, whatever was said before.
//!
//! A liar may harm the direction that the two share. It must never bring the honest end into a
//! state that has no bounds, contradicts itself, or does not come to rest. Epochs are those around
//! the first, and some that are far beyond.

use stateright::{Checker, Model, Property};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use uts_engine::exchange::{
    Busy, Carried, EPOCH_SPAN, EVENTS_MAX, Event, GROUPS_MAX, Machine, Message, Side, TRIES_MAX, Using,
};
use uts_functions::Time;

type Letter = Message<u8, u8>;

/// Time stands still, and so do deadlines: firing a timer is an action like any other.
const NOW: Time = Time::ZERO;
const GROUPS: u8 = 2;
/// Epochs that a lie is about: near ones, the first that is too far ahead, and the last of all.
const NEAR: u32 = 4;
const FAR: [u32; 3] = [EPOCH_SPAN - 1, EPOCH_SPAN, u32::MAX];
/// Messages that a machine has to say at once.
const MESSAGES_MAX: usize = 4;
/// Timers in a row until nothing is due: each of two messages as often as it is repeated, and a
/// retirement.
const FIRINGS_MAX: usize = 2 * TRIES_MAX as usize + 2;

/// Events that must have happened somewhere in an exploration for it to mean anything.
const SEEN_PEER_REQUEST: u32 = 1;
const SEEN_OWN_ACCEPTED: u32 = 2;
const SEEN_OWN_REFUSED: u32 = 4;
const SEEN_OWN_WITHDRAWN: u32 = 8;
const SEEN_FAILED: u32 = 16;
const SEEN_RETIRED: u32 = 32;
const SEEN_IGNORED: u32 = 64;
const SEEN_BACK: u32 = 128;
const SEEN_CARRIED: u32 = 256;

struct Lies {
    side: Side,
    wishes: u8,
    retires: bool,
    /// Plants a fault in the owner: it does not hear of what is retired.
    is_deaf: bool,
    seen: AtomicU32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    end: Machine<u8, u8>,
    wishes: u8,
    /// Epochs that its owner keeps open by its events, with group and profile.
    open: BTreeMap<u32, (u8, u8)>,
    using: BTreeMap<u8, u32>,
    broken: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Ask { group: u8 },
    Fire,
    Lie { letter: Letter, accept: bool },
    Packet { epoch: u32 },
    UseAtOnce { group: u8 },
    Carry { carried: Carried<u8>, accept: bool },
    Acknowledge { epoch: u32 },
}

fn epochs() -> impl Iterator<Item = u32> {
    (0..=NEAR).chain(FAR)
}

/// Epochs in use as a request may state them: none, the truth of the beginning, or any.
fn usings() -> Vec<Using> {
    let mut list = vec![[None; GROUPS_MAX]];
    for first in [0, 1, 2, NEAR] {
        for second in [None, Some(1), Some(2)] {
            let mut using = [None; GROUPS_MAX];
            (using[0], using[1]) = (Some(first), second);
            list.push(using);
        }
    }
    list
}

impl World {
    /// Takes out what the end has to say; says which kinds of events there were.
    fn drain(&mut self, is_deaf: bool) -> u32 {
        let (mut seen, mut events, mut messages) = (0, 0, 0);
        while let Some(event) = self.end.poll_event() {
            events += 1;
            seen |= self.hear(event, is_deaf);
        }
        while self.end.poll_message().is_some() {
            messages += 1;
        }
        if events > EVENTS_MAX || messages > MESSAGES_MAX {
            self.broken = Some("more waits than X-26 allows");
        }
        seen
    }

    fn hear(&mut self, event: Event<u8, u8>, is_deaf: bool) -> u32 {
        match event {
            Event::Open { epoch, group, profile } => {
                if self.open.insert(epoch, (group, profile)).is_some() {
                    self.broken = Some("an epoch was opened twice");
                }
                0
            }
            Event::Use { epoch, group, .. } => {
                if self.using.insert(group, epoch).is_some_and(|old| old >= epoch) {
                    self.broken = Some("the sender went back");
                }
                0
            }
            Event::Back { epoch, group, .. } => {
                self.using.insert(group, epoch);
                SEEN_BACK
            }
            Event::Retire { .. } if is_deaf => SEEN_RETIRED,
            Event::Retire { epoch } => {
                if self.open.remove(&epoch).is_none() {
                    self.broken = Some("an epoch was retired that was not open");
                }
                SEEN_RETIRED
            }
            Event::Accepted { .. } => SEEN_OWN_ACCEPTED,
            Event::Refused { .. } => SEEN_OWN_REFUSED,
            Event::Withdrawn { .. } => SEEN_OWN_WITHDRAWN,
            Event::Failed { .. } => SEEN_FAILED,
        }
    }

    /// open epochs are few, and five bits tell them apart.
    fn is_bounded(&self) -> bool {
        let (first, last) = (self.open.first_key_value(), self.open.last_key_value());
        first.zip(last).is_none_or(|((first, _), (last, _))| last - first < EPOCH_SPAN)
    }

    /// True if the epochs that the machine takes for in use are in use at its owner, or open there.
    fn is_consistent(&self, side: Side) -> bool {
        (0..GROUPS_MAX as u8).all(|group| match (side, self.end.current(group)) {
            (Side::DataSender, current) => current == self.using.get(&group).copied(),
            (Side::DataReceiver, None) => true,
            (Side::DataReceiver, Some(current)) => {
                self.open.get(&current).is_some_and(|(of, _)| *of == group)
            }
        })
    }

    /// Left alone, it finishes all its repetitions. It can then be asked for something, or says why
    /// not.
    fn comes_to_rest(&self) -> bool {
        let mut world = self.clone();
        for _ in 0..FIRINGS_MAX {
            if world.end.poll_timeout().is_none_or(|at| at > NOW) {
                let asked = world.end.request(NOW, 0, 9);
                return world.end.poll_timeout().is_some_and(|at| at <= NOW) == asked.is_ok()
                    || matches!(asked, Err(Busy::InDoubt { .. }));
            }
            world.end.handle_timeout(NOW);
            world.drain(false);
        }
        false
    }
}

impl Lies {
    fn letters() -> Vec<Letter> {
        let mut letters = Vec::new();
        for epoch in epochs() {
            letters.extend([
                Message::Ack { epoch },
                Message::Nak { epoch, refusal: 1 },
                Message::Confirm { epoch },
            ]);
            letters.extend([epoch, NEAR, u32::MAX].map(|highest| Message::Stale { epoch, highest }));
            for group in [0, 1, GROUPS_MAX as u8] {
                let requests =
                    usings().into_iter().map(|using| Message::Request { epoch, group, using, profile: 5 });
                letters.extend(requests);
            }
        }
        letters
    }

    fn explore(name: &str, model: Lies, must_see: u32) {
        let checker = model.checker().threads(2).spawn_bfs().join();
        println!("{name}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
        checker.assert_properties();
        let seen = checker.model().seen.load(Ordering::Relaxed);
        assert_eq!(seen & must_see, must_see, "{name}: the exploration missed a kind of event");
    }

    fn new(side: Side, retires: bool) -> Lies {
        Lies { side, wishes: 2, retires, is_deaf: false, seen: AtomicU32::new(0) }
    }
}

impl Model for Lies {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut end = Machine::new(self.side, 0).with_tries_max(1);
        end.set_pto(Duration::ZERO);
        if !self.retires {
            end.set_retire_after(Duration::MAX);
        }
        let (open, using) = match self.side {
            Side::DataSender => (BTreeMap::new(), [(0, 0)].into()),
            Side::DataReceiver => ([(0, (0, 0))].into(), BTreeMap::new()),
        };
        vec![World { end, wishes: self.wishes, open, using, broken: None }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.wishes > 0 {
            actions.extend((0..GROUPS).map(|group| Action::Ask { group }));
        }
        if world.end.poll_timeout().is_some_and(|at| at <= NOW) {
            actions.push(Action::Fire);
        }
        for letter in Self::letters() {
            if matches!(letter, Message::Request { .. }) {
                actions.push(Action::Lie { letter: letter.clone(), accept: false });
            }
            actions.push(Action::Lie { letter, accept: true });
        }
        actions.extend(epochs().map(|epoch| Action::Packet { epoch }));
        if self.side == Side::DataSender {
            if world.wishes > 0 {
                actions.extend((0..GROUPS).map(|group| Action::UseAtOnce { group }));
            }
            actions.extend(epochs().map(|epoch| Action::Acknowledge { epoch }));
            return;
        }
        for letter in Self::letters() {
            if let Message::Request { epoch, group, using, profile } = letter {
                let carried = Carried { epoch, group, using, profile };
                actions.push(Action::Carry { carried: carried.clone(), accept: false });
                actions.push(Action::Carry { carried, accept: true });
            }
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        let mut seen = 0;
        match action {
            Action::Ask { group } => {
                world.wishes -= 1;
                let _ = world.end.request(NOW, group, 10 + world.wishes);
            }
            Action::Fire => world.end.handle_timeout(NOW),
            Action::Lie { letter, accept } => {
                let mut asked = 0;
                let is_request = matches!(letter, Message::Request { .. });
                world.end.handle(NOW, letter, |_, _| {
                    asked += 1;
                    if accept { Ok(()) } else { Err(1) }
                });
                seen |= if asked > 0 { SEEN_PEER_REQUEST } else { 0 };
                seen |= if is_request && asked == 0 { SEEN_IGNORED } else { 0 };
            }
            Action::Packet { epoch } => world.end.on_packet(NOW, epoch),
            Action::UseAtOnce { group } => {
                world.wishes -= 1;
                let _ = world.end.use_at_once(NOW, group, 10 + world.wishes);
            }
            Action::Acknowledge { epoch } => world.end.on_acknowledged(NOW, epoch),
            Action::Carry { carried, accept } => {
                let answer = |_, _: &u8| if accept { Ok(()) } else { Err(1) };
                let is_read = world.end.handle_carried(NOW, carried, answer);
                seen |= if is_read { SEEN_CARRIED } else { 0 };
            }
        }
        seen |= world.drain(self.is_deaf);
        self.seen.fetch_or(seen, Ordering::Relaxed);
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no step breaks a rule", |_, world: &World| world.broken.is_none()),
            Property::always("what is open is bounded", |_, world: &World| world.is_bounded()),
            Property::always("no two states are at odds", |model: &Self, world: &World| {
                world.is_consistent(model.side)
            }),
            Property::always("it comes to rest", |_, world: &World| world.comes_to_rest()),
        ]
    }

    /// Numbers go up with each request; those near are all that the lies are about.
    fn within_boundary(&self, world: &World) -> bool {
        world.open.last_key_value().is_none_or(|(epoch, _)| *epoch <= EPOCH_SPAN + NEAR)
    }
}

#[test]
fn a_sender_of_data_bears_any_lie() {
    let all = SEEN_PEER_REQUEST
        | SEEN_OWN_ACCEPTED
        | SEEN_OWN_REFUSED
        | SEEN_OWN_WITHDRAWN
        | SEEN_FAILED
        | SEEN_IGNORED
        | SEEN_BACK;
    Lies::explore("sender", Lies::new(Side::DataSender, true), all);
}

#[test]
fn a_receiver_of_data_bears_any_lie() {
    let all = SEEN_PEER_REQUEST
        | SEEN_OWN_ACCEPTED
        | SEEN_OWN_REFUSED
        | SEEN_OWN_WITHDRAWN
        | SEEN_FAILED
        | SEEN_IGNORED
        | SEEN_CARRIED;
    Lies::explore("receiver", Lies::new(Side::DataReceiver, true), all | SEEN_RETIRED);
    Lies::explore("receiver, nothing retires", Lies::new(Side::DataReceiver, false), all);
}

/// If an owner does not hear of what is retired, it knows epochs that the machine does not know.
/// The exploration finds it.
#[test]
fn a_planted_fault_is_found() {
    let model = Lies { is_deaf: true, ..Lies::new(Side::DataReceiver, true) };
    let checker = model.checker().threads(2).spawn_bfs().join();
    checker.assert_any_discovery("what is open is bounded");
}
