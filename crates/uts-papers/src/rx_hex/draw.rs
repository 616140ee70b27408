//! Drawing of the figures: packet number against time, repeats in another colour.

use super::session::Session;
use crate::looks::{INKS, Words, look};
use uts_plot::svg::{Axis, Entry, Look, Mark, Panel, Picture, Scale, Shape, Swatch};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const LOW: f64 = 120.0;
const DOT: f64 = 1.5;

/// Looks of a session: what is sent for the first time, and what is sent again.
fn looks(session: usize) -> [Look; 2] {
    // A session's own colours: blue with orange, green with purple.
    let dot = |ink: usize| Look { ink: INKS[ink], dash: "", shape: Shape::Circle, width: 3.0 };
    [dot(2 * session), dot(2 * session + 1)]
}

/// Packet number against time for one session or two; below it the round trip and the time-out, if
/// they are wanted.
pub(super) fn sequence(
    words: &Words<'_>,
    sessions: &[(&str, &Session<'_>)],
    until: Option<f64>,
    with_timeout: bool,
) -> Picture {
    let end = until.unwrap_or(f64::INFINITY);
    let (mut marks, mut legend) = (Vec::new(), Vec::new());
    for (n, (name, session)) in sessions.iter().enumerate() {
        let [first, again] = looks(n);
        for (repeats, look, what) in [(false, first, "sent"), (true, again, "sent again")] {
            let mut points = session.points(repeats);
            points.retain(|(at, _)| *at <= end);
            if !points.is_empty() {
                let label = if name.is_empty() { what.to_owned() } else { format!("{name}, {what}") };
                legend.push(Entry { label, look, swatch: Swatch::Mark });
            }
            marks.push(Mark::Dots { points, look, size: DOT });
        }
    }
    let points =
        || sessions.iter().flat_map(|(_, s)| s.at.iter().zip(s.packet)).filter(|(at, _)| **at <= end);
    let mut panels = vec![Panel {
        y: Axis {
            label: words.y.to_owned(),
            scale: Scale::linear(points().map(|(_, packet)| *packet), true),
        },
        marks,
        height: HEIGHT,
    }];
    if with_timeout {
        let (panel, entries) = timeouts(sessions, end);
        panels.push(panel);
        legend.extend(entries);
    }
    let x = match until {
        Some(until) => Scale::between(0.0, until),
        None => Scale::linear(points().map(|(at, _)| *at), true),
    };
    Picture {
        title: words.title.to_owned(),
        subtitle: words.subtitle.to_owned(),
        description: format!("{} over {}: {}", words.y, words.x, words.title),
        legend,
        x: Axis { label: words.x.to_owned(), scale: x },
        panels,
        numbered: Vec::new(),
        width: WIDTH,
    }
}

/// Samples of the round trip, and the time-out beside them.
fn timeouts(sessions: &[(&str, &Session<'_>)], end: f64) -> (Panel, Vec<Entry>) {
    let sample = Look { ink: INKS[2], dash: "", shape: Shape::Cross, width: 1.0 };
    let timeout = Look { dash: "", ..look(5) };
    let (mut marks, mut values) = (Vec::new(), Vec::new());
    let pairs = |at: &[f64], value: &[f64]| -> Vec<(f64, f64)> {
        at.iter().copied().zip(value.iter().copied()).filter(|(at, _)| *at <= end).collect()
    };
    for (_, session) in sessions {
        let samples = pairs(session.sample_at, session.sample);
        let mut line = pairs(session.timeout_at, session.timeout);
        let ends = session.done.unwrap_or(f64::INFINITY).min(end);
        if let Some(last) = line.last().copied()
            && ends.is_finite()
        {
            line.push((ends, last.1));
        }
        values.extend(samples.iter().chain(&line).map(|(_, value)| *value));
        marks.push(Mark::Dots { points: samples, look: sample, size: 2.0 });
        marks.push(Mark::Line { points: line, look: timeout, stepped: true });
    }
    let y = Axis { label: "seconds".to_owned(), scale: Scale::linear(values, true) };
    let entries = vec![
        Entry { label: "round trip measured".to_owned(), look: sample, swatch: Swatch::Mark },
        Entry { label: "time-out".to_owned(), look: timeout, swatch: Swatch::Line },
    ];
    (Panel { y, marks, height: LOW }, entries)
}
