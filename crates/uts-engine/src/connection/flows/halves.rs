//! The halves of a flow: what one end sends in it, and what it receives.

use crate::connection::flows::expedited;
use crate::connection::flows::incoming::Counted;
use crate::connection::flows::interface::{After, MessageOptions};
use crate::connection::flows::order::Turn;
use crate::connection::flows::playing::Playing;
use crate::connection::flows::tagged::Tagged;
use crate::connection::life::deadlines::earlier;
use crate::connection::receive::messages::Messages;
use crate::event::{Event, FlowId};
use crate::synthesis::ReceiveStack;
use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use uts_functions::acknowledgement::Acknowledgement as _;
use uts_functions::flow::{self, Grant, Sending};
use uts_functions::presentation::Lines;
use uts_functions::rate::{self, Meter, RateControl as _, Verdict};
use uts_functions::retransmission::{Awaited, Demand, Received, Retransmission as _, Tries, Withheld};
use uts_functions::segmentation::buffer::{Chunk, SendBuffer};
use uts_functions::sequencing::Keys;
use uts_functions::sequencing::reassembly::Reassembly;
use uts_functions::{Choice, Function, RangeSet, Time, retransmission};
use uts_wire::frame::Data;

/// The sending half of a flow.
#[derive(Debug)]
pub(crate) struct SendHalf {
    pub buffer: SendBuffer,
    /// The peer's credit.
    pub limit: u64,
    pub group: u8,
    /// Its group's profile is not agreed yet: nothing of it is sent.
    pub is_held: bool,
    /// Why its group's profile could not be agreed.
    pub refused: Option<Box<str>>,
    /// 0 = the most important.
    pub priority: u8,
    /// The application found it full and wants to know when it is not.
    pub writer_waits: bool,
    /// It was reset.
    pub reset: Option<Box<SentReset>>,
    pub stopped: Option<u64>,
    pub is_done: bool,
    /// Mechanism that repeats this flow's losses, and the choice that it was built for: its memory
    /// is the flow's own, and outlives epochs that change other functions.
    pub retransmission: Option<(Choice, retransmission::Slot)>,
    /// State that only few mechanisms need.
    pub rare: Option<Box<Rare>>,
    /// Position that it has reached, as the connection's credit counts it, and the memory that it
    /// holds.
    pub counted: u64,
    pub held: usize,
    /// Its place in the order of sending.
    pub(super) turn: Turn,
}

/// A reset of what is sent in a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentReset {
    /// Why, for programs.
    pub code: u64,
    /// Position below which data is delivered, and behind which the reset is acted on.
    pub final_position: u64,
    /// The peer has acknowledged the reset with this final position.
    pub is_known: bool,
    /// State of the data below the final position that the peer lacks and that is still sent;
    /// `None` if it was given up.
    pub rest: Option<Rest>,
}

/// State of a flow that was reset and of which data is still sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    /// When it is looked at again.
    pub look_at: Time,
    /// Position up to which the peer had it when it was looked at last.
    pub known_to: u64,
}

/// States of functions for a flow that is sent, which only few mechanisms need.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    /// Lost data that waits to be asked for.
    pub awaited: Awaited,
    /// Data that is to be sent again, and lies beyond the peer's credit.
    pub beyond: RangeSet,
    /// Count of the losses of each stretch of lost data, where the mechanism counts.
    pub tries: Tries,
    /// Data that has arrived without the rest of its unit, where the mechanism has units.
    pub withheld: Withheld,
    /// Outstanding data, where flow control looks at that.
    pub sending: Sending,
    /// Data that was handed over ahead of the flow's rate.
    pub meter: Meter,
    /// When the flow's rate lets the next message in, if one was refused.
    pub admits_at: Option<Time>,
    /// Messages beyond the flow's rate: they are given up rather than repeated.
    pub tagged: RangeSet,
    /// Where messages begin that do not wait for everything before them, and what they wait for.
    pub orders: BTreeMap<u64, Range<u64>>,
    /// Where messages begin that say when they were made, and when that was.
    pub media: BTreeMap<u64, u32>,
    /// The last message of each key.
    pub keys: Keys,
    /// Where messages begin that may come damaged, and how many of their bytes may not.
    pub coverage: BTreeMap<u64, u32>,
    /// Its expedited messages.
    pub expedited: expedited::SendSide,
}

