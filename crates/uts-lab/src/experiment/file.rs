//! The experiment file: TOML that names hosts, paths, transports, workloads, sweeps, and what to
//! record and to show.
//!
//! [`Experiment::parse`] reports everything that is wrong at once, each with its line (`read`).
//! [`super::plan`] says which runs a file means.

mod read;

use super::path::PathSpec;
use super::problem::{Problems, Sink};
use super::sweep::Sweep;
use super::template::Template;
use crate::names::unknown;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;
use toml::de::DeTable;
use uts_traffic::measure::Sample;

/// Most pairs of hosts of a dumbbell.
pub const PAIRS_MAX: u64 = 64;
/// Most repetitions of a case.
pub const REPETITIONS_MAX: u64 = 10_000;
/// Largest seed: TOML's integers have 63 bits.
pub const SEED_MAX: u64 = i64::MAX as u64;
/// Time that a run may take unless the file says otherwise, in the time of its world.
pub const TIMEOUT: Duration = Duration::from_secs(300);
/// Interval of samples unless the file says otherwise.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// Hosts send packets one by one where a link is slower than this, in bits per second.
pub const OFFLOAD_FROM_BPS: u64 = 200_000_000;
/// The largest IP packet of a host unless the file says otherwise, in bytes: Ethernet's.
pub const MTU: u32 = 1500;

/// Name that stands for every host that has no costs of its own.
pub const ALL_HOSTS: &str = "all";

/// Where runs happen.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum WorldKind {
    /// In virtual time: UTS only, the same figures on any machine
    Sim,
    /// Over a UDP relay on loopback: transports over UDP, one flow
    Relay,
    /// Between hosts in network namespaces, behind RouterPC
    Router,
}

impl WorldKind {
    /// All, in the order of the documentation.
    pub const ALL: [WorldKind; 3] = [WorldKind::Sim, WorldKind::Relay, WorldKind::Router];

    /// As files and columns name it.
    pub fn name(self) -> &'static str {
        match self {
            WorldKind::Sim => "sim",
            WorldKind::Relay => "relay",
            WorldKind::Router => "router",
        }
    }
}

impl fmt::Display for WorldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WorldKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = WorldKind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| unknown("world", text, WorldKind::ALL.map(WorldKind::name)))
    }
}

/// Which hosts there are, and how paths join them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Topology {
    /// `client` and `server`, a path between; each path of the file is a case of its own.
    #[default]
    PointToPoint,
    /// `client1` … and `server1` …, all over one path; each path of the file is a case of its own.
    Dumbbell {
        /// Number of pairs of hosts, 1 to [`PAIRS_MAX`].
        pairs: u32,
    },
    /// `client` and `server`, several paths in a row between.
    Chain {
        /// Names of the paths, from the client to the server.
        paths: Vec<String>,
    },
}

impl Topology {
    /// Names of the hosts: those of the client's side, then as many of the server's.
    pub fn hosts(&self) -> Vec<String> {
        match self {
            Topology::Dumbbell { pairs } => {
                let side = |side: &'static str| (1..=*pairs).map(move |i| format!("{side}{i}"));
                side("client").chain(side("server")).collect()
            }
            Topology::PointToPoint | Topology::Chain { .. } => vec!["client".into(), "server".into()],
        }
    }

    /// Names of the nodes at which background traffic may enter and leave, from the client's side
    /// to the server's.
    pub fn nodes(&self) -> Vec<String> {
        match self {
            Topology::PointToPoint => vec!["client".into(), "server".into()],
            Topology::Dumbbell { .. } => vec!["left".into(), "right".into()],
            Topology::Chain { paths } => {
                let routers = (1..paths.len().max(1)).map(|n| format!("router{n}"));
                core::iter::once("client".into()).chain(routers).chain(["server".into()]).collect()
            }
        }
    }

    /// As the file names its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Topology::PointToPoint => "point-to-point",
            Topology::Dumbbell { .. } => "dumbbell",
            Topology::Chain { .. } => "chain",
        }
    }
}

/// Settings of the hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hosts {
    /// Hosts hand over super-packets (TSO, GSO), which reach the path as bursts. With `None` they
    /// do if no link has a rate below [`OFFLOAD_FROM_BPS`]. For the world `router`.
    pub offload: Option<bool>,
    /// Rate of each host's own link, before the path. Without it, packets reach the path as soon as
    /// they are sent.
    pub access_bps: Option<u64>,
    /// The largest IP packet that a host sends or takes, in bytes. For the worlds `router` and
    /// `sim`.
    pub mtu: u32,
    /// Settings of the hosts' kernels, by their names. For the world `router`.
    pub sysctl: BTreeMap<String, String>,
    /// Costs of the work of hosts, by their names or for [`ALL_HOSTS`], in the text form of
    /// [`uts_sim::cost::Costs`]. For the world `sim`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub costs: BTreeMap<String, String>,
}

