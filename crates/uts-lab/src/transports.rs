//! The transports: those that come with the lab, and the rivals, which have a program of their own.

use crate::names::unknown;
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use uts_end::transport as native;
use uts_end::{Context, Role, TransportSpec};
use uts_traffic::transport::Capabilities;
use uts_traffic::workload::Workload;

/// Says where the program with the rivals is.
pub const RIVALS_VARIABLE: &str = "UTS_RIVALS";
/// The program with the rivals.
pub const RIVALS_PROGRAM: &str = "uts-rival";

const GET_RIVALS: &str = "build it by: make rivals";

/// Transports of the program with the rivals. It may not be here to be asked. All of them go over
/// UDP.
const RIVAL_KINDS: [&str; 4] = ["quinn", "s2n-quic", "srt", "enet"];

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
    /// Description of the rival, in a few words.
    #[serde(default)]
    pub about: String,
    /// Its version.
    pub version: Option<String>,
    /// The rival can be used.
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

/// Refusals of the rivals' programs, by program, transport and workload; `None` where it is
/// carried.
static REFUSALS: Mutex<BTreeMap<(PathBuf, String, String), Option<String>>> = Mutex::new(BTreeMap::new());

impl Rival {
    /// Checks settings, of which a rival that was left out of its program knows none.
    ///
    /// # Errors
    /// Which setting there is not, and which there are.
    pub(crate) fn check(&self, spec: &TransportSpec) -> Result<(), String> {
        let keys: Vec<&str> = self.settings.iter().map(|setting| setting.key.as_str()).collect();
        let wrong = spec.settings.keys().find(|key| self.available && !keys.contains(&key.as_str()));
        wrong.map_or(Ok(()), |key| {
            let why = unknown("setting", key, keys.iter().copied());
            Err(format!("{}: {why}", spec.kind))
        })
    }
}

impl Rivals {
    /// Why a rival cannot carry a workload, if so. Its program knows, as it may depend on settings.
    pub(crate) fn refuse(&self, transport: &TransportSpec, workload: &Workload) -> Option<String> {
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

/// The program with the rivals.
///
/// # Errors
/// It is not here, and how to get it; or it does not say what it has.
pub fn rivals() -> Result<&'static Rivals, String> {
    RIVALS.get_or_init(find_rivals).as_ref().map_err(Clone::clone)
}

/// Checks a transport's settings as far as possible here. The rivals' program checks the rivals'
/// settings.
///
/// # Errors
/// What is wrong, after the kind.
pub fn check(spec: &TransportSpec) -> Result<(), String> {
    if !is_native(spec) {
        let rival = rivals().ok().and_then(|rivals| rivals.list.iter().find(|rival| rival.name == spec.kind));
        if let Some(rival) = rival {
            return rival.check(spec);
        }
        if RIVAL_KINDS.contains(&spec.kind.as_str()) {
            return Ok(());
        }
        let kinds: Vec<&str> = native::kinds().chain(RIVAL_KINDS).collect();
        return Err(unknown("transport", &spec.kind, kinds.iter().copied()));
    }
    // Settings may suit one workload and not another; that is seen case by case.
    let bulk = Workload::Bulk { bytes: Some(1), duration: None };
    let second = Duration::from_secs(1);
    let messages = Workload::Messages { every: second, bytes: 100, duration: second, deadline: second };
    capabilities(spec, &bulk).or_else(|why| capabilities(spec, &messages).map_err(|_| why)).map(|_| ())
}

/// True if a transport comes with the lab.
pub fn is_native(spec: &TransportSpec) -> bool {
    native::kinds().any(|kind| kind == spec.kind)
}

/// True if a transport's packets are UDP datagrams.
pub fn is_over_udp(spec: &TransportSpec) -> bool {
    !matches!(spec.kind.as_str(), "tcp" | "mptcp")
}

/// Checks that the kernel has what a transport of its own is to use.
///
/// # Errors
/// It has no such congestion control.
pub(crate) fn is_in_kernel(spec: &TransportSpec) -> Result<(), String> {
    let named = spec.settings.get("congestion").and_then(|value| value.as_str());
    let missing = named.filter(|_| !is_over_udp(spec)).and_then(native::tcp::missing);
    missing.map_or(Ok(()), Err)
}

pub(crate) fn capabilities(spec: &TransportSpec, workload: &Workload) -> Result<Capabilities, String> {
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

    /// If a rival was built without its library, its experiments are checked all the same, except
    /// for what only the library knows.
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
