//! Draws what `make bench-media` has measured: for each latency the share of datagrams that came
//! late or not at all, and the bytes that it took, as bars of medians with a line from the smallest
//! run to the largest, by path.
//!
//! ```text
//! cargo run -p uts-plot --example media -- bench/out/media.json bench/out/media.svg
//! ```

mod beside;

use beside::{Cells, draw_file, spread};
use serde_json::Value;
use std::error::Error;
use uts_plot::svg::{Axis, Ink, Panel, Scale};

/// Of each program, in the order of its bars.
const INKS: [Ink; 5] = [
    Ink { name: "first", light: "#0b62b8", dark: "#5aa9f5" },
    Ink { name: "second", light: "#4f8a3c", dark: "#83bd70" },
    Ink { name: "third", light: "#c9751c", dark: "#eaa057" },
    Ink { name: "fourth", light: "#8a5a9e", dark: "#bf93d2" },
    Ink { name: "fifth", light: "#8b939c", dark: "#8b939c" },
];

fn main() -> Result<(), Box<dyn Error>> {
    draw_file("media", draw)
}

fn draw(measured: &Value) -> Option<String> {
    let results = measured["results"].as_array()?;
    let cells = Cells::of(results, &INKS);
    let mut latencies: Vec<u64> = results.iter().filter_map(|result| result["latency_ms"].as_u64()).collect();
    latencies.sort_unstable();
    latencies.dedup();
    let panel = |latency: u64, figure: &str, name: String, show: fn(f64) -> f64| {
        let (marks, mut values) = cells.bars(&name, |path, tool| {
            let is_it = |r: &&Value| r["path"] == path && r["tool"] == tool && r["latency_ms"] == latency;
            Some(spread(&results.iter().find(is_it)?["summary"][figure])?.map(show))
        });
        values.push(0.0);
        Panel { y: Axis { label: name, scale: Scale::linear(values, true) }, marks, height: 100.0 }
    };
    let late = |latency: &u64| {
        panel(*latency, "in_time", format!("at {latency} ms, %"), |share| 100.0 * (1.0 - share))
    };
    let mut panels: Vec<Panel> = latencies.iter().map(late).collect();
    let middle = latencies.get(latencies.len() / 2)?;
    panels.push(panel(*middle, "wire", "bytes, times".into(), |times| times));
    cells.picture(
        "Live media beside others",
        format!(
            "Datagrams late or lost, by latency; bytes on the wire by bytes of media ({middle} ms). Less is better."
        ),
        "datagrams that came late or not at all, and bytes on the wire",
        panels,
    )
}
