//! Sweeps of an experiment: a setting of a path, a transport, a workload or a source, varied over a
//! list of values.

use super::path::{PathSpec, link_problem, schedule_problem};
use super::reader::{Section, to_json};
use super::template::{GROUPS, SOURCE, Template, WORKLOAD};
use crate::names::unknown;
use serde_json::Value;
use std::ops::Range;
use toml::de::DeValue;
use uts_units::{Unit, quantity};

/// Most values of a sweep.
pub const VALUES_MAX: usize = 10_000;

/// A setting and its values.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The name of its column.
    pub name: String,
    /// Key of the setting that it changes, as the file says.
    pub key: String,
    /// The values, in order.
    pub values: Vec<SweepValue>,
    /// Unit of the numbers, if all values are numbers of the same unit.
    pub(crate) unit: Option<Unit>,
    pub(super) target: Target,
}

/// One value of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepValue {
    /// As the file has it.
    pub text: String,
    /// In the base of the sweep's unit.
    pub number: Option<f64>,
    pub(super) value: Value,
}

/// Setting that a sweep changes. A name of `None` stands for all.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    Path { name: Option<String>, forward: bool, backward: bool, setting: PathSetting },
    Template { group: &'static str, name: Option<String>, key: String },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum PathSetting {
    /// One setting of a link.
    One(String),
    /// The whole text of a link.
    Link,
    /// The schedule.
    Schedule,
}

impl Sweep {
    /// True if it changes a path.
    pub(super) fn changes_path(&self, path: &str) -> bool {
        matches!(&self.target, Target::Path { name, .. } if is(name, path))
    }

    /// True if it changes a transport, a workload or a source. A sweep over all that know the
    /// setting passes over the others.
    pub(super) fn changes(&self, template: &Template) -> bool {
        match &self.target {
            Target::Template { group, .. } if *group != template.group => false,
            Target::Template { name: Some(name), .. } => *name == template.name,
            Target::Template { key, .. } => {
                self.values.iter().any(|value| check(template, key, &value.value).is_ok())
            }
            Target::Path { .. } => false,
        }
    }

    /// Changes a path's text forms.
    pub(super) fn apply_to_path(&self, path: &mut PathSpec, value: &SweepValue) {
        let Target::Path { forward, backward, setting, .. } = &self.target else { return };
        let change = |link: &mut String| match setting {
            PathSetting::One(setting) => {
                // Of several settings of a kind, the last one counts.
                *link = format!("{link} {setting}={}", value.text).trim().to_owned();
            }
            PathSetting::Link => link.clone_from(&value.text),
            PathSetting::Schedule => {}
        };
        if *forward {
            change(&mut path.forward);
        }
        if *backward {
            change(&mut path.backward);
        }
        if *setting == PathSetting::Schedule {
            path.schedule.clone_from(&value.text);
        }
    }

    /// The template with the value in its place.
    pub(super) fn apply_to(&self, template: &Template, value: &SweepValue) -> Template {
        match &self.target {
            Target::Template { key, .. } => template.with(key, value.value.clone()),
            Target::Path { .. } => template.clone(),
        }
    }
}

fn is(name: &Option<String>, wanted: &str) -> bool {
    name.as_deref().is_none_or(|name| name == wanted)
}

fn check(template: &Template, key: &str, value: &Value) -> Result<(), String> {
    let changed = template.with(key, value.clone());
    let read = match template.group {
        WORKLOAD => changed.workload().map(|_| ()),
        SOURCE => changed.source().map(|_| ()),
        _ => {
            return changed
                .transport()
                .map_err(|(_, why)| why)
                .and_then(|spec| crate::transports::check(&spec));
        }
    };
    read.map_err(|(_, why)| why)
}

/// Reads all sweeps of a file.
pub(super) fn read(file: &Section<'_, '_>, paths: &[PathSpec], templates: &[&Template]) -> Vec<Sweep> {
    let mut sweeps: Vec<Sweep> = Vec::new();
    for section in file.list("sweep") {
        section.only(&["name", "key", "values", "range"]);
        section.require("key", "what to vary, as \"path.bottleneck.buffer\" or \"transport.*.window\"");
        let Some((key, key_span)) = section.string("key", "what to vary") else { continue };
        let Some(target) = read_target(&section, key, key_span.clone(), paths, templates) else {
            continue;
        };
        let values = read_values(&section);
        if values.is_empty() {
            continue;
        }
        for (value, span) in &values {
            check_value(&section, &target, value, span.clone(), paths, templates);
        }
        let name = section.string("name", "the name of a column").map(|(name, _)| name);
        let name = name.unwrap_or_else(|| key.rsplit('.').next().unwrap_or(key)).to_owned();
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let span = if section.get("name").is_some() { section.span_of("name") } else { key_span };
        if uts_record::measures::is_column(&name) {
            section.wrong(span, "name", format!("`{name}` is a column already; give the sweep a `name`"));
        } else if !name.chars().all(fits) || name.is_empty() {
            section.wrong(span, "name", format!("`{name}` is no name of a column; give the sweep a `name`"));
        } else if sweeps.iter().any(|other| other.name == name) {
            section.wrong(
                span,
                "name",
                format!("there is a sweep `{name}` already; give one of them a `name`"),
            );
        }
        let mut values: Vec<SweepValue> = values.into_iter().map(|(value, _)| value).collect();
        let unit = common_unit(&values);
        if unit.is_none() {
            values.iter_mut().for_each(|value| value.number = None);
        }
        sweeps.push(Sweep { name, key: key.to_owned(), values, unit, target });
    }
    sweeps
}

