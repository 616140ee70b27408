//! Draws what `make bench-tunnels` has measured: bars of medians with a line from the smallest run
//! to the largest, by path, for keystrokes, a page and a file.
//!
//! ```text
//! cargo run -p uts-plot --example tunnels -- bench/out/tunnels.json bench/out/tunnels.svg
//! ```

mod beside;

use beside::{Cells, draw_file, spread};
use serde_json::Value;
use std::error::Error;
use uts_plot::svg::{Axis, Ink, Panel, Scale};

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
    draw_file("tunnels", draw)
}

fn draw(measured: &Value) -> Option<String> {
    let results = measured["results"].as_array()?;
    let cells = Cells::of(results, &INKS);
    let panel = |&(work, figure, name): &(&str, &str, &str)| {
        let (marks, values) = cells.bars(name, |path, tool| {
            let result = results.iter().find(|r| r["path"] == path && r["tool"] == tool)?;
            let summary = &result["summary"][work];
            // What broke once is no figure to compare: it has no bar, and the table says why.
            let is_whole = summary["broken"].as_array().is_none_or(Vec::is_empty);
            spread(&summary[figure]).filter(|_| is_whole)
        });
        let scale = Scale::log(values)?;
        Some(Panel { y: Axis { label: name.into(), scale }, marks, height: 110.0 })
    };
    cells.picture(
        "A tunnel beside others",
        "Keys beside a download and a page: less is better. A file: more is better. No bar: broken.".into(),
        "keystrokes beside a download, a page of 100 objects, a file",
        PANELS.iter().filter_map(panel).collect(),
    )
}
