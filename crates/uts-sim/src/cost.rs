//! Hosts whose work takes time: a processor that does one thing at a time, and an interface with a
//! few buffers each way.
//!
//! A host has no costs unless [`Network::set_costs`](crate::network::Network::set_costs) gives it
//! some. What a host with costs sends waits in its send queue until the processor has copied it
//! into a buffer of the interface, which then transmits it. What arrives waits in a buffer of the
//! interface until the processor has copied it out, then in the receive queue until the processor
//! has received it; then the application sees it.
//!
//! The layers of a host may run in processes of their own. Each packet is then handed over from one
//! process to the next, on its way out and on its way in, and each hand-over takes its time.
//!
//! The processor takes first what has arrived, then what was copied out, then what is to be sent.
//! Packets that a node forwards for others, and those between applications of one node, cost
//! nothing.
//!
//! A mechanism of the engine may have a cost of its own. It is part of the work of each packet
//! that was built under a profile with that mechanism: as the processor copies a packet in, and as
//! it receives one. An exchange of mechanisms therefore changes what a host can do.

mod mechanisms;
mod text;

pub use mechanisms::MechanismCost;
pub use text::CostTextError;

use crate::network::AppId;
use crate::packet::{Body, Packet};
use core::time::Duration;
use std::collections::VecDeque;
use uts_functions::Time;

/// Cost of a piece of work: a time for each packet, and one for each byte of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// For each packet.
    pub packet: Duration,
    /// For each 1000 bytes, as paths are offered them.
    pub kilobyte: Duration,
}

impl Cost {
    /// The same for every packet.
    pub const fn fixed(packet: Duration) -> Self {
        Cost { packet, kilobyte: Duration::ZERO }
    }

    /// The cost of a packet of `bytes`, to the nanosecond.
    pub fn of(&self, bytes: usize) -> Duration {
        let bytes_ns = self.kilobyte.as_nanos() * bytes as u128;
        let ns = self.packet.as_nanos() + (bytes_ns + 500) / 1000;
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// Work of a processor while its interface transmits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It looks at the interface, and does nothing else, until a send buffer is free again.
    Busy,
    /// It does what else there is, and is interrupted by each packet that arrives, at this cost.
    Interrupts(Duration),
}

/// From an instant on, all work takes this many times as long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Since time zero.
    pub at: Duration,
    /// Above 0; 2 is a processor of half the speed.
    pub factor: f64,
}

/// Costs of the work of a host. By default nothing costs anything, and there is room for
/// everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// To prepare a packet, and to copy it into the interface.
    pub copy_in: Cost,
    /// To copy a packet out of the interface.
    pub copy_out: Cost,
    /// To receive a packet that was copied out, before the application sees it.
    pub receive: Cost,
    /// Processes in which the layers run between application and interface, at least 1.
    pub processes: u32,
    /// To hand a packet over from one of these processes to the next.
    pub ipc: Cost,
    /// At which the interface transmits and receives, in bits per second; `None` for at once.
    pub rate_bps: Option<u64>,
    /// Buffers of the interface for what it transmits, at least 1; `None` for as many as needed.
    pub send_buffers: Option<u32>,
    /// Buffers of the interface for what arrives, at least 1. A packet is lost if none is free as
    /// its first bit arrives.
    pub receive_buffers: Option<u32>,
    /// From the arrival of a packet until the processor can know of it.
    pub latency: Duration,
    /// Work of the processor while the interface transmits.
    pub waiting: Waiting,
    /// Packets that wait for the processor to be sent, at least 1; a full queue takes no more from
    /// applications.
    pub send_queue: Option<u32>,
    /// Packets that were copied out and wait to be received, at least 1; a full queue loses what
    /// comes.
    pub receive_queue: Option<u32>,
    /// Factors by which the processor is slower than its costs, each from an instant on; in the
    /// order of time.
    pub load: Vec<Load>,
    /// Costs that mechanisms add to the work of packets, each mechanism once.
    pub mechanisms: Vec<MechanismCost>,
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            copy_in: Cost::default(),
            copy_out: Cost::default(),
            receive: Cost::default(),
            processes: 1,
            ipc: Cost::default(),
            rate_bps: None,
            send_buffers: None,
            receive_buffers: None,
            latency: Duration::ZERO,
            waiting: Waiting::Interrupts(Duration::ZERO),
            send_queue: None,
            receive_queue: None,
            load: Vec::new(),
            mechanisms: Vec::new(),
        }
    }
}

