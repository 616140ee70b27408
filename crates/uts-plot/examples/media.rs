//! Draws what `make bench-media` has measured: for each latency the share of datagrams that came
//! late or not at all, and the bytes that it took, as bars of medians with a line from the smallest
//! run to the largest, by path.
//!
//! ```text
//! cargo run -p uts-plot --example media -- bench/out/media.json bench/out/media.svg
//! ```

use serde_json::Value;
use std::error::Error;
use uts_plot::svg::{Axis, Entry, Ink, Look, Mark, Panel, Picture, Scale, Swatch, TEXT};

/// Of each program, in the order of its bars.
const INKS: [Ink; 5] = [
    Ink { name: "first", light: "#0b62b8", dark: "#5aa9f5" },
    Ink { name: "second", light: "#4f8a3c", dark: "#83bd70" },
    Ink { name: "third", light: "#c9751c", dark: "#eaa057" },
    Ink { name: "fourth", light: "#8a5a9e", dark: "#bf93d2" },
    Ink { name: "fifth", light: "#8b939c", dark: "#8b939c" },
];

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [json, svg] = &args[..] else { return Err("usage: media FILE.json FILE.svg".into()) };
    let measured = serde_json::from_str(&std::fs::read_to_string(json)?)?;
    Ok(std::fs::write(svg, draw(&measured).ok_or(format!("{json}: nothing that can be drawn"))?)?)
}

/// The picture; `None` if it is not what the benchmark writes, or nothing was measured.
fn draw(measured: &Value) -> Option<String> {
    let results = measured["results"].as_array()?;
    let (paths, tools) = (distinct(results, "path"), distinct(results, "tool"));
    let mut latencies: Vec<u64> = results.iter().filter_map(|result| result["latency_ms"].as_u64()).collect();
    latencies.sort_unstable();
    latencies.dedup();
    let panel = |latency: u64, figure: &str, name: String, show: fn(f64) -> f64| {
        let (mut bars, mut lines, mut values) = (Vec::new(), Vec::new(), vec![0.0]);
        let width = 0.8 / tools.len() as f64;
        for (p, path) in paths.iter().enumerate() {
            for (t, tool) in tools.iter().enumerate() {
                let is_it =
                    |r: &&Value| r["path"] == *path && r["tool"] == *tool && r["latency_ms"] == latency;
                let Some(result) = results.iter().find(is_it) else { continue };
                let of = |which: &str| result["summary"][figure][which].as_f64().map(show);
                let (Some(median), Some(low), Some(high)) = (of("median"), of("min"), of("max")) else {
                    continue;
                };
                let from = p as f64 - 0.4 + t as f64 * width;
                let (to, hint) = (from + width * 0.92, format!("{tool}, {path}: {median:.3} {name}"));
                bars.push(Mark::Bar { from, to, y: median, look: look(t), hint });
                lines.push(Mark::Interval { x: (from + to) / 2.0, low, high, look: Look::of(TEXT) });
                values.extend([low, median, high]);
            }
        }
        bars.append(&mut lines);
        Some(Panel {
            y: Axis { label: name, scale: Scale::linear(values, true) },
            marks: bars,
            height: 100.0,
        })
    };
    let late = |latency: &u64| {
        panel(*latency, "in_time", format!("at {latency} ms, %"), |share| 100.0 * (1.0 - share))
    };
    let mut panels: Vec<Panel> = latencies.iter().filter_map(late).collect();
    let middle = latencies.get(latencies.len() / 2)?;
    panels.extend(panel(*middle, "wire", "bytes, times".into(), |times| times));
    if panels.is_empty() {
        return None;
    }
    let entry =
        |(t, tool): (usize, &&str)| Entry { label: (*tool).into(), look: look(t), swatch: Swatch::Bar };
    let picture = Picture {
        title: "Live media beside others".into(),
        subtitle: format!(
            "Datagrams late or lost, by latency; bytes on the wire by bytes of media ({middle} ms). Less is better."
        ),
        description: format!(
            "Bars of medians for {} on the paths {}: datagrams that came late or not at all, and bytes on the wire.",
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

fn look(tool: usize) -> Look {
    Look::of(INKS[tool.min(INKS.len() - 1)])
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
