//! Where transfers happen: hosts on an Ethernet, a gateway with one queue, and a serial line to the
//! client; or two hosts on one Ethernet, the client with work that takes time.

use super::design::Design;
use super::protocol::{End, HEADER_BYTES, Headers, Receiver};
use super::sender::{Log, Sender, State};
use anyhow::{Result, bail};
use core::time::Duration;
use std::net::SocketAddrV4;
use uts_functions::Time;
use uts_path::{Direction, PathConfig, Stats};
use uts_sim::cost::Costs;
use uts_sim::network::Network;
use uts_sim::topology::{Node, PathId, Topology};

/// Of Rx's servers.
const PORT: u16 = 7001;
/// 10 Mbit/s.
pub const ETHERNET: &str = "rate=10mbit framing=ethernet mtu=1500";
/// Bytes of a transfer (section 2).
pub const TRANSFER_BYTES: u32 = 100_000;

/// The line and the gateway in front of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Bits per second.
    pub rate_bps: u64,
    /// As paths name it.
    pub framing: &'static str,
    /// The longest IP packet that it carries.
    pub mtu_bytes: u32,
    /// Packets that wait in the gateway, the one on the line included.
    pub queue_packets: u32,
    /// Time that a bit is on the way.
    pub delay: Duration,
    /// Compression of headers, as paths name it.
    pub compression: &'static str,
    /// Packets that are lost on the way to the client, as paths name them.
    pub loss: &'static str,
    /// The rate of a second line behind it, to the client, if there is one.
    pub behind_bps: Option<u64>,
}

impl Line {
    /// The paper's: 9600 bit/s, ten bit times for a byte, packets of 576 bytes.
    pub const SLIP: Line = Line {
        rate_bps: 9600,
        framing: "slip",
        mtu_bytes: 576,
        queue_packets: super::QUEUE_PACKETS,
        delay: Duration::ZERO,
        compression: "off",
        loss: "0",
        behind_bps: None,
    };

    /// The path that it is, in each direction.
    ///
    /// # Errors
    /// A value is out of range.
    pub fn path(&self) -> Result<PathConfig> {
        let Line { rate_bps, framing, mtu_bytes, queue_packets, delay, compression, loss, .. } = self;
        let (line, delay_us) = (format!("rate={rate_bps}bit framing={framing}"), delay.as_micros());
        let text = format!("{line} mtu={mtu_bytes} buffer={queue_packets}p delay={delay_us}us");
        let mut path = PathConfig::both(format!("{text} compress={compression}").parse()?);
        path.forward = path.forward.with(&format!("loss={loss}").parse()?)?;
        Ok(path)
    }
}

/// A transfer of [`TRANSFER_BYTES`], unless it says otherwise.
#[derive(Clone, Debug)]
pub struct Session {
    /// When it begins.
    pub begins: Duration,
    /// Design of its sender.
    pub design: Design,
    /// Bytes of an IP packet, headers included.
    pub ip_bytes: u16,
    /// Bytes of it all.
    pub bytes: u32,
    /// Headers of its packets.
    pub headers: Headers,
}

impl Session {
    /// A transfer from time zero on.
    pub fn new(design: Design, ip_bytes: u16) -> Self {
        Session { begins: Duration::ZERO, design, ip_bytes, bytes: TRANSFER_BYTES, headers: Headers::Counted }
    }

    /// The same, at another time.
    #[must_use]
    pub fn at(self, begins: Duration) -> Self {
        Session { begins, ..self }
    }

    /// Packets of the transfer.
    pub fn packets(&self) -> u32 {
        self.bytes.div_ceil(u32::from(self.ip_bytes - HEADER_BYTES))
    }
}

/// Outcome of a transfer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Packets of the transfer.
    pub packets: u32,
    /// Bytes of an IP packet.
    pub ip_bytes: u16,
    /// When it began.
    pub begins: Time,
    /// Log of the sender.
    pub log: Log,
    /// State of the transfer at the end.
    pub state: State,
    /// When transmissions arrived that the receiver had no need of.
    pub duplicates: Vec<Time>,
}

impl Outcome {
    /// When all had arrived, as the sender learnt; `None` if it did not.
    pub fn done_at(&self) -> Option<Time> {
        match self.state {
            State::Done(at) => Some(at),
            _ => None,
        }
    }

    /// Seconds that it took.
    pub fn took_s(&self) -> Option<f64> {
        Some(self.done_at()?.since(self.begins).as_secs_f64())
    }

    /// Transmissions of what was sent before.
    pub fn repeats(&self) -> usize {
        self.log.sent.iter().filter(|(.., repeats)| *repeats).count()
    }

    /// The highest packet that was ever sent.
    pub fn highest(&self) -> u32 {
        self.log.sent.iter().map(|(_, sequence, _)| *sequence).max().unwrap_or(0)
    }

