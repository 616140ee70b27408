//! Draws a picture, from the top: its title, legend and numbers, then panels, then the horizontal
//! axis.

use super::scale::{Scale, Tick};
use super::text::{wide, wide_bold};
use super::{
    Entry, GRID, Ink, Look, Mark, NUMBERED, PAGE, Panel, Picture, QUIET, Quartiles, Shape, Swatch, TEXT,
};
use crate::html::escape;
use std::fmt::Write;

const MARGIN: f64 = 12.0;
const TITLE_SIZE: f64 = 14.0;
const SMALL_SIZE: f64 = 12.0;
const LINE: f64 = 17.0;
/// Between two panels.
const GAP: f64 = 18.0;
/// Distance to which marks may reach over the edge of a panel.
const OVER: f64 = 5.0;
const MARK_RADIUS: f64 = 3.4;
const NUMBER_RADIUS: f64 = 8.0;
/// Rows for numbers that are close to each other; what does not fit has a line, but no number.
const NUMBER_ROWS: usize = 3;
/// Where names under the horizontal axis are turned, by how many degrees.
const TURN_DEGREES: f64 = 32.0;

/// The horizontal extent of the panels, and their axis.
struct Frame<'a> {
    left: f64,
    width: f64,
    x: &'a Scale,
}

impl Frame<'_> {
    fn x(&self, value: f64) -> f64 {
        self.left + self.x.place(value) * self.width
    }
}

pub(super) fn picture(picture: &Picture) -> String {
    let mut body = String::new();
    let mut top = heading(&mut body, picture);
    let labels = picture.panels.iter().flat_map(|p| p.y.scale.ticks(vertical_ticks(p)));
    let left = MARGIN + LINE + 8.0 + labels.map(|t| wide(&t.label, SMALL_SIZE)).fold(0.0, f64::max);
    let frame = Frame { left, width: picture.width - left - MARGIN - 4.0, x: &picture.x.scale };
    top += legend(&mut body, &picture.legend, top, picture.width);
    let rows = numbers(&mut body, picture, &frame, top + 4.0);
    top += 8.0 + rows as f64 * (2.0 * NUMBER_RADIUS + 2.0);
    let x_ticks = picture.x.scale.ticks((frame.width / 85.0) as usize);
    let first_top = top;
    for (i, panel) in picture.panels.iter().enumerate() {
        let is_last = i + 1 == picture.panels.len();
        panel_at(&mut body, panel, &frame, top, &x_ticks);
        top += panel.height + if is_last { 0.0 } else { GAP };
    }
    for at in &picture.numbered {
        let x = frame.x(*at);
        if (frame.left..=frame.left + frame.width).contains(&x) {
            let look = Look { dash: "3 3", width: 1.0, ..Look::of(NUMBERED) };
            let _ = write!(body, "<path d=\"M{} {}V{}\" {}/>", n(x), n(first_top), n(top), stroke(look));
        }
    }
    top = horizontal_axis(&mut body, picture, &frame, top, &x_ticks);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" role=\"img\" \
         font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\" font-size=\"{SMALL_SIZE}\">\
         <title>{}</title><desc>{}</desc>{body}</svg>",
        escape(&picture.title),
        escape(&picture.description),
        w = n(picture.width),
        h = n(top + 6.0),
    )
}

fn heading(body: &mut String, picture: &Picture) -> f64 {
    let room = picture.width - 2.0 * MARGIN;
    let mut top = 6.0;
    for line in wrap(&picture.title, room, |text| wide_bold(text, TITLE_SIZE)) {
        top += LINE;
        let title = Text { size: TITLE_SIZE, bold: true, ..Text::at(MARGIN, top - 3.0) };
        title.write(body, &line);
    }
    for line in wrap(&picture.subtitle, room, |text| wide(text, SMALL_SIZE)) {
        top += LINE;
        Text { ink: QUIET, ..Text::at(MARGIN, top - 3.0) }.write(body, &line);
    }
    top + 4.0
}

