//! One direction of a path: a bottleneck, then a wire.

use crate::change::{Change, Setting};
use crate::config::{Corruption, LinkConfig};
use crate::error::SpecError;
use crate::line::{Framed, Line};
use crate::loss::{LossState, chance};
use crate::passage::{DropReason, Fate, Passage};
use crate::queue::{Queued, Transmitter, Verdict};
use crate::receive::{Received, Receiver};
use crate::stats::Stats;
use crate::wire::{InFlight, Wire, draw_jitter_ns};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::borrow::Cow;
use std::collections::VecDeque;

/// Most payload bytes that a link holds, queued and under way: 1 GiB. More are dropped as if the
/// queue was full, so that no configuration exhausts memory.
pub const MAX_HELD_BYTES: u64 = 1 << 30;
/// Most packets that a link holds, queued and under way, for the same reason.
pub const MAX_HELD_PACKETS: u64 = 1 << 22;

/// A packet that a link can carry: it may be copied, damaged and marked.
pub trait Payload: Clone {
    /// Flips bit `bit` of the packet, counted from 0 to 8 times the length given to `send`, less 1.
    fn flip_bit(&mut self, bit: usize);

    /// Marks the packet as having met congestion (CE of RFC 3168), if its sender allows marking.
    /// Returns whether the packet bears the mark now.
    fn mark_ce(&mut self) -> bool {
        false
    }

    /// The packet's bytes, for a [`Framing`](crate::Framing) that escapes some; `None` if it cannot
    /// show them.
    fn bytes(&self) -> Option<&[u8]> {
        None
    }

    /// The whole IP packet, headers included, for [`Compression`](crate::Compression); `None` if
    /// there are no headers, or if it cannot show them.
    fn ip(&self) -> Option<Cow<'_, [u8]>> {
        None
    }

    /// Puts another IP packet in its place, which compression has restored from a damaged frame, or
    /// after the loss of one. Returns whether it can be; if not, it is dropped.
    fn set_ip(&mut self, _packet: &[u8]) -> bool {
        false
    }

    /// Tells the flows apart that a queue is to be fair among: the same for all packets of one; 0
    /// if there is one flow.
    fn flow(&self) -> u64 {
        0
    }
}

impl Payload for Vec<u8> {
    fn flip_bit(&mut self, bit: usize) {
        if let Some(byte) = self.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(self)
    }

    fn ip(&self) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(self))
    }

    fn set_ip(&mut self, packet: &[u8]) -> bool {
        packet.clone_into(self);
        true
    }
}

/// A packet at the far end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery<T> {
    /// The packet that was sent, perhaps damaged.
    pub payload: T,
    /// Its length as given to `send`, in bytes.
    pub len: usize,
    /// When it arrived; at or before the time of the poll.
    pub due_ns: u64,
    /// The packet is the second copy, which the wire made.
    pub duplicate: bool,
    /// Its way through the queue.
    pub passage: Passage,
}

/// A stream of random numbers for each decision, so that changing one impairment leaves the draws
/// of the others as they were.
#[derive(Debug)]
struct Dice {
    loss: ChaCha8Rng,
    duplicate: ChaCha8Rng,
    corrupt: ChaCha8Rng,
    reorder: ChaCha8Rng,
    jitter: ChaCha8Rng,
    queue: ChaCha8Rng,
}

impl Dice {
    fn new(seed: u64) -> Self {
        let stream = |number| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(number);
            rng
        };
        Dice {
            loss: stream(1),
            duplicate: stream(2),
            corrupt: stream(3),
            reorder: stream(4),
            jitter: stream(5),
            queue: stream(6),
        }
    }
}

