//! A client and a server that are connected, for tests of what passes from one to the other.

use bytes::Bytes;
use core::time::Duration;
use uts_engine::{Connection, ConnectionConfig, ConnectionHandle, EndpointConfig, Event};
use uts_functions::Time;
use uts_sim::identity::Identities;
use uts_sim::{Happening, NodeId, World, WorldConfig};

pub const SERVER: NodeId = 0;
pub const CLIENT: NodeId = 1;

/// Settings, with these properties.
pub fn with(mut config: ConnectionConfig, properties: &[&str], more: &[&str]) -> ConnectionConfig {
    for property in properties.iter().chain(more) {
        config.requirements.assign(property).unwrap_or_else(|e| panic!("{property}: {e}"));
    }
    config
}

/// A message's number stands in front of it.
pub fn message(number: u32, len: usize) -> Bytes {
    let mut data = vec![number as u8; len.max(4)];
    data[..4].copy_from_slice(&number.to_be_bytes());
    data.into()
}

pub struct OneClient {
    pub world: World,
    handles: [Option<ConnectionHandle>; 2],
}

impl OneClient {
    /// Both are connected, and have had two seconds over this path to agree, or as many more as
    /// its losses cost.
    pub fn connected(path: &str, client: ConnectionConfig, server: ConnectionConfig, seed: u64) -> Self {
        let server = EndpointConfig { accept: server, ..EndpointConfig::default() };
        let world = WorldConfig { server, seed, ..WorldConfig::default() };
        let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
        world.limit_steps(20_000_000);
        let client = world.connect(CLIENT, client).expect("the connection begins");
        let mut both = OneClient { world, handles: [None, Some(client)] };
        both.set_path(path);
        for _ in 0..10 {
            let until = both.world.now() + Duration::from_secs(2);
            while let Some(happening) = both.next(until) {
                assert!(!matches!(happening.event, Event::Closed(_)), "{happening:?}");
            }
            if both.handles.iter().all(Option::is_some) {
                break;
            }
        }
        both
    }

    pub fn set_path(&mut self, path: &str) {
        self.world.set_path(uts_path::Target::Both, path).expect("a valid change");
    }

    pub fn at(&mut self, node: NodeId) -> &mut Connection {
        let handle = self.handles[node].expect("connected");
        self.world.connection(node, handle).expect("it is open")
    }

    /// Next event, up to this instant.
    pub fn next(&mut self, until: Time) -> Option<Happening> {
        let happening = self.world.next(until);
        assert!(!self.world.is_exhausted(), "too many steps");
        if let Some(Happening { node, connection, event: Event::Connected }) = &happening {
            self.handles[*node] = Some(*connection);
        }
        happening
    }
}
