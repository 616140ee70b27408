//! Messages of a flow that have arrived and wait for their time.

use super::clock::{Clock, MediaTime, Transit, instant, micros};
use super::spread::Spread;
use super::{Playout, Slot};
use crate::range::RangeSet;
use crate::sequencing::reassembly::Delivery;
use crate::time::Time;
use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

/// Media times that are remembered of messages that are not whole, at the most.
const TIMES_MAX: usize = 1024;

/// Stretches of positions that are kept apart, at the most.
const TOLD_MAX: usize = 1024;

/// Memory that a message takes beside its bytes, about.
const MESSAGE_BYTES: usize = 160;

/// Memory that a media time takes, about.
const TIME_BYTES: usize = 32;

/// The delay grows by no more than such a part of the media that passes, and shrinks by no more
/// than such a part: what is shown slows down and speeds up by so much (playout.md R-5).
const GROWS_BY: u32 = 4;
const SHRINKS_BY: u32 = 16;

/// Media without messages for so long, and for so many times the usual distance of two, is a gap:
/// the delay changes there at once.
const GAP_MIN: Duration = Duration::from_millis(60);
const GAP_DISTANCES: u32 = 4;

/// If everything has come too late for so long, the way is another.
const LATE_FOR: Duration = Duration::from_secs(1);
const LATE_MESSAGES: u32 = 4;

/// Place of what waits: a media time, and where it begins.
type Place = (MediaTime, u64);

/// A message, and whatever else the order lets go, that waits for its time.
#[derive(Clone, Debug)]
struct Waiting {
    arrived: Time,
    what: Delivery,
    /// Its own media time, if it has one.
    made: Option<MediaTime>,
    is_late: bool,
}

/// The next of a flow whose messages wait for their time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It, and when it was made, if that is known.
    Data(Delivery, Option<Timing>),
    /// So many positions are missing here, in the order of the media: what was in them was lost,
    /// given up, or has not come in time.
    Missing(u64),
}

/// When a message was made, and how it was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// When it was made, by the sender's clock: to be said of it (`MessageOptions::made`) by who
    /// hands it on to another, less a difference that is the same for all.
    pub media: MediaTime,
    /// The delay in use beyond the quickest way.
    pub delay: Duration,
    /// Its age as it was handed over, beyond the quickest way.
    pub age: Duration,
    /// It came too late for that.
    pub is_late: bool,
}

/// Figures of how messages of a flow were handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The delay in use beyond the quickest way.
    pub delay: Duration,
    /// Jitter of the messages' delays (RFC 3550 section 6.4.1).
    pub jitter: Duration,
    /// Messages that came in time.
    pub in_time: u64,
    /// Messages that came too late.
    pub late: u64,
}

/// The last message that was handed over in its time.
#[derive(Clone, Copy, Debug)]
struct Last {
    place: Place,
    delay: Duration,
}

/// Messages of a flow that have arrived and wait for their time. It outlives every mechanism.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    /// Media times of messages that are not whole, by where they begin.
    times: BTreeMap<u64, u32>,
    /// Messages by their media time, and by where they begin.
    waiting: BTreeMap<Place, Waiting>,
    /// Data without a media time, and with nothing before it that waits.
    at_once: VecDeque<Delivery>,
    bytes: usize,
    has_ended: bool,
    last: Option<Last>,
    /// Usual distance of two messages in media time.
    distance: Duration,
    /// Positions that were handed over, wait, or were told to be missing.
    told: RangeSet,
    spread: Spread,
    /// The delay that the mechanism wishes for; `None` = no waiting.
    wished: Option<Duration>,
    /// The delay may grow at once: something came too late.
    may_jump: bool,
    /// Since when everything has come too late, and how much that was.
    late_since: Option<(Time, u32)>,
    in_time: u64,
    late: u64,
}

impl Buffer {
    /// One for a flow of which what lies below `from` was handed over before, or is not awaited.
    pub fn new(from: u64) -> Self {
        let mut buffer = Buffer::default();
        buffer.told.insert(0..from);
        buffer
    }

    /// The message that begins at `start` was made at this time, as that travels.
    pub fn note(&mut self, start: u64, media: u32, consumed: u64) {
        if start < consumed {
            return;
        }
        if self.times.len() >= TIMES_MAX {
            self.times = self.times.split_off(&consumed);
        }
        if self.times.len() < TIMES_MAX {
            self.times.entry(start).or_insert(media);
        }
    }