/// A one-way link.
///
/// Time never goes back: a `now_ns` before one given earlier counts as that one.
#[derive(Debug)]
pub struct Link<T> {
    config: LinkConfig,
    receiver: Receiver<T>,
    transmitter: Transmitter<T>,
    line: Line,
    wire: Wire<T>,
    loss: LossState,
    dice: Dice,
    stats: Stats,
    now_ns: u64,
    /// The latest arrival among packets that must stay in order.
    last_due_ns: u64,
    /// The highest number delivered, to see reordering.
    highest_delivered: Option<u64>,
    /// Passages of packets that have left the queue and were not yet reported, if that is wanted.
    passages: Option<VecDeque<Passage>>,
}

impl<T: Payload> Link<T> {
    /// Makes an idle link, whose random decisions all follow from `seed`; its trace, if it has one,
    /// begins at 0.
    ///
    /// # Errors
    /// A value of `config` is out of range, or a trace has not been [read](LinkConfig::resolve).
    pub fn new(config: LinkConfig, seed: u64) -> Result<Self, SpecError> {
        Link::starting_at(config, seed, 0)
    }

    /// As [`new`](Self::new), with a trace that begins at `origin_ns`.
    ///
    /// # Errors
    /// As for `new`.
    pub fn starting_at(config: LinkConfig, seed: u64, origin_ns: u64) -> Result<Self, SpecError> {
        config.validate()?;
        Ok(Link {
            transmitter: Transmitter::new(config.supply(origin_ns)?, &config.queue),
            receiver: Receiver::new(),
            line: Line::new(config.compression),
            wire: Wire::new(),
            loss: LossState::new(config.loss),
            dice: Dice::new(seed),
            stats: Stats::default(),
            now_ns: 0,
            last_due_ns: 0,
            highest_delivered: None,
            passages: None,
            config,
        })
    }

    /// Offers a packet of `len` bytes, overhead not included, at `now_ns`.
    pub fn send(&mut self, now_ns: u64, payload: T, len: usize) -> Fate {
        self.advance(now_ns);
        let passage = self.arrival(len);
        let cost_bytes = (len as u64).saturating_add(self.config.overhead_bytes.into());
        if self.config.mtu_bytes.is_some_and(|mtu| cost_bytes > mtu.into()) {
            self.drop_packet(passage, DropReason::TooBig);
            return Fate::Dropped(DropReason::TooBig);
        }
        // Those that are in receive buffers are not overtaken where these are taken away.
        if self.config.receive.is_none() && self.receiver.packets() == 0 {
            return self.enter(self.now_ns, payload, passage, cost_bytes);
        }
        let buffers = self.config.receive.map_or(u64::MAX, |receive| receive.buffers.into());
        if self.receiver.packets() >= buffers || !self.can_hold(len as u64) {
            self.drop_packet(passage, DropReason::ReceiveFull);
            return Fate::Dropped(DropReason::ReceiveFull);
        }
        let time_ns = self.config.receive.map_or(0, |receive| receive.time_ns);
        self.receiver.push(self.now_ns, time_ns, payload, passage, cost_bytes);
        self.advance(self.now_ns);
        Fate::Queued { marked: false }
    }

    /// Puts a packet into the queue, if that takes it, at an instant up to which all else was done.
    fn enter(&mut self, at_ns: u64, mut payload: T, mut passage: Passage, cost_bytes: u64) -> Fate {
        let len = passage.len;
        let mut mark = || payload.mark_ce();
        match self.transmitter.judge(at_ns, cost_bytes, &mut mark, &mut self.dice.queue) {
            Verdict::Pass { marked } => passage.marked = marked,
            Verdict::Drop(reason) => {
                self.drop_packet(passage, reason);
                return Fate::Dropped(reason);
            }
        }
        if !self.make_room(at_ns, cost_bytes, len as u64) {
            self.drop_packet(passage, DropReason::QueueFull);
            return Fate::Dropped(DropReason::QueueFull);
        }
        let packets = self.transmitter.packets() + 1;
        let bytes = self.transmitter.bytes().saturating_add(cost_bytes);
        passage.marked |= !self.config.ecn_threshold.holds(packets, bytes) && payload.mark_ce();
        self.stats.bytes_entered += len as u64;
        self.stats.max_queue_packets = self.stats.max_queue_packets.max(packets);
        self.stats.max_queue_bytes = self.stats.max_queue_bytes.max(bytes);
        let wire_bits = self.config.framing.wire_bits(cost_bytes, payload.bytes());
        self.transmitter
            .push(at_ns, Queued { payload, frame: None, flow: 0, cost_bytes, wire_bits, passage });
        // On an idle link its transmission begins now.
        self.transmit(at_ns);
        Fate::Queued { marked: passage.marked }
    }

