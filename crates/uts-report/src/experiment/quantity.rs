//! Names of measures, the units in which they are shown, and which way is better.

use uts_plot::svg::plain;

/// Which way a measure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    /// A rate, a share.
    Higher,
    /// A time, a waste.
    Lower,
}

/// A measure, to be shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quantity {
    /// As for an axis, without unit.
    pub label: String,
    /// The unit that is shown; may be empty.
    pub unit: &'static str,
    /// From the unit of the data to the one that is shown.
    pub factor: f64,
    /// Which way is better, where that is known.
    pub better: Option<Better>,
}

/// Names by the part before the quantile.
const NAMES: [(&str, &str, Option<Better>); 23] = [
    ("goodput", "Goodput", Some(Better::Higher)),
    ("goodput_share", "Goodput, share of the link’s rate", Some(Better::Higher)),
    ("completion", "Completion time", Some(Better::Lower)),
    ("delivered", "Delivered", Some(Better::Higher)),
    ("file", "Time of a file", Some(Better::Lower)),
    ("files", "Files that arrived", Some(Better::Higher)),
    ("request", "Time of a request", Some(Better::Lower)),
    ("requests_per_s", "Requests per second", Some(Better::Higher)),
    ("answered", "Requests that were answered", Some(Better::Higher)),
    ("latency", "Latency", Some(Better::Lower)),
    ("echo", "Echo time", Some(Better::Lower)),
    ("in_time", "Messages within their deadline", Some(Better::Higher)),
    ("late", "Messages that were late", Some(Better::Lower)),
    ("missing", "Missing", Some(Better::Lower)),
    ("wasted", "Bytes wasted", Some(Better::Lower)),
    ("queue_sojourn", "Time in the bottleneck’s queue", Some(Better::Lower)),
    ("packets_passed", "Packets through the bottleneck", None),
    ("packets_small", "Of these, small", Some(Better::Lower)),
    ("fairness", "Jain’s index of fairness", Some(Better::Higher)),
    ("cpu", "Processor time of both ends", Some(Better::Lower)),
    ("loss", "Loss", Some(Better::Lower)),
    ("due", "Messages due", None),
    ("typed", "Keystrokes", None),
];
const QUANTILES: [(&str, &str); 7] = [
    ("_p50", "Median"),
    ("_p90", "90th-percentile"),
    ("_p95", "95th-percentile"),
    ("_p99", "99th-percentile"),
    ("_p999", "99.9th-percentile"),
    ("_max", "Greatest"),
    ("_mean", "Mean"),
];
/// Shares of 1 that read better as percentages.
const PERCENTAGES: [&str; 3] = ["goodput_share", "in_time", "loss"];

/// Name, unit and scale of a measure whose greatest value is about `max`.
pub(super) fn quantity(measure: &str, unit: &str, max: f64) -> Quantity {
    let split = QUANTILES.iter().find_map(|(end, words)| Some((measure.strip_suffix(end)?, Some(*words))));
    let (stem, words) = split.unwrap_or((measure, None));
    let known = NAMES.iter().find(|(name, ..)| *name == stem);
    let name = known.map_or_else(|| readable(stem), |(_, name, _)| (*name).to_owned());
    let label = words.map_or_else(|| name.clone(), |words| format!("{words} {}", lower(&name)));
    let (unit, factor) = match PERCENTAGES.contains(&measure) && unit == "1" {
        true => ("%", 100.0),
        false => scaled(unit, max),
    };
    Quantity { label, unit, factor, better: known.and_then(|(.., better)| *better) }
}

fn readable(name: &str) -> String {
    uts_plot::html::capitalised(&name.replace('_', " "))
}

