//! Records of a run against time, as curves in the units of the data.

use super::cdf::latencies;
use super::directory::{Directory, Run};
use super::looks::Looks;
use super::plot::Plot;
use super::select::unknown;
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use uts_plot::svg::{Ink, Look, QUIET, Shape, TEXT};
use uts_plot::thin::growth;
use uts_record::samples::{Delivered, Latency, Queue, SampleRow, Sequence, Window};

/// Goodput is averaged over such a part of the time that is shown.
pub(super) const BINS: f64 = 120.0;

/// Ink of what was repeated or lost, whichever end sent it.
pub(super) const LOST: Ink = Ink { name: "fault", light: "#d4145a", dark: "#ff6f9f" };

/// Records against time, from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
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
    /// Name of the record, the unit of its data, and the file that it is in.
    pub(super) fn about(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Recorded::Sequence => ("Sequence number", "bytes", Sequence::FILE),
            Recorded::Window => ("Window", "bytes", Window::FILE),
            Recorded::Rtt => ("Round-trip time", "ms", Window::FILE),
            Recorded::Goodput => ("Goodput", "bit/s", Delivered::FILE),
            Recorded::Latency => ("Latency", "ms", Latency::FILE),
            Recorded::Queue => ("Queue", "packets", Queue::FILE),
            Recorded::Sojourn => ("Time in the queue", "ms", Queue::FILE),
        }
    }
}

/// Something against time.
pub(super) struct Curve {
    pub name: String,
    pub look: Look,
    pub style: Style,
    pub points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Line,
    Step,
    Dots,
    Ring,
    Cross,
}

/// Curves in the unit of the data.
pub(super) struct Curves {
    pub recorded: Recorded,
    pub unit: &'static str,
    pub curves: Vec<Curve>,
}

pub(super) fn recorded(names: &[String]) -> Result<Vec<Recorded>> {
    if names.is_empty() {
        return Ok(ALL.map(|(_, recorded)| recorded).into());
    }
    let of = |name: &String| match ALL.iter().find(|(known, _)| known == name) {
        Some((_, recorded)) => Ok(*recorded),
        None => bail!("{}", unknown("recording", name, &ALL.map(|(known, _)| known.to_owned()))),
    };
    names.iter().map(of).collect()
}

