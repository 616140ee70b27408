//! The ledger: every packet sent and not yet settled, as tokens of what it carried rather than as
//! bytes.
//!
//! A packet number is never reused; what is repeated travels in a new packet with a new entry.
//! Which packets count as lost is the finding function's to say, by a [`Rule`]. The ledger takes
//! them out, and keeps how far the path has been seen to reorder (RFC 8985 section 6.2): a packet
//! that was declared lost is acknowledged after all.
//!
//! Most packets leave in batches of the same, with the next bytes of one flow. They share an entry
//! (`entry.rs`), which is why many packets in flight take little memory, and acknowledging them
//! little time.

mod entry;
mod skips;

use crate::congestion::{Cause, Snapshot};
use crate::finding::{Age, Reordering, Rule};
use crate::range::RangeSet;
use crate::time::Time;
use core::ops::Range;
use entry::Entry;
use skips::Skips;
use smallvec::SmallVec;
use std::collections::VecDeque;

pub use entry::{Carried, Run};

/// Lost packets that are remembered, in case they arrive after all.
const LOST_MAX: usize = 1024;

/// Lost packets that are remembered of an age and the half of it, in packets, where there is no
/// room for all.
const LOST_OF_AGE: u64 = 64;

/// Packets that are remembered although they do not ask for an acknowledgement: so many at the
/// front, and twice as many behind others, since a peer that acknowledges nothing would have
/// reports pile up behind what it was asked for.
const UNASKED_MAX: u64 = 256;

/// Tokens of what an entry's packet carried; the engine says what a token is.
pub type Tokens<T> = SmallVec<[T; 2]>;

/// A packet that was sent.
#[derive(Clone, Debug)]
pub struct Sent<T> {
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// The epoch under which it was built.
    pub epoch: u32,
    /// The packet asks for an acknowledgement. Only such packets count as in flight.
    pub eliciting: bool,
    /// The packet probed for a larger packet size: its loss says nothing about congestion.
    pub size_probe: bool,
    /// Figures of its departure, for finding and timing.
    pub departure: Departure,
    /// Content of the packet.
    pub tokens: Tokens<T>,
    /// State of the delivery when it was sent, the instant of sending included.
    pub snapshot: Snapshot,
}

/// Departure of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departure {
    /// It carries data that was sent before.
    pub repeats: bool,
    /// It asks for a report.
    pub polls: bool,
    /// Time-outs in a row before it left.
    pub timeouts: u8,
    /// The time-out when it left, without back-off, in microseconds; zero = not known.
    pub timeout_us: u32,
}

/// The state of the function: packets in flight, and those lost of late.
#[derive(Clone, Debug)]
pub struct Ledger<T> {
    /// In the order of their numbers, without those that were left out; those that do not ask for
    /// an acknowledgement may be missing.
    entries: VecDeque<Entry<T>>,
    /// Packets of the last kind that were entered since older ones were looked through, and the
    /// number of the next at that time.
    unasked: u32,
    looked_through: u64,
    /// The number of the next packet.
    next: u64,
    acked: RangeSet,
    /// The largest acknowledged packet number.
    largest_acked: Option<u64>,
    eliciting: u32,
    last_eliciting_at: Time,
    lost: VecDeque<(u64, Sent<T>)>,
    reordering: Reordering,
    skips: Skips,
    /// Room for what the next acknowledgement settles.
    room: Vec<Run<T>>,
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Ledger {
            entries: VecDeque::new(),
            unasked: 0,
            looked_through: 0,
            next: 0,
            acked: RangeSet::new(),
            largest_acked: None,
            eliciting: 0,
            last_eliciting_at: Time::ZERO,
            lost: VecDeque::new(),
            reordering: Reordering::default(),
            skips: Skips::none(),
            room: Vec::new(),
        }
    }
}

/// Packets that an acknowledgement settled.
#[derive(Debug)]
pub struct Acknowledged<T> {
    /// Packets that are newly acknowledged, in the order of the ranges.
    pub packets: Vec<Run<T>>,
    /// Packets that had been declared lost and arrived after all.
    pub spurious: Vec<(u64, Sent<T>)>,
}

/// Packets that a look for losses found.
#[derive(Debug)]
pub struct Lost<T> {
    /// The packets, in the order of their numbers.
    pub packets: Vec<(u64, Sent<T>)>,
    /// When to look again.
    pub look_again: Option<Time>,
    /// Evidence by which they were found.
    pub cause: Cause,
}

impl<T: Carried> Ledger<T> {
    /// A ledger that leaves numbers out, which follow from `seed`: a secret of this end.
    pub fn leaving_out(seed: u64) -> Self {
        Ledger { skips: Skips::new(seed), ..Ledger::default() }
    }

