//! Runs against time: everything of one run in panels one above the other, or one quantity of
//! several transports.

use super::chart::{Chart, Data, Zoom, ZoomPanel, ZoomSeries};
use super::directory::{Directory, Place, Run};
use super::looks::Looks;
use super::plot::Plot;
use super::quantity::scaled;
use super::recorded::{BINS, Curve, Curves, Recorded, Style, bottleneck, curves, recorded};
use super::select::{Selection, path_in_words, place_in_words};
use super::sweep::main_measure;
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use uts_plot::svg::{Axis, Entry, Look, Mark, Panel, Picture, QUIET, Scale, Swatch};
use uts_plot::thin::{envelope, every_nth};
use uts_record::samples::{Change, Exchange};

/// Points of a line in the picture: four to a pixel keep every peak. Closer looks have more.
const DRAWN_POINTS: usize = 2_200;
const ZOOM_LINE_POINTS: usize = 3_000;
const ZOOM_DOTS: usize = 8_000;
const ZOOM_MARKS: usize = 2_000;
/// Changes of the path are drawn up to this many; a rate trace has thousands.
const CHANGES_MAX: usize = 40;
const WIDTH: f64 = 860.0;

/// A picture of each chosen run, all that was recorded of it in panels.
///
/// # Errors
/// The plot names something that is not there, or nothing has been recorded.
pub(super) fn traces(
    directory: &Directory,
    looks: &Looks,
    plot: &Plot,
    limit: usize,
    is_unasked: bool,
) -> Result<Vec<Chart>> {
    let wanted = recorded(&plot.y)?;
    let selection = Selection::of(directory, plot)?;
    let chosen = chosen(directory, &selection, plot, &wanted);
    if chosen.len() > limit && !is_unasked {
        directory.tell(format!(
            "{} runs could be traced, and the first {limit} are; `transport`, `workload`, `path` or `at` in the [[plot]] choose others",
            chosen.len()
        ));
    }
    let charts: Vec<Chart> = chosen
        .into_iter()
        .take(limit)
        .filter_map(|run| trace(directory, looks, plot, run, &wanted))
        .collect();
    if charts.is_empty() {
        bail!("no valid run has recorded anything against time yet");
    }
    Ok(charts)
}

/// A picture for each place: one quantity of all transports.
///
/// # Errors
/// The plot names something that is not there, or nothing has been recorded.
pub(super) fn series(directory: &Directory, looks: &Looks, plot: &Plot, limit: usize) -> Result<Vec<Chart>> {
    let wanted = if plot.y.is_empty() { vec![Recorded::Goodput] } else { recorded(&plot.y)? };
    let selection = Selection::of(directory, plot)?;
    let mut charts = Vec::new();
    for recorded in wanted {
        let mut places: BTreeMap<Place, Vec<&Run>> = BTreeMap::new();
        for run in chosen(directory, &selection, plot, &[recorded]) {
            places.entry(run.place.clone()).or_default().push(run);
        }
        for (place, runs) in places.into_iter().take(limit) {
            charts.extend(overlay(directory, looks, plot, &place, &runs, recorded));
        }
    }
    if charts.is_empty() {
        bail!("no valid run has recorded it yet");
    }
    Ok(charts)
}

/// For each transport at each place, the repetition whose result is the median, or the one that is
/// asked for.
pub(super) fn chosen<'a>(
    directory: &'a Directory,
    selection: &'a Selection,
    plot: &Plot,
    wanted: &[Recorded],
) -> Vec<&'a Run> {
    let files: BTreeSet<&str> = wanted.iter().map(|r| r.about().2).collect();
    let mut cases: BTreeMap<(Place, usize), Vec<&Run>> = BTreeMap::new();
    for run in selection.runs(directory) {
        if files.iter().any(|file| directory.has_samples(run, file)) {
            cases.entry((run.place.clone(), run.who)).or_default().push(run);
        }
    }
    if plot.repetition.is_some() {
        return cases.into_values().flatten().collect();
    }
    cases.into_values().filter_map(|runs| median(directory, runs)).collect()
}

fn median<'a>(directory: &Directory, runs: Vec<&'a Run>) -> Option<&'a Run> {
    let workload =
        directory.value(&runs.first()?.place, directory.dimension(&super::directory::Kind::Workload));
    let measure = main_measure(directory, workload);
    let result = |run: &Run| {
        let mut of =
            directory.observations.iter().filter(|o| o.run == run.id && Some(&o.measure) == measure.as_ref());
        of.next().map_or(f64::INFINITY, |o| o.value)
    };
    let mut ranked: Vec<(f64, &Run)> = runs.into_iter().map(|run| (result(run), run)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.repetition.cmp(&b.1.repetition)));
    ranked.get((ranked.len() - 1) / 2).map(|(_, run)| *run)
}

