//! Both ends, all that they ever said, and what is under way.

use crate::{Exchange, FIRST_PROFILE, Fault, Letter, NOW, Profile, RECEIVER, Refusal, SENDER};
use crate::{SEEN_ACCEPTED, SEEN_CARRIED, SEEN_CARRIED_CROSSING, SEEN_CARRIED_REFUSED};
use crate::{SEEN_FAILED, SEEN_REFUSED, SEEN_WITHDRAWN};
use std::collections::{BTreeMap, BTreeSet};
use uts_engine::exchange::{Busy, Carried, EPOCH_SPAN, Event, Machine, Message};

/// Packets that were built alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Parcel {
    pub epoch: u32,
    /// The request that they carry, and the epoch under whose protection.
    pub envelope: Option<(u32, Carried<Profile>)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub ends: [Machine<Profile, Refusal>; 2],
    /// All that each end ever sent.
    pub sent: [BTreeSet<Letter>; 2],
    pub wishes: [u8; 2],
    /// Group and profile that each end asked for last.
    pub asked: [Option<(u8, Profile)>; 2],
    /// Epochs that the receiver holds open, with group and profile.
    pub open: BTreeMap<u32, (u8, Profile)>,
    /// Epoch and profile under which the sender builds packets, by group.
    pub using: BTreeMap<u8, (u32, Profile)>,
    /// Every epoch that the sender uses or used, unless what it went back from.
    pub used: BTreeSet<u32>,
    /// Packets of which some may be under way.
    pub parcels: BTreeSet<Parcel>,
    /// Epochs of which a packet was read that came in an envelope: it may be acknowledged.
    pub read: BTreeSet<u32>,
    /// Every binding of a number that either end put into effect.
    pub bound: BTreeMap<u32, (u8, Profile)>,
    /// Numbers of which an initiator said that they came to nothing.
    pub denied: BTreeSet<u32>,
    /// An end has stopped repeating without an answer.
    pub gave_up: bool,
    pub broken: Option<&'static str>,
}

