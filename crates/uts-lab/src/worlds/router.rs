//! The router world: hosts in network namespaces, RouterPC between them, and the ends of all flows
//! as processes on the hosts.

use super::ends::{self, GRACE, NOTICE, Place, Programs};
use super::{Room, World};
use crate::control::{Control, Interventions};
use crate::experiment::case::{Case, Flow};
use crate::experiment::derived;
use crate::experiment::file::{OFFLOAD_FROM_BPS, Topology, WorldKind};
use crate::experiment::outcome::{Outcome, RunError};
use anyhow::{Context, Result, anyhow};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uts_end::Role;
use uts_end::line::Ready;
use uts_path::{Change, LinkConfig, PathConfig, Target};
use uts_record::run::{Cpu, Fidelity, LinkStats};
use uts_record::samples::{Samples, TcpState};
use uts_router::tcp_probe::TcpProbe;
use uts_router::{
    Ending, Io, RecordConfig, RemoteChild, RouterError, Testbed, TestbedConfig, Topology as Wiring,
};
use uts_traffic::transport::Status;

/// Bytes of each packet that a pcap keeps: headers, and the beginning of what they carry.
const SNAP_BYTES: u32 = 160;

/// Cases behind RouterPC, one at a time.
#[derive(Debug)]
pub struct RouterWorld {
    programs: Programs,
}

impl RouterWorld {
    /// A router world with these programs as ends.
    ///
    /// # Errors
    /// This machine does not permit it, and the one command that would.
    pub fn new(programs: Programs) -> Result<Self, String> {
        let lacking = uts_router::doctor().into_iter().find(|check| check.required && !check.ok);
        match lacking {
            Some(check) => {
                Err(format!("{}: {}; what would permit it: {}", check.name, check.why, check.remedy))
            }
            None => Ok(RouterWorld { programs }),
        }
    }
}

impl World for RouterWorld {
    fn kind(&self) -> WorldKind {
        WorldKind::Router
    }

    fn parallel(&self) -> usize {
        1
    }

    fn refuses(&self, case: &Case) -> Option<String> {
        if !case.hosts.costs.is_empty() {
            return Some("the router's hosts are this machine, and cost what it does (hosts.costs)".into());
        }
        super::without_sources(case, "router")
            .or_else(|| case.flows.iter().find_map(|flow| self.programs.refuse(flow)))
    }

    fn run(&self, case: &Case, room: &Room<'_>) -> Result<Outcome, RunError> {
        let paths = case.hops.iter().map(|hop| hop.config(&LinkConfig::default()));
        let paths: Vec<PathConfig> = paths.collect::<Result<_, _>>().map_err(|e| anyhow!(e))?;
        // Programs on hosts run in a directory of their own.
        let dir = fs::canonicalize(room.dir).context("the run's directory")?;
        let record_dir = dir.join("router");
        let bed = Testbed::start(testbed_config(case, paths, &record_dir)).context("no testbed")?;
        let control = bed.control();
        let bench = Arc::new(Bench {
            control,
            names: names(case),
            began: Instant::now(),
            interventions: Interventions::default(),
        });
        // What it cannot be recorded for is told, and no reason not to run.
        let is_tcp = case.flows.iter().any(|flow| !crate::transports::is_over_udp(&flow.transport));
        let probe = (case.record.tcp_probe && is_tcp).then(TcpProbe::start);
        let mut flows = Vec::new();
        for flow in &case.flows {
            flows.push(Running::listen(&self.programs, &bed, case, flow, &dir, room)?);
        }
        bed.begin().context("the testbed")?;
        let origin_ns = uts_end::clock::now_ns();
        let registration = room.controls.register(bench.clone());
        let carried = carry(&self.programs, &bed, case, &mut flows, &dir, room);
        drop(registration);
        carried?;
        let ending = bed.finish().context("the testbed")?;

        let mut outcome = Outcome::default();
        let mut samples = Samples::default();
        for running in &flows {
            ends::collect(case, running.flow, &dir, origin_ns, &mut outcome, &mut samples)?;
        }
        outcome.cpu = flows.iter().flat_map(Running::cpu).collect();
        take_record(case, &record_dir, &flows, &mut samples, &mut outcome)?;
        if let Some(probe) = probe {
            take_tcp_probe(probe, &flows, origin_ns, &mut samples, &mut outcome);
        }
        samples.write(&dir.join("samples"))?;
        outcome.interventions = bench.interventions.take();
        judge(case, &ending, &mut outcome);
        Ok(outcome)
    }
}

