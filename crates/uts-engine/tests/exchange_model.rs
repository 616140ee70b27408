//! Exhaustive exploration of the exchange: the machines that the engine runs, at both ends of one
//! direction, joined by a network that may lose, repeat, reorder and delay every message without
//! bound.
//!
//! The network is the set of all messages ever sent. Any of them may be delivered at any time, any
//! number of times, or never. Timers fire in any order. What must happen "eventually" is stated as
//! safety: from every reachable state, a network that delivers from then on brings the ends
//! together.

use stateright::{Checker, Model, Property};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use uts_engine::exchange::{Event, Machine, Message, Side, Using};
use uts_functions::Time;

type Profile = u8;
type Refusal = u8;
type Letter = Message<Profile, Refusal>;

const SENDER: usize = 0;
const RECEIVER: usize = 1;
const FIRST_PROFILE: Profile = 0;
/// Time stands still, and so do deadlines: firing a timer is an action like any other.
const NOW: Time = Time::ZERO;

/// Faults planted between the machines, which the exploration must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A NAK is read as an ACK.
    NakIsAck,
    /// An ACK is taken for the last request, whatever its number.
    AckWithoutNumber,
    /// What the receiver accepts counts as confirmed at once.
    AcceptIsConfirm,
    /// Requests do not say what the sender uses.
    UsingForgotten,
}

/// What must have happened somewhere in an exploration for it to mean anything.
const SEEN_WITHDRAWN: [u32; 2] = [1, 2];
const SEEN_REFUSED: [u32; 2] = [4, 8];
const SEEN_FAILED: [u32; 2] = [16, 32];
const SEEN_ACCEPTED: [u32; 2] = [64, 128];
const SEEN_ALL: u32 = 255;

struct Exchange {
    fault: Fault,
    /// How many requests each end may make.
    wishes: [u8; 2],
    groups: u8,
    tries_max: u8,
    /// Whether replaced epochs close as soon as a timer fires, or never: the extremes of the
    /// retirement delay.
    retires: bool,
    seen: AtomicU32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    ends: [Machine<Profile, Refusal>; 2],
    /// All that each end ever sent.
    sent: [BTreeSet<Letter>; 2],
    wishes: [u8; 2],
    /// What each end asked for last.
    asked: [Option<(u8, Profile)>; 2],
    /// What the receiver holds open: epoch to group and profile.
    open: BTreeMap<u32, (u8, Profile)>,
    /// What the sender builds packets under.
    using: BTreeMap<u8, (u32, Profile)>,
    /// Every epoch that the sender built packets under: any may still arrive.
    used: BTreeSet<u32>,
    /// Every binding of a number that either end put into effect.
    bound: BTreeMap<u32, (u8, Profile)>,
    /// Numbers of which an initiator said that they came to nothing.
    denied: BTreeSet<u32>,
    /// Whether an end ever stopped repeating without an answer.
    gave_up: bool,
    broken: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Ask { end: usize, group: u8 },
    AskAgain { end: usize },
    Deliver { to: usize, letter: Letter, accept: bool },
    Fire { end: usize },
    Packet { epoch: u32 },
}

