//! A transfer over a router: a sender on an Ethernet, a line whose rate and whose buffers are set,
//! and a receiver behind it.

use super::receiver::{self, Receiver};
use super::segment::{Ack, Data};
use super::sender::{self, Sender};
use anyhow::{Context, Result, bail};
use core::time::Duration;
use std::net::SocketAddrV4;
use uts_functions::Time;
use uts_path::{Direction, PathConfig, Stats};
use uts_sim::network::{Application, Network};
use uts_sim::packet::{Datagram, Packet};
use uts_sim::topology::Topology;

const PORT: u16 = 5001;

/// A transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// From the sender to the router, as paths name it.
    pub access: String,
    /// From the router to the receiver, and back.
    pub line: [String; 2],
    /// See there.
    pub sender: sender::Rules,
    /// See there.
    pub receiver: receiver::Rules,
    /// Bytes of the transfer.
    pub bytes: u32,
    /// True if both ends log packets.
    pub records: bool,
    /// Acknowledgements reach the sender together, at multiples of this; one by one if it is zero.
    pub bunch: Duration,
    /// The seed of losses.
    pub seed: u64,
    /// No transfer takes longer.
    pub end: Duration,
}

/// The outcome of a transfer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The sender's account.
    pub sender: sender::Log,
    /// The receiver's account.
    pub receiver: receiver::Log,
    /// The router's counts on the way to the receiver.
    pub router: Stats,
    /// When the last byte had arrived; the end if it had not.
    pub took: Duration,
    /// True if it had.
    pub is_done: bool,
    /// Bytes of the transfer that had been acknowledged by then.
    pub bytes: u32,
}

impl Outcome {
    /// Bits of the transfer a second, in thousands.
    pub fn kbps(&self) -> f64 {
        f64::from(self.bytes) * 8e-3 / self.took.as_secs_f64()
    }

    /// Packets that the router has dropped a second.
    pub fn drops_per_s(&self) -> f64 {
        self.router.dropped() as f64 / self.took.as_secs_f64()
    }
}

/// One end of a transfer.
#[allow(clippy::large_enum_variant, reason = "there are two of them")]
enum End {
    Sender(Sender, Bunch),
    Receiver(Receiver, SocketAddrV4),
}

/// Acknowledgements that wait for their instant.
#[derive(Default)]
struct Bunch {
    every: Duration,
    held: Vec<Ack>,
    due: Option<Time>,
}

impl Bunch {
    fn hold(&mut self, now: Time, ack: Ack) {
        let every_ns = self.every.as_nanos() as u64;
        self.held.push(ack);
        self.due.get_or_insert(Time::from_nanos(now.as_nanos().div_ceil(every_ns) * every_ns));
    }
}

impl Application for End {
    fn handle_datagram(&mut self, now: Time, packet: Packet) {
        match self {
            End::Sender(sender, bunch) => match Ack::of(&packet.body) {
                Some(ack) if bunch.every.is_zero() => sender.on_ack(now, &ack),
                Some(ack) => bunch.hold(now, ack),
                None => {}
            },
            End::Receiver(receiver, _) => {
                if let Some(data) = Data::of(&packet.body) {
                    receiver.on_data(now, data);
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            End::Sender(sender, bunch) => {
                if bunch.due.is_some_and(|due| due <= now) {
                    bunch.due = None;
                    bunch.held.drain(..).for_each(|ack| sender.on_ack(now, &ack));
                }
                sender.handle_timeout(now);
            }
            End::Receiver(receiver, _) => receiver.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Datagram> {
        match self {
            End::Sender(sender, _) => sender.poll(now),
            End::Receiver(receiver, to) => Some(receiver.poll()?.datagram((*to).into())),
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        match self {
            End::Sender(sender, bunch) => [sender.poll_timeout(), bunch.due].into_iter().flatten().min(),
            End::Receiver(receiver, _) => receiver.poll_timeout(),
        }
    }
}

impl Setup {
    /// Carries it out, until all has arrived or until its end.
    ///
    /// # Errors
    /// A value is out of range.
    pub fn run(&self) -> Result<Outcome> {
        let mut topology = Topology::new();
        let [client, router, server] = [(); 3].map(|()| topology.node());
        topology.join(client, router, PathConfig::both(self.access.parse().context("the access")?));
        let [forward, backward] = &self.line;
        let mut line = PathConfig::both(forward.parse().context("the line")?);
        line.backward = backward.parse().context("the line")?;
        let path = topology.join(router, server, line);
        let mut network = Network::new(&topology, self.seed)?;
        network.set_headers(true);
        let at = |node| SocketAddrV4::new(Topology::address(node), PORT);
        let mut receiver = Receiver::new(self.receiver, self.bytes);
        let mut sender = Sender::new(self.sender, at(server).into(), self.bytes, receiver.window());
        (receiver.records, sender.records) = (self.records, self.records);
        let from = network.attach(
            client,
            PORT,
            End::Sender(sender, Bunch { every: self.bunch, ..Bunch::default() }),
        )?;
        let to = network.attach(server, PORT, End::Receiver(receiver, at(client)))?;
        let end = Time::ZERO + self.end;
        let is_open = |network: &Network<End>| matches!(network.app(from), End::Sender(sender, _) if sender.done_at.is_none());
        // A second at a time, until nothing more is to come.
        while network.now() < end && is_open(&network) {
            network.run_until(end.min(network.now() + Duration::from_secs(1)));
        }
        let (End::Sender(sender, _), End::Receiver(receiver, _)) = (network.app(from), network.app(to))
        else {
            bail!("a sender and a receiver were attached");
        };
        Ok(Outcome {
            sender: sender.log.clone(),
            receiver: receiver.log.clone(),
            router: network.path(path).stats(Direction::Forward),
            took: receiver.done_at.map_or(self.end, |at| at.since(Time::ZERO)),
            is_done: receiver.done_at.is_some(),
            bytes: sender.acknowledged(),
        })
    }
}
