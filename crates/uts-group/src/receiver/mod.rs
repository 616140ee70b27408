//! A receiver: packets into messages, and what lacks into requests.
//!
//! It begins with the block that the sender has named. A block that has ended and lacks something
//! is asked for after a random wait, unless repairs that are announced meanwhile are as many as it
//! needs. Memory and work are bounded by [`ReceiverSettings`], whatever the sender says.

mod block;

use crate::Answers;
use crate::backoff::{Backoff, GRTT_MAX, GRTT_MIN, round_trip};
use crate::code::{Code, SOURCES_MAX};
use crate::wire::{Advertised, Body, ENTRIES_MAX, FromSender, Lack, Request, TIME_BYTES};
use block::{Asking, Block};
use bytes::Bytes;
use core::time::Duration;
use std::collections::BTreeMap;
use uts_functions::Time;
use uts_functions::playout::Clock;

/// Choices of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverSettings {
    /// Sources of a full block, as the sender has told.
    pub sources: usize,
    /// Age, beyond the quickest way, at which each message is handed over. What has not come by
    /// then is given up. Without it messages come as soon as those before have, and are given up
    /// when the sender gives them up.
    pub latency: Option<Duration>,
    /// Blocks that are kept.
    pub blocks: usize,
    /// Bytes that are kept.
    pub bytes: usize,
    /// The manner in which the sender answers.
    pub answers: Answers,
}

impl Default for ReceiverSettings {
    fn default() -> Self {
        let answers = Answers::default();
        ReceiverSettings { sources: 16, latency: None, blocks: 1024, bytes: 16 << 20, answers }
    }
}

/// Something for the application, in the order in which it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message.
    Message(Bytes),
    /// So many messages, at the most, come no more.
    Missing(u64),
    /// Nothing follows.
    Ended,
}

/// Counts of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Messages that were handed over.
    pub messages: u64,
    /// Sources that parities have brought back.
    pub repaired: u64,
    /// Messages that were given up.
    pub missing: u64,
    /// Blocks that lacked something when they ended.
    pub losses: u64,
    /// Requests that were made.
    pub requests: u64,
    /// Requests that were not made because others had asked.
    pub suppressed: u64,
    /// Packets that told nothing new.
    pub unneeded: u64,
}

/// A receiver of a group.
#[derive(Debug)]
pub struct Receiver {
    settings: ReceiverSettings,
    code: Code,
    backoff: Backoff,
    advertised: Advertised,
    /// The highest number that came, and when.
    heard: Option<(u64, Time)>,
    /// Blocks that were heard of, from that of the next message on.
    blocks: BTreeMap<u32, Block>,
    /// Block and index of the next message.
    at: (u32, usize),
    /// The instant before which no other request is made.
    quiet_until: Time,
    /// The first block that nothing was heard of yet.
    end: u32,
    bytes: usize,
    /// The sender's clock, as its sources tell it.
    clock: Clock,
    /// Messages that were given up and not told yet.
    missing: u64,
    /// The first block that will never be.
    last: Option<u32>,
    has_ended: bool,
    stats: ReceiverStats,
}

impl Receiver {
    /// A receiver of all blocks from `first` on. Receivers of one group have different seeds.
    pub fn new(mut settings: ReceiverSettings, first: u32, seed: u64) -> Self {
        settings.sources = settings.sources.clamp(1, SOURCES_MAX);
        settings.blocks = settings.blocks.max(2);
        Receiver {
            settings,
            code: Code::default(),
            backoff: Backoff::new(seed),
            advertised: Advertised::default(),
            heard: None,
            blocks: BTreeMap::new(),
            at: (first, 0),
            quiet_until: Time::ZERO,
            end: first,
            bytes: 0,
            clock: Clock::default(),
            missing: 0,
            last: None,
            has_ended: false,
            stats: ReceiverStats::default(),
        }
    }

    /// Counts so far.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// Bytes that are kept.
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the age at which messages are handed over.
    pub fn set_latency(&mut self, latency: Option<Duration>) {
        self.settings.latency = latency;
    }

    /// Takes in a packet, of which the caller knows that it is the sender's own.
    pub fn handle(&mut self, now: Time, number: u64, packet: FromSender) {
        if self.heard.is_none_or(|(highest, _)| number > highest) {
            self.heard = Some((number, now));
            self.advertised = packet.advertised;
        }
        match packet.body {
            Body::Source { block, index, before, source } => {
                self.on_source(now, block, index, before, source);
            }
            Body::Parity { block, count, parity, more, symbol } => {
                if self.reach(now, block) {
                    self.on_count(block, count);
                    self.on_parity(block, parity, symbol);
                    self.on_announced(now, block, usize::from(more));
                }
            }
            Body::Status { last: (block, count), is_end, repairs } => {
                if count > 0 && self.reach(now, block) {
                    self.on_count(block, count);
                }
                for (block, repairs) in repairs {
                    self.on_announced(now, block, repairs.into());
                }
                if is_end {
                    self.last = Some(block.saturating_add(u32::from(count > 0)));
                }
            }
        }
        self.arm(now);
    }

