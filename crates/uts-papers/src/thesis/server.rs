//! The protocol server of the thesis in a model (figure 3.4): a processor at either end that does
//! one thing at a time, queues between its threads, and a cable. A file of 1 MB is moved by TCP,
//! with and without error and flow control.
//!
//! What a thread takes is what tables 3.3, 3.4 and 3.14 measured of single packets
//! ([`super::machines`]). The delay of a queue that is empty is part of that: it is what the system
//! takes to get the next thread going.

use super::machines::{Functions, Machine};
use crate::paper::Series;
use anyhow::{Result, ensure};
use std::collections::VecDeque;

/// Bytes of the file, of what the application hands over at a time, of a socket buffer, of a full
/// segment, and of what is copied at a time (section 3.3.3).
const FILE_BYTES: u32 = 1_048_576;
const WRITE_BYTES: u32 = 65_536;
pub(super) const BUFFER_BYTES: u32 = 61_440;
const SEGMENT_BYTES: u32 = 1460;
const CLUSTER_BYTES: u32 = 4096;
/// Packets between Mach and the server (section 3.4.2).
pub(super) const QUEUE_PACKETS: usize = 16;
/// Congestion window and threshold where a faster machine sends (section 3.3.3).
const WINDOW_BYTES: u32 = 23_360;
/// An acknowledgement goes for this part of a window, in quarters. The thesis says no more than "a
/// percentage"; it has 21 and 23 in a file, ours are 17 and 20.
const ACK_QUARTERS: u32 = 3;
/// IP and TCP headers, and those of Ethernet with preamble, checksum and gap.
const HEADER_BYTES: u32 = 40;
const FRAME_BYTES: u32 = 38;
/// The least that Ethernet carries in a frame.
const FRAME_BYTES_MIN: u32 = 46;
/// Time that a switch of functions takes the sender (section 4.7).
pub(super) const ADAPT_NS: u64 = 1_664_000;
/// 10 Mbit/s.
const NS_PER_BYTE: u64 = 800;
/// No transfer takes longer.
const END_NS: u64 = 60_000_000_000;

/// A packet on the cable: data, or an acknowledgement up to a position.
#[derive(Clone, Copy, Debug)]
enum Packet {
    Data(u32),
    Ack(u32),
}

impl Packet {
    fn cable_ns(self) -> u64 {
        let payload = match self {
            Packet::Data(bytes) => bytes,
            Packet::Ack(_) => 0,
        };
        u64::from((payload + HEADER_BYTES).max(FRAME_BYTES_MIN) + FRAME_BYTES) * NS_PER_BYTE
    }
}

/// Work of a thread. The probes between which it is are those of figure 3.4.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// 11 to 13.
    Interrupt(Packet),
    /// 13 to 17.
    Receive(Packet),
    /// 1 to 3.
    Take(u32),
    /// 3 to 4, a cluster.
    Fill(u32),
    /// 4 to 9.
    Send(u32),
    /// 17 to 20, a cluster; the last one of a read ends it.
    Read(u32, bool),
    /// 5 to 9.
    Acknowledge,
    /// Other functions are linked in (section 4.7).
    Adapt,
}

/// A processor with what waits for it.
#[derive(Default)]
struct Host {
    job: Option<(u64, Job)>,
    arrived: VecDeque<Packet>,
    queue: VecDeque<Packet>,
}

/// A transfer.
pub struct Transfer<'m> {
    /// Machine that sends.
    pub sender: &'m Machine,
    /// Machine that receives.
    pub receiver: &'m Machine,
    /// Functions of its TCP.
    pub functions: Functions,
    /// Bytes that the application hands over at a time, and takes at a time.
    pub write_bytes: u32,
    /// True if a faster machine sends: slow start is at work.
    pub is_slower: bool,
    /// Bytes of the file.
    pub file_bytes: u32,
    /// Work of the application for each byte, at either end, in nanoseconds.
    pub byte_ns: [u64; 2],
    /// When the functions are switched, in nanoseconds, and to which; if they are.
    pub switch: Option<(u64, Functions)>,
}

impl<'m> Transfer<'m> {
    /// A transfer of 1 MB, as of table 3.7.
    pub fn of(sender: &'m Machine, receiver: &'m Machine, functions: Functions) -> Self {
        Transfer {
            sender,
            receiver,
            functions,
            write_bytes: WRITE_BYTES,
            is_slower: false,
            file_bytes: FILE_BYTES,
            byte_ns: [0; 2],
            switch: None,
        }
    }
}

