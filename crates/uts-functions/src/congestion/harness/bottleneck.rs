//! A small simulated bottleneck: flows, each a mechanism over its [`Delivery`] with a pacer,
//! through one queue.
//!
//! Losses fall behind the queue, so that what is lost has used the link. Receivers acknowledge
//! every second packet, and gaps at once; senders declare a packet lost when one three later was
//! acknowledged, or after a probe time-out.

use crate::congestion::{
    Ack, Cause, Congestion, Context, Delivery, Loss, MECHANISMS, Slot, Snapshot, Summary,
};
use crate::mechanism::{Choice, Promise};
use crate::time::{Rate, Time};
use core::cmp::Reverse;
use core::time::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BinaryHeap};

/// Bytes in every packet.
pub const PACKET: u64 = 1200;

/// Path between senders and receivers.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub rate: Rate,
    pub rtt: Duration,
    pub buffer_bytes: u64,
    /// Share of packets lost behind the queue, and the mean length of a burst.
    pub loss: f64,
    pub burst: f64,
}

impl Path {
    pub fn new(mbps: u64, rtt_ms: u64) -> Self {
        Path {
            rate: Rate::from_bits_per_sec(mbps * 1_000_000),
            rtt: Duration::from_millis(rtt_ms),
            buffer_bytes: 256 * 1024,
            loss: 0.0,
            burst: 1.0,
        }
    }

    pub fn losing(self, loss: f64, burst: f64) -> Self {
        Path { loss, burst, ..self }
    }
}

/// The mechanism of that name, with parameters.
pub fn choice(name: &str, settings: &[(&str, u64)]) -> Choice {
    let mechanism = MECHANISMS.iter().find(|m| m.name == name).expect("a registered mechanism");
    mechanism.choice_with(settings).expect("parameters in range")
}

#[derive(Clone)]
struct Sent {
    bytes: u64,
    snapshot: Snapshot,
}

/// One sender and its receiver.
#[derive(Clone)]
pub struct Flow {
    pub mechanism: Slot,
    pub delivery: Delivery,
    sent: BTreeMap<u64, Sent>,
    lost: BTreeMap<u64, Sent>,
    next_packet: u64,
    largest_acked: Option<u64>,
    rtt_smoothed: Duration,
    rtt_min: Duration,
    next_send: Time,
    timer_set: bool,
    last_progress: Time,
    /// Bytes per second that the application produces, if it limits the flow.
    pub app_rate: Option<Rate>,
    app_budget: u64,
    /// Receiver: packets that await acknowledgement, and the next number expected.
    held: Vec<u64>,
    expected: u64,
    /// When the last packet arrived.
    arrived_at: Time,
    /// Bytes that passed the queue.
    pub passed: u64,
    queue_sum_s: f64,
    arrivals: u64,
    pub drops: u64,
}

impl Flow {
    pub fn new(choice: &Choice, now: Time, seed: u64) -> Self {
        let mut flow = Flow {
            mechanism: build(choice, now, Summary::initial(PACKET), seed),
            delivery: Delivery::new(now),
            sent: BTreeMap::new(),
            lost: BTreeMap::new(),
            next_packet: 0,
            largest_acked: None,
            rtt_smoothed: Duration::ZERO,
            rtt_min: Duration::ZERO,
            next_send: now,
            timer_set: false,
            last_progress: now,
            app_rate: None,
            app_budget: 0,
            held: Vec::new(),
            expected: 0,
            arrived_at: now,
            passed: 0,
            queue_sum_s: 0.0,
            arrivals: 0,
            drops: 0,
        };
        flow.check();
        flow
    }

    /// Exchanges the mechanism.
    pub fn exchange(&mut self, choice: &Choice, now: Time, seed: u64) {
        self.mechanism = build(choice, now, self.mechanism.summary(), seed);
        self.check();
    }

    /// Mean time in the queue, in seconds.
    pub fn mean_queue_s(&self) -> f64 {
        self.queue_sum_s / (self.arrivals as f64).max(1.0)
    }