fn wrap(text: &str, room: f64, wide: impl Fn(&str) -> f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if wide(line) + wide(" ") + wide(word) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// Returns its height.
fn legend(body: &mut String, entries: &[Entry], top: f64, width: f64) -> f64 {
    let (mut x, mut y) = (MARGIN, top + LINE / 2.0);
    if entries.is_empty() {
        return 0.0;
    }
    for entry in entries {
        let width_of =
            |entry: &Entry| if matches!(entry.swatch, Swatch::Mark | Swatch::Bar) { 14.0 } else { 28.0 };
        let swatch_width = width_of(entry);
        let taken = swatch_width + 6.0 + wide(&entry.label, SMALL_SIZE) + 16.0;
        if x + taken > width && x > MARGIN {
            (x, y) = (MARGIN, y + LINE + 1.0);
        }
        swatch(body, entry, x, y, swatch_width);
        Text::at(x + swatch_width + 6.0, y + 4.2).write(body, &entry.label);
        x += taken;
    }
    y + LINE / 2.0 - top + 2.0
}

fn swatch(body: &mut String, entry: &Entry, x: f64, y: f64, width: f64) {
    let look = entry.look;
    if matches!(entry.swatch, Swatch::Line | Swatch::Marked) {
        let _ = write!(body, "<path d=\"M{} {}h{}\" {}/>", n(x), n(y), n(width), stroke(look));
    }
    match entry.swatch {
        Swatch::Line => {}
        Swatch::Marked | Swatch::Mark => {
            mark(body, (x + width / 2.0, y), look, MARK_RADIUS, "");
        }
        Swatch::Bar => {
            let _ = write!(
                body,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"10\" {}/>",
                n(x),
                n(y - 5.0),
                n(width),
                fill(look.ink)
            );
        }
    }
}

/// Numbers of instants, above the panels. Returns how many rows they take.
fn numbers(body: &mut String, picture: &Picture, frame: &Frame<'_>, top: f64) -> usize {
    let mut ends = [f64::NEG_INFINITY; NUMBER_ROWS];
    let mut used = 0;
    for (number, at) in (1..).zip(&picture.numbered) {
        let x = frame.x(*at);
        if !(frame.left..=frame.left + frame.width).contains(&x) {
            continue;
        }
        let Some(row) = ends.iter().position(|end| x - end >= 2.0 * NUMBER_RADIUS + 2.0) else { continue };
        ends[row] = x;
        used = used.max(row + 1);
        let y = top + NUMBER_RADIUS + row as f64 * (2.0 * NUMBER_RADIUS + 2.0);
        let _ = write!(
            body,
            "<circle cx=\"{}\" cy=\"{}\" r=\"{NUMBER_RADIUS}\" {}/>",
            n(x),
            n(y),
            fill(NUMBERED)
        );
        let text = Text { size: 10.5, bold: true, ink: PAGE, anchor: "middle", ..Text::at(x, y + 3.7) };
        text.write(body, &number.to_string());
    }
    used
}

fn vertical_ticks(panel: &Panel) -> usize {
    ((panel.height / 42.0) as usize).max(2)
}

fn panel_at(body: &mut String, panel: &Panel, frame: &Frame<'_>, top: f64, x_ticks: &[Tick]) {
    let y_ticks = panel.y.scale.ticks(vertical_ticks(panel));
    let y = |value: f64| top + panel.height - panel.y.scale.place(value) * panel.height;
    let right = frame.left + frame.width;
    let (mut lines, mut minor) = (String::new(), String::new());
    for tick in &y_ticks {
        let at = n(y(tick.value));
        if tick.label.is_empty() {
            let _ = write!(minor, "M{} {at}h-3", n(frame.left));
        } else {
            let _ = write!(lines, "M{} {at}H{}", n(frame.left), n(right));
            let _ = write!(minor, "M{} {at}h-5", n(frame.left));
            Text { anchor: "end", ..Text::at(frame.left - 8.0, y(tick.value) + 4.2) }
                .write(body, &tick.label);
        }
    }
    if !matches!(frame.x, Scale::Ordinal(_)) {
        for tick in x_ticks.iter().filter(|tick| !tick.label.is_empty()) {
            let _ = write!(lines, "M{} {}V{}", n(frame.x(tick.value)), n(top), n(top + panel.height));
        }
    }
    let thin = |ink| stroke(Look { width: 1.0, ..Look::of(ink) });
    let _ = write!(body, "<path d=\"{lines}\" {}/>", thin(GRID));
    let (x0, y0) = (frame.left - OVER, top - OVER);
    let _ = write!(
        body,
        "<svg x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" viewBox=\"{0} {1} {2} {3}\">",
        n(x0),
        n(y0),
        n(frame.width + 2.0 * OVER),
        n(panel.height + 2.0 * OVER)
    );
    let mut named_until = f64::NEG_INFINITY;
    for mark in &panel.marks {
        draw(body, mark, panel, frame, top, &y, &mut named_until);
    }
    body.push_str("</svg>");
    let axes = format!("M{} {}V{}H{}", n(frame.left), n(top), n(top + panel.height), n(right));
    let _ = write!(body, "<path d=\"{axes}{minor}\" {}/>", thin(TEXT));
    let (x, y) = (MARGIN + 9.0, top + panel.height / 2.0);
    let label = Text { anchor: "middle", turned: -90.0, ..Text::at(x, y) };
    label.write(body, &panel.y.label);
}

#[allow(clippy::too_many_lines, reason = "one arm for each kind of mark")]
fn draw(
    body: &mut String,
    mark_: &Mark,
    panel: &Panel,
    frame: &Frame<'_>,
    top: f64,
    y: &dyn Fn(f64) -> f64,
    named_until: &mut f64,
) {
    let bottom = top + panel.height;
    let inside = |value: f64| y(value).clamp(top - OVER, bottom + OVER);
    match mark_ {
        Mark::Line { points, look, stepped } => {
            let places = points.iter().map(|&(px, py)| (frame.x(px), y(py)));
            line(body, places.filter(|(px, py)| px.is_finite() && py.is_finite()), *look, *stepped);
        }
        Mark::Points { points, hints, look } => {
            for (i, &(px, py)) in points.iter().enumerate() {
                let hint = hints.get(i).map_or("", String::as_str);
                if y(py).is_finite() {
                    mark(body, (frame.x(px), y(py)), *look, MARK_RADIUS, hint);
                }
            }
        }
        Mark::Dots { points, look, size } => {
            dots(body, points.iter().map(|p| (frame.x(p.0), y(p.1))), *look, *size)
        }
        Mark::Interval { x, low, high, look } => {
            let (x, low, high) = (frame.x(*x), inside(*low), inside(*high));
            let look = Look { dash: "", width: 1.1, ..*look };
            let caps = format!("M{} {}h8M{0} {}h8", n(x - 4.0), n(low), n(high));
            let _ = write!(body, "<path d=\"M{} {}V{}{caps}\" {}/>", n(x), n(low), n(high), stroke(look));
        }
        Mark::Bar { from, to, y: value, look, hint } => {
            let (left, right) = (frame.x(*from), frame.x(*to));
            let (a, b) = (inside(*value), inside(panel.y.scale.foot()));
            let _ = write!(
                body,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {}>{}</rect>",
                n(left),
                n(a.min(b)),
                n((right - left).max(0.5)),
                n((a - b).abs()),
                fill(look.ink),
                title(hint)
            );
        }
        Mark::Box { from, to, quartiles, look, hint } => {
            quartile_box(body, (frame.x(*from), frame.x(*to)), quartiles, *look, hint, &inside);
        }
        Mark::Down { x, label, look } => {
            let at = frame.x(*x);
            let _ = write!(body, "<path d=\"M{} {}V{}\" {}/>", n(at), n(top), n(bottom), stroke(*look));
            let taken = wide(label, 11.0) + 8.0;
            if at > *named_until && at + taken < frame.left + frame.width {
                Text { size: 11.0, ink: QUIET, ..Text::at(at + 4.0, top + 11.0) }.write(body, label);
                *named_until = at + taken;
            }
        }
    }
}

fn line(body: &mut String, places: impl Iterator<Item = (f64, f64)>, look: Look, stepped: bool) {
    let mut path = String::new();
    let mut last_y = String::new();
    for (x, y) in places {
        let (x, y) = (n(x), n(y));
        match (path.is_empty(), stepped) {
            (true, _) => {
                let _ = write!(path, "M{x} {y}");
            }
            (false, false) => {
                let _ = write!(path, "L{x} {y}");
            }
            (false, true) if y == last_y => {
                let _ = write!(path, "H{x}");
            }
            (false, true) => {
                let _ = write!(path, "H{x}V{y}");
            }
        }
        last_y = y;
    }
    if !path.is_empty() {
        let _ = write!(body, "<path d=\"{path}\" {}/>", stroke(look));
    }
}

/// Dots of which several fall onto one half of a pixel are drawn once.
fn dots(body: &mut String, places: impl Iterator<Item = (f64, f64)>, look: Look, size: f64) {
    let mut seen = std::collections::BTreeSet::new();
    let mut path = String::new();
    for (x, y) in places.filter(|(x, y)| x.is_finite() && y.is_finite()) {
        let cell = ((x * 2.0).round() as i32, (y * 2.0).round() as i32);
        if !seen.insert(cell) {
            continue;
        }
        let (x, y) = (f64::from(cell.0) / 2.0, f64::from(cell.1) / 2.0);
        let _ = match look.shape {
            Shape::Ring => write!(
                path,
                "M{} {}a{size} {size} 0 1 0 {d} 0a{size} {size} 0 1 0 -{d} 0",
                n(x - size),
                n(y),
                d = 2.0 * size
            ),
            Shape::Cross => {
                write!(path, "M{} {}l{d} {d}m0 -{d}l-{d} {d}", n(x - size), n(y - size), d = 2.0 * size)
            }
            _ => write!(path, "M{} {}h0", n(x), n(y)),
        };
    }
    if path.is_empty() {
        return;
    }
    let look = match look.shape {
        Shape::Ring | Shape::Cross => Look { dash: "", width: 1.0, ..look },
        _ => Look { dash: "", width: 2.0 * size, ..look },
    };
    let _ = write!(body, "<path d=\"{path}\" stroke-linecap=\"round\" {}/>", stroke(look));
}

fn quartile_box(
    body: &mut String,
    (left, right): (f64, f64),
    quartiles: &Quartiles,
    look: Look,
    hint: &str,
    y: &dyn Fn(f64) -> f64,
) {
    let [low, q1, median, q3, high] = quartiles.five.map(y);
    let middle = f64::midpoint(left, right);
    let half_cap = (right - left) / 4.0;
    let line = stroke(Look { dash: "", width: 1.2, ..look });
    let whiskers = format!(
        "M{m} {}V{}M{m} {}V{}M{c} {}h{w}M{c} {}h{w}",
        n(q1),
        n(low),
        n(q3),
        n(high),
        n(low),
        n(high),
        m = n(middle),
        c = n(middle - half_cap),
        w = n(2.0 * half_cap)
    );
    let _ = write!(
        body,
        "<g>{}<path d=\"{whiskers}\" {line}/><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill-opacity=\"0.25\" {}/>\
         <path d=\"M{1} {}h{3}\" {}/>",
        title(hint),
        n(left),
        n(q3),
        n(right - left),
        n((q1 - q3).max(0.5)),
        paint(Some(look.ink), Some(Look { dash: "", width: 1.2, ..look })),
        n(median),
        stroke(Look { dash: "", width: 2.4, ..look }),
    );
    for value in &quartiles.beyond {
        mark(body, (middle, y(*value)), Look { shape: Shape::Ring, ..look }, 2.4, "");
    }
    body.push_str("</g>");
}

fn mark(body: &mut String, (x, y): (f64, f64), look: Look, r: f64, hint: &str) {
    let hollow = paint(Some(PAGE), Some(Look { dash: "", width: 1.4, ..look }));
    let solid = fill(look.ink);
    let path = |d: String, paint: &str| format!("<path d=\"{d}\" {paint}>{}</path>", title(hint));
    let circle = |r: f64, paint: &str| {
        format!("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" {paint}>{}</circle>", n(x), n(y), n(r), title(hint))
    };
    let square = |r: f64| format!("M{} {}h{d}v{d}h-{d}z", n(x - r), n(y - r), d = n(2.0 * r));
    body.push_str(&match look.shape {
        Shape::Circle => circle(r, &solid),
        Shape::Ring => circle(r, &hollow),
        Shape::Square => path(square(r * 0.9), &solid),
        Shape::Frame => path(square(r * 0.9), &hollow),
        Shape::Triangle => path(
            format!("M{} {}h{}L{} {}z", n(x - r * 1.15), n(y + r * 0.85), n(2.3 * r), n(x), n(y - r * 1.2)),
            &solid,
        ),
        Shape::Down => path(
            format!("M{} {}h{}L{} {}z", n(x - r * 1.15), n(y - r * 0.85), n(2.3 * r), n(x), n(y + r * 1.2)),
            &solid,
        ),
        Shape::Diamond => path(
            format!(
                "M{} {}L{} {}L{} {}L{} {}z",
                n(x - r * 1.3),
                n(y),
                n(x),
                n(y - r * 1.3),
                n(x + r * 1.3),
                n(y),
                n(x),
                n(y + r * 1.3)
            ),
            &solid,
        ),
        Shape::Cross => {
            let d = format!("M{} {}l{d} {d}m0 -{d}l-{d} {d}", n(x - r), n(y - r), d = n(2.0 * r));
            path(d, &stroke(Look { dash: "", width: 1.8, ..look }))
        }
    });
}

/// Ticks' names and the label. Returns where it ends.
fn horizontal_axis(body: &mut String, picture: &Picture, frame: &Frame<'_>, top: f64, ticks: &[Tick]) -> f64 {
    let mut path = String::new();
    let named = || ticks.iter().filter(|tick| !tick.label.is_empty());
    let widest = named().map(|tick| wide(&tick.label, SMALL_SIZE)).fold(0.0, f64::max);
    let is_ordinal = matches!(frame.x, Scale::Ordinal(_));
    let is_turned = is_ordinal && widest + 6.0 > frame.width / ticks.len().max(1) as f64;
    for tick in ticks {
        let length = if tick.label.is_empty() { 3 } else { 5 };
        let _ = write!(path, "M{} {}v{length}", n(frame.x(tick.value)), n(top));
    }
    let _ = write!(body, "<path d=\"{path}\" {}/>", stroke(Look { width: 1.0, ..Look::of(TEXT) }));
    let (sine, cosine) = TURN_DEGREES.to_radians().sin_cos();
    let mut free_from = f64::NEG_INFINITY;
    for tick in named() {
        let x = frame.x(tick.value);
        if is_turned {
            let text = Text { anchor: "end", turned: -TURN_DEGREES, ..Text::at(x + 3.0, top + 15.0) };
            text.write(body, &fitting(&tick.label, (x - 4.0) / cosine));
            continue;
        }
        let half = wide(&tick.label, SMALL_SIZE) / 2.0;
        if x - half > free_from {
            Text { anchor: "middle", ..Text::at(x, top + 18.0) }.write(body, &tick.label);
            free_from = x + half + 4.0;
        }
    }
    let below = top + if is_turned { 16.0 + widest.min(frame.width / 3.0) * sine } else { 18.0 };
    if picture.x.label.is_empty() {
        return below + 6.0;
    }
    Text { anchor: "middle", ..Text::at(frame.left + frame.width / 2.0, below + 20.0) }
        .write(body, &picture.x.label);
    below + 24.0
}

/// As much of a text as has room.
fn fitting(text: &str, room: f64) -> String {
    if wide(text, SMALL_SIZE) <= room {
        return text.into();
    }
    let mut short = String::new();
    for c in text.chars() {
        if wide(&short, SMALL_SIZE) + 14.0 > room {
            break;
        }
        short.push(c);
    }
    short + "…"
}

struct Text {
    x: f64,
    y: f64,
    size: f64,
    bold: bool,
    ink: Ink,
    anchor: &'static str,
    turned: f64,
}

impl Text {
    fn at(x: f64, y: f64) -> Self {
        Text { x, y, size: SMALL_SIZE, bold: false, ink: TEXT, anchor: "", turned: 0.0 }
    }

    fn write(&self, body: &mut String, text: &str) {
        let (x, y) = (n(self.x), n(self.y));
        let _ = write!(body, "<text x=\"{x}\" y=\"{y}\" {}", fill(self.ink));
        if self.size != SMALL_SIZE {
            let _ = write!(body, " font-size=\"{}\"", self.size);
        }
        if self.bold {
            body.push_str(" font-weight=\"600\"");
        }
        if !self.anchor.is_empty() {
            let _ = write!(body, " text-anchor=\"{}\"", self.anchor);
        }
        if self.turned != 0.0 {
            let _ = write!(body, " transform=\"rotate({} {x} {y})\"", self.turned);
        }
        let _ = write!(body, ">{}</text>", escape(text));
    }
}

fn fill(ink: Ink) -> String {
    paint(Some(ink), None)
}

/// A line that encloses nothing.
fn stroke(look: Look) -> String {
    paint(None, Some(look))
}

fn paint(inside: Option<Ink>, line: Option<Look>) -> String {
    let mut text = format!("fill=\"{}\"", inside.map_or("none", |ink| ink.light));
    let mut classes: Vec<String> = inside.iter().map(|ink| format!("f-{}", ink.name)).collect();
    if let Some(look) = line {
        let _ = write!(text, " stroke=\"{}\" stroke-width=\"{}\"", look.ink.light, look.width);
        if !look.dash.is_empty() {
            let _ = write!(text, " stroke-dasharray=\"{}\"", look.dash);
        }
        classes.push(format!("s-{}", look.ink.name));
    }
    let _ = write!(text, " class=\"{}\"", classes.join(" "));
    text
}

fn title(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!("<title>{}</title>", escape(hint)) }
}

/// A coordinate: a tenth of a pixel is enough.
fn n(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}