    /// The next thing for the application.
    pub fn poll_event(&mut self, now: Time) -> Option<Event> {
        loop {
            let (number, index) = self.at;
            if self.has_passed(number, index) {
                self.drop_block(number);
                self.at = (number.saturating_add(1), 0);
                continue;
            }
            let source = self.blocks.get(&number).and_then(|block| block.source(index));
            if let Some(source) = source {
                if self.due(now, source).is_some_and(|due| due > now) {
                    break;
                }
                if self.missing > 0 {
                    return Some(Event::Missing(core::mem::take(&mut self.missing)));
                }
                let message = source.slice(TIME_BYTES..);
                self.at = (number, index + 1);
                self.stats.messages += 1;
                return Some(Event::Message(message));
            }
            if !self.is_given_up(now, number, index) {
                break;
            }
            self.missing += 1;
            self.stats.missing += 1;
            self.at = (number, index + 1);
        }
        if self.missing > 0 {
            return Some(Event::Missing(core::mem::take(&mut self.missing)));
        }
        let is_end = self.last.is_some_and(|last| self.at.0 >= last);
        (is_end && !core::mem::replace(&mut self.has_ended, true)).then_some(Event::Ended)
    }

    /// A request that is to be sent now. (G-14)
    pub fn poll_request(&mut self, now: Time) -> Option<Request> {
        self.arm(now);
        let (seen, heard_at) = self.heard?;
        if now < self.quiet_until || !self.blocks.values().any(|block| block.asking.is_due(now)) {
            return None;
        }
        let until = now + self.settings.answers.holds(self.grtt(), self.advertised.backoff);
        let sources = self.settings.sources;
        let mut lacks = Vec::new();
        // One request for all that would be asked soon.
        for (number, block) in &mut self.blocks {
            if matches!(block.asking, Asking::After(_)) && lacks.len() < ENTRIES_MAX {
                block.asking = Asking::Not(until);
                let needs = block.needs(sources) as u8;
                lacks.push(Lack { block: *number, needs, missing: block.missing(sources) });
            }
        }
        self.stats.requests += 1;
        // G-15
        self.quiet_until = now + self.grtt() / 4;
        let echo = self.advertised.sent.wrapping_add((now.since(heard_at).as_micros()) as u32);
        Some(Request { echo, seen, lacks })
    }

    /// The instant at which one of the polls has something to do.
    pub fn next_timeout(&self, now: Time) -> Time {
        let asking = self.blocks.values().filter_map(|block| block.asking.due()).min();
        let asking = asking.map(|at| at.max(self.quiet_until));
        let next = self.next_present().and_then(|source| self.due(now, source));
        let stale = self.settings.latency.and_then(|latency| {
            let first = self.blocks.values().find(|block| block.needs(self.settings.sources) > 0)?;
            Some(first.since + latency)
        });
        [asking, next, stale].into_iter().flatten().filter(|at| *at > now).min().unwrap_or(Time::NEVER)
    }

    fn grtt(&self) -> Duration {
        round_trip(self.advertised.grtt).clamp(GRTT_MIN, GRTT_MAX)
    }

    fn on_source(&mut self, now: Time, number: u32, index: u8, before: u8, source: Bytes) {
        if let Some(time) = source.first_chunk::<TIME_BYTES>() {
            let made = self.clock.read(now, u32::from_be_bytes(*time));
            self.clock.on_arrival(now, made);
        }
        if before > 0 && number.checked_sub(1).is_some_and(|before| self.reach(now, before)) {
            self.on_count(number - 1, before);
        }
        if !self.reach(now, number) {
            self.stats.unneeded += 1;
            return;
        }
        let Some(block) = self.blocks.get_mut(&number) else { return };
        let length = source.len();
        if !block.put(index.into(), source) {
            self.stats.unneeded += 1;
            return;
        }
        self.bytes += length;
        self.repair(number);
        self.make_room();
    }

    fn on_parity(&mut self, number: u32, parity: u8, symbol: Bytes) {
        let Some(block) = self.blocks.get_mut(&number) else { return };
        let length = symbol.len();
        if block.needs(self.settings.sources) == 0 || !block.put_parity(parity, symbol) {
            self.stats.unneeded += 1;
            return;
        }
        self.bytes += length;
        self.repair(number);
        self.make_room();
    }

    /// The sources of a block are known.
    fn on_count(&mut self, number: u32, count: u8) {
        let Some(block) = self.blocks.get_mut(&number) else { return };
        if block.count.is_none() {
            block.count = Some(count.into());
            self.repair(number);
        }
    }

    /// So many repairs of a block are on their way. (G-15)
    fn on_announced(&mut self, now: Time, number: u32, repairs: usize) {
        let (sources, grtt) = (self.settings.sources, self.grtt());
        let Some(block) = self.blocks.get_mut(&number) else { return };
        let needs = block.needs(sources);
        if needs == 0 {
            return;
        }
        if needs <= repairs {
            self.stats.suppressed += u64::from(matches!(block.asking, Asking::After(_)));
            block.asking = Asking::Not(now + self.settings.answers.holds(grtt, self.advertised.backoff));
        } else if matches!(block.asking, Asking::Not(_)) && self.settings.answers == Answers::Prompt {
            // Those that come are too few, or some were lost.
            block.asking = Asking::Never;
        }
    }

