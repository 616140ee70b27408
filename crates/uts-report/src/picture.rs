//! A picture of the demonstration for those who read no page: what had arrived, over time.

use super::charts::{arrived, megabytes, phase_labels};
use super::summary::headings;
use uts_plot::svg::{Axis, Entry, Ink, Look, Mark, Panel, Picture, QUIET, Scale, Swatch};
use uts_plot::thin::envelope;
use uts_record::demo::Record;

/// Of each run, in their order.
const INKS: [Ink; 2] = [
    Ink { name: "first", light: "#0b62b8", dark: "#5aa9f5" },
    Ink { name: "second", light: "#c9751c", dark: "#eaa057" },
];

/// More points than this are no more to be seen.
const POINTS_MAX: usize = 400;

/// Draws what had arrived of each run, over time; `None` if nothing was carried.
pub fn picture(record: &Record) -> Option<String> {
    let adaptive = record.runs.first()?;
    let end_s = record.runs.iter().map(|run| run.summary.duration_s).fold(0.0, f64::max);
    let all_megabytes = record.setting.file.bytes as f64 / 1e6;
    let look = |n: usize| Look::of(INKS[n.min(INKS.len() - 1)]);
    let changes = adaptive.link.iter().skip(1).map(|step| Mark::Down {
        x: step.t_s,
        label: phase_labels(step).pop().unwrap_or_default(),
        look: Look { dash: "3 3", ..Look::of(QUIET) },
    });
    let rate = adaptive.link.first().and_then(|step| phase_labels(step).pop()).unwrap_or_default();
    let lines = record.runs.iter().enumerate().map(|(n, run)| Mark::Line {
        points: envelope(&megabytes(&arrived(run)), POINTS_MAX),
        look: look(n),
        stepped: false,
    });
    let legend = headings(record).into_iter().enumerate().map(|(n, heading)| Entry {
        label: if heading == "Adaptive" { "UTS".into() } else { heading.into() },
        look: look(n),
        swatch: Swatch::Line,
    });
    let picture = Picture {
        title: format!("{all_megabytes:.0} MB over a path that goes bad"),
        subtitle: format!(
            "{rate}, {} ms round trip. Lines: changes of the path. Numbers: exchanges of mechanisms.",
            record.setting.base_rtt_ms
        ),
        description: format!("Megabytes that had arrived over time, {}", headings(record).join(" and ")),
        legend: legend.collect(),
        x: Axis { label: "Time, s".into(), scale: Scale::between(0.0, end_s) },
        panels: vec![Panel {
            y: Axis { label: "Arrived, MB".into(), scale: Scale::between(0.0, all_megabytes) },
            marks: changes.chain(lines).collect(),
            height: 190.0,
        }],
        numbered: adaptive.agreed().map(|exchange| exchange.t_s).collect(),
        width: 760.0,
    };
    Some(picture.svg())
}
