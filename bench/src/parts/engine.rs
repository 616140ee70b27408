//! The whole engine: two endpoints in memory, datagrams handed from one to the other, no sockets.

use super::exchange::How;
use super::{Factor, Part};
use crate::summary::Summary;
use crate::usage::thread_time;
use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::time::Duration;
use uts_engine::{
    ConnectionConfig, ConnectionHandle, Direction, Endpoint, EndpointConfig, Event, ExchangeError,
    ExchangeEvent, FlowId, FlowOptions, Read, ReadError, WriteError,
};
use uts_functions::{Function, Time};
use uts_sim::identity::{Identities, SERVER_NAME};

/// How long a batch is on its way.
const DELAY: Duration = Duration::from_micros(5);

/// Batches that one end sends before the other has its turn.
const BATCHES_PER_TURN: usize = 8;

/// Turns in which a handshake, and finding the path's packet size, must be over.
const SETTLE_TURNS: usize = 20_000;

/// Packets sent before any are counted.
const WARM_UP_PACKETS: u64 = 20_000;

/// Bytes of data in a full packet of 1472 bytes: what header, frame and tag leave, nearly.
const DATA_BYTES: usize = 1440;

/// A profile that is measured.
pub struct Profile {
    pub name: &'static str,
    /// What is asked for to have it.
    pub property: &'static str,
    /// Whether packets are encrypted; else they have a checksum.
    pub protects: bool,
}

/// All of them.
pub const PROFILES: [Profile; 2] = [
    Profile { name: "default profile", property: "uts.security=required", protects: true },
    Profile { name: "unprotected", property: "uts.security=unprotected", protects: false },
];

pub fn parts() -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for Profile { name, property, .. } in PROFILES {
        for side in [Side::Both, Side::Sender, Side::Receiver] {
            let mut pair = None;
            let run = move |packets| {
                let pair = match &mut pair {
                    Some(pair) => pair,
                    none => none.insert(Pair::connect(&[property])?),
                };
                let [sender, receiver] = pair.carry(packets)?;
                Ok(match side {
                    Side::Both => sender + receiver,
                    Side::Sender => sender,
                    Side::Receiver => receiver,
                })
            };
            parts.push(Part::new("engine", format!("{name}, {}", side.name()), DATA_BYTES, Box::new(run)));
        }
    }
    Ok(parts)
}

/// What is asked of a profile from which nothing is left out.
const WHOLE: &[&str] = &["uts.security=unprotected", "uts.profile.detection=crc-32c", "uts.adapt=off"];

/// What is asked so that a function is left out, and what that is called.
const LEFT_OUT: &[(&str, &[&str])] = &[
    ("detection", &["uts.profile.detection=none"]),
    ("retransmission", &["reliability=prohibit", "uts.profile.retransmission=none"]),
    ("sequencing", &["preserveOrder=prohibit", "uts.profile.sequencing=unordered"]),
    ("flow control", &["uts.profile.flow=none"]),
    ("rate control", &["uts.profile.rate=none"]),
    ("congestion control", &["congestionControl=prohibit", "uts.profile.congestion=none"]),
];

/// Packets that are made before the peer takes them in, where each holds but a byte.
const SINGLES: usize = 16;

