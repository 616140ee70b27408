//! The relay world: the ends of one flow as processes on loopback, and a UDP relay between them in
//! this process.

use super::ends::{self, GRACE, NOTICE, Place, Programs};
use super::{Room, World};
use crate::control::{Control, Interventions};
use crate::experiment::case::{Case, Flow};
use crate::experiment::file::{MTU, WorldKind};
use crate::experiment::outcome::{Outcome, RunError};
use anyhow::{Context, Result, anyhow, bail};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uts_end::Role;
use uts_end::line::Ready;
use uts_path::Target;
use uts_record::run::{Fidelity, Intervention, LinkStats};
use uts_record::samples::Samples;
use uts_relay::{Relay, RelayConfig, RelayHandle, RelayStats, default_link};

/// The lateness that 99 % of a valid run's datagrams may not exceed. The relay sleeps until a
/// datagram is due, and the two ends need processors too: tens of microseconds on an idle machine.
pub const LATENESS_P99_MAX_US: f64 = 2000.0;

/// Cases over the relay, one at a time.
#[derive(Debug)]
pub struct RelayWorld {
    programs: Programs,
}

impl RelayWorld {
    /// A relay world with these programs as ends.
    pub fn new(programs: Programs) -> Self {
        RelayWorld { programs }
    }
}

impl World for RelayWorld {
    fn kind(&self) -> WorldKind {
        WorldKind::Relay
    }

    fn parallel(&self) -> usize {
        1
    }

    fn refuses(&self, case: &Case) -> Option<String> {
        let [flow] = case.flows.as_slice() else {
            return Some(format!("the relay carries one flow, and this has {}", case.flows.len()));
        };
        if case.hops.len() != 1 {
            return Some(format!("the relay is one path, and this is a chain of {}", case.hops.len()));
        }
        if !crate::transports::is_over_udp(&flow.transport) {
            return Some(format!("{}: the relay carries only transports over UDP", flow.transport_name));
        }
        if let Some(why) = super::without_sources(case, "relay") {
            return Some(why);
        }
        if case.record.pcap {
            return Some("the relay records no packets (record.pcap)".into());
        }
        if case.hosts.access_bps.is_some() {
            return Some("the relay's hosts have no links of their own (hosts.access)".into());
        }
        if case.hosts.mtu != MTU {
            return Some("the relay's hosts have the MTU of loopback (hosts.mtu)".into());
        }
        if !case.hosts.costs.is_empty() {
            return Some("the relay's hosts are this machine, and cost what it does (hosts.costs)".into());
        }
        self.programs.refuse(flow)
    }

    fn run(&self, case: &Case, room: &Room<'_>) -> Result<Outcome, RunError> {
        let [flow] = case.flows.as_slice() else {
            return Err(RunError::Failed("the relay carries one flow".into()));
        };
        let queues = room.dir.join("relay.csv");
        let server_at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut server = self.spawn(case, flow, Place::Server(server_at), room.dir)?;
        let ready = server.ready(room)?;
        let mut path = case.hops[0].config(&default_link()).map_err(|e| anyhow!(e))?;
        if flow.from.starts_with("server") {
            std::mem::swap(&mut path.forward, &mut path.backward);
        }
        let config = RelayConfig {
            path,
            seed: case.seed,
            record: case.record.queue.then(|| queues.clone()),
            each: true,
            ..RelayConfig::new(ready.address)
        };
        let relay = Relay::start(config).context("the relay")?;
        let origin_ns = uts_end::clock::now_ns();
        let relayed = Arc::new(Relayed::new(relay, &case.hops[0].name));
        let control = room.controls.register(relayed.clone());
        let to = relayed.address()?;
        let mut client = self.spawn(case, flow, Place::Client(to, ready.identity.as_deref()), room.dir)?;
        let ended = wait_for_both(&mut client, &mut server, case.timeout, room);
        drop(control);
        let (stats, interventions) = relayed.stop()?;
        ended?;

        let mut outcome = Outcome::default();
        let mut samples = Samples::default();
        ends::collect(case, flow, room.dir, origin_ns, &mut outcome, &mut samples)?;
        if case.record.queue {
            take_queues(&queues, &case.hops[0].name, &mut samples, &mut outcome)?;
        }
        samples.write(&room.dir.join("samples"))?;
        outcome.interventions = interventions;
        judge(&stats, &case.hops[0].name, &mut outcome);
        Ok(outcome)
    }
}

impl RelayWorld {
    fn spawn(&self, case: &Case, flow: &Flow, place: Place<'_>, dir: &Path) -> Result<EndProcess> {
        let role = match place {
            Place::Server(_) => Role::Server,
            Place::Client(..) => Role::Client,
        };
        let line = ends::command_line(&self.programs, case, flow, place, dir)?;
        let (program, arguments) = line.split_first().context("an end without a program")?;
        let name = format!("{} {}", role.name(), flow.name);
        let messages = ends::message_file(dir, flow, role);
        let child = Command::new(program)
            .args(arguments)
            .env(uts_end::PARENT_VARIABLE, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&messages).context("cannot write an end's messages")?)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(EndProcess { child, name, messages })
    }
}

/// An end that runs, and is killed if nobody waits for it any more.
struct EndProcess {
    child: Child,
    name: String,
    messages: PathBuf,
}

impl EndProcess {
    fn ready(&mut self, room: &Room<'_>) -> Result<Ready, RunError> {
        let stdout = self.child.stdout.take().context("a server without output")?;
        match ends::await_ready(stdout, &self.name, room)? {
            Some(ready) => Ok(ready),
            None => Err(RunError::Failed(self.last_words())),
        }
    }

