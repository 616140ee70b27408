//! Which runs a picture is about, and what it is called by.

use super::directory::{Dimension, Directory, Kind, Place, Run, RunStatus};
use super::looks::base;
use super::plot::Plot;
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};

/// Selection that a picture was restricted to.
pub(super) struct Selection {
    /// For each dimension the values; all if `None`.
    places: Vec<Option<Vec<usize>>>,
    who: Option<Vec<String>>,
    repetition: Option<u64>,
}

impl Selection {
    /// Reads it from a plot.
    ///
    /// # Errors
    /// A name is not one of the experiment.
    pub(super) fn of(directory: &Directory, plot: &Plot) -> Result<Self> {
        let mut places = vec![None; directory.dimensions.len()];
        let named =
            [(Kind::Workload, &plot.workload), (Kind::Path, &plot.path), (Kind::Mixture, &plot.mixture)];
        for (kind, wanted) in named {
            let at = directory.dimension(&kind);
            if !wanted.is_empty() {
                places[at] = Some(found(&directory.dimensions[at], wanted)?);
            }
        }
        for (name, wanted) in &plot.at {
            let at = sweep(directory, name)?;
            places[at] = Some(found_values(directory, at, &wanted.0)?);
        }
        for name in &plot.transport {
            if !directory.names.contains(name) {
                bail!("{}", unknown("transport", name, &directory.plan.transports));
            }
        }
        let who = (!plot.transport.is_empty()).then(|| plot.transport.clone());
        Ok(Selection { places, who, repetition: plot.repetition })
    }

    /// True if it is about a transport at a place.
    pub(super) fn admits(&self, directory: &Directory, place: &Place, who: usize) -> bool {
        let is_here =
            |(wanted, at): (&Option<Vec<usize>>, &usize)| wanted.as_ref().is_none_or(|w| w.contains(at));
        let name = directory.names.get(who).map_or("", String::as_str);
        let is_wanted = |wanted: &Vec<String>| {
            let transport = base(name, &directory.names);
            // A mixture's runs have the names of all its transports.
            let is_part = |w: &String| name.split('+').any(|part| part == w);
            wanted.iter().any(|w| w == name || w == transport || is_part(w))
        };
        self.places.iter().zip(place).all(is_here) && self.who.as_ref().is_none_or(is_wanted)
    }

    /// Runs that ended well.
    pub(super) fn runs<'a>(&'a self, directory: &'a Directory) -> impl Iterator<Item = &'a Run> {
        directory.runs.iter().filter(|run| {
            run.record.as_ref().is_some_and(|r| r.status == RunStatus::Ok)
                && self.repetition.is_none_or(|r| r == run.repetition)
                && self.admits(directory, &run.place, run.who)
        })
    }
}

/// The dimension of a sweep.
pub(super) fn sweep(directory: &Directory, name: &str) -> Result<usize> {
    let is_it = |d: &Dimension| matches!(d.kind, Kind::Sweep(_)) && d.name == name;
    let names: Vec<String> = directory.plan.sweeps.iter().map(|s| s.name.clone()).collect();
    directory
        .dimensions
        .iter()
        .position(is_it)
        .ok_or_else(|| anyhow::anyhow!("{}", unknown("sweep", name, &names)))
}

/// The dimension that a plot names: `transport`, `workload`, `path`, `world`, `mixture` or a sweep.
pub(super) fn dimension(directory: &Directory, name: &str) -> Result<usize> {
    if name == "transport" {
        return Ok(directory.transports());
    }
    directory.dimensions.iter().position(|d| d.name == name).ok_or_else(|| {
        let names: Vec<String> = std::iter::once("transport".to_owned())
            .chain(directory.dimensions.iter().map(|d| d.name.clone()))
            .collect();
        anyhow::anyhow!("{}", unknown("axis", name, &names))
    })
}

/// "there is no sweep `bufer`; there are buffer, window".
pub(super) fn unknown(what: &str, wrong: &str, names: &[String]) -> String {
    match names {
        [] => format!("there is no {what} `{wrong}`, nor any other"),
        [one] => format!("there is no {what} `{wrong}`; there is {one}"),
        all => format!("there is no {what} `{wrong}`; there are {}", all.join(", ")),
    }
}

