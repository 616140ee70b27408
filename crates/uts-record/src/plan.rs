//! `plan.json`: what is to be run, and what is to be shown of it.

use crate::FORMAT;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The file that makes a directory one of an experiment.
pub const PLAN_FILE: &str = "plan.json";

/// An experiment, expanded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Plan {
    /// [`FORMAT`].
    pub format: u32,
    /// The title of the experiment.
    pub title: String,
    /// Question that it is to answer.
    pub question: Option<String>,
    /// The worlds, joined by `+`.
    pub world: Option<String>,
    /// All of them, if there are several.
    pub worlds: Vec<String>,
    /// Number of runs of each case.
    pub repetitions: Option<u64>,
    /// The seed of the first repetition.
    pub seed: Option<u64>,
    /// Layout of hosts and paths.
    pub topology: serde_json::Value,
    /// Names of the transports, in the order of the file, as are the next three.
    pub transports: Vec<String>,
    /// Names of the workloads.
    pub workloads: Vec<String>,
    /// Names of the paths.
    pub paths: Vec<String>,
    /// Names of the mixtures.
    pub mixtures: Vec<String>,
    /// Settings that are varied.
    pub sweeps: Vec<Sweep>,
    /// Read one by one, so that one that is wrong does not hide the others.
    pub plots: Vec<serde_json::Value>,
    /// All runs.
    pub runs: Vec<PlannedRun>,
}

/// A parameter that was varied.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sweep {
    /// The name of its column.
    pub name: String,
    /// Key of the setting that it changes, as the file says.
    #[serde(default)]
    pub key: Option<String>,
    /// Unit of its numbers, if all have the same.
    #[serde(default)]
    pub unit: Option<String>,
    /// All its values are numbers.
    #[serde(default)]
    pub numeric: bool,
    /// Its values, in the order of the file.
    pub values: Vec<SweepValue>,
}

impl Sweep {
    /// A value as `measures.csv` has it: the number, if all values of the sweep are numbers.
    pub fn column(&self, text: &str) -> String {
        let number = self.values.iter().find(|value| value.text == text).and_then(|value| value.number);
        number.filter(|_| self.numeric).map_or_else(|| text.to_owned(), |number| number.to_string())
    }
}

/// A value of a sweep.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SweepValue {
    /// As in the file.
    pub text: String,
    /// In the sweep's unit.
    #[serde(default)]
    pub number: Option<f64>,
}

/// A run of the plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlannedRun {
    /// Its name.
    pub id: String,
    /// Its world.
    pub world: Option<String>,
    /// Its mixture, if it has several flows.
    pub mixture: Option<String>,
    /// Its transport.
    pub transport: Option<String>,
    /// Its workload.
    pub workload: Option<String>,
    /// Its path, or those of its chain.
    pub path: Option<String>,
    /// The value of each sweep that concerns it, by its name.
    pub sweep: BTreeMap<String, String>,
    /// Which repetition it is.
    pub repetition: Option<u64>,
    /// Its seed.
    pub seed: Option<u64>,
}

impl Plan {
    /// As it stands in the file: by the names of its keys, in the order of the alphabet.
    ///
    /// # Errors
    /// A part of it cannot be JSON.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        let value = serde_json::to_value(self).context("cannot put the plan into JSON")?;
        serde_json::to_vec_pretty(&value).context("cannot put the plan into JSON")
    }

    /// Reads the plan of a directory.
    ///
    /// # Errors
    /// It cannot be read, is none, or is one of another version.
    pub fn read(dir: &Path) -> Result<Self> {
        let file = dir.join(PLAN_FILE);
        let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let plan: Plan = serde_json::from_slice(&bytes)
            .with_context(|| format!("{} is not what it should be", file.display()))?;
        ensure!(
            plan.format == FORMAT,
            "{} has format {}, and this program reads format {FORMAT}",
            file.display(),
            plan.format
        );
        Ok(plan)
    }
}