    /// Leaves the next number out if it is time to.
    pub fn leave_out_if_due(&mut self) {
        self.next += u64::from(self.skips.takes(self.next));
    }

    /// Number of packets that may take the next numbers in a row, before one is left out.
    pub fn numbers_in_row(&self) -> u64 {
        self.skips.before_next(self.next)
    }

    /// The number of the next packet.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// The largest acknowledged number.
    pub fn largest_acked(&self) -> Option<u64> {
        self.largest_acked
    }

    /// Eliciting packets in flight.
    pub fn eliciting(&self) -> u64 {
        self.eliciting.into()
    }

    /// Entries that are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if no entry is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Eliciting packets in flight and their bytes, added up.
    pub fn in_flight(&self) -> (u64, u64) {
        let asking = self.entries.iter().filter(|entry| entry.sent.eliciting);
        let open = asking.map(|entry| (u64::from(entry.open.count_ones()), entry.sent.bytes));
        open.fold((0, 0), |(packets, bytes), (count, each)| (packets + count, bytes + count * each))
    }

    /// When the last eliciting packet was sent.
    pub fn last_eliciting_at(&self) -> Time {
        self.last_eliciting_at
    }

    /// The oldest packet in flight that asks for an acknowledgement.
    pub fn oldest_eliciting(&self) -> Option<Sent<T>> {
        let entry = self.entries.iter().find(|entry| entry.open != 0 && entry.sent.eliciting)?;
        Some(entry.at(entry.open.trailing_zeros()))
    }

    /// Enters the packet that was just sent under [`Ledger::next_number`] (retransmission.md R-1).
    pub fn record(&mut self, sent: Sent<T>) {
        self.record_run(sent, 1);
    }

    /// Enters so many packets, at least one, that were just sent at once under the next numbers,
    /// the first of which is this. They are alike: [`Carried::ahead`] tells what each carries, and
    /// each raises the bytes in flight by its own.
    pub fn record_run(&mut self, sent: Sent<T>, packets: u64) {
        if sent.eliciting {
            self.eliciting += packets as u32;
            self.last_eliciting_at = sent.snapshot.sent_at;
        } else {
            self.unasked += packets as u32;
        }
        let end = self.next + packets;
        let mut rest = Some(sent);
        while let Some(sent) = rest.take() {
            let entry = Entry::new(self.next, sent, end - self.next);
            let places = u64::from(entry.open.count_ones());
            self.next += places;
            rest = (self.next < end).then(|| entry.sent.ahead(places));
            self.entries.push_back(entry);
        }
        // Nobody acknowledges packets that do not ask for it, unless others do: the oldest are
        // forgotten.
        while self.next - self.base() > UNASKED_MAX
            && self.entries.front().is_some_and(|entry| entry.open == 0 || !entry.sent.eliciting)
        {
            self.entries.pop_front();
        }
        if u64::from(self.unasked) > UNASKED_MAX {
            let before = core::mem::replace(&mut self.looked_through, self.next);
            self.entries.retain(|entry| entry.sent.eliciting || entry.first >= before);
            self.unasked = 0;
        }
    }

    /// Takes in an acknowledgement of these packet numbers (descending or ascending ranges). `None`
    /// if it names a number that was never sent, or was left out: the peer is lying.
    pub fn on_ack(&mut self, ranges: impl Iterator<Item = Range<u64>>, now: Time) -> Option<Acknowledged<T>> {
        let mut done = Acknowledged { packets: core::mem::take(&mut self.room), spurious: Vec::new() };
        let base = self.base();
        for range in ranges {
            if range.is_empty() || self.is_unsent(&range) {
                return None;
            }
            self.largest_acked = self.largest_acked.max(Some(range.end - 1));
            self.take_spurious(&range, now, &mut done.spurious);
            let known = range.start.max(base)..range.end.max(base);
            let fresh: SmallVec<[Range<u64>; 4]> = self.acked.gaps(known.clone()).collect();
            for numbers in fresh {
                self.take(numbers, &mut done.packets);
            }
            self.acked.insert(known);
        }
        self.settle();
        Some(done)
    }

    /// True if a range holds a number that no packet had.
    fn is_unsent(&self, range: &Range<u64>) -> bool {
        range.end > self.next || self.skips.meets(range)
    }

    /// Takes back the memory of what an acknowledgement settled, once that is dealt with: it serves
    /// the next.
    pub fn take_back(&mut self, done: Acknowledged<T>) {
        self.room = done.packets;
        self.room.clear();
    }

    /// Nothing before this packet is open.
    fn base(&self) -> u64 {
        self.entries.front().map_or(self.next, |front| {
            front.first + if front.open == 0 { 0 } else { u64::from(front.open.trailing_zeros()) }
        })
    }