    fn last_words(&mut self) -> String {
        let _ = self.child.wait();
        ends::last_words(&self.name, &self.messages)
    }
}

impl Drop for EndProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for_both(
    client: &mut EndProcess,
    server: &mut EndProcess,
    timeout: Duration,
    room: &Room<'_>,
) -> Result<(), RunError> {
    // Each end gives up by itself: twice the time, as a server begins to wait before its client.
    let limit = timeout * 2 + GRACE;
    let began = Instant::now();
    let mut waiting = vec![client, server];
    while !waiting.is_empty() {
        if room.is_stopped() {
            return Err(RunError::Interrupted);
        }
        if began.elapsed() > limit {
            let names: Vec<&str> = waiting.iter().map(|end| end.name.as_str()).collect();
            return Err(RunError::Failed(format!("{} did not end", names.join(" and "))));
        }
        let mut still = Vec::new();
        for end in waiting {
            match end.child.try_wait().context("cannot wait for an end")? {
                None => still.push(end),
                Some(status) if status.success() => {}
                Some(_) => return Err(RunError::Failed(end.last_words())),
            }
        }
        waiting = still;
        if !waiting.is_empty() {
            std::thread::sleep(NOTICE);
        }
    }
    Ok(())
}

/// A relay that can be changed while it runs.
struct Relayed {
    relay: Mutex<Option<RelayHandle>>,
    path: String,
    interventions: Interventions,
}

impl Relayed {
    fn new(relay: RelayHandle, path: &str) -> Self {
        Relayed { relay: Mutex::new(Some(relay)), path: path.into(), interventions: Interventions::default() }
    }

    fn address(&self) -> Result<SocketAddr> {
        self.with(|relay| Ok(relay.local_addr()))
    }

    fn with<T>(&self, act: impl FnOnce(&RelayHandle) -> Result<T>) -> Result<T> {
        let guard = self.relay.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        act(guard.as_ref().context("the relay has ended")?)
    }

    fn stop(&self) -> Result<(RelayStats, Vec<Intervention>)> {
        let taken = self.relay.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let stats = taken.context("the relay has ended")?.stop().context("the relay")?;
        Ok((stats, self.interventions.take()))
    }
}

impl Control for Relayed {
    fn paths(&self) -> Vec<String> {
        vec![self.path.clone()]
    }

    fn set(&self, path: &str, target: Target, change: &uts_path::Change) -> Result<()> {
        if path != self.path {
            bail!("there is no path {path} here");
        }
        let t_s = self.with(|relay| {
            relay.set(target, change.clone())?;
            Ok(relay.stats()?.elapsed_s)
        })?;
        self.interventions.add(t_s, path, target, change);
        Ok(())
    }
}

/// A row of the relay's record.
#[derive(serde::Deserialize)]
struct Passed {
    t_s: f64,
    dir: String,
    queue_packets: u64,
    queue_bytes: u64,
    sojourn_s: f64,
    dropped: Option<String>,
    bytes: u64,
}

/// The relay's own record as the run's. Data go forward, whichever end is the server.
fn take_queues(file: &Path, path: &str, samples: &mut Samples, outcome: &mut Outcome) -> Result<()> {
    let link = |dir: &str| match dir {
        "fwd" => format!("{path} forward"),
        "bwd" => format!("{path} backward"),
        _ => format!("{path} both"),
    };
    let mut through = super::Passed::default();
    super::read_rows(file, |row: Passed| {
        let passed = row.dropped.is_none();
        if passed && row.dir == "fwd" {
            through.add(row.sojourn_s, row.bytes);
        }
        let sojourn_ms = passed.then_some(row.sojourn_s * 1e3);
        samples.add_queue(&link(&row.dir), row.t_s, row.queue_packets, row.queue_bytes, sojourn_ms);
    })?;
    outcome.measures.extend(through.figures());
    let mut changes = file.as_os_str().to_owned();
    changes.push(".changes.csv");
    super::read_rows(Path::new(&changes), |(t_s, dir, change): (f64, String, String)| {
        samples.add_change(&link(&dir), t_s, &change);
    })?;
    fs::remove_file(file)?;
    Ok(fs::remove_file(changes)?)
}

/// Judges the relay by its model.
fn judge(stats: &RelayStats, path: &str, outcome: &mut Outcome) {
    let lost_outside = stats.send_failures + stats.kernel_dropped.unwrap_or(0) + stats.refused;
    outcome.fidelity = Some(Fidelity {
        lateness_p50_us: Some(stats.lateness.p50_us),
        lateness_p90_us: Some(stats.lateness.p90_us),
        lateness_p99_us: Some(stats.lateness.p99_us),
        lateness_max_us: Some(stats.lateness.max_us),
        lost_outside: Some(lost_outside),
        cpu_share: None,
    });
    for (direction, stats) in [("forward", stats.forward), ("backward", stats.backward)] {
        outcome.links.push(LinkStats { link: format!("{path} {direction}"), stats });
    }
    if lost_outside > 0 {
        outcome.invalid = Some(format!("{lost_outside} datagrams were lost outside the model"));
    } else if stats.lateness.p99_us > LATENESS_P99_MAX_US {
        outcome.invalid = Some(format!(
            "departures were {:.0} us late at the 99th percentile, more than {LATENESS_P99_MAX_US:.0} us",
            stats.lateness.p99_us
        ));
    }
}