/// A name within a phrase.
fn lower(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|c| c.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// The unit in which values up to `max` read well, and the factor to it.
pub(super) fn scaled(unit: &str, max: f64) -> (&'static str, f64) {
    let max = max.abs();
    match unit {
        "bit/s" if max >= 2e9 => ("Gbit/s", 1e-9),
        "bit/s" if max >= 1e6 => ("Mbit/s", 1e-6),
        "bit/s" if max >= 1e3 => ("kbit/s", 1e-3),
        "bit/s" => ("bit/s", 1.0),
        "s" if max >= 2.0 || max == 0.0 => ("s", 1.0),
        "s" if max >= 1e-3 => ("ms", 1e3),
        "s" => ("µs", 1e6),
        "ms" if max >= 10_000.0 => ("s", 1e-3),
        "ms" => ("ms", 1.0),
        "bytes" if max >= 1e9 => ("GB", 1e-9),
        "bytes" if max >= 1e6 => ("MB", 1e-6),
        "bytes" if max >= 1e3 => ("kB", 1e-3),
        "bytes" => ("bytes", 1.0),
        "packets" => ("packets", 1.0),
        "1/s" => ("1/s", 1.0),
        _ => ("", 1.0),
    }
}

impl Quantity {
    /// As an axis is labelled.
    pub(super) fn axis(&self) -> String {
        if self.unit.is_empty() { self.label.clone() } else { format!("{} ({})", self.label, self.unit) }
    }

    /// A value of the data with its unit.
    pub(super) fn show(&self, value: f64) -> String {
        self.with_unit(&self.number(value))
    }

    /// A value of the data in the unit that is shown, to three digits.
    pub(super) fn number(&self, value: f64) -> String {
        three_digits(value * self.factor)
    }

    pub(super) fn with_unit(&self, number: &str) -> String {
        if self.unit.is_empty() { number.into() } else { format!("{number} {}", self.unit) }
    }

    /// A mean with half its confidence interval, which sets the decimals of both.
    pub(super) fn mean(&self, mean: f64, half_width: Option<f64>) -> String {
        let (mean, half) = (mean * self.factor, half_width.map(|half| half * self.factor));
        match half {
            None => self.with_unit(&three_digits(mean)),
            Some(half) => {
                let wanted = decimals(mean);
                self.with_unit(&format!(
                    "{} ± {}",
                    plain(mean, wanted),
                    plain(half, wanted.max(decimals(half).min(wanted + 1)))
                ))
            }
        }
    }
}

/// A number to three digits, whole numbers whole.
pub(super) fn three_digits(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e6 {
        return plain(value, 0);
    }
    plain(value, decimals(value))
}

fn decimals(value: f64) -> usize {
    match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 || v == 0.0 => 2,
        v if v >= 0.1 => 3,
        v if v >= 0.01 => 4,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_read_well() {
        let goodput = quantity("goodput", "bit/s", 94e6);
        assert_eq!(goodput.axis(), "Goodput (Mbit/s)");
        assert_eq!(goodput.show(94.26e6), "94.3 Mbit/s");
        assert_eq!(goodput.mean(94.26e6, Some(0.51e6)), "94.3 ± 0.51 Mbit/s");
        assert_eq!(quantity("in_time", "1", 1.0).show(0.9712), "97.1 %");
        assert_eq!(quantity("request_p99", "ms", 300.0).axis(), "99th-percentile time of a request (ms)");
        assert_eq!(
            quantity("queue_sojourn_mean", "s", 0.12).axis(),
            "Mean time in the bottleneck’s queue (ms)"
        );
        assert_eq!(quantity("fairness", "1", 1.0).axis(), "Jain’s index of fairness");
        let own = quantity("bytes_on_wire", "bytes", 5e6);
        assert_eq!((own.axis().as_str(), own.better), ("Bytes on wire (MB)", None));
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in
            [(0.0, "0"), (0.012_34, "0.0123"), (1.5, "1.50"), (98.76, "98.8"), (1234.5, "1234"), (7.0, "7")]
        {
            assert_eq!(three_digits(value), text);
        }
    }
}