impl World {
    /// Takes out the messages of the machine of `end`. Returns what it sent and which events (as
    /// bits) it had.
    fn drain(&mut self, end: usize) -> (Vec<Letter>, u32) {
        let mut seen = 0;
        while let Some(event) = self.ends[end].poll_event() {
            match event {
                Event::Open { epoch, group, profile } => {
                    self.bind(epoch, group, profile);
                    if end != RECEIVER || self.open.insert(epoch, (group, profile)).is_some() {
                        self.broken = Some("an epoch was opened twice, or by the sender");
                    }
                }
                Event::Use { epoch, group, profile } => {
                    self.bind(epoch, group, profile);
                    self.used.insert(epoch);
                    let old = self.using.insert(group, (epoch, profile));
                    if end != SENDER || old.is_some_and(|(old, _)| old >= epoch) {
                        self.broken = Some("the sender went back, or the receiver uses an epoch");
                    }
                }
                Event::Retire { epoch } => {
                    if self.open.remove(&epoch).is_none() {
                        self.broken = Some("an epoch was retired that was not open");
                    }
                }
                Event::Accepted { .. } => seen |= SEEN_ACCEPTED[end],
                Event::Refused { epoch, .. } => {
                    self.denied.insert(epoch);
                    seen |= SEEN_REFUSED[end];
                }
                Event::Withdrawn { epoch, .. } => {
                    self.denied.insert(epoch);
                    seen |= SEEN_WITHDRAWN[end];
                }
                Event::Failed { .. } => seen |= SEEN_FAILED[end],
            }
        }
        if !self.denied.is_disjoint(&self.used) {
            self.broken = Some("a number is in use that was said to have come to nothing");
        }
        if end == RECEIVER && self.denied.iter().any(|epoch| epoch % 2 == 1 && self.open.contains_key(epoch))
        {
            self.broken = Some("the receiver keeps open what came to nothing");
        }
        let mut letters = Vec::new();
        while let Some(letter) = self.ends[end].poll_message() {
            letters.push(letter);
        }
        (letters, seen)
    }

    fn bind(&mut self, epoch: u32, group: u8, profile: Profile) {
        if self.bound.insert(epoch, (group, profile)).is_some_and(|old| old != (group, profile)) {
            self.broken = Some("a number was bound to two profiles");
        }
    }

    fn deliver(&mut self, to: usize, letter: Letter, accept: bool) {
        let is_nak = matches!(letter, Message::Nak { .. });
        let before = self.in_use(to);
        self.ends[to].handle(NOW, letter, |_, _| if accept { Ok(()) } else { Err(1) });
        if is_nak && before != self.in_use(to) {
            self.broken = Some("a NAK changed what is in use");
        }
    }

    fn fire(&mut self, end: usize) {
        let was_idle = self.ends[end].is_idle();
        self.ends[end].handle_timeout(NOW);
        self.gave_up |= !was_idle && self.ends[end].is_idle();
    }

    fn in_use(&self, end: usize) -> Vec<Option<u32>> {
        (0..4).map(|group| self.ends[end].current(group)).collect()
    }

    fn sender_is_understood(&self) -> bool {
        self.using.iter().all(|(group, (epoch, profile))| self.open.get(epoch) == Some(&(*group, *profile)))
    }

    /// At most one epoch for which each end asked is open in a group without being known to be in
    /// use.
    fn doubt_is_bounded(&self) -> bool {
        (0..2).all(|group| {
            let current = self.ends[RECEIVER].current(group);
            let in_doubt =
                |(epoch, (of, _)): &(&u32, &(u8, Profile))| *of == group && Some(**epoch) > current;
            self.open.iter().filter(in_doubt).count() <= 2
        })
    }

    /// Drops what is in flight and runs on over a network that delivers, until nothing moves.
    fn settle(&mut self) -> bool {
        for _ in 0..64 {
            let mut quiet = true;
            for end in [SENDER, RECEIVER] {
                for letter in self.drain(end).0 {
                    quiet = false;
                    self.deliver(1 - end, letter, true);
                }
            }
            let waits = |end: &Machine<_, _>| end.poll_timeout().is_some_and(|at| at <= NOW);
            if quiet && !self.ends.iter().any(waits) {
                return self.ends.iter().all(Machine::is_idle);
            }
            if quiet {
                self.fire(SENDER);
                self.fire(RECEIVER);
            }
        }
        false
    }

