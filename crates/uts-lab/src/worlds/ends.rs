//! The two ends of a flow as processes: how they are started, and what they leave.

use super::{Room, qlog};
use crate::experiment::case::{Case, Flow};
use crate::experiment::outcome::{Cpu, Figure, Outcome, RunError};
use crate::experiment::samples::Samples;
use anyhow::{Context as _, Result, anyhow, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};
use uts_end::line::{End, Line, Ready, Status};
use uts_end::transport as native;
use uts_end::{Context, Role, TransportSpec};
use uts_traffic::measure::Measure;
use uts_traffic::transport::Capabilities;
use uts_traffic::workload::{Workload, can_carry};
use uts_units::show;

/// Says where the program with the rivals is.
pub const RIVALS_VARIABLE: &str = "UTS_RIVALS";
/// The program with the rivals.
pub const RIVALS_PROGRAM: &str = "uts-rival";

const GET_RIVALS: &str = "build it by: make rivals";

/// Transports of the program with the rivals, which may not be here to say so. All of them go over UDP.
const RIVAL_KINDS: [&str; 4] = ["quinn", "s2n-quic", "srt", "enet"];

/// What an end has after it gave up, to write its file and close.
pub const GRACE: Duration = Duration::from_secs(20);

/// How often ends are looked at.
pub const NOTICE: Duration = Duration::from_millis(20);

/// How long a server may take until it listens.
const READY_MAX: Duration = Duration::from_secs(20);

/// The programs that are ends.
#[derive(Clone, Debug)]
pub struct Programs {
    /// What runs an end of a transport that comes with the lab, without the end's own arguments.
    own: Vec<OsString>,
}

/// Looked for once, as the program must be run for it.
static RIVALS: OnceLock<Result<Rivals, String>> = OnceLock::new();

/// The program with the rivals, and what it has.
#[derive(Clone, Debug)]
pub struct Rivals {
    /// Where it is.
    pub program: PathBuf,
    /// The transports that it knows.
    pub list: Vec<Rival>,
}

/// A transport of the program with the rivals.
#[derive(Clone, Debug, Deserialize)]
pub struct Rival {
    /// Its kind.
    pub name: String,
    /// What it is.
    #[serde(default)]
    pub about: String,
    /// Its version.
    pub version: Option<String>,
    /// Whether it can be used.
    pub available: bool,
    /// Why it cannot.
    pub why: Option<String>,
    /// One command after which it can.
    pub get: Option<String>,
    /// Its settings, beside `kind`.
    #[serde(default)]
    pub settings: Vec<Setting>,
}

/// A setting of a rival.
#[derive(Clone, Debug, Deserialize)]
pub struct Setting {
    /// Its key.
    pub key: String,
}

/// What the program said of a transport with a workload: why it cannot carry it, if so.
static REFUSALS: Mutex<BTreeMap<(PathBuf, String, String), Option<String>>> = Mutex::new(BTreeMap::new());

impl Rival {
    /// Checks settings, of which a rival that was left out of its program knows none.
    ///
    /// # Errors
    /// Which setting there is not, and which there are.
    fn check(&self, spec: &TransportSpec) -> Result<(), String> {
        let keys: Vec<&str> = self.settings.iter().map(|setting| setting.key.as_str()).collect();
        let wrong = spec.settings.keys().find(|key| self.available && !keys.contains(&key.as_str()));
        wrong.map_or(Ok(()), |key| {
            let why = crate::experiment::problem::unknown("setting", key, keys.iter().copied());
            Err(format!("{}: {why}", spec.kind))
        })
    }
}

impl Rivals {
    /// Why a rival cannot carry a workload, if so. Its program knows, as it may depend on settings.
    fn refuse(&self, transport: &TransportSpec, workload: &Workload) -> Option<String> {
        let json = |value: serde_json::Result<String>| value.unwrap_or_default();
        let (transport, workload) =
            (json(serde_json::to_string(transport)), json(serde_json::to_string(workload)));
        let mut known = REFUSALS.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (self.program.clone(), transport, workload);
        known.entry(key).or_insert_with_key(|(_, t, w)| self.ask(t, w).unwrap_or_else(Some)).clone()
    }

    fn ask(&self, transport: &str, workload: &str) -> Result<Option<String>, String> {
        #[derive(Deserialize)]
        struct Answer {
            why: Option<String>,
        }
        let shown = self.program.display();
        let output = Command::new(&self.program)
            .args(["check", "--transport", transport, "--workload", workload])
            .output()
            .map_err(|e| format!("cannot run {shown}: {e}"))?;
        let answer: Answer = serde_json::from_slice(&output.stdout).map_err(|_| {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("{shown} check: {}; {GET_RIVALS}", said.lines().next().unwrap_or("no answer"))
        })?;
        Ok(answer.why)
    }
}

