//! Sequence diagrams: each packet as a line from one end to the other, the runs of a place one
//! above the other, over the same time. What was sent and what arrived is in the qlogs of both
//! ends.

use super::chart::{Chart, Data};
use super::directory::{Directory, Place, Run};
use super::looks::{OTHERS, OWN};
use super::plot::Plot;
use super::recorded::Recorded;
use super::select::{Selection, path_in_words, place_in_words};
use super::trace::chosen;
use anyhow::{Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use uts_plot::svg::{Axis, Entry, Ink, Look, Mark, Panel, Picture, QUIET, Scale, Shape, Swatch};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 64.0;
/// Diagrams of a picture, at the most: a page.
const DIAGRAMS_MAX: usize = 12;
/// Lines of a diagram, at the most: more are a surface.
const LINES_MAX: usize = 600;

const NEW: Look = line(OWN[0].ink, 1.2);
const REPEATED: Look = line(OTHERS[0].ink, 1.8);
const REPORT: Look = line(QUIET, 0.8);
/// Where a line ends that did not arrive.
const LOST: Look = Look { shape: Shape::Cross, ..line(OTHERS[5].ink, 1.2) };

const fn line(ink: Ink, width: f64) -> Look {
    Look { width, ..Look::of(ink) }
}

/// The ends of a diagram, from below.
const ENDS: [&str; 2] = ["client", "server"];

/// Packets of an end with an arrow's head each, at the most: more would run together. Repeats have
/// one always.
const HEADS_MAX: usize = 80;

/// A packet on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Passage {
    number: u64,
    sent_s: f64,
    /// `None` = it was lost.
    arrived_s: Option<f64>,
    has_data: bool,
    repeats: bool,
}

/// A picture for each place, with a diagram for each transport.
///
/// # Errors
/// The plot names something that is not there, or no run has logs of both ends.
pub(super) fn ladders(directory: &Directory, plot: &Plot, limit: usize) -> Result<Vec<Chart>> {
    let selection = Selection::of(directory, plot)?;
    let mut places: BTreeMap<Place, Vec<&Run>> = BTreeMap::new();
    for run in chosen(directory, &selection, plot, &[Recorded::Sequence]) {
        places.entry(run.place.clone()).or_default().push(run);
    }
    let drawn = |(place, runs): (Place, Vec<&Run>)| ladder(directory, plot, &place, &runs);
    let charts: Vec<Chart> = places.into_iter().filter_map(drawn).take(limit).collect();
    if charts.is_empty() {
        bail!(
            "no valid run has logs of both ends; `[record]` needs `sequence = true` and `qlog = true`, in the \
             worlds sim and router, for transports of kind `uts`"
        );
    }
    Ok(charts)
}