fn testbed_config(case: &Case, paths: Vec<PathConfig>, record_dir: &Path) -> TestbedConfig {
    let is_slow = |path: &PathConfig| {
        [&path.forward, &path.backward]
            .iter()
            .any(|link| link.mean_rate_bps().ok().flatten().is_some_and(|bps| bps < OFFLOAD_FROM_BPS))
    };
    TestbedConfig {
        topology: match &case.topology {
            Topology::PointToPoint => Wiring::PointToPoint,
            Topology::Dumbbell { pairs } => Wiring::Dumbbell { pairs: *pairs as usize },
            Topology::Chain { paths } => Wiring::Chain { routers: paths.len() + 1 },
        },
        seed: case.seed,
        record: Some(RecordConfig {
            dir: record_dir.to_owned(),
            pcap: case.record.pcap,
            snap_bytes: SNAP_BYTES,
            queue: case.record.queue,
            sequence: case.record.sequence,
            tcp_info_ms: None,
        }),
        offload: case.hosts.offload.unwrap_or_else(|| !paths.iter().any(is_slow)),
        access_rate_bps: case.hosts.access_bps,
        mtu_bytes: case.hosts.mtu,
        sysctls: case.hosts.sysctl.clone().into_iter().collect(),
        paths,
        ..TestbedConfig::default()
    }
}

/// The number of a host in the testbed.
fn host_number(case: &Case, name: &str) -> Result<usize> {
    let side = |prefix: &str| name.strip_prefix(prefix)?.parse::<usize>().ok()?.checked_sub(1);
    let number = match &case.topology {
        Topology::PointToPoint => Some(usize::from(name == "server")),
        Topology::Chain { paths } => Some(if name == "server" { paths.len() } else { 0 }),
        Topology::Dumbbell { pairs } => side("client").or_else(|| Some(side("server")? + *pairs as usize)),
    };
    number.with_context(|| format!("there is no host {name}"))
}

fn names(case: &Case) -> Vec<String> {
    case.hops.iter().map(|hop| hop.name.clone()).collect()
}

/// A flow of which one end runs at least.
struct Running<'c> {
    flow: &'c Flow,
    ready: Ready,
    server: End,
    client: Option<End>,
}

struct End {
    child: RemoteChild,
    name: String,
    messages: PathBuf,
    exit: Option<uts_router::Exit>,
}

impl<'c> Running<'c> {
    fn listen(
        programs: &Programs,
        bed: &Testbed,
        case: &Case,
        flow: &'c Flow,
        dir: &Path,
        room: &Room<'_>,
    ) -> Result<Self, RunError> {
        let at = SocketAddr::new(bed.address(host_number(case, &flow.to)?), 0);
        let mut server = End::spawn(programs, bed, case, flow, Place::Server(at), dir)?;
        let stdout = server.child.stdout.take().context("a server without output")?;
        match ends::await_ready(stdout, &server.name, room)? {
            Some(ready) => Ok(Running { flow, ready, server, client: None }),
            None => Err(RunError::Failed(ends::last_words(&server.name, &server.messages))),
        }
    }

    fn ends(&mut self) -> impl Iterator<Item = &mut End> {
        self.client.iter_mut().chain([&mut self.server])
    }

    fn cpu(&self) -> Vec<Cpu> {
        let of = |end: &End| {
            let exit = end.exit?;
            Some(Cpu { process: end.name.clone(), user_s: exit.user_s, system_s: Some(exit.system_s) })
        };
        self.client.iter().chain([&self.server]).filter_map(of).collect()
    }
}

impl End {
    fn spawn(
        programs: &Programs,
        bed: &Testbed,
        case: &Case,
        flow: &Flow,
        place: Place<'_>,
        dir: &Path,
    ) -> Result<Self> {
        let (role, host) = match place {
            Place::Server(_) => (Role::Server, &flow.to),
            Place::Client(..) => (Role::Client, &flow.from),
        };
        let mut line = ends::command_line(programs, case, flow, place, dir)?.into_iter().map(|word| {
            word.into_string().map_err(|word| anyhow!("{}: a name that is not UTF-8", word.display()))
        });
        let program = line.next().context("an end without a program")??;
        let name = format!("{} {}", role.name(), flow.name);
        let messages = ends::message_file(dir, flow, role);
        let child = bed
            .command(host_number(case, host)?, program)
            .args(line.collect::<Result<Vec<String>>>()?)
            .stdout(Io::Pipe)
            .stderr(Io::File(fs::File::create(&messages).context("cannot write an end's messages")?))
            .spawn()
            .with_context(|| format!("cannot start the {name}"))?;
        Ok(End { child, name, messages, exit: None })
    }

