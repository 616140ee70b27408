//! The main figures of a run as a picture: bars of medians, each with a line from the smallest
//! repetition to the largest. Not by `uts-plot`: its bars stand upright, without a name and a
//! figure at each, and its panels share one horizontal axis.

use crate::ends::{Transport, Work};
use crate::summary::Summary;
use crate::works::{ONE_CORE, TWO_CORES};
use crate::world::Place;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const WIDTH: f64 = 780.0;
const LEFT: f64 = 178.0;
/// For the figure behind the longest bar.
const RIGHT: f64 = 52.0;
const BAR: f64 = 13.0;
const STEP: f64 = 18.0;

/// What is read of a run's JSON.
#[derive(Deserialize)]
struct Run {
    host: Host,
    plan: Plan,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Host {
    processor: String,
    kernel: String,
}

#[derive(Deserialize)]
struct Plan {
    repetitions: usize,
}

#[derive(Deserialize)]
struct Row {
    work: String,
    path: String,
    cores: String,
    transport: String,
    figures: BTreeMap<String, Vec<Option<f64>>>,
}

/// Figures that share a scale.
struct Panel {
    title: &'static str,
    /// A figure in the JSON, and what it is multiplied by to be shown.
    figure: (&'static str, f64),
    groups: &'static [Group],
    transports: &'static [Shown],
}

/// A work somewhere.
struct Group {
    title: &'static str,
    work: Work,
    /// `None` = the only path on which the work is measured.
    place: Option<Place>,
    cores: &'static str,
}

/// A bar: its label, and the transports of which the first that was measured is shown.
type Shown = (&'static str, &'static [Transport]);

const fn bulk(title: &'static str, place: Place) -> Group {
    Group { title, work: Work::Bulk, place: Some(place), cores: TWO_CORES }
}

const fn anywhere(title: &'static str, work: Work, cores: &'static str) -> Group {
    Group { title, work, place: None, cores }
}

const BULK: &[Group] = &[
    // Shown only where there are no veth pairs.
    bulk("loopback", Place::Loopback),
    bulk("veth pair as it comes", Place::Veth),
    bulk("packets of 1500 bytes", Place::Segments),
    bulk("the same, joined on receipt", Place::SegmentsGro),
];
const UTS: Shown = ("UTS", &[Transport::Uts]);
const QUINN: Shown = ("quinn", &[Transport::Quinn]);
const S2N: Shown = ("s2n-quic", &[Transport::S2nQuic]);
const QUICHE: Shown = ("quiche", &[Transport::Quiche]);
const TQUIC: Shown = ("TQUIC", &[Transport::Tquic]);
const TCP: Shown = ("TCP CUBIC", &[Transport::TcpCubic]);
const TLS: Shown = ("TLS over TCP", &[Transport::TcpRustls]);
const RAW: Shown = ("raw UDP", &[Transport::RawUdp]);

const PANELS: [Panel; 5] = [
    Panel {
        title: "Bulk data, encrypted: Gbit/s",
        figure: ("gbps", 1.0),
        groups: BULK,
        transports: &[UTS, S2N, QUINN, QUICHE, TQUIC, TLS],
    },
    Panel {
        title: "Bulk data, not encrypted: Gbit/s",
        figure: ("gbps", 1.0),
        groups: BULK,
        transports: &[
            ("UTS with CRC-32C", &[Transport::UtsCrc32cBlocking, Transport::UtsCrc32c]),
            TCP,
            RAW,
            ("ENet", &[Transport::Enet]),
            ("SRT", &[Transport::Srt]),
        ],
    },
    Panel {
        title: "Round trip of one byte, median, microseconds (less is better)",
        figure: ("p50_us", 1.0),
        groups: &[
            anywhere("a core for each end", Work::Ping, TWO_CORES),
            anywhere("one core for both", Work::Ping, ONE_CORE),
        ],
        transports: &[
            ("UTS, calls that wait", &[Transport::UtsBlocking]),
            ("UTS on tokio", &[Transport::Uts]),
            TCP,
            TLS,
            RAW,
            QUINN,
            S2N,
            QUICHE,
            TQUIC,
        ],
    },
    Panel {
        title: "Messages of 100 bytes, unreliable, encrypted: millions a second",
        figure: ("per_s", 1e-6),
        groups: &[anywhere("as many as go through", Work::Messages, TWO_CORES)],
        transports: &[UTS, QUINN, QUICHE],
    },
    Panel {
        title: "Handshake, median, microseconds (less is better)",
        figure: ("p50_us", 1.0),
        groups: &[anywhere("one after the other", Work::Handshakes, TWO_CORES)],
        transports: &[UTS, QUINN, QUICHE, TQUIC, TLS],
    },
];

/// Draws the run whose JSON this is, as SVG.
///
/// # Errors
/// If it is not the JSON of a run.
pub fn draw(json: &str) -> Result<String> {
    let run: Run = serde_json::from_str(json).context("it is not what uts-bench writes")?;
    let mut body = String::new();
    let mut top = 24.0;
    text(&mut body, (14.0, top), "font-size=\"15\" font-weight=\"bold\"", "UTS beside what it competes with");
    top += 18.0;
    let Host { processor, kernel } = &run.host;
    let repetitions = run.plan.repetitions;
    let about = format!(
        "{processor}, Linux {kernel}; median of {repetitions} repetitions, lines from the smallest to the largest"
    );
    text(&mut body, (14.0, top), "fill=\"#666\"", &about);
    PANELS.iter().for_each(|panel| panel.draw(&run.rows, &mut body, &mut top));
    let height = top + 14.0;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         role=\"img\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n"
    ))
}

