//! A transport, a workload or a source as the file has it: settings that sweeps may change before
//! they are read.

use super::file::Topology;
use super::problem::Sink;
use super::reader::suggest;
use crate::names::unknown;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::ops::Range;
use uts_end::TransportSpec;
use uts_sim_world::{SimSource, SourceSpec};
use uts_traffic::workload::Workload;

/// Tables of transports.
pub(super) const TRANSPORT: &str = "transport";
/// Tables of workloads.
pub(super) const WORKLOAD: &str = "workload";
/// Tables of background traffic.
pub(super) const SOURCE: &str = "source";
/// All kinds of tables of which a template is made.
pub(super) const GROUPS: [&str; 3] = [TRANSPORT, WORKLOAD, SOURCE];

/// Settings under a name, with their places.
#[derive(Clone, Debug)]
pub struct Template {
    /// `transport`, `workload` or `source`.
    pub group: &'static str,
    /// Its name in the file.
    pub name: String,
    /// All settings, `kind` among them.
    pub settings: Map<String, Value>,
    pub(super) span: Range<usize>,
    pub(super) spans: HashMap<String, Range<usize>>,
}

/// Where background traffic enters the network, and where it leaves it.
const PLACES: [&str; 2] = ["from", "to"];

/// What is wrong with a setting: its key, if that can be told, and why.
pub(super) type Wrong = (Option<String>, String);

impl Template {
    /// Its kind.
    pub fn kind(&self) -> &str {
        self.settings.get("kind").and_then(Value::as_str).unwrap_or_default()
    }

    /// The same with another value of a setting.
    #[must_use]
    pub fn with(&self, key: &str, value: Value) -> Template {
        let mut changed = self.clone();
        changed.settings.insert(key.to_owned(), value);
        changed
    }

    /// As a transport.
    pub(super) fn transport(&self) -> Result<TransportSpec, Wrong> {
        read::<TransportSpec>(&self.settings)
    }

    /// As a workload.
    pub(super) fn workload(&self) -> Result<Workload, Wrong> {
        let workload: Workload = read(&self.settings)?;
        workload.validate().map_err(|why| self.keyed(why))?;
        Ok(workload)
    }

    /// As background traffic, without where it enters and leaves.
    pub(super) fn source(&self) -> Result<SourceSpec, Wrong> {
        let mut settings = self.settings.clone();
        settings.retain(|key, _| !PLACES.contains(&key.as_str()));
        let spec: SourceSpec = read(&settings)?;
        spec.validate().map_err(|why| self.keyed(why))?;
        Ok(spec)
    }

    /// As background traffic over a topology: from its first node to its last if nothing is said.
    pub(super) fn placed_source(&self, topology: &Topology) -> Result<SimSource, Wrong> {
        let spec = self.source()?;
        let nodes = topology.nodes();
        let place = |key: &str, default: Option<&String>| match self.settings.get(key) {
            None => Ok(default.cloned().unwrap_or_default()),
            Some(value) => {
                let name = value.as_str().unwrap_or_default();
                let is_known = nodes.iter().any(|node| node == name);
                let wrong = || match value.is_string() {
                    true => unknown("node", name, nodes.iter().map(String::as_str)),
                    false => format!("expected the name of a node, not {value}"),
                };
                if is_known { Ok(name.to_owned()) } else { Err((Some(key.to_owned()), wrong())) }
            }
        };
        let [from, to] = [place(PLACES[0], nodes.first())?, place(PLACES[1], nodes.last())?];
        if from == to {
            return Err((Some(PLACES[1].to_owned()), format!("`{to}` is where its packets enter, too")));
        }
        Ok(SimSource { name: self.name.clone(), from, to, spec })
    }

    pub(super) fn check_source(&self, topology: &Topology, sink: &Sink) {
        if let Err(wrong) = self.placed_source(topology) {
            self.tell(sink, wrong);
        }
    }

    /// Takes the key apart from what is wrong with it, if the table has it.
    fn keyed(&self, why: String) -> Wrong {
        match why.split_once(": ") {
            Some((key, why)) if self.settings.contains_key(key) => (Some(key.to_owned()), why.to_owned()),
            _ => (None, why),
        }
    }

    pub(super) fn check_workload(&self, sink: &Sink) {
        if let Err(wrong) = self.workload() {
            self.tell(sink, wrong);
        }
    }

    pub(super) fn check_transport(&self, sink: &Sink) {
        let checked = self.transport().and_then(|spec| {
            crate::transports::check(&spec).map_err(|why| {
                let key = self.settings.keys().find(|key| *key != "kind" && why.contains(key.as_str()));
                (key.cloned(), suggest(&why))
            })
        });
        if let Err(wrong) = checked {
            self.tell(sink, wrong);
        }
    }

    fn tell(&self, sink: &Sink, (key, why): Wrong) {
        let name = format!("{}.{}", self.group, self.name);
        match key.and_then(|key| Some((self.spans.get(&key)?.clone(), key))) {
            Some((span, key)) => sink.add(span, format!("{name}.{key}"), why),
            None => sink.add(self.span.clone(), name, why),
        }
    }
}

/// Reads settings by serde. For tagged enums, serde does not say which key is wrong: it is the one
/// without which the message differs.
fn read<T: serde::de::DeserializeOwned>(settings: &Map<String, Value>) -> Result<T, Wrong> {
    let attempt = |settings: Map<String, Value>| {
        serde_json::from_value::<T>(Value::Object(settings)).map_err(|e| e.to_string())
    };
    let why = match attempt(settings.clone()) {
        Ok(value) => return Ok(value),
        Err(why) => why,
    };
    let mentioned = settings.keys().find(|key| why.starts_with(&format!("unknown field `{key}`")));
    let key = mentioned.or_else(|| {
        // Without its kind, any table is another matter.
        let is_culprit = |key: &&String| {
            let mut without = settings.clone();
            without.remove(*key);
            attempt(without).err().as_ref() != Some(&why) && !why.starts_with("missing field")
        };
        settings.keys().filter(|key| *key != "kind").chain(settings.keys()).find(is_culprit)
    });
    Err((key.cloned(), suggest(&why)))
}
