//! A world: one server, some clients, and one path that they all share.

use crate::cost::{CostError, Costs, HostCounters, Work};
use crate::host::Host;
use crate::identity::Identities;
use crate::network::{AppId, AttachError, Network};
use crate::topology::{Node, PathId, PointToPoint};
use core::time::Duration;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use uts_engine::{
    CLIENT_CID_BYTES, ConnectError, Connection, ConnectionConfig, ConnectionHandle, Endpoint, EndpointConfig,
    Event, TraceRow,
};
use uts_functions::Time;
use uts_path::{Direction, PathConfig, SpecError};
use uts_qlog::{Qlog, Vantage};

/// A host of the world: 0 is the server, clients follow.
pub type NodeId = usize;

/// The server.
pub const SERVER: NodeId = 0;

/// Settings of a world.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// The path between the clients (left) and the server (right); forward = towards the server.
    pub path: PathConfig,
    /// Number of client hosts.
    pub clients: usize,
    /// Settings of the server's endpoint; its TLS settings are filled in.
    pub server: EndpointConfig,
    /// Settings of each client's endpoint.
    pub client: EndpointConfig,
    /// Seed of all random decisions.
    pub seed: u64,
}

impl Default for WorldConfig {
    fn default() -> Self {
        WorldConfig {
            path: PathConfig::default(),
            clients: 1,
            server: EndpointConfig::default(),
            client: EndpointConfig { cid_bytes: CLIENT_CID_BYTES, ..EndpointConfig::default() },
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
    /// Event that happened.
    pub event: Event,
}

/// Why a world could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorldError {
    /// The path's description is wrong.
    #[error("{0}")]
    Path(#[from] SpecError),
    /// There are more clients than addresses.
    #[error("a world has no room for so many clients: {0}")]
    Clients(#[from] AttachError),
}

/// A world in virtual time: the clients stand at one end of the path and the server at the other.
pub struct World {
    network: Network<Host>,
    /// By host.
    apps: Vec<AppId>,
    /// Where the clients stand, and where the server does.
    sides: [Node; 2],
    path: PathId,
    identities: Identities,
}

impl World {
    /// Makes a world at time zero.
    ///
    /// # Errors
    /// [`WorldError`] if the path's description is wrong, or there are too many clients.
    pub fn new(config: WorldConfig, identities: Identities) -> Result<Self, WorldError> {
        let seed_of = |node: u64| {
            let mut seed = [0; 32];
            seed[..8].copy_from_slice(&config.seed.to_le_bytes());
            seed[8..16].copy_from_slice(&node.to_le_bytes());
            seed
        };
        let PointToPoint { topology, hosts: [left, right], path } = PointToPoint::new(config.path);
        let mut network = Network::new(&topology, config.seed)?;
        let server = EndpointConfig { server: Some(identities.server.clone()), ..config.server };
        let server = Host::new(Endpoint::new(server, seed_of(0)));
        let mut apps = vec![network.attach_at(right, address(SERVER), server)?];
        for node in 1..=config.clients {
            let client = Host::new(Endpoint::new(config.client.clone(), seed_of(node as u64)));
            apps.push(network.attach_at(left, address(node), client)?);
        }
        Ok(World { network, apps, sides: [left, right], path, identities })
    }

    /// The instant that the world has reached.
    pub fn now(&self) -> Time {
        self.network.now()
    }

    /// Datagrams delivered so far.
    pub fn packets(&self) -> u64 {
        self.network.counters().delivered
    }

    /// Lets at most this many more instants and datagrams pass. This ends worlds in which something
    /// is due for ever.
    pub fn limit_steps(&mut self, steps: u64) {
        self.network.limit_steps(steps);
    }

    /// True if the limit of steps was reached; nothing happens any more then.
    pub fn is_exhausted(&self) -> bool {
        self.network.is_exhausted()
    }

    /// A host's endpoint.
    pub fn endpoint(&mut self, node: NodeId) -> &mut Endpoint {
        self.network.app_mut(self.apps[node]).endpoint()
    }

    /// Suspends a host, or has it go on: see [`Host::suspend`].
    pub fn suspend(&mut self, node: NodeId, is_suspended: bool) {
        let now = self.now();
        self.network.app_mut(self.apps[node]).suspend(now, is_suspended);
    }

    /// A host's connection, to look at or to change.
    pub fn connection(&mut self, node: NodeId, handle: ConnectionHandle) -> Option<&mut Connection> {
        self.network.app_mut(*self.apps.get(node)?).endpoint().connection(handle)
    }

    /// The path, to change or to look at.
    pub fn set_path(&mut self, target: uts_path::Target, change: &str) -> Result<(), SpecError> {
        self.network.set_path(self.path, target, &change.parse()?)
    }

    /// Gives the work of a side of the path costs, from now on; see [`crate::cost`]. All clients
    /// share one processor.
    ///
    /// # Errors
    /// A cost is out of range; then nothing is changed.
    pub fn set_costs(&mut self, node: NodeId, costs: Costs) -> Result<(), CostError> {
        self.network.set_costs(self.sides[usize::from(node == SERVER)], costs)
    }

    /// Keeps the work of a side of the path with costs, for [`World::take_work`].
    pub fn keep_work(&mut self, node: NodeId) {
        self.network.record_work(self.sides[usize::from(node == SERVER)]);
    }

    /// Work of a side of the path since this was last asked, in the order in which it ended.
    pub fn take_work(&mut self, node: NodeId) -> Vec<Work> {
        self.network.take_work(self.sides[usize::from(node == SERVER)])
    }

    /// Counters of a side of the path with costs.
    pub fn host_counters(&self, node: NodeId) -> HostCounters {
        self.network.host_counters(self.sides[usize::from(node == SERVER)])
    }

    /// Counters of a direction of the path.
    pub fn path_stats(&self, direction: Direction) -> uts_path::Stats {
        self.network.path(self.path).stats(direction)
    }

    /// Records a host: its packets as pcap, what its connections do as qlog. Neither changes what
    /// happens.
    ///
    /// # Errors
    /// A writer's. Later ones are told by [`World::finish_records`].
    pub fn record(&mut self, node: NodeId, pcap: Box<dyn Write>, qlog: Box<dyn Write>) -> io::Result<()> {
        self.network.capture(*address(node).ip(), pcap)?;
        let (name, vantage) = match node {
            SERVER => ("server".to_owned(), Vantage::Server),
            client => (format!("client {client}"), Vantage::Client),
        };
        self.network.app_mut(self.apps[node]).record(Qlog::new(
            qlog,
            &format!("{name} in virtual time"),
            &name,
            vantage,
        )?);
        Ok(())
    }

    /// Keeps what packets of a host do, for [`World::take_packets`]; see [`Host::keep_packets`].
    pub fn keep_packets(&mut self, node: NodeId) {
        self.network.app_mut(self.apps[node]).keep_packets();
    }

    /// Events of packets of a host since this was last asked, in order.
    pub fn take_packets(&mut self, node: NodeId) -> Vec<(ConnectionHandle, TraceRow)> {
        self.network.app_mut(self.apps[node]).take_packets()
    }

    /// Ends all records.
    ///
    /// # Errors
    /// The first error that a writer gave.
    pub fn finish_records(&mut self) -> io::Result<()> {
        for app in &self.apps {
            self.network.app_mut(*app).finish_record()?;
        }
        self.network.finish_captures()
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
        let (now, app) = (self.now(), self.apps[client]);
        let endpoint = self.network.app_mut(app).endpoint();
        self.identities.connect(endpoint, now, address(SERVER).into(), config)
    }

    /// Sends a datagram from anywhere to a host, past the path: what an attacker would do.
    pub fn inject(&mut self, from: NodeId, to: NodeId, mut datagram: Vec<u8>) {
        let now = self.now();
        self.endpoint(to).handle_datagram(now, address(from).into(), None, &mut datagram);
    }

    /// A host's address.
    pub fn address(&self, node: NodeId) -> SocketAddrV4 {
        self.network.address(self.apps[node])
    }

    /// Gives a host another address. Its endpoint is not told: see
    /// [`Endpoint::on_moved`](uts_engine::Endpoint::on_moved).
    ///
    /// # Errors
    /// [`AttachError`] if another has it.
    pub fn readdress(&mut self, node: NodeId, address: SocketAddrV4) -> Result<(), AttachError> {
        self.network.readdress(self.apps[node], self.sides[usize::from(node == SERVER)], address)
    }

    /// Lets time pass until something happens, or until `until`.
    pub fn next(&mut self, until: Time) -> Option<Happening> {
        loop {
            if let Some(happening) = self.poll_event() {
                return Some(happening);
            }
            if self.is_exhausted() {
                return None;
            }
            if !self.network.transmit() && !self.network.advance(until) {
                return None;
            }
        }
    }

    /// Lets time pass, whatever happens.
    pub fn run_until(&mut self, until: Time) {
        while self.next(until).is_some() {}
    }

    /// Lets `duration` pass, whatever happens.
    pub fn run_for(&mut self, duration: Duration) {
        self.run_until(self.now() + duration);
    }

    fn poll_event(&mut self) -> Option<Happening> {
        let now = self.now();
        for place in 0..self.network.touched().len() {
            let app = self.network.touched()[place];
            if let Some((connection, event)) = self.network.app_mut(app).poll_event(now) {
                // Applications were attached in the order of the hosts.
                return Some(Happening { node: app.index(), connection, event });
            }
        }
        None
    }
}

/// A host's address, which says its number.
fn address(node: NodeId) -> SocketAddrV4 {
    let [high, low] = (node as u16).to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(10, 1, high, low), 4433)
}