/// Reads one recording of a run.
pub(super) fn curves(
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

/// Samples of a flow are kept in order of time.
trait Sample {
    fn t_s(&self) -> f64;
    fn flow(&self) -> &str;
}

macro_rules! sample {
    ($($kind:ident: $flow:ident),*) => {
        $(impl Sample for $kind {
            fn t_s(&self) -> f64 {
                self.t_s
            }

            fn flow(&self) -> &str {
                &self.$flow
            }
        })*
    };
}

sample!(Sequence: flow, Window: flow, Delivered: flow, Queue: link, Latency: flow);

/// Samples by flow, in the order of their first; those of a flow in order of time.
fn by_flow<T: Sample>(rows: Vec<T>) -> Vec<(String, Vec<T>)> {
    let mut flows = grouped(rows);
    flows.iter_mut().for_each(|(_, rows)| rows.sort_by(|a, b| a.t_s().total_cmp(&b.t_s())));
    flows
}

fn grouped<T: Sample>(rows: Vec<T>) -> Vec<(String, Vec<T>)> {
    let mut flows: Vec<(String, Vec<T>)> = Vec::new();
    for row in rows {
        match flows.iter_mut().find(|(name, _)| name == row.flow()) {
            Some((_, rows)) => rows.push(row),
            None => flows.push((row.flow().to_owned(), vec![row])),
        }
    }
    flows
}

fn look_of(directory: &Directory, looks: &Looks, run: &Run, flow: &str) -> Look {
    looks.get(directory.names.iter().position(|n| n == flow).unwrap_or(run.who))
}

fn sequence(directory: &Directory, looks: &Looks, run: &Run) -> Vec<Curve> {
    let rows: Vec<Sequence> = directory.samples(run);
    let flows = by_flow(rows);
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
    let rows: Vec<Window> = directory.samples(run);
    let flows = grouped(rows);
    let is_alone = flows.len() == 1;
    let mut curves = Vec::new();
    for (flow, rows) in flows {
        let rows = sender(rows);
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

/// Each of the two ends of a flow reports its own window. This is the end that has more in flight:
/// it sends the data. If that is not known, it is the client, which stands first.
fn sender(rows: Vec<Window>) -> Vec<Window> {
    let mut ends: Vec<Vec<Window>> = Vec::new();
    for row in rows {
        let is_same = |end: &&mut Vec<Window>| {
            end.last().is_none_or(|last| last.end == row.end && (!row.end.is_empty() || last.t_s <= row.t_s))
        };
        // Where ends are not named, one stands after the other.
        let known = if row.end.is_empty() { ends.len().saturating_sub(1) } else { 0 };
        match ends.iter_mut().skip(known).find(is_same) {
            Some(end) => end.push(row),
            None => ends.push(vec![row]),
        }
    }
    let in_flight = |end: &Vec<Window>| end.iter().filter_map(|row| row.in_flight_bytes).sum::<f64>();
    // The first of those that are equal: `max_by` gives the last.
    ends.reverse();
    ends.into_iter().max_by(|a, b| in_flight(a).total_cmp(&in_flight(b))).unwrap_or_default()
}

fn goodput(directory: &Directory, looks: &Looks, run: &Run, plot: &Plot) -> Vec<Curve> {
    let rows: Vec<Delivered> = directory.samples(run);
    let flows = by_flow(rows);
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
    for (flow, rows) in by_flow(latencies(directory, run)) {
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
    let rows: Vec<Queue> = directory.samples(run);
    by_flow(rows).into_iter().flat_map(|(_, rows)| rows).collect()
}

/// The name of the bottleneck of a run.
pub(super) fn bottleneck(directory: &Directory, run: &Run) -> Option<String> {
    busiest(&queue_samples(directory, run))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_acknowledged_only_grows() {
        assert_eq!(highest(&[(0.0, 5.0), (1.0, 3.0), (2.0, 5.0), (3.0, 9.0)]), [(0.0, 5.0), (3.0, 9.0)]);
    }

    #[test]
    fn of_two_ends_the_one_that_sends_is_shown() {
        let named = |end: &str, t_s, in_flight| Window {
            t_s,
            flow: "a".into(),
            end: end.into(),
            window_bytes: None,
            in_flight_bytes: Some(in_flight),
            rtt_ms: None,
            threshold_bytes: None,
        };
        let row = |t_s, in_flight| named("", t_s, in_flight);
        let times = |rows: Vec<Window>| rows.iter().map(|r| r.t_s).collect::<Vec<_>>();
        assert_eq!(
            times(sender(vec![row(1.0, 0.0), row(2.0, 0.0), row(1.1, 5.0), row(2.1, 9.0)])),
            [1.1, 2.1]
        );
        assert_eq!(times(sender(vec![row(1.0, 0.0), row(2.0, 0.0), row(1.1, 0.0)])), [1.0, 2.0]);
        assert!(sender(Vec::new()).is_empty());
        // In virtual time both ends tell in turns.
        let turns = |client, server| {
            let both = [1.0, 2.0].map(|t| [named("client", t, client), named("server", t + 0.5, server)]);
            times(sender(both.into_iter().flatten().collect()))
        };
        assert_eq!(turns(5.0, 0.0), [1.0, 2.0]);
        assert_eq!(turns(0.0, 5.0), [1.5, 2.5]);
        assert_eq!(turns(0.0, 0.0), [1.0, 2.0]);
    }

    #[test]
    fn samples_are_in_order_of_time() {
        let row =
            |t_s, link: &str| Queue { t_s, link: link.into(), packets: None, bytes: None, sojourn_ms: None };
        let rows = by_flow(vec![row(2.0, "b"), row(1.0, "a"), row(1.5, "b")]);
        let seen: Vec<_> =
            rows.iter().flat_map(|(link, rows)| rows.iter().map(move |r| (link.as_str(), r.t_s))).collect();
        assert_eq!(seen, [("b", 1.5), ("b", 2.0), ("a", 1.0)]);
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
