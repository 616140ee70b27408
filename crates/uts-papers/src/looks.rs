//! Colours, and pictures: curves, sequences of packets, time lines.

use uts_plot::svg::{Axis, Entry, Ink, Look, Mark, Panel, Picture, Scale, Shape, Swatch};

/// Colours that people who see colours differently can tell apart (Okabe and Ito 2008), and their
/// like on a dark screen.
pub const INKS: [Ink; 6] = [
    Ink { name: "paper1", light: "#0072b2", dark: "#56a9dc" },
    Ink { name: "paper2", light: "#d55e00", dark: "#f08a4b" },
    Ink { name: "paper3", light: "#009e73", dark: "#3cc49c" },
    Ink { name: "paper4", light: "#a0527f", dark: "#d992bd" },
    Ink { name: "paper5", light: "#b07a00", dark: "#e6b04c" },
    Ink { name: "paper6", light: "#59636e", dark: "#9aa4af" },
];

const DASHES: [&str; 6] = ["", "6 3", "2 3", "8 3 2 3", "10 3", "4 2"];
const SHAPES: [Shape; 6] =
    [Shape::Circle, Shape::Square, Shape::Triangle, Shape::Diamond, Shape::Down, Shape::Cross];

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
/// Of the time-outs below a sequence.
const LOW: f64 = 120.0;
/// Of a packet.
const DOT: f64 = 1.5;

/// The look of the n-th curve: colour, dash and mark, so that no two are alike without colour.
pub fn look(n: usize) -> Look {
    let of = n % INKS.len();
    Look { ink: INKS[of], dash: DASHES[of], shape: SHAPES[of], width: 1.6 }
}

/// Points, from left to right.
pub type Points = Vec<(f64, f64)>;

/// A curve of a picture.
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Which look it has.
    pub look: usize,
    /// Where it goes.
    pub points: Points,
    /// Half the width of the interval around each point, where one is known.
    pub errors: Vec<f64>,
    /// A line runs through its points.
    pub has_line: bool,
    /// Its points are marked.
    pub has_marks: bool,
}

/// Words of a picture.
pub struct Words<'a> {
    /// Its title.
    pub title: &'a str,
    /// Below it.
    pub subtitle: &'a str,
    /// The horizontal axis.
    pub x: &'a str,
    /// The vertical axis.
    pub y: &'a str,
}

fn picture(words: &Words<'_>, legend: Vec<Entry>, x: Scale, panels: Vec<Panel>) -> Picture {
    let description = match words.y {
        "" => words.title.to_owned(),
        y => format!("{y} over {}: {}", words.x, words.title),
    };
    Picture {
        title: words.title.to_owned(),
        subtitle: words.subtitle.to_owned(),
        description,
        legend,
        x: Axis { label: words.x.to_owned(), scale: x },
        panels,
        numbered: Vec::new(),
        width: WIDTH,
    }
}

/// A picture of curves over a logarithmic or a linear axis; the vertical one is cut at `y_max`.
pub fn curves(words: &Words<'_>, is_log: bool, y_max: Option<f64>, curves: &[Curve]) -> Picture {
    let most = y_max.unwrap_or(f64::INFINITY);
    let xs = || curves.iter().flat_map(|c| c.points.iter().map(|p| p.0));
    let ys = curves.iter().flat_map(|c| c.points.iter().map(|p| p.1));
    let x = match Scale::log(xs()) {
        Some(scale) if is_log => scale,
        _ => {
            let most = xs().fold(0.0, f64::max);
            Scale::linear(xs(), xs().any(|x| x < most / 4.0))
        }
    };
    let mut marks = Vec::new();
    for curve in curves {
        let look = look(curve.look);
        // What leaves the picture ends at its edge.
        let end = curve.points.iter().position(|p| p.1 > most);
        let mut points: Vec<(f64, f64)> = curve.points[..end.unwrap_or(curve.points.len())].to_vec();
        let inside = points.clone();
        if let (Some(end), Some(last)) = (end, inside.last()) {
            let beyond = curve.points[end];
            let share = (most - last.1) / (beyond.1 - last.1);
            let at = if is_log {
                last.0 * libm::pow(beyond.0 / last.0, share)
            } else {
                last.0 + (beyond.0 - last.0) * share
            };
            points.push((at, most));
        }
        if curve.has_line {
            marks.push(Mark::Line { points, look, stepped: false });
        }
        for (point, error) in inside.iter().zip(&curve.errors) {
            let (low, high) = (point.1 - error, (point.1 + error).min(most));
            marks.push(Mark::Interval { x: point.0, low, high, look: Look { dash: "", ..look } });
        }
        if curve.has_marks {
            let hints = inside.iter().map(|p| format!("{}: {:.4} at {:.4e}", curve.name, p.1, p.0)).collect();
            marks.push(Mark::Points { points: inside, hints, look });
        }
    }
    let swatch = |curve: &Curve| match (curve.has_line, curve.has_marks) {
        (true, true) => Swatch::Marked,
        (true, false) => Swatch::Line,
        _ => Swatch::Mark,
    };
    let entry = |c: &Curve| Entry { label: c.name.clone(), look: look(c.look), swatch: swatch(c) };
    let y = Axis { label: words.y.to_owned(), scale: Scale::linear_up_to(ys, true, most) };
    picture(words, curves.iter().map(entry).collect(), x, vec![Panel { y, marks, height: HEIGHT }])
}

