//! What was found, as tables for people and as JSON for programs.

use crate::host::Host;
use crate::parts::Cost;
use crate::paths::{Plan, Row};
use crate::summary::Summary;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where it ran.
    pub host: Host,
    /// The load of the machine before and after.
    pub load: [f64; 2],
    /// How much was measured.
    pub plan: Plan,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
    /// Transports over paths.
    pub paths: Vec<Row>,
    /// Parts of UTS.
    pub parts: Vec<Cost>,
}

impl Report {
    /// The tables.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let Host { cores, processor, kernel, .. } = &self.host;
        let [before, after] = self.load;
        let _ = writeln!(
            text,
            "{cores} cores, {processor}, Linux {kernel}; load {before:.2} before, {after:.2} after"
        );
        for skipped in &self.skipped {
            let _ = writeln!(text, "skipped: {skipped}");
        }
        for row in &self.paths {
            for failure in &row.failures {
                let _ = writeln!(text, "FAILED: {} {}: {failure}", row.path, row.transport);
            }
        }
        if !self.paths.is_empty() {
            text.push_str(&self.path_table());
        }
        if !self.parts.is_empty() {
            text.push_str(&self.part_table());
        }
        text
    }

    fn path_table(&self) -> String {
        let mut lines = vec![
            ["path", "transport", "Gbit/s", "sender s/GB", "receiver s/GB", "1 B p50 us", "p99 us", "lost"]
                .map(str::to_owned)
                .to_vec(),
        ];
        for row in &self.paths {
            lines.push(vec![
                row.path.to_owned(),
                row.transport.to_owned(),
                spread(row.goodput_gbps, 2),
                spread(row.sender_cpu_s_per_gb, 2),
                spread(row.receiver_cpu_s_per_gb, 2),
                spread(row.round_trip_p50_us, 0),
                spread(row.round_trip_p99_us, 0),
                row.lost_packets.map_or("-".to_owned(), |l| format!("{:.0}", l.median)),
            ]);
        }
        let repetitions = self.plan.repetitions;
        format!("\nMedian (smallest to largest) of {repetitions} interleaved repetitions\n{}", table(&lines))
    }

    fn part_table(&self) -> String {
        let mut lines = vec![["function", "part", "ns", "Gbit/s"].map(str::to_owned).to_vec()];
        for cost in &self.parts {
            let rate = (cost.bytes > 0).then(|| cost.bytes as f64 * 8.0 / cost.ns.median);
            lines.push(vec![
                cost.function.to_owned(),
                cost.part.clone(),
                spread(Some(cost.ns), 1),
                rate.map_or("-".to_owned(), |gbps| format!("{gbps:.1}")),
            ]);
        }
        format!("\nPer packet of {} B, one core, no sockets\n{}", crate::parts::DATA_BYTES, table(&lines))
    }

    /// Writes the JSON.
    pub fn save(&self, file: &Path) -> Result<()> {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        std::fs::write(file, serde_json::to_string_pretty(self)? + "\n")
            .with_context(|| format!("cannot write {}", file.display()))
    }
}

fn spread(summary: Option<Summary>, digits: usize) -> String {
    summary.map_or("-".to_owned(), |s| {
        format!("{:.digits$} ({:.digits$} to {:.digits$})", s.median, s.min, s.max)
    })
}

/// Columns as wide as they need.
fn table(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().filter_map(|l| l.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if index == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            let _ = writeln!(text, "| {} |", rule.join(" | "));
        }
    }
    text
}
