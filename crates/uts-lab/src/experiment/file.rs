//! The experiment file: TOML that names hosts, paths, transports, workloads, sweeps, and what to record and to show.
//!
//! [`Experiment::parse`] tells of everything that is wrong at once, each with its line. What a file means run by run is
//! in [`super::plan`].

use super::problem::{Problems, Sink, nearest, unknown};
use super::reader::{Node, Section, suggest, to_json};
use super::sweep::{self, Sweep};
use super::template::Template;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use toml::de::DeTable;
use uts_path::{LinkConfig, Schedule, SpecError};
use uts_traffic::human;
use uts_traffic::measure::Sample;

/// Most pairs of hosts of a dumbbell.
pub const PAIRS_MAX: u64 = 64;
/// Most repetitions of a case.
pub const REPETITIONS_MAX: u64 = 10_000;
/// Largest seed: TOML's integers have 63 bits.
pub const SEED_MAX: u64 = i64::MAX as u64;
/// How long a run may take unless the file says otherwise, in the time of its world.
pub const TIMEOUT: Duration = Duration::from_secs(300);
/// How often is sampled unless the file says otherwise.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// Hosts send packets one by one where a link is slower than this, in bits per second.
pub const OFFLOAD_FROM_BPS: u64 = 200_000_000;
/// The largest IP packet of a host unless the file says otherwise, in bytes: Ethernet's.
pub const MTU: u32 = 1500;

const KEYS: [&str; 17] = [
    "hosts",
    "title",
    "question",
    "world",
    "repetitions",
    "seed",
    "timeout",
    "sample_every",
    "alone",
    "topology",
    "path",
    "workload",
    "transport",
    "mixture",
    "sweep",
    "record",
    "plot",
];

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
        /// How many pairs of hosts, 1 to [`PAIRS_MAX`].
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

    /// As the file names its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Topology::PointToPoint => "point-to-point",
            Topology::Dumbbell { .. } => "dumbbell",
            Topology::Chain { .. } => "chain",
        }
    }
}

/// A path: settings in the text form of [`LinkConfig`], and changes to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSpec {
    /// Its name in the file.
    pub name: String,
    /// From the client's side to the server's.
    pub forward: String,
    /// Back.
    pub backward: String,
    /// Changes, in the text form of [`Schedule`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schedule: String,
    /// Where the files of traces are: beside the experiment file.
    #[serde(skip)]
    pub base: PathBuf,
}

impl PathSpec {
    /// The settings of both directions, which differ from those of `perfect`, and the schedule.
    ///
    /// # Errors
    /// A setting is not one, or out of range; a trace cannot be read.
    pub fn config(&self, perfect: &LinkConfig) -> Result<uts_path::PathConfig, SpecError> {
        let link = |text: &str| match text.trim() {
            "" => Ok(perfect.clone()),
            text => perfect.clone().with(&text.parse()?),
        };
        let mut config = uts_path::PathConfig {
            forward: link(&self.forward)?,
            backward: link(&self.backward)?,
            schedule: self.schedule.parse()?,
        };
        config.resolve(|name: &str| crate::traces::read(self.base.join(name)))?;
        Ok(config)
    }
}

/// What the hosts are like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hosts {
    /// Whether hosts hand over super-packets (TSO, GSO), which reach the path as bursts. Unless said, they do if no link
    /// has a rate below [`OFFLOAD_FROM_BPS`]. For the world `router`.
    pub offload: Option<bool>,
    /// Rate of each host's own link, before the path; without, packets reach the path as soon as they are sent.
    pub access_bps: Option<u64>,
    /// The largest IP packet that a host sends or takes, in bytes. For the worlds `router` and `sim`.
    pub mtu: u32,
    /// Settings of the hosts' kernels, by their names. For the world `router`.
    pub sysctl: BTreeMap<String, String>,
}

impl Default for Hosts {
    fn default() -> Self {
        Hosts { offload: None, access_bps: None, mtu: MTU, sysctl: BTreeMap::new() }
    }
}

/// What to record of each run, beyond its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Each packet's position in the stream.
    pub sequence: bool,
    /// Window, bytes in flight and round-trip time.
    pub window: bool,
    /// What has arrived so far.
    pub goodput: bool,
    /// Each message, request or keystroke.
    pub latency: bool,
    /// The queues of the paths.
    pub queue: bool,
    /// Packets, on both sides of the path.
    pub pcap: bool,
    /// What UTS does, as qlog.
    #[serde(default, skip_serializing_if = "is_not")]
    pub qlog: bool,
    /// The state of kernel TCP at each segment that it receives, where that is permitted. For the world `router`.
    #[serde(default, skip_serializing_if = "is_not")]
    pub tcp_probe: bool,
}