fn found(dimension: &Dimension, wanted: &[String]) -> Result<Vec<usize>> {
    let place = |name: &String| match dimension.values.iter().position(|v| v == name) {
        Some(at) => Ok(at),
        None => bail!("{}", unknown(&dimension.name, name, &dimension.values)),
    };
    wanted.iter().map(place).collect()
}

/// Values of a sweep, by their text or by their number.
fn found_values(directory: &Directory, at: usize, wanted: &[String]) -> Result<Vec<usize>> {
    let dimension = &directory.dimensions[at];
    let Kind::Sweep(sweep) = dimension.kind else { return found(dimension, wanted) };
    let values = &directory.plan.sweeps[sweep].values;
    let place = |text: &String| {
        let number: Option<f64> = text.parse().ok();
        match values.iter().position(|v| v.text == *text || (number.is_some() && v.number == number)) {
            Some(at) => Ok(at),
            None => bail!("{}", unknown(&format!("value of {}", dimension.name), text, &dimension.values)),
        }
    };
    wanted.iter().map(place).collect()
}

/// Values of a measure: for each place (transport included, without what the picture spreads), each
/// line and each value of `x`.
pub(super) struct Gathered {
    /// The unit of the data.
    pub unit: String,
    pub panels: BTreeMap<Place, BTreeMap<usize, BTreeMap<usize, Vec<f64>>>>,
}

/// Collects the values of a measure, over all values of the dimensions `without`.
///
/// # Errors
/// There is no such measure, or there is nothing of it yet.
pub(super) fn gather(
    directory: &Directory,
    selection: &Selection,
    measure: &str,
    (x, series): (Option<usize>, usize),
    without: &[usize],
) -> Result<Gathered> {
    let mut gathered = Gathered { unit: String::new(), panels: BTreeMap::new() };
    let mut names = BTreeSet::new();
    for seen in &directory.observations {
        if seen.measure != measure {
            names.insert(seen.measure.as_str());
            continue;
        }
        if !seen.valid || !selection.admits(directory, &seen.place, seen.who) {
            continue;
        }
        let mut place = seen.place.clone();
        place.push(seen.who);
        let at = x.and_then(|x| place.get_mut(x)).map_or(0, std::mem::take);
        let line = place.get_mut(series).map_or(0, std::mem::take);
        for at in without {
            place[*at] = 0;
        }
        gathered.unit.clone_from(&seen.unit);
        let lines = gathered.panels.entry(place).or_default();
        lines.entry(line).or_default().entry(at).or_default().push(seen.value);
    }
    if gathered.panels.is_empty() {
        let is_known = directory.observations.iter().any(|o| o.measure == measure);
        if !is_known && !names.is_empty() {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            bail!("{}", unknown("measure", measure, &names));
        }
        bail!("no valid run has a figure of `{measure}` yet");
    }
    Ok(gathered)
}