    /// The next packet that has arrived by `now_ns`, if any; in order of arrival.
    pub fn poll(&mut self, now_ns: u64) -> Option<T> {
        self.poll_delivery(now_ns).map(|d| d.payload)
    }

    /// As [`poll`](Self::poll), with the instant of arrival.
    pub fn poll_delivery(&mut self, now_ns: u64) -> Option<Delivery<T>> {
        self.advance(now_ns);
        let (InFlight { due_ns, copy, passage, payload, .. }, len) = self.next_restored()?;
        let number = passage.number;
        self.stats.delivered += 1;
        self.stats.bytes_delivered += len as u64;
        if !copy {
            self.stats.reordered += u64::from(self.highest_delivered > Some(number));
            self.highest_delivered = self.highest_delivered.max(Some(number));
        }
        Some(Delivery { payload, len, due_ns, duplicate: copy, passage })
    }

    /// The next packet that has arrived, with its headers restored, and its length.
    fn next_restored(&mut self) -> Option<(InFlight<T>, usize)> {
        loop {
            let mut arrived = self.wire.pop(self.now_ns)?;
            let len = arrived.passage.len;
            let Some(frame) = arrived.frame.take() else { return Some((arrived, len)) };
            match self.line.restore(&frame, &mut arrived.payload, &mut self.stats) {
                Some(longer) => return Some((arrived, len.saturating_add_signed(longer))),
                None => self.stats.dropped_compression += 1,
            }
        }
    }

    /// Turns the record of passages for [`poll_passage`](Self::poll_passage) on or off; off at the
    /// start. The record grows until it is polled.
    pub fn record_passages(&mut self, record: bool) {
        self.passages = if record { Some(self.passages.take().unwrap_or_default()) } else { None };
    }

    /// The next packet that has left the queue, transmitted or dropped, and was not yet reported,
    /// in the order in which they left. Each packet offered is reported once. A copy that the wire
    /// makes is not.
    pub fn poll_passage(&mut self) -> Option<Passage> {
        self.passages.as_mut()?.pop_front()
    }

    /// When to poll next: nothing arrives before. With jitter or loss it may be too early; a poll
    /// then yields nothing and a later time follows. `None` when nothing is under way.
    pub fn next_ns(&self) -> Option<u64> {
        let departing = [self.receiver.next_ns(), self.transmitter.next_ns()].into_iter().flatten().min();
        let arriving = departing.map(|at_ns| at_ns.saturating_add(self.config.delay_ns));
        match (self.wire.next_due_ns(), arriving) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Changes the link at `now_ns`. What has departed arrives as it would have; what is queued
    /// departs under the new settings, even if it exceeds a smaller buffer.
    ///
    /// # Errors
    /// A value is out of range, or a trace has not been [read](Change::resolve). Nothing is changed
    /// then.
    pub fn set(&mut self, now_ns: u64, change: &Change) -> Result<(), SpecError> {
        let mut config = self.config.clone();
        change.apply_to(&mut config);
        config.validate()?;
        let sets_rate = |s: &Setting| matches!(s, Setting::Rate(_) | Setting::Opportunities(_));
        let supply = if change.settings().iter().any(sets_rate) {
            Some(config.supply(self.now_ns.max(now_ns))?)
        } else {
            None
        };
        self.advance(now_ns);
        if let Some(supply) = supply {
            self.transmitter.set_supply(self.now_ns, supply);
        }
        // What is set again starts anew, even if it is the same.
        for setting in change.settings() {
            match setting {
                Setting::Queue(_) => self.transmitter.set_discipline(&config.queue),
                Setting::Loss(_) => self.loss = LossState::new(config.loss),
                Setting::Compression(_) => self.line.restart(config.compression),
                _ => {}
            }
        }
        self.config = config;
        Ok(())
    }

    /// Moves everything on to `now_ns`; the other calls do so themselves.
    pub fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        while let Some(Received { payload, passage, cost_bytes, done_ns }) = self.receiver.pop(self.now_ns) {
            self.transmit(done_ns);
            let (packets, bytes) = (self.transmitter.packets(), self.transmitter.bytes());
            let Passage { number, len, .. } = passage;
            let passage = Passage::arriving(number, len, done_ns, packets, bytes);
            self.enter(done_ns, payload, passage, cost_bytes);
        }
        self.transmit(self.now_ns);
    }