fn ladder(directory: &Directory, plot: &Plot, place: &Place, runs: &[&Run]) -> Option<Chart> {
    let mut data = Data::new(["transport", "from", "packet", "sent, s", "arrived, s", "data", "repeats"]);
    data.is_shown = false;
    let (from, to) = (plot.from_s.unwrap_or(0.0), plot.to_s.unwrap_or(f64::INFINITY));
    let (mut panels, mut seen, mut last, mut cut) = (Vec::new(), Kinds::default(), from, false);
    for run in runs {
        let name = &directory.names[run.who];
        let Some(ways) = passages(directory, run, name) else { continue };
        if panels.len() == DIAGRAMS_MAX {
            directory
                .tell(format!("{name} and others have no place beside {DIAGRAMS_MAX} sequence diagrams"));
            break;
        }
        let mut marks = Vec::new();
        for (end, passages) in ways.iter().enumerate() {
            let shown: Vec<&Passage> = passages.iter().filter(|p| (from..=to).contains(&p.sent_s)).collect();
            cut |= shown.len() > LINES_MAX;
            let has_heads = shown.len() <= HEADS_MAX;
            for passage in shown.into_iter().take(LINES_MAX) {
                last = last.max(passage.arrived_s.unwrap_or(passage.sent_s));
                data.rows.push(vec![
                    name.as_str().into(),
                    ENDS[end].into(),
                    (passage.number as f64).into(),
                    passage.sent_s.into(),
                    passage.arrived_s.into(),
                    if passage.has_data { "yes" } else { "no" }.into(),
                    if passage.repeats { "yes" } else { "no" }.into(),
                ]);
                seen.note(passage);
                draw(passage, end, delay(passages), to, has_heads, &mut marks);
            }
        }
        let y = Axis { label: name.clone(), scale: Scale::Ordinal(ENDS.map(str::to_owned).into()) };
        panels.push(Panel { y, marks, height: HEIGHT });
    }
    if panels.is_empty() {
        return None;
    }
    let title = plot.title.clone().unwrap_or_else(|| "Sequence diagrams".to_owned());
    let subtitle = place_in_words(directory, place, &[]);
    let description =
        format!("{title}, {subtitle}: each packet as a line between client and server, over time");
    let mut caption = plot.caption.clone().unwrap_or_default();
    if !caption.is_empty() {
        caption.push(' ');
    }
    caption.push_str(
        "Each line is a packet, from the end that sent it to the other. The client is below. \
         Arrows' heads and crosses tell the packet's number and kind when pointed at. ",
    );
    caption.push_str(&path_in_words(directory, place).unwrap_or_default());
    if cut {
        caption.push_str(&format!(
            " Only the first {LINES_MAX} packets of an end are drawn; `from_s` and `to_s` choose a stretch."
        ));
    }
    let picture = Picture {
        title: title.clone(),
        subtitle,
        description,
        legend: seen.legend(),
        x: Axis { label: "time, s".into(), scale: Scale::between(from, to.min(last)) },
        panels,
        numbered: Vec::new(),
        width: WIDTH,
    };
    Some(Chart { title, svg: picture.svg(), caption, data, zoom: None, notes: Vec::new(), is_wide: true })
}

/// Kinds of lines that a picture has.
#[derive(Clone, Copy, Debug, Default)]
struct Kinds {
    has_new: bool,
    has_repeats: bool,
    has_reports: bool,
    has_losses: bool,
}

impl Kinds {
    fn note(&mut self, passage: &Passage) {
        self.has_new |= passage.has_data && !passage.repeats;
        self.has_repeats |= passage.repeats;
        self.has_reports |= !passage.has_data;
        self.has_losses |= passage.arrived_s.is_none();
    }

    fn legend(self) -> Vec<Entry> {
        let all = [
            (self.has_new, "new data", NEW, Swatch::Line),
            (self.has_repeats, "data again", REPEATED, Swatch::Line),
            (self.has_reports, "no data", REPORT, Swatch::Line),
            (self.has_losses, "lost", LOST, Swatch::Mark),
        ];
        let there = all.into_iter().filter(|(is_there, ..)| *is_there);
        there.map(|(_, label, look, swatch)| Entry { label: label.into(), look, swatch }).collect()
    }
}

/// Draws a packet that an end has sent, of which packets take so long, up to an instant.
fn draw(passage: &Passage, end: usize, delay_s: f64, until_s: f64, has_head: bool, marks: &mut Vec<Mark>) {
    let (look, kind) = match passage {
        Passage { repeats: true, .. } => (REPEATED, "data again"),
        Passage { has_data: true, .. } => (NEW, "new data"),
        _ => (REPORT, "no data"),
    };
    let (near, far) = (end as f64, 1.0 - end as f64);
    let (end_s, goal, fate) = match passage.arrived_s {
        Some(arrived_s) => (arrived_s, far, ""),
        None => (passage.sent_s + delay_s / 2.0, 0.5, ", lost"),
    };
    // What goes on beyond the axis ends at it.
    let stop_s = end_s.min(until_s);
    let share = if end_s > stop_s { (stop_s - passage.sent_s) / (end_s - passage.sent_s) } else { 1.0 };
    let stop = (stop_s, near + (goal - near) * share);
    marks.push(Mark::Line { points: vec![(passage.sent_s, near), stop], look, stepped: false });
    if end_s > stop_s {
        return;
    }
    let hints = vec![format!("packet {}, {kind}{fate}", passage.number)];
    if passage.arrived_s.is_none() {
        marks.push(Mark::Points { points: vec![stop], hints, look: LOST });
    } else if has_head || passage.repeats {
        let shape = if end == 0 { Shape::Triangle } else { Shape::Down };
        marks.push(Mark::Points { points: vec![stop], hints, look: Look { shape, ..look } });
    }
}