/// Outcome of a transfer.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Probes that were passed: when, in nanoseconds, which, and by an acknowledgement or not.
    pub probes: [Vec<(u64, u8, bool)>; 2],
    /// Bytes that the application of the receiver had.
    pub received: u32,
    /// Packets of data that arrived, that TCP and IP processed, and acknowledgements.
    pub arrived: u32,
    /// See there.
    pub processed: u32,
    /// See there.
    pub acks: u32,
}

impl Outcome {
    /// Bits a second from the first time that a probe was passed to the last time that another was.
    fn bps(&self, side: usize, from: u8, to: u8, bytes: u32) -> f64 {
        let at = |probe: u8| self.probes[side].iter().filter(move |(_, p, is_ack)| *p == probe && !is_ack);
        let (first, last) = (at(from).next(), at(to).next_back());
        let (Some((first, ..)), Some((last, ..))) = (first, last) else { return 0.0 };
        8e9 * f64::from(bytes) / (last - first) as f64
    }
}

/// State of a transfer.
struct Run<'m> {
    setup: &'m Transfer<'m>,
    functions: Functions,
    has_adapted: bool,
    now: u64,
    hosts: [Host; 2],
    /// Packets that wait for the cable, and the one on it.
    cable: VecDeque<(usize, Packet)>,
    on_cable: Option<(u64, usize, Packet)>,
    /// Bytes that the sender's application has still, that wait to be copied, that wait in the
    /// socket buffer, and that are not acknowledged.
    left: u32,
    block: u32,
    unsent: u32,
    in_flight: u32,
    is_new: bool,
    fills: bool,
    congestion: u32,
    acked: u32,
    /// Bytes in the socket buffer of the receiver, up to what it has read and acknowledged, and
    /// what remains of a read.
    held: u32,
    reading: u32,
    has_begun: bool,
    read: u32,
    told: u32,
    out: Outcome,
}

const SENDER: usize = 0;
const RECEIVER: usize = 1;