    /// Bits per second of IP packets that were needed (the paper counts their headers).
    pub fn ip_bps(&self) -> Option<f64> {
        Some(f64::from(self.packets) * f64::from(self.ip_bytes) * 8.0 / self.took_s()?)
    }

    /// Repeats of each packet, from the first on.
    pub fn repeats_by_packet(&self) -> Vec<u32> {
        let mut repeats = vec![0; self.packets as usize];
        for (_, sequence, repeated) in &self.log.sent {
            repeats[*sequence as usize - 1] += u32::from(*repeated);
        }
        repeats
    }
}

/// Transfers from hosts on an Ethernet through one gateway and over its line; until all are done or
/// given up, or until `end`. Gives what came of each, and what the line did on the way to the
/// client.
///
/// # Errors
/// A value is out of range.
pub fn over_line(line: &Line, sessions: &[Session], end: Duration) -> Result<(Vec<Outcome>, Stats)> {
    let mut topology = Topology::new();
    let (gateway, client) = (topology.node(), topology.node());
    let path = match line.behind_bps {
        None => topology.join(gateway, client, line.path()?),
        Some(rate_bps) => {
            let modem = topology.node();
            let behind = Line { rate_bps, loss: Line::SLIP.loss, ..line.clone() };
            topology.join(modem, client, behind.path()?);
            topology.join(gateway, modem, line.path()?)
        }
    };
    let mut hosts = Vec::new();
    for _ in sessions {
        let host = topology.node();
        topology.join(host, gateway, PathConfig::both(ETHERNET.parse()?));
        hosts.push(host);
    }
    let network = Network::new(&topology, 1)?;
    run(network, path, &hosts, client, sessions, end)
}

/// A transfer between two hosts on one Ethernet, whose client takes as long as `costs` say.
///
/// # Errors
/// A value is out of range.
pub fn over_ethernet(costs: Costs, session: &Session, end: Duration) -> Result<Outcome> {
    let mut topology = Topology::new();
    let (host, client) = (topology.node(), topology.node());
    let path = topology.join(host, client, PathConfig::both(ETHERNET.parse()?));
    let mut network = Network::new(&topology, 1)?;
    network.set_costs(client, costs)?;
    let (outcomes, _) = run(network, path, &[host], client, core::slice::from_ref(session), end)?;
    let Some(outcome) = outcomes.into_iter().next() else { bail!("there is one session") };
    Ok(outcome)
}

fn run(
    mut network: Network<End>,
    path: PathId,
    hosts: &[Node],
    client: Node,
    sessions: &[Session],
    end: Duration,
) -> Result<(Vec<Outcome>, Stats)> {
    network.set_headers(true);
    // What is restored wrongly is found out by its checksum.
    network.set_udp_checks(sessions.iter().any(|session| session.headers != Headers::Counted));
    let mut ends = Vec::new();
    for (n, (session, host)) in sessions.iter().zip(hosts).enumerate() {
        let from = SocketAddrV4::new(Topology::address(*host), PORT);
        let to = SocketAddrV4::new(Topology::address(client), PORT + n as u16);
        let transfer = (session.packets(), session.ip_bytes - HEADER_BYTES);
        let begins = Time::ZERO + session.begins;
        let sender = Sender::new(&session.design, to.into(), transfer, begins, super::PATIENCE)?
            .with_headers(session.headers);
        let receiver = Receiver::new(from.into(), session.packets(), session.headers);
        let sender = network.attach(*host, PORT, End::Sender(sender))?;
        let receiver = network.attach(client, to.port(), End::Receiver(receiver))?;
        ends.push((sender, receiver));
    }
    // A second at a time, until nothing more is to come.
    let is_open = |network: &Network<End>| {
        let state = |end: &End| matches!(end, End::Sender(sender) if sender.state == State::Open);
        ends.iter().any(|(sender, _)| state(network.app(*sender)))
    };
    let end = Time::ZERO + end;
    while network.now() < end && is_open(&network) {
        network.run_until(end.min(network.now() + Duration::from_secs(1)));
    }
    let mut outcomes = Vec::new();
    for ((sender, receiver), session) in ends.iter().zip(sessions) {
        let (End::Sender(sender), End::Receiver(receiver)) = (network.app(*sender), network.app(*receiver))
        else {
            bail!("a sender and a receiver were attached");
        };
        outcomes.push(Outcome {
            packets: session.packets(),
            ip_bytes: session.ip_bytes,
            begins: Time::ZERO + session.begins,
            log: sender.log.clone(),
            state: sender.state,
            duplicates: receiver.duplicates.clone(),
        });
    }
    let stats = network.path(path).stats(Direction::Forward);
    Ok((outcomes, stats))
}
