//! Transports at work: which pairs of ends run, in which order, and what comes of them.

use crate::child::Lines;
use crate::ends::{MESSAGE_BYTES, Outcome, Ready, Task, Transport, Work};
use crate::summary::{Summary, percentile};
use crate::world::{Place, World};
use crate::{distance, iperf, rival, usage};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// How often what was measured while cores were far from each other is measured again.
const ROUNDS_AGAIN: usize = 3;

/// How long is waited for cores to be near each other again, in all.
const PATIENCE: Duration = Duration::from_secs(180);

/// Between two looks at how far they are.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The figure that says how far from each other cores were, in nanoseconds for a line of memory.
pub const LINE_NS: &str = "line_ns";

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

/// A core for each end.
pub const TWO_CORES: &str = "two cores";
/// One for both.
pub const ONE_CORE: &str = "one core";

/// Everything that repetitions found of one case.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The work.
    pub work: &'static str,
    /// The path.
    pub path: &'static str,
    /// Where the ends run: [`TWO_CORES`] or [`ONE_CORE`].
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
    /// What was found while cores were far from each other, and has been measured again.
    pub set_aside: Vec<BTreeMap<&'static str, f64>>,
}

impl Row {
    /// What repetitions gave.
    pub fn summary(&self, figure: &str) -> Option<Summary> {
        Summary::of_repetitions(self.figures.get(figure)?)
    }
}

/// Factor by which connections that share an endpoint send for longer than others. A round of turns
/// of a thousand takes a quarter of a second. Each has its part only after several rounds.
const SHARED_FOR: f64 = 4.0;

/// The program that has a transport's ends.
fn program(transport: Transport) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(transport.program().map_or_else(|| program.clone(), |name| program.with_file_name(name)))
}

