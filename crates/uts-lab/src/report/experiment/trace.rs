//! Runs against time: everything of one run in panels one above the other, or one quantity of several transports.

use super::cdf::latencies;
use super::chart::{Chart, Data, Zoom, ZoomPanel, ZoomSeries};
use super::directory::{Directory, Place, Run};
use super::looks::Looks;
use super::plan::Plot;
use super::quantity::scaled;
use super::select::{Selection, path_in_words, place_in_words, unknown};
use super::sweep::main_measure;
use crate::report::svg::{Axis, Entry, Ink, Look, Mark, Panel, Picture, QUIET, Scale, Shape, Swatch, TEXT};
use crate::report::thin::{envelope, every_nth, growth};
use anyhow::{Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Points of a line in the picture: four to a pixel keep every peak. Closer looks have more.
const DRAWN_POINTS: usize = 2_200;
const ZOOM_LINE_POINTS: usize = 3_000;
const ZOOM_DOTS: usize = 8_000;
const ZOOM_MARKS: usize = 2_000;
/// Goodput is averaged over such a part of the time that is shown.
const BINS: f64 = 120.0;
/// Changes of the path are drawn up to so many; a rate trace has thousands.
const CHANGES_MAX: usize = 40;
const WIDTH: f64 = 860.0;

/// What was repeated or lost, whoever sent it.
pub(super) const LOST: Ink = Ink { name: "lost", light: "#d4145a", dark: "#ff6f9f" };

#[derive(Deserialize)]
struct Sequence {
    t_s: f64,
    flow: String,
    kind: String,
    position_bytes: f64,
}

#[derive(Deserialize)]
struct Window {
    t_s: f64,
    flow: String,
    window_bytes: Option<f64>,
    in_flight_bytes: Option<f64>,
    rtt_ms: Option<f64>,
}

#[derive(Deserialize)]
struct Delivered {
    t_s: f64,
    flow: String,
    delivered_bytes: f64,
}

#[derive(Deserialize)]
struct Queue {
    t_s: f64,
    link: String,
    packets: Option<f64>,
    bytes: Option<f64>,
    sojourn_ms: Option<f64>,
}

#[derive(Deserialize)]
struct Exchange {
    t_s: f64,
    flow: String,
    line: String,
}

#[derive(Deserialize)]
struct Change {
    t_s: f64,
    link: String,
    change: String,
}

/// What is recorded against time, from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    Sequence,
    Window,
    Rtt,
    Goodput,
    Latency,
    Queue,
    Sojourn,
}

const ALL: [(&str, Recorded); 7] = [
    ("sequence", Recorded::Sequence),
    ("window", Recorded::Window),
    ("rtt", Recorded::Rtt),
    ("goodput", Recorded::Goodput),
    ("latency", Recorded::Latency),
    ("queue", Recorded::Queue),
    ("sojourn", Recorded::Sojourn),
];

impl Recorded {
    /// What it is called, the unit of its data, and the file that it is in.
    fn about(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Recorded::Sequence => ("Sequence number", "bytes", "sequence.csv"),
            Recorded::Window => ("Window", "bytes", "window.csv"),
            Recorded::Rtt => ("Round-trip time", "ms", "window.csv"),
            Recorded::Goodput => ("Goodput", "bit/s", "goodput.csv"),
            Recorded::Latency => ("Latency", "ms", "latency.csv"),
            Recorded::Queue => ("Queue", "packets", "queue.csv"),
            Recorded::Sojourn => ("Time in the queue", "ms", "queue.csv"),
        }
    }
}

/// Something against time.
struct Curve {
    name: String,
    look: Look,
    style: Style,
    points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Line,
    Step,
    Dots,
    Ring,
    Cross,
}

/// Curves in the unit of the data.
struct Curves {
    recorded: Recorded,
    unit: &'static str,
    curves: Vec<Curve>,
}

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

fn recorded(names: &[String]) -> Result<Vec<Recorded>> {
    if names.is_empty() {
        return Ok(ALL.map(|(_, recorded)| recorded).into());
    }
    let of = |name: &String| match ALL.iter().find(|(known, _)| known == name) {
        Some((_, recorded)) => Ok(*recorded),
        None => bail!("{}", unknown("recording", name, &ALL.map(|(known, _)| known.to_owned()))),
    };
    names.iter().map(of).collect()
}