    /// True if it holds less than so many bytes, or nothing that waits: whatever else it remembers,
    /// the next message finds room.
    pub fn has_room(&self, bytes_max: usize) -> bool {
        let holds_none = self.waiting.is_empty() && self.at_once.is_empty();
        (holds_none || self.load_bytes() < bytes_max) && !self.has_ended
    }

    /// Takes in what the order has let go at `now`. `in_order`: nothing may be handed over before
    /// what was let go before it, whatever media times say. (playout.md R-4)
    pub fn insert(&mut self, now: Time, clock: &mut Clock, mechanism: &Slot, in_order: bool, what: Delivery) {
        let (start, len) = match &what {
            Delivery::Message(start, data)
            | Delivery::Presented(start, data)
            | Delivery::Damaged(start, data, _) => (*start, data.len()),
            // The gap is told where it is met.
            Delivery::Skipped(_) => return,
            Delivery::End => {
                self.has_ended = true;
                return;
            }
            Delivery::Bytes(start, data) | Delivery::PresentedBytes(start, data) => {
                let (start, len) = (*start, data.len());
                self.bytes += len + MESSAGE_BYTES;
                self.tell(start..start.saturating_add(len as u64));
                return self.keep_place(now, start, what);
            }
        };
        self.bytes += len + MESSAGE_BYTES;
        self.tell(start..start.saturating_add(len as u64 + 1));
        let Some(wire) = self.times.remove(&start) else {
            return self.keep_place(now, start, what);
        };
        let media = clock.read(now, wire);
        let transit = clock.on_arrival(now, media);
        self.look_at(now, clock, mechanism, transit);
        let place = (media, start);
        let due = self.due_of(place, now, clock);
        let is_late = due.is_some_and(|due| due < instant(micros(now)))
            || self.last.is_some_and(|last| place < last.place);
        self.judge(now, clock, is_late);
        if !is_late || mechanism.keeps_late() {
            let place = match self.waiting.last_key_value() {
                Some((last, _)) if in_order && place < *last => behind(*last, start),
                _ => place,
            };
            self.waiting.insert(place, Waiting { arrived: now, what, made: Some(media), is_late });
        } else {
            // playout.md R-6: its place counts as missing.
            self.bytes -= len + MESSAGE_BYTES;
            if self.last.is_none_or(|last| place > last.place) {
                self.told.remove(start..start.saturating_add(len as u64 + 1));
            }
        }
    }

    /// Data without a time keeps its place behind what waits. (playout.md R-4)
    fn keep_place(&mut self, now: Time, start: u64, what: Delivery) {
        match self.waiting.last_key_value() {
            Some((last, _)) => {
                let waiting = Waiting { arrived: now, what, made: None, is_late: false };
                self.waiting.insert(behind(*last, start), waiting);
            }
            None => self.at_once.push_back(what),
        }
    }

    /// Positions are not missing.
    fn tell(&mut self, range: Range<u64>) {
        self.told.insert(range);
        if self.told.len() > TOLD_MAX {
            let middle = self.told.iter().nth(TOLD_MAX / 2).map_or(0, |range| range.start);
            self.told.insert(0..middle);
        }
    }

    /// Learns from a message's delay.
    fn look_at(&mut self, now: Time, clock: &Clock, mechanism: &Slot, transit: Transit) {
        self.spread.on_arrival(now, transit, clock.quickest());
        self.wished = mechanism.delay(&self.spread);
    }

    /// Notes whether a message came in time. (playout.md)
    fn judge(&mut self, now: Time, clock: &mut Clock, is_late: bool) {
        if !is_late {
            (self.in_time, self.late_since) = (self.in_time + 1, None);
            return;
        }
        self.late += 1;
        self.may_jump = true;
        let (since, messages) = self.late_since.unwrap_or((now, 0));
        self.late_since = Some((since, messages + 1));
        if messages >= LATE_MESSAGES && now.since(since) >= LATE_FOR {
            clock.begin_anew();
            self.spread.begin_anew(clock.quickest());
            (self.late_since, self.last) = (None, None);
        }
    }

    /// Another mechanism is in use.
    pub fn follow(&mut self, mechanism: &Slot) {
        self.wished = mechanism.delay(&self.spread);
    }