/// Draws the run in a file into another.
///
/// # Errors
/// If the first cannot be read as a run, or the second not be written.
pub fn redraw(json: &Path, svg: &Path) -> Result<()> {
    let read = std::fs::read_to_string(json).with_context(|| format!("reading {}", json.display()))?;
    let picture = draw(&read).with_context(|| format!("drawing {}", json.display()))?;
    save(&picture, svg)
}

/// Writes a picture into a file.
///
/// # Errors
/// If it cannot be written.
pub fn save(picture: &str, svg: &Path) -> Result<()> {
    std::fs::write(svg, picture).with_context(|| format!("writing {}", svg.display()))
}

impl Panel {
    /// Draws it below `top`, if any of it was measured.
    fn draw(&self, rows: &[Row], body: &mut String, top: &mut f64) {
        let groups: Vec<_> = self.groups.iter().map(|group| (group.title, self.bars(group, rows))).collect();
        let longest =
            groups.iter().flat_map(|(_, bars)| bars).map(|(_, found)| found.max).fold(0.0, f64::max);
        if longest <= 0.0 {
            return;
        }
        *top += 32.0;
        text(body, (14.0, *top), "font-size=\"13\" font-weight=\"bold\"", self.title);
        for (title, bars) in groups.iter().filter(|(_, bars)| !bars.is_empty()) {
            *top += 19.0;
            text(body, (14.0, *top), "fill=\"#666\" font-style=\"italic\"", title);
            *top += 8.0;
            for (label, found) in bars {
                bar(body, *top, label, found, longest, self.figure.1);
                *top += STEP;
            }
        }
    }

    /// What is shown of a group: labels, and what was measured.
    fn bars(&self, group: &Group, rows: &[Row]) -> Vec<(&'static str, Summary)> {
        let is_elsewhere = |row: &Row| row.work == group.work.name() && row.path != Place::Loopback.name();
        if group.place == Some(Place::Loopback) && rows.iter().any(is_elsewhere) {
            return Vec::new();
        }
        let of =
            |transport: &Transport| rows.iter().find(|row| row.is(group, *transport))?.summary(self.figure.0);
        let shown = |(label, of_these): &Shown| Some((*label, of_these.iter().find_map(of)?));
        self.transports.iter().filter_map(shown).collect()
    }
}

