//! `plan.json`: what was to be run, and what is to be shown of it.

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::collections::BTreeMap;

/// The version of `plan.json` and `run.json` that this reads.
pub(super) const FORMAT: u32 = 1;

/// An experiment, expanded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Plan {
    pub format: u32,
    pub title: String,
    pub question: Option<String>,
    pub world: Option<String>,
    pub repetitions: Option<u64>,
    pub seed: Option<u64>,
    pub topology: serde_json::Value,
    pub transports: Vec<String>,
    pub workloads: Vec<String>,
    pub paths: Vec<String>,
    pub mixtures: Vec<String>,
    pub sweeps: Vec<Sweep>,
    /// Read one by one, so that one that is wrong does not hide the others.
    pub plots: Vec<serde_json::Value>,
    pub runs: Vec<PlannedRun>,
}

/// A parameter that was varied.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Sweep {
    pub name: String,
    #[serde(default)]
    pub key: Option<String>,
    #[serde(default)]
    pub unit: Option<String>,
    #[serde(default)]
    pub numeric: bool,
    pub values: Vec<SweepValue>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct SweepValue {
    /// As in the file.
    pub text: String,
    /// In the sweep's unit.
    #[serde(default)]
    pub number: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PlannedRun {
    pub id: String,
    pub world: Option<String>,
    pub mixture: Option<String>,
    pub transport: Option<String>,
    pub workload: Option<String>,
    pub path: Option<String>,
    pub sweep: BTreeMap<String, String>,
    pub repetition: Option<u64>,
    pub seed: Option<u64>,
}

/// What kind of picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// A measure against a sweep: means with confidence intervals, a line for each transport.
    Sweep,
    /// Means with confidence intervals as bars.
    Bars,
    /// Repetitions as boxes.
    Box,
    /// Distribution of latency, or of deadline slack.
    Cdf,
    /// One quantity against time, a line for each transport.
    Series,
    /// Everything that was recorded of a run against time, one panel above the other.
    Trace,
    /// Workloads by paths: who is best, by how much, and where UTS stands.
    Matrix,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ScaleName {
    Linear,
    Log,
    /// At equal distances.
    Ordinal,
}

/// A `[[plot]]` of the experiment file. All but `kind` may be left out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plot {
    pub kind: Kind,
    /// `sweep`: the sweep's name. `bars`, `box`: `transport`, `workload`, `path` or a sweep's name.
    #[serde(default)]
    pub x: Option<String>,
    /// Measures, or for `series` and `trace` what was sampled (`sequence`, `window`, `rtt`, `goodput`, `queue`,
    /// `sojourn`), or for `cdf` `latency` or `slack`: a picture for each, but one panel of the same picture for `trace`.
    #[serde(default, deserialize_with = "one_or_many")]
    pub y: Vec<String>,
    #[serde(default)]
    pub title: Option<String>,
    #[serde(default)]
    pub caption: Option<String>,
    /// Only these; all if empty. So are the next three.
    #[serde(default, alias = "transports", deserialize_with = "one_or_many")]
    pub transport: Vec<String>,
    #[serde(default, alias = "workloads", deserialize_with = "one_or_many")]
    pub workload: Vec<String>,
    #[serde(default, alias = "paths", deserialize_with = "one_or_many")]
    pub path: Vec<String>,
    #[serde(default, alias = "mixtures", deserialize_with = "one_or_many")]
    pub mixture: Vec<String>,
    /// Only these values of sweeps, as they are written in the file.
    #[serde(default)]
    pub at: BTreeMap<String, Values>,
    /// `series`, `trace`: the repetition; else the one whose result is the median.
    #[serde(default)]
    pub repetition: Option<u64>,
    #[serde(default)]
    pub x_scale: Option<ScaleName>,
    #[serde(default)]
    pub y_scale: Option<ScaleName>,
    /// `series`, `trace`: the stretch of time, in seconds.
    #[serde(default)]
    pub from_s: Option<f64>,
    #[serde(default)]
    pub to_s: Option<f64>,
    /// `matrix`: the transport that stands for UTS.
    #[serde(default)]
    pub uts: Option<String>,
    /// `matrix`: the measure by which a workload is judged, by the workload's name.
    #[serde(default)]
    pub measures: BTreeMap<String, String>,
}

impl Plot {
    /// A picture of a kind with nothing said about it.
    pub(super) fn of(kind: Kind) -> Self {
        Plot {
            kind,
            x: None,
            y: Vec::new(),
            title: None,
            caption: None,
            transport: Vec::new(),
            workload: Vec::new(),
            path: Vec::new(),
            mixture: Vec::new(),
            at: BTreeMap::new(),
            repetition: None,
            x_scale: None,
            y_scale: None,
            from_s: None,
            to_s: None,
            uts: None,
            measures: BTreeMap::new(),
        }
    }
}

/// One text or number, or several.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Values(pub Vec<String>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        one_or_many(from).map(Values)
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let text = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => Ok(text),
        serde_json::Value::Number(number) => Ok(number.to_string()),
        serde_json::Value::Bool(truth) => Ok(truth.to_string()),
        other => Err(D::Error::custom(format!("expected a text or a list of texts, not {other}"))),
    };
    match serde_json::Value::deserialize(from)? {
        serde_json::Value::Array(list) => list.into_iter().map(text).collect(),
        serde_json::Value::Null => Ok(Vec::new()),
        one => Ok(vec![text(one)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_or_several_values_are_read() {
        let plot = json!({"kind": "sweep", "y": "goodput", "path": ["a", "b"], "at": {"buffer": 8, "loss": ["0", "1"]}});
        let plot: Plot = serde_json::from_value(plot).unwrap();
        assert_eq!((plot.y, plot.path), (vec!["goodput".to_owned()], vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(plot.at["buffer"], Values(vec!["8".into()]));
        assert_eq!(plot.at["loss"], Values(vec!["0".into(), "1".into()]));
    }

    #[test]
    fn a_wrong_key_or_kind_is_named() {
        let of = |value| serde_json::from_value::<Plot>(value).unwrap_err().to_string();
        assert!(of(json!({"kind": "pie"})).contains("unknown variant `pie`, expected one of `sweep`"));
        assert!(of(json!({"kind": "cdf", "colour": "red"})).contains("unknown field `colour`"));
        assert!(of(json!({"kind": "cdf", "y": {"a": 1}})).contains("expected a text or a list of texts"));
    }
}