/// What is not recorded is not written either: a case keeps its name when there is more that could be.
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
        }
    }
}

impl Record {
    /// Whether a sample is recorded; exchanges always are.
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
    /// What it is called.
    pub title: String,
    /// What it is to answer.
    pub question: Option<String>,
    /// Where its runs happen: each case in each of these.
    pub worlds: Vec<WorldKind>,
    /// How often each case is run.
    pub repetitions: u32,
    /// Seed of the first repetition; the next has the next.
    pub seed: u64,
    /// How long a run may take, in the time of its world.
    pub timeout: Duration,
    /// How often windows and what has arrived are sampled.
    pub sample_every: Duration,
    /// Whether each transport runs alone, too, where there are mixtures.
    pub alone: bool,
    /// Hosts and paths.
    pub topology: Topology,
    /// Paths in the order of the file.
    pub paths: Vec<PathSpec>,
    /// Transports in the order of the file.
    pub transports: Vec<Template>,
    /// Workloads in the order of the file.
    pub workloads: Vec<Template>,
    /// Mixtures in the order of the file.
    pub mixtures: Vec<Mixture>,
    /// What is varied.
    pub sweeps: Vec<Sweep>,
    /// The hosts.
    pub hosts: Hosts,
    /// What is recorded.
    pub record: Record,
    /// What the report shows.
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
        let experiment = match DeTable::parse(text) {
            Ok(table) => read(text, &table, file.parent().unwrap_or(Path::new("")), &sink),
            Err(error) => {
                let message = error.message().lines().collect::<Vec<_>>().join("; ");
                sink.add(error.span().unwrap_or(0..0), "", message);
                None
            }
        };
        match experiment {
            Some(experiment) if sink.is_empty() => Ok(experiment),
            _ => Err(Problems::new(file, text, sink.into_list())),
        }
    }
}

fn read(text: &str, table: &toml::Spanned<DeTable<'_>>, base: &Path, sink: &Sink) -> Option<Experiment> {
    let file = Section::new("", 0..0, table.get_ref(), sink);
    file.only(&KEYS);
    file.require("title", "a line that says what this experiment is");
    file.require("transport", "at least one table [transport.NAME]");
    file.require("workload", "at least one table [workload.NAME]");
    file.require("path", "at least one table [path.NAME]");
    let paths = read_paths(&file, base);
    let path_names: Vec<&str> = paths.iter().map(|path| path.name.as_str()).collect();
    let topology = read_topology(&file, &path_names);
    let workloads = read_templates(&file, "workload");
    let transports = read_templates(&file, "transport");
    for workload in &workloads {
        workload.check_workload(sink);
    }
    for transport in &transports {
        transport.check_transport(sink);
    }
    let mixtures = read_mixtures(&file, &topology, &transports, &workloads);
    let sweeps = sweep::read(&file, &paths, &transports, &workloads);
    let title = file.string("title", "a text").map(|(title, _)| title.to_owned());
    let experiment = Experiment {
        text: text.to_owned(),
        question: file.string("question", "a text").map(|(question, _)| question.to_owned()),
        worlds: read_worlds(&file),
        repetitions: file.whole("repetitions", 1..=REPETITIONS_MAX).map_or(1, |n| n as u32),
        seed: file.whole("seed", 0..=SEED_MAX).unwrap_or(1),
        timeout: positive(&file, "timeout").unwrap_or(TIMEOUT),
        sample_every: positive(&file, "sample_every").unwrap_or(SAMPLE_EVERY),
        alone: file.boolean("alone").unwrap_or(mixtures.is_empty()),
        hosts: read_hosts(&file),
        record: read_record(&file),
        plots: read_plots(&file, &sweeps),
        title: title?,
        topology,
        paths,
        transports,
        workloads,
        mixtures,
        sweeps,
    };
    Some(experiment)
}

fn positive(section: &Section<'_, '_>, key: &str) -> Option<Duration> {
    let duration = section.duration(key)?;
    if duration.is_zero() {
        section.wrong(section.span_of(key), key, "must be more than 0");
        return None;
    }
    Some(duration)
}

fn read_worlds(file: &Section<'_, '_>) -> Vec<WorldKind> {
    const EXPECTED: &str = "\"sim\", \"relay\" or \"router\", or several as [\"sim\", \"router\"]";
    let one = |text: &str, span: Range<usize>| match text.parse() {
        Ok(world) => Some(world),
        Err(message) => {
            let message: String = message;
            file.wrong(span, "world", message);
            None
        }
    };
    let Some(node) = file.get("world") else { return vec![WorldKind::Sim] };
    let named = if node.get_ref().is_array() {
        file.strings("world", EXPECTED).unwrap_or_default()
    } else {
        file.string("world", EXPECTED).into_iter().collect()
    };
    if node.get_ref().as_array().is_some_and(|array| array.is_empty()) {
        file.wrong(node.span(), "world", format!("expected {EXPECTED}"));
    }
    let mut worlds: Vec<WorldKind> = named.into_iter().filter_map(|(text, span)| one(text, span)).collect();
    worlds.sort_unstable();
    worlds.dedup();
    worlds
}

