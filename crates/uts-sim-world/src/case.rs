//! Case of a run: links, flows, and what is recorded of them.

use super::source::{SimSource, SourceHosts};
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use uts_end::transport as native;
use uts_end::transport::udp::UdpSettings;
use uts_end::transport::universal::UniversalSettings;
use uts_end::{Context, Role, TransportSpec};
use uts_engine::ConnectionConfig;
use uts_path::PathConfig;
use uts_sim::cost::Costs;
use uts_sim::topology::{Node, PathId, Topology};
use uts_traffic::transport::Capabilities;
use uts_traffic::workload::{Workload, can_carry};

/// One run in virtual time.
#[derive(Clone, Debug, PartialEq)]
pub struct SimCase {
    /// The links, which say between them which hosts and routers there are.
    pub links: Vec<SimLink>,
    /// Costs of the work of hosts, by their names; nothing for those that are not named.
    pub costs: BTreeMap<String, Costs>,
    /// Which end sends what to which.
    pub flows: Vec<SimFlow>,
    /// Background traffic on the links.
    pub sources: Vec<SimSource>,
    /// Time that each flow may take to connect, and as long again for its workload.
    pub timeout: Duration,
    /// Interval of the samples of transports and of the bytes that have arrived; above 0.
    pub sample_every: Duration,
    /// Seed of all random decisions.
    pub seed: u64,
    /// Records to write.
    pub record: SimRecord,
}

/// Two nodes and the path between them. A node is a host if flows begin or end there. It forwards
/// packets for other nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct SimLink {
    /// Its name; empty for one that is of no interest, of which nothing is recorded.
    pub name: String,
    /// Names of the nodes; forward is from the first to the second.
    pub ends: [String; 2],
    /// Settings of the path.
    pub path: PathConfig,
}

/// A transport that carries a workload between two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct SimFlow {
    /// Its name, other than that of any other flow.
    pub name: String,
    /// The transport: `uts` or `udp`, with the settings that it has in every world.
    pub transport: TransportSpec,
    /// Workload that it carries.
    pub workload: Workload,
    /// The host that connects.
    pub from: String,
    /// The host that is connected to.
    pub to: String,
    /// When it connects.
    pub start: Duration,
}

/// Records to write. None changes the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimRecord {
    /// Tell the recorder what each packet of a UTS connection did.
    pub packets: bool,
    /// Tell the recorder what each packet met in the queues of the links that have names.
    pub queues: bool,
    /// Write what each host that has flows sends and receives to `HOST.pcap` in this directory.
    pub pcap: Option<PathBuf>,
    /// Write what UTS connections do to `FLOW.client.sqlog` and `FLOW.server.sqlog` in this
    /// directory.
    pub qlog: Option<PathBuf>,
}

/// Why a case has no result.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// Something is wrong with it: what, and where.
    #[error("{0}")]
    Case(String),
    /// A file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The recorder has stopped it.
    #[error("interrupted")]
    Stopped,
}

impl SimLink {
    /// `client` and `server`, and a path between.
    pub fn point_to_point(name: impl Into<String>, path: PathConfig) -> Vec<Self> {
        Self::chain(vec![(name.into(), path)])
    }

    /// `client` and `server`, and these paths in a row between, with `router1` and so on between
    /// those.
    pub fn chain(paths: Vec<(String, PathConfig)>) -> Vec<Self> {
        let last = paths.len();
        let node = |n: usize| match n {
            0 => "client".to_owned(),
            n if n == last => "server".to_owned(),
            n => format!("router{n}"),
        };
        let link = |(n, (name, path))| SimLink { name, ends: [node(n), node(n + 1)], path };
        paths.into_iter().enumerate().map(link).collect()
    }

    /// `client1` and so on, and as many of `server1`, that share a path. What leads to it is
    /// perfect.
    pub fn dumbbell(name: impl Into<String>, path: PathConfig, pairs: u32) -> Vec<Self> {
        let [left, right] = ["left", "right"].map(String::from);
        let shared = SimLink { name: name.into(), ends: [left.clone(), right.clone()], path };
        let access = |ends| SimLink { name: String::new(), ends, path: PathConfig::default() };
        let pair = |n: u32| {
            [access([format!("client{n}"), left.clone()]), access([right.clone(), format!("server{n}")])]
        };
        core::iter::once(shared).chain((1..=pairs).flat_map(pair)).collect()
    }
}