    /// Looks whether it has ended, for a short time.
    fn has_ended(&mut self, wait: Duration) -> Result<bool, RunError> {
        if self.exit.is_none() {
            self.exit = self.child.wait_timeout(wait).context("the testbed")?;
        }
        match &self.exit {
            Some(exit) if !exit.status.success() => {
                Err(RunError::Failed(ends::last_words(&self.name, &self.messages)))
            }
            exit => Ok(exit.is_some()),
        }
    }
}

/// Starts all clients, each at its time, and waits for all ends.
fn carry(
    programs: &Programs,
    bed: &Testbed,
    case: &Case,
    flows: &mut [Running<'_>],
    dir: &Path,
    room: &Room<'_>,
) -> Result<(), RunError> {
    let began = Instant::now();
    let last_start = case.flows.iter().map(|flow| flow.start).max().unwrap_or_default();
    let limit = last_start + case.timeout * 2 + GRACE;
    loop {
        if room.is_stopped() {
            return Err(RunError::Interrupted);
        }
        let mut still = Vec::new();
        let mut next = NOTICE;
        for running in flows.iter_mut() {
            let due = running.flow.start.saturating_sub(began.elapsed());
            if running.client.is_none() && due.is_zero() {
                let place = Place::Client(running.ready.address, running.ready.identity.as_deref());
                running.client = Some(End::spawn(programs, bed, case, running.flow, place, dir)?);
            } else if running.client.is_none() {
                next = next.min(due);
                still.push(running.flow.name.clone());
            }
            for end in running.ends() {
                if !end.has_ended(Duration::ZERO)? {
                    still.push(end.name.clone());
                }
            }
        }
        if still.is_empty() {
            return Ok(());
        }
        if began.elapsed() > limit {
            return Err(RunError::Failed(format!("{} did not end", still.join(" and "))));
        }
        std::thread::sleep(next);
    }
}

/// A testbed that can be changed while it runs.
struct Bench {
    control: uts_router::Control,
    names: Vec<String>,
    began: Instant,
    interventions: Interventions,
}

impl Control for Bench {
    fn paths(&self) -> Vec<String> {
        self.names.clone()
    }

    fn set(&self, path: &str, target: Target, change: &Change) -> Result<()> {
        let index = self.names.iter().position(|name| name == path);
        let index = index.with_context(|| format!("there is no path {path} here"))?;
        let mut resolved = change.clone();
        resolved.resolve(|name: &str| uts_relay::traces::read(name))?;
        self.control.set(index, target, &resolved).map_err(|e: RouterError| anyhow!(e))?;
        self.interventions.add(self.began.elapsed().as_secs_f64(), path, target, change);
        Ok(())
    }
}

/// RouterPC's record as the run's.
fn take_record(
    case: &Case,
    dir: &Path,
    flows: &[Running<'_>],
    samples: &mut Samples,
    outcome: &mut Outcome,
) -> Result<()> {
    take_changes(case, &dir.join("changes.csv"), samples)?;
    if case.record.queue {
        take_queues(case, &dir.join("queue.csv"), samples, outcome)?;
    }
    if case.record.sequence {
        take_sequences(&dir.join("sequence.csv"), flows, samples)?;
    }
    if case.record.pcap {
        for host in case.topology.hosts() {
            let from = dir.join(format!("host-{}.pcap", host_number(case, &host)?));
            let to = dir.with_file_name("samples").join(format!("{host}.pcap"));
            fs::rename(&from, to).with_context(|| format!("cannot move {}", from.display()))?;
        }
    }
    fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))
}

fn link_name(case: &Case, path: usize, dir: &str) -> String {
    let name = case.hops.get(path).map_or("", |hop| hop.name.as_str());
    let direction = match dir {
        "fwd" => "forward",
        "bwd" => "backward",
        other => other,
    };
    format!("{name} {direction}")
}

fn take_changes(case: &Case, file: &Path, samples: &mut Samples) -> Result<()> {
    super::read_rows(file, |(t_s, path, dir, change): (f64, usize, String, String)| {
        samples.add_change(&link_name(case, path, &dir), t_s, &change);
    })
}

#[derive(serde::Deserialize)]
struct Passage {
    t_s: f64,
    path: usize,
    dir: String,
    len: u64,
    packets: u64,
    bytes: u64,
    sojourn_s: f64,
    dropped: Option<String>,
}

