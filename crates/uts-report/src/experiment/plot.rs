//! `[[plot]]`: what is to be shown of an experiment.

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::collections::BTreeMap;

/// Kind of a picture.
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
    /// Means with confidence intervals in figures alone.
    Table,
    /// A trace of sequence numbers alone.
    Sequence,
    /// Each packet as a line from one end to the other, the transports one above the other.
    Ladder,
    /// A trace of window, bytes in flight and round-trip time.
    Window,
    /// A trace of the bottleneck's queue, and of the time spent in it.
    Queue,
    /// A series of goodput.
    Goodput,
    /// A distribution of latency, or of slack.
    Latency,
    /// Jain's index of mixtures.
    Fairness,
}

/// All kinds, as an experiment file names them.
pub(super) const KINDS: [&str; 15] = [
    "sweep", "bars", "box", "table", "matrix", "cdf", "latency", "series", "goodput", "trace", "sequence",
    "ladder", "window", "queue", "fairness",
];

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
    /// Measures. For `series` and `trace` what was sampled (`sequence`, `window`, `rtt`, `goodput`,
    /// `queue`, `sojourn`), for `cdf` `latency` or `slack`. There is a picture for each, but for
    /// `trace` a panel of the same picture.
    #[serde(default, deserialize_with = "one_or_many")]
    pub y: Vec<String>,
    #[serde(default)]
    pub title: Option<String>,
    #[serde(default)]
    pub caption: Option<String>,
    /// `sweep`, `bars`, `box`, `table`: what has a line or a colour of its own. This is
    /// `transport`, or whatever else may be `x`. In the latter case there is a picture for each
    /// transport.
    #[serde(default)]
    pub series: Option<String>,
    /// `matrix`: what its rows are, else workloads.
    #[serde(default)]
    pub rows: Option<String>,
    /// `matrix`: what its columns are, else paths.
    #[serde(default)]
    pub columns: Option<String>,
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
    /// `series`, `trace`, `ladder`: the repetition; else the one whose result is the median.
    #[serde(default)]
    pub repetition: Option<u64>,
    #[serde(default)]
    pub x_scale: Option<ScaleName>,
    #[serde(default)]
    pub y_scale: Option<ScaleName>,
    /// The same as `x_scale = "log"`, and below for `y`.
    #[serde(default)]
    pub log_x: bool,
    #[serde(default)]
    pub log_y: bool,
    /// `series`, `trace`, `ladder`: the stretch of time, in seconds.
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
    /// Reads an entry of `plots`; kinds that are short for another become that.
    pub(super) fn read(value: &serde_json::Value) -> serde_json::Result<Self> {
        let plot: Plot = serde_json::from_value(value.clone())?;
        let (kind, y): (Kind, &[&str]) = match plot.kind {
            Kind::Sequence => (Kind::Trace, &["sequence"]),
            Kind::Window => (Kind::Trace, &["window", "rtt"]),
            Kind::Queue => (Kind::Trace, &["queue", "sojourn"]),
            Kind::Goodput => (Kind::Series, &["goodput"]),
            Kind::Latency => (Kind::Cdf, &["latency"]),
            Kind::Fairness => (if plot.x.is_some() { Kind::Sweep } else { Kind::Bars }, &["fairness"]),
            kind => (kind, &[]),
        };
        let y = if plot.y.is_empty() { y.iter().map(|y| (*y).to_owned()).collect() } else { plot.y };
        let scale = |named: Option<ScaleName>, is_log: bool| named.or(is_log.then_some(ScaleName::Log));
        let (x_scale, y_scale) = (scale(plot.x_scale, plot.log_x), scale(plot.y_scale, plot.log_y));
        Ok(Plot { kind, y, x_scale, y_scale, ..plot })
    }

    /// A picture of a kind with nothing said about it.
    pub(super) fn of(kind: Kind) -> Self {
        Plot {
            kind,
            x: None,
            y: Vec::new(),
            series: None,
            rows: None,
            columns: None,
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
            log_x: false,
            log_y: false,
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
    fn every_kind_is_listed_and_short_ones_stand_for_others() {
        for kind in KINDS {
            Plot::read(&json!({"kind": kind})).unwrap();
        }
        let queue = Plot::read(&json!({"kind": "queue"})).unwrap();
        assert_eq!((queue.kind, queue.y), (Kind::Trace, vec!["queue".to_owned(), "sojourn".into()]));
        let log = Plot::read(&json!({"kind": "sweep", "log_x": true})).unwrap();
        assert_eq!((log.x_scale, log.y_scale), (Some(ScaleName::Log), None));
        let slack = Plot::read(&json!({"kind": "latency", "y": "slack"})).unwrap();
        assert_eq!((slack.kind, slack.y), (Kind::Cdf, vec!["slack".to_owned()]));
        let error = Plot::read(&json!({"kind": "?"})).unwrap_err().to_string();
        assert!(KINDS.iter().all(|kind| error.contains(&format!("`{kind}`"))), "{error}");
        assert_eq!(error.matches('`').count(), 2 * (KINDS.len() + 1));
    }

    #[test]
    fn a_wrong_key_or_kind_is_named() {
        let of = |value| serde_json::from_value::<Plot>(value).unwrap_err().to_string();
        assert!(of(json!({"kind": "pie"})).contains("unknown variant `pie`, expected one of `sweep`"));
        assert!(of(json!({"kind": "cdf", "colour": "red"})).contains("unknown field `colour`"));
        assert!(of(json!({"kind": "cdf", "y": {"a": 1}})).contains("expected a text or a list of texts"));
    }
}
