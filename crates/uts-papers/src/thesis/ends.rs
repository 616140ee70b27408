//! A client and a server of the engine at the two ends of a path, with a flow between them.

use anyhow::{Context, Result, anyhow};
use core::time::Duration;
use uts_engine::{Connection, ConnectionConfig, ConnectionHandle, Event, FlowId, FlowOptions};
use uts_functions::Time;
use uts_sim::identity::Identities;
use uts_sim::{NodeId, World, WorldConfig};

pub const SERVER: NodeId = 0;
pub const CLIENT: NodeId = 1;

/// Time in which the ends greet each other, and agree on what the client asks for.
const GREETING: Duration = Duration::from_secs(5);

/// The ends, and the flow that the client has opened.
pub struct Ends {
    pub world: World,
    handles: [Option<ConnectionHandle>; 2],
    pub flow: FlowId,
}

impl Ends {
    /// Connected over a path both ways. What leaves the client is kept if it `is_traced`.
    pub fn connected(
        config: WorldConfig,
        client: ConnectionConfig,
        path: &str,
        is_traced: bool,
    ) -> Result<Self> {
        let mut world = World::new(config, Identities::new()?)?;
        world.set_path(uts_path::Target::Both, path).map_err(|error| anyhow!("{path}: {error}"))?;
        if is_traced {
            world.keep_packets(CLIENT);
        }
        let client = world.connect(CLIENT, client)?;
        let mut ends = Ends { world, handles: [None, Some(client)], flow: FlowId(0) };
        let until = ends.world.now() + GREETING;
        while ends.next(until)?.is_some() {}
        ends.flow = ends.connection(CLIENT)?.open_flow(FlowOptions::default())?;
        Ok(ends)
    }

    /// The connection at an end.
    pub fn connection(&mut self, node: NodeId) -> Result<&mut Connection> {
        let handle = self.handles[node].context("there is no connection yet")?;
        self.world.connection(node, handle).context("the connection is gone")
    }

    /// The next event at an end, until an instant. `None` = there is none before it.
    pub fn next(&mut self, until: Time) -> Result<Option<(NodeId, Event)>> {
        let Some(happening) = self.world.next(until) else { return Ok(None) };
        match happening.event {
            Event::Connected => self.handles[happening.node] = Some(happening.connection),
            Event::Closed(reason) => return Err(anyhow!("host {}: {reason}", happening.node)),
            _ => {}
        }
        Ok(Some((happening.node, happening.event)))
    }
}
