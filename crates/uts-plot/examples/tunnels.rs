//! Draws what `make bench-tunnels` has measured: bars of medians with a line from the smallest run
//! to the largest, by path, for keystrokes, a page and a file.
//!
//! ```text
//! cargo run -p uts-plot --example tunnels -- bench/out/tunnels.json bench/out/tunnels.svg
//! ```

use serde_json::Value;
use std::error::Error;
use uts_plot::svg::{Axis, Entry, Ink, Look, Mark, Panel, Picture, Scale, Swatch, TEXT};

/// Of each tool, in the order of its bars.
const INKS: [Ink; 5] = [
    Ink { name: "first", light: "#0b62b8", dark: "#5aa9f5" },
    Ink { name: "second", light: "#c9751c", dark: "#eaa057" },
    Ink { name: "third", light: "#4f8a3c", dark: "#83bd70" },
    Ink { name: "fourth", light: "#8a5a9e", dark: "#bf93d2" },
    Ink { name: "fifth", light: "#8b939c", dark: "#8b939c" },
];

/// Panels that are shown: a work, a figure of it, and its name.
const PANELS: [(&str, &str, &str); 3] = [
    ("keystrokes", "p99_ms", "key, p99, ms"),
    ("page", "seconds", "page, s"),
    ("file", "mbps", "file, Mbit/s"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [json, svg] = &args[..] else { return Err("usage: tunnels FILE.json FILE.svg".into()) };
    let measured = serde_json::from_str(&std::fs::read_to_string(json)?)?;
    Ok(std::fs::write(svg, draw(&measured).ok_or(format!("{json}: nothing that can be drawn"))?)?)
}

/// The picture; `None` if it is not what the benchmark writes, or nothing was measured.
fn draw(measured: &Value) -> Option<String> {
    let results = measured["results"].as_array()?;
    let distinct = |of: &str| {
        let mut found: Vec<&str> = Vec::new();
        for name in results.iter().filter_map(|result| result[of].as_str()) {
            if !found.contains(&name) {
                found.push(name);
            }
        }
        found
    };
    let (paths, tools) = (distinct("path"), distinct("tool"));
    let look = |tool: usize| Look::of(INKS[tool.min(INKS.len() - 1)]);
    let find = |path: &str, tool: &str| results.iter().find(|r| r["path"] == path && r["tool"] == tool);
    let panel = |&(work, figure, name): &(&str, &str, &str)| {
        let (mut bars, mut lines, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let width = 0.8 / tools.len() as f64;
        for (p, path) in paths.iter().enumerate() {
            for (t, tool) in tools.iter().enumerate() {
                let Some(result) = find(path, tool) else { continue };
                let summary = &result["summary"][work];
                let broken = summary["broken"].as_array().map_or(0, Vec::len);
                let of = |which: &str| summary[figure][which].as_f64();
                // What broke once is no figure to compare: it has no bar, and the table says why.
                let (Some(median), Some(low), Some(high), 0) = (of("median"), of("min"), of("max"), broken)
                else {
                    continue;
                };
                let from = p as f64 - 0.4 + t as f64 * width;
                let (to, hint) = (from + width * 0.92, format!("{tool}, {path}: {median:.3} {name}"));
                bars.push(Mark::Bar { from, to, y: median, look: look(t), hint });
                lines.push(Mark::Interval { x: (from + to) / 2.0, low, high, look: Look::of(TEXT) });
                values.extend([low, median, high]);
            }
        }
        let scale = Scale::log(values)?;
        bars.append(&mut lines);
        Some(Panel { y: Axis { label: name.into(), scale }, marks: bars, height: 110.0 })
    };
    let panels: Vec<Panel> = PANELS.iter().filter_map(panel).collect();
    if panels.is_empty() {
        return None;
    }
    let entry =
        |(t, tool): (usize, &&str)| Entry { label: (*tool).into(), look: look(t), swatch: Swatch::Bar };
    let picture = Picture {
        title: "A tunnel beside others".into(),
        subtitle:
            "Keys beside a download and a page: less is better. A file: more is better. No bar: broken."
                .into(),
        description: format!(
            "Bars of medians for {} on the paths {}: keystrokes beside a download, a page of 100 objects, a file.",
            tools.join(", "),
            paths.join(", ")
        ),
        legend: tools.iter().enumerate().map(entry).collect(),
        x: Axis {
            label: String::new(),
            scale: Scale::Ordinal(paths.iter().map(|path| (*path).into()).collect()),
        },
        panels,
        numbered: Vec::new(),
        width: 640.0,
    };
    Some(picture.svg())
}
