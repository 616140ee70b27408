//! Outcome of a run, as its world tells it, and the file that is made of it.

use super::case::Case;
use uts_record::FORMAT;
use uts_record::run::{Cpu, Fidelity, Figure, Intervention, LinkStats, RunStatus};

/// `run.json`, with its case.
pub type RunFile = uts_record::run::RunFile<Case>;

/// Outcome of a run, as told by the world that carried it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its figures.
    pub measures: Vec<Figure>,
    /// Fidelity of the world; `None` in virtual time, which is never late.
    pub fidelity: Option<Fidelity>,
    /// Processor time of its processes.
    pub cpu: Vec<Cpu>,
    /// Counters of its links.
    pub links: Vec<LinkStats>,
    /// Changes by hand.
    pub interventions: Vec<Intervention>,
    /// Why it must not be believed, if so.
    pub invalid: Option<String>,
    /// Remarks on the run, as that a workload was cut short.
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

/// The file of a run without figures.
pub fn bare(id: &str, case: &Case, status: RunStatus, why: impl Into<String>) -> RunFile {
    RunFile { status, why: Some(why.into()), ..file_of(id, case, Outcome::default()) }
}

/// The file of a run with its outcome.
pub fn file_of(id: &str, case: &Case, outcome: Outcome) -> RunFile {
    let status = if outcome.invalid.is_some() { RunStatus::Invalid } else { RunStatus::Ok };
    RunFile {
        format: FORMAT,
        id: id.to_owned(),
        status,
        why: outcome.invalid,
        attempts: Vec::new(),
        case: case.clone(),
        started_unix_s: 0.0,
        elapsed_s: Some(0.0),
        version: Some(concat!("uts-lab ", env!("CARGO_PKG_VERSION")).into()),
        measures: outcome.measures,
        fidelity: outcome.fidelity,
        cpu: outcome.cpu,
        links: outcome.links,
        interventions: outcome.interventions,
        notes: outcome.notes,
    }
}