    /// Lets the queue's server work until `now_ns`.
    fn transmit(&mut self, now_ns: u64) {
        loop {
            let (line, stats, framing) = (&mut self.line, &mut self.stats, self.config.framing);
            let mut start = |queued: &mut Queued<T>| line.start(queued, framing, stats);
            let Some(packet) = self.transmitter.pop(now_ns, &mut start) else { return };
            self.depart(packet);
        }
    }

    /// The link's settings now.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Counters, and the queue as of the last call that told the time.
    pub fn stats(&self) -> Stats {
        Stats {
            queue_packets: self.transmitter.packets(),
            queue_bytes: self.transmitter.bytes(),
            ..self.stats
        }
    }

    /// Bytes that have found room in the queue.
    pub(crate) fn bytes_entered(&self) -> u64 {
        self.stats.bytes_entered
    }

    /// Makes room in the buffer for a packet, if need be by dropping those that the discipline
    /// chooses. Returns whether there is room.
    fn make_room(&mut self, at_ns: u64, cost_bytes: u64, len: u64) -> bool {
        if !self.can_hold(len) {
            return false;
        }
        let buffer = self.config.buffer;
        let (fixed_packets, fixed_bytes) = self.transmitter.fixed();
        let could = buffer.holds(fixed_packets + 1, fixed_bytes.saturating_add(cost_bytes));
        while !buffer
            .holds(self.transmitter.packets() + 1, self.transmitter.bytes().saturating_add(cost_bytes))
        {
            // What has no room even in the emptied queue drives nobody out.
            if !could {
                return false;
            }
            let victim = self.transmitter.make_room(at_ns, &mut self.dice.queue);
            let Some(Queued { passage, .. }) = victim else { return false };
            self.drop_packet(passage, DropReason::QueueFull);
        }
        true
    }

    fn can_hold(&self, len: u64) -> bool {
        let held = self.receiver.bytes() + self.transmitter.bytes();
        let packets = self.receiver.packets() + self.transmitter.packets() + self.wire.packets();
        let bytes = held.saturating_add(self.wire.bytes()).saturating_add(len);
        bytes <= MAX_HELD_BYTES && packets < MAX_HELD_PACKETS
    }

    /// Counts a packet in, and notes what it finds.
    fn arrival(&mut self, len: usize) -> Passage {
        let number = self.stats.packets_in;
        self.stats.packets_in += 1;
        self.stats.bytes_in = self.stats.bytes_in.saturating_add(len as u64);
        let (packets, bytes) = (self.transmitter.packets(), self.transmitter.bytes());
        Passage::arriving(number, len, self.now_ns, packets, bytes)
    }

