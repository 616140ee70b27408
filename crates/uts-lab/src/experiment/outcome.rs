//! What became of a run: `run.json`.

use super::case::Case;
use super::plan::FORMAT;
use serde::{Deserialize, Serialize};
use uts_path::Stats;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// It has its figures.
    Ok,
    /// The transport, or the world, did not do it.
    Failed,
    /// It has figures, but the world was not as it should have been.
    Invalid,
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
    /// What it is.
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

/// How true to the model the world was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fidelity {
    /// How late departures were against the model, in microseconds: half of them less than this.
    pub lateness_p50_us: f64,
    /// 90 % of them less than this.
    pub lateness_p90_us: Option<f64>,
    /// 99 % of them less than this.
    pub lateness_p99_us: f64,
    /// The worst.
    pub lateness_max_us: f64,
    /// Packets lost outside the model.
    pub lost_outside: u64,
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
    /// What: `bottleneck both rate=2mbit`.
    pub change: String,
}

/// What a world has to tell of a run that it carried.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its figures.
    pub measures: Vec<Figure>,
    /// How true it was; `None` in virtual time, which is never late.
    pub fidelity: Option<Fidelity>,
    /// Processor time of its processes.
    pub cpu: Vec<Cpu>,
    /// Counters of its links.
    pub links: Vec<LinkStats>,
    /// Changes by hand.
    pub interventions: Vec<Intervention>,
    /// Why it must not be believed, if so.
    pub invalid: Option<String>,
    /// What else should be known of it, as that a workload was cut short.
    pub notes: Vec<String>,
}

/// Why a world has nothing to tell.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It was told to stop.
    #[error("interrupted")]
    Interrupted,
    /// The transport or the world failed.
    #[error("{0}")]
    Failed(String),
}

impl From<anyhow::Error> for RunError {
    fn from(error: anyhow::Error) -> Self {
        RunError::Failed(format!("{error:#}"))
    }
}

/// `run.json`; see docs/lab.md.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunFile {
    /// The version of the layout.
    pub format: u32,
    /// The run's name.
    pub id: String,
    /// How it ended.
    pub status: RunStatus,
    /// Why, unless it is ok.
    pub why: Option<String>,
    /// Why earlier attempts were invalid.
    #[serde(default)]
    pub attempts: Vec<String>,
    /// What was run.
    pub case: Case,
    /// When it began, in seconds since 1970.
    pub started_unix_s: f64,
    /// How long it took, in the time of whoever waited for it.
    pub elapsed_s: f64,
    /// The program that ran it.
    pub version: String,
    /// Its figures.
    #[serde(default)]
    pub measures: Vec<Figure>,
    /// How true the world was.
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
    /// What else should be known.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl RunFile {
    /// A run without figures.
    pub fn bare(id: &str, case: &Case, status: RunStatus, why: impl Into<String>) -> Self {
        RunFile { status, why: Some(why.into()), ..Self::of(id, case, Outcome::default()) }
    }

    /// A run with its outcome.
    pub fn of(id: &str, case: &Case, outcome: Outcome) -> Self {
        let status = if outcome.invalid.is_some() { RunStatus::Invalid } else { RunStatus::Ok };
        RunFile {
            format: FORMAT,
            id: id.to_owned(),
            status,
            why: outcome.invalid,
            attempts: Vec::new(),
            case: case.clone(),
            started_unix_s: 0.0,
            elapsed_s: 0.0,
            version: concat!("uts-lab ", env!("CARGO_PKG_VERSION")).into(),
            measures: outcome.measures,
            fidelity: outcome.fidelity,
            cpu: outcome.cpu,
            links: outcome.links,
            interventions: outcome.interventions,
            notes: outcome.notes,
        }
    }
}