fn trace(directory: &Directory, looks: &Looks, plot: &Plot, run: &Run, wanted: &[Recorded]) -> Option<Chart> {
    let mut all: Vec<Curves> =
        wanted.iter().filter_map(|r| curves(directory, looks, run, *r, plot)).collect();
    let mut link = None;
    if wanted.iter().any(|r| matches!(r, Recorded::Queue | Recorded::Sojourn)) {
        link = bottleneck(directory, run);
    }
    let exchanges: Vec<Exchange> = directory.samples(run);
    let changes: Vec<Change> = directory.samples(run);
    let (from, to) = extent(&all, plot)?;
    cut(&mut all, from, to);
    let exchanges: Vec<Exchange> = exchanges.into_iter().filter(|e| (from..=to).contains(&e.t_s)).collect();
    let name = &directory.names[run.who];
    let title = plot.title.clone().unwrap_or_else(|| format!("{name} against time"));
    let subtitle = format!("{}, repetition {}", place_in_words(directory, &run.place, &[]), run.repetition);
    let marks = exchanges.iter().map(|e| e.t_s).collect();
    let downs = drawn_changes(&changes, from, to);
    let mut caption = String::from("One run");
    if plot.repetition.is_none() {
        caption.push_str(", of the repetitions the one whose result is the median");
    }
    caption.push_str(". ");
    caption.push_str(&reading(&all, to - from));
    if !exchanges.is_empty() {
        caption.push_str(" Numbered verticals: exchanges of mechanisms, listed below.");
    }
    if let Some(link) = link {
        caption.push_str(&format!(" The queue is that of {link}."));
    }
    caption.push_str(&told(&changes));
    let notes = exchanges.iter().map(|e| format!("{:.3} s, {}: {}", e.t_s, e.flow, e.line)).collect();
    Some(picture(
        directory,
        plot,
        &run.place,
        Words { title, subtitle, caption, notes },
        &all,
        (from, to),
        marks,
        &downs,
    ))
}

fn overlay(
    directory: &Directory,
    looks: &Looks,
    plot: &Plot,
    place: &Place,
    runs: &[&Run],
    recorded: Recorded,
) -> Option<Chart> {
    let mut joined: Option<Curves> = None;
    for run in runs {
        let Some(curves) = curves(directory, looks, run, recorded, plot) else { continue };
        // Of one run several kinds may be known; beside others each has its one line.
        let own = curves.curves.into_iter().filter(|c| matches!(c.style, Style::Line | Style::Step)).take(1);
        let own = own.map(|curve| Curve {
            name: directory.names[run.who].clone(),
            look: looks.get(run.who),
            ..curve
        });
        joined
            .get_or_insert_with(|| Curves { recorded, unit: curves.unit, curves: Vec::new() })
            .curves
            .extend(own);
    }
    let mut all = vec![joined.filter(|c| !c.curves.is_empty())?];
    let (from, to) = extent(&all, plot)?;
    cut(&mut all, from, to);
    let changes: Vec<Change> = runs.first().map(|run| directory.samples(run)).unwrap_or_default();
    let downs = drawn_changes(&changes, from, to);
    let title = plot.title.clone().unwrap_or_else(|| format!("{} against time", recorded.about().0));
    let subtitle = place_in_words(directory, place, &[]);
    let mut caption = String::from("One run of each transport");
    if plot.repetition.is_none() {
        caption.push_str(", of the repetitions the one whose result is the median");
    }
    caption.push_str(". ");
    caption.push_str(&reading(&all, to - from));
    caption.push_str(&told(&changes));
    Some(picture(
        directory,
        plot,
        place,
        Words { title, subtitle, caption, notes: Vec::new() },
        &all,
        (from, to),
        Vec::new(),
        &downs,
    ))
}

/// Says what the panels show, as far as their axes do not.
fn reading(all: &[Curves], span_s: f64) -> String {
    let mut words = Vec::new();
    for curves in all {
        match curves.recorded {
            Recorded::Sequence if curves.curves.iter().any(|c| c.style == Style::Ring) => {
                words.push("Sequence number: dots are packets with new data, rings repeat data.".to_owned());
            }
            Recorded::Goodput => words.push(format!("Goodput: means over {:.2} s.", span_s / BINS)),
            Recorded::Latency => {
                words.push("Latency: each message when it left; crosses below were lost.".into())
            }
            _ => {}
        }
    }
    words.join(" ")
}

fn told(changes: &[Change]) -> String {
    match changes.len() {
        0 => String::new(),
        1..=CHANGES_MAX => " Dotted verticals: changes of the path.".into(),
        more => format!(" The path changes {more} times."),
    }
}

fn drawn_changes(changes: &[Change], from: f64, to: f64) -> Vec<Mark> {
    if changes.len() > CHANGES_MAX {
        return Vec::new();
    }
    let here = changes.iter().filter(|c| (from..=to).contains(&c.t_s));
    let look = Look { dash: "1.5 3", width: 1.2, ..Look::of(QUIET) };
    here.map(|c| Mark::Down { x: c.t_s, label: format!("{} {}", c.link, c.change).trim().to_owned(), look })
        .collect()
}

