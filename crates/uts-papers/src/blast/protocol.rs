//! The protocols of section 2 and 3 as applications of a simulated network: data of 1024 bytes,
//! acknowledgements of 64, no headers.

use super::kernel::Strategy;
use anyhow::{Context, Result};
use core::time::Duration;
use std::collections::VecDeque;
use std::net::{SocketAddr, SocketAddrV4};
use uts_functions::Time;
use uts_path::{LinkConfig, Loss, PathConfig};
use uts_sim::cost::{Costs, Work};
use uts_sim::network::{Application, Network};
use uts_sim::packet::{Body, Datagram, Packet};
use uts_sim::topology::{PointToPoint, Topology};

/// Bytes of a packet of data (section 2.1).
pub const DATA_BYTES: u16 = 1024;
/// Bytes of an acknowledgement; a bit of it for each packet that is missing.
pub const ACK_BYTES: usize = 64;
/// Most packets of a transfer.
pub const PACKETS_MAX: u32 = 8 * ACK_BYTES as u32;

const PORT: u16 = 9;
/// Set in the number of a packet that asks for an answer.
const LAST: u64 = 1 << 63;
/// A transfer that takes longer has not ended.
const END: Time = Time::from_millis(100_000_000);

/// Way in which data is acknowledged (figure 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each packet before the next is sent.
    StopAndWait,
    /// Each packet, while others are sent: the window never closes. Nothing is repeated.
    SlidingWindow,
    /// All packets at once.
    Blast(Strategy),
}

/// A transfer between two hosts.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Way in which data is acknowledged.
    pub mode: Mode,
    /// Packets, 1 to [`PACKETS_MAX`].
    pub packets: u32,
    /// Costs of both hosts.
    pub costs: Costs,
    /// From one to the other.
    pub delay: Duration,
    /// The probability that a packet is lost, in either direction.
    pub loss: f64,
    /// Time without errors of one packet, and of all.
    pub error_free: [Duration; 2],
    /// From when an acknowledgement was due until a repeat.
    pub repeat_after: Duration,
}

/// Result of a transfer.
#[derive(Clone, Debug)]
pub struct Done {
    /// From its beginning until its sender has the last acknowledgement.
    pub elapsed: Duration,
    /// Work of the sender and of the receiver.
    pub work: [Vec<Work>; 2],
}

impl Transfer {
    /// Without errors.
    pub fn new(mode: Mode, packets: u32, costs: Costs) -> Self {
        let forever = Duration::from_secs(3600);
        Transfer {
            mode,
            packets,
            costs,
            delay: Duration::ZERO,
            loss: 0.0,
            error_free: [forever; 2],
            repeat_after: forever,
        }
    }

    /// Carries it out.
    ///
    /// # Errors
    /// Values are out of range, or the transfer does not end.
    pub fn run(&self, seed: u64) -> Result<Done> {
        let link = LinkConfig {
            delay_ns: self.delay.as_nanos() as u64,
            loss: if self.loss > 0.0 { Loss::Random { p: self.loss } } else { Loss::None },
            ..LinkConfig::default()
        };
        let PointToPoint { topology, hosts, .. } = PointToPoint::new(PathConfig::both(link));
        let mut network = Network::new(&topology, seed)?;
        for host in hosts {
            network.set_costs(host, self.costs.clone())?;
            network.record_work(host);
        }
        let [from, to] = hosts.map(|host| SocketAddrV4::new(Topology::address(host), PORT));
        network.attach(hosts[1], PORT, End::Receiver(Receiver::new(self, from)))?;
        let sender = network.attach(hosts[0], PORT, End::Sender(Sender::new(self, to)))?;
        network.run_until(END);
        let done_at = match network.app(sender) {
            End::Sender(sender) => sender.done_at,
            End::Receiver(_) => None,
        };
        let done_at = done_at.with_context(|| format!("seed {seed}: the transfer has not ended"))?;
        Ok(Done { elapsed: done_at.since(Time::ZERO), work: hosts.map(|host| network.take_work(host)) })
    }
}

/// One end of a transfer.
enum End {
    Sender(Sender),
    Receiver(Receiver),
}

struct Sender {
    mode: Mode,
    to: SocketAddr,
    packets: u32,
    error_free: [Duration; 2],
    repeat_after: Duration,
    /// Packets that this round has yet to send.
    unsent: VecDeque<u32>,
    /// The last of the round, which asks for an answer.
    last: u32,
    /// Counts repeats of the whole.
    attempt: u32,
    acknowledged: u32,
    timer: Option<Time>,
    is_begun: bool,
    done_at: Option<Time>,
}

impl Sender {
    fn new(transfer: &Transfer, to: SocketAddrV4) -> Self {
        let first = match transfer.mode {
            Mode::StopAndWait => 1,
            _ => transfer.packets,
        };
        Sender {
            mode: transfer.mode,
            to: to.into(),
            packets: transfer.packets,
            error_free: transfer.error_free,
            repeat_after: transfer.repeat_after,
            unsent: (0..first).collect(),
            last: first - 1,
            attempt: 0,
            acknowledged: 0,
            timer: None,
            is_begun: false,
            done_at: None,
        }
    }

