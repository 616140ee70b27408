//! Distributions of latency and of deadline slack, all messages of all valid repetitions together.

use super::chart::{Chart, Data};
use super::directory::{Directory, Place};
use super::looks::Looks;
use super::plot::{Plot, ScaleName};
use super::quantity::{scaled, three_digits};
use super::select::{Selection, path_in_words, place_in_words, unknown};
use super::stats::quantile;
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use uts_plot::svg::{Axis, Entry, Look, Mark, Panel, Picture, QUIET, Scale, Swatch};
use uts_record::samples::{Latency, SampleRow};

/// Points of a line: its body evenly by rank, and its tail in full.
const BODY_POINTS: usize = 240;
const TAIL_POINTS: usize = 60;
/// Share of missed deadlines up to which slack gets a logarithmic axis: the missed share is what
/// matters.
const RARE: f64 = 0.25;
/// A logarithmic axis is chosen unasked if the middle of the latencies spans so much.
const LOG_FROM: f64 = 20.0;

/// Messages of one transport at one place.
#[derive(Clone, Debug, Default)]
struct Messages {
    /// Latency or slack of messages that arrived, in milliseconds, ascending once all are read.
    arrived: Vec<f64>,
    /// Number of messages that did not arrive.
    lost: usize,
    /// Those with a deadline, and those of them that met it.
    due: usize,
    in_time: usize,
    runs: usize,
}

impl Messages {
    fn all(&self) -> usize {
        self.arrived.len() + self.lost
    }

    /// The value that a share of all messages does not exceed. `None` if that many did not arrive.
    /// For slack, lost messages are below everything.
    fn quantile(&self, share: f64, is_slack: bool) -> Option<f64> {
        let rank = share * self.all() as f64 - if is_slack { self.lost as f64 } else { 0.0 };
        let index = (rank.ceil() as usize).max(1) - 1;
        (rank > 0.0).then(|| self.arrived.get(index).copied()).flatten()
    }
}

/// Reads the samples of latency of a run.
pub(super) fn latencies(directory: &Directory, run: &super::directory::Run) -> Vec<Latency> {
    directory.samples(run)
}

/// A picture for each place.
///
/// # Errors
/// The plot names something that is not there, or nothing has been recorded.
pub(super) fn cdfs(directory: &Directory, looks: &Looks, plot: &Plot) -> Result<Vec<Chart>> {
    let wanted: Vec<bool> = match plot.y.as_slice() {
        [] => vec![false],
        names => names.iter().map(|name| is_slack(name)).collect::<Result<_>>()?,
    };
    let selection = Selection::of(directory, plot)?;
    let mut charts = Vec::new();
    for is_slack in wanted {
        let (mut places, mut deadlines) = (BTreeMap::new(), BTreeMap::new());
        for run in selection.runs(directory).filter(|run| directory.has_samples(run, Latency::FILE)) {
            let here: &mut BTreeMap<usize, Messages> = places.entry(run.place.clone()).or_default();
            collect(directory, run, is_slack, here, deadlines.entry(run.place.clone()).or_default());
        }
        for (place, mut lines) in places {
            lines.retain(|_, messages| messages.all() > 0);
            lines.values_mut().for_each(|messages| messages.arrived.sort_by(f64::total_cmp));
            if lines.values().any(|messages| !messages.arrived.is_empty()) {
                let deadlines = deadlines.remove(&place).unwrap_or_default();
                charts.push(draw(directory, looks, plot, &place, &lines, is_slack, &deadlines));
            }
        }
    }
    if charts.is_empty() {
        bail!(
            "no valid run has recorded {} yet",
            if wanted_slack(plot) { "messages with deadlines" } else { "latencies" }
        );
    }
    Ok(charts)
}

fn wanted_slack(plot: &Plot) -> bool {
    plot.y.iter().any(|y| y == "slack")
}

fn is_slack(name: &str) -> Result<bool> {
    match name {
        "latency" => Ok(false),
        "slack" => Ok(true),
        other => bail!("{}", unknown("distribution", other, &["latency".into(), "slack".into()])),
    }
}

