//! Exhaustive exploration of the exchange: the machines that the engine runs, at both ends of one
//! direction, joined by a network that may lose, repeat, reorder and delay every message without
//! bound.
//!
//! The network is the set of all messages ever sent. Any of them may be delivered at any time, any
//! number of times, or never. So may packets, each of which stands for all that were built under
//! one epoch, until all of those are acknowledged. Timers fire in any order. What must happen
//! "eventually" is stated as safety: from every reachable state, a network that delivers from then
//! on brings the ends together.

mod world;

use stateright::{Checker, Model, Property};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use uts_engine::exchange::{EPOCH_SPAN, Machine, Message, Side, Using};
use uts_functions::Time;
use world::{Parcel, World};

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
    /// A request that the receiver accepts counts as confirmed at once.
    AcceptIsConfirm,
    /// Requests do not say what the sender uses.
    UsingForgotten,
    /// The first packet that carries a request counts as a packet that carries none.
    CarriedIsBare,
    /// Epochs that the sender no longer uses count as settled, whatever is under way.
    SettledAtOnce,
    /// Content of a packet that has arrived counts as read, though the request that it carried is
    /// refused.
    RefusedIsRead,
    /// A refusal of what packets carry does not arrive, and the sender gives up.
    BackForgotten,
}

/// Events that must have happened somewhere in an exploration for it to mean anything.
const SEEN_WITHDRAWN: [u32; 2] = [1, 2];
const SEEN_REFUSED: [u32; 2] = [4, 8];
const SEEN_FAILED: [u32; 2] = [16, 32];
const SEEN_ACCEPTED: [u32; 2] = [64, 128];
const SEEN_ALL: u32 = 255;
/// Requests that packets carried were accepted by the receiver, refused, or crossed its own higher
/// request.
const SEEN_CARRIED: u32 = 256;
const SEEN_CARRIED_REFUSED: u32 = 512;
const SEEN_CARRIED_CROSSING: u32 = 1024;
const SEEN_CARRIED_ALL: u32 = SEEN_CARRIED | SEEN_CARRIED_REFUSED | SEEN_CARRIED_CROSSING;
/// An epoch was forgotten at the sender because all sent under it was acknowledged.
const SEEN_SETTLED: u32 = 2048;
/// The receiver closed an epoch because of a number far above it.
const SEEN_FAR_ABOVE: u32 = 4096;

struct Exchange {
    fault: Fault,
    /// Number of requests that each end may make.
    wishes: [u8; 2],
    groups: u8,
    tries_max: u8,
    span: u32,
    /// The sender may use a profile at once.
    carries: bool,
    /// It may ask and wait for the answer.
    asks: bool,
    /// Requests may be refused.
    refuses: bool,
    /// Replaced epochs close as soon as a timer fires, else never: the extremes of the retirement
    /// delay.
    retires: bool,
    seen: AtomicU32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Ask { end: usize, group: u8 },
    AskAgain { end: usize },
    Deliver { to: usize, letter: Letter, accept: bool },
    Fire { end: usize },
    Packet { parcel: Parcel, accept: bool },
    UseAtOnce { group: u8 },
    Acknowledge { epoch: u32 },
    Settle { epoch: u32 },
}

impl Exchange {
    fn new(wishes: [u8; 2], groups: u8, tries_max: u8, retires: bool) -> Self {
        Exchange {
            fault: Fault::None,
            wishes,
            groups,
            tries_max,
            span: EPOCH_SPAN,
            carries: false,
            asks: true,
            refuses: true,
            retires,
            seen: AtomicU32::new(0),
        }
    }

    /// The same, where the sender may use a profile at once.
    fn carrying(self) -> Self {
        Exchange { carries: true, ..self }
    }

    /// The same, where numbers that packets tell apart are few, and nothing is refused.
    fn within(self, span: u32) -> Self {
        Exchange { span, refuses: false, ..self }
    }

