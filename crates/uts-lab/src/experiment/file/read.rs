//! From the tables of the file to what they mean, with everything that is wrong noted on the way.

use super::super::path::{PathSpec, link_problems, schedule_problems};
use super::super::problem::Sink;
use super::super::reader::{Node, Section, suggest, to_json};
use super::super::sweep::{self, Sweep};
use super::super::template::{SOURCE, TRANSPORT, Template, WORKLOAD};
use super::{
    ALL_HOSTS, Experiment, Hosts, MTU, Mixture, MixtureFlow, PAIRS_MAX, REPETITIONS_MAX, Record,
    SAMPLE_EVERY, SEED_MAX, TIMEOUT, Topology, WorldKind,
};
use crate::names::unknown;
use serde_json::{Map, Value};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;
use toml::de::DeTable;
use uts_path::LinkConfig;
use uts_sim::cost::Costs;
use uts_units::text;

const KEYS: [&str; 18] = [
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
    "source",
    "mixture",
    "sweep",
    "record",
    "plot",
];

pub(super) fn read(
    text: &str,
    table: &toml::Spanned<DeTable<'_>>,
    base: &Path,
    sink: &Sink,
) -> Option<Experiment> {
    let file = Section::new("", 0..0, table.get_ref(), sink);
    file.only(&KEYS);
    file.require("title", "a line that says what this experiment is");
    file.require("transport", "at least one table [transport.NAME]");
    file.require("workload", "at least one table [workload.NAME]");
    file.require("path", "at least one table [path.NAME]");
    let paths = read_paths(&file, text, base);
    let path_names: Vec<&str> = paths.iter().map(|path| path.name.as_str()).collect();
    let topology = read_topology(&file, &path_names);
    let workloads = read_templates(&file, WORKLOAD);
    let transports = read_templates(&file, TRANSPORT);
    for workload in &workloads {
        workload.check_workload(sink);
    }
    for transport in &transports {
        transport.check_transport(sink);
    }
    let sources = read_templates(&file, SOURCE);
    for source in &sources {
        source.check_source(&topology, sink);
    }
    let mixtures = read_mixtures(&file, &topology, &transports, &workloads);
    let sweeps = {
        let templates: Vec<&Template> = transports.iter().chain(&workloads).chain(&sources).collect();
        sweep::read(&file, &paths, &templates)
    };
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
        hosts: read_hosts(&file, &topology),
        record: read_record(&file),
        plots: read_plots(&file, &sweeps),
        title: title?,
        topology,
        paths,
        transports,
        workloads,
        sources,
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

fn read_paths(file: &Section<'_, '_>, text: &str, base: &Path) -> Vec<PathSpec> {
    const SETTINGS: &str = "settings, as \"rate=5mbit delay=10ms buffer=20p\"";
    let mut paths = Vec::new();
    for (name, section) in file.sections("path") {
        section.only(&["forward", "backward", "schedule"]);
        section.require("forward", SETTINGS);
        let link = |key: &str| {
            let (settings, span) = section.string(key, SETTINGS)?;
            let problems = link_problems(settings, base);
            for why in &problems {
                section.wrong(span.clone(), key, why.as_str());
            }
            problems.is_empty().then(|| settings.trim().to_owned())
        };
        let (forward, backward) = (link("forward"), link("backward"));
        let schedule = read_schedule(&section, text, base);
        let is_whole = forward.is_some()
            && (backward.is_some() || section.get("backward").is_none())
            && (schedule.is_some() || section.get("schedule").is_none());
        let path = PathSpec {
            name,
            backward: backward.or(forward.clone()).unwrap_or_default(),
            forward: forward.unwrap_or_default(),
            schedule: schedule.unwrap_or_default(),
            base: base.to_owned(),
        };
        // What is right by itself may contradict the rest.
        if is_whole && let Err(e) = path.config(&LinkConfig::default()) {
            section.wrong(section.span.clone(), "", e.to_string());
        }
        paths.push(path);
    }
    paths
}

/// Where a piece of a value stands in the file, if it is found there; else the value.
fn place_of(piece: &str, text: &str, span: &Range<usize>) -> Range<usize> {
    let within = text.get(span.clone()).and_then(|written| written.rfind(piece.trim()));
    within.map_or(span.clone(), |at| span.start + at..span.start + at + piece.trim().len())
}

/// The schedule of a path. Errors in it are reported at the changes: there may be many of them.
fn read_schedule(section: &Section<'_, '_>, text: &str, base: &Path) -> Option<String> {
    let (schedule, span) = section.string("schedule", "changes, as \"at=10s both loss=0.01\"")?;
    let problems = schedule_problems(schedule, base);
    for error in &problems {
        section.wrong(place_of(&error.at, text, &span), "schedule", error.to_string());
    }
    problems.is_empty().then(|| schedule.trim().to_owned())
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

fn read_hosts(file: &Section<'_, '_>, topology: &Topology) -> Hosts {
    let mut hosts = Hosts::default();
    let Some(section) = file.section("hosts") else { return hosts };
    section.only(&["offload", "access", "mtu", "sysctl", "costs"]);
    hosts.offload = section.boolean("offload");
    hosts.access_bps = section.parsed("access", "a rate, as \"1gbit\"", text::parse_rate);
    hosts.mtu = section.whole("mtu", 576..=65_535).map_or(MTU, |mtu| mtu as u32);
    if let Some(sysctl) = section.section("sysctl") {
        for (key, ..) in sysctl.entries() {
            let value = sysctl.string(key, "a text, as \"4096 131072 67108864\"");
            hosts.sysctl.extend(value.map(|(value, _)| (key.to_owned(), value.to_owned())));
        }
    }
    if let Some(costs) = section.section("costs") {
        let mut names = topology.hosts();
        names.push(ALL_HOSTS.to_owned());
        for (host, span, _) in costs.entries() {
            if !names.iter().any(|name| name == host) {
                costs.wrong(span, host, unknown("host", host, names.iter().map(String::as_str)));
                continue;
            }
            let expected = "costs, as \"copy_in=91us+1.2ms/kB rate=10mbit send_buffers=1\"";
            let Some((text, span)) = costs.string(host, expected) else { continue };
            match text.parse::<Costs>() {
                Ok(_) => _ = hosts.costs.insert(host.to_owned(), text.to_owned()),
                Err(error) => costs.wrong(span, host, error.to_string()),
            }
        }
    }
    hosts
}

fn read_record(file: &Section<'_, '_>) -> Record {
    let mut record = Record::default();
    let Some(section) = file.section("record") else { return record };
    let keys = [
        ("sequence", &mut record.sequence),
        ("window", &mut record.window),
        ("goodput", &mut record.goodput),
        ("latency", &mut record.latency),
        ("queue", &mut record.queue),
        ("pcap", &mut record.pcap),
        ("qlog", &mut record.qlog),
        ("tcp_probe", &mut record.tcp_probe),
        ("compress", &mut record.compress),
    ];
    section.only(&keys.each_ref().map(|(key, _)| *key));
    for (key, value) in keys {
        *value = section.boolean(key).unwrap_or(*value);
    }
    record
}

/// Reads the names that plots use: they are those of this file. The report checks the rest of a
/// plot.
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
        if let Err(why) = uts_report::experiment::check_plot(&settings)
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