impl SendHalf {
    /// Verdict of the flow's rate on a message that the application hands over. If the message has
    /// to wait, the writer is told when it need not any more.
    pub fn offer(&mut self, rate: &mut rate::Slot, now: Time, bytes: usize) -> Verdict {
        let rare = self.rare.get_or_insert_default();
        let verdict = rate.offer(&mut rare.meter, now, bytes as u64);
        if let Verdict::Wait(at) = verdict {
            (rare.admits_at, self.writer_waits) = (Some(at), true);
        }
        verdict
    }

    /// The message that was written from this position on waits for no more than its options say:
    /// its key where messages are `keyed`, else what they name.
    pub fn order(&mut self, start: u64, options: &MessageOptions, keyed: bool) {
        if options.key.is_none() && options.after == After::Everything && !keyed {
            return;
        }
        let (end, known_to) = (self.buffer.written(), self.buffer.known_to());
        let rare = self.rare.get_or_insert_default();
        let of_key = options.key.map(|key| rare.keys.follow(key, start..end, known_to));
        let after = match options.after {
            _ if keyed => of_key.unwrap_or(0..0),
            After::Positions { from, to } => from.min(to).min(start)..to.min(start),
            After::Everything => return,
        };
        rare.orders.insert(start, after);
    }

    /// The message that was written from this position on was made at this time, as that travels.
    pub fn time(&mut self, start: u64, media: u32) {
        self.rare.get_or_insert_default().media.insert(start, media);
    }

    /// Of the message that was written from this position on, only so many bytes have to be right.
    pub fn cover(&mut self, start: u64, bytes: u32) {
        self.rare.get_or_insert_default().coverage.insert(start, bytes);
    }

    /// Number of bytes at the end of a part of a message that may come damaged.
    pub fn tolerant_bytes(&self, chunk: &Chunk) -> usize {
        let coverage = self.rare.as_ref().map(|rare| &rare.coverage).filter(|all| !all.is_empty());
        let Some(coverage) = coverage.filter(|_| chunk.message && !chunk.presented) else { return 0 };
        let begin = self.buffer.begin_of(chunk.range.start);
        let Some((begin, bytes)) = begin.and_then(|begin| coverage.get_key_value(&begin)) else { return 0 };
        let covered = u64::from(*bytes).saturating_sub(chunk.range.start - begin);
        chunk.data_bytes.saturating_sub(usize::try_from(covered).unwrap_or(usize::MAX))
    }

    /// Positions have arrived. They count at once, or with the rest of their unit where the
    /// mechanism has units (retransmission.md R-23).
    pub fn on_arrived(&mut self, range: Range<u64>, mechanism: Option<&retransmission::Slot>) {
        let unit = mechanism.and_then(|mechanism| mechanism.unit());
        if unit.is_some() {
            self.rare.get_or_insert_default().withheld.insert(range);
            self.count_whole(unit);
        } else {
            self.buffer.on_acknowledged(range.clone());
            self.on_settled(range);
        }
    }

    /// Positions have arrived that were taken for lost (retransmission.md R-23).
    pub fn on_arrived_late(&mut self, range: Range<u64>, mechanism: Option<&retransmission::Slot>) {
        if mechanism.is_some_and(|mechanism| mechanism.unit().is_some()) {
            self.rare.get_or_insert_default().withheld.insert_late(range.clone());
        }
        self.on_arrived(range, mechanism);
    }

    /// Units that have arrived whole count; without units, all that has arrived does.
    #[cold]
    pub fn count_whole(&mut self, unit: Option<u64>) {
        let Some(rare) = self.rare.as_mut().filter(|rare| !rare.withheld.is_empty()) else { return };
        let buffer = &self.buffer;
        let whole = rare.withheld.take_whole(unit, buffer.sent(), |range| buffer.counts(range));
        for range in whole {
            self.buffer.on_acknowledged(range.clone());
            self.on_settled(range);
        }
    }