/// A cost that is out of range: which, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct CostError {
    /// The field.
    pub key: &'static str,
    /// Fault of the value, in words.
    pub reason: &'static str,
}

impl Costs {
    /// Checks that all values are in range.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), CostError> {
        let wrong = |key, reason| Err(CostError { key, reason });
        for (key, room) in [
            ("send_buffers", self.send_buffers),
            ("receive_buffers", self.receive_buffers),
            ("send_queue", self.send_queue),
            ("receive_queue", self.receive_queue),
        ] {
            if room == Some(0) {
                return wrong(key, "must be at least 1");
            }
        }
        if self.processes == 0 {
            return wrong("processes", "must be at least 1");
        }
        if self.rate_bps == Some(0) {
            return wrong("rate", "must be above 0");
        }
        if self.load.iter().any(|load| !load.factor.is_finite() || load.factor <= 0.0) {
            return wrong("load", "a factor must be a number above 0");
        }
        if self.load.windows(2).any(|pair| pair[0].at >= pair[1].at) {
            return wrong("load", "must be in the order of time");
        }
        let key = |cost: &MechanismCost| (cost.function, cost.number);
        for (n, cost) in self.mechanisms.iter().enumerate() {
            if self.mechanisms.iter().take(n).any(|other| key(other) == key(cost)) {
                return wrong(cost.function.name(), "a mechanism has one cost, and is here twice");
            }
        }
        Ok(())
    }

    /// Time that `work` takes if it begins now.
    fn loaded(&self, now: Time, work: Duration) -> Duration {
        let since = now.since(Time::ZERO);
        match self.load.iter().rev().find(|load| load.at <= since) {
            Some(load) => Duration::from_nanos((work.as_nanos() as f64 * load.factor).round() as u64),
            None => work,
        }
    }

    /// Time that a packet of `bytes` takes through all processes, beside the work of layers.
    fn hand_overs(&self, bytes: usize) -> Duration {
        self.ipc.of(bytes).saturating_mul(self.processes.saturating_sub(1))
    }

    /// Time in which the interface transmits or receives a packet of `bytes`.
    fn transmission(&self, bytes: usize) -> Duration {
        let Some(rate_bps) = self.rate_bps else { return Duration::ZERO };
        let ns = (8_000_000_000 * bytes as u128).div_ceil(u128::from(rate_bps));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// Work that a host did on a packet, for time lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Kind of the work.
    pub kind: WorkKind,
    /// When it began.
    pub begin: Time,
    /// When it was done.
    pub end: Time,
    /// The number that the packet's source gave it; 0 if it has none.
    pub number: u64,
    /// Bytes of the packet's payload.
    pub bytes: usize,
}

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkKind {
    /// The processor copied it into the interface.
    CopyIn,
    /// The interface transmitted it.
    Transmit,
    /// The processor copied it out of the interface.
    CopyOut,
    /// The processor received it.
    Receive,
}

/// Counters of a host with costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// Lost as no buffer of the interface was free.
    pub overruns: u64,
    /// Lost as the receive queue was full.
    pub queue_drops: u64,
    /// Time that the processor has worked, without waiting.
    pub busy: Duration,
}

/// Packet that a machine hands to the network.
pub(crate) enum Output {
    /// A packet that its interface has transmitted.
    Sent(Packet),
    /// A packet for its application.
    Received(Packet),
}

