//! Data of the page's charts, as JSON for `assets/report.js`.

use super::summary::compared;
use serde::Serialize;
use std::collections::HashMap;
use uts_plot::thin::{envelope, every_nth, growth};
use uts_record::demo::{LinkStep, Points, Queue, Record, Run};

/// Most points of a series of each kind: together with the rest the page stays below 3 MB, and a
/// chart zoomed ten times still shows single packets of the standard file.
const SENT_POINTS_MAX: usize = 40_000;
const MARK_POINTS_MAX: usize = 6_000;
const LINE_POINTS_MAX: usize = 6_000;
/// The name in [`Charts::thinned`] of the series of round trips.
pub(super) const ROUND_TRIPS: &str = "Round trip";
/// The chart that is left out if packets were not traced.
pub(super) const DETAIL: &str = "detail";
/// Stretch of time that it shows, in round trips about the first change of the path.
const DETAIL_RTTS_BEFORE: f64 = 2.0;
const DETAIL_RTTS_AFTER: f64 = 12.0;
/// Throughput is averaged over at least this time, and a hundred times over the longest run.
const BIN_S_MIN: f64 = 0.2;

/// All charts of a page.
#[derive(Debug, Serialize)]
pub(super) struct Charts {
    /// The end of the time axis.
    end_s: f64,
    phases: Vec<Phase>,
    marks: Vec<Mark>,
    charts: Vec<Chart>,
    /// Time that throughput is averaged over.
    #[serde(skip)]
    pub bin_s: f64,
    /// The charts' series that were thinned: their names, and how many packets a point stands for.
    #[serde(skip)]
    pub thinned: Vec<(&'static str, usize)>,
    /// There is a chart of the packets about the first change of the path.
    #[serde(skip)]
    pub has_detail: bool,
    /// Packets were traced.
    #[serde(skip)]
    pub traced: bool,
}

/// A stretch of time in which the path stays as it is.
#[derive(Debug, Serialize)]
struct Phase {
    from_s: f64,
    to_s: f64,
    /// Labels, longest first; the page takes the first that fits.
    labels: Vec<String>,
    /// `plain`, `lossy` or `slow`.
    kind: &'static str,
}

/// An exchange.
#[derive(Debug, Serialize)]
struct Mark {
    t_s: f64,
    label: String,
}

#[derive(Debug, Serialize)]
struct Chart {
    id: &'static str,
    y_label: &'static str,
    /// Stretch of time that it shows at first.
    from_s: f64,
    end_s: f64,
    /// It is an excerpt, which keeps to its own stretch of time and values.
    excerpt: bool,
    unit: &'static str,
    series: Vec<Series>,
}

#[derive(Debug, Serialize)]
struct Series {
    name: String,
    /// Names a colour of the page.
    role: &'static str,
    /// `line`, `step`, `dash`, `dots`, `cross` or `ring`.
    style: &'static str,
    shown: bool,
    t: Vec<f64>,
    v: Vec<f64>,
}

impl Series {
    fn new(name: impl Into<String>, role: &'static str, style: &'static str, points: &[(f64, f64)]) -> Self {
        let (t, v) = points.iter().map(|&(t, v)| (rounded(t, 1e4), rounded(v, 1e3))).unzip();
        Series { name: name.into(), role, style, shown: true, t, v }
    }