/// For each transport at each place the repetition whose result is the median, or the one that is asked for.
fn chosen<'a>(
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
        link = busiest(&queue_samples(directory, run));
    }
    let exchanges: Vec<Exchange> = directory.samples(run, "exchanges.csv", &["t_s", "line"]);
    let changes: Vec<Change> = directory.samples(run, "changes.csv", &["t_s", "change"]);
    let (from, to) = extent(&all, plot)?;
    cut(&mut all, from, to);
    let exchanges: Vec<Exchange> = exchanges.into_iter().filter(|e| (from..=to).contains(&e.t_s)).collect();
    let name = &directory.names[run.who];
    let title = plot.title.clone().unwrap_or_else(|| format!("{name} against time"));
    let subtitle = format!("{}, repetition {}", place_in_words(directory, &run.place, None), run.repetition);
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
    let changes: Vec<Change> =
        runs.first().map(|run| directory.samples(run, "changes.csv", &["t_s", "change"])).unwrap_or_default();
    let downs = drawn_changes(&changes, from, to);
    let title = plot.title.clone().unwrap_or_else(|| format!("{} against time", recorded.about().0));
    let subtitle = place_in_words(directory, place, None);
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

/// Reads one recording of a run.
fn curves(
    directory: &Directory,
    looks: &Looks,
    run: &Run,
    recorded: Recorded,
    plot: &Plot,
) -> Option<Curves> {
    let (.., unit, _) = recorded.about();
    let mut unit = unit;
    let curves = match recorded {
        Recorded::Sequence => sequence(directory, looks, run),
        Recorded::Window | Recorded::Rtt => window(directory, looks, run, recorded == Recorded::Rtt),
        Recorded::Goodput => goodput(directory, looks, run, plot),
        Recorded::Latency => latency(directory, looks, run),
        Recorded::Queue => {
            let (curves, own) = queue(directory, looks, run);
            unit = own;
            curves
        }
        Recorded::Sojourn => sojourn(directory, looks, run),
    };
    let curves: Vec<Curve> = curves.into_iter().filter(|c| !c.points.is_empty()).collect();
    (!curves.is_empty()).then_some(Curves { recorded, unit, curves })
}

/// Samples by flow, in the order of their first.
fn by_flow<T>(rows: Vec<T>, flow: impl Fn(&T) -> &str) -> Vec<(String, Vec<T>)> {
    let mut flows: Vec<(String, Vec<T>)> = Vec::new();
    for row in rows {
        match flows.iter_mut().find(|(name, _)| name == flow(&row)) {
            Some((_, rows)) => rows.push(row),
            None => flows.push((flow(&row).to_owned(), vec![row])),
        }
    }
    flows
}

fn look_of(directory: &Directory, looks: &Looks, run: &Run, flow: &str) -> Look {
    looks.get(directory.names.iter().position(|n| n == flow).unwrap_or(run.who))
}

fn sequence(directory: &Directory, looks: &Looks, run: &Run) -> Vec<Curve> {
    let rows: Vec<Sequence> =
        directory.samples(run, "sequence.csv", &["t_s", "flow", "kind", "position_bytes"]);
    let flows = by_flow(rows, |row| &row.flow);
    let is_alone = flows.len() == 1;
    let mut curves = Vec::new();
    for (flow, rows) in flows {
        let of = |kind: &str| {
            rows.iter().filter(|r| r.kind == kind).map(|r| (r.t_s, r.position_bytes)).collect::<Vec<_>>()
        };
        let (sent, repeated, acked) = (of("sent"), of("repeated"), highest(&of("acked")));
        let (what, reached) = match acked.is_empty() {
            true => ("highest sent", highest(&sent)),
            false => ("acknowledged", acked),
        };
        let own = look_of(directory, looks, run, &flow);
        let line = |look| Curve {
            name: if is_alone { what.into() } else { flow.clone() },
            look,
            style: Style::Step,
            points: reached.clone(),
        };
        if !is_alone {
            curves.push(line(own));
            continue;
        }
        let dots = Look { shape: Shape::Circle, dash: "", ..own };
        let rings = Look { shape: Shape::Ring, ..Look::of(LOST) };
        let thin = Look { width: 0.9, ..Look::of(TEXT) };
        curves.push(Curve { name: "sent".into(), look: dots, style: Style::Dots, points: sent });
        curves.push(line(thin));
        curves.push(Curve { name: "repeated".into(), look: rings, style: Style::Ring, points: repeated });
    }
    curves
}