impl World {
    /// Takes out the messages of the machine of `end`. Returns what it sent and which events (as
    /// bits) it had.
    pub fn drain(&mut self, end: usize) -> (Vec<Letter>, u32) {
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
                    self.send_packets();
                    if end != SENDER || old.is_some_and(|(old, _)| old >= epoch) {
                        self.broken = Some("the sender went back, or the receiver uses an epoch");
                    }
                }
                Event::Back { epoch, group, refused } => {
                    self.used.remove(&refused);
                    self.parcels.retain(|parcel| parcel.epoch != refused);
                    let profile = self.bound.get(&epoch).map_or(FIRST_PROFILE, |(_, profile)| *profile);
                    self.using.insert(group, (epoch, profile));
                    seen |= SEEN_CARRIED_REFUSED;
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
        if end == SENDER {
            self.send_packets();
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

    pub fn bind(&mut self, epoch: u32, group: u8, profile: Profile) {
        if self.bound.insert(epoch, (group, profile)).is_some_and(|old| old != (group, profile)) {
            self.broken = Some("a number was bound to two profiles");
        }
    }

    pub fn deliver(&mut self, to: usize, letter: Letter, accept: bool) {
        let is_nak = matches!(letter, Message::Nak { .. });
        let mut before = self.in_use(to);
        if let (Message::Nak { epoch: refused, .. }, Some(carried)) = (&letter, self.ends[to].carried())
            && *refused == carried.epoch
        {
            // what packets carried was in use.
            before[usize::from(carried.group)] = carried.using[usize::from(carried.group)];
        }
        self.ends[to].handle(NOW, letter, |_, _| if accept { Ok(()) } else { Err(1) });
        if is_nak && before != self.in_use(to) {
            self.broken = Some("a NAK changed what is in use");
        }
    }

    pub fn fire(&mut self, end: usize) {
        let was_idle = self.ends[end].is_idle();
        self.ends[end].handle_timeout(NOW);
        self.gave_up |= !was_idle && self.ends[end].is_idle();
    }

    pub fn in_use(&self, end: usize) -> Vec<Option<u32>> {
        (0..4).map(|group| self.ends[end].current(group)).collect()
    }

    /// Packets leave under all that is in use.
    pub fn send_packets(&mut self) {
        let carried = self.ends[SENDER].carried();
        for (group, (epoch, _)) in &self.using {
            let carried =
                carried.as_ref().filter(|carried| carried.epoch == *epoch && carried.group == *group);
            let envelope = carried.and_then(|carried| Some((carried.using[0]?, carried.clone())));
            self.parcels.insert(Parcel { epoch: *epoch, envelope });
        }
    }

    /// A packet arrives. Says what there was to see.
    pub fn arrive(&mut self, parcel: &Parcel, accept: bool, fault: Fault) -> u32 {
        let Parcel { epoch, envelope } = parcel;
        let Some((outer, carried)) = envelope else {
            if self.open.contains_key(epoch) {
                self.ends[RECEIVER].on_packet(NOW, *epoch);
            }
            return 0;
        };
        if !self.open.contains_key(outer) {
            return 0;
        }
        let (mut seen, crosses) = (0, self.ends[RECEIVER].asked().is_some_and(|asked| asked > *epoch));
        let is_read = self.ends[RECEIVER].handle_carried(NOW, carried.clone(), |_, _| {
            seen |= if accept { SEEN_CARRIED } else { 0 };
            if accept { Ok(()) } else { Err(1) }
        });
        if is_read || fault == Fault::RefusedIsRead {
            self.read.insert(*epoch);
            seen |= if crosses { SEEN_CARRIED_CROSSING } else { 0 };
        }
        if fault == Fault::CarriedIsBare {
            self.ends[RECEIVER].on_packet(NOW, *epoch);
        }
        seen
    }

    /// True if each epoch that the sender uses is open, or is opened by its packets, which can be
    /// read.
    pub fn sender_is_understood(&self) -> bool {
        let carried = self.ends[SENDER].carried();
        self.using.iter().all(|(group, (epoch, profile))| {
            let carried = carried.as_ref().filter(|carried| carried.epoch == *epoch);
            let is_open = |epoch: &u32| self.open.get(epoch).is_some_and(|(of, _)| of == group);
            match carried.map(|carried| (carried.using[0], carried.using[usize::from(*group)])) {
                Some((Some(outer), Some(before))) => self.open.contains_key(&outer) && is_open(&before),
                Some(_) => false,
                None => self.open.get(epoch) == Some(&(*group, *profile)),
            }
        })
    }

    /// Nothing closes below packets that are under way; for where nothing retires by time.
    pub fn packets_are_read(&self) -> bool {
        self.parcels.iter().all(|parcel| match &parcel.envelope {
            None => self.open.contains_key(&parcel.epoch),
            Some((outer, _)) => self.open.contains_key(outer),
        })
    }

    /// All that was sent under an epoch is acknowledged.
    pub fn settle_epoch(&mut self, epoch: u32) {
        self.parcels.retain(|parcel| parcel.epoch != epoch);
        let under_way: BTreeSet<u32> = self.parcels.iter().map(|parcel| parcel.epoch).collect();
        self.ends[SENDER].settle(|epoch| under_way.contains(&epoch));
    }

    /// At most one epoch for which each end asked is open in a group without being known to be in
    /// use.
    pub fn doubt_is_bounded(&self) -> bool {
        (0..2).all(|group| {
            let current = self.ends[RECEIVER].current(group);
            let in_doubt =
                |(epoch, (of, _)): &(&u32, &(u8, Profile))| *of == group && Some(**epoch) > current;
            self.open.iter().filter(in_doubt).count() <= 2
        })
    }

    /// Drops what is in flight and runs on over a network that delivers, until nothing moves.
    pub fn settle(&mut self) -> bool {
        for _ in 0..64 {
            let mut quiet = true;
            if let Some(carried) = self.ends[SENDER].carried() {
                quiet = false;
                let outer = carried.using[0].unwrap_or(u32::MAX);
                let parcel = Parcel { epoch: carried.epoch, envelope: Some((outer, carried)) };
                self.arrive(&parcel, true, Fault::None);
                if self.read.contains(&parcel.epoch) {
                    self.ends[SENDER].on_acknowledged(NOW, parcel.epoch);
                }
            }
            for end in [SENDER, RECEIVER] {
                for letter in self.drain(end).0 {
                    quiet = false;
                    self.deliver(1 - end, letter, true);
                }
            }
            let waits = |end: &Machine<_, _>| end.poll_timeout().is_some_and(|at| at <= NOW);
            if quiet && !self.ends.iter().any(waits) {
                let in_use: Vec<u32> = self.using.values().map(|(epoch, _)| *epoch).collect();
                in_use.iter().for_each(|epoch| self.ends[RECEIVER].on_packet(NOW, *epoch));
                self.parcels.retain(|parcel| in_use.contains(&parcel.epoch) && parcel.envelope.is_none());
                self.ends[SENDER].settle(|epoch| in_use.contains(&epoch));
                if !self.ends.iter().any(waits) {
                    return self.ends.iter().all(Machine::is_idle);
                }
            }
            if quiet {
                self.fire(SENDER);
                self.fire(RECEIVER);
            }
        }
        false
    }

    /// True if both ends come to agree from here, whichever end asks next.
    pub fn converges(&self, model: &Exchange) -> bool {
        let mut settled = self.clone();
        if !settled.settle() {
            return false;
        }
        // Where numbers are few and nothing retires by time, a receiver may wait for ever.
        let may_ask = |end: usize| end == SENDER || model.retires || model.span == EPOCH_SPAN;
        let ends = [(SENDER, false), (SENDER, true), (RECEIVER, false)].into_iter();
        let ends = ends.filter(|(end, at_once)| may_ask(*end) && (model.carries || !at_once));
        ends.into_iter().all(|(end, at_once)| {
            let mut world = settled.clone();
            (0..model.groups).all(|group| {
                // What was in doubt is settled first, a number may turn out to be spent, and the
                // oldest epoch may have to be renewed.
                (0..6).any(|attempt| {
                    let wish = 200 + attempt;
                    let machine = &mut world.ends[end];
                    let epoch = match at_once {
                        true => machine.use_at_once(NOW, group, wish),
                        false => machine.request(NOW, group, wish),
                    };
                    if let Err(Busy::Span { group }) = epoch {
                        let _ = world.ends[end].renew(NOW, group, wish);
                    }
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