    fn hidden(self) -> Self {
        Series { shown: false, ..self }
    }
}

/// Fewer digits: enough for a screen, and a smaller page.
fn rounded(value: f64, per_unit: f64) -> f64 {
    (value * per_unit).round() / per_unit
}

/// Describes the charts of a record.
pub(super) fn charts(record: &Record) -> Charts {
    let end_s = record.runs.iter().map(|run| run.summary.duration_s).fold(0.0, f64::max);
    let adaptive = record.runs.first();
    let fixed = record.runs.get(1);
    let bin_s = (end_s / 100.0).max(BIN_S_MIN);
    let mut thinned = Vec::new();
    // Only throughput shows the longer run to its end; in the others it would squeeze what matters.
    let own_end_s = adaptive.map_or(end_s, |run| run.summary.duration_s);
    let throughput = Chart { end_s, ..throughput(adaptive, fixed, bin_s) };
    let others = [
        sequence(adaptive, fixed, &mut thinned),
        queue(adaptive, fixed, record.setting.buffer_packets),
        round_trips(adaptive, record.setting.base_rtt_ms, &mut thinned),
    ];
    let others = others.map(|chart| Chart { end_s: own_end_s, ..chart });
    let detail = adaptive.and_then(|run| detail(run, record.setting.base_rtt_ms / 1e3));
    let charts: Vec<Chart> = std::iter::once(throughput).chain(others).chain(detail).collect();
    Charts {
        end_s,
        phases: adaptive.map(phases).unwrap_or_default(),
        marks: adaptive.map(marks).unwrap_or_default(),
        has_detail: charts.iter().any(|chart| chart.id == DETAIL),
        charts,
        bin_s,
        thinned,
        traced: adaptive.is_some_and(|run| !run.trace.sent.t_s.is_empty()),
    }
}

fn marks(run: &Run) -> Vec<Mark> {
    let numbered = run.exchanges.iter().zip(1..);
    numbered.map(|(e, n)| Mark { t_s: e.t_s, label: n.to_string() }).collect()
}

fn phases(run: &Run) -> Vec<Phase> {
    let ends = run.link.iter().skip(1).map(|s| s.t_s).chain([run.summary.duration_s]);
    let first_rate = run.link.first().and_then(|s| s.rate_bps);
    let phase = |(step, end): (&LinkStep, f64)| Phase {
        from_s: step.t_s.max(0.0),
        to_s: end.min(run.summary.duration_s),
        labels: phase_labels(step),
        kind: match step {
            s if s.loss > 0.0 => "lossy",
            s if s.rate_bps != first_rate => "slow",
            _ => "plain",
        },
    };
    run.link.iter().zip(ends).map(phase).filter(|p| p.to_s > p.from_s).collect()
}

/// Labels of a stretch of time, longest first.
pub(super) fn phase_labels(step: &LinkStep) -> Vec<String> {
    let rate = step.rate_bps.map_or("unlimited".into(), |r| format!("{} Mbit/s", r as f64 / 1e6));
    if step.loss <= 0.0 {
        return vec![rate];
    }
    let percent = format!("{} %", rounded(step.loss * 100.0, 100.0));
    vec![
        format!("{rate}, {percent} loss in bursts of {}", rounded(step.burst, 10.0)),
        format!("{rate}, {percent} loss"),
        format!("{percent} loss"),
    ]
}

fn throughput(adaptive: Option<&Run>, fixed: Option<&Run>, bin_s: f64) -> Chart {
    let mut series = Vec::new();
    if let Some(run) = adaptive {
        series.push(Series::new("Rate of the path", "limit", "step", &rate_steps(run, false)));
        series.push(Series::new("Rate less mean loss", "limit", "dash", &rate_steps(run, true)));
    }
    if let Some(run) = fixed {
        let (name, steps) = (compared(run), rate_steps(run, true));
        series.push(Series::new(format!("Rate less mean loss, {name}"), "fixed", "dash", &steps));
        series.push(Series::new(format!("Goodput, {name}"), "fixed", "line", &goodput_mbps(run, bin_s)));
    }
    if let Some(run) = adaptive {
        let delivered = delivered_mbps(run, bin_s);
        series.push(Series::new("Delivered, with headers and redundancy", "delivered", "line", &delivered));
        series.push(Series::new("Goodput, adaptive", "adaptive", "line", &goodput_mbps(run, bin_s)));
    }
    Chart {
        id: "throughput",
        y_label: "Rate (Mbit/s)",
        from_s: 0.0,
        end_s: 0.0,
        excerpt: false,
        unit: "Mbit/s",
        series,
    }
}

/// Corners of the link's rate over time in Mbit/s; nothing where it is unlimited.
fn rate_steps(run: &Run, after_loss: bool) -> Vec<(f64, f64)> {
    let value = |step: &LinkStep| {
        let rate_mbps = step.rate_bps? as f64 / 1e6;
        Some((step.t_s.max(0.0), if after_loss { rate_mbps * (1.0 - step.loss) } else { rate_mbps }))
    };
    let mut steps: Vec<(f64, f64)> = run.link.iter().filter_map(value).collect();
    if let Some(&(_, last)) = steps.last() {
        steps.push((run.summary.duration_s, last));
    }
    steps
}

/// Bytes that had arrived, over time.
pub(super) fn arrived(run: &Run) -> Vec<(f64, f64)> {
    // The receiver knows when data arrived; the sender only when it heard of it.
    let told = if run.received.t_s.len() > 2 { &run.received } else { &run.progress };
    let mut totals = paired(&told.t_s, &told.bytes);
    totals.push((run.summary.duration_s, run.summary.payload_bytes as f64));
    totals
}

fn goodput_mbps(run: &Run, bin_s: f64) -> Vec<(f64, f64)> {
    let mut totals = arrived(run);
    totals.dedup_by(|later, earlier| later.0 <= earlier.0);
    mbps(&growth(&totals, bin_s, run.summary.duration_s))
}

fn delivered_mbps(run: &Run, bin_s: f64) -> Vec<(f64, f64)> {
    let totals = paired(&run.queue.t_s, &run.queue.bytes_delivered);
    mbps(&growth(&totals, bin_s, run.summary.duration_s))
}

fn mbps(bytes_per_s: &[(f64, f64)]) -> Vec<(f64, f64)> {
    bytes_per_s.iter().map(|(t, rate)| (*t, rate * 8.0 / 1e6)).collect()
}

fn paired(times: &[f64], values: &[u64]) -> Vec<(f64, f64)> {
    times.iter().zip(values).map(|(t, v)| (*t, *v as f64)).collect()
}

fn sequence(adaptive: Option<&Run>, fixed: Option<&Run>, thinned: &mut Vec<(&'static str, usize)>) -> Chart {
    let mut series = Vec::new();
    if let Some(run) = fixed {
        let name =
            format!("{}, {}", if run.is_of_another() { "Arrived" } else { "Acknowledged" }, compared(run));
        series.push(Series::new(name, "fixed", "line", &acknowledged(run)));
    }
    if let Some(run) = adaptive {
        let trace = &run.trace;
        let positions = positions(&[&trace.sent, &trace.repeat]);
        let located = |points: &Points| megabytes(&locate(points, &positions));
        let mut thin = |name: &'static str, points: &[(f64, f64)], max: usize| {
            let (kept, step) = every_nth(points, max);
            if step > 1 {
                thinned.push((name, step));
            }
            kept
        };
        if trace.sent.t_s.is_empty() {
            series.push(Series::new("Acknowledged", "acked", "line", &acknowledged(run)));
        } else {
            let sent = thin("Sent", &located(&trace.sent), SENT_POINTS_MAX);
            series.push(Series::new("Sent", "adaptive", "dots", &sent));
            series.push(Series::new("Highest acknowledged", "acked", "step", &acknowledged(run)));
            let repeats = thin("Repeated", &located(&trace.repeat), MARK_POINTS_MAX);
            series.push(Series::new("Repeated", "repeat", "ring", &repeats));
            let lost = thin("Lost", &located(&trace.lost), MARK_POINTS_MAX);
            series.push(Series::new("Found lost", "lost", "cross", &lost));
        }
    }
    Chart {
        id: "sequence",
        y_label: "Sequence number (MB)",
        from_s: 0.0,
        end_s: 0.0,
        excerpt: false,
        unit: "MB",
        series,
    }
}

/// Reach of acknowledgements, in megabytes over time; by the sender's reports if packets were not
/// traced.
fn acknowledged(run: &Run) -> Vec<(f64, f64)> {
    let trace = &run.trace;
    let traced = locate(&trace.acked, &positions(&[&trace.sent, &trace.repeat]));
    let points = match traced.is_empty() {
        false => highest_so_far(&traced),
        true if run.is_of_another() => paired(&run.received.t_s, &run.received.bytes),
        true => paired(&run.progress.t_s, &run.progress.bytes),
    };
    envelope(&megabytes(&points), LINE_POINTS_MAX)
}

/// The sequence numbers around the first change of the path, near enough to tell packets apart.
fn detail(run: &Run, base_rtt_s: f64) -> Option<Chart> {
    let change_s = run.changes.first()?.t_s;
    if run.trace.sent.t_s.is_empty() {
        return None;
    }
    let from_s = (change_s - DETAIL_RTTS_BEFORE * base_rtt_s).max(0.0);
    let end_s = change_s + DETAIL_RTTS_AFTER * base_rtt_s;
    let trace = &run.trace;
    let positions = positions(&[&trace.sent, &trace.repeat]);
    let excerpt = |points: &Points| {
        let mut located = megabytes(&locate(points, &positions));
        located.retain(|(t, _)| (from_s..=end_s).contains(t));
        every_nth(&located, SENT_POINTS_MAX / 4).0
    };
    let series = vec![
        Series::new("Sent", "adaptive", "dots", &excerpt(&trace.sent)),
        Series::new("Acknowledged", "acked", "dots", &excerpt(&trace.acked)),
        Series::new("Repeated", "repeat", "ring", &excerpt(&trace.repeat)),
        Series::new("Found lost", "lost", "cross", &excerpt(&trace.lost)),
    ];
    let (id, y_label) = (DETAIL, "Sequence number (MB)");
    Some(Chart { id, y_label, from_s, end_s, excerpt: true, unit: "MB", series })
}

pub(super) fn megabytes(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points.iter().map(|(t, bytes)| (*t, bytes / 1e6)).collect()
}

/// The position that each packet carried.
fn positions(sent: &[&Points]) -> HashMap<u64, u64> {
    let known = |points: &&Points| {
        let numbered = points.number.iter().copied().zip(points.position.iter().copied());
        numbered.filter_map(|(number, position)| Some((number, position?))).collect::<Vec<_>>()
    };
    sent.iter().flat_map(known).collect()
}

/// Points by position; packets that carried no data are left out.
fn locate(points: &Points, positions: &HashMap<u64, u64>) -> Vec<(f64, f64)> {
    let columns = points.t_s.iter().zip(&points.number).zip(&points.position);
    columns
        .filter_map(|((t, number), position)| {
            let position = position.or_else(|| positions.get(number).copied())?;
            Some((*t, position as f64))
        })
        .collect()
}

fn highest_so_far(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut highest = f64::NEG_INFINITY;
    let mut steps = Vec::new();
    for &(t, value) in points {
        if value > highest {
            highest = value;
            steps.push((t, value));
        }
    }
    steps
}

fn queue(adaptive: Option<&Run>, fixed: Option<&Run>, limit: Option<u64>) -> Chart {
    let end_s = adaptive.map_or(0.0, |run| run.summary.duration_s);
    let length = |queue: &Queue| envelope(&paired(&queue.t_s, &queue.packets), LINE_POINTS_MAX);
    let mut series = Vec::new();
    if let Some(limit) = limit {
        let line = [(0.0, limit as f64), (end_s, limit as f64)];
        series.push(Series::new("Limit", "limit", "dash", &line));
    }
    if let Some(run) = fixed {
        series.push(
            Series::new(format!("Queue, {}", compared(run)), "fixed", "line", &length(&run.queue)).hidden(),
        );
    }
    if let Some(run) = adaptive {
        series.push(Series::new("Queue, adaptive", "adaptive", "line", &length(&run.queue)));
    }
    Chart {
        id: "queue",
        y_label: "Queue (packets)",
        from_s: 0.0,
        end_s: 0.0,
        excerpt: false,
        unit: "packets",
        series,
    }
}

fn round_trips(adaptive: Option<&Run>, base_rtt_ms: f64, thinned: &mut Vec<(&'static str, usize)>) -> Chart {
    let mut series = Vec::new();
    if let Some(run) = adaptive {
        let (samples, step) = every_nth(&rtt_samples(run), MARK_POINTS_MAX);
        if step > 1 {
            thinned.push((ROUND_TRIPS, step));
        }
        if !samples.is_empty() {
            series.push(Series::new("Round trip of a packet", "faint", "dots", &samples));
        }
        let told = run.progress.t_s.iter().zip(&run.progress.rtt_ms);
        let smoothed: Vec<(f64, f64)> = told.filter_map(|(t, rtt)| Some((*t, (*rtt)?))).collect();
        let smoothed = envelope(&smoothed, LINE_POINTS_MAX);
        series.push(Series::new("Smoothed, as the sender has it", "adaptive", "line", &smoothed));
    }
    let end_s = adaptive.map_or(0.0, |run| run.summary.duration_s);
    let base = [(0.0, base_rtt_ms), (end_s, base_rtt_ms)];
    series.push(Series::new("Propagation alone", "limit", "dash", &base));
    Chart {
        id: "rtt",
        y_label: "Round-trip time (ms)",
        from_s: 0.0,
        end_s: 0.0,
        excerpt: false,
        unit: "ms",
        series,
    }
}

/// From sending a packet to learning that it had arrived, at the time of learning, in milliseconds.
fn rtt_samples(run: &Run) -> Vec<(f64, f64)> {
    let both = [&run.trace.sent, &run.trace.repeat];
    let departures: HashMap<u64, f64> =
        both.iter().flat_map(|p| p.number.iter().copied().zip(p.t_s.iter().copied())).collect();
    let acked = run.trace.acked.number.iter().zip(&run.trace.acked.t_s);
    acked.filter_map(|(number, t)| Some((*t, (t - departures.get(number)?) * 1e3))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(rows: &[(f64, u64, Option<u64>)]) -> Points {
        Points {
            t_s: rows.iter().map(|r| r.0).collect(),
            number: rows.iter().map(|r| r.1).collect(),
            position: rows.iter().map(|r| r.2).collect(),
        }
    }

    #[test]
    fn a_loss_is_placed_where_its_packet_was() {
        let sent = points(&[(0.0, 7, Some(100)), (0.1, 8, None)]);
        let known = positions(&[&sent]);
        assert_eq!(locate(&points(&[(0.5, 7, None), (0.6, 8, None)]), &known), [(0.5, 100.0)]);
    }

    #[test]
    fn round_trips_are_by_transmission() {
        let mut run = Run::default();
        run.trace.sent = points(&[(1.0, 1, Some(0))]);
        run.trace.repeat = points(&[(2.0, 2, Some(0))]);
        run.trace.acked = points(&[(2.05, 2, None), (2.06, 3, None)]);
        let samples = rtt_samples(&run);
        assert_eq!(samples.len(), 1);
        assert!((samples[0].1 - 50.0).abs() < 1e-6);
    }

    #[test]
    fn phases_end_where_the_next_begins_and_say_what_they_are() {
        let step = |t_s, rate_bps, loss| LinkStep { t_s, rate_bps: Some(rate_bps), loss, burst: 4.0 };
        let run = Run {
            link: vec![step(-0.5, 50_000_000, 0.0), step(3.0, 50_000_000, 0.05), step(6.0, 20_000_000, 0.0)],
            summary: uts_record::demo::Summary { duration_s: 9.0, ..Default::default() },
            ..Run::default()
        };
        let phases = phases(&run);
        let seen: Vec<_> = phases.iter().map(|p| (p.from_s, p.to_s, p.kind, p.labels[0].as_str())).collect();
        assert_eq!(
            seen,
            [
                (0.0, 3.0, "plain", "50 Mbit/s"),
                (3.0, 6.0, "lossy", "50 Mbit/s, 5 % loss in bursts of 4"),
                (6.0, 9.0, "slow", "20 Mbit/s"),
            ]
        );
        let steps = rate_steps(&run, true);
        assert_eq!(steps, [(0.0, 50.0), (3.0, 47.5), (6.0, 20.0), (9.0, 20.0)]);
    }
}