fn highest(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut most = f64::NEG_INFINITY;
    let mut rises = |value: f64| {
        let is_more = value > most;
        most = most.max(value);
        is_more
    };
    points.iter().filter(|p| rises(p.1)).copied().collect()
}

fn window(directory: &Directory, looks: &Looks, run: &Run, is_rtt: bool) -> Vec<Curve> {
    let rows: Vec<Window> =
        directory.samples(run, "window.csv", &["t_s", "flow", "window_bytes", "in_flight_bytes", "rtt_ms"]);
    let flows = by_flow(rows, |row| &row.flow);
    let is_alone = flows.len() == 1;
    let mut curves = Vec::new();
    for (flow, rows) in flows {
        let of = |value: fn(&Window) -> Option<f64>| {
            rows.iter().filter_map(|r| Some((r.t_s, value(r)?))).collect::<Vec<_>>()
        };
        let own = Look { width: 1.6, ..look_of(directory, looks, run, &flow) };
        let named = |what: &str| if is_alone { what.to_owned() } else { flow.clone() };
        if is_rtt {
            curves.push(Curve {
                name: named("smoothed round-trip time"),
                look: Look { dash: if is_alone { "" } else { own.dash }, ..own },
                style: Style::Line,
                points: of(|r| r.rtt_ms),
            });
            continue;
        }
        let own = Look { dash: if is_alone { "" } else { own.dash }, ..own };
        curves.push(Curve {
            name: named("congestion window"),
            look: own,
            style: Style::Step,
            points: of(|r| r.window_bytes),
        });
        if is_alone {
            let look = Look { width: 1.1, ..Look::of(QUIET) };
            curves.push(Curve {
                name: "in flight".into(),
                look,
                style: Style::Line,
                points: of(|r| r.in_flight_bytes),
            });
        }
    }
    curves
}

fn goodput(directory: &Directory, looks: &Looks, run: &Run, plot: &Plot) -> Vec<Curve> {
    let rows: Vec<Delivered> = directory.samples(run, "goodput.csv", &["t_s", "flow", "delivered_bytes"]);
    let flows = by_flow(rows, |row| &row.flow);
    let is_alone = flows.len() == 1;
    let curve = |(flow, rows): (String, Vec<Delivered>)| {
        let totals: Vec<(f64, f64)> = rows.iter().map(|r| (r.t_s, r.delivered_bytes)).collect();
        let end = totals.last().map_or(0.0, |p| p.0);
        let span = plot.to_s.unwrap_or(end) - plot.from_s.unwrap_or(0.0);
        let rates = growth(&totals, (span / BINS).max(1e-3), end);
        let look = look_of(directory, looks, run, &flow);
        let look = Look { width: 1.6, dash: if is_alone { "" } else { look.dash }, ..look };
        let points = rates.into_iter().map(|(t, rate)| (t, rate * 8.0)).collect();
        Curve { name: if is_alone { "goodput".into() } else { flow }, look, style: Style::Line, points }
    };
    flows.into_iter().map(curve).collect()
}