fn read_paths(file: &Section<'_, '_>, base: &Path) -> Vec<PathSpec> {
    const SETTINGS: &str = "settings, as \"rate=5mbit delay=10ms buffer=20p\"";
    let mut paths = Vec::new();
    for (name, section) in file.sections("path") {
        section.only(&["forward", "backward", "schedule"]);
        section.require("forward", SETTINGS);
        let link = |key: &str| {
            section.parsed(key, SETTINGS, |text| link_problem(text).map(|()| text.trim().to_owned()))
        };
        let (forward, backward) = (link("forward"), link("backward"));
        let schedule = section.parsed("schedule", "changes, as \"at=10s both loss=0.01\"", |text| {
            text.parse::<Schedule>().map(|_| text.trim().to_owned())
        });
        let is_whole = forward.is_some();
        let path = PathSpec {
            name,
            backward: backward.or(forward.clone()).unwrap_or_default(),
            forward: forward.unwrap_or_default(),
            schedule: schedule.unwrap_or_default(),
            base: base.to_owned(),
        };
        if is_whole && let Err(e) = path.config(&LinkConfig::default()) {
            section.wrong(section.span.clone(), "", e.to_string());
        }
        paths.push(path);
    }
    paths
}

/// What is wrong with settings, and which one was meant where the name is unknown.
pub(super) fn link_problem(text: &str) -> Result<(), String> {
    let error: SpecError = match text.parse::<LinkConfig>() {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    let message = error.to_string();
    let Some((_, names)) = message.split_once("unknown setting; there are ") else { return Err(message) };
    let wrong = error.at.split('=').next().unwrap_or_default();
    match nearest(wrong, names.split([',', ' ']).filter(|name| !name.is_empty() && *name != "or")) {
        Some(name) => Err(format!("{}: unknown setting; did you mean `{name}`?", error.at)),
        None => Err(message),
    }
}

fn read_topology(file: &Section<'_, '_>, paths: &[&str]) -> Topology {
    let Some(section) = file.section("topology") else { return Topology::default() };
    section.require("kind", "\"point-to-point\", \"dumbbell\" or \"chain\"");
    let Some((kind, span)) = section.string("kind", "the kind of topology") else {
        return Topology::default();
    };
    match kind {
        "point-to-point" => {
            section.only(&["kind"]);
            Topology::PointToPoint
        }
        "dumbbell" => {
            section.only(&["kind", "pairs"]);
            section.require("pairs", "the number of pairs of hosts");
            Topology::Dumbbell { pairs: section.whole("pairs", 1..=PAIRS_MAX).unwrap_or(1) as u32 }
        }
        "chain" => {
            section.only(&["kind", "paths"]);
            section.require("paths", "names of paths, from the client to the server");
            let named = section.strings("paths", "names of paths").unwrap_or_default();
            if named.is_empty() && section.get("paths").is_some() {
                section.wrong(section.span_of("paths"), "paths", "expected at least one path");
            }
            for (name, span) in &named {
                if !paths.contains(name) {
                    section.wrong(span.clone(), "paths", unknown("path", name, paths.iter().copied()));
                }
            }
            Topology::Chain { paths: named.into_iter().map(|(name, _)| name.to_owned()).collect() }
        }
        other => {
            let kinds = ["point-to-point", "dumbbell", "chain"];
            section.wrong(span, "kind", unknown("topology", other, kinds));
            Topology::default()
        }
    }
}

fn read_templates(file: &Section<'_, '_>, kind: &'static str) -> Vec<Template> {
    let sections = file.sections(kind);
    let mut templates = Vec::new();
    for (name, section) in sections {
        section.require("kind", "the kind, as in the documentation");
        if section.string("kind", "the name of a kind").is_none() {
            continue;
        }
        let spans = section.entries().map(|(key, span, node)| (key.to_owned(), span.start..node.span().end));
        let settings =
            section.entries().map(|(key, _, node): (_, _, &Node<'_>)| (key.to_owned(), to_json(node)));
        templates.push(Template {
            group: kind,
            name,
            settings: settings.collect(),
            span: section.span.clone(),
            spans: spans.collect(),
        });
    }
    templates
}

fn read_mixtures(
    file: &Section<'_, '_>,
    topology: &Topology,
    transports: &[Template],
    workloads: &[Template],
) -> Vec<Mixture> {
    let hosts = topology.hosts();
    let (clients, servers) = hosts.split_at(hosts.len() / 2);
    let names = |templates: &[Template]| templates.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    let (transports, workloads) = (names(transports), names(workloads));
    let mut mixtures = Vec::new();
    let Some(section) = file.section("mixture") else { return mixtures };
    for (name, ..) in section.entries() {
        let mut flows = Vec::new();
        for (i, flow) in section.list(name).into_iter().enumerate() {
            flow.only(&["transport", "workload", "from", "to", "start"]);
            flow.require("transport", "the name of a transport");
            flow.require("workload", "the name of a workload");
            let named = |key: &str, what: &str, names: &[String]| {
                let (text, span) = flow.string(key, &format!("the name of a {what}"))?;
                if names.iter().any(|name| name == text) {
                    return Some(text.to_owned());
                }
                flow.wrong(span, key, unknown(what, text, names.iter().map(String::as_str)));
                None
            };
            let (Some(transport), Some(workload)) =
                (named("transport", "transport", &transports), named("workload", "workload", &workloads))
            else {
                continue;
            };
            let from = named("from", "host", &hosts).unwrap_or_else(|| clients[i % clients.len()].clone());
            let to = named("to", "host", &hosts).unwrap_or_else(|| servers[i % servers.len()].clone());
            if clients.contains(&from) == clients.contains(&to) {
                let message = format!("`{from}` and `{to}` are on the same side of the path");
                flow.wrong(flow.span_of("to"), "to", message);
            }
            let start = flow.duration("start").unwrap_or_default();
            flows.push(MixtureFlow { transport, workload, from, to, start });
        }
        mixtures.push(Mixture { name: name.to_owned(), flows });
    }
    mixtures
}

fn read_hosts(file: &Section<'_, '_>) -> Hosts {
    let mut hosts = Hosts::default();
    let Some(section) = file.section("hosts") else { return hosts };
    section.only(&["offload", "access", "mtu", "sysctl"]);
    hosts.offload = section.boolean("offload");
    hosts.access_bps = section.parsed("access", "a rate, as \"1gbit\"", human::parse_rate);
    hosts.mtu = section.whole("mtu", 576..=65_535).map_or(MTU, |mtu| mtu as u32);
    if let Some(sysctl) = section.section("sysctl") {
        for (key, ..) in sysctl.entries() {
            let value = sysctl.string(key, "a text, as \"4096 131072 67108864\"");
            hosts.sysctl.extend(value.map(|(value, _)| (key.to_owned(), value.to_owned())));
        }
    }
    hosts
}

fn read_record(file: &Section<'_, '_>) -> Record {
    let mut record = Record::default();
    let Some(section) = file.section("record") else { return record };
    section.only(&["sequence", "window", "goodput", "latency", "queue", "pcap", "qlog", "tcp_probe"]);
    for (key, value) in [
        ("sequence", &mut record.sequence),
        ("window", &mut record.window),
        ("goodput", &mut record.goodput),
        ("latency", &mut record.latency),
        ("queue", &mut record.queue),
        ("pcap", &mut record.pcap),
        ("qlog", &mut record.qlog),
        ("tcp_probe", &mut record.tcp_probe),
    ] {
        *value = section.boolean(key).unwrap_or(*value);
    }
    record
}

/// What a plot may say is the report's matter; the names that it uses are those of this file.
fn read_plots(file: &Section<'_, '_>, sweeps: &[Sweep]) -> Vec<Map<String, Value>> {
    let columns: Vec<&str> = sweeps
        .iter()
        .map(|s| s.name.as_str())
        .chain(["transport", "workload", "path", "mixture", "world"])
        .collect();
    let mut plots = Vec::new();
    for plot in file.list("plot") {
        plot.require("kind", "the kind of picture, as \"sweep\" or \"matrix\"");
        let settings: Map<String, Value> =
            plot.entries().map(|(key, _, node)| (key.to_owned(), to_json(node))).collect();
        if let Err(why) = crate::report::experiment::check_plot(&settings)
            && settings.contains_key("kind")
        {
            // The first name that is quoted is the one that is wrong, if it is a key at all.
            let key = settings.keys().find(|key| why.split('`').nth(1) == Some(key.as_str()));
            let span = key.map_or(plot.span.clone(), |key| plot.span_of(key));
            plot.wrong(span, key.map_or("", String::as_str), suggest(&why));
        }
        if let Some((column, span)) = plot.get("x").and_then(|_| plot.string("x", "the name of a sweep"))
            && !columns.contains(&column)
        {
            plot.wrong(span, "x", unknown("sweep", column, columns.iter().copied()));
        }
        plots.push(settings);
    }
    plots
}
