//! A case: everything that one run needs to know, and nothing else. `run.json` records it as what
//! was run.

use super::file::{Hosts, Record, Topology, WorldKind};
use super::path::PathSpec;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uts_end::TransportSpec;
use uts_sim_world::SimSource;
use uts_traffic::workload::Workload;
use uts_units::text;

/// One run of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Where it runs.
    pub world: WorldKind,
    /// Its hosts.
    pub topology: Topology,
    /// The paths that a flow passes, from the client's side to the server's. The first is the
    /// bottleneck of a dumbbell.
    pub hops: Vec<PathSpec>,
    /// The flows; more than one in mixtures.
    pub flows: Vec<Flow>,
    /// The mixture that they are, if they are one.
    pub mixture: Option<String>,
    /// The values of the sweeps that concern it, as the file has them: name and text.
    pub sweep: Vec<(String, String)>,
    /// Which repetition, from 1.
    pub repetition: u32,
    /// Seed of everything that is random in it. The same repetition of other transports has the
    /// same.
    pub seed: u64,
    /// Time that the run may take, in the time of its world.
    #[serde(with = "text::duration")]
    pub timeout: Duration,
    /// Interval of the samples of windows and of the bytes that have arrived.
    #[serde(with = "text::duration")]
    pub sample_every: Duration,
    /// Settings of the hosts.
    pub hosts: Hosts,
    /// Background traffic on the paths. For the world `sim`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SimSource>,
    /// Records to write.
    pub record: Record,
}

/// A transport that carries a workload between two hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// The transport's name in the file, with `-2`, `-3` for more of the same.
    pub name: String,
    /// The transport's name in the file.
    pub transport_name: String,
    /// The transport.
    pub transport: TransportSpec,
    /// The workload's name in the file.
    pub workload_name: String,
    /// The workload.
    pub workload: Workload,
    /// The host that connects.
    pub from: String,
    /// The host that is connected to.
    pub to: String,
    /// When it begins, after the earliest.
    #[serde(with = "text::duration")]
    pub start: Duration,
}

impl Case {
    /// Its name: readable, fit for a directory, and other for any other case.
    pub fn id(&self) -> String {
        let mut words = vec![self.world.name().to_owned()];
        match &self.mixture {
            Some(mixture) => words.push(mixture.clone()),
            None => words
                .extend(self.flows.iter().flat_map(|f| [f.transport_name.clone(), f.workload_name.clone()])),
        }
        words.push(self.path_name().replace('>', "-"));
        words.extend(self.sweep.iter().map(|(name, text)| format!("{name}-{text}")));
        words.push(format!("r{}", self.repetition));
        let fits = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let mut id: String = words.join(".").chars().map(fits).collect();
        // File names end at 255 bytes.
        id.truncate(180);
        format!("{id}.{}", self.fingerprint())
    }

    /// Eight hexadecimal digits that differ for any other case.
    fn fingerprint(&self) -> String {
        // A case is plain data with names as keys, which always has a JSON form.
        let json = serde_json::to_vec(self).unwrap_or_default();
        digest(&SHA256, &json).as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Names of the paths.
    pub fn path_name(&self) -> String {
        self.hops.iter().map(|hop| hop.name.as_str()).collect::<Vec<_>>().join(">")
    }

    /// Names of the transports.
    pub fn transport_name(&self) -> String {
        self.flows.iter().map(|flow| flow.transport_name.as_str()).collect::<Vec<_>>().join("+")
    }

    /// Names of the workloads, each once.
    pub fn workload_name(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for flow in &self.flows {
            if !names.contains(&flow.workload_name.as_str()) {
                names.push(&flow.workload_name);
            }
        }
        names.join("+")
    }

    /// For people: `cubic bulk over bottleneck, buffer 5p, repetition 2`.
    pub fn label(&self) -> String {
        let what = self.mixture.clone();
        let what = what.unwrap_or_else(|| format!("{} {}", self.transport_name(), self.workload_name()));
        let mut label = format!("{what} over {}", self.path_name());
        for (name, text) in &self.sweep {
            label.push_str(&format!(", {name} {text}"));
        }
        format!("{label}, repetition {}", self.repetition)
    }
}
