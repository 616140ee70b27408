//! Charts as SVG. They are static: they print, can be read aloud, need no script, and go into a
//! paper as they are.
//!
//! Each element has the colours of paper as attributes and the name of its colour as a class. An
//! SVG cut out of the page therefore stands alone. Within the page, style sheets (which win over
//! attributes) give other colours if the screen is dark. Coordinates are in CSS pixels.

mod draw;
mod scale;
mod text;

pub use scale::Scale;
pub use text::{plain, wide, wide_bold};

use std::fmt::Write;

/// A colour by role: its class, on paper, and on a dark screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ink {
    /// The page's custom property is `--NAME`, and the classes are `s-NAME` (stroke) and `f-NAME`
    /// (fill).
    pub name: &'static str,
    /// On paper, as `#rrggbb`.
    pub light: &'static str,
    /// On a dark screen.
    pub dark: &'static str,
}

/// Text and axes.
pub const TEXT: Ink = Ink { name: "ink", light: "#1b1f24", dark: "#e4e7eb" };
/// Text of less weight.
pub const QUIET: Ink = Ink { name: "quiet", light: "#59636e", dark: "#9aa4af" };
/// Lines of the grid.
pub const GRID: Ink = Ink { name: "grid", light: "#e6e9ec", dark: "#282e34" };
/// The ground.
pub const PAGE: Ink = Ink { name: "page", light: "#ffffff", dark: "#14171a" };

/// Numbered instants.
pub const NUMBERED: Ink = Ink { name: "mark", light: "#7a2fa0", dark: "#cf94ee" };

/// Shape of the marks of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A filled circle.
    Circle,
    /// A filled square.
    Square,
    /// A filled triangle, its tip up.
    Triangle,
    /// A filled square on its corner.
    Diamond,
    /// A filled triangle, its tip down.
    Down,
    /// A circle's line.
    Ring,
    /// Two crossed strokes.
    Cross,
    /// A square's line.
    Frame,
}

/// Look of a line or a mark, the same wherever it stands for the same thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Its colour.
    pub ink: Ink,
    /// As `stroke-dasharray`; empty for a whole line.
    pub dash: &'static str,
    /// Shape of the marks of its points.
    pub shape: Shape,
    /// Width of its line.
    pub width: f64,
}

impl Look {
    /// A thin whole line.
    pub const fn of(ink: Ink) -> Self {
        Look { ink, dash: "", shape: Shape::Circle, width: 1.4 }
    }
}

/// A box of repetitions: quartiles, whiskers, and what lies beyond.
#[derive(Clone, Debug, PartialEq)]
pub struct Quartiles {
    /// Lower whisker, first quartile, median, third quartile, upper whisker.
    pub five: [f64; 5],
    /// Values beyond the whiskers.
    pub beyond: Vec<f64>,
}

/// Something drawn in a panel. Values are in the units of its axes. A place on an ordinal axis is
/// its index.
#[derive(Clone, Debug)]
pub enum Mark {
    /// Values joined by a line, or by steps that hold a value until the next.
    Line {
        /// From left to right.
        points: Vec<(f64, f64)>,
        /// Look of the line.
        look: Look,
        /// It goes by steps.
        stepped: bool,
    },
    /// Marked points, each with what it says when pointed at.
    Points {
        /// Where.
        points: Vec<(f64, f64)>,
        /// Text for each point.
        hints: Vec<String>,
        /// Look of the points.
        look: Look,
    },
    /// Many small dots.
    Dots {
        /// Where.
        points: Vec<(f64, f64)>,
        /// Look of the dots.
        look: Look,
        /// Their radius, in pixels.
        size: f64,
    },
    /// An error bar.
    Interval {
        /// Where.
        x: f64,
        /// Its lower end.
        low: f64,
        /// Its upper end.
        high: f64,
        /// Look of the bar.
        look: Look,
    },
    /// A bar from 0, or from the foot of a logarithmic axis.
    Bar {
        /// Its left side.
        from: f64,
        /// Its right side.
        to: f64,
        /// Its end.
        y: f64,
        /// Look of the bar.
        look: Look,
        /// Text that it shows when pointed at.
        hint: String,
    },
    /// A box of repetitions.
    Box {
        /// Its left side.
        from: f64,
        /// Its right side.
        to: f64,
        /// Quartiles that it shows.
        quartiles: Quartiles,
        /// Look of the box.
        look: Look,
        /// Text that it shows when pointed at.
        hint: String,
    },
    /// A vertical line down, with a name on top where there is room.
    Down {
        /// Where.
        x: f64,
        /// Its name.
        label: String,
        /// Look of the line.
        look: Look,
    },
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Name of the quantity that it shows, and its unit.
    pub label: String,
    /// Scale of its values.
    pub scale: Scale,
}

/// A rectangle with two axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Its vertical axis.
    pub y: Axis,
    /// Marks that are in it, from back to front.
    pub marks: Vec<Mark>,
    /// Height of its rectangle.
    pub height: f64,
}

/// Swatch of an entry of the legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swatch {
    /// A line without marks.
    Line,
    /// A line with a mark.
    Marked,
    /// A mark alone.
    Mark,
    /// A filled square.
    Bar,
}

/// An entry of the legend.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name of the look.
    pub label: String,
    /// Look that it names.
    pub look: Look,
    /// Swatch that it is shown by.
    pub swatch: Swatch,
}

/// A picture: a title, a legend, and panels one above the other that share their horizontal axis.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Title above it.
    pub title: String,
    /// On which path, for which workload.
    pub subtitle: String,
    /// Text that a screen reader says of it.
    pub description: String,
    /// Names for looks.
    pub legend: Vec<Entry>,
    /// The horizontal axis.
    pub x: Axis,
    /// From top to bottom.
    pub panels: Vec<Panel>,
    /// Numbered instants, through all panels.
    pub numbered: Vec<f64>,
    /// Its whole width.
    pub width: f64,
}

impl Picture {
    /// Draws it.
    pub fn svg(&self) -> String {
        draw::picture(self)
    }
}

/// Rules that name colours, for the page's style sheet: each class on paper and on a dark screen.
pub fn style_sheet(inks: &[Ink]) -> String {
    let mut css = String::new();
    let variables = |css: &mut String, dark: bool| {
        for ink in inks {
            let _ = write!(css, "--{}:{};", ink.name, if dark { ink.dark } else { ink.light });
        }
    };
    css.push_str(":root{");
    variables(&mut css, false);
    css.push_str("}\n@media screen and (prefers-color-scheme:dark){:root{");
    variables(&mut css, true);
    css.push_str("}}\n");
    for Ink { name, .. } in inks {
        let _ = writeln!(css, ".s-{name}{{stroke:var(--{name})}}.f-{name}{{fill:var(--{name})}}");
    }
    css
}
