//! The world: endpoints, the path, and the order in which things happen.

use crate::identity::{Identities, SERVER_NAME};
use core::time::Duration;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use uts_engine::{
    ConnectError, Connection, ConnectionConfig, ConnectionHandle, Ecn, Endpoint, EndpointConfig, Event,
};
use uts_functions::Time;
use uts_path::{Direction, Path, PathConfig, Payload, SpecError};

/// A host of the world: 0 is the server, clients follow.
pub type NodeId = usize;

/// The server.
pub const SERVER: NodeId = 0;

/// A datagram on its way.
#[derive(Clone, Debug)]
struct Packet {
    from: NodeId,
    to: NodeId,
    bytes: Vec<u8>,
    ecn: Option<Ecn>,
}

impl Payload for Packet {
    fn flip_bit(&mut self, bit: usize) {
        if let Some(byte) = self.bytes.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }

    fn mark_ce(&mut self) -> bool {
        let capable = self.ecn.is_some();
        if capable {
            self.ecn = Some(Ecn::Ce);
        }
        capable
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(&self.bytes)
    }
}

/// How a world is made.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// The path between the clients (left) and the server (right); forward = towards the server.
    pub path: PathConfig,
    /// How many client hosts.
    pub clients: usize,
    /// Settings of the server's endpoint; its TLS settings are filled in.
    pub server: EndpointConfig,
    /// Settings of each client's endpoint.
    pub client: EndpointConfig,
    /// What everything follows from.
    pub seed: u64,
}

impl Default for WorldConfig {
    fn default() -> Self {
        WorldConfig {
            path: PathConfig::default(),
            clients: 1,
            server: EndpointConfig::default(),
            client: EndpointConfig { cid_bytes: 4, ..EndpointConfig::default() },
            seed: 0,
        }
    }
}

/// Something that happened at a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Happening {
    /// Where.
    pub node: NodeId,
    /// On which of its connections.
    pub connection: ConnectionHandle,
    /// What.
    pub event: Event,
}

/// A world in virtual time.
pub struct World {
    now: Time,
    nodes: Vec<Endpoint>,
    path: Path<Packet>,
    identities: Identities,
    buffer: Vec<u8>,
    /// Datagrams delivered so far.
    pub packets: u64,
    steps_left: u64,
}

impl World {
    /// Makes a world at time zero.
    ///
    /// # Errors
    /// [`SpecError`] if the path's description is wrong.
    pub fn new(config: WorldConfig, identities: Identities) -> Result<Self, SpecError> {
        let seed_of = |node: u64| {
            let mut seed = [0; 32];
            seed[..8].copy_from_slice(&config.seed.to_le_bytes());
            seed[8..16].copy_from_slice(&node.to_le_bytes());
            seed
        };
        let server = EndpointConfig { server: Some(identities.server.clone()), ..config.server };
        let mut nodes = vec![Endpoint::new(server, seed_of(0))];
        nodes.extend((1..=config.clients as u64).map(|n| Endpoint::new(config.client.clone(), seed_of(n))));
        let path = Path::new(config.path, config.seed, 0)?;
        // TLS looks at the age of nothing here; a clock that starts at one second leaves room for what lies before.
        let now = Time::from_millis(0);
        Ok(World { now, nodes, path, identities, buffer: Vec::new(), packets: 0, steps_left: u64::MAX })
    }

    /// The instant that the world has reached.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Lets at most this many more instants and batches of datagrams pass: against worlds in which something is due for
    /// ever.
    pub fn limit_steps(&mut self, steps: u64) {
        self.steps_left = steps;
    }

    /// Whether the limit of steps was reached; nothing happens any more then.
    pub fn is_exhausted(&self) -> bool {
        self.steps_left == 0
    }

    /// A host's endpoint.
    pub fn endpoint(&mut self, node: NodeId) -> &mut Endpoint {
        &mut self.nodes[node]
    }

    /// A host's connection, to look at or to change.
    pub fn connection(&mut self, node: NodeId, handle: ConnectionHandle) -> Option<&mut Connection> {
        self.nodes.get_mut(node)?.connection(handle)
    }