    /// The delay of a message, which follows on the last. (playout.md R-5)
    fn delay_of(&self, media: MediaTime) -> Option<Duration> {
        let wished = self.wished?;
        let Some(last) = self.last else { return Some(wished) };
        let passed = media.since(last.place.0);
        let is_gap = passed >= GAP_MIN && passed > self.distance * GAP_DISTANCES;
        if is_gap || (self.may_jump && wished > last.delay) {
            return Some(wished);
        }
        let most = last.delay + passed / GROWS_BY;
        let least = last.delay.saturating_sub(passed / SHRINKS_BY);
        Some(wished.clamp(least, most))
    }

    /// When a message is due that arrived then; `None` = at once.
    fn due_of(&self, (media, _): Place, arrived: Time, clock: &Clock) -> Option<Time> {
        let delay = self.delay_of(media)?;
        // playout.md R-7: whatever a sender says, nothing waits for longer.
        Some(clock.due(media, delay).min(arrived + delay))
    }

    /// When what comes next is due; `None` if there is nothing.
    pub fn due(&self, clock: &Clock) -> Option<Time> {
        if !self.at_once.is_empty() {
            return Some(Time::ZERO);
        }
        match self.waiting.first_key_value() {
            Some((place, waiting)) => Some(self.due_of(*place, waiting.arrived, clock).unwrap_or(Time::ZERO)),
            None => self.has_ended.then_some(Time::ZERO),
        }
    }

    /// Takes out what is due.
    pub fn pop(&mut self, now: Time, clock: &Clock) -> Option<Next> {
        if let Some(what) = self.at_once.pop_front() {
            self.bytes -= bytes_of(&what) + MESSAGE_BYTES;
            return Some(Next::Data(what, None));
        }
        let Some((place, waiting)) = self.waiting.first_key_value() else {
            return self.has_ended.then_some(Next::Data(Delivery::End, None));
        };
        let (place, arrived) = (*place, waiting.arrived);
        if self.due_of(place, arrived, clock).is_some_and(|due| due > now) {
            return None;
        }
        let gap = self.told.gaps(0..place.1).next();
        if let Some(gap) = gap {
            let missing = gap.end - gap.start;
            self.told.insert(gap);
            return Some(Next::Missing(missing));
        }
        let delay = self.delay_of(place.0).unwrap_or(Duration::ZERO);
        let (_, Waiting { what, made, is_late, .. }) = self.waiting.pop_first()?;
        self.bytes -= bytes_of(&what) + MESSAGE_BYTES;
        if !is_late && self.last.is_none_or(|last| place > last.place) {
            if let Some(last) = self.last {
                let passed = place.0.since(last.place.0);
                self.distance = self.distance.saturating_sub(self.distance / 8).saturating_add(passed / 8);
            }
            self.last = Some(Last { place, delay });
            self.may_jump = false;
        }
        let timing = made.map(|media| {
            let arrives = media.as_micros().saturating_add(clock.quickest());
            let age = u64::try_from(micros(now).saturating_sub(arrives)).unwrap_or(0);
            Timing { media, delay, age: Duration::from_micros(age), is_late }
        });
        Some(Next::Data(what, timing))
    }

    /// True if nothing waits, and nothing else is to come out of it.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.at_once.is_empty() && !self.has_ended
    }

    /// Figures of its messages.
    pub fn figures(&self) -> Figures {
        let delay = self.last.map(|last| last.delay).or(self.wished).unwrap_or(Duration::ZERO);
        Figures { delay, jitter: self.spread.jitter(), in_time: self.in_time, late: self.late }
    }

    /// Memory of what waits, in bytes.
    pub fn load_bytes(&self) -> usize {
        self.bytes + self.times.len() * TIME_BYTES + self.told.heap_bytes()
    }

    /// Bytes of heap memory beyond the messages' own.
    pub fn heap_bytes(&self) -> usize {
        self.spread.heap_bytes() + self.load_bytes()
    }
}

/// The place right behind another of what begins at `start`.
fn behind((media, before): Place, start: u64) -> Place {
    let step = i64::from(start <= before);
    (MediaTime::from_micros(media.as_micros().saturating_add(step)), start)
}

fn bytes_of(what: &Delivery) -> usize {
    match what {
        Delivery::Bytes(_, data)
        | Delivery::PresentedBytes(_, data)
        | Delivery::Message(_, data)
        | Delivery::Presented(_, data)
        | Delivery::Damaged(_, data, _) => data.len(),
        Delivery::Skipped(_) | Delivery::End => 0,
    }
}