    /// Whether both ends come to agree from here, whichever end asks next.
    fn converges(&self, model: &Exchange) -> bool {
        let mut settled = self.clone();
        if !settled.settle() {
            return false;
        }
        [SENDER, RECEIVER].into_iter().all(|end| {
            let mut world = settled.clone();
            (0..model.groups).all(|group| {
                // What was in doubt is settled first, and a number may turn out to be spent.
                (0..3).any(|attempt| {
                    let wish = 200 + attempt;
                    let epoch = world.ends[end].request(NOW, group, wish);
                    world.settle()
                        && epoch.is_ok_and(|epoch| {
                            world.using.get(&group) == Some(&(epoch, wish))
                                && world.ends.iter().all(|end| end.current(group) == Some(epoch))
                        })
                })
            }) && world.ends.iter().all(|end| end.in_doubt().is_none())
                && (!model.retires || world.open.len() == world.using.len())
                && world.sender_is_understood()
                && world.broken.is_none()
        })
    }
}

impl Exchange {
    fn new(wishes: [u8; 2], groups: u8, tries_max: u8, retires: bool) -> Self {
        Exchange { fault: Fault::None, wishes, groups, tries_max, retires, seen: AtomicU32::new(0) }
    }

    fn machine(&self, side: Side) -> Machine<Profile, Refusal> {
        let mut machine = Machine::new(side, 0).with_tries_max(self.tries_max);
        machine.set_pto(Duration::ZERO);
        if !self.retires {
            machine.set_retire_after(Duration::MAX);
        }
        machine
    }

    /// What the fault makes of a message on its way.
    fn spoil(&self, world: &World, to: usize, letter: Letter) -> Letter {
        match (self.fault, letter) {
            (Fault::NakIsAck, Message::Nak { epoch, .. }) => Message::Ack { epoch },
            (Fault::AckWithoutNumber, Message::Ack { epoch }) => {
                let asked = world.sent[to].iter().filter_map(|sent| match sent {
                    Message::Request { epoch, .. } => Some(*epoch),
                    _ => None,
                });
                Message::Ack { epoch: asked.max().unwrap_or(epoch) }
            }
            (Fault::UsingForgotten, Message::Request { epoch, group, profile, .. }) => {
                let mut using: Using = Default::default();
                using[0] = Some(0);
                Message::Request { epoch, group, using, profile }
            }
            (_, letter) => letter,
        }
    }

    fn collect(&self, world: &mut World) {
        for end in [SENDER, RECEIVER] {
            let (letters, seen) = world.drain(end);
            self.seen.fetch_or(seen, Ordering::Relaxed);
            if self.fault == Fault::AcceptIsConfirm {
                for letter in &letters {
                    if let (RECEIVER, Message::Ack { epoch }) = (end, letter) {
                        world.ends[RECEIVER].on_packet(NOW, *epoch);
                    }
                }
            }
            world.sent[end].extend(letters);
        }
    }
}