/// A transfer of a sequence.
pub struct Transfer {
    /// Its name in the legend; empty for the only one.
    pub name: String,
    /// Packets that are sent for the first time, and those that are sent again: when, and which.
    pub packets: [Points; 2],
    /// Round trips that were measured, and the time-out as it changes, to its end: when, and how
    /// long.
    pub times: Option<[Points; 2]>,
}

/// A picture of packets against time, repeats in another colour; below it the round trips and the
/// time-outs that transfers have.
pub fn sequence(words: &Words<'_>, x_max: Option<f64>, transfers: &[Transfer]) -> Picture {
    let (mut marks, mut legend) = (Vec::new(), Vec::new());
    for (n, transfer) in transfers.iter().enumerate() {
        for (again, points) in transfer.packets.iter().enumerate() {
            // A transfer's own colours: blue with orange, green with purple.
            let look = Look { ink: INKS[2 * n + again], dash: "", shape: Shape::Circle, width: 3.0 };
            let what = ["sent", "sent again"][again];
            let name = &transfer.name;
            let label = if name.is_empty() { what.to_owned() } else { format!("{name}, {what}") };
            legend.extend((!points.is_empty()).then_some(Entry { label, look, swatch: Swatch::Mark }));
            marks.push(Mark::Dots { points: points.clone(), look, size: DOT });
        }
    }
    let points = || transfers.iter().flat_map(|transfer| transfer.packets.iter().flatten());
    let scale = Scale::linear(points().map(|(_, packet)| *packet), true);
    let y = Axis { label: words.y.to_owned(), scale };
    let x = match x_max {
        Some(end) => Scale::between(0.0, end),
        None => Scale::linear(points().map(|(at, _)| *at), true),
    };
    let mut panels = vec![Panel { y, marks, height: HEIGHT }];
    let times: Vec<&[Points; 2]> = transfers.iter().filter_map(|transfer| transfer.times.as_ref()).collect();
    if !times.is_empty() {
        let (panel, entries) = timeouts(&times);
        panels.push(panel);
        legend.extend(entries);
    }
    picture(words, legend, x, panels)
}

/// Samples of the round trip, and the time-out beside them.
fn timeouts(times: &[&[Points; 2]]) -> (Panel, [Entry; 2]) {
    let sample = Look { ink: INKS[2], dash: "", shape: Shape::Cross, width: 1.0 };
    let timeout = Look { dash: "", ..look(5) };
    let mut marks = Vec::new();
    for [samples, line] in times {
        marks.push(Mark::Dots { points: samples.clone(), look: sample, size: 2.0 });
        marks.push(Mark::Line { points: line.clone(), look: timeout, stepped: true });
    }
    let values = times.iter().flat_map(|times| times.iter().flatten()).map(|(_, value)| *value);
    let y = Axis { label: "seconds".to_owned(), scale: Scale::linear(values, true) };
    let entries = [
        Entry { label: "round trip measured".to_owned(), look: sample, swatch: Swatch::Mark },
        Entry { label: "time-out".to_owned(), look: timeout, swatch: Swatch::Line },
    ];
    (Panel { y, marks, height: LOW }, entries)
}

/// A stretch of time in a lane of a time line.
pub struct Stretch {
    /// The lane, from the top.
    pub lane: usize,
    /// Which look it has.
    pub look: usize,
    /// When it begins.
    pub begin: f64,
    /// When it ends.
    pub end: f64,
}

/// A time line of lanes, one below the other.
pub fn time_line(words: &Words<'_>, lanes: &[String], kinds: &[&str], stretches: &[Stretch]) -> Picture {
    let x = Scale::linear(stretches.iter().map(|s| s.end), true);
    let panel = |(lane, name): (usize, &String)| {
        let marks = stretches.iter().filter(|s| s.lane == lane).map(|s| Mark::Bar {
            from: s.begin,
            to: s.end,
            y: 0.35,
            look: Look { dash: "", ..look(s.look) },
            hint: format!("{} {:.2} to {:.2} ms", kinds.get(s.look).unwrap_or(&""), s.begin, s.end),
        });
        Panel {
            y: Axis { label: String::new(), scale: Scale::Ordinal(vec![name.clone()]) },
            marks: marks.collect(),
            height: 34.0,
        }
    };
    let entry = |(n, kind): (usize, &&str)| Entry {
        label: (*kind).to_owned(),
        look: Look { dash: "", ..look(n) },
        swatch: Swatch::Bar,
    };
    let legend = kinds.iter().enumerate().map(entry).collect();
    picture(words, legend, x, lanes.iter().enumerate().map(panel).collect())
}