/// Job of the processor.
struct Job {
    kind: WorkKind,
    packet: Packet,
    begin: Time,
    end: Time,
}

/// Function of the time that mechanisms add, at their costs, to the work of receiving a packet.
pub(crate) type Added<'a> = dyn Fn(&[MechanismCost], &Packet) -> Duration + 'a;

/// A host with costs.
pub(crate) struct Machine {
    costs: Costs,
    /// With what mechanisms add to the work of each.
    send_queue: VecDeque<(Packet, Duration)>,
    /// Applications that have more to send than the send queue takes.
    pub held: Vec<AppId>,
    job: Option<Job>,
    /// The processor waits for a free send buffer, and does nothing else.
    is_waiting: bool,
    /// In send buffers; the first is being transmitted.
    sending: VecDeque<Packet>,
    /// When the transmission of the first began, and when it ends.
    transmission: Option<(Time, Time)>,
    /// In receive buffers, and when the processor can know of them.
    arrived: VecDeque<(Time, Packet)>,
    /// Since when each free receive buffer is free, where they are counted.
    free_since: Vec<Time>,
    receive_queue: VecDeque<Packet>,
    counters: HostCounters,
    work: Option<Vec<Work>>,
}

impl Machine {
    pub fn new(costs: Costs) -> Self {
        let free_since = vec![Time::ZERO; costs.receive_buffers.unwrap_or(0) as usize];
        Machine {
            costs,
            send_queue: VecDeque::new(),
            held: Vec::new(),
            job: None,
            is_waiting: false,
            sending: VecDeque::new(),
            transmission: None,
            arrived: VecDeque::new(),
            free_since,
            receive_queue: VecDeque::new(),
            counters: HostCounters::default(),
            work: None,
        }
    }

    pub fn counters(&self) -> HostCounters {
        self.counters
    }

    pub fn record_work(&mut self) {
        self.work.get_or_insert_default();
    }