    /// The path, to change or to look at.
    pub fn set_path(&mut self, target: uts_path::Target, change: &str) -> Result<(), SpecError> {
        self.path.set(self.now.as_nanos(), target, &change.parse()?)
    }

    /// What a direction of the path has done.
    pub fn path_stats(&self, direction: Direction) -> uts_path::Stats {
        self.path.stats(direction)
    }

    /// A client begins a connection to the server.
    ///
    /// # Errors
    /// [`ConnectError`] as the engine says.
    pub fn connect(
        &mut self,
        client: NodeId,
        config: ConnectionConfig,
    ) -> Result<ConnectionHandle, ConnectError> {
        let tls = self.identities.client.clone();
        let name = ServerName::try_from(SERVER_NAME)
            .map_err(|error| ConnectError::Tls(rustls::Error::General(error.to_string())))?;
        let now = self.now;
        self.nodes[client].connect(now, address(SERVER), name.to_owned(), tls, config)
    }

    /// Sends a datagram from anywhere to a host, past the path: what an attacker would do.
    pub fn inject(&mut self, from: NodeId, to: NodeId, mut datagram: Vec<u8>) {
        let now = self.now;
        self.nodes[to].handle_datagram(now, address(from), None, &mut datagram);
    }

    /// Lets time pass until something happens, or until `until`.
    pub fn next(&mut self, until: Time) -> Option<Happening> {
        loop {
            for node in 0..self.nodes.len() {
                if let Some((connection, event)) = self.nodes[node].poll_event() {
                    return Some(Happening { node, connection, event });
                }
            }
            if self.steps_left == 0 {
                return None;
            }
            self.steps_left -= 1;
            if self.transmit() {
                continue;
            }
            let timers = self.nodes.iter_mut().filter_map(Endpoint::poll_timeout).min();
            let arrival = self.path.next_ns().map(Time::from_nanos);
            let next = timers.into_iter().chain(arrival).min().unwrap_or(Time::NEVER);
            if next > until {
                self.now = self.now.max(until);
                return None;
            }
            self.now = self.now.max(next);
            self.deliver();
            for node in &mut self.nodes {
                node.handle_timeout(self.now);
            }
        }
    }

    /// Lets time pass, whatever happens.
    pub fn run_until(&mut self, until: Time) {
        while self.next(until).is_some() {}
    }

    /// Lets `duration` pass, whatever happens.
    pub fn run_for(&mut self, duration: Duration) {
        self.run_until(self.now + duration);
    }

    /// Takes what the endpoints want to send to the path; says whether there was anything.
    fn transmit(&mut self) -> bool {
        let mut any = false;
        for from in 0..self.nodes.len() {
            while let Some(transmit) = self.nodes[from].poll_transmit(self.now, &mut self.buffer) {
                any = true;
                self.steps_left = self.steps_left.saturating_sub(1);
                if self.steps_left == 0 {
                    return false;
                }
                let Some(to) = node_of(transmit.remote) else { continue };
                for bytes in self.buffer.chunks(transmit.segment_bytes.max(1)) {
                    let packet = Packet { from, to, bytes: bytes.to_vec(), ecn: transmit.ecn };
                    let direction = if to == SERVER { Direction::Forward } else { Direction::Backward };
                    self.path.send(self.now.as_nanos(), direction, packet, bytes.len());
                }
            }
        }
        any
    }

    fn deliver(&mut self) {
        for direction in [Direction::Forward, Direction::Backward] {
            while let Some(mut packet) = self.path.poll(self.now.as_nanos(), direction) {
                self.packets += 1;
                if let Some(node) = self.nodes.get_mut(packet.to) {
                    node.handle_datagram(self.now, address(packet.from), packet.ecn, &mut packet.bytes);
                }
            }
        }
    }
}

fn address(node: NodeId) -> SocketAddr {
    let [high, low] = (node as u16).to_be_bytes();
    SocketAddr::from(([10, 0, high, low], 4433))
}

fn node_of(address: SocketAddr) -> Option<NodeId> {
    match address {
        SocketAddr::V4(v4) => {
            let [_, _, high, low] = v4.ip().octets();
            Some(usize::from(u16::from_be_bytes([high, low])))
        }
        SocketAddr::V6(_) => None,
    }
}
