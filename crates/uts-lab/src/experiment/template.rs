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

/// Problem of a setting: its key, if that can be told, and why it is wrong.
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
        self.tell_all(sink, &|template| template.placed_source(topology).map(drop));
    }

    /// Takes the key apart from what is wrong with it, if the table has it.
    fn keyed(&self, why: String) -> Wrong {
        match why.split_once(": ") {
            Some((key, why)) if self.settings.contains_key(key) => (Some(key.to_owned()), why.to_owned()),
            _ => (None, why),
        }
    }

    pub(super) fn check_workload(&self, sink: &Sink) {
        self.tell_all(sink, &|template| template.workload().map(drop));
    }

    pub(super) fn check_transport(&self, sink: &Sink) {
        self.tell_all(sink, &|template| {
            let spec = template.transport()?;
            crate::transports::check(&spec).map_err(|why| {
                let keys = || template.settings.keys().filter(|key| *key != "kind");
                // A setting that has a table names itself before what is in it.
                let named = keys().find(|key| why.contains(&format!("{key}: ")));
                let key = named.or_else(|| keys().find(|key| why.contains(key.as_str())));
                (key.cloned(), suggest(&why))
            })
        });
    }

    /// Tells of everything that is wrong. The check stops at the first fault: what it names is
    /// taken out, and the rest is checked again. What is only wrong because of the gap is not told.
    fn tell_all(&self, sink: &Sink, check: &dyn Fn(&Template) -> Result<(), Wrong>) {
        let mut left = self.clone();
        let mut taken_out: Vec<String> = Vec::new();
        while let Err((key, why)) = check(&left) {
            let key = key.filter(|key| left.settings.contains_key(key));
            let is_missing = why.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
            let is_of_gap = match is_missing {
                Some(name) => taken_out.iter().any(|key| key == name),
                None => key.is_none() && !taken_out.is_empty(),
            };
            if is_of_gap {
                return;
            }
            self.tell(sink, (key.clone(), why.clone()));
            let Some(key) = key.filter(|key| key != "kind") else { return };
            left.take_out(&key, |rest| check(rest).err().is_none_or(|(_, other)| other != why));
            taken_out.push(key);
        }
    }

    /// Takes a setting out; of a table, only the entry without which `is_other` is true.
    fn take_out(&mut self, key: &str, is_other: impl Fn(&Template) -> bool) {
        let entries: Vec<String> = match self.settings.get(key) {
            Some(Value::Object(table)) => table.keys().cloned().collect(),
            _ => Vec::new(),
        };
        for entry in entries {
            let mut rest = self.clone();
            if let Some(Value::Object(table)) = rest.settings.get_mut(key) {
                table.remove(&entry);
            }
            if is_other(&rest) {
                *self = rest;
                return;
            }
        }
        self.settings.remove(key);
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