/// Median of the times that an end's packets take, in seconds.
fn delay(passages: &[Passage]) -> f64 {
    let mut delays: Vec<f64> =
        passages.iter().filter_map(|passage| Some(passage.arrived_s? - passage.sent_s)).collect();
    delays.sort_by(f64::total_cmp);
    delays.get(delays.len() / 2).copied().unwrap_or_default()
}

/// The packets of both ends, if both have a log.
fn passages(directory: &Directory, run: &Run, flow: &str) -> Option<[Vec<Passage>; 2]> {
    let [client, server] = ENDS.map(|end| directory.log(run, &format!("{flow}.{end}.sqlog")));
    let (client, server) = (client?, server?);
    Some([between(&client, &server), between(&server, &client)])
}

/// The packets from one end to the other, in the order of their leaving.
fn between(from: &[Value], to: &[Value]) -> Vec<Passage> {
    let packets = |log: &'_ [Value], name: &str| -> Vec<(String, u64, f64, Value)> {
        let of_kind = log.iter().filter(|event| event["name"] == name);
        let packet = |event: &Value| {
            let header = &event["data"]["header"];
            let (kind, number) = (header["packet_type"].as_str()?, header["packet_number"].as_u64()?);
            Some((kind.to_owned(), number, event["time"].as_f64()? / 1e3, event["data"]["uts"].clone()))
        };
        of_kind.filter_map(packet).collect()
    };
    let arrived: BTreeMap<(String, u64), f64> = packets(to, "quic:packet_received")
        .into_iter()
        .map(|(kind, number, at_s, _)| ((kind, number), at_s))
        .collect();
    packets(from, "quic:packet_sent")
        .into_iter()
        .map(|(kind, number, sent_s, uts)| Passage {
            number,
            sent_s,
            arrived_s: arrived.get(&(kind, number)).copied(),
            has_data: !uts["flow"].is_null(),
            repeats: uts["repeats"] == true,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(name: &str, ms: f64, number: u64, flow: Option<u64>, repeats: bool) -> Value {
        let header = json!({ "packet_type": "1RTT", "packet_number": number });
        json!({ "name": name, "time": ms, "data": { "header": header, "uts": { "flow": flow, "repeats": repeats } } })
    }

    #[test]
    fn a_packet_that_nobody_received_is_lost() {
        let sent = |ms, number, repeats| event("quic:packet_sent", ms, number, Some(0), repeats);
        let client = [
            sent(10.0, 0, false),
            sent(11.0, 1, false),
            sent(60.0, 2, true),
            event("quic:packet_sent", 61.0, 3, None, false),
        ];
        let received = |ms, number| event("quic:packet_received", ms, number, None, false);
        let server = [received(30.0, 0), received(80.0, 2), received(81.0, 3)];
        let found = between(&client, &server);
        let ends: Vec<_> = found.iter().map(|p| (p.arrived_s, p.has_data, p.repeats)).collect();
        assert_eq!(
            ends,
            [
                (Some(0.03), true, false),
                (None, true, false),
                (Some(0.08), true, true),
                (Some(0.081), false, false)
            ]
        );
        assert!((delay(&found) - 0.02).abs() < 1e-9);
        assert!(between(&server, &client).is_empty(), "it sent nothing");
        let (mut marks, mut seen) = (Vec::new(), Kinds::default());
        for passage in &found {
            seen.note(passage);
            draw(passage, 0, delay(&found), 0.0805, true, &mut marks);
        }
        assert_eq!(marks.len(), 7, "a line each, a cross, and a head for each that arrives in time");
        let hint = |mark: &Mark| match mark {
            Mark::Points { hints, .. } => Some(hints.concat()),
            _ => None,
        };
        let hints: Vec<String> = marks.iter().filter_map(hint).collect();
        assert_eq!(hints, ["packet 0, new data", "packet 1, new data, lost", "packet 2, data again"]);
        let Some(Mark::Line { points, .. }) = marks.last() else { panic!("{marks:?}") };
        assert_eq!(points[1].0, 0.0805, "nothing is drawn beyond the axis");
        let words: Vec<String> = seen.legend().into_iter().map(|entry| entry.label).collect();
        assert_eq!(words, ["new data", "data again", "no data", "lost"]);
    }
}
