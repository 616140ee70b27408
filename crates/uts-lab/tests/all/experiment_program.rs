//! `uts-lab run` and its neighbours as programs: interruption and continuation, skipped runs,
//! worlds that agree.

mod lists;
mod records;
mod watching;
mod worlds;

use crate::running::Running;
use crate::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far longer than anything here takes on a machine that is busy.
const LONG: Duration = Duration::from_secs(180);

/// A directory with an experiment in it, and a place of its own for sockets.
struct Bench(TempDir);

impl Bench {
    fn new(experiment: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("e.toml"), experiment).unwrap();
        fs::create_dir(dir.path().join("sockets")).unwrap();
        Bench(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn lab(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command.env("XDG_RUNTIME_DIR", self.path("sockets")).env_remove("UTS_RIVALS");
        command
    }

    fn output(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let Output { status, stdout, stderr } = self.lab(arguments).output().unwrap();
        (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
    }

    /// Runs it all.
    fn run(&self, more: &[&str]) -> (Option<i32>, String) {
        self.output(&[&["run", "e.toml", "--out", "out"], more].concat())
    }

    fn start(&self) -> Running {
        let child = self.lab(&["run", "e.toml", "--out", "out"]).stderr(Stdio::piped()).spawn().unwrap();
        Running(child)
    }

    /// `run.json` of all runs, by their names.
    fn runs(&self) -> BTreeMap<String, Value> {
        let Ok(entries) = fs::read_dir(self.path("out/runs")) else { return BTreeMap::new() };
        let whole = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let whole = whole.filter(|name| !name.starts_with('.'));
        whole.map(|name| (name.clone(), self.json(&format!("out/runs/{name}/run.json")))).collect()
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path(name)).unwrap()).unwrap()
    }

    /// Rows of measures.csv by the names of their columns.
    fn measures(&self) -> Vec<BTreeMap<String, String>> {
        let mut reader = csv::Reader::from_path(self.path("out/measures.csv")).unwrap();
        reader.deserialize().map(Result::unwrap).collect()
    }

    /// The mean of a measure over the repetitions that are valid, by world.
    fn mean(&self, world: &str, workload: &str, measure: &str) -> f64 {
        let rows = self.measures().into_iter().filter(|row| {
            row["world"] == world
                && row["workload"] == workload
                && row["measure"] == measure
                && row["valid"] == "true"
        });
        let values: Vec<f64> = rows.map(|row| row["value"].parse().unwrap()).collect();
        assert!(!values.is_empty(), "no {measure} of {workload} in {world}");
        values.iter().sum::<f64>() / values.len() as f64
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const VOICE: &str = r#"title = "Voice"
world = "relay"
repetitions = 3
timeout = "30s"
sample_every = "20ms"

[path.wan]
forward = "rate=2mbit delay=5ms buffer=20p"

[workload.voice]
kind = "messages"
every = "20ms"
bytes = 160
duration = "700ms"
deadline = "100ms"

[transport.uts]
kind = "uts"

[transport.udp]
kind = "udp"
"#;

/// Tells if hosts can be made here; says so if not.
fn has_router() -> bool {
    let output = Command::new(env!("CARGO_BIN_EXE_uts-lab")).args(["router", "doctor"]).output().unwrap();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        skip::say(said.lines().find(|line| line.starts_with("MISSING")).unwrap_or("no RouterPC here"));
    }
    output.status.success()
}