    /// The entries that hold these numbers.
    fn entries_of(&mut self, numbers: Range<u64>) -> impl Iterator<Item = (&mut Entry<T>, u64)> {
        // Nearly always it is the first.
        let is_second_later = self.entries.get(1).is_none_or(|second| second.first > numbers.start);
        let from = if is_second_later {
            0
        } else {
            self.entries.partition_point(|entry| entry.first <= numbers.start) - 1
        };
        let entries = self.entries.range_mut(from..);
        let within = entries.take_while(move |entry| entry.first < numbers.end);
        let numbers = numbers.clone();
        within.map(move |entry| {
            let places = entry.places(&numbers);
            (entry, places)
        })
    }

    /// Takes these packets out, as far as they are there.
    fn take(&mut self, numbers: Range<u64>, out: &mut Vec<Run<T>>) {
        let before = out.len();
        for (entry, places) in self.entries_of(numbers) {
            entry.close(places, out);
        }
        let taken = out[before..].iter().filter(|run| run.sent.eliciting);
        self.eliciting -= taken.map(Run::packets).sum::<u64>() as u32;
    }

    fn settle(&mut self) {
        while self.entries.front().is_some_and(|front| front.open == 0) {
            self.entries.pop_front();
        }
        self.acked.remove_below(self.base());
    }

    fn take_spurious(&mut self, range: &Range<u64>, now: Time, out: &mut Vec<(u64, Sent<T>)>) {
        if self.lost.back().is_none_or(|(number, _)| *number < range.start) {
            return;
        }
        let mut index = self.lost.partition_point(|(number, _)| *number < range.start);
        while self.lost.get(index).is_some_and(|(number, _)| range.contains(number)) {
            let Some((number, sent)) = self.lost.remove(index) else { break };
            let distance = self.largest_acked.unwrap_or(number).saturating_sub(number) + 1;
            self.reordering.widen(distance, now.since(sent.snapshot.sent_at));
            out.push((number, sent));
            index = self.lost.partition_point(|(n, _)| *n < number);
        }
    }

    /// The peer recovered these packets from redundancy: what they carried needs no repetition. The
    /// packets themselves stay, to be found lost, for so they are as far as the path is concerned.
    /// Gives what they carried; `None` if one was never sent.
    pub fn on_repaired(&mut self, ranges: impl Iterator<Item = Range<u64>>) -> Option<Vec<Tokens<T>>> {
        let base = self.base();
        let mut carried = Vec::new();
        for range in ranges {
            if range.is_empty() || self.is_unsent(&range) {
                return None;
            }
            for (entry, places) in self.entries_of(range.start.max(base)..range.end.max(base)) {
                carried.extend(entry.take_tokens(places));
            }
            // Declared lost already: the repeat may still be on its way out.
            let from = self.lost.partition_point(|(number, _)| *number < range.start);
            for (_, sent) in self.lost.range_mut(from..).take_while(|(number, _)| *number < range.end) {
                if !sent.tokens.is_empty() {
                    carried.push(core::mem::take(&mut sent.tokens));
                }
            }
        }
        Some(carried)
    }

    /// True if two packets that were sent have no other between them.
    pub fn are_neighbours(&self, earlier: u64, later: u64) -> bool {
        let between = earlier.saturating_add(1)..later;
        between.is_empty() || (between.end - between.start == 1 && self.skips.meets(&between))
    }

    /// Reordering that the path has been seen to do.
    pub fn reordering(&self) -> Reordering {
        self.reordering
    }

    /// The number of the oldest packet in flight that asks for an acknowledgement, and when it was
    /// sent.
    pub fn oldest(&self) -> Option<(u64, Time)> {
        let entry = self.entries.iter().find(|entry| entry.open != 0 && entry.sent.eliciting)?;
        Some((entry.first + u64::from(entry.open.trailing_zeros()), entry.sent.snapshot.sent_at))
    }

    /// Takes out what a rule says is lost at `now`.
    pub fn take_lost(&mut self, now: Time, rule: &Rule) -> Lost<T> {
        let (mut runs, mut look_again, mut cause) = (Vec::new(), None::<Time>, Cause::Expired);
        let (gone, aging) = (0..rule.below, 0..rule.within);
        let reach = rule.below.max(rule.within);
        for entry in self.entries.iter_mut().take_while(|entry| entry.first < reach) {
            let (gone, aging) = (entry.places(&gone), entry.places(&aging));
            let due = rule.age.due(entry.sent.snapshot.sent_at, &entry.sent.departure);
            let lost = if due <= now { gone | aging } else { gone };
            if entry.open & gone != 0 {
                cause = rule.cause;
            }
            entry.close(lost, &mut runs);
            if entry.open & aging == 0 || due == Time::NEVER {
                continue;
            }
            match rule.age {
                // Those behind it are younger.
                Age::Of(_) => {
                    look_again = Some(due);
                    break;
                }
                // Nobody answers for what asks for no acknowledgement.
                _ if entry.sent.eliciting => {
                    look_again = Some(look_again.map_or(due, |at| at.min(due)));
                }
                _ => {}
            }
        }
        if runs.is_empty() {
            return Lost { packets: Vec::new(), look_again, cause };
        }
        let packets: Vec<_> = runs.into_iter().flat_map(Run::split).collect();
        self.eliciting -= packets.iter().filter(|(_, sent)| sent.eliciting).count() as u32;
        for (number, sent) in &packets {
            self.remember_lost(*number, sent);
        }
        self.settle();
        Lost { packets, look_again, cause }
    }