/// Unit that all values have in common. 0 has any unit.
fn common_unit(values: &[SweepValue]) -> Option<Unit> {
    let units: Option<Vec<(f64, Unit)>> = values.iter().map(|value| quantity(&value.text)).collect();
    let counting: Vec<Unit> =
        units?.into_iter().filter(|(number, _)| *number != 0.0).map(|(_, unit)| unit).collect();
    let first = counting.first().copied().unwrap_or(Unit::One);
    counting.iter().all(|unit| *unit == first).then_some(first)
}

fn read_target(
    section: &Section<'_, '_>,
    key: &str,
    span: Range<usize>,
    paths: &[PathSpec],
    templates: &[&Template],
) -> Option<Target> {
    let parts: Vec<&str> = key.split('.').collect();
    let wrong = |message: String| {
        section.wrong(span.clone(), "key", message);
        None::<Target>
    };
    let named = |what: &str, name: &str, names: Vec<&str>| match name {
        "*" => Ok(None),
        name if names.contains(&name) => Ok(Some(name.to_owned())),
        name => Err(unknown(what, name, names.iter().copied())),
    };
    match parts.as_slice() {
        ["path", name, rest @ ..] if !rest.is_empty() => {
            let name = match named("path", name, paths.iter().map(|path| path.name.as_str()).collect()) {
                Ok(name) => name,
                Err(message) => return wrong(message),
            };
            let (forward, backward, setting) = match rest {
                ["schedule"] => (false, false, PathSetting::Schedule),
                ["forward"] => (true, false, PathSetting::Link),
                ["backward"] => (false, true, PathSetting::Link),
                ["forward", setting] => (true, false, PathSetting::One((*setting).to_owned())),
                ["backward", setting] => (false, true, PathSetting::One((*setting).to_owned())),
                [setting] => (true, true, PathSetting::One((*setting).to_owned())),
                _ => return wrong(format!("`{key}` is not of the form path.NAME.SETTING")),
            };
            Some(Target::Path { name, forward, backward, setting })
        }
        [group, name, setting] if GROUPS.contains(group) => {
            let group = GROUPS.into_iter().find(|known| known == group)?;
            let names = templates.iter().filter(|t| t.group == group).map(|t| t.name.as_str());
            let name = match named(group, name, names.collect()) {
                Ok(name) => name,
                Err(message) => return wrong(message),
            };
            Some(Target::Template { group, name, key: (*setting).to_owned() })
        }
        _ => wrong(format!(
            "`{key}` is nothing that can be varied; expected path.NAME.SETTING, path.NAME.forward.SETTING, \
             transport.NAME.KEY, workload.NAME.KEY or source.NAME.KEY, with * for all names"
        )),
    }
}

/// Checks one value where it is to go, so that the message stands at the value.
fn check_value(
    section: &Section<'_, '_>,
    target: &Target,
    value: &SweepValue,
    span: Range<usize>,
    paths: &[PathSpec],
    templates: &[&Template],
) {
    let base = paths.first().map(|path| path.base.clone()).unwrap_or_default();
    let result = match target {
        Target::Path { setting: PathSetting::One(setting), name, .. } => {
            let own = link_problem(&format!("{setting}={}", value.text), &base);
            // In its place it may contradict another setting.
            own.and_then(|()| {
                let of = |path: &&PathSpec| is(name, &path.name);
                paths.iter().filter(of).try_for_each(|path| {
                    let with = |link: &str| link_problem(&format!("{link} {setting}={}", value.text), &base);
                    with(&path.forward).and(with(&path.backward))
                })
            })
        }
        Target::Path { setting: PathSetting::Link, .. } => link_problem(&value.text, &base),
        Target::Path { setting: PathSetting::Schedule, .. } => {
            schedule_problem(&value.text, &base).map_err(|e| e.to_string())
        }
        Target::Template { group, name, key } => {
            let of_group = templates.iter().filter(|t| t.group == *group && is(name, &t.name));
            check_templates(of_group.copied(), name.is_none(), key, &value.value)
        }
    };
    if let Err(why) = result {
        section.wrong(span, "values", why);
    }
}

/// A sweep of all templates must suit one at least.
fn check_templates<'t>(
    templates: impl Iterator<Item = &'t Template>,
    is_for_all: bool,
    key: &str,
    value: &Value,
) -> Result<(), String> {
    let results = templates.map(|template| check(template, key, value));
    let mut first_error = Ok(());
    for result in results {
        match result {
            Ok(()) if is_for_all => return Ok(()),
            Ok(()) => {}
            Err(why) => first_error = first_error.and(Err(why)),
        }
    }
    first_error
}