impl Model for Exchange {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            ends: [self.machine(Side::DataSender), self.machine(Side::DataReceiver)],
            sent: Default::default(),
            wishes: self.wishes,
            asked: [None; 2],
            open: [(0, (0, FIRST_PROFILE))].into(),
            using: [(0, (0, FIRST_PROFILE))].into(),
            used: [0].into(),
            bound: [(0, (0, FIRST_PROFILE))].into(),
            denied: BTreeSet::new(),
            gave_up: false,
            broken: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for end in [SENDER, RECEIVER] {
            if world.wishes[end] > 0 {
                actions.extend((0..self.groups).map(|group| Action::Ask { end, group }));
                if world.ends[end].in_doubt().is_some() {
                    actions.push(Action::AskAgain { end });
                }
            }
            if world.ends[end].poll_timeout().is_some_and(|at| at <= NOW) {
                actions.push(Action::Fire { end });
            }
            for letter in &world.sent[end] {
                let (to, letter) = (1 - end, letter.clone());
                if matches!(letter, Message::Request { .. }) {
                    actions.push(Action::Deliver { to, letter: letter.clone(), accept: false });
                }
                actions.push(Action::Deliver { to, letter, accept: true });
            }
        }
        actions.extend(world.used.iter().map(|&epoch| Action::Packet { epoch }));
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Ask { end, group } => {
                let profile = if end == SENDER { 10 } else { 20 } + world.wishes[end];
                world.wishes[end] -= 1;
                if world.ends[end].request(NOW, group, profile).is_ok() {
                    world.asked[end] = Some((group, profile));
                }
            }
            Action::AskAgain { end } => {
                world.wishes[end] -= 1;
                let (group, profile) = world.asked[end]?;
                let same = world.ends[end].in_doubt();
                // An end that still waits for a Confirm is busy.
                let idle = world.ends[end].is_idle();
                if world.ends[end].request(NOW, group, profile).ok() != same.filter(|_| idle) {
                    world.broken = Some("what is in doubt was not asked under its number");
                }
            }
            Action::Deliver { to, letter, accept } => {
                let letter = self.spoil(&world, to, letter);
                world.deliver(to, letter, accept);
            }
            Action::Fire { end } => world.fire(end),
            Action::Packet { epoch } => world.ends[RECEIVER].on_packet(NOW, epoch),
        }
        self.collect(&mut world);
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("the sender uses what the receiver reads", |_, world: &World| {
                world.sender_is_understood()
            }),
            Property::always("no step breaks a rule", |_, world: &World| world.broken.is_none()),
            Property::always("doubt is bounded", |_, world: &World| world.doubt_is_bounded()),
            Property::always("at rest both ends agree", |_, world: &World| {
                let at_rest = !world.gave_up && world.ends.iter().all(Machine::is_idle);
                !at_rest || world.in_use(SENDER) == world.in_use(RECEIVER)
            }),
            Property::always(
                "a network that delivers brings them together",
                |model: &Self, world: &World| model.fault != Fault::None || world.converges(model),
            ),
        ]
    }
}

fn explore(name: &str, model: Exchange, must_see: u32) {
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("{name}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
    let seen = checker.model().seen.load(Ordering::Relaxed);
    assert_eq!(seen & must_see, must_see, "{name}: the exploration missed a kind of event");
}

#[test]
fn each_end_asks_once() {
    explore("once", Exchange::new([1, 1], 1, 2, true), SEEN_ALL);
    explore("once, two groups", Exchange::new([1, 1], 2, 1, true), SEEN_ALL);
}

#[test]
fn crossing_and_sequences() {
    explore("sender twice", Exchange::new([2, 1], 1, 1, true), SEEN_ALL);
    explore("receiver twice", Exchange::new([1, 2], 1, 1, true), SEEN_ALL);
    explore("without retirement", Exchange::new([2, 1], 1, 1, false), SEEN_ALL);
    explore("sender twice, two groups", Exchange::new([2, 1], 2, 1, true), SEEN_ALL);
    explore("receiver twice, two groups", Exchange::new([1, 2], 2, 1, true), SEEN_ALL);
    explore("sender twice, tries", Exchange::new([2, 1], 1, 2, true), SEEN_ALL);
}

#[test]
fn both_ends_ask_twice() {
    explore("both twice", Exchange::new([2, 2], 1, 1, true), SEEN_ALL);
}

#[test]
fn planted_faults_are_found() {
    for (fault, property) in [
        (Fault::NakIsAck, "the sender uses what the receiver reads"),
        (Fault::AckWithoutNumber, "the sender uses what the receiver reads"),
        (Fault::AcceptIsConfirm, "the sender uses what the receiver reads"),
        (Fault::UsingForgotten, "the sender uses what the receiver reads"),
    ] {
        let model = Exchange { fault, ..Exchange::new([2, 1], 1, 1, true) };
        let checker = model.checker().threads(2).spawn_bfs().join();
        println!("{fault:?}: found among {} states", checker.unique_state_count());
        checker.assert_any_discovery(property);
    }
}