    fn check(&mut self) {
        let outstanding: u64 = self.sent.values().map(|s| s.bytes).sum();
        assert_eq!(self.delivery.in_flight, outstanding, "bytes in flight are those outstanding");
        let least = self.mechanism.info().facts.window_packets_min;
        invariants(&self.mechanism, least, PACKET);
    }

    fn pacing(&self) -> Rate {
        if let Some(rate) = self.mechanism.pacing_rate() {
            return rate;
        }
        if self.rtt_smoothed.is_zero() {
            return Rate::from_bytes_per_sec(u64::MAX);
        }
        Rate::from_delivery(self.mechanism.window_bytes().min(1 << 40), self.rtt_smoothed).mul_f64(1.25)
    }

    fn take_rtt(&mut self, rtt: Duration) {
        self.rtt_min = if self.rtt_min.is_zero() { rtt } else { self.rtt_min.min(rtt) };
        self.rtt_smoothed = if self.rtt_smoothed.is_zero() { rtt } else { (self.rtt_smoothed * 7 + rtt) / 8 };
    }

    fn on_acknowledged(&mut self, now: Time, packets: &[u64], delay: Duration) {
        let prior_in_flight = self.delivery.in_flight;
        let mut spurious = 0;
        let mut newly: Vec<(u64, Sent)> = Vec::new();
        for number in packets {
            if let Some(sent) = self.sent.remove(number) {
                newly.push((*number, sent));
            } else if let Some(sent) = self.lost.remove(number) {
                spurious += sent.bytes;
            }
        }
        if spurious > 0 {
            self.mechanism.on_spurious_loss(spurious);
        }
        let Some(largest) = newly.iter().map(|(n, _)| *n).max() else { return };
        for (_, sent) in &newly {
            self.delivery.on_acknowledged(now, sent.bytes, &sent.snapshot);
        }
        let sent_at = newly.iter().find(|(n, _)| *n == largest).map_or(now, |(_, s)| s.snapshot.sent_at);
        let is_new_largest = self.largest_acked.is_none_or(|l| largest > l);
        let rtt = is_new_largest.then(|| now.since(sent_at).saturating_sub(delay));
        if let Some(rtt) = rtt {
            self.take_rtt(rtt);
        }
        self.largest_acked = self.largest_acked.max(Some(largest));
        self.last_progress = now;
        let overtaken = self.largest_acked.unwrap_or(0).saturating_sub(2);
        let lost: Vec<u64> = self.sent.range(..overtaken).map(|(n, _)| *n).collect();
        self.declare_lost(now, &lost, false);
        let (sample, bytes) = self.delivery.sample(self.rtt_min);
        let ack = Ack {
            now,
            bytes,
            largest,
            sent_at,
            rtt,
            rtt_smoothed: self.rtt_smoothed,
            rtt_min: self.rtt_min,
            prior_in_flight,
            sample,
            ecn_marked: 0,
            next_packet: self.next_packet,
        };
        self.mechanism.on_ack(&ack, &self.delivery);
        if self.next_packet.is_multiple_of(64) {
            self.check();
        }
    }

    fn declare_lost(&mut self, now: Time, numbers: &[u64], persistent: bool) {
        let Some(largest) = numbers.iter().max().copied() else { return };
        let mut bytes = 0;
        let mut snapshot = Snapshot::default();
        for number in numbers {
            if let Some(sent) = self.sent.remove(number) {
                bytes += sent.bytes;
                self.delivery.on_lost(sent.bytes);
                if *number == largest {
                    snapshot = sent.snapshot;
                }
                self.lost.insert(*number, sent);
            }
        }
        while self.lost.len() > 1_000 {
            self.lost.pop_first();
        }
        let loss = Loss {
            now,
            bytes,
            packets: numbers.len() as u64,
            cause: Cause::Overtaken,
            largest,
            sent_at: snapshot.sent_at,
            snapshot,
            persistent,
            next_packet: self.next_packet,
        };
        self.mechanism.on_loss(&loss, &self.delivery);
    }
}