    /// Positions are sent again.
    pub fn repeat(&mut self, range: Range<u64>) {
        if let Some(rare) = &mut self.rare {
            rare.withheld.remove(range.clone());
        }
        self.buffer.repeat(range);
    }

    /// Sends nothing again beyond the peer's credit, where it was sent without a limit: the peer
    /// would drop it, and all that shares its packet. It waits until there is credit for it
    /// (flow.md R-39).
    #[inline]
    pub fn keep_repeats_within(&mut self, credit: u64) {
        let waits = |rare: &Rare| rare.beyond.first().is_some_and(|first| first.start < credit);
        if self.buffer.repeats().end > credit || self.rare.as_deref().is_some_and(waits) {
            self.hold_repeats(credit);
        }
    }

    #[cold]
    fn hold_repeats(&mut self, credit: u64) {
        let beyond = &mut self.rare.get_or_insert_default().beyond;
        for range in self.buffer.take_repeats_from(credit).iter() {
            beyond.insert(range);
        }
        for range in beyond.iter().filter(|range| range.start < credit) {
            self.buffer.repeat(range.start..range.end.min(credit));
        }
        beyond.remove(0..credit);
    }

    /// From the first to the last position that is to be sent again; empty if none is.
    pub fn repeats(&self) -> Range<u64> {
        let repeats = self.buffer.repeats();
        let beyond = self.rare.as_ref().and_then(|rare| Some((rare.beyond.first()?, rare.beyond.last()?)));
        match beyond {
            Some((first, last)) if repeats.is_empty() => first.start..last.end,
            Some((_, last)) => repeats.start..last.end,
            None => repeats,
        }
    }

    /// Positions have arrived and count: what was known of them is forgotten.
    fn on_settled(&mut self, range: Range<u64>) {
        let Some(rare) = &mut self.rare else { return };
        rare.awaited.remove(range.clone());
        rare.beyond.remove(range.clone());
        rare.tries.remove(&range);
        rare.tagged.remove(range);
        let done_to = self.buffer.done_to();
        while rare.orders.first_key_value().is_some_and(|(start, _)| *start < done_to) {
            rare.orders.pop_first();
        }
        while rare.media.first_key_value().is_some_and(|(start, _)| *start < done_to) {
            rare.media.pop_first();
        }
        while rare.coverage.first_key_value().is_some_and(|(start, _)| *start < done_to) {
            rare.coverage.pop_first();
        }
    }

    /// Marks what was written from this position on: it is given up rather than repeated.
    pub fn tag(&mut self, start: u64) {
        self.rare.get_or_insert_default().tagged.insert(start..self.buffer.written());
    }

    /// Nothing of its data is sent any more, since it was reset.
    pub fn is_given_up(&self) -> bool {
        self.reset.as_ref().is_some_and(|reset| reset.rest.is_none())
    }

    /// Ends a flow that was reset, if the peer knows it and has all that is delivered.
    pub fn end_if_reset(&mut self) {
        let reset = self.reset.as_deref_mut().filter(|reset| reset.is_known);
        if let Some(reset) = reset.filter(|reset| self.buffer.known_to() >= reset.final_position) {
            reset.rest = None;
            self.is_done = true;
        }
    }

    /// Looks at the rest of a flow that was reset: a peer that has taken nothing of it
    /// since it was looked at last does not want it (flow.md R-31). Returns the code of the reset
    /// then, else it is looked at next at `again_at`.
    pub fn look_at_rest(&mut self, now: Time, again_at: Time) -> Option<u64> {
        let known_to = self.buffer.known_to();
        let reset = self.reset.as_deref_mut()?;
        let rest = reset.rest.as_mut().filter(|rest| rest.look_at <= now)?;
        if known_to == rest.known_to {
            return Some(reset.code);
        }
        *rest = Rest { look_at: again_at, known_to };
        None
    }