fn take_queues(case: &Case, file: &Path, samples: &mut Samples, outcome: &mut Outcome) -> Result<()> {
    let first = case.flows.first();
    let bottleneck = first.and_then(|flow| {
        let dir = if flow.from.starts_with("server") { "bwd" } else { "fwd" };
        Some((derived::bottleneck(case, flow)?.0, dir))
    });
    let mut through = super::Passed::default();
    super::read_rows(file, |row: Passage| {
        let passed = row.dropped.is_none();
        if passed && bottleneck.is_some_and(|(path, dir)| path == row.path && dir == row.dir) {
            through.add(row.sojourn_s, row.len);
        }
        let sojourn_ms = passed.then_some(row.sojourn_s * 1e3);
        samples.add_queue(&link_name(case, row.path, &row.dir), row.t_s, row.packets, row.bytes, sojourn_ms);
    })?;
    outcome.measures.extend(through.figures());
    Ok(())
}

/// Takes the kernel's records of the flows' connections; other connections are not looked at.
fn take_tcp_probe(
    probe: Result<TcpProbe, String>,
    flows: &[Running<'_>],
    origin_ns: u64,
    samples: &mut Samples,
    outcome: &mut Outcome,
) {
    let (states, lost) = match probe.and_then(TcpProbe::finish) {
        Ok(seen) => seen,
        Err(why) => return outcome.notes.push(format!("tcp_probe is not recorded: {why}")),
    };
    if lost > 0 {
        outcome.notes.push(format!("tcp_probe: {lost} events are missing, the kernel's buffer was full"));
    }
    for state in states.iter().filter(|state| state.at_ns >= origin_ns) {
        let found = flows.iter().find_map(|running| {
            let server = running.ready.address;
            let role = (state.local == server).then_some(Role::Server);
            Some((running.flow, role.or_else(|| (state.remote == server).then_some(Role::Client))?))
        });
        if let Some((flow, role)) = found {
            let t_s = (state.at_ns - origin_ns) as f64 / 1e9;
            samples.add_tcp_state(&flow.name, role.name(), t_s, &recorded(state));
        }
    }
}

#[derive(serde::Deserialize)]
struct Segment {
    t_s: f64,
    flow: String,
    dir: String,
    seq: i64,
    ack: Option<i64>,
    len: u64,
}

/// Segments of TCP as they came to RouterPC, before any queue. Data go from the client's side.
fn take_sequences(file: &Path, flows: &[Running<'_>], samples: &mut Samples) -> Result<()> {
    let mut highest = vec![0i64; flows.len()];
    super::read_rows(file, |row: Segment| {
        let ends: Vec<&str> = row.flow.split('-').collect();
        let found =
            flows.iter().position(|running| ends.contains(&running.ready.address.to_string().as_str()));
        let Some(i) = found else { return };
        let flow = flows[i].flow;
        let data_dir = if flow.from.starts_with("server") { "bwd" } else { "fwd" };
        if row.dir != data_dir {
            if let Some(ack) = row.ack.and_then(|ack| u64::try_from(ack).ok()) {
                samples.add_sequence(&flow.name, row.t_s, "acked", ack, &Status::default());
            }
        } else if row.len > 0 {
            let kind = if row.seq < highest[i] { "repeated" } else { "sent" };
            highest[i] = highest[i].max(row.seq + 1);
            let position = u64::try_from(row.seq).unwrap_or(0);
            samples.add_sequence(&flow.name, row.t_s, kind, position, &Status::default());
        }
    })
}

/// As it stands in the table.
fn recorded(state: &uts_router::tcp_probe::TcpState) -> TcpState {
    TcpState {
        data_bytes: state.data_bytes,
        next: state.next.into(),
        unacknowledged: state.unacknowledged.into(),
        window_segments: state.window.into(),
        threshold_segments: state.threshold,
        send_window_bytes: state.send_window_bytes,
        receive_window_bytes: state.receive_window_bytes,
        rtt_ms: state.rtt.as_secs_f64() * 1e3,
    }
}

/// Judges RouterPC by its model.
fn judge(case: &Case, ending: &Ending, outcome: &mut Outcome) {
    let fidelity = &ending.fidelity;
    let lost = &fidelity.lost_outside;
    outcome.fidelity = Some(Fidelity {
        lateness_p50_us: Some(fidelity.lateness.p50_us),
        lateness_p90_us: Some(fidelity.lateness.p90_us),
        lateness_p99_us: Some(fidelity.lateness.p99_us),
        lateness_max_us: Some(fidelity.lateness.max_us),
        lost_outside: Some(lost.total() + lost.in_sockets),
        cpu_share: (fidelity.elapsed_s > 0.0).then(|| fidelity.cpu_s / fidelity.elapsed_s),
    });
    for (hop, stats) in case.hops.iter().zip(&ending.paths) {
        for (direction, stats) in [("forward", stats.forward), ("backward", stats.backward)] {
            outcome.links.push(LinkStats { link: format!("{} {direction}", hop.name), stats });
        }
    }
    if !fidelity.is_valid {
        outcome.invalid = Some(fidelity.why.join("; "));
    }
}