impl Run<'_> {
    fn probe(&mut self, side: usize, at: u64, probe: u8, is_ack: bool) {
        self.out.probes[side].push((at, probe, is_ack));
    }

    /// Room in the socket buffer of the sender.
    fn room(&self) -> u32 {
        BUFFER_BYTES - (self.unsent + self.in_flight).min(BUFFER_BYTES)
    }

    /// The next segment that the window lets go.
    fn segment(&self) -> Option<u32> {
        let bytes = self.unsent.min(SEGMENT_BYTES);
        let window = if self.functions().has_flow { BUFFER_BYTES.min(self.congestion) } else { u32::MAX };
        // A small one goes only where no more is to come (RFC 1122, 4.2.3.4).
        let is_due = bytes == SEGMENT_BYTES || (self.block == 0 && (self.left == 0 || self.in_flight == 0));
        (bytes > 0 && is_due && self.in_flight + bytes <= window).then_some(bytes)
    }

    /// Functions in force.
    fn functions(&self) -> Functions {
        self.functions
    }

    /// When functions are to be switched, if that is yet to come.
    fn switches_at(&self) -> Option<u64> {
        self.setup.switch.map(|(at, _)| at).filter(|_| !self.has_adapted)
    }

    /// Next job of the sender, and the time that it takes.
    fn sender_next(&mut self) -> Option<(u64, Job)> {
        let machine = self.setup.sender;
        if self.switches_at().is_some_and(|at| at <= self.now) {
            return Some((ADAPT_NS, Job::Adapt));
        }
        if let Some(work) = self.take_arrived(SENDER, machine) {
            return Some(work);
        }
        self.fills &= self.block > 0 && self.room() > 0;
        if self.fills {
            let bytes = self.block.min(self.room()).min(CLUSTER_BYTES);
            let part = machine.part(3, 4);
            let ns = if self.is_new { part.of(bytes) } else { part.of_bytes(bytes) };
            return Some((ns + self.setup.byte_ns[SENDER] * u64::from(bytes), Job::Fill(bytes)));
        }
        if let Some(bytes) = self.segment() {
            let ns = machine.part(4, 5).of(bytes)
                + machine.sending(self.functions()).of(bytes)
                + machine.part(7, 9).of(bytes);
            return Some((ns, Job::Send(bytes)));
        }
        if self.block > 0 && self.room() > 0 {
            self.fills = true;
            return self.sender_next();
        }
        if self.block == 0 && self.left > 0 {
            let bytes = self.left.min(self.setup.write_bytes);
            return Some((machine.part(1, 3).of(bytes), Job::Take(bytes)));
        }
        None
    }

    /// Next job of the receiver.
    fn receiver_next(&mut self) -> Option<(u64, Job)> {
        let machine = self.setup.receiver;
        if let Some(work) = self.take_arrived(RECEIVER, machine) {
            return Some(work);
        }
        if self.functions().has_flow
            && self.reading == 0
            && self.read - self.told >= self.setup.window() / 4 * ACK_QUARTERS
        {
            return Some((machine.of_ack(5, 9), Job::Acknowledge));
        }
        if self.reading == 0 && self.held > 0 {
            (self.reading, self.has_begun) = (self.held.min(self.setup.write_bytes), false);
        }
        let bytes = self.reading.min(CLUSTER_BYTES);
        (bytes > 0).then(|| {
            let part = machine.part(17, 20);
            let ns = if self.has_begun { part.of_bytes(bytes) } else { part.of(bytes) };
            self.has_begun = true;
            let own_ns = self.setup.byte_ns[RECEIVER] * u64::from(bytes);
            (ns + own_ns, Job::Read(bytes, bytes == self.reading))
        })
    }

    /// Interrupts go before all else, and what Mach hands on before the application.
    fn take_arrived(&mut self, side: usize, machine: &Machine) -> Option<(u64, Job)> {
        let functions = self.functions();
        if let Some(packet) = self.hosts[side].arrived.pop_front() {
            self.probe(side, self.now, 11, matches!(packet, Packet::Ack(_)));
            let ns = match packet {
                Packet::Data(bytes) => machine.part(11, 13).of(bytes),
                Packet::Ack(_) => machine.of_ack(11, 13),
            };
            return Some((ns, Job::Interrupt(packet)));
        }
        let packet = self.hosts[side].queue.pop_front()?;
        let ns = match packet {
            Packet::Data(bytes) => machine.part(13, 15).of(bytes) + machine.receiving(functions).of(bytes),
            Packet::Ack(_) => machine.of_ack(13, 17),
        };
        self.probe(side, self.now, 13, matches!(packet, Packet::Ack(_)));
        Some((ns, Job::Receive(packet)))
    }

    fn transmit(&mut self, side: usize, packet: Packet) {
        self.cable.push_back((side, packet));
    }

    /// A job is done.
    fn done(&mut self, side: usize, job: Job) {
        let now = self.now;
        match job {
            Job::Interrupt(packet) => {
                self.out.arrived += u32::from(side == RECEIVER);
                if self.hosts[side].queue.len() < QUEUE_PACKETS {
                    self.hosts[side].queue.push_back(packet);
                }
            }
            Job::Receive(Packet::Ack(up_to)) => {
                self.probe(side, now, 17, true);
                let acked = up_to - self.acked;
                self.congestion += SEGMENT_BYTES * acked / self.congestion.max(1);
                (self.acked, self.in_flight) = (up_to, self.in_flight.saturating_sub(acked));
            }
            Job::Receive(Packet::Data(bytes)) => {
                self.out.processed += 1;
                self.probe(side, now, 17, false);
                // What a full socket buffer does not take is lost.
                if self.held + bytes <= BUFFER_BYTES {
                    self.held += bytes;
                }
            }
            Job::Take(bytes) => {
                self.probe(side, now, 3, false);
                self.left -= bytes;
                (self.block, self.is_new, self.fills) = (bytes, true, true);
            }
            Job::Fill(bytes) => {
                self.probe(side, now, 4, false);
                self.is_new = false;
                self.block -= bytes;
                self.unsent += bytes;
            }
            Job::Send(bytes) => {
                self.probe(side, now, 9, false);
                self.unsent -= bytes;
                // Without flow control it counts as acknowledged (section 3.4.2).
                self.in_flight += if self.functions().has_flow { bytes } else { 0 };
                self.transmit(side, Packet::Data(bytes));
            }
            Job::Read(bytes, is_last) => {
                self.reading -= bytes;
                self.held -= bytes;
                self.read += bytes;
                self.out.received += bytes;
                if is_last {
                    self.probe(side, now, 20, false);
                }
            }
            Job::Adapt => {
                self.has_adapted = true;
                self.functions = self.setup.switch.map_or(self.functions, |(_, to)| to);
                if !self.functions.has_flow {
                    self.in_flight = 0;
                }
            }
            Job::Acknowledge => {
                self.told = self.read;
                self.out.acks += 1;
                self.probe(side, now, 9, true);
                self.transmit(side, Packet::Ack(self.told));
            }
        }
    }

    fn begin(&mut self) {
        for side in [SENDER, RECEIVER] {
            if self.hosts[side].job.is_some() {
                continue;
            }
            let next = if side == SENDER { self.sender_next() } else { self.receiver_next() };
            if let Some((_, job)) = next {
                let probe = match job {
                    Job::Take(_) => Some(1),
                    Job::Send(_) => Some(5),
                    Job::Read(..) => Some(18),
                    _ => None,
                };
                probe.into_iter().for_each(|probe| self.probe(side, self.now, probe, false));
            }
            self.hosts[side].job = next.map(|(ns, job)| (self.now + ns, job));
        }
        if self.on_cable.is_none()
            && let Some((side, packet)) = self.cable.pop_front()
        {
            self.probe(side, self.now, 10, matches!(packet, Packet::Ack(_)));
            self.on_cable = Some((self.now + packet.cable_ns(), side, packet));
        }
    }

    /// Goes on to the next event; false once there is none.
    fn advance(&mut self) -> bool {
        self.begin();
        let jobs = self.hosts.iter().filter_map(|host| host.job.map(|(at, _)| at));
        let jobs = jobs.chain(self.switches_at().filter(|at| *at > self.now));
        let Some(at) = jobs.chain(self.on_cable.map(|(at, ..)| at)).min() else { return false };
        self.now = at;
        if let Some((_, side, packet)) = self.on_cable.take_if(|(end, ..)| *end <= at) {
            self.hosts[1 - side].arrived.push_back(packet);
        }
        for side in [SENDER, RECEIVER] {
            if let Some((_, job)) = self.hosts[side].job.take_if(|(end, _)| *end <= at) {
                self.done(side, job);
            }
        }
        at < END_NS
    }
}