/// The engine with each function left out alone, and all of them together.
pub fn factors(turns: usize, packets: u64, progress: impl Fn(String)) -> Result<Vec<Factor>> {
    let mut variants: Vec<(String, Vec<&str>)> = vec![
        ("nothing, AES-128-GCM".into(), vec!["uts.adapt=off"]),
        ("nothing, CRC-32C".into(), WHOLE.to_vec()),
    ];
    for (name, properties) in LEFT_OUT {
        variants.push(((*name).to_owned(), [WHOLE, *properties].concat()));
    }
    let all = LEFT_OUT.iter().flat_map(|(_, properties)| properties.iter().copied());
    variants.push(("all of them".into(), WHOLE.iter().copied().chain(all).collect()));
    let mut pairs = Vec::new();
    for (name, properties) in variants {
        progress(format!("left out: {name}"));
        let pair = Pair::connect(&properties).with_context(|| format!("without {name}"))?;
        pairs.push((name, pair, [Vec::new(), Vec::new()]));
    }
    for turn in 1..=turns {
        progress(format!("functions factored out, turn {turn} of {turns}"));
        for (_, pair, times) in &mut pairs {
            let full = pair.carry(packets)?;
            times[0].push(full.map(|t| t.as_nanos() as f64 / packets as f64));
            let single = pair.carry_single(packets)?;
            times[1].push(single.map(|t| t.as_nanos() as f64 / packets as f64));
        }
    }
    let mut factors = Vec::new();
    for (size, bytes) in [(0, DATA_BYTES), (1, 1)] {
        for (name, _, times) in &pairs {
            let end = |end: usize| Summary::of(times[size].iter().map(|both| both[end])).context("no turns");
            let (left_out, sender_ns, receiver_ns) = (name.clone(), end(0)?, end(1)?);
            factors.push(Factor { left_out, bytes, sender_ns, receiver_ns });
        }
    }
    Ok(factors)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Both,
    Sender,
    Receiver,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Both => "both ends",
            Side::Sender => "sender alone",
            Side::Receiver => "receiver alone",
        }
    }
}

/// A client that sends and a server that reads.
pub struct Pair {
    client: Endpoint,
    server: Endpoint,
    connection: ConnectionHandle,
    flow: FlowId,
    now: Time,
    buffer: Vec<u8>,
    data: Bytes,
    received: u64,
    /// Exchanges of the client that have come to an end.
    exchanged: u32,
    /// Time spent in each end.
    spent: [Duration; 2],
}

fn client_addr() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4433))
}

fn server_addr() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 4433))
}

impl Pair {
    pub fn connect(properties: &[&str]) -> Result<Self> {
        let identities = Identities::new()?;
        let mut config = ConnectionConfig::default();
        for property in properties {
            config.requirements.assign(property)?;
        }
        let server = EndpointConfig {
            server: Some(identities.server),
            accept: config.clone(),
            ..EndpointConfig::default()
        };
        let mut client = Endpoint::new(EndpointConfig::default(), [1; 32]);
        let name = ServerName::try_from(SERVER_NAME)?;
        let connection = client.connect(Time::ZERO, server_addr(), name, identities.client, config, None)?;
        let mut pair = Pair {
            client,
            server: Endpoint::new(server, [2; 32]),
            connection,
            flow: FlowId(0),
            now: Time::ZERO,
            buffer: Vec::new(),
            data: Bytes::from(vec![0x5a; 64 << 10]),
            received: 0,
            exchanged: 0,
            spent: [Duration::ZERO; 2],
        };
        let connected = (0..SETTLE_TURNS).find_map(|_| {
            pair.turn()
                .err()
                .map(Err)
                .or_else(|| pair.client.peek(connection)?.profile(Direction::Out).map(Ok))
        });
        connected.context("the handshake does not end")??;
        let opened = pair.client.connection(connection).context("no connection")?;
        pair.flow = opened.open_flow(FlowOptions::default()).map_err(|e| anyhow!("{e}"))?;
        pair.carry(WARM_UP_PACKETS)?;
        let profile =
            pair.client.peek(connection).and_then(|c| c.profile(Direction::Out)).context("profile")?;
        for property in properties {
            // What was pinned must have been agreed.
            let Some((function, wanted)) =
                property.strip_prefix("uts.profile.").and_then(|p| p.split_once('='))
            else {
                continue;
            };
            let function = Function::from_name(function).context("function")?;
            let is = profile.name(function);
            ensure!(is == pinned(properties, function, wanted), "{}: {is}", function.name());
        }
        let is_protected = profile.name(Function::Protection) != "none";
        ensure!(
            is_protected != properties.contains(&"uts.security=unprotected"),
            "protection: {}",
            profile.name(Function::Protection)
        );
        Ok(pair)
    }