    /// Brings a block back, if as many symbols have come as it has sources.
    fn repair(&mut self, number: u32) {
        let Some(block) = self.blocks.get_mut(&number) else { return };
        let (before, had) = (block.bytes(), block.have());
        if block.repair(&self.code) {
            self.stats.repaired += (block.have() - had) as u64;
        }
        self.bytes = self.bytes + block.bytes() - before;
    }

    /// Makes a place for a block, and for those between that were not heard of. False if it has
    /// passed.
    fn reach(&mut self, now: Time, number: u32) -> bool {
        let (at, _) = self.at;
        if number < at || number == u32::MAX {
            return false;
        }
        // What is too far back to be kept is given up at once.
        let first = number.saturating_sub(self.settings.blocks as u32 - 1);
        if first > at {
            self.give_up_before(first);
        }
        for between in self.end.max(first)..=number {
            self.blocks.insert(between, Block::new(now));
        }
        self.end = self.end.max(number + 1);
        true
    }

    /// Gives up all blocks before another.
    fn give_up_before(&mut self, first: u32) {
        let (at, index) = self.at;
        if at >= first {
            return;
        }
        let kept = self.blocks.split_off(&first);
        let passed = core::mem::replace(&mut self.blocks, kept);
        let sources = self.settings.sources;
        let known: usize = passed.values().map(|block| block.count.unwrap_or(sources)).sum();
        let unknown = u64::from(first - at) - passed.len() as u64;
        let lost = (known as u64 + unknown * sources as u64).saturating_sub(index as u64);
        self.missing += lost;
        self.stats.missing += lost;
        self.bytes = self.blocks.values().map(Block::bytes).sum();
        self.at = (first, 0);
    }

    /// Gives up the oldest blocks until the bytes that are kept are within their bound.
    fn make_room(&mut self) {
        while self.bytes > self.settings.bytes {
            self.give_up_before(self.at.0.saturating_add(1));
        }
    }

    /// Has blocks that have ended, and lack something, asked for. (G-14, G-15)
    fn arm(&mut self, now: Time) {
        let (grtt, end, sources) = (self.grtt(), self.end, self.settings.sources);
        let longest = grtt * u32::from(self.advertised.backoff);
        let members = u32::from(self.advertised.members);
        for (number, block) in &mut self.blocks {
            let has_ended = block.count.is_some() || number + 1 < end;
            let is_stale = self.settings.latency.is_some_and(|latency| block.since + latency < now);
            if !has_ended {
                continue;
            }
            if is_stale || *number < self.advertised.oldest || block.needs(sources) == 0 {
                // Others have asked, or it is too late.
                self.stats.suppressed += u64::from(matches!(block.asking, Asking::After(_)));
                block.asking = Asking::Not(Time::NEVER);
            } else if block.asking.may_begin(now) {
                self.stats.losses += u64::from(!core::mem::replace(&mut block.is_counted, true));
                block.asking = Asking::After(now + self.backoff.wait(longest, members));
            }
        }
    }

    /// True if a block has no place `index`.
    fn has_passed(&self, number: u32, index: usize) -> bool {
        match self.blocks.get(&number) {
            Some(block) => index >= block.count.unwrap_or(self.settings.sources),
            None => false,
        }
    }

    fn drop_block(&mut self, number: u32) {
        if let Some(block) = self.blocks.remove(&number) {
            self.bytes -= block.bytes();
        }
    }

    /// True if a source that is missing will not come in time: the sender has it no more, or what
    /// was made behind it is due. (G-20)
    fn is_given_up(&self, now: Time, number: u32, index: usize) -> bool {
        let Some(block) = self.blocks.get(&number) else { return false };
        if number < self.advertised.oldest {
            return true;
        }
        let Some(latency) = self.settings.latency else { return false };
        let next = self.next_present().and_then(|source| self.due(now, source));
        let has_ended = number + 1 < self.end || block.count.is_some() || block.reaches() > index;
        has_ended && next.unwrap_or(block.since + latency) <= now
    }

    /// The next message that has come.
    fn next_present(&self) -> Option<&Bytes> {
        let (number, index) = self.at;
        let here = self.blocks.get(&number).and_then(|block| block.first_from(index));
        here.or_else(|| self.blocks.range(number + 1..).find_map(|(_, block)| block.first_from(0)))
    }

    /// The instant at which a source is to be handed over; `None` if that is at once.
    fn due(&self, now: Time, source: &Bytes) -> Option<Time> {
        let time = source.first_chunk::<TIME_BYTES>()?;
        let made = self.clock.nearest(now, u32::from_be_bytes(*time));
        Some(self.clock.due(made, self.settings.latency?))
    }
}
