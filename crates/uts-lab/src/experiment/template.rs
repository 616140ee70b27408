//! A transport or a workload as the file has it: settings that sweeps may change before they are
//! read.

use super::problem::Sink;
use super::reader::suggest;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::ops::Range;
use uts_end::TransportSpec;
use uts_traffic::workload::Workload;

/// Settings under a name, with their places.
#[derive(Clone, Debug)]
pub struct Template {
    /// `transport` or `workload`.
    pub group: &'static str,
    /// Its name in the file.
    pub name: String,
    /// All settings, `kind` among them.
    pub settings: Map<String, Value>,
    pub(super) span: Range<usize>,
    pub(super) spans: HashMap<String, Range<usize>>,
}

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
        workload.validate().map_err(|why| match why.split_once(": ") {
            Some((key, why)) if self.settings.contains_key(key) => (Some(key.to_owned()), why.to_owned()),
            _ => (None, why),
        })?;
        Ok(workload)
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