fn build(choice: &Choice, now: Time, summary: Summary, seed: u64) -> Slot {
    let context = Context { now, packet_bytes: PACKET, summary, past: None, seed };
    Slot::build(choice, &context).expect("a registered choice")
}

/// Checks what holds of every mechanism at every moment.
pub fn invariants(mechanism: &Slot, packets_min: u8, packet_bytes: u64) {
    let window = mechanism.window_bytes();
    let least = u64::from(packets_min) * packet_bytes;
    assert!(
        window >= least || !mechanism.info().promises(Promise::Restraint),
        "window {window} in {}",
        mechanism.phase()
    );
    assert!(mechanism.pacing_rate().is_none_or(|rate| rate > Rate::default()), "pacing at nothing");
    assert!(mechanism.burst_bytes().is_none_or(|bytes| bytes >= packet_bytes), "bursts of nothing");
    let summary = mechanism.summary();
    assert!(summary.window_bytes >= packet_bytes && summary.threshold_bytes >= packet_bytes, "{summary:?}");
    assert!(summary.bandwidth.is_none_or(|rate| rate > Rate::default()), "{summary:?}");
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// An acknowledgement of these packets reaches the sender. It says how long it waited at the
    /// receiver.
    Acknowledged(usize, Vec<u64>, Duration),
    /// A packet reaches the receiver.
    Arrives(usize, u64),
    /// The receiver has waited long enough for a second packet.
    AckDue(usize, u64),
    /// A sender may send again.
    Send(usize),
    /// A sender looks whether acknowledgements have ceased.
    Probe(usize),
}

/// The bottleneck and the flows through it.
#[derive(Clone)]
pub struct World {
    pub now: Time,
    pub path: Path,
    pub flows: Vec<Flow>,
    /// A receiver acknowledges every so many packets.
    pub ack_every: usize,
    free_at: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    order: u64,
    random: ChaCha8Rng,
    losing: bool,
}

impl World {
    pub fn new(path: Path, choices: &[Choice], seed: u64) -> Self {
        let flows: Vec<Flow> =
            choices.iter().zip(0u64..).map(|(c, i)| Flow::new(c, Time::ZERO, seed * 31 + i)).collect();
        let mut world = World {
            now: Time::ZERO,
            path,
            flows,
            ack_every: 2,
            free_at: Time::ZERO,
            events: BinaryHeap::new(),
            order: 0,
            random: ChaCha8Rng::seed_from_u64(seed),
            losing: false,
        };
        for flow in 0..world.flows.len() {
            world.schedule(Time::ZERO, Event::Send(flow));
            world.schedule(PROBE_EVERY_FROM, Event::Probe(flow));
        }
        world
    }