impl Programs {
    /// Ends that come with the lab are run by this program with these arguments first, as `uts lab end`.
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
        RIVALS.get_or_init(find_rivals).as_ref().map_err(Clone::clone)
    }

    /// Why a flow's transport cannot carry its workload here, if so.
    pub fn refuse(&self, flow: &Flow) -> Option<String> {
        let name = &flow.transport_name;
        if is_native(&flow.transport) {
            let carried = capabilities(&flow.transport, &flow.workload)
                .and_then(|capabilities| can_carry(&flow.workload, &capabilities));
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
        if is_native(transport) {
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
    option("--seed", case.seed.to_string().into());
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

/// What an end said last, from the file of its messages.
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
                    samples.add(&flow.name, role, sample, origin_ns)
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

/// Checks a transport's settings as far as can be done here: those of rivals are checked by their program.
///
/// # Errors
/// What is wrong, after the kind.
pub fn check(spec: &TransportSpec) -> Result<(), String> {
    if !is_native(spec) {
        let rivals = RIVALS.get_or_init(find_rivals).as_ref();
        let rival = rivals.ok().and_then(|rivals| rivals.list.iter().find(|rival| rival.name == spec.kind));
        if let Some(rival) = rival {
            return rival.check(spec);
        }
        if RIVAL_KINDS.contains(&spec.kind.as_str()) {
            return Ok(());
        }
        let kinds: Vec<&str> = native::kinds().chain(RIVAL_KINDS).collect();
        return Err(crate::experiment::problem::unknown("transport", &spec.kind, kinds.iter().copied()));
    }
    // Settings may suit one workload and not another; that is seen case by case.
    let bulk = Workload::Bulk { bytes: Some(1), duration: None };
    let second = Duration::from_secs(1);
    let messages = Workload::Messages { every: second, bytes: 100, duration: second, deadline: second };
    capabilities(spec, &bulk).or_else(|why| capabilities(spec, &messages).map_err(|_| why)).map(|_| ())
}

/// Whether a transport comes with the lab.
pub fn is_native(spec: &TransportSpec) -> bool {
    native::kinds().any(|kind| kind == spec.kind)
}

/// Whether a transport's packets are UDP datagrams.
pub fn is_over_udp(spec: &TransportSpec) -> bool {
    !matches!(spec.kind.as_str(), "tcp" | "mptcp")
}

fn capabilities(spec: &TransportSpec, workload: &Workload) -> Result<Capabilities, String> {
    let context = Context { role: Role::Client, workload, peer: None };
    native::by_spec(spec, &context).map(|transport| transport.capabilities())
}

/// Looks where the variable says, beside this program, and where cargo puts it.
fn find_rivals() -> Result<Rivals, String> {
    let program = match std::env::var_os(RIVALS_VARIABLE) {
        Some(given) => {
            let given = PathBuf::from(given);
            let program = if given.is_dir() { given.join(RIVALS_PROGRAM) } else { given };
            if !program.is_file() {
                return Err(format!("{RIVALS_VARIABLE} names {}, which is no program", program.display()));
            }
            program
        }
        None => {
            let places = rival_places();
            let found = places.iter().find(|place| place.is_file());
            found.cloned().ok_or_else(|| format!("the program {RIVALS_PROGRAM} is not here; {GET_RIVALS}"))?
        }
    };
    let output = Command::new(&program).arg("list").output();
    let output = output.map_err(|e| format!("cannot run {}: {e}", program.display()))?;
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let list = lines
        .map(serde_json::from_slice)
        .collect::<Result<Vec<Rival>, _>>()
        .map_err(|e| format!("{} list: {e}; {GET_RIVALS}", program.display()))?;
    Ok(Rivals { program, list })
}

fn rival_places() -> Vec<PathBuf> {
    let beside =
        std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(RIVALS_PROGRAM)));
    let mut places: Vec<PathBuf> = beside.into_iter().collect();
    let mut seen = HashSet::new();
    for start in [std::env::current_exe().ok(), std::env::current_dir().ok()].into_iter().flatten() {
        for dir in start.ancestors() {
            let place = dir.join("rivals/target/release").join(RIVALS_PROGRAM);
            if seen.insert(place.clone()) {
                places.push(place);
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who has built the rivals without the libraries of one has its experiments checked all the same, but for what only it knows.
    #[test]
    fn settings_are_checked_by_who_knows_them() {
        let mut spec = TransportSpec::new("srt");
        spec.settings.insert("latency".into(), "120ms".into());
        let rival = |json: &str| serde_json::from_str::<Rival>(json).expect("a rival");
        let left_out = rival(r#"{"name":"srt","available":false,"why":"no headers","get":"apt"}"#);
        assert_eq!(left_out.check(&spec), Ok(()));
        let has = |key: &str| {
            rival(&format!(
                r#"{{"name":"srt","version":"1.5","available":true,"settings":[{{"key":"{key}"}}]}}"#
            ))
        };
        assert_eq!(has("latency").check(&spec), Ok(()));
        let why = has("mode").check(&spec).expect_err("no such setting");
        assert!(why.contains("srt") && why.contains("latency") && why.contains("mode"), "{why}");
    }
}
