//! The two ends of a flow as processes: how they are started, and what they leave.

use super::{Room, qlog};
use crate::experiment::case::{Case, Flow};
use crate::experiment::outcome::{Outcome, RunError};
use crate::transports::{self, Rival, Rivals};
use anyhow::{Context as _, Result, anyhow, bail};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use uts_end::line::{End, Line, Ready, Status};
use uts_end::{Role, TransportSpec};
use uts_record::run::{Cpu, Figure};
use uts_record::samples::Samples;
use uts_sim::network::seed_of;
use uts_traffic::measure::Measure;
use uts_traffic::workload::can_carry;
use uts_units::show;

/// Time that an end has after it gave up, to write its file and close.
pub const GRACE: Duration = Duration::from_secs(20);

/// Interval at which ends are looked at.
pub const NOTICE: Duration = Duration::from_millis(20);

/// Time that a server may take until it listens.
const READY_MAX: Duration = Duration::from_secs(20);

/// The programs that are ends.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Command that runs an end of a transport that comes with the lab, without the end's own
    /// arguments.
    own: Vec<OsString>,
}

impl Programs {
    /// This program runs the ends that come with the lab, with these arguments first, as
    /// `uts-lab end`.
    pub fn new(program: PathBuf, arguments: &[&str]) -> Self {
        let mut own: Vec<OsString> = vec![program.into_os_string()];
        own.extend(arguments.iter().map(OsString::from));
        Programs { own }
    }

    /// The program with the rivals.
    ///
    /// # Errors
    /// It is not here, and how to get it; or it does not say what it has.
    pub fn rivals(&self) -> Result<&'static Rivals, String> {
        transports::rivals()
    }

    /// Why a flow's transport cannot carry its workload here, if so.
    pub fn refuse(&self, flow: &Flow) -> Option<String> {
        let name = &flow.transport_name;
        if transports::is_native(&flow.transport) {
            let carried = transports::capabilities(&flow.transport, &flow.workload)
                .and_then(|capabilities| can_carry(&flow.workload, &capabilities))
                .and_then(|()| transports::is_in_kernel(&flow.transport));
            return carried.err().map(|why| format!("{name}: {why}"));
        }
        let rivals = match self.rivals() {
            Ok(rivals) => rivals,
            Err(why) => return Some(format!("{name}: {why}")),
        };
        match rivals.list.iter().find(|rival| rival.name == flow.transport.kind) {
            Some(rival) if rival.available => {
                rivals.refuse(&flow.transport, &flow.workload).map(|why| format!("{name}: {why}"))
            }
            Some(Rival { why, get, .. }) => {
                let why = why.clone().unwrap_or_else(|| "cannot be used".into());
                Some(match get {
                    Some(get) => format!("{name}: {why}; get it by: {get}"),
                    None => format!("{name}: {why}"),
                })
            }
            None => Some(format!("{name}: {} has no {}", rivals.program.display(), flow.transport.kind)),
        }
    }

    /// The command of an end of a flow, whole but for where it listens or connects to.
    ///
    /// # Errors
    /// The transport's program is not here.
    fn command(&self, transport: &TransportSpec) -> Result<Vec<OsString>> {
        if transports::is_native(transport) {
            return Ok(self.own.clone());
        }
        let rivals = self.rivals().map_err(|why| anyhow!(why))?;
        Ok(vec![rivals.program.clone().into_os_string(), "end".into()])
    }
}

/// Which end, and where.
#[derive(Clone, Copy, Debug)]
pub enum Place<'p> {
    /// Listens here.
    Server(SocketAddr),
    /// Connects to a server that is known by this.
    Client(SocketAddr, Option<&'p str>),
}

impl Place<'_> {
    fn role(self) -> Role {
        match self {
            Place::Server(_) => Role::Server,
            Place::Client(..) => Role::Client,
        }
    }
}

/// The file that an end of a flow leaves in a run's directory.
pub fn end_file(dir: &Path, flow: &Flow, role: Role) -> PathBuf {
    dir.join(format!("{}.{}.ndjson", flow.name, role.name()))
}

/// A whole command line for an end: program, then arguments.
///
/// # Errors
/// The transport's program is not here.
pub fn command_line(
    programs: &Programs,
    case: &Case,
    flow: &Flow,
    place: Place<'_>,
    dir: &Path,
) -> Result<Vec<OsString>> {
    let mut line = programs.command(&flow.transport)?;
    let mut option = |name: &str, value: OsString| line.extend([OsString::from(name), value]);
    option("--role", place.role().name().into());
    option("--transport", serde_json::to_string(&flow.transport)?.into());
    option("--workload", serde_json::to_string(&flow.workload)?.into());
    match place {
        Place::Server(at) => option("--listen", at.to_string().into()),
        Place::Client(to, identity) => {
            option("--to", to.to_string().into());
            if let Some(identity) = identity {
                option("--peer", identity.into());
            }
        }
    }
    // As in virtual time: flows that draw are not to draw the same.
    let number = case.flows.iter().position(|other| other.name == flow.name).unwrap_or(0);
    option("--seed", seed_of(case.seed, number as u64).to_string().into());
    option("--give-up", show::time(case.timeout + flow.start).into());
    option("--sample-every", show::time(case.sample_every).into());
    option("--out", end_file(dir, flow, place.role()).into());
    if is_uts(flow) && (case.record.sequence || case.record.qlog) {
        line.push("--packets".into());
    }
    Ok(line)
}