/// From the earliest to the latest instant, or as the plot says.
fn extent(all: &[Curves], plot: &Plot) -> Option<(f64, f64)> {
    let times =
        all.iter().flat_map(|c| &c.curves).flat_map(|c| [c.points.first(), c.points.last()]).flatten();
    let last = times.map(|p| p.0).max_by(f64::total_cmp)?;
    // To a round number, so that the axis ends at a tick or near one.
    let step = 10f64.powf(last.max(1e-6).log10().floor() - 1.0);
    let (from, to) = (plot.from_s.unwrap_or(0.0), plot.to_s.unwrap_or((last / step).ceil() * step));
    (to > from).then_some((from, to))
}

/// Leaves only the stretch that is shown.
fn cut(all: &mut Vec<Curves>, from: f64, to: f64) {
    for curves in all.iter_mut() {
        for curve in &mut curves.curves {
            curve.points.retain(|p| (from..=to).contains(&p.0));
        }
        curves.curves.retain(|c| !c.points.is_empty());
    }
    all.retain(|c| !c.curves.is_empty());
}

/// Words beside a picture.
struct Words {
    title: String,
    subtitle: String,
    caption: String,
    notes: Vec<String>,
}

#[allow(clippy::too_many_arguments, reason = "what both kinds of picture have in common")]
fn picture(
    directory: &Directory,
    plot: &Plot,
    place: &Place,
    mut words: Words,
    all: &[Curves],
    (from, to): (f64, f64),
    marks: Vec<f64>,
    downs: &[Mark],
) -> Chart {
    let height = match all.len() {
        0 | 1 => 270.0,
        2 => 210.0,
        3 => 175.0,
        _ => 140.0,
    };
    let (mut panels, mut zoomed, mut legend) = (Vec::new(), Vec::new(), Vec::new());
    for (i, curves) in all.iter().enumerate() {
        let (panel, closer) = panel(curves, if i == 0 { downs } else { &[] }, height);
        panels.push(panel);
        zoomed.push(closer);
        entries(&mut legend, curves);
    }
    if let Some(own) = &plot.caption {
        words.caption = format!("{own} {}", words.caption);
    }
    if let Some(path) = path_in_words(directory, place) {
        words.caption.push_str(&format!(" Path {path}."));
    }
    let picture = Picture {
        description: format!("{}; {}. {}", words.title, words.subtitle, words.caption),
        title: words.title.clone(),
        subtitle: words.subtitle.clone(),
        legend,
        x: Axis { label: "Time since the run began (s)".into(), scale: Scale::between(from, to) },
        panels,
        numbered: marks.clone(),
        width: WIDTH,
    };
    Chart {
        svg: picture.svg(),
        title: format!("{}, {}", words.title, words.subtitle),
        caption: words.caption,
        data: Data::default(),
        zoom: Some(Zoom { panels: zoomed, marks }),
        is_wide: true,
        notes: words.notes,
    }
}

fn entries(legend: &mut Vec<Entry>, curves: &Curves) {
    for curve in &curves.curves {
        let swatch =
            if matches!(curve.style, Style::Line | Style::Step) { Swatch::Line } else { Swatch::Mark };
        // Panels with one line are named by their axis.
        let says_more = curves.curves.len() > 1;
        if says_more && !legend.iter().any(|e| e.label == curve.name && e.look == curve.look) {
            legend.push(Entry { label: curve.name.clone(), look: curve.look, swatch });
        }
    }
}

fn panel(curves: &Curves, downs: &[Mark], height: f64) -> (Panel, ZoomPanel) {
    let values = || curves.curves.iter().flat_map(|c| &c.points).map(|p| p.1);
    let most = values().fold(0.0, |a: f64, b| a.max(b.abs()));
    let (unit, factor) = scaled(curves.unit, most);
    let label = format!("{} ({unit})", curves.recorded.about().0);
    let mut marks = downs.to_vec();
    let mut series = Vec::new();
    for curve in &curves.curves {
        let points: Vec<(f64, f64)> = curve.points.iter().map(|p| (p.0, p.1 * factor)).collect();
        let look = curve.look;
        let is_line = matches!(curve.style, Style::Line | Style::Step);
        let (closer, style) = match curve.style {
            Style::Line => (envelope(&points, ZOOM_LINE_POINTS), "line"),
            Style::Step => (envelope(&points, ZOOM_LINE_POINTS), "step"),
            Style::Dots => (every_nth(&points, ZOOM_DOTS).0, "dots"),
            Style::Ring => (every_nth(&points, ZOOM_MARKS).0, "ring"),
            Style::Cross => (every_nth(&points, ZOOM_MARKS).0, "cross"),
        };
        series.push(ZoomSeries::new(&curve.name, look, style, &closer));
        marks.push(match is_line {
            true => Mark::Line {
                points: envelope(&points, DRAWN_POINTS),
                look,
                stepped: curve.style == Style::Step,
            },
            false => Mark::Dots { points, look, size: if curve.style == Style::Dots { 0.8 } else { 2.2 } },
        });
    }
    // A stretch of a sequence fills its panel; a whole one begins at 0, or nearly.
    let least = values().fold(f64::INFINITY, f64::min);
    let is_excerpt = curves.recorded == Recorded::Sequence && least > 0.2 * most;
    let scale = Scale::linear(values().map(|v| v * factor), !is_excerpt);
    (Panel { y: Axis { label: label.clone(), scale }, marks, height }, ZoomPanel { label, series })
}
