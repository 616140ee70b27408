//! Transports at work: which pairs of ends run, in which order, and what comes of them.

use crate::child::Lines;
use crate::ends::{MESSAGE_BYTES, Outcome, Ready, Task, Transport, Work};
use crate::summary::Summary;
use crate::world::{Place, World};
use crate::{iperf, rival};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

/// How two ends run.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// How long the client goes on.
    pub duration: Duration,
    /// The client's core.
    pub client_core: usize,
    /// The server's.
    pub server_core: usize,
}

/// How much is measured.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// How often everything is done.
    pub repetitions: usize,
    /// How long bulk data and messages flow each time, in seconds; the first fifth is not counted.
    pub bulk_s: f64,
    /// How long bytes go to and fro each time, in seconds.
    pub ping_s: f64,
    /// Connections that do nothing.
    pub idle_connections: usize,
    /// Connections that share an endpoint.
    pub shared_connections: usize,
    /// What is asked of UTS beside its defaults, as `name=value`.
    pub properties: Vec<String>,
}

/// What is measured again and again.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The work.
    pub work: Work,
    /// Where.
    pub place: Place,
    /// Whether both ends keep to the same core.
    pub same_core: bool,
    /// By what.
    pub transport: Transport,
    /// Connections, where there may be many.
    pub connections: usize,
}

/// Everything that repetitions found of one case.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The work.
    pub work: &'static str,
    /// The path.
    pub path: &'static str,
    /// Where the ends run: `two cores` or `one core`.
    pub cores: &'static str,
    /// The transport.
    pub transport: &'static str,
    /// Connections, where there may be many.
    pub connections: usize,
    /// By name, what each repetition gave (`null` = it failed).
    pub figures: BTreeMap<&'static str, Vec<Option<f64>>>,
    /// What else the ends had to say.
    pub note: String,
    /// What went wrong.
    pub failures: Vec<String>,
}

impl Row {
    /// What repetitions gave.
    pub fn summary(&self, figure: &str) -> Option<Summary> {
        Summary::of(self.figures.get(figure)?.iter().flatten().copied())
    }
}

/// All cases of the works that are asked for.
pub fn cases(works: &[Work], world: &World, transports: &[Transport], plan: &Plan) -> Vec<Case> {
    let has = |place: &Place| world.places().contains(place);
    // Where a path that is no host's own is meant and any will do.
    let usual = if has(&Place::Veth) { Place::Veth } else { Place::Loopback };
    let mut cases = Vec::new();
    for &work in works {
        for &transport in transports {
            let mut add = |place, same_core, connections| {
                cases.push(Case { work, place, same_core, transport, connections });
            };
            let is_plain_uts = transport == Transport::Uts;
            match work {
                Work::Bulk => world.places().iter().for_each(|place| add(*place, false, 1)),
                Work::Ping
                    if !transport.is_iperf() && !transport.is_rival() && transport != Transport::UtsBare =>
                {
                    add(usual, false, 1);
                    add(usual, true, 1);
                }
                Work::Spin
                    if is_plain_uts || matches!(transport, Transport::RawUdp | Transport::UtsBlocking) =>
                {
                    add(usual, false, 1);
                }
                Work::Messages | Work::SingleMessages | Work::Handshakes
                    if is_plain_uts || transport == Transport::Quinn =>
                {
                    add(usual, false, 1);
                }
                Work::Idle if is_plain_uts => add(usual, false, plan.idle_connections),
                Work::Shared if is_plain_uts => {
                    add(usual, false, 1);
                    add(usual, false, plan.shared_connections);
                }
                _ => {}
            }
        }
    }
    cases
}

/// Runs all of them in turns, so that what else happens on the machine meets all alike.
pub fn measure(world: &World, cases: &[Case], plan: &Plan, progress: impl Fn(String)) -> Vec<Row> {
    let mut rows: Vec<Row> = cases.iter().map(Case::row).collect();
    for repetition in 0..plan.repetitions {
        for (case, row) in cases.iter().zip(&mut rows) {
            // Making very many connections takes long, and what they cost hardly varies.
            if case.work == Work::Idle && repetition > 0 {
                continue;
            }
            progress(format!("{}/{} {}", repetition + 1, plan.repetitions, case.describe()));
            match case.run(world, plan) {
                Ok((client, server)) => {
                    for (name, value) in case.figures(&client, &server) {
                        row.put(repetition, name, value);
                    }
                    row.note = client.note;
                }
                Err(error) => row.failures.push(format!("{error:#}")),
            }
        }
    }
    rows
}

impl Row {
    fn put(&mut self, repetition: usize, name: &'static str, value: f64) {
        let values = self.figures.entry(name).or_default();
        values.resize(repetition, None);
        values.push(value.is_finite().then_some(value));
    }
}