impl Transfer<'_> {
    /// The window that it begins with.
    fn window(&self) -> u32 {
        if self.is_slower { WINDOW_BYTES } else { BUFFER_BYTES }
    }

    /// Carries it out, until nothing is left to do.
    pub fn run(&self) -> Outcome {
        let mut run = Run {
            setup: self,
            functions: self.functions,
            has_adapted: false,
            now: 0,
            hosts: [Host::default(), Host::default()],
            cable: VecDeque::new(),
            on_cable: None,
            left: self.file_bytes,
            block: 0,
            unsent: 0,
            in_flight: 0,
            is_new: false,
            fills: false,
            congestion: self.window(),
            acked: 0,
            held: 0,
            reading: 0,
            has_begun: false,
            read: 0,
            told: 0,
            out: Outcome::default(),
        };
        while run.advance() {}
        run.out
    }

    /// Carries it out, and names its figures: throughput at either end in Mbit/s, and counts.
    ///
    /// # Errors
    /// It does not come to an end.
    pub fn figures(&self) -> Result<Series> {
        let out = self.run();
        let has_all = out.received == self.file_bytes;
        ensure!(has_all || !self.functions.has_flow, "{} of {} bytes", out.received, self.file_bytes);
        let values = [
            ("tx", out.bps(SENDER, 1, 10, self.file_bytes) / 1e6),
            ("rx", out.bps(RECEIVER, 11, 20, self.file_bytes) / 1e6),
            ("received", f64::from(out.received) / f64::from(self.file_bytes)),
            ("arrived", f64::from(out.arrived)),
            ("processed", f64::from(out.processed)),
            ("acks", f64::from(out.acks)),
        ];
        Ok(values.into_iter().map(|(name, value)| (name.to_owned(), vec![value])).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::machines::{I486, MIPS};
    use super::*;

    /// A single byte takes the sum of all parts, and the shortest frame on the cable.
    #[test]
    fn a_single_packet_takes_what_its_parts_do() {
        for machine in [&I486, &MIPS] {
            for (name, functions) in Functions::ALL {
                let out = Transfer { file_bytes: 1, ..Transfer::of(machine, machine, functions) }.run();
                let parts =
                    [(1, 5), (7, 9), (11, 15), (17, 20)].map(|(from, to)| machine.part(from, to).of(1));
                let own = machine.sending(functions).of(1) + machine.receiving(functions).of(1);
                let expected = parts.iter().sum::<u64>() + own + 84 * NS_PER_BYTE;
                let took = out.probes[RECEIVER].last().map(|(at, ..)| *at);
                // Each part is rounded to a nanosecond.
                assert!(
                    took.is_some_and(|took| took.abs_diff(expected) <= 10),
                    "{name}: {took:?} for {expected}"
                );
            }
        }
    }

    /// A 486 is overrun without flow control, which alone brings acknowledgements.
    #[test]
    fn flow_control_alone_keeps_all_data() {
        for (name, functions) in Functions::ALL {
            let out = Transfer::of(&I486, &I486, functions).run();
            assert_eq!(out.received == FILE_BYTES, functions.has_flow, "{name}: {} bytes", out.received);
            assert_eq!(out.acks > 0, functions.has_flow, "{name}");
        }
    }
}