    /// Sends these next; the last of them asks.
    fn begin(&mut self, now: Time, packets: impl IntoIterator<Item = u32>) {
        self.unsent.extend(packets);
        let [one, all] = self.error_free;
        let share = f64::from(self.unsent.len() as u32 - 1) / f64::from((self.packets - 1).max(1));
        let due = one + Duration::from_secs_f64((all.saturating_sub(one)).as_secs_f64() * share);
        self.last = self.unsent.back().copied().unwrap_or_default();
        self.timer = Some(now + due + self.repeat_after);
    }

    fn on_answer(&mut self, now: Time, answer: &[u8]) {
        let missing: Vec<u32> =
            (0..self.packets).filter(|n| answer[*n as usize / 8] >> (n % 8) & 1 == 1).collect();
        match self.mode {
            Mode::SlidingWindow => {
                self.acknowledged += 1;
                if self.acknowledged == self.packets {
                    self.finish(now);
                }
            }
            Mode::StopAndWait => {
                self.acknowledged += 1;
                if self.acknowledged == self.packets {
                    self.finish(now);
                } else {
                    self.begin(now, [self.acknowledged]);
                }
            }
            Mode::Blast(_) if missing.is_empty() => self.finish(now),
            Mode::Blast(Strategy::Full | Strategy::FullNak) => self.again(now),
            Mode::Blast(Strategy::FromFirst) => self.begin(now, missing[0]..self.packets),
            Mode::Blast(Strategy::Selective) => self.begin(now, missing),
        }
    }

    fn again(&mut self, now: Time) {
        self.attempt += 1;
        self.begin(now, 0..self.packets);
    }

    fn finish(&mut self, now: Time) {
        self.done_at = Some(now);
        self.timer = None;
    }
}

struct Receiver {
    mode: Mode,
    to: SocketAddr,
    attempt: u32,
    /// By packet.
    has: Vec<bool>,
    answers: VecDeque<Vec<u8>>,
}

impl Receiver {
    fn new(transfer: &Transfer, to: SocketAddrV4) -> Self {
        Receiver {
            mode: transfer.mode,
            to: to.into(),
            attempt: 0,
            has: vec![false; transfer.packets as usize],
            answers: VecDeque::new(),
        }
    }

    fn on_data(&mut self, number: u64) {
        let (is_last, attempt, packet) = (number & LAST != 0, (number & !LAST) >> 32, number as u32);
        // What a whole repetition brings stands alone, as the formulas have it.
        if attempt as u32 != self.attempt {
            self.attempt = attempt as u32;
            self.has.fill(false);
        }
        self.has[packet as usize] = true;
        let is_whole = self.has.iter().all(|has| *has);
        match self.mode {
            Mode::StopAndWait | Mode::SlidingWindow => self.answers.push_back(vec![0; ACK_BYTES]),
            Mode::Blast(Strategy::Full) if is_last && is_whole => self.answer(),
            Mode::Blast(Strategy::Full) => {}
            Mode::Blast(_) if is_last => self.answer(),
            Mode::Blast(_) => {}
        }
    }

    /// Says what is missing.
    fn answer(&mut self) {
        if self.mode == Mode::Blast(Strategy::FromFirst)
            && let Some(first) = self.has.iter().position(|has| !has)
        {
            // It comes again.
            self.has[first..].fill(false);
        }
        let mut answer = vec![0; ACK_BYTES];
        for (n, has) in self.has.iter().enumerate() {
            answer[n / 8] |= u8::from(!has) << (n % 8);
        }
        self.answers.push_back(answer);
    }
}

impl Application for End {
    fn handle_datagram(&mut self, now: Time, packet: Packet) {
        match (self, packet.body) {
            (End::Sender(sender), Body::Bytes(answer)) if sender.done_at.is_none() => {
                sender.on_answer(now, &answer);
            }
            (End::Receiver(receiver), Body::Blank { number, .. }) => receiver.on_data(number),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        let End::Sender(sender) = self else { return };
        if sender.timer.is_none_or(|at| at > now) {
            return;
        }
        match sender.mode {
            Mode::Blast(Strategy::Full | Strategy::FullNak) => sender.again(now),
            Mode::SlidingWindow => sender.timer = None,
            _ => sender.begin(now, [sender.last]),
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Datagram> {
        match self {
            End::Sender(sender) => {
                if !sender.is_begun {
                    sender.is_begun = true;
                    let first = core::mem::take(&mut sender.unsent);
                    sender.begin(now, first);
                }
                let packet = sender.unsent.pop_front()?;
                let last = if sender.unsent.is_empty() { LAST } else { 0 };
                let number = u64::from(packet) | u64::from(sender.attempt) << 32 | last;
                Some(Datagram { to: sender.to, ecn: None, body: Body::Blank { len: DATA_BYTES, number } })
            }
            End::Receiver(receiver) => {
                let answer = receiver.answers.pop_front()?;
                Some(Datagram { to: receiver.to, ecn: None, body: Body::Bytes(answer) })
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        match self {
            End::Sender(sender) => sender.timer,
            End::Receiver(_) => None,
        }
    }
}