impl Default for Hosts {
    fn default() -> Self {
        Hosts { offload: None, access_bps: None, mtu: MTU, sysctl: BTreeMap::new(), costs: BTreeMap::new() }
    }
}

/// Records to write of each run, beyond its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Each packet's position in the stream.
    pub sequence: bool,
    /// Window, bytes in flight and round-trip time.
    pub window: bool,
    /// Bytes that have arrived so far.
    pub goodput: bool,
    /// Each message, request or keystroke.
    pub latency: bool,
    /// The queues of the paths.
    pub queue: bool,
    /// Packets, on both sides of the path.
    pub pcap: bool,
    /// Events of UTS, as qlog.
    #[serde(default, skip_serializing_if = "is_not")]
    pub qlog: bool,
    /// The state of kernel TCP at each segment that it receives, if the system permits it. For the
    /// world `router`.
    #[serde(default, skip_serializing_if = "is_not")]
    pub tcp_probe: bool,
    /// All of it is compressed. A case has the same name, and is the same, whether or not.
    #[serde(skip)]
    pub compress: bool,
}

/// Records that are not wanted are not written here. A case keeps its name when further kinds of
/// records are added.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_not(recorded: &bool) -> bool {
    !*recorded
}

impl Default for Record {
    fn default() -> Self {
        Record {
            sequence: false,
            window: true,
            goodput: true,
            latency: true,
            queue: true,
            pcap: false,
            qlog: false,
            tcp_probe: false,
            compress: false,
        }
    }
}

impl Record {
    /// True if a sample is recorded; exchanges always are.
    pub fn takes(&self, sample: &Sample) -> bool {
        match sample {
            Sample::Delivered { .. } => self.goodput,
            Sample::Latency { .. } => self.latency,
            Sample::Status { .. } => self.window,
            Sample::Packet { .. } => self.sequence,
            Sample::Exchange { .. } => true,
        }
    }
}

/// A flow of a mixture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MixtureFlow {
    /// Name of the transport.
    pub transport: String,
    /// Name of the workload.
    pub workload: String,
    /// The host that connects, and sends, asks or types.
    pub from: String,
    /// The host that it connects to.
    pub to: String,
    /// When, after the first flow may begin.
    pub start: Duration,
}

/// Flows that share the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixture {
    /// Its name in the file.
    pub name: String,
    /// The flows.
    pub flows: Vec<MixtureFlow>,
}

/// An experiment file that makes sense.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The file's text.
    pub text: String,
    /// Title of the experiment.
    pub title: String,
    /// Question that it is to answer.
    pub question: Option<String>,
    /// Where its runs happen: each case in each of these.
    pub worlds: Vec<WorldKind>,
    /// Number of runs of each case.
    pub repetitions: u32,
    /// Seed of the first repetition; the next has the next.
    pub seed: u64,
    /// Time that a run may take, in the time of its world.
    pub timeout: Duration,
    /// Interval of the samples of windows and of the bytes that have arrived.
    pub sample_every: Duration,
    /// Each transport runs alone, too, where there are mixtures.
    pub alone: bool,
    /// Hosts and paths.
    pub topology: Topology,
    /// Paths in the order of the file.
    pub paths: Vec<PathSpec>,
    /// Transports in the order of the file.
    pub transports: Vec<Template>,
    /// Workloads in the order of the file.
    pub workloads: Vec<Template>,
    /// Background traffic in the order of the file, the same for all runs.
    pub sources: Vec<Template>,
    /// Mixtures in the order of the file.
    pub mixtures: Vec<Mixture>,
    /// Settings that are varied.
    pub sweeps: Vec<Sweep>,
    /// The hosts.
    pub hosts: Hosts,
    /// Records of each run.
    pub record: Record,
    /// Plots of the report.
    pub plots: Vec<Map<String, Value>>,
}

impl Experiment {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read; or [`Problems`].
    pub fn load(file: &Path) -> anyhow::Result<Self> {
        use anyhow::Context;
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Self::parse(file, &text)?)
    }

    /// Reads a file's text; `file` is how messages name it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Problems> {
        let sink = Sink::default();
        // Each fault of the text itself is told; what is read of such a text would be a guess.
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            sink.add(error.span().unwrap_or(0..0), "", message);
        }
        let is_toml = errors.is_empty();
        let experiment = is_toml
            .then(|| read::read(text, &table, file.parent().unwrap_or(Path::new("")), &sink))
            .flatten();
        match experiment {
            Some(experiment) if sink.is_empty() => Ok(experiment),
            _ => Err(Problems::new(file, text, sink.into_list())),
        }
    }
}