/// Draws a bar. `longest` reaches to the end of the scale. The figure beside the bar is shown
/// `times` as large.
fn bar(body: &mut String, top: f64, label: &str, found: &Summary, longest: f64, times: f64) {
    let place = |value: f64| LEFT + value / longest * (WIDTH - LEFT - RIGHT);
    let Summary { median, min, max, .. } = *found;
    let (middle, end) = (top + BAR / 2.0, place(median));
    let colour = if label.starts_with("UTS") { "#0b62b8" } else { "#9aa3ad" };
    let _ = writeln!(
        body,
        "<rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\
         <path d=\"M{:.1} {middle:.1}H{:.1}\" stroke=\"#222\"/>",
        end - LEFT,
        place(min),
        place(max)
    );
    text(body, (LEFT - 6.0, middle + 4.0), "text-anchor=\"end\"", label);
    let shown = median * times;
    let digits = if shown < 100.0 { 1 } else { 0 };
    text(body, (place(max) + 5.0, middle + 4.0), "", &format!("{shown:.digits$}"));
}

impl Row {
    fn is(&self, group: &Group, transport: Transport) -> bool {
        self.work == group.work.name()
            && group.place.is_none_or(|place| self.path == place.name())
            && self.cores == group.cores
            && self.transport == transport.name()
    }

    fn summary(&self, figure: &str) -> Option<Summary> {
        Summary::of_repetitions(self.figures.get(figure)?)
    }
}

fn text(body: &mut String, (x, y): (f64, f64), look: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(body, "<text x=\"{x:.1}\" y=\"{y:.1}\" {look}>{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(rows: &serde_json::Value) -> String {
        let host = json!({"processor": "A <B> & C", "kernel": "6"});
        json!({"host": host, "plan": {"repetitions": 3}, "rows": rows}).to_string()
    }

    fn row(transport: &str, gbps: [Option<f64>; 3]) -> serde_json::Value {
        let figures = json!({"gbps": gbps});
        json!({"work": "bulk", "path": "veth", "cores": "two cores", "transport": transport, "figures": figures})
    }

    fn widths(svg: &str) -> Vec<f64> {
        svg.lines()
            .filter_map(|line| line.strip_prefix("<rect x=")?.split('"').nth(5)?.parse().ok())
            .collect()
    }

    #[test]
    fn bars_are_as_long_as_medians() {
        let rows = json!([
            row("quinn", [Some(4.0), Some(5.0), None]),
            row("uts", [Some(20.0), Some(9.0), Some(18.0)])
        ]);
        let svg = draw(&run(&rows)).expect("drawn");
        let widths = widths(&svg);
        let [uts, quinn] = widths[..] else { panic!("{svg}") };
        assert!((uts / quinn - 18.0 / 4.5).abs() < 0.01, "{uts} to {quinn}");
        // The largest repetition is at the end of the scale.
        assert!((uts - 18.0 / 20.0 * (WIDTH - LEFT - RIGHT)).abs() < 0.1, "{uts}");
        assert!(svg.contains(">18.0<") && svg.contains(">4.5<"), "{svg}");
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let svg = draw(&run(&json!([row("uts", [Some(1.0), None, None]), row("quinn", [None; 3])])))
            .expect("drawn");
        assert_eq!(widths(&svg).len(), 1, "{svg}");
        assert!(!svg.contains(">loopback<"), "{svg}");
        assert!(svg.contains("Bulk data, encrypted") && !svg.contains("not encrypted"), "{svg}");
        assert!(draw(&run(&json!([]))).is_ok());
    }

    #[test]
    fn text_is_escaped() {
        let svg = draw(&run(&json!([]))).expect("drawn");
        assert!(svg.contains("A &lt;B> &amp; C"), "{svg}");
    }

    #[test]
    fn what_is_no_run_is_told() {
        for text in ["", "{}", "[1]", "{\"host\": 3}"] {
            let error = draw(text).expect_err("no run");
            assert!(format!("{error:#}").starts_with("it is not what uts-bench writes"), "{error:#}");
        }
        let error = redraw(Path::new("/no/such/file"), Path::new("/dev/null")).expect_err("no file");
        assert!(format!("{error:#}").contains("/no/such/file"), "{error:#}");
    }
}