    pub fn take_work(&mut self) -> Vec<Work> {
        self.work.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// True if the send queue takes another packet.
    pub fn has_room(&self) -> bool {
        self.costs.send_queue.is_none_or(|most| self.send_queue.len() < most as usize)
    }

    /// Costs of mechanisms here; empty if they cost nothing.
    pub fn mechanisms(&self) -> &[MechanismCost] {
        &self.costs.mechanisms
    }

    /// Takes a packet that an application sends, with what mechanisms add to its work.
    pub fn send(&mut self, packet: Packet, added: Duration) {
        self.send_queue.push_back((packet, added));
    }

    /// Takes a packet that has arrived.
    pub fn arrive(&mut self, now: Time, packet: Packet) {
        if self.costs.receive_buffers.is_some() {
            let received_in = self.costs.transmission(packet.path_bytes());
            let first_bit_ns = now.since(Time::ZERO).saturating_sub(received_in).as_nanos() as u64;
            let first_bit = Time::from_nanos(first_bit_ns);
            match self.free_since.iter().position(|since| *since <= first_bit) {
                Some(buffer) => _ = self.free_since.swap_remove(buffer),
                None => {
                    self.counters.overruns += 1;
                    return;
                }
            }
        }
        self.arrived.push_back((now + self.costs.latency, packet));
    }

    /// When something is due next.
    pub fn next(&self) -> Option<Time> {
        let arrival = self.arrived.front().map(|(at, _)| *at).filter(|_| self.is_idle());
        let job = self.job.as_ref().map(|job| job.end);
        let transmission = self.transmission.map(|(_, end)| end);
        [arrival, job, transmission].into_iter().flatten().min()
    }

    fn is_idle(&self) -> bool {
        self.job.is_none() && !self.is_waiting
    }

    /// Does one thing that is due, and says what comes of it; `None` once nothing more is due.
    /// `added` says what mechanisms add to the work of receiving a packet.
    pub fn poll(&mut self, now: Time, added: &Added<'_>) -> Option<Output> {
        loop {
            if let Some((begin, end)) = self.transmission.filter(|(_, end)| *end <= now) {
                self.transmission = None;
                let packet = self.sending.pop_front()?;
                self.note(WorkKind::Transmit, &packet, begin, end);
                self.is_waiting = false;
                self.transmit_next(now);
                return Some(Output::Sent(packet));
            }
            if let Some(job) = self.job.take_if(|job| job.end <= now) {
                self.counters.busy += job.end.since(job.begin);
                self.note(job.kind, &job.packet, job.begin, job.end);
                if let Some(packet) = self.finish(now, job) {
                    return Some(Output::Received(packet));
                }
            } else if !self.is_idle() || !self.begin_next(now, added) {
                return None;
            }
        }
    }

    /// Ends a job, and returns the packet for the application, if there is one.
    fn finish(&mut self, now: Time, job: Job) -> Option<Packet> {
        match job.kind {
            WorkKind::CopyIn => {
                self.sending.push_back(job.packet);
                self.transmit_next(now);
                self.is_waiting = self.costs.waiting == Waiting::Busy && !self.has_send_buffer();
            }
            WorkKind::CopyOut => {
                if self.costs.receive_buffers.is_some() {
                    self.free_since.push(now);
                }
                let is_full = |most: u32| self.receive_queue.len() >= most as usize;
                if self.costs.receive_queue.is_some_and(is_full) {
                    self.counters.queue_drops += 1;
                } else {
                    self.receive_queue.push_back(job.packet);
                }
            }
            WorkKind::Receive => return Some(job.packet),
            WorkKind::Transmit => {}
        }
        None
    }

    fn has_send_buffer(&self) -> bool {
        self.costs.send_buffers.is_none_or(|most| self.sending.len() < most as usize)
    }

    fn transmit_next(&mut self, now: Time) {
        if self.transmission.is_none()
            && let Some(packet) = self.sending.front()
        {
            self.transmission = Some((now, now + self.costs.transmission(packet.path_bytes())));
        }
    }

    /// Begins what the processor has to do next; whether there is anything.
    fn begin_next(&mut self, now: Time, added: &Added<'_>) -> bool {
        let bytes = Packet::path_bytes;
        if let Some((_, packet)) = self.arrived.pop_front_if(|(at, _)| *at <= now) {
            let interrupt = match self.costs.waiting {
                Waiting::Busy => Duration::ZERO,
                Waiting::Interrupts(cost) => cost,
            };
            let cost = interrupt + self.costs.copy_out.of(bytes(&packet));
            self.begin(now, WorkKind::CopyOut, packet, cost);
        } else if let Some(packet) = self.receive_queue.pop_front() {
            let mut cost = self.costs.receive.of(bytes(&packet)) + self.costs.hand_overs(bytes(&packet));
            if !self.costs.mechanisms.is_empty() {
                cost += added(&self.costs.mechanisms, &packet);
            }
            self.begin(now, WorkKind::Receive, packet, cost);
        } else if self.has_send_buffer()
            && let Some((packet, added)) = self.send_queue.pop_front()
        {
            let cost = self.costs.hand_overs(bytes(&packet)) + self.costs.copy_in.of(bytes(&packet)) + added;
            self.begin(now, WorkKind::CopyIn, packet, cost);
        } else {
            return false;
        }
        true
    }

    fn begin(&mut self, now: Time, kind: WorkKind, packet: Packet, cost: Duration) {
        self.job = Some(Job { kind, packet, begin: now, end: now + self.costs.loaded(now, cost) });
    }

    fn note(&mut self, kind: WorkKind, packet: &Packet, begin: Time, end: Time) {
        if let Some(work) = &mut self.work {
            let number = match packet.body {
                Body::Blank { number, .. } => number,
                Body::Bytes(_) | Body::Fragment(_) => 0,
            };
            work.push(Work { kind, begin, end, number, bytes: packet.body.len() });
        }
    }
}
