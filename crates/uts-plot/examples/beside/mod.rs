//! Bars of several tools by path, which pictures of comparisons share.

use serde_json::Value;
use std::error::Error;
use uts_plot::svg::{Axis, Entry, Ink, Look, Mark, Panel, Picture, Scale, Swatch, TEXT};

/// Draws the first file into the second, both named on the command line.
///
/// # Errors
/// A file that cannot be read or written, or has nothing that can be drawn.
pub fn draw_file(name: &str, draw: impl FnOnce(&Value) -> Option<String>) -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [json, svg] = &args[..] else { return Err(format!("usage: {name} FILE.json FILE.svg").into()) };
    let measured = serde_json::from_str(&std::fs::read_to_string(json)?)?;
    Ok(std::fs::write(svg, draw(&measured).ok_or(format!("{json}: nothing that can be drawn"))?)?)
}

/// The values of a field, each once, in their order.
fn distinct<'a>(results: &'a [Value], of: &str) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for name in results.iter().filter_map(|result| result[of].as_str()) {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// Paths and tools, with the colour of each tool.
pub struct Cells<'a> {
    paths: Vec<&'a str>,
    tools: Vec<&'a str>,
    inks: &'a [Ink],
}

impl<'a> Cells<'a> {
    pub fn of(results: &'a [Value], inks: &'a [Ink]) -> Self {
        Cells { paths: distinct(results, "path"), tools: distinct(results, "tool"), inks }
    }

    fn look(&self, tool: usize) -> Look {
        Look::of(self.inks[tool.min(self.inks.len() - 1)])
    }

    /// Bars of medians with a line from the smallest run to the largest, of the cells that `figure`
    /// has median, least and most of, and these values.
    pub fn bars(&self, name: &str, figure: impl Fn(&str, &str) -> Option<[f64; 3]>) -> (Vec<Mark>, Vec<f64>) {
        let (mut bars, mut lines, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let width = 0.8 / self.tools.len() as f64;
        for (p, path) in self.paths.iter().enumerate() {
            for (t, tool) in self.tools.iter().enumerate() {
                let Some([median, low, high]) = figure(path, tool) else { continue };
                let from = p as f64 - 0.4 + t as f64 * width;
                let (to, hint) = (from + width * 0.92, format!("{tool}, {path}: {median:.3} {name}"));
                bars.push(Mark::Bar { from, to, y: median, look: self.look(t), hint });
                lines.push(Mark::Interval { x: (from + to) / 2.0, low, high, look: Look::of(TEXT) });
                values.extend([low, median, high]);
            }
        }
        bars.append(&mut lines);
        (bars, values)
    }

    /// The picture of these panels, if there are any; `what` says what they show.
    pub fn picture(&self, title: &str, subtitle: String, what: &str, panels: Vec<Panel>) -> Option<String> {
        if panels.is_empty() {
            return None;
        }
        let entry = |(t, tool): (usize, &&str)| Entry {
            label: (*tool).into(),
            look: self.look(t),
            swatch: Swatch::Bar,
        };
        let picture = Picture {
            title: title.into(),
            subtitle,
            description: format!(
                "Bars of medians for {} on the paths {}: {what}.",
                self.tools.join(", "),
                self.paths.join(", ")
            ),
            legend: self.tools.iter().enumerate().map(entry).collect(),
            x: Axis {
                label: String::new(),
                scale: Scale::Ordinal(self.paths.iter().map(|path| (*path).into()).collect()),
            },
            panels,
            numbered: Vec::new(),
            width: 640.0,
        };
        Some(picture.svg())
    }
}

/// Median, least and most of a figure in a summary.
pub fn spread(figure: &Value) -> Option<[f64; 3]> {
    Some([figure["median"].as_f64()?, figure["min"].as_f64()?, figure["max"].as_f64()?])
}
