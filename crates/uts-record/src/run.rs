//! `run.json`: what became of a run.

use crate::FORMAT;
use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use uts_path::Stats;

/// The file of a run.
pub const RUN_FILE: &str = "run.json";

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// It has its figures.
    Ok,
    /// It has figures, but the world was not as it should have been.
    Invalid,
    /// The transport, or the world, did not do it.
    Failed,
    /// It cannot be carried here.
    Skipped,
}

impl RunStatus {
    /// In text.
    pub fn name(self) -> &'static str {
        match self {
            RunStatus::Ok => "ok",
            RunStatus::Failed => "failed",
            RunStatus::Invalid => "invalid",
            RunStatus::Skipped => "skipped",
        }
    }
}

/// One figure of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The flow that it is about; empty for the run as a whole.
    pub flow: String,
    /// Name of the figure.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: String,
}

impl Figure {
    /// A figure of a flow, or with an empty name of the run.
    pub fn new(
        flow: impl Into<String>,
        name: impl Into<String>,
        value: f64,
        unit: impl Into<String>,
    ) -> Self {
        Figure { flow: flow.into(), name: name.into(), value, unit: unit.into() }
    }
}

/// Fidelity of the world to its model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fidelity {
    /// Lateness of departures against the model, in microseconds: half of them less than this.
    pub lateness_p50_us: Option<f64>,
    /// 90 % of them less than this.
    pub lateness_p90_us: Option<f64>,
    /// 99 % of them less than this.
    pub lateness_p99_us: Option<f64>,
    /// The worst.
    pub lateness_max_us: Option<f64>,
    /// Packets lost outside the model.
    pub lost_outside: Option<u64>,
    /// Share of a processor that the world took.
    pub cpu_share: Option<f64>,
}

/// Processor time of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Which, as `client cubic`.
    pub process: String,
    /// In user space, in seconds; all of it where the system's share is not known.
    pub user_s: f64,
    /// In the system, in seconds.
    pub system_s: Option<f64>,
}

/// Counters of a link at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkStats {
    /// Which, as `bottleneck forward`.
    pub link: String,
    /// Its counters.
    pub stats: Stats,
}

/// A change of the path that the experiment does not name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intervention {
    /// When, in seconds since the run began.
    pub t_s: f64,
    /// Settings that changed: `bottleneck both rate=2mbit`.
    pub change: String,
}

/// `run.json`; see docs/lab.md. Directories of before a field was there lack it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunFile<C> {
    /// The version of the layout.
    pub format: u32,
    /// The run's name.
    #[serde(default)]
    pub id: String,
    /// Outcome of the run.
    pub status: RunStatus,
    /// Why, unless it is ok.
    pub why: Option<String>,
    /// Why earlier attempts were invalid.
    #[serde(default)]
    pub attempts: Vec<String>,
    /// Case that was run: the lab's own, of which a report needs nothing.
    pub case: C,
    /// When it began, in seconds since 1970.
    #[serde(default)]
    pub started_unix_s: f64,
    /// Time that it took, in real time.
    pub elapsed_s: Option<f64>,
    /// The program that ran it.
    pub version: Option<String>,
    /// Its figures.
    #[serde(default)]
    pub measures: Vec<Figure>,
    /// Fidelity of the world.
    pub fidelity: Option<Fidelity>,
    /// Processor time.
    #[serde(default)]
    pub cpu: Vec<Cpu>,
    /// Counters of links.
    #[serde(default)]
    pub links: Vec<LinkStats>,
    /// Changes by hand.
    #[serde(default)]
    pub interventions: Vec<Intervention>,
    /// Remarks on the run.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Reads a run; `C` is what is wanted of its case.
///
/// # Errors
/// The file cannot be read, is not the record of a run, or is one of another version.
pub fn read<C: DeserializeOwned>(file: &Path) -> Result<RunFile<C>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let run: RunFile<C> = serde_json::from_str(&text)
        .with_context(|| format!("{} is not the record of a run", file.display()))?;
    if run.format != FORMAT {
        bail!("{} has format {}, and this program reads format {FORMAT}", file.display(), run.format);
    }
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::IgnoredAny;

    fn file(json: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), json).unwrap();
        file
    }

    #[test]
    fn what_is_written_is_read_and_what_a_report_needs_is_little() {
        let run = RunFile {
            format: FORMAT,
            id: "a".into(),
            status: RunStatus::Invalid,
            why: Some("late".into()),
            attempts: vec!["later".into()],
            case: 7_u8,
            started_unix_s: 1.5,
            elapsed_s: Some(2.0),
            version: Some("uts-lab 1".into()),
            measures: vec![Figure::new("f", "goodput", 1e6, "bit/s")],
            fidelity: Some(Fidelity {
                lateness_p99_us: Some(9.5),
                lost_outside: Some(3),
                ..Fidelity::default()
            }),
            cpu: Vec::new(),
            links: vec![LinkStats { link: "wan forward".into(), stats: Stats::default() }],
            interventions: Vec::new(),
            notes: Vec::new(),
        };
        let whole = file(&serde_json::to_string(&run).unwrap());
        let again: RunFile<u8> = read(whole.path()).unwrap();
        assert_eq!((again.case, again.fidelity, again.links), (7, run.fidelity, run.links));
        let little = file(r#"{"format": 1, "status": "failed"}"#);
        let read_little: RunFile<Option<IgnoredAny>> = read(little.path()).unwrap();
        assert_eq!((read_little.status, read_little.elapsed_s), (RunStatus::Failed, None));
        assert!(read::<u8>(little.path()).is_err(), "the lab needs the case");
        let other = read::<Option<IgnoredAny>>(file(r#"{"format": 2, "status": "ok"}"#).path()).unwrap_err();
        assert!(other.to_string().ends_with("has format 2, and this program reads format 1"), "{other}");
    }
}
