//! A transfer: one client sends a run of bytes, the server takes it. The application of most
//! experiments.

use crate::world::{Happening, NodeId, SERVER, World};
use bytes::Bytes;
use core::time::Duration;
use std::collections::BTreeMap;
use uts_engine::{
    ConnectionConfig, ConnectionHandle, Event, ExchangeEvent, FlowId, FlowOptions, Read, ReadError,
    WriteError,
};
use uts_functions::Time;

/// Bytes written at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// One sender's progress.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The client's connection.
    pub connection: ConnectionHandle,
    /// Bytes handed to the engine.
    pub written: u64,
    /// Bytes that the server's application has read.
    pub received: u64,
    /// A sum over what was read, at its place, to compare with [`checksum`].
    pub checksum: u64,
    /// When the first byte could be written.
    pub connected_at: Option<Time>,
    /// When the server read the last byte.
    pub done_at: Option<Time>,
    /// Exchanges as the client's events told them.
    pub exchanges: Vec<(Time, ExchangeEvent)>,
    /// Why the connection ended, if it did.
    pub closed: Option<String>,
    flow: Option<FlowId>,
}

/// Bulk transfers of some clients to the server.
pub struct Transfers {
    /// Bytes of each.
    pub bytes: u64,
    /// Nothing is written before an exchange of the client's has come into force: effects of a
    /// profile from the first byte on show only then.
    pub awaits_exchange: bool,
    /// By client.
    pub progress: BTreeMap<NodeId, Progress>,
    /// The server's connections, by the client that they belong to.
    server_side: BTreeMap<ConnectionHandle, NodeId>,
}

/// The byte at a position of every transfer.
pub fn byte_at(position: u64) -> u8 {
    let mixed = position.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8 ^ (position as u8)
}

/// The sum that a complete transfer of `bytes` ends with.
pub fn checksum(bytes: u64) -> u64 {
    (0..bytes).fold(0, |sum, position| add(sum, position, byte_at(position)))
}

fn add(sum: u64, position: u64, byte: u8) -> u64 {
    sum.wrapping_add((position + 1).wrapping_mul(u64::from(byte) + 1))
}

impl Transfers {
    /// Begins transfers of `bytes` from each of these clients.
    ///
    /// # Panics
    /// If the engine does not begin a connection: the experiment is wrong.
    #[allow(clippy::expect_used, reason = "an experiment that cannot begin is a mistake in it")]
    pub fn start(world: &mut World, clients: &[(NodeId, ConnectionConfig)], bytes: u64) -> Self {
        let mut progress = BTreeMap::new();
        for (client, config) in clients {
            let connection = world.connect(*client, config.clone()).expect("the connection begins");
            let fresh = Progress {
                connection,
                written: 0,
                received: 0,
                checksum: 0,
                connected_at: None,
                done_at: None,
                exchanges: Vec::new(),
                closed: None,
                flow: None,
            };
            progress.insert(*client, fresh);
        }
        Transfers { bytes, awaits_exchange: false, progress, server_side: BTreeMap::new() }
    }

    /// True if all are done (or have ended otherwise).
    pub fn is_done(&self) -> bool {
        self.progress.values().all(|p| p.done_at.is_some() || p.closed.is_some())
    }

    /// Runs until all are done, or until `until`; says whether they are.
    pub fn run(&mut self, world: &mut World, until: Time) -> bool {
        while !self.is_done() {
            let Some(happening) = world.next(until) else { return false };
            self.handle(world, &happening);
        }
        true
    }

    /// Does what a happening calls for.
    pub fn handle(&mut self, world: &mut World, happening: &Happening) {
        let Happening { node, connection, event } = happening;
        if *node == SERVER {
            self.handle_at_server(world, *connection, event)
        } else {
            self.handle_at_client(world, *node, event)
        }
    }