    /// Sends this many packets' worth of data; the time that both ends spent on it.
    pub fn carry(&mut self, packets: u64) -> Result<[Duration; 2]> {
        let target = self.received + packets * DATA_BYTES as u64;
        self.spent = [Duration::ZERO; 2];
        while self.received < target {
            let before = thread_time();
            self.write()?;
            self.spent[0] += thread_time() - before;
            self.turn()?;
        }
        Ok(self.spent)
    }

    /// Sends this many packets of one byte each.
    fn carry_single(&mut self, packets: u64) -> Result<[Duration; 2]> {
        // What larger packets left behind goes first.
        while self.client.peek(self.connection).context("the connection is gone")?.undelivered_bytes() > 0 {
            self.turn()?;
        }
        let target = self.received + packets;
        self.spent = [Duration::ZERO; 2];
        let mut datagrams: Vec<Vec<u8>> = vec![Vec::new(); SINGLES];
        while self.received < target {
            let start = thread_time();
            self.client.handle_timeout(self.now);
            let mut made = 0;
            for datagram in &mut datagrams {
                let connection = self.client.connection(self.connection).context("the connection is gone")?;
                match connection.write(self.now, self.flow, Bytes::from_static(&[7])) {
                    Ok(_) | Err(WriteError::Blocked) => {}
                    Err(error) => bail!("{error}"),
                }
                if self.client.poll_transmit(self.now, datagram).is_none() {
                    break;
                }
                made += 1;
            }
            let sent = thread_time();
            self.spent[0] += sent - start;
            self.now += DELAY;
            for datagram in &mut datagrams[..made] {
                self.server.handle_datagram(self.now, client_addr(), None, datagram);
            }
            self.received += drain(&mut self.server, self.now)?;
            self.spent[1] += thread_time() - sent;
            self.turn()?;
        }
        Ok(self.spent)
    }

    /// Exchanges what the client sends by, this many times one behind the other, each with a byte
    /// of data; the time that both ends spent on it. Without a way, the bytes alone.
    pub fn exchange(&mut self, how: Option<How>, count: u32) -> Result<[Duration; 2]> {
        self.spent = [Duration::ZERO; 2];
        for _ in 0..count {
            let (received, exchanged) = (self.received, self.exchanged);
            while let Some(how) = how {
                let before = thread_time();
                let is_begun = self.begin_exchange(how)?;
                self.spent[0] += thread_time() - before;
                if is_begun {
                    break;
                }
                self.turn()?;
            }
            let before = thread_time();
            let connection = self.client.connection(self.connection).context("the connection is gone")?;
            connection.write(self.now, self.flow, Bytes::from_static(&[7])).map_err(|e| anyhow!("{e}"))?;
            self.spent[0] += thread_time() - before;
            while self.received == received || (how.is_some() && self.exchanged == exchanged) {
                self.turn()?;
            }
        }
        Ok(self.spent)
    }