    /// Runs until `end`.
    pub fn run_until(&mut self, end: Time) {
        while let Some(Reverse((at, _, _))) = self.events.peek()
            && *at <= end
            && let Some(Reverse((at, _, event))) = self.events.pop()
        {
            self.now = at;
            self.handle(event);
        }
        self.now = end;
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Acknowledged(flow, packets, delay) => {
                self.flows[flow].on_acknowledged(self.now, &packets, delay);
                self.send(flow);
            }
            Event::Arrives(flow, number) => self.receive(flow, number),
            Event::AckDue(flow, number) => {
                if self.flows[flow].held.contains(&number) {
                    self.acknowledge(flow);
                }
            }
            Event::Send(flow) => {
                self.flows[flow].timer_set = false;
                self.send(flow);
            }
            Event::Probe(flow) => self.probe(flow),
        }
    }

    fn receive(&mut self, flow: usize, number: u64) {
        let ack_every = self.ack_every;
        let now = self.now;
        let f = &mut self.flows[flow];
        f.held.push(number);
        f.arrived_at = now;
        let in_order = number == f.expected;
        f.expected = f.expected.max(number + 1);
        if f.held.len() >= ack_every || !in_order {
            self.acknowledge(flow);
        } else if f.held.len() == 1 {
            self.schedule(self.now + Duration::from_millis(5), Event::AckDue(flow, number));
        }
    }

    fn acknowledge(&mut self, flow: usize) {
        let packets = core::mem::take(&mut self.flows[flow].held);
        let delay = self.now.since(self.flows[flow].arrived_at);
        self.schedule(self.now + self.path.rtt / 2, Event::Acknowledged(flow, packets, delay));
    }

    /// A probe time-out of three round trips: everything outstanding is lost; persistently, if it
    /// was all that was sent.
    fn probe(&mut self, flow: usize) {
        let now = self.now;
        let f = &mut self.flows[flow];
        let patience = (f.rtt_smoothed * 3).max(Duration::from_millis(200));
        if now.since(f.last_progress) > patience && !f.sent.is_empty() {
            let all: Vec<u64> = f.sent.keys().copied().collect();
            f.declare_lost(now, &all, true);
            f.last_progress = now;
            self.send(flow);
        }
        self.schedule(now + Duration::from_millis(50), Event::Probe(flow));
    }

    fn send(&mut self, flow: usize) {
        let now = self.now;
        let mut burst = self.flows[flow].mechanism.burst_bytes().unwrap_or(10 * PACKET);
        loop {
            let f = &mut self.flows[flow];
            if f.delivery.in_flight.saturating_add(PACKET) > f.mechanism.window_bytes() {
                return;
            }
            if f.app_rate.is_some_and(|rate| rate.bytes_in(now.since(Time::ZERO)) < f.app_budget + PACKET) {
                f.delivery.set_app_limited();
                self.wake(flow, now + Duration::from_millis(10));
                return;
            }
            if f.next_send > now || burst < PACKET {
                let at = f.next_send.max(now + Duration::from_nanos(1));
                self.wake(flow, at);
                return;
            }
            burst -= PACKET;
            f.app_budget += PACKET;
            f.next_send = f.next_send.max(now - Duration::from_millis(1)) + f.pacing().time_for(PACKET);
            self.transmit(flow);
        }
    }

    fn wake(&mut self, flow: usize, at: Time) {
        if !self.flows[flow].timer_set {
            self.flows[flow].timer_set = true;
            self.schedule(at, Event::Send(flow));
        }
    }

    fn transmit(&mut self, flow: usize) {
        let now = self.now;
        let f = &mut self.flows[flow];
        let number = f.next_packet;
        f.next_packet += 1;
        if f.sent.is_empty() {
            f.last_progress = now;
        }
        let snapshot = f.delivery.on_sent(now, PACKET);
        f.sent.insert(number, Sent { bytes: PACKET, snapshot });
        f.mechanism.on_sent(now, PACKET, &f.delivery);
        let waiting = self.free_at.since(now);
        f.arrivals += 1;
        f.queue_sum_s += waiting.as_secs_f64();
        if self.path.rate.bytes_in(waiting) + PACKET > self.path.buffer_bytes {
            f.drops += 1;
            return;
        }
        self.free_at = self.free_at.max(now) + self.path.rate.time_for(PACKET);
        f.passed += PACKET;
        if !self.is_lost() {
            self.schedule(self.free_at + self.path.rtt / 2, Event::Arrives(flow, number));
        }
    }

    /// Gilbert-Elliott: everything is lost in the bad state, nothing in the good one.
    fn is_lost(&mut self) -> bool {
        let leave = 1.0 / self.path.burst;
        let enter = self.path.loss * leave / (1.0 - self.path.loss);
        let flip = if self.losing { leave } else { enter };
        if self.random.random::<f64>() < flip {
            self.losing = !self.losing;
        }
        self.losing
    }
}

const PROBE_EVERY_FROM: Time = Time::from_millis(50);