fn read_values(section: &Section<'_, '_>) -> Vec<(SweepValue, Range<usize>)> {
    let found = match (section.get("values"), section.get("range")) {
        (Some(_), Some(range)) => {
            section.wrong(range.span(), "range", "a sweep has `values` or a `range`, not both");
            Vec::new()
        }
        (Some(_), None) => listed_values(section),
        (None, Some(_)) => ranged_values(section),
        (None, None) => {
            let message =
                "is missing; expected a list of values, or a `range = { from = 1, to = 63, step = 2 }`";
            section.wrong(section.span.clone(), "values", message);
            Vec::new()
        }
    };
    for (i, (value, span)) in found.iter().enumerate() {
        if found[..i].iter().any(|(other, _)| other.text == value.text) {
            section.wrong(span.clone(), "values", format!("{} is here twice", value.text));
        }
    }
    found
}

fn listed_values(section: &Section<'_, '_>) -> Vec<(SweepValue, Range<usize>)> {
    let mut found = Vec::new();
    let Some(array) = section.array("values", "a list of values, as [\"1p\", \"2p\"]") else { return found };
    if array.is_empty() {
        section.wrong(section.span_of("values"), "values", "expected at least one value");
    }
    for node in array {
        let text = match node.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(integer) => integer.to_string(),
            DeValue::Float(float) => float.as_str().to_owned(),
            DeValue::Boolean(boolean) => boolean.to_string(),
            other => {
                section.mistyped(node.span(), "values", "texts, numbers or true and false", other);
                continue;
            }
        };
        let number = quantity(&text).map(|(number, _)| number);
        found.push((SweepValue { text, number, value: to_json(node) }, node.span()));
    }
    found
}

/// `{ from = 1, to = 63, step = 2, unit = "p" }` or
/// `{ from = 1, to = 1000, count = 10, scale = "log" }`.
fn ranged_values(section: &Section<'_, '_>) -> Vec<(SweepValue, Range<usize>)> {
    let Some(range) = section.section("range") else { return Vec::new() };
    let span = range.span.clone();
    range.only(&["from", "to", "step", "count", "scale", "unit"]);
    range.require("from", "a number");
    range.require("to", "a number");
    let number = |key: &str| {
        let node = range.get(key)?;
        match node.get_ref() {
            DeValue::Integer(integer) => integer.to_string().parse::<f64>().ok(),
            DeValue::Float(float) => float.as_str().parse().ok().filter(|f: &f64| f.is_finite()),
            other => {
                range.mistyped(node.span(), key, "a number", other);
                None
            }
        }
    };
    let (Some(from), Some(to)) = (number("from"), number("to")) else { return Vec::new() };
    let (step, count) = (number("step"), range.whole("count", 2..=VALUES_MAX as u64));
    let unit = range.string("unit", "a unit, as \"p\" or \"ms\"").map_or("", |(unit, _)| unit);
    let logarithmic = match range.string("scale", "\"linear\" or \"log\"") {
        None | Some(("linear", _)) => false,
        Some(("log", _)) => true,
        Some((other, span)) => {
            range.wrong(span, "scale", unknown("scale", other, ["linear", "log"]));
            return Vec::new();
        }
    };
    let numbers: Vec<f64> = match (step, count) {
        (Some(step), None) if step > 0.0 && to >= from && !logarithmic => {
            let steps = ((to - from) / step + 1e-9).floor();
            if steps >= VALUES_MAX as f64 {
                range.wrong(span, "step", format!("gives more than {VALUES_MAX} values"));
                return Vec::new();
            }
            (0..=steps as u64).map(|i| from + i as f64 * step).collect()
        }
        (None, Some(count)) if !logarithmic || (from > 0.0 && to > 0.0) => {
            let share = |i: u64| i as f64 / (count - 1) as f64;
            let at = |i| {
                if logarithmic { from * (to / from).powf(share(i)) } else { from + (to - from) * share(i) }
            };
            (0..count).map(at).collect()
        }
        _ => {
            let expected = "expected a `step` above 0 with from <= to, or a `count`; a log scale takes a count, and \
                            begins and ends above 0";
            range.wrong(span, "step", expected);
            return Vec::new();
        }
    };
    let valued = numbers.into_iter().map(|number| {
        // Twelve digits hide what binary fractions leave.
        let rounded: f64 = format!("{number:.11e}").parse().unwrap_or(number);
        let text = format!("{rounded}{unit}");
        let whole = rounded.fract() == 0.0 && rounded.abs() < 1e15;
        let value = match unit {
            "" if whole => Value::from(rounded as i64),
            "" => Value::from(rounded),
            _ => Value::from(text.clone()),
        };
        (SweepValue { number: quantity(&text).map(|(n, _)| n), text, value }, span.clone())
    });
    valued.collect()
}