/// Why a transport cannot be measured, if the program that has its ends is not there.
pub fn missing(transport: Transport) -> Option<String> {
    let is_there = program(transport).is_ok_and(|program| program.is_file());
    let name = transport.name();
    (!is_there).then(|| format!("{name}: not built; what it needs is said by scripts/bench-rivals"))
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
                Work::Messages | Work::SingleMessages
                    if is_plain_uts || matches!(transport, Transport::Quinn | Transport::Quiche) =>
                {
                    add(usual, false, 1);
                }
                Work::Handshakes
                    if is_plain_uts
                        || matches!(
                            transport,
                            Transport::Quinn | Transport::Quiche | Transport::Tquic | Transport::TcpRustls
                        ) =>
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

/// Runs all works in turns. Other work on the machine then affects all of them alike. What was
/// measured while cores were far from each other is measured again at the end.
pub fn measure(world: &World, cases: &[Case], plan: &Plan, progress: impl Fn(String)) -> Vec<Row> {
    let mut rows: Vec<Row> = cases.iter().map(Case::row).collect();
    let mut due: Vec<(usize, usize)> =
        (0..plan.repetitions).flat_map(|repetition| (0..cases.len()).map(move |i| (repetition, i))).collect();
    // Making very many connections takes long, and what they cost hardly varies.
    due.retain(|&(repetition, i)| cases[i].work != Work::Idle || repetition == 0);
    let (mut patience, mut before_ns) = (PATIENCE, distance_ns());
    for round in 0..=ROUNDS_AGAIN {
        let near_ns = near_line_ns(&rows);
        if round > 0 {
            due.retain(|&(repetition, i)| rows[i].was_far(repetition, near_ns));
        }
        for &(repetition, i) in &due {
            let (case, row) = (&cases[i], &mut rows[i]);
            if round > 0 {
                before_ns = wait_until_near(near_ns, &mut patience);
                if before_ns.is_none() {
                    return rows;
                }
            }
            let again = if round > 0 { ", again" } else { "" };
            progress(format!("{}/{} {}{again}", repetition + 1, plan.repetitions, case.describe()));
            let result = case.run(world, plan);
            let after_ns = distance_ns();
            let ns = before_ns.into_iter().chain(after_ns).reduce(f64::max);
            before_ns = after_ns;
            match result {
                Ok((client, server)) => {
                    row.set_aside(repetition);
                    for (name, value) in case.figures(&client, &server) {
                        row.put(repetition, name, value);
                    }
                    if let Some(ns) = ns.filter(|_| case.has_distance()) {
                        row.put(repetition, LINE_NS, ns);
                    }
                    row.note = client.note;
                }
                Err(error) => row.failures.push(format!("{error:#}")),
            }
        }
    }
    rows
}

/// The distance of near cores: the value that one measurement in ten does not exceed. No single
/// measurement decides it.
pub fn near_line_ns(rows: &[Row]) -> f64 {
    let figures = rows.iter().filter_map(|row| row.figures.get(LINE_NS));
    let mut all: Vec<f64> = figures.flatten().flatten().copied().collect();
    all.sort_by(f64::total_cmp);
    percentile(&all, 0.1).unwrap_or(f64::INFINITY)
}

/// How far the cores of the two ends are from each other now.
fn distance_ns() -> Option<f64> {
    let (first, last) = end_cores();
    if first == last { None } else { distance::line_ns(first, last).ok() }
}

/// The distance of cores once they are near. `None` if patience ends before that.
fn wait_until_near(near_ns: f64, patience: &mut Duration) -> Option<f64> {
    let since = Instant::now();
    loop {
        let ns = distance_ns().filter(|ns| !distance::is_far(*ns, near_ns));
        let waited = since.elapsed();
        if ns.is_some() || waited >= *patience {
            *patience = patience.saturating_sub(waited);
            return ns;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The cores of client and server.
fn end_cores() -> (usize, usize) {
    let cores = usage::cores();
    (cores[0], cores[cores.len() - 1])
}

impl Row {
    fn put(&mut self, repetition: usize, name: &'static str, value: f64) {
        let values = self.figures.entry(name).or_default();
        values.resize(values.len().max(repetition + 1), None);
        values[repetition] = value.is_finite().then_some(value);
    }

    /// Makes room for what this repetition gives when it is done again.
    fn set_aside(&mut self, repetition: usize) {
        let taken = self.figures.iter_mut().filter_map(|(name, values)| {
            let value = values.get_mut(repetition)?.take()?;
            Some((*name, value))
        });
        let taken: BTreeMap<_, _> = taken.collect();
        if !taken.is_empty() {
            self.set_aside.push(taken);
        }
    }

    fn was_far(&self, repetition: usize, near_ns: f64) -> bool {
        let ns = self.figures.get(LINE_NS).and_then(|values| *values.get(repetition)?);
        ns.is_some_and(|ns| distance::is_far(ns, near_ns))
    }

    /// In how many repetitions cores were far from each other.
    pub fn far(&self, near_ns: f64) -> usize {
        let repetitions = self.figures.get(LINE_NS).map_or(0, Vec::len);
        (0..repetitions).filter(|repetition| self.was_far(*repetition, near_ns)).count()
    }
}

impl Case {
    fn row(&self) -> Row {
        Row {
            work: self.work.name(),
            path: self.place.name(),
            cores: if self.same_core { ONE_CORE } else { TWO_CORES },
            transport: self.transport.name(),
            connections: self.connections,
            figures: BTreeMap::new(),
            note: String::new(),
            failures: Vec::new(),
            set_aside: Vec::new(),
        }
    }

    /// Whether it matters how far from each other cores are.
    fn has_distance(&self) -> bool {
        !self.same_core && self.work != Work::Idle
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
        let (first, last) = end_cores();
        let seconds = match self.work {
            Work::Ping | Work::Spin => plan.ping_s,
            Work::Shared => plan.bulk_s * SHARED_FOR,
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
        let program = program(transport)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line_ns: &[f64]) -> Row {
        let case = Case {
            work: Work::Bulk,
            place: Place::Loopback,
            same_core: false,
            transport: Transport::Uts,
            connections: 1,
        };
        let mut row = case.row();
        for (repetition, ns) in line_ns.iter().enumerate() {
            row.put(repetition, "gbps", 10.0 + repetition as f64);
            row.put(repetition, LINE_NS, *ns);
        }
        row
    }

    /// One measurement by chance does not make all others far, nor does one in ten that is.
    #[test]
    fn what_was_measured_while_cores_were_far_is_found() {
        let mut line_ns = [5.0; 20];
        (line_ns[3], line_ns[7], line_ns[8]) = (2.0, 27.0, 9.9);
        let rows = [row(&line_ns)];
        let near_ns = near_line_ns(&rows);
        assert_eq!(near_ns, 5.0);
        let far: Vec<usize> = (0..20).filter(|repetition| rows[0].was_far(*repetition, near_ns)).collect();
        assert_eq!((far, rows[0].far(near_ns)), (vec![7], 1));
        let all_far = [row(&[27.0; 5])];
        assert_eq!(all_far[0].far(near_line_ns(&all_far)), 0, "a machine may be so");
        assert_eq!(row(&[]).far(near_line_ns(&[])), 0);
    }

    /// What is measured again takes the place of what it was measured for, which is kept apart.
    #[test]
    fn what_is_measured_again_replaces_what_was_and_keeps_it() {
        let mut row = row(&[5.0, 27.0, 5.0]);
        row.set_aside(1);
        row.put(1, "gbps", 21.0);
        assert_eq!(row.figures["gbps"], [Some(10.0), Some(21.0), Some(12.0)]);
        assert_eq!(row.figures[LINE_NS], [Some(5.0), None, Some(5.0)]);
        assert_eq!(row.set_aside, [BTreeMap::from([("gbps", 11.0), (LINE_NS, 27.0)])]);
        row.set_aside(3);
        assert_eq!(row.set_aside.len(), 1, "nothing was measured there");
    }

    #[test]
    fn a_line_takes_time_from_core_to_core() {
        let (first, last) = end_cores();
        if first != last {
            let ns = distance::line_ns(first, last).expect("two cores");
            assert!(ns > 0.0 && ns < 1e6, "{ns}");
        }
    }
}