fn collect(
    directory: &Directory,
    run: &super::directory::Run,
    is_slack: bool,
    lines: &mut BTreeMap<usize, Messages>,
    deadlines: &mut BTreeSet<u64>,
) {
    let mut seen = BTreeSet::new();
    for sample in latencies(directory, run) {
        let who = directory.names.iter().position(|n| *n == sample.flow).unwrap_or(run.who);
        let messages = lines.entry(who).or_default();
        if is_slack && sample.deadline_ms.is_none() {
            continue;
        }
        seen.insert(who);
        if let Some(deadline) = sample.deadline_ms {
            // In microseconds, as floats have no order.
            deadlines.insert((deadline * 1e3) as u64);
            messages.due += 1;
            messages.in_time += usize::from(sample.latency_ms.is_some_and(|latency| latency <= deadline));
        }
        match (sample.latency_ms, sample.deadline_ms) {
            (None, _) => messages.lost += 1,
            (Some(latency), Some(deadline)) if is_slack => messages.arrived.push(deadline - latency),
            (Some(latency), _) => messages.arrived.push(latency),
        }
    }
    for who in seen {
        lines.entry(who).or_default().runs += 1;
    }
}

fn draw(
    directory: &Directory,
    looks: &Looks,
    plot: &Plot,
    place: &Place,
    lines: &BTreeMap<usize, Messages>,
    is_slack: bool,
    deadlines: &BTreeSet<u64>,
) -> Chart {
    let ends: Vec<f64> =
        lines.values().flat_map(|m| [m.arrived.first(), m.arrived.last()]).flatten().copied().collect();
    let most = ends.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
    let (unit, factor) = scaled("ms", most);
    let x = axis(plot, lines, &ends, is_slack, (unit, factor));
    let is_rare = |m: &Messages| m.due > 0 && (m.due - m.in_time) as f64 / m.due as f64 <= RARE;
    let is_log = match plot.y_scale {
        Some(chosen) => chosen == ScaleName::Log,
        None => is_slack && lines.values().all(is_rare) && lines.values().any(|m| m.in_time < m.due),
    };
    // On a logarithmic axis the share that takes longer says more than the one that does not.
    let is_complement = is_log && !is_slack;
    let left = match x.scale {
        Scale::Linear { min, .. } | Scale::Log { min, .. } => min,
        Scale::Ordinal(_) => 0.0,
    };
    let right = match x.scale {
        Scale::Linear { max, .. } | Scale::Log { max, .. } => max,
        Scale::Ordinal(_) => 1.0,
    };
    let (mut marks, mut legend) = (Vec::new(), Vec::new());
    let own =
        if is_slack { [0.0].into() } else { deadlines.iter().map(|us| *us as f64 / 1e3).collect::<Vec<_>>() };
    if own.len() <= 3 {
        for at in own {
            let look = Look { dash: "6 4", width: 1.1, ..Look::of(QUIET) };
            let label = if is_slack { "too late ← → in time" } else { "" };
            marks.push(Mark::Down { x: at * factor, label: label.into(), look });
            if !is_slack && legend.is_empty() {
                legend.push(Entry { label: "deadline".into(), look, swatch: Swatch::Line });
            }
        }
    }
    let mut data = Data::new([
        "transport",
        "messages",
        "runs",
        "lost %",
        "in time %",
        "1 %",
        "10 %",
        "50 %",
        "90 %",
        "99 %",
        "99.9 %",
    ]);
    for (who, messages) in lines {
        let (name, look) = (&directory.names[*who], looks.get(*who));
        legend.push(Entry { label: name.clone(), look, swatch: Swatch::Line });
        marks.push(Mark::Line {
            points: steps(messages, is_slack, factor, (left, right)),
            look,
            stepped: true,
        });
        let share = |part: usize, all: usize| (all > 0).then(|| part as f64 * 100.0 / all as f64);
        let mut row = vec![
            name.as_str().into(),
            (messages.all() as f64).into(),
            (messages.runs as f64).into(),
            share(messages.lost, messages.all()).into(),
            share(messages.in_time, messages.due).into(),
        ];
        row.extend(
            [0.01, 0.1, 0.5, 0.9, 0.99, 0.999]
                .map(|s| messages.quantile(s, is_slack).map(|v| v * factor).into()),
        );
        data.rows.push(row);
    }
    let what = if is_slack { "deadline slack" } else { "latency" };
    let title = plot.title.clone().unwrap_or_else(|| format!("Distribution of {what}"));
    let subtitle = place_in_words(directory, place, &[]);
    let label = if is_complement { "Share of messages that take longer" } else { "Share of messages" };
    let all = lines.values().map(Messages::all).max().unwrap_or(1) as f64;
    let scale =
        if is_log { Scale::Log { min: (0.5 / all).max(1e-6), max: 1.0 } } else { Scale::between(0.0, 1.0) };
    let y = Axis { label: label.into(), scale };
    let names: Vec<&str> = lines.keys().map(|who| directory.names[*who].as_str()).collect();
    let picture = Picture {
        title: title.clone(),
        subtitle: subtitle.clone(),
        description: format!(
            "Cumulative distribution of {what}; {subtitle}. Transports: {}.",
            names.join(", ")
        ),
        legend,
        x,
        panels: vec![Panel { y, marks, height: 260.0 }],
        numbered: Vec::new(),
        width: 580.0,
    };
    let caption = caption(directory, plot, place, lines, is_slack, unit);
    Chart {
        title: format!("{title}, {subtitle}"),
        svg: picture.svg(),
        caption,
        data,
        zoom: None,
        is_wide: false,
        notes: Vec::new(),
    }
}