    fn handle_at_client(&mut self, world: &mut World, node: NodeId, event: &Event) {
        let now = world.now();
        let Some(progress) = self.progress.get_mut(&node) else { return };
        match event {
            Event::Connected => {
                progress.connected_at = Some(now);
                if !self.awaits_exchange {
                    self.begin(world, node);
                }
            }
            Event::Writable(_) => self.write(world, node),
            Event::Exchange(exchange) => {
                progress.exchanges.push((now, ExchangeEvent::clone(exchange)));
                let is_in_force = matches!(**exchange, ExchangeEvent::Completed { .. });
                if self.awaits_exchange && is_in_force && progress.flow.is_none() {
                    self.begin(world, node);
                }
            }
            Event::Closed(reason) => progress.closed = Some(reason.to_string()),
            _ => {}
        }
    }

    fn begin(&mut self, world: &mut World, node: NodeId) {
        let Some(progress) = self.progress.get_mut(&node) else { return };
        let Some(connection) = world.connection(node, progress.connection) else { return };
        progress.flow = connection.open_flow(FlowOptions::default()).ok();
        self.write(world, node);
    }

    fn write(&mut self, world: &mut World, node: NodeId) {
        let now = world.now();
        let Some(progress) = self.progress.get_mut(&node) else { return };
        let Some(flow) = progress.flow else { return };
        let Some(connection) = world.connection(node, progress.connection) else { return };
        while progress.written < self.bytes {
            let end = self.bytes.min(progress.written + CHUNK_BYTES as u64);
            let data: Vec<u8> = (progress.written..end).map(byte_at).collect();
            match connection.write(now, flow, Bytes::from(data)) {
                Ok(taken) => progress.written += taken as u64,
                Err(WriteError::Blocked) => return,
                Err(error) => {
                    progress.closed = Some(error.to_string());
                    return;
                }
            }
        }
        connection.finish(flow);
    }

    fn handle_at_server(&mut self, world: &mut World, handle: ConnectionHandle, event: &Event) {
        match event {
            // The order of connections is that of their clients: each is told apart by its address.
            Event::Connected => {
                let Some(remote) = world.connection(SERVER, handle).map(|c| c.remote()) else { return };
                if let std::net::SocketAddr::V4(v4) = remote {
                    let [_, _, high, low] = v4.ip().octets();
                    self.server_side.insert(handle, usize::from(u16::from_be_bytes([high, low])));
                }
            }
            Event::Readable(flow) => self.read(world, handle, *flow),
            Event::Closed(reason) => {
                let client = self.server_side.get(&handle);
                if let Some(progress) = client.and_then(|node| self.progress.get_mut(node)) {
                    progress.closed.get_or_insert(format!("at the server: {reason}"));
                }
            }
            _ => {}
        }
    }

    fn read(&mut self, world: &mut World, handle: ConnectionHandle, flow: FlowId) {
        let now = world.now();
        let Some(progress) = self.server_side.get(&handle).and_then(|node| self.progress.get_mut(node))
        else {
            return;
        };
        let Some(connection) = world.connection(SERVER, handle) else { return };
        loop {
            match connection.read(now, flow, CHUNK_BYTES) {
                Ok(Read::Bytes(position, data)) => {
                    let at = position..;
                    progress.checksum =
                        at.zip(data.iter()).fold(progress.checksum, |sum, (p, b)| add(sum, p, *b));
                    progress.received += data.len() as u64;
                }
                Ok(
                    Read::Message(data)
                    | Read::Timed { message: data, .. }
                    | Read::Damaged { message: data, .. },
                ) => progress.received += data.len() as u64,
                Ok(Read::Missing { .. }) => {}
                Ok(Read::End) => {
                    progress.done_at = Some(now);
                    return;
                }
                Err(ReadError::Blocked) => return,
                Err(error) => {
                    progress.closed.get_or_insert(format!("at the server: {error}"));
                    return;
                }
            }
        }
    }
}

impl Progress {
    /// Bytes per second that the server's application read between two looks.
    pub fn goodput(&self, until: Time) -> f64 {
        let end = self.done_at.unwrap_or(until);
        let time: Duration = self.connected_at.map_or(Duration::ZERO, |at| end.since(at));
        if time.is_zero() { 0.0 } else { self.received as f64 / time.as_secs_f64() }
    }
}