/// The line that a server prints once it listens; `None` if it ended without.
///
/// # Errors
/// The run was interrupted; the server takes too long; it printed something else.
pub fn await_ready(
    stdout: impl Read + Send + 'static,
    name: &str,
    room: &Room<'_>,
) -> Result<Option<Ready>, RunError> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = String::new();
        let _ = sender.send(reader.read_line(&mut line).map(|_| line));
        // What else it prints must not fill the pipe.
        let _ = std::io::copy(&mut reader, &mut std::io::sink());
    });
    let began = Instant::now();
    while began.elapsed() < READY_MAX {
        if room.is_stopped() {
            return Err(RunError::Interrupted);
        }
        match receiver.recv_timeout(NOTICE) {
            Ok(Ok(line)) if !line.trim().is_empty() => {
                let ready = serde_json::from_str(&line);
                return Ok(Some(ready.with_context(|| format!("{name} printed {line:?}"))?));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            _ => return Ok(None),
        }
    }
    Err(RunError::Failed(format!("{name} did not listen within {} s", READY_MAX.as_secs())))
}

/// Last line of an end, from the file of its messages.
pub fn last_words(name: &str, messages: &Path) -> String {
    let text = std::fs::read_to_string(messages).unwrap_or_default();
    let last = text.trim().lines().last().unwrap_or("ended without a word").to_owned();
    format!("{name}: {}", last.trim_start_matches("error: ").trim_start_matches("uts-lab: "))
}

/// The file to which an end of a flow writes its messages.
pub fn message_file(dir: &Path, flow: &Flow, role: Role) -> PathBuf {
    dir.join(format!("{}.{}.stderr", flow.name, role.name()))
}

/// Reads what both ends of a flow left, adds it to the outcome, and removes their files.
///
/// # Errors
/// An end failed, or was killed.
pub fn collect(
    case: &Case,
    flow: &Flow,
    dir: &Path,
    origin_ns: u64,
    outcome: &mut Outcome,
    samples: &mut Samples,
) -> Result<()> {
    let record = &case.record;
    for role in [Role::Client, Role::Server] {
        let file = end_file(dir, flow, role);
        let lines =
            uts_end::line::read(&file).with_context(|| format!("the {} of {}", role.name(), flow.name))?;
        if record.qlog && is_uts(flow) {
            qlog::write(case, flow, role, &lines, origin_ns, &dir.join("samples"))?;
        }
        for line in &lines {
            match line {
                Line::Sample(sample) if record.takes(sample) => {
                    samples.add(&flow.name, role.name(), sample, origin_ns)
                }
                Line::Sample(_) => {}
                Line::Measure(measure) => add_measures(flow, std::slice::from_ref(measure), outcome),
                Line::End(end) => add_end(flow, role, end, outcome)?,
            }
        }
        for file in [file, message_file(dir, flow, role)] {
            std::fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
    }
    Ok(())
}

fn is_uts(flow: &Flow) -> bool {
    flow.transport.kind == "uts"
}

/// Adds an end's figures.
pub fn add_measures(flow: &Flow, measures: &[Measure], outcome: &mut Outcome) {
    let figures = measures.iter().map(|m| Figure::new(&flow.name, &m.name, m.value, &m.unit));
    outcome.measures.extend(figures);
}

/// Adds how an end ended.
///
/// # Errors
/// It failed.
pub fn add_end(flow: &Flow, role: Role, end: &End, outcome: &mut Outcome) -> Result<()> {
    let process = format!("{} {}", role.name(), flow.name);
    let why = end.why.clone().unwrap_or_else(|| "does not say why".into());
    match end.status {
        Status::Failed => bail!("{process}: {why}"),
        Status::CutShort => outcome.notes.push(format!("{process}: {why}")),
        Status::Ok => {}
    }
    outcome.cpu.push(Cpu { process, user_s: end.cpu_s, system_s: None });
    if role == Role::Client {
        let counts = [("packets_sent", end.sent_packets), ("packets_repeated", end.repeated_packets)];
        for (name, count) in counts {
            outcome.measures.extend(count.map(|count| Figure::new(&flow.name, name, count as f64, "1")));
        }
        outcome.measures.extend(end.connect_s.map(|s| Figure::new(&flow.name, "connect", s, "s")));
    }
    Ok(())
}