    /// Bytes of heap memory beyond the application's data.
    pub fn heap_bytes(&self) -> usize {
        let rare = self.rare.as_ref().map_or(0, |rare| {
            size_of::<Rare>()
                + rare.awaited.heap_bytes()
                + rare.beyond.heap_bytes()
                + rare.tagged.heap_bytes()
                + rare.orders.len() * 40
                + rare.media.len() * 24
                + rare.coverage.len() * 24
                + rare.keys.heap_bytes()
                + rare.sending.heap_bytes()
                + rare.tries.heap_bytes()
                + rare.withheld.heap_bytes()
        });
        self.buffer.heap_bytes() + rare
    }

    /// When something is due.
    fn next_alarm(&self) -> Option<Time> {
        let rare = self
            .rare
            .as_ref()
            .and_then(|rare| earlier(earlier(rare.awaited.until(), rare.admits_at), rare.sending.release_at));
        let rest = self.reset.as_ref().and_then(|reset| reset.rest).map(|rest| rest.look_at);
        earlier(earlier(self.buffer.next_expiry(), rest), rare)
    }
}

/// State of a mechanism that asks for missing data of a flow.
#[derive(Debug)]
pub(crate) struct Asking {
    /// The epoch that says so, and its choice.
    epoch: u32,
    choice: Choice,
    demand: Box<dyn Demand>,
    /// It has something to ask for, and waits for a packet.
    is_wanted: bool,
}

/// The receiving half of a flow.
#[derive(Debug)]
pub(crate) struct ReceiveHalf {
    pub data: Reassembly,
    /// Counts that are kept of it.
    pub counted: Counted,
    /// Position that its sender had reached when it reset it, as it says.
    pub final_sent: Option<u64>,
    /// Nothing of it will be sent beyond that, or beyond its end.
    pub is_final_known: bool,
    pub grant: Grant,
    /// Where credit is given at a rate, how much of the grant the peer has been told of; `u64::MAX`
    /// = all.
    pub told_limit: u64,
    /// The flow-control mechanism in charge of the grant.
    pub flow: flow::Slot,
    pub group: u8,
    /// Its group is known: data has arrived.
    pub is_placed: bool,
    /// It has a new limit, which waits for a packet that leaves anyway.
    pub has_riding: bool,
    /// The application has been told that there is something to read and has not read everything
    /// since.
    pub reader_told: bool,
    /// The application has tried to read, and there was nothing.
    pub reader_waits: bool,
    /// Data may arrive below this position, whatever was granted: what was said in the handshake,
    /// and what was sent while nothing had to be granted.
    pub free_limit: u64,
    /// Reader of bytes that travel in a form of their own, if any did.
    pub lines: Option<Box<Lines>>,
    /// State of the mechanism that asks for missing data, if one does.
    pub asking: Option<Box<Asking>>,
    /// The state of messages that are handed over in their time, if any are.
    pub playing: Option<Box<Playing>>,
    /// The expedited messages that came, if any did.
    pub expedited: Option<Box<expedited::ReceiveSide>>,
    /// Memory in which its bytes are placed as they arrive, if there is any.
    pub tagged: Option<Box<Tagged>>,
    /// The peer has reset it: code and final position.
    pub reset: Option<(u64, u64)>,
    pub stop: Option<u64>,
    /// The application has seen its end (or its reset, or wants no more).
    pub is_done: bool,
}

impl ReceiveHalf {
    /// True if there is memory for so many more bytes, whatever the peer was granted (flow.md R-8).
    pub fn has_room(&self, bytes: u64) -> bool {
        self.load_bytes() as u64 + bytes <= self.grant.window_bytes_max.saturating_mul(2)
    }

    /// Memory of what has arrived and was not read, in bytes.
    fn load_bytes(&self) -> usize {
        self.data.load_bytes() + self.playing_bytes()
    }

    /// Memory of what waits for its time, in bytes.
    pub fn playing_bytes(&self) -> usize {
        self.playing.as_ref().map_or(0, |playing| playing.buffer.load_bytes())
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        let playing = self.playing.as_ref().map_or(0, |p| size_of_val(&**p) + p.buffer.heap_bytes());
        self.data.heap_bytes() + playing
    }