/// The reason if a transport cannot carry a workload in virtual time: one line, without the
/// transport's name in front.
pub fn refuses(transport: &TransportSpec, workload: &Workload) -> Option<String> {
    Carrier::new(transport, workload).err()
}

/// A case that makes sense.
pub(super) struct Plan {
    pub topology: Topology,
    /// By link.
    pub links: Vec<PathId>,
    pub nodes: BTreeMap<String, Node>,
    /// By source.
    pub sources: Vec<SourceHosts>,
    /// By flow.
    pub carriers: Vec<Carrier>,
}

/// A flow's transport with its settings.
pub(super) struct Carrier {
    pub capabilities: Capabilities,
    pub kind: CarrierKind,
}

pub(super) enum CarrierKind {
    Uts(Box<ConnectionConfig>),
    Udp(UdpSettings),
}

impl Carrier {
    fn new(transport: &TransportSpec, workload: &Workload) -> Result<Self, String> {
        workload.validate()?;
        let kind = match transport.kind.as_str() {
            "uts" => {
                let settings: UniversalSettings = transport.read()?;
                CarrierKind::Uts(Box::new(settings.config(workload)?))
            }
            "udp" => CarrierKind::Udp(transport.read()?),
            other => return Err(format!("virtual time has uts and udp, not {other}")),
        };
        let context = Context { role: Role::Client, workload, peer: None };
        let capabilities = native::by_spec(transport, &context)?.capabilities();
        can_carry(workload, &capabilities)?;
        Ok(Carrier { capabilities, kind })
    }
}

impl SimCase {
    pub(super) fn plan(&self) -> Result<Plan, SimError> {
        let wrong = |what: String| Err(SimError::Case(what));
        if self.sample_every.is_zero() {
            return wrong("sample_every: is 0".into());
        }
        let (mut topology, mut nodes) = (Topology::new(), BTreeMap::new());
        let mut links = Vec::new();
        for link in &self.links {
            let [a, b] = link.ends.clone();
            if a == b {
                return wrong(format!("link {}: both ends are {a}", link.name));
            }
            let [a, b] = [a, b].map(|name| *nodes.entry(name).or_insert_with(|| topology.node()));
            links.push(topology.join(a, b, link.path.clone()));
        }
        let mut carriers = Vec::new();
        for (n, flow) in self.flows.iter().enumerate() {
            let name = &flow.name;
            if self.flows.iter().take(n).any(|other| other.name == *name) {
                return wrong(format!("flow {name}: another has this name"));
            }
            let host = |host: &String| match nodes.get(host) {
                Some(node) => Ok(*node),
                None => {
                    let known: Vec<&str> = nodes.keys().map(String::as_str).collect();
                    let known = known.join(", ");
                    Err(SimError::Case(format!("flow {name}: there is no host {host}; there are {known}")))
                }
            };
            let (from, to) = (host(&flow.from)?, host(&flow.to)?);
            if !topology.is_joined(from, to) {
                return wrong(format!("flow {name}: no way leads from {} to {}", flow.from, flow.to));
            }
            let carrier = Carrier::new(&flow.transport, &flow.workload);
            carriers.push(carrier.map_err(|why| SimError::Case(format!("flow {name}: {why}")))?);
        }
        let sources = self.sources.iter().map(|source| place(source, &mut topology, &nodes));
        let sources = sources.collect::<Result<_, _>>()?;
        Ok(Plan { topology, links, nodes, sources, carriers })
    }
}

/// Gives a source and its sink hosts of their own, behind the nodes that it names. They come last,
/// so that the seeds of other paths are what they are without.
fn place(
    source: &SimSource,
    topology: &mut Topology,
    nodes: &BTreeMap<String, Node>,
) -> Result<SourceHosts, SimError> {
    let wrong = |what: String| SimError::Case(format!("source {}: {what}", source.name));
    source.spec.validate().map_err(wrong)?;
    let node = |name: &String| {
        let known = || nodes.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        nodes
            .get(name)
            .copied()
            .ok_or_else(|| wrong(format!("there is no node {name}; there are {}", known())))
    };
    let (from, to) = (node(&source.from)?, node(&source.to)?);
    if from == to || !topology.is_joined(from, to) {
        return Err(wrong(format!("no way leads from {} to {}", source.from, source.to)));
    }
    let hosts = [topology.node(), topology.node()];
    topology.join(hosts[0], from, PathConfig::default());
    topology.join(to, hosts[1], PathConfig::default());
    Ok(hosts)
}
