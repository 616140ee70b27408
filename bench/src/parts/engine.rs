//! The whole engine: two endpoints in memory, datagrams handed from one to the other, no sockets.

use super::Part;
use crate::usage::thread_time;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::time::Duration;
use uts_engine::{
    ConnectionConfig, ConnectionHandle, Direction, Endpoint, EndpointConfig, Event, FlowId, FlowOptions,
    Read, ReadError, WriteError,
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

pub fn parts() -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for security in ["required", "unprotected"] {
        for side in [Side::Both, Side::Sender, Side::Receiver] {
            let mut pair = None;
            let run = move |packets| {
                let pair = match &mut pair {
                    Some(pair) => pair,
                    none => none.insert(Pair::connect(security)?),
                };
                pair.carry(packets, side)
            };
            let what = match security {
                "unprotected" => "unprotected",
                _ => "default profile",
            };
            parts.push(Part::new("engine", format!("{what}, {}", side.name()), DATA_BYTES, Box::new(run)));
        }
    }
    Ok(parts)
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
struct Pair {
    client: Endpoint,
    server: Endpoint,
    connection: ConnectionHandle,
    flow: FlowId,
    now: Time,
    buffer: Vec<u8>,
    data: Bytes,
    received: u64,
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
    fn connect(security: &str) -> Result<Self> {
        let identities = Identities::new()?;
        let mut config = ConnectionConfig::default();
        config.requirements.set("uts.security", security)?;
        let server = EndpointConfig {
            server: Some(identities.server),
            accept: config.clone(),
            ..EndpointConfig::default()
        };
        let mut client = Endpoint::new(EndpointConfig::default(), [1; 32]);
        let name = ServerName::try_from(SERVER_NAME)?;
        let connection = client.connect(Time::ZERO, server_addr(), name, identities.client, config)?;
        let mut pair = Pair {
            client,
            server: Endpoint::new(server, [2; 32]),
            connection,
            flow: FlowId(0),
            now: Time::ZERO,
            buffer: Vec::new(),
            data: Bytes::from(vec![0x5a; 64 << 10]),
            received: 0,
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
        pair.flow = opened.open_flow(FlowOptions::default()).map_err(|e| anyhow::anyhow!("{e}"))?;
        pair.carry(WARM_UP_PACKETS, Side::Both)?;
        let profile =
            pair.client.peek(connection).and_then(|c| c.profile(Direction::Out)).context("profile")?;
        let is_protected = profile.name(Function::Protection) != "none";
        ensure!(
            is_protected == (security != "unprotected"),
            "protection: {}",
            profile.name(Function::Protection)
        );
        Ok(pair)
    }

    /// Sends so many packets' worth of data; the time that `side` spent on it.
    fn carry(&mut self, packets: u64, side: Side) -> Result<Duration> {
        let target = self.received + packets * DATA_BYTES as u64;
        self.spent = [Duration::ZERO; 2];
        let start = thread_time();
        while self.received < target {
            let before = thread_time();
            self.write()?;
            self.spent[0] += thread_time() - before;
            self.turn()?;
        }
        let both = thread_time() - start;
        let [sender, receiver] = self.spent;
        Ok(match side {
            Side::Both => both,
            Side::Sender => sender,
            Side::Receiver => receiver,
        })
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
                for datagram in self.buffer.chunks_mut(transmit.segment_bytes.max(1)) {
                    to.handle_datagram(self.now, remote, transmit.ecn, datagram);
                }
                self.received += if from_client { drain(to, self.now)? } else { watch(to)? };
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

fn watch(client: &mut Endpoint) -> Result<u64> {
    while let Some((_, event)) = client.poll_event() {
        if let Event::Closed(reason) = event {
            bail!("the client has closed: {reason}");
        }
    }
    Ok(0)
}