    /// True if anything has arrived that was not read.
    pub fn holds_anything(&self) -> bool {
        self.data.holds_anything() || self.playing.as_ref().is_some_and(|playing| !playing.buffer.is_empty())
    }

    /// Takes in the data of a frame if it is the next bytes, or a whole message without a position,
    /// and the flow is one that takes such under this stack.
    pub fn append(&mut self, stack: &ReceiveStack, data: &Data<'_>) -> bool {
        if !self.takes_from(stack) {
            return false;
        }
        if let Some(start) = stack.layout.start_of_bytes(data) {
            let limit = if stack.layout.offsets { self.limit() } else { u64::MAX };
            return match self.tagged {
                Some(_) => self.append_tagged(start, data.bytes, limit),
                None => self.data.append(start, data.bytes, limit),
            };
        }
        stack.layout.is_unplaced_message(data) && self.data.append_unplaced(data.bytes, data.flags.presented)
    }

    /// Takes in the messages that a packet consists of if they are the next, or have no positions,
    /// and the flow is one that takes such under this stack.
    pub fn append_messages(&mut self, stack: &ReceiveStack, messages: &Messages, payload: &[u8]) -> bool {
        let (limit, offsets) = (self.limit(), stack.layout.offsets);
        self.takes_from(stack)
            && match messages.start {
                Some(start) => offsets && self.data.append_messages(start, payload, messages.rows(), limit),
                None => !offsets && self.data.append_unplaced_messages(payload, messages.rows()),
            }
    }

    /// True if data that comes under a stack goes into this flow with nothing changed about it.
    fn takes_from(&self, stack: &ReceiveStack) -> bool {
        let is_ours =
            self.is_placed && self.group == stack.group && self.due_reset().is_none() && !self.is_done;
        let is_played = self.playing.is_some() || stack.layout.times;
        // Who asks for what is missing sees each arrival while something is.
        let is_followed = self.asking.is_some() && self.data.gaps() > 0;
        // So do reports that wait until it is not.
        let is_held = stack.acknowledgement.is_cumulative() && self.data.has_gap();
        is_ours
            && !is_played
            && !is_followed
            && !is_held
            && (self.is_free() || stack.flow.info().facts.grants)
    }

    /// Data has come under a stack: what asks for missing data is what the newest of them says.
    pub fn follow_demand(&mut self, stack: &ReceiveStack) {
        let known = self.asking.as_ref();
        if (known.is_none() && stack.demand.is_none())
            || known.is_some_and(|known| stack.epoch <= known.epoch)
        {
            return;
        }
        let choice = *stack.profile.get(Function::Retransmission);
        if let Some(asking) = self.asking.as_mut().filter(|asking| asking.choice == choice) {
            asking.epoch = stack.epoch;
            return;
        }
        let new = |demand| Asking { epoch: stack.epoch, choice, demand, is_wanted: false };
        self.asking = stack.demand.clone().map(|demand| Box::new(new(demand)));
    }

    /// Looks for what is missing. Says whether it is to be asked for, which it was not before.
    pub fn look_for_missing(&mut self, now: Time, rtt: Duration) -> bool {
        let Some(asking) = &mut self.asking else { return false };
        look(asking, &self.data, now, rtt);
        let is_due = asking.demand.due().is_some_and(|due| due <= now);
        is_due && !core::mem::replace(&mut asking.is_wanted, true)
    }

    /// Number of the mechanism that asks for missing data, and the ranges that it asks for now.
    pub fn ask(&mut self, now: Time, rtt: Duration) -> Option<(u8, Vec<Range<u64>>)> {
        let asking = self.asking.as_mut()?;
        asking.is_wanted = false;
        look(asking, &self.data, now, rtt);
        Some((asking.choice.number, asking.demand.take(now, rtt)))
    }

    /// When something is due.
    fn next_alarm(&self) -> Option<Time> {
        if self.is_done {
            return None;
        }
        let asking = self.asking.as_ref().filter(|asking| !asking.is_wanted);
        let playing = self.playing.as_ref().filter(|_| !self.reader_told);
        earlier(asking.and_then(|asking| asking.demand.due()), playing.and_then(|playing| playing.due))
    }

