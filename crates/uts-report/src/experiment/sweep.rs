//! A measure against a sweep, and measures as bars and boxes: means of repetitions with their
//! confidence intervals.

use super::chart::{Chart, Data, Datum};
use super::directory::{Dimension, Directory, Kind, Place};
use super::looks::{Looks, of_value};
use super::plot::{self, Plot, ScaleName};
use super::quantity::{Quantity, quantity, scaled};
use super::select::{Gathered, Selection, dimension, gather, left_out, path_in_words, place_in_words};
use super::stats::{Mean, quartiles};
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use uts_plot::svg::{Axis, Entry, Look, Mark, Panel, Picture, Scale, Swatch};

const WIDTH: f64 = 580.0;
const WIDE: f64 = 980.0;
const HEIGHT: f64 = 260.0;
/// A logarithmic axis is chosen unasked if values span so much.
const LOG_FROM: f64 = 30.0;
/// Boxes show each value up to this many.
const POINTS_MAX: usize = 24;

/// Values of one transport, or of whatever else has a line of its own, by the index of `x`.
struct Line {
    name: String,
    look: Look,
    values: BTreeMap<usize, Vec<f64>>,
}

/// View of one place, as it is drawn.
struct View<'a> {
    directory: &'a Directory,
    plot: &'a Plot,
    measure: &'a str,
    place: &'a Place,
    lines: &'a [Line],
    /// Dimension of the lines.
    series: usize,
    /// Dimensions that the picture spreads.
    without: Vec<usize>,
    /// The greatest value of all pictures that differ in sweeps alone, to have the same axis.
    reach: f64,
    left_out: String,
    quantity: Quantity,
}

/// Pictures of a measure against a sweep, one for each place.
///
/// # Errors
/// The plot names something that is not there.
pub(super) fn sweeps(directory: &Directory, looks: &Looks, plot: &Plot) -> Result<Vec<Chart>> {
    let x = match (&plot.x, directory.plan.sweeps.first()) {
        (Some(name), _) => dimension(directory, name)?,
        (None, Some(first)) => dimension(directory, &first.name)?,
        (None, None) => bail!("a picture of kind sweep needs a sweep, and the experiment has none"),
    };
    if x == directory.transports() {
        return bars(directory, looks, plot);
    }
    each(directory, looks, plot, Some(x), |view| against(view, x))
}

/// Bars or boxes, one picture for each place.
///
/// # Errors
/// The plot names something that is not there.
pub(super) fn bars(directory: &Directory, looks: &Looks, plot: &Plot) -> Result<Vec<Chart>> {
    let x = bars_axis(directory, plot)?;
    each(directory, looks, plot, x, |view| grouped(view, x))
}

/// Figures alone, a table for each place.
///
/// # Errors
/// The plot names something that is not there.
pub(super) fn tables(directory: &Directory, looks: &Looks, plot: &Plot) -> Result<Vec<Chart>> {
    let mut charts = bars(directory, looks, plot)?;
    charts.iter_mut().for_each(|chart| chart.svg.clear());
    Ok(charts)
}

/// Dimension of the groups of bars; `None` if each bar stands for itself.
fn bars_axis(directory: &Directory, plot: &Plot) -> Result<Option<usize>> {
    let series = lines_of(directory, plot)?;
    let paths = directory.dimension(&Kind::Path);
    let x = match plot.x.as_deref() {
        Some(name) => dimension(directory, name)?,
        None if directory.dimensions[paths].values.len() > 1 => paths,
        None => series,
    };
    Ok((x != series).then_some(x))
}

fn lines_of(directory: &Directory, plot: &Plot) -> Result<usize> {
    plot.series.as_deref().map_or(Ok(directory.transports()), |name| dimension(directory, name))
}