    /// Takes out packets that ask for an acknowledgement and carry nothing to be sent again
    /// (`is_idle` = a token is nothing of that kind), but for so many of the newest. In an outage
    /// there are ever more of them. They count neither as lost nor as delivered. Returns
    /// their numbers and bytes.
    pub fn take_questions(&mut self, kept: usize, is_idle: impl Fn(&T) -> bool) -> Vec<(u64, u64)> {
        let is_question = |entry: &Entry<T>| {
            entry.open == 1
                && entry.sent.eliciting
                && !entry.sent.size_probe
                && entry.sent.tokens.iter().all(&is_idle)
        };
        let count = self.entries.iter().filter(|entry| is_question(entry)).count();
        let mut excess = count.saturating_sub(kept);
        let mut taken = Vec::with_capacity(excess);
        self.entries.retain(|entry| {
            let goes = excess > 0 && is_question(entry);
            if goes {
                excess -= 1;
                taken.push((entry.first, entry.sent.bytes));
            }
            !goes
        });
        self.eliciting -= taken.len() as u32;
        taken
    }

    /// Takes out what was built under an epoch, which nobody will ever read: it counts neither as
    /// lost nor as delivered. Returns the packets that were in flight, in the order of their
    /// numbers (retransmission.md R-26).
    pub fn take_epoch(&mut self, epoch: u32) -> Vec<(u64, Sent<T>)> {
        let mut runs = Vec::new();
        for entry in self.entries.iter_mut().filter(|entry| entry.sent.epoch == epoch) {
            entry.close(u64::MAX, &mut runs);
        }
        let taken: Vec<_> = runs.into_iter().flat_map(Run::split).collect();
        self.eliciting -= taken.iter().filter(|(_, sent)| sent.eliciting).count() as u32;
        self.lost.retain(|(_, sent)| sent.epoch != epoch);
        self.settle();
        taken
    }

    /// Says whether a packet that was built under an epoch is neither acknowledged nor forgotten.
    pub fn has_of_epoch(&self, epoch: u32) -> bool {
        self.entries.iter().any(|entry| entry.open != 0 && entry.sent.epoch == epoch)
            || self.lost.iter().any(|(_, sent)| sent.epoch == epoch)
    }

    fn remember_lost(&mut self, number: u64, sent: &Sent<T>) {
        if sent.size_probe {
            return;
        }
        if self.lost.len() == LOST_MAX {
            self.thin_out_lost();
        }
        let at = self.lost.partition_point(|(n, _)| *n < number);
        self.lost.insert(at, (number, sent.clone()));
    }

    /// Makes room for packets that are lost. However many are lost in a round trip that is not
    /// known yet, some are remembered until they are reported (retransmission.md R-24).
    fn thin_out_lost(&mut self) {
        let (next, mut before) = (self.next, None);
        self.lost.retain(|(number, _)| {
            // The older they are, the further apart.
            let apart = ((next - number) / LOST_OF_AGE).next_power_of_two();
            let place = Some((apart, number / apart));
            core::mem::replace(&mut before, place) != place
        });
        // Those of very different ages share no place.
        let surplus = self.lost.len().saturating_sub(LOST_MAX / 4 * 3);
        self.lost.drain(..surplus);
    }

    /// After a quiet while: forgets lost packets, which do not arrive any more, and, if nothing
    /// else is in flight, those of which nobody will tell. Gives back memory that nothing is in.
    pub fn shrink(&mut self) {
        if self.eliciting == 0 {
            self.entries.clear();
        }
        self.lost.clear();
        self.lost.shrink_to_fit();
        self.room = Vec::new();
        self.entries.shrink_to_fit();
        self.acked.shrink();
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry<T>>()
            + self.room.capacity() * size_of::<Run<T>>()
            + self.lost.capacity() * size_of::<(u64, Sent<T>)>()
            + self.acked.heap_bytes()
    }
}

#[cfg(test)]
mod tests;