fn axis(
    plot: &Plot,
    lines: &BTreeMap<usize, Messages>,
    ends: &[f64],
    is_slack: bool,
    (unit, factor): (&str, f64),
) -> Axis {
    let scaled = |values: &[f64]| values.iter().map(|v| v * factor).collect::<Vec<_>>();
    let label = if is_slack { "Slack: deadline less latency" } else { "Latency" };
    let middle: Vec<f64> = lines
        .values()
        .flat_map(|m| [quantile(&m.arrived, 0.05), quantile(&m.arrived, 0.99)])
        .flatten()
        .collect();
    let least = middle.iter().copied().fold(f64::INFINITY, f64::min);
    let most = middle.iter().copied().fold(0.0, f64::max);
    let wants_log = match plot.x_scale {
        Some(chosen) => chosen == ScaleName::Log,
        None => !is_slack && least > 0.0 && most / least >= LOG_FROM,
    };
    let log = wants_log.then(|| Scale::log(scaled(ends).into_iter().filter(|v| *v > 0.0))).flatten();
    // On an even axis a single message that took long would squeeze all others.
    let farthest = if is_slack { quantile_of_all(lines, 0.002) } else { quantile_of_all(lines, 0.998) };
    let mut shown: Vec<f64> = ends.to_vec();
    if let Some(far) = farthest {
        match is_slack {
            true => shown.iter_mut().for_each(|v| *v = v.max(far)),
            false => shown.iter_mut().for_each(|v| *v = v.min(far)),
        }
    }
    let scale = log.unwrap_or_else(|| Scale::linear(scaled(&shown), !is_slack));
    Axis { label: format!("{label} ({unit})"), scale }
}

/// The farthest of all transports' quantiles.
fn quantile_of_all(lines: &BTreeMap<usize, Messages>, share: f64) -> Option<f64> {
    let each = lines.values().filter_map(|m| quantile(&m.arrived, share));
    if share > 0.5 { each.max_by(f64::total_cmp) } else { each.min_by(f64::total_cmp) }
}