    /// False = another exchange is under way, or too many epochs are open.
    fn begin_exchange(&mut self, how: How) -> Result<bool> {
        const TURNS: [(Function, [&str; 2]); 2] =
            [(Function::Congestion, ["new-reno", "cubic"]), (Function::Timing, ["jacobson", "fixed"])];
        let (function, names) = TURNS[self.exchanged as usize % TURNS.len()];
        let connection = self.client.connection(self.connection).context("the connection is gone")?;
        let profile = connection.profile(Direction::Out).context("no profile is in use")?;
        let name = if profile.name(function) == names[0] { names[1] } else { names[0] };
        let wanted = profile.with_named(function, name).map_err(|e| anyhow!("{e}"))?;
        let begun = match how {
            How::Asked => connection.request_profile(self.now, Direction::Out, wanted),
            How::AtOnce => connection.use_profile(self.now, wanted),
        };
        match begun {
            Ok(_) => Ok(true),
            Err(ExchangeError::Busy(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&mut self) -> Result<()> {
        let connection = self.client.connection(self.connection).context("the connection is gone")?;
        loop {
            match connection.write(self.now, self.flow, self.data.clone()) {
                Ok(_) => {}
                Err(WriteError::Blocked) => return Ok(()),
                Err(error) => bail!("{error}"),
            }
        }
    }

    /// Each end sends what it has, the other takes it in. Time passes.
    fn turn(&mut self) -> Result<()> {
        let mut is_still = true;
        for from_client in [true, false] {
            let (from, to) = match from_client {
                true => (&mut self.client, &mut self.server),
                false => (&mut self.server, &mut self.client),
            };
            let remote = if from_client { client_addr() } else { server_addr() };
            let (sender, receiver) = (usize::from(!from_client), usize::from(from_client));
            for _ in 0..BATCHES_PER_TURN {
                let start = thread_time();
                from.handle_timeout(self.now);
                let transmit = from.poll_transmit(self.now, &mut self.buffer);
                let sent = thread_time();
                self.spent[sender] += sent - start;
                let Some(transmit) = transmit else { break };
                is_still = false;
                self.now += DELAY;
                // As receive offload brings them.
                let segment_bytes = transmit.segment_bytes.max(1);
                to.take_in(self.now, remote, None, transmit.ecn, segment_bytes, &mut self.buffer);
                to.taken_in(self.now);
                if from_client {
                    self.received += drain(to, self.now)?;
                } else {
                    self.exchanged += watch(to)?;
                }
                self.spent[receiver] += thread_time() - sent;
            }
        }
        if is_still {
            let next = [self.client.poll_timeout(), self.server.poll_timeout()].into_iter().flatten().min();
            self.now = next.context("nothing left to wait for")?.max(self.now);
        }
        Ok(())
    }
}

/// What a function was pinned to last: later pins replace earlier ones.
fn pinned<'a>(properties: &[&'a str], function: Function, otherwise: &'a str) -> &'a str {
    let name = format!("uts.profile.{}=", function.name());
    properties.iter().rev().find_map(|p| p.strip_prefix(name.as_str())).unwrap_or(otherwise)
}

/// Takes all that can be read at the server.
fn drain(server: &mut Endpoint, now: Time) -> Result<u64> {
    let mut bytes = 0;
    while let Some((handle, event)) = server.poll_event() {
        match event {
            Event::Readable(flow) => {
                let Some(connection) = server.connection(handle) else { continue };
                loop {
                    match connection.read(now, flow, 1 << 20) {
                        Ok(Read::Bytes(_, data) | Read::Message(data)) => bytes += data.len() as u64,
                        Ok(Read::Damaged { .. }) => bail!("a message came damaged, which nobody allows"),
                        Ok(Read::Timed { .. } | Read::Missing { .. }) => {
                            bail!("playout, which nobody asks for")
                        }
                        Ok(Read::End) | Err(ReadError::Blocked) => break,
                        Err(error) => bail!("{error}"),
                    }
                }
            }
            Event::Closed(reason) => bail!("the server has closed: {reason}"),
            _ => {}
        }
    }
    Ok(bytes)
}

/// Exchanges that have come to an end at the client.
fn watch(client: &mut Endpoint) -> Result<u32> {
    let mut exchanged = 0;
    while let Some((_, event)) = client.poll_event() {
        match event {
            Event::Closed(reason) => bail!("the client has closed: {reason}"),
            Event::Exchange(step) => match *step {
                ExchangeEvent::Completed { .. } => exchanged += 1,
                ExchangeEvent::Refused { .. } | ExchangeEvent::Failed { .. } => {
                    bail!("an exchange failed: {step:?}")
                }
                _ => {}
            },
            _ => {}
        }
    }
    Ok(exchanged)
}