    fn machine(&self, side: Side) -> Machine<Profile, Refusal> {
        let mut machine = Machine::new(side, 0).with_tries_max(self.tries_max).with_span(self.span);
        machine.set_pto(Duration::ZERO);
        if !self.retires {
            machine.set_retire_after(Duration::MAX);
        }
        machine
    }

    /// Message that the fault makes of a message on its way.
    fn spoil(&self, world: &World, to: usize, letter: Letter) -> Letter {
        match (self.fault, letter) {
            (Fault::NakIsAck | Fault::BackForgotten, Message::Nak { epoch, .. }) => Message::Ack { epoch },
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
            parcels: [Parcel { epoch: 0, envelope: None }].into(),
            read: BTreeSet::new(),
            bound: [(0, (0, FIRST_PROFILE))].into(),
            denied: BTreeSet::new(),
            gave_up: false,
            broken: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for end in [SENDER, RECEIVER] {
            if world.wishes[end] > 0 {
                if self.asks || end == RECEIVER {
                    actions.extend((0..self.groups).map(|group| Action::Ask { end, group }));
                }
                if self.carries && end == SENDER {
                    actions.extend((0..self.groups).map(|group| Action::UseAtOnce { group }));
                }
                if world.ends[end].in_doubt().is_some() {
                    actions.push(Action::AskAgain { end });
                }
            }
            if world.ends[end].poll_timeout().is_some_and(|at| at <= NOW) {
                actions.push(Action::Fire { end });
            }
            for letter in &world.sent[end] {
                let (to, letter) = (1 - end, letter.clone());
                if self.refuses && matches!(letter, Message::Request { .. }) {
                    actions.push(Action::Deliver { to, letter: letter.clone(), accept: false });
                }
                actions.push(Action::Deliver { to, letter, accept: true });
            }
        }
        for parcel in &world.parcels {
            if self.refuses && parcel.envelope.is_some() {
                actions.push(Action::Packet { parcel: parcel.clone(), accept: false });
            }
            actions.push(Action::Packet { parcel: parcel.clone(), accept: true });
        }
        if let Some(carried) = world.ends[SENDER].carried()
            && world.read.contains(&carried.epoch)
        {
            actions.push(Action::Acknowledge { epoch: carried.epoch });
        }
        if self.span < EPOCH_SPAN {
            let in_use = |epoch| world.using.values().any(|(used, _)| *used == epoch);
            let replaced = world.parcels.iter().map(|parcel| parcel.epoch).filter(|epoch| !in_use(*epoch));
            actions.extend(replaced.map(|epoch| Action::Settle { epoch }));
        }
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
            Action::Packet { parcel, accept } => {
                let seen = world.arrive(&parcel, accept, self.fault);
                self.seen.fetch_or(seen, Ordering::Relaxed);
            }
            Action::UseAtOnce { group } => {
                let profile = 10 + world.wishes[SENDER];
                world.wishes[SENDER] -= 1;
                if world.ends[SENDER].use_at_once(NOW, group, profile).is_ok() {
                    world.asked[SENDER] = Some((group, profile));
                }
            }
            Action::Acknowledge { epoch } => world.ends[SENDER].on_acknowledged(NOW, epoch),
            Action::Settle { epoch } => {
                world.settle_epoch(epoch);
                self.seen.fetch_or(SEEN_SETTLED, Ordering::Relaxed);
            }
        }
        if self.fault == Fault::SettledAtOnce {
            world.ends[SENDER].settle(|_| false);
        }
        let lowest = last.open.keys().next().copied();
        self.collect(&mut world);
        if let (Some(lowest), Some((highest, _))) = (lowest, world.open.last_key_value())
            && highest - lowest >= self.span
            && !world.open.contains_key(&lowest)
        {
            self.seen.fetch_or(SEEN_FAR_ABOVE, Ordering::Relaxed);
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("the sender uses what the receiver reads", |_, world: &World| {
                world.sender_is_understood()
            }),
            Property::always("no step breaks a rule", |_, world: &World| world.broken.is_none()),
            Property::always("packets under way can be read", |model: &Self, world: &World| {
                model.retires || world.packets_are_read()
            }),
            Property::always("open epochs can be told apart", |model: &Self, world: &World| {
                let ends = world.open.first_key_value().zip(world.open.last_key_value());
                ends.is_none_or(|((first, _), (last, _))| last - first < model.span)
            }),
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
fn the_sender_uses_a_profile_at_once() {
    let all = SEEN_ALL | SEEN_CARRIED_ALL;
    explore("at once or asked", Exchange::new([1, 1], 1, 2, true).carrying(), all & !SEEN_CARRIED_CROSSING);
    explore("two groups", Exchange::new([1, 1], 2, 1, true).carrying(), all & !SEEN_CARRIED_CROSSING);
    explore("sender twice", Exchange::new([2, 1], 1, 1, true).carrying(), all & !SEEN_CARRIED_CROSSING);
    explore("receiver twice", Exchange::new([1, 2], 1, 1, true).carrying(), all);
    explore(
        "without retirement",
        Exchange::new([2, 1], 1, 1, false).carrying(),
        all & !SEEN_CARRIED_CROSSING,
    );
    explore("receiver twice, two groups", Exchange::new([1, 2], 2, 1, true).carrying(), all);
    explore("without retirement, receiver twice", Exchange::new([1, 2], 1, 1, false).carrying(), all);
}

#[test]
fn the_sender_uses_twice_at_once_and_the_receiver_asks_twice() {
    let at_once = Exchange { asks: false, ..Exchange::new([2, 2], 1, 1, true).carrying() };
    // A sender that only uses at once tells no failure.
    explore(
        "both twice",
        at_once,
        (SEEN_ALL & !SEEN_FAILED[SENDER] & !SEEN_WITHDRAWN[SENDER]) | SEEN_CARRIED_ALL,
    );
}

/// Numbers return after few exchanges, as they do in packets: what is under way is never taken for
/// something else, and never closed.
#[test]
fn numbers_that_return_harm_nothing_under_way() {
    let all = SEEN_SETTLED | SEEN_FAR_ABOVE;
    let numbers = |wishes| Exchange::new(wishes, 1, 1, false).within(8);
    explore("span of 8, asked", numbers([4, 0]), all);
    let at_once = |wishes| Exchange { asks: false, ..numbers(wishes).carrying() };
    explore("span of 8, at once", at_once([6, 0]), all | SEEN_CARRIED);
    explore("span of 8, the receiver asks as well", at_once([4, 1]), all | SEEN_CARRIED);
}

#[test]
fn planted_faults_are_found() {
    for (fault, property) in [
        (Fault::NakIsAck, "the sender uses what the receiver reads"),
        (Fault::AckWithoutNumber, "the sender uses what the receiver reads"),
        (Fault::AcceptIsConfirm, "the sender uses what the receiver reads"),
        (Fault::UsingForgotten, "the sender uses what the receiver reads"),
    ] {
        find(Exchange { fault, ..Exchange::new([2, 1], 1, 1, true) }, property);
    }
    for (fault, property) in [
        (Fault::CarriedIsBare, "the sender uses what the receiver reads"),
        (Fault::RefusedIsRead, "the sender uses what the receiver reads"),
        (Fault::BackForgotten, "the sender uses what the receiver reads"),
    ] {
        find(Exchange { fault, ..Exchange::new([1, 1], 1, 1, true).carrying() }, property);
    }
    let at_once = Exchange { asks: false, ..Exchange::new([4, 0], 1, 1, false).within(8).carrying() };
    let settled = Exchange { fault: Fault::SettledAtOnce, ..at_once };
    find(settled, "packets under way can be read");
}

fn find(model: Exchange, property: &'static str) {
    let fault = model.fault;
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("{fault:?}: found among {} states", checker.unique_state_count());
    checker.assert_any_discovery(property);
}