    /// Counts a drop and tells of it.
    fn drop_packet(&mut self, passage: Passage, reason: DropReason) {
        let counter = match reason {
            DropReason::ReceiveFull => &mut self.stats.dropped_receive,
            DropReason::QueueFull => &mut self.stats.dropped_queue,
            DropReason::Red | DropReason::CoDel | DropReason::Pie | DropReason::Policed => {
                &mut self.stats.dropped_early
            }
            DropReason::TooBig => &mut self.stats.dropped_mtu,
            DropReason::Loss => &mut self.stats.dropped_loss,
            DropReason::Outage => &mut self.stats.dropped_outage,
            DropReason::Compression => &mut self.stats.dropped_compression,
        };
        *counter += 1;
        self.tell(Passage { dropped: Some(reason), ..passage });
    }

    /// A packet has left the queue.
    fn tell(&mut self, passage: Passage) {
        self.stats.marked += u64::from(passage.marked);
        if let Some(passages) = &mut self.passages {
            passages.push_back(passage);
        }
    }

    /// A packet leaves the queue, dropped or transmitted: what the wire does with it.
    fn depart(&mut self, packet: Queued<T>) {
        let Queued { payload, frame, passage, .. } = packet;
        if let Some(reason) = passage.dropped {
            return self.drop_packet(passage, reason);
        }
        if !self.config.up {
            return self.drop_packet(passage, DropReason::Outage);
        }
        if self.loss.loses(&mut self.dice.loss) {
            return self.drop_packet(passage, DropReason::Loss);
        }
        self.tell(passage);
        let copy =
            chance(&mut self.dice.duplicate, self.config.duplicate).then(|| (payload.clone(), frame.clone()));
        let extra_ns = if chance(&mut self.dice.reorder, self.config.reorder.p) {
            self.config.reorder.extra_ns
        } else {
            0
        };
        self.launch(extra_ns, false, passage, (payload, frame));
        if let Some(copy) = copy {
            self.stats.duplicated += 1;
            self.launch(0, true, passage, copy);
        }
    }

    /// Puts a packet on the wire; one with an extra delay is the only one that may be overtaken
    /// where jitter does not reorder.
    fn launch(
        &mut self,
        extra_ns: u64,
        copy: bool,
        passage: Passage,
        (mut payload, mut frame): (T, Option<Box<Framed>>),
    ) {
        let Passage { len, left_ns, .. } = passage;
        let Corruption { p, max_bits } = self.config.corrupt;
        if len > 0 && chance(&mut self.dice.corrupt, p) {
            let dice = &mut self.dice.corrupt;
            match &mut frame {
                Some(frame) => {
                    let len_bits = 8 * frame.bytes.len();
                    flip_bits(&mut frame.bytes, len_bits, max_bits, dice);
                }
                None => flip_bits(&mut payload, len.saturating_mul(8), max_bits, dice),
            }
            self.stats.corrupted += 1;
        }
        let jitter_ns = draw_jitter_ns(self.config.jitter, &mut self.dice.jitter);
        let mut due_ns = left_ns.saturating_add(self.config.delay_ns).saturating_add(jitter_ns);
        if !self.config.jitter.reorder && extra_ns == 0 {
            due_ns = due_ns.max(self.last_due_ns);
            self.last_due_ns = due_ns;
        }
        self.wire.push(due_ns.saturating_add(extra_ns), extra_ns > 0, copy, passage, (payload, frame));
    }
}

/// Flips 1 to `max_bits` different bits.
fn flip_bits<T: Payload>(payload: &mut T, len_bits: usize, max_bits: u32, rng: &mut impl RngExt) {
    let count = (rng.random_range(1..=max_bits.max(1)) as usize).min(len_bits);
    let mut flipped = Vec::with_capacity(count);
    while flipped.len() < count {
        let bit = rng.random_range(0..len_bits);
        if !flipped.contains(&bit) {
            flipped.push(bit);
            payload.flip_bit(bit);
        }
    }
}