fn latency(directory: &Directory, looks: &Looks, run: &Run) -> Vec<Curve> {
    let mut curves = Vec::new();
    for (flow, rows) in by_flow(latencies(directory, run), |row| &row.flow) {
        let own = Look { shape: Shape::Circle, ..look_of(directory, looks, run, &flow) };
        let points = rows.iter().filter_map(|r| Some((r.t_s, r.latency_ms?))).collect();
        let lost = rows.iter().filter(|r| r.latency_ms.is_none()).map(|r| (r.t_s, 0.0)).collect();
        let deadlines: BTreeSet<u64> =
            rows.iter().filter_map(|r| Some((r.deadline_ms? * 1e3) as u64)).collect();
        if let (Some(us), Some(last), 1) = (deadlines.first(), rows.last(), deadlines.len()) {
            let ms = *us as f64 / 1e3;
            let look = Look { dash: "6 4", width: 1.1, ..Look::of(QUIET) };
            curves.push(Curve {
                name: "deadline".into(),
                look,
                style: Style::Line,
                points: vec![(0.0, ms), (last.t_s, ms)],
            });
        }
        curves.push(Curve { name: "message".into(), look: own, style: Style::Dots, points });
        let look = Look { shape: Shape::Cross, ..Look::of(LOST) };
        curves.push(Curve { name: "lost message".into(), look, style: Style::Cross, points: lost });
    }
    curves
}

fn queue_samples(directory: &Directory, run: &Run) -> Vec<Queue> {
    directory.samples(run, "queue.csv", &["t_s", "link", "packets", "bytes", "sojourn_ms"])
}

/// The link with the longest queue: the bottleneck.
fn busiest(rows: &[Queue]) -> Option<String> {
    let mut most: BTreeMap<&str, f64> = BTreeMap::new();
    for row in rows {
        let length = row.bytes.or(row.packets).unwrap_or(0.0);
        let longest = most.entry(&row.link).or_insert(0.0);
        *longest = longest.max(length);
    }
    most.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(link, _)| link.to_owned())
}

/// Also the unit: bytes where packets are not known.
fn queue(directory: &Directory, looks: &Looks, run: &Run) -> (Vec<Curve>, &'static str) {
    let rows = queue_samples(directory, run);
    let Some(link) = busiest(&rows) else { return (Vec::new(), "packets") };
    let here: Vec<&Queue> = rows.iter().filter(|r| r.link == link).collect();
    let in_packets = here.iter().any(|r| r.packets.is_some());
    let of = |r: &&Queue| Some((r.t_s, if in_packets { r.packets? } else { r.bytes? }));
    let look = Look { dash: "", width: 1.2, ..looks.get(run.who) };
    let curve = Curve {
        name: "queue".into(),
        look,
        style: Style::Step,
        points: here.iter().filter_map(of).collect(),
    };
    (vec![curve], if in_packets { "packets" } else { "bytes" })
}

fn sojourn(directory: &Directory, looks: &Looks, run: &Run) -> Vec<Curve> {
    let rows = queue_samples(directory, run);
    let Some(link) = busiest(&rows) else { return Vec::new() };
    let points =
        rows.iter().filter(|r| r.link == link).filter_map(|r| Some((r.t_s, r.sojourn_ms?))).collect();
    let look = Look { dash: "", width: 1.2, ..looks.get(run.who) };
    vec![Curve { name: "time in the queue".into(), look, style: Style::Line, points }]
}

/// What is written beside a picture.
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
    // A sequence that does not begin at 0 (an excerpt) fills its panel.
    let is_excerpt = curves.recorded == Recorded::Sequence;
    let scale = Scale::linear(values().map(|v| v * factor), !is_excerpt);
    (Panel { y: Axis { label: label.clone(), scale }, marks, height }, ZoomPanel { label, series })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_acknowledged_only_grows() {
        assert_eq!(highest(&[(0.0, 5.0), (1.0, 3.0), (2.0, 5.0), (3.0, 9.0)]), [(0.0, 5.0), (3.0, 9.0)]);
    }

    #[test]
    fn the_bottleneck_has_the_longest_queue() {
        let row = |link: &str, bytes| Queue {
            t_s: 0.0,
            link: link.into(),
            packets: None,
            bytes: Some(bytes),
            sojourn_ms: None,
        };
        let rows = [row("a forward", 10.0), row("b forward", 900.0), row("a forward", 500.0)];
        assert_eq!(busiest(&rows).as_deref(), Some("b forward"));
        assert_eq!(busiest(&[]), None);
    }
}