fn each(
    directory: &Directory,
    looks: &Looks,
    plot: &Plot,
    x: Option<usize>,
    draw: impl Fn(&View<'_>) -> Chart,
) -> Result<Vec<Chart>> {
    let selection = Selection::of(directory, plot)?;
    let series = lines_of(directory, plot)?;
    if x == Some(series) {
        bail!("`x` and `series` are both {}; a line needs another axis", directory.title(series));
    }
    let mut without: Vec<usize> = x.into_iter().chain([series]).collect();
    let workloads = directory.dimension(&Kind::Workload);
    // A flow of a mixture has its workload with the mixture.
    if without.contains(&directory.dimension(&Kind::Mixture)) {
        without.push(workloads);
    }
    let mut charts = Vec::new();
    for (measure, workload) in measures(directory, plot) {
        let Gathered { unit, panels } = gather(directory, &selection, &measure, (x, series), &without)?;
        let is_other = |place: &Place| {
            workload.as_ref().is_some_and(|w| w != directory.value(place, workloads))
                && !without.contains(&workloads)
        };
        let mut reaches: BTreeMap<Place, f64> = BTreeMap::new();
        for (place, lines) in &panels {
            let most =
                lines.values().flat_map(|l| l.values().flatten()).fold(0.0, |a: f64, b| a.max(b.abs()));
            let reach = reaches.entry(without_sweeps(directory, place)).or_default();
            *reach = reach.max(most);
        }
        for (place, lines) in panels.iter().filter(|(place, _)| !is_other(place)) {
            let reach = reaches.get(&without_sweeps(directory, place)).copied().unwrap_or_default();
            let line = |(at, values): (&usize, &BTreeMap<usize, Vec<f64>>)| {
                let name = directory.values(series).get(*at).map_or("", String::as_str);
                let (name, look) = match series == directory.transports() {
                    true => (name.to_owned(), looks.get(*at)),
                    false => (format!("{} {name}", directory.title(series)), of_value(*at)),
                };
                Line { name, look, values: values.clone() }
            };
            let lines: Vec<Line> = lines.iter().map(line).collect();
            charts.push(draw(&View {
                directory,
                plot,
                measure: &measure,
                place,
                lines: &lines,
                series,
                without: without.clone(),
                reach,
                left_out: left_out(directory, &selection, place, &without),
                quantity: quantity(&measure, &unit, reach),
            }));
        }
    }
    Ok(charts)
}

/// Places that differ in sweeps or transports alone have the same.
fn without_sweeps(directory: &Directory, place: &Place) -> Place {
    let is_free = |at: usize| directory.is_sweep(at) || at == directory.transports();
    place.iter().enumerate().map(|(at, value)| if is_free(at) { 0 } else { *value }).collect()
}

/// Measures that are asked for, or else the measure by which each workload is judged.
fn measures(directory: &Directory, plot: &Plot) -> Vec<(String, Option<String>)> {
    if !plot.y.is_empty() {
        return plot.y.iter().map(|y| (y.clone(), None)).collect();
    }
    let at = directory.dimension(&Kind::Workload);
    let wanted = |w: &&String| plot.workload.is_empty() || plot.workload.contains(w);
    let workloads = directory.dimensions[at].values.iter().filter(|w| !w.is_empty()).filter(wanted);
    let main = |w: &String| main_measure(directory, w).map(|m| (m, Some(w.clone())));
    workloads.filter_map(main).collect()
}

/// The measure by which a workload is judged: what its user waits for or gets.
pub(super) fn main_measure(directory: &Directory, workload: &str) -> Option<String> {
    let usual = match directory.workload_kind(workload) {
        "bulk" => Some("goodput"),
        "files" => Some("completion"),
        "requests" => Some("request_p99"),
        "messages" | "video" => Some("in_time"),
        "keystrokes" => Some("echo_p99"),
        _ => None,
    };
    let at = directory.dimension(&Kind::Workload);
    let mut seen = directory.observations.iter().filter(|o| directory.value(&o.place, at) == workload);
    let has = |measure: &str| directory.observations.iter().any(|o| o.measure == measure);
    usual.filter(|m| has(m)).map(str::to_owned).or_else(|| seen.next().map(|o| o.measure.clone()))
}

/// A horizontal axis for the values of a sweep, and the place of each value on it.
fn sweep_axis(view: &View<'_>, x: usize) -> (Axis, Vec<f64>) {
    let directory = view.directory;
    let dimension: &Dimension = &directory.dimensions[x];
    let used: BTreeSet<usize> = view
        .lines
        .iter()
        .flat_map(|line| line.values.keys())
        .copied()
        .filter(|i| !is_none(directory, x, *i))
        .collect();
    let at = |i: usize| {
        let mut place = view.place.clone();
        place[x] = i;
        directory.number(&place, x)
    };
    let sweep = match dimension.kind {
        Kind::Sweep(i) => directory.plan.sweeps.get(i),
        _ => None,
    };
    let name = uts_plot::html::capitalised(&dimension.name.replace('_', " "));
    let numbers: Option<Vec<f64>> = (0..dimension.values.len())
        .map(|i| if is_none(directory, x, i) { Some(f64::NAN) } else { at(i) })
        .collect();
    let numbers = numbers.filter(|_| sweep.is_some_and(|s| s.numeric));
    let wanted = view.plot.x_scale;
    if let Some(numbers) = numbers {
        let of_used = || numbers.iter().enumerate().filter(|(i, _)| used.contains(i)).map(|(_, n)| *n);
        let most = of_used().fold(0.0, |a: f64, b| a.max(b.abs()));
        let least = of_used().filter(|n| *n > 0.0).fold(f64::INFINITY, f64::min);
        let has_zero = of_used().any(|n| n <= 0.0);
        // Values that span much and begin with 0 have no place on either scale.
        let chosen = wanted.unwrap_or(match most / least {
            span if span > 9.0 && has_zero => ScaleName::Ordinal,
            span if span >= LOG_FROM => ScaleName::Log,
            _ => ScaleName::Linear,
        });
        let unit = sweep.and_then(|s| s.unit.as_deref()).unwrap_or_default();
        let (unit, factor) = scaled(unit, most);
        let shown: Vec<f64> = numbers.iter().map(|n| n * factor).collect();
        let label = if unit.is_empty() { name.clone() } else { format!("{name} ({unit})") };
        let values: Vec<f64> = of_used().map(|n| n * factor).collect();
        let scale = match chosen {
            ScaleName::Log => Scale::log(values.iter().copied()),
            ScaleName::Linear => Some(Scale::linear(values.iter().copied(), true)),
            ScaleName::Ordinal => None,
        };
        if let Some(scale) = scale {
            return (Axis { label, scale }, shown);
        }
    }
    let (scale, places) = ordinal(&dimension.values, &used);
    (Axis { label: name, scale }, places)
}

/// True if an index of a sweep stands for runs that it does not concern.
fn is_none(directory: &Directory, x: usize, index: usize) -> bool {
    directory.is_sweep(x) && directory.values(x).get(index).is_some_and(String::is_empty)
}

/// Names at equal distances, only those that are used; and the place of each value.
fn ordinal(values: &[String], used: &BTreeSet<usize>) -> (Scale, Vec<f64>) {
    let names = used.iter().filter_map(|i| values.get(*i)).cloned().collect();
    let place = |i: usize| used.iter().position(|u| *u == i).map_or(f64::NAN, |p| p as f64);
    (Scale::Ordinal(names), (0..values.len()).map(place).collect())
}

fn value_axis(view: &View<'_>, shown: &[f64], from_zero: bool) -> Axis {
    let label = view.quantity.axis();
    let mut shown = shown.to_vec();
    if from_zero {
        shown.push(view.reach * view.quantity.factor);
    }
    let log = || Scale::log(shown.iter().copied());
    let scale = match view.plot.y_scale {
        Some(ScaleName::Log) => log(),
        _ => None,
    };
    let linear = || match Scale::linear(shown.iter().copied(), from_zero) {
        // A share does not go beyond all.
        Scale::Linear { min, max } if view.quantity.unit == "%" && max > 100.0 => Scale::between(min, 100.0),
        scale => scale,
    };
    Axis { label, scale: scale.unwrap_or_else(linear) }
}

fn against(view: &View<'_>, x: usize) -> Chart {
    let (axis, places) = sweep_axis(view, x);
    let is_ordinal = matches!(axis.scale, Scale::Ordinal(_));
    let (mut marks, mut shown, mut legend) = (Vec::new(), Vec::new(), Vec::new());
    let mut data = mean_table(view, Some(x));
    let mut counts = BTreeSet::new();
    let (mut lines, mut points_of) = (Vec::new(), Vec::new());
    let name_of_x = view.directory.title(x);
    for (i, line) in view.lines.iter().enumerate() {
        let look = line.look;
        // Side by side if the axis has room between values, to keep error bars from covering each
        // other.
        let middle = (view.lines.len() - 1) as f64 / 2.0;
        let aside = if is_ordinal { (i as f64 - middle) * 0.5 / view.lines.len() as f64 } else { 0.0 };
        let (mut points, mut hints) = (Vec::new(), Vec::new());
        for (at, values) in &line.values {
            let (Some(mean), Some(place)) = (Mean::of(values), places.get(*at)) else { continue };
            counts.insert(mean.n);
            let label = &view.directory.values(x)[*at];
            data.rows.push(mean_row(view, &line.name, Some(label), &mean));
            let (px, py) = (place + aside, mean.mean * view.quantity.factor);
            shown.push(py);
            if is_none(view.directory, x, *at) {
                // What the sweep does not concern is the same everywhere.
                let ends = axis_ends(&axis.scale);
                lines.push(Mark::Line { points: vec![(ends.0, py), (ends.1, py)], look, stepped: false });
                continue;
            }
            hints.push(hint(view, &format!("{}, {name_of_x} {label}", line.name), &mean));
            points.push((px, py));
            if let Some(half) = mean.half_width().map(|half| half * view.quantity.factor).filter(|h| *h > 0.0)
            {
                marks.push(Mark::Interval { x: px, low: py - half, high: py + half, look });
                shown.extend([py + half, py - half]);
            }
        }
        let mut order: Vec<usize> = (0..points.len()).collect();
        order.sort_by(|a, b| points[*a].0.total_cmp(&points[*b].0));
        let points: Vec<(f64, f64)> = order.iter().map(|i| points[*i]).collect();
        let hints: Vec<String> = order.iter().map(|i| hints[*i].clone()).collect();
        legend.push(Entry { label: line.name.clone(), look, swatch: Swatch::Marked });
        lines.push(Mark::Line { points: points.clone(), look, stepped: false });
        points_of.push(Mark::Points { points, hints, look });
    }
    marks.extend(lines.into_iter().chain(points_of));
    // An interval below 0 says nothing of a quantity that cannot be.
    shown.retain(|v| *v >= 0.0 || view.quantity.better.is_none());
    let y = value_axis(view, &shown, true);
    let title = title(view, &format!("{} against {name_of_x}", view.quantity.label));
    finish(view, Parts { title, axis, y, marks, legend, data, counts, width: WIDTH })
}

fn axis_ends(scale: &Scale) -> (f64, f64) {
    match scale {
        Scale::Linear { min, max } | Scale::Log { min, max } => (*min, *max),
        Scale::Ordinal(names) => (-0.5, names.len() as f64 - 0.5),
    }
}

fn grouped(view: &View<'_>, x: Option<usize>) -> Chart {
    let is_box = view.plot.kind == plot::Kind::Box;
    let names: Vec<String> = view.lines.iter().map(|line| line.name.clone()).collect();
    let used: BTreeSet<usize> = match x {
        Some(_) => view.lines.iter().flat_map(|line| line.values.keys()).copied().collect(),
        None => (0..view.lines.len()).collect(),
    };
    let all = x.map_or(names.as_slice(), |x| view.directory.values(x));
    let (scale, places) = ordinal(all, &used);
    let per_group = if x.is_some() { view.lines.len() } else { 1 };
    let share = 0.84 / per_group as f64;
    let (mut marks, mut shown, mut legend, mut counts) =
        (Vec::new(), Vec::new(), Vec::new(), BTreeSet::new());
    let mut data = mean_table(view, x);
    for (i, line) in view.lines.iter().enumerate() {
        let (name, look) = (&line.name, line.look);
        if x.is_some() {
            legend.push(Entry { label: name.clone(), look, swatch: Swatch::Bar });
        }
        for (at, values) in &line.values {
            let Some(mean) = Mean::of(values) else { continue };
            counts.insert(mean.n);
            let (middle, label) = match x {
                Some(_) => (places[*at] + (i as f64 - (per_group - 1) as f64 / 2.0) * share, Some(&all[*at])),
                None => (places[i], None),
            };
            let (from, to) = (middle - share * 0.46, middle + share * 0.46);
            let hint = hint(view, format!("{name} {}", label.map_or("", String::as_str)).trim(), &mean);
            let scaled: Vec<f64> = values.iter().map(|v| v * view.quantity.factor).collect();
            data.rows.push(mean_row(view, name, label, &mean));
            shown.extend(scaled.iter().copied());
            if is_box {
                boxes(&mut marks, (from, to), &scaled, look, hint);
                continue;
            }
            let y = mean.mean * view.quantity.factor;
            marks.push(Mark::Bar { from, to, y, look, hint });
            if let Some(half) = mean.half_width().map(|half| half * view.quantity.factor).filter(|h| *h > 0.0)
            {
                let look = Look::of(uts_plot::svg::TEXT);
                marks.push(Mark::Interval { x: middle, low: (y - half).max(0.0), high: y + half, look });
                shown.push(y + half);
            }
        }
    }
    let label = x.map_or(String::new(), |x| uts_plot::html::capitalised(view.directory.title(x)));
    let axis = Axis { label, scale };
    let y = value_axis(view, &shown, !is_box);
    let title = title(view, &view.quantity.label);
    let width = if used.len() * per_group > 16 { WIDE } else { WIDTH };
    finish(view, Parts { title, axis, y, marks, legend, data, counts, width })
}

fn boxes(marks: &mut Vec<Mark>, (from, to): (f64, f64), values: &[f64], look: Look, hint: String) {
    let Some(mut quartiles) = quartiles(values) else { return };
    if values.len() <= POINTS_MAX {
        // All values are shown, those beyond the whiskers among them.
        quartiles.beyond.clear();
    }
    marks.push(Mark::Box { from, to, quartiles, look, hint });
    if values.len() <= POINTS_MAX {
        let middle = f64::midpoint(from, to);
        // Side by side by their order, so that equal values are seen to be several.
        let spread = (to - from) * 0.5 / values.len().max(1) as f64;
        let aside = |i: usize| (i as f64 - (values.len() - 1) as f64 / 2.0) * spread;
        let points = values.iter().enumerate().map(|(i, v)| (middle + aside(i), *v)).collect();
        marks.push(Mark::Dots { points, look, size: 1.6 });
    }
}

struct Parts {
    title: String,
    axis: Axis,
    y: Axis,
    marks: Vec<Mark>,
    legend: Vec<Entry>,
    data: Data,
    counts: BTreeSet<usize>,
    width: f64,
}

fn finish(view: &View<'_>, parts: Parts) -> Chart {
    let subtitle = place_in_words(view.directory, view.place, &view.without);
    let mut caption = String::new();
    if let Some(own) = &view.plot.caption {
        caption.push_str(own);
        caption.push(' ');
    }
    caption.push_str(&what_is_shown(&parts.counts, view.plot.kind));
    if view.plot.kind == plot::Kind::Bars && !parts.legend.is_empty() {
        caption.push_str(" Bars of a group stand in the order of the legend.");
    }
    if !view.left_out.is_empty() {
        caption.push_str(&format!(" Without a figure: {}.", view.left_out));
    }
    let is_over_paths = view.without.contains(&view.directory.dimension(&Kind::Path));
    if let Some(path) = path_in_words(view.directory, view.place).filter(|_| !is_over_paths) {
        caption.push_str(&format!(" Path {path}."));
    }
    let names: Vec<&str> = view.lines.iter().map(|line| line.name.as_str()).collect();
    let picture = Picture {
        description: format!(
            "{}; {subtitle}. {}: {}.",
            parts.title,
            view.directory.title(view.series),
            names.join(", ")
        ),
        title: parts.title.clone(),
        subtitle: subtitle.clone(),
        legend: parts.legend,
        x: parts.axis,
        panels: vec![Panel { y: parts.y, marks: parts.marks, height: HEIGHT }],
        numbered: Vec::new(),
        width: parts.width,
    };
    let is_wide = parts.width > WIDTH;
    let title = [parts.title, subtitle].into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(", ");
    Chart { svg: picture.svg(), title, caption, data: parts.data, zoom: None, is_wide, notes: Vec::new() }
}

/// "1 run is", "3 runs are".
pub(super) fn runs(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn what_is_shown(counts: &BTreeSet<usize>, kind: plot::Kind) -> String {
    let n = match (counts.first(), counts.last()) {
        (Some(least), Some(most)) if least == most => format!("n = {least}"),
        (Some(least), Some(most)) => format!("n = {least} to {most}"),
        _ => "n = 0".into(),
    };
    let means = format!(
        "Means of repetitions ({n}); error bars: 95 % confidence interval of the mean by Student’s t."
    );
    match (kind, counts.last()) {
        (plot::Kind::Box, _) => format!(
            "Boxes: quartiles and median of the repetitions ({n}); whiskers: the farthest values within 1.5 quartile \
             distances; dots: the values."
        ),
        (_, Some(1)) => "Single runs (n = 1), hence no intervals.".into(),
        (plot::Kind::Sweep, _) => means + " Where none is seen, it is smaller than the mark.",
        _ => means,
    }
}

fn title(view: &View<'_>, usual: &str) -> String {
    view.plot.title.clone().unwrap_or_else(|| usual.into())
}

fn hint(view: &View<'_>, what: &str, mean: &Mean) -> String {
    format!("{what}: {} (n = {})", view.quantity.mean(mean.mean, mean.half_width()), mean.n)
}

/// The head of a table of means.
fn mean_table(view: &View<'_>, x: Option<usize>) -> Data {
    let unit =
        if view.quantity.unit.is_empty() { String::new() } else { format!(" ({})", view.quantity.unit) };
    let mean = format!("mean of {}{unit}", view.measure);
    let x = x.map(|x| view.directory.title(x).to_owned());
    let head = [view.directory.title(view.series).to_owned()].into_iter().chain(x);
    let rest = ["n".to_owned(), mean, "± 95 %".into()];
    Data { columns: head.chain(rest).collect(), rows: Vec::new(), is_shown: true }
}

fn mean_row(view: &View<'_>, name: &str, label: Option<&String>, mean: &Mean) -> Vec<Datum> {
    let factor = view.quantity.factor;
    let half = mean.half_width().map(|half| half * factor);
    let head = [Datum::from(name)].into_iter().chain(label.map(|label| label.as_str().into()));
    head.chain([(mean.n as f64).into(), (mean.mean * factor).into(), half.into()]).collect()
}