impl Case {
    fn row(&self) -> Row {
        Row {
            work: self.work.name(),
            path: self.place.name(),
            cores: if self.same_core { "one core" } else { "two cores" },
            transport: self.transport.name(),
            connections: self.connections,
            figures: BTreeMap::new(),
            note: String::new(),
            failures: Vec::new(),
        }
    }

    fn describe(&self) -> String {
        let Row { work, path, cores, transport, connections, .. } = self.row();
        let many = if connections > 1 { format!(", {connections} connections") } else { String::new() };
        format!("{work} {path} {transport}, {cores}{many}")
    }

    /// What the ends' outcomes say of this work.
    fn figures(&self, client: &Outcome, server: &Outcome) -> Vec<(&'static str, f64)> {
        let per_gb = |end: &Outcome| end.cpu_s / (end.bytes as f64 / 1e9);
        let goodput = server.counted_bytes as f64 * 8.0 / server.counted_s / 1e9;
        match self.work {
            Work::Bulk => vec![
                ("gbps", goodput),
                ("sender_s_per_gb", per_gb(client)),
                ("receiver_s_per_gb", per_gb(server)),
                ("both_s_per_gb", per_gb(client) + per_gb(server)),
                ("lost", client.lost_packets.max(server.lost_packets) as f64),
            ],
            Work::Ping | Work::Spin => vec![
                ("p50_us", client.p50_us),
                ("p99_us", client.p99_us),
                ("client_us", client.cpu_s * 1e6 / client.count as f64),
            ],
            Work::Messages | Work::SingleMessages => {
                let messages = server.counted_bytes as f64 / MESSAGE_BYTES as f64;
                let us = |end: &Outcome| end.cpu_s * 1e6 / (end.bytes as f64 / MESSAGE_BYTES as f64);
                vec![
                    ("per_s", messages / server.counted_s),
                    ("arrived", server.bytes as f64 / client.bytes as f64),
                    ("sender_us", us(client)),
                    ("receiver_us", us(server)),
                ]
            }
            Work::Handshakes => vec![
                ("p50_us", client.p50_us),
                ("p99_us", client.p99_us),
                ("per_core_s", server.count as f64 / server.cpu_s),
                ("client_us", client.cpu_s * 1e6 / client.count as f64),
            ],
            Work::Idle => vec![
                ("connections", server.count as f64),
                ("client_bytes", client.bytes_each),
                ("server_bytes", server.bytes_each),
                ("client_cpu", client.idle_cpu),
                ("server_cpu", server.idle_cpu),
            ],
            Work::Shared => vec![
                ("gbps", goodput),
                ("sender_s_per_gb", per_gb(client)),
                ("receiver_s_per_gb", per_gb(server)),
                ("jain", server.jain),
                ("lost", client.lost_packets as f64),
            ],
        }
    }

    /// Both ends' outcomes: the client's, then the server's.
    fn run(&self, world: &World, plan: &Plan) -> Result<(Outcome, Outcome)> {
        let cores = crate::usage::cores();
        let (first, last) = (cores[0], cores[cores.len() - 1]);
        let seconds = match self.work {
            Work::Ping | Work::Spin => plan.ping_s,
            _ => plan.bulk_s,
        };
        let duration = Duration::from_secs_f64(seconds);
        let pair =
            Pair { duration, client_core: if self.same_core { last } else { first }, server_core: last };
        let Case { work, place, transport, connections, .. } = *self;
        if transport.is_iperf() {
            return iperf::bulk(world, place, transport, &pair);
        }
        if transport.is_rival() {
            return rival::bulk(world, place, transport, &pair);
        }
        let program = std::env::current_exe()?;
        let program = program.to_str().context("the program's path is not UTF-8")?;
        let patience = duration + Duration::from_secs(if work == Work::Idle { 200 } else { 10 });
        let task = Task { transport, work, duration, connections, properties: plan.properties.clone() };
        let json = serde_json::to_string(&task)?;
        let arguments = |command: &mut Command, role: &str, core: usize, place: &str, key: &str| {
            command.args(["end", role, &json, &core.to_string(), place, key]);
        };
        let mut command = world.at_server(place, program);
        arguments(&mut command, "server", pair.server_core, &world.server_ip(place).to_string(), "");
        let mut server = Lines::start("server", &mut command, patience)?;
        let ready: Ready = serde_json::from_str(&server.line()?)?;
        let mut command = Command::new(program);
        arguments(&mut command, "client", pair.client_core, &ready.addr.to_string(), &ready.key);
        let client = Lines::start("client", &mut command, patience)?.line()?;
        let (sender, receiver): (Outcome, Outcome) =
            (serde_json::from_str(&client)?, serde_json::from_str(&server.line()?)?);
        ensure!(
            !task.is_whole() || sender.bytes == receiver.bytes,
            "{} bytes were sent, {} arrived",
            sender.bytes,
            receiver.bytes
        );
        Ok((sender, receiver))
    }
}