/// The corners of a distribution's line, from one edge of the picture to the other.
fn steps(messages: &Messages, is_slack: bool, factor: f64, (left, right): (f64, f64)) -> Vec<(f64, f64)> {
    let (count, all) = (messages.arrived.len(), messages.all() as f64);
    // What is lost has no slack at all: its share is there from the left edge on.
    let before = if is_slack { messages.lost as f64 } else { 0.0 };
    let body = (0..BODY_POINTS).map(|i| i * count / BODY_POINTS);
    // The tail that matters: the slowest, or those with the least slack.
    let tail: Vec<usize> = if is_slack {
        (0..TAIL_POINTS.min(count)).collect()
    } else {
        (count.saturating_sub(TAIL_POINTS)..count).collect()
    };
    let ranks: BTreeSet<usize> =
        body.chain(tail).chain(count.checked_sub(1)).filter(|i| *i < count).collect();
    let mut points = vec![(left, before / all)];
    for rank in ranks {
        let value = messages.arrived[rank] * factor;
        points.push((value.clamp(left, right), (before + rank as f64 + 1.0) / all));
    }
    if let Some(&(_, last)) = points.last() {
        points.push((right, last));
    }
    points
}

fn caption(
    directory: &Directory,
    plot: &Plot,
    place: &Place,
    lines: &BTreeMap<usize, Messages>,
    is_slack: bool,
    unit: &str,
) -> String {
    let mut caption = plot.caption.as_ref().map(|own| format!("{own} ")).unwrap_or_default();
    let runs: BTreeSet<usize> = lines.values().map(|m| m.runs).collect();
    let n = match (runs.first(), runs.last()) {
        (Some(a), Some(b)) if a == b => format!("{a}"),
        (Some(a), Some(b)) => format!("{a} to {b}"),
        _ => "0".into(),
    };
    caption.push_str(&format!(
        "All messages of the valid repetitions together (n = {n} runs of each transport). "
    ));
    caption.push_str(match is_slack {
        true => {
            "What is left of a message’s time when it arrives: below 0 it is too late. A lost message has no slack at all, so \
             that a line begins with the share that is lost at the left edge; where it meets 0, it says how many miss their \
             deadline."
        }
        false => "A lost message never arrives: a line that stays below 1 misses the share that is lost.",
    });
    let lost: Vec<String> = lines
        .iter()
        .filter(|(_, m)| m.lost > 0)
        .map(|(who, m)| {
            format!("{} {} %", directory.names[*who], three_digits(m.lost as f64 * 100.0 / m.all() as f64))
        })
        .collect();
    if !lost.is_empty() {
        caption.push_str(&format!(" Lost: {}.", lost.join(", ")));
    }
    caption.push_str(&format!(" The table has quantiles in {unit}, of all messages, lost ones included."));
    if let Some(path) = path_in_words(directory, place) {
        caption.push_str(&format!(" Path {path}."));
    }
    caption
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(arrived: &[f64], lost: usize) -> Messages {
        Messages { arrived: arrived.to_vec(), lost, ..Messages::default() }
    }

    #[test]
    fn what_is_lost_counts_as_never() {
        let late = messages(&[10.0, 20.0, 30.0], 1);
        assert_eq!(late.quantile(0.5, false), Some(20.0));
        assert_eq!(late.quantile(0.75, false), Some(30.0));
        assert_eq!(late.quantile(0.99, false), None);
        let points = steps(&late, false, 1.0, (0.0, 100.0));
        assert_eq!(points.first(), Some(&(0.0, 0.0)));
        assert_eq!(points.last(), Some(&(100.0, 0.75)));
    }

    #[test]
    fn what_is_lost_has_no_slack() {
        let slack = messages(&[-5.0, 40.0, 50.0], 1);
        assert_eq!(slack.quantile(0.1, true), None);
        assert_eq!(slack.quantile(0.5, true), Some(-5.0));
        assert_eq!(slack.quantile(1.0, true), Some(50.0));
        let points = steps(&slack, true, 1.0, (-10.0, 60.0));
        assert_eq!(points, [(-10.0, 0.25), (-5.0, 0.5), (40.0, 0.75), (50.0, 1.0), (60.0, 1.0)]);
    }
}