    /// Tells the application once that there is something to read.
    pub fn tell_reader(&mut self, id: u32, events: &mut VecDeque<Event>) {
        if !self.is_placed_silently() && !core::mem::replace(&mut self.reader_told, true) {
            events.push_back(Event::Readable(FlowId(id)));
        }
    }

    /// True if the application waits for data that may still come.
    pub fn is_awaited(&self) -> bool {
        self.reader_waits && !self.reader_told && !self.is_done
    }

    /// True if the sender needs no credit.
    pub fn is_free(&self) -> bool {
        !self.flow.info().facts.grants
    }

    /// The flow is in another group than the one whose flow control it began with: it begins with
    /// that group's window, of at most `window_bytes` (flow.md R-24).
    pub fn begin_with(&mut self, flow: &flow::Slot, window_bytes: u64) {
        use uts_functions::flow::FlowControl as _;
        self.flow = flow.clone();
        if self.data.consumed() == 0 {
            let window = flow.window_bytes();
            self.grant.window_bytes = window_bytes.min(window);
            // flow.md R-1: what was granted before its group was known stays granted.
            if self.grant.limit <= self.free_limit {
                self.grant.limit = self.free_limit.min(window);
            }
        }
    }

    /// True if the peer needs credit for more. (F-9)
    pub fn is_credited(&self) -> bool {
        !self.is_free() && !self.is_done && self.due_reset().is_none() && !self.data.is_ended()
    }

    /// The code of the peer's reset, once all that stands before it has come, or will not
    /// (flow.md R-29).
    pub fn due_reset(&self) -> Option<u64> {
        let (code, final_position) = self.reset?;
        (self.data.contiguous() >= final_position).then_some(code)
    }

    /// The position that the peer has been told that it may send up to.
    pub fn told_limit(&self) -> u64 {
        self.grant.limit.min(self.told_limit)
    }

    /// Credit that it has and has not used.
    pub fn unused_credit(&self) -> u64 {
        self.told_limit().saturating_sub(self.data.contiguous())
    }

    /// Enlarges the window for a message that cannot be read before it is whole, and that takes
    /// nearly all of it; says whether there is a new limit. To be called when there is nothing to
    /// read. (flow.md R-23)
    pub fn widen_for_message(&mut self) -> bool {
        let (consumed, held, grant) = (self.data.consumed(), self.data.contiguous(), &mut self.grant);
        let is_brake = held > consumed && grant.limit.saturating_sub(held) < grant.window_bytes / 4;
        if !is_brake || !self.flow.info().facts.grants {
            return false;
        }
        grant.window_bytes = grant.window_bytes.saturating_mul(2).min(grant.window_bytes_max);
        let limit = consumed.saturating_add(grant.window_bytes);
        let is_new = limit > grant.limit;
        grant.limit = grant.limit.max(limit);
        is_new
    }

    /// Positions beyond this are refused: what was granted, or where nothing is granted what memory
    /// allows.
    pub fn limit(&self) -> u64 {
        if self.is_free() { self.free_bound() } else { self.grant.limit.max(self.free_limit) }
    }

    /// Bound of positions of data whose sender needs no credit.
    pub fn free_bound(&self) -> u64 {
        self.data.consumed().saturating_add(self.grant.window_bytes_max.saturating_mul(4))
    }
}

#[derive(Debug)]
pub(crate) struct Flow {
    pub send: SendHalf,
    pub receive: ReceiveHalf,
    /// Place among the flows of which something is due, if it is among them.
    pub alarm: Option<Time>,
}

impl Flow {
    /// When something is due: a message expires, what is lost has waited, what is missing is to be
    /// asked for.
    #[inline]
    pub fn next_alarm(&self) -> Option<Time> {
        earlier(self.send.next_alarm(), self.receive.next_alarm())
    }
}

fn look(asking: &mut Asking, data: &Reassembly, now: Time, rtt: Duration) {
    let (reaches, is_ended) = (data.reaches(), data.end_position().is_some());
    let missing = &mut data.missing();
    asking.demand.look(&mut Received { now, reaches, is_ended, missing, rtt });
}