/// "reno: 5 skipped; bbr: 8 invalid, 2 failed": the runs of a picture that have no figure in it.
pub(super) fn left_out(
    directory: &Directory,
    selection: &Selection,
    place: &Place,
    without: &[usize],
) -> String {
    let mut counts: BTreeMap<usize, BTreeMap<&str, usize>> = BTreeMap::new();
    for run in &directory.runs {
        let own = run.place.iter().chain([&run.who]);
        let is_here = own.zip(place).enumerate().all(|(at, (a, b))| without.contains(&at) || a == b);
        let word = match run.record.as_ref().map(|record| record.status) {
            Some(RunStatus::Ok) => continue,
            Some(RunStatus::Invalid) => "invalid",
            Some(RunStatus::Failed) => "failed",
            Some(RunStatus::Skipped) => "skipped",
            None => "not run yet",
        };
        if is_here && selection.admits(directory, &run.place, run.who) {
            *counts.entry(run.who).or_default().entry(word).or_default() += 1;
        }
    }
    let one = |(who, words): (&usize, &BTreeMap<&str, usize>)| {
        let words: Vec<String> = words.iter().map(|(word, count)| format!("{count} {word}")).collect();
        format!("{}: {}", directory.names[*who], words.join(", "))
    };
    counts.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// "cubic: bulk over bottleneck, window 48kB, in sim": a place in words, without dimensions that
/// the picture spreads.
pub(super) fn place_in_words(directory: &Directory, place: &Place, without: &[usize]) -> String {
    let (mut head, mut rest) = (String::new(), Vec::new());
    if place.len() > directory.transports() && !without.contains(&directory.transports()) {
        head = format!("{}: ", directory.value(place, directory.transports()));
    }
    for (at, dimension) in directory.dimensions.iter().enumerate() {
        let value = directory.value(place, at);
        if without.contains(&at) || value.is_empty() {
            continue;
        }
        match dimension.kind {
            Kind::World if dimension.values.len() > 1 => rest.push(format!("in {value}")),
            Kind::World => {}
            Kind::Mixture => head.push_str(&format!("mixture {value}: ")),
            Kind::Workload => head.push_str(value),
            Kind::Path => {
                let over = if head.is_empty() || head.ends_with(' ') { "over " } else { " over " };
                head.push_str(&format!("{over}{value}"));
            }
            Kind::Sweep(_) => rest.push(format!("{} {value}", dimension.name)),
        }
    }
    if !head.is_empty() {
        rest.insert(0, head);
    }
    rest.join(", ")
}

/// Settings of a path (of each, for a chain) in the experiment file, as "bottleneck: rate 5mbit,
/// delay 10ms".
pub(super) fn path_in_words(directory: &Directory, place: &Place) -> Option<String> {
    let name = directory.value(place, directory.dimension(&Kind::Path));
    let one = |name: &str| {
        let mut table = directory.entry("path", name)?.clone();
        let keys = directory.plan.sweeps.iter().filter_map(|sweep| sweep.key.as_deref());
        let swept = keys.filter_map(|key| swept_key(key, name)).collect::<Vec<_>>();
        swept.iter().for_each(|key| replace_swept(&mut table, key));
        // What is the same both ways is said once.
        if table.get("forward").is_some() && table.get("forward") == table.get("backward") {
            let both = table.remove("forward");
            table.remove("backward");
            table.insert("both ways".into(), both.unwrap_or_else(|| "".into()));
        }
        Some(format!("{name}: {}", table_in_words(&table)))
    };
    let all: Vec<String> = name.split('>').filter_map(|name| one(name.trim())).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// The last part of a sweep's key, as `buffer` of `path.*.buffer`, if it is about this path.
fn swept_key<'k>(key: &'k str, path: &str) -> Option<&'k str> {
    let (whose, what) = key.strip_prefix("path.")?.split_once('.')?;
    (whose == path || whose == "*").then(|| what.rsplit('.').next().unwrap_or(what))
}

/// A swept setting does not have the file's value, neither as a value of its own nor within a
/// link's settings.
fn replace_swept(table: &mut toml::Table, key: &str) {
    for (name, value) in table.iter_mut() {
        let Some(text) = value.as_str() else { continue };
        if name == key {
            *value = "as swept".into();
            continue;
        }
        let word = |word: &str| match word.split_once('=') {
            Some((name, _)) if name == key => format!("{name}=(swept)"),
            _ => word.to_owned(),
        };
        *value = text.split_whitespace().map(word).collect::<Vec<_>>().join(" ").into();
    }
}

/// A table as "key value, key value".
pub(super) fn table_in_words(table: &toml::Table) -> String {
    let value = |value: &toml::Value| match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Table(inner) => format!("({})", table_in_words(inner)),
        toml::Value::Array(list) => list
            .iter()
            .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
            .collect::<Vec<_>>()
            .join(", "),
        other => other.to_string(),
    };
    table
        .iter()
        .map(|(key, v)| format!("{} {}", key.replace('_', " "), value(v)))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_swept_is_not_told_as_it_stands_in_the_file() {
        let mut table: toml::Table =
            "rate = \"5mbit\"\nbuffer = \"9p\"\nforward = \"delay=2ms buffer=63p\"".parse().unwrap();
        replace_swept(&mut table, "buffer");
        assert_eq!(table_in_words(&table), "rate 5mbit, buffer as swept, forward delay=2ms buffer=(swept)");
        assert_eq!(swept_key("path.*.buffer", "atm"), Some("buffer"));
        assert_eq!(swept_key("path.atm.forward.buffer", "atm"), Some("buffer"));
        assert_eq!(swept_key("path.other.buffer", "atm"), None);
        assert_eq!(swept_key("transport.*.window", "atm"), None);
    }
}
