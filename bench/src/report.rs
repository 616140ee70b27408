//! What was found, as tables for people and as JSON for programs.

use crate::bars::{Bar, Lead};
use crate::ends::Work;
use crate::host::Host;
use crate::parts::{Adaptivity, Cost, ExchangeCost, Factor, Passes};
use crate::summary::Summary;
use crate::works::{self, Plan, Row};
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
    /// Transports at work.
    pub rows: Vec<Row>,
    /// Parts of UTS.
    pub parts: Vec<Cost>,
    /// What it costs that mechanisms are chosen while the program runs.
    pub adaptivity: Vec<Adaptivity>,
    /// Processor time of an exchange at each end.
    pub exchanges: Vec<ExchangeCost>,
    /// The engine with functions left out.
    pub factors: Vec<Factor>,
    /// One pass over a packet's data against passes in turn.
    pub passes: Vec<Passes>,
    /// What UTS has to reach.
    pub bars: Vec<Bar>,
    /// Where rivals are ahead of it.
    pub leads: Vec<Lead>,
}

/// A column of a table: its title, the figure that it shows, how many digits.
type Column = (&'static str, &'static str, usize);

/// What is shown of a work.
fn columns(work: Work) -> &'static [Column] {
    match work {
        Work::Bulk => &[
            ("Gbit/s", "gbps", 2),
            ("sender s/GB", "sender_s_per_gb", 3),
            ("receiver s/GB", "receiver_s_per_gb", 3),
            ("lost", "lost", 0),
        ],
        Work::Ping | Work::Spin => {
            &[("1 B p50 us", "p50_us", 1), ("p99 us", "p99_us", 1), ("client CPU us each", "client_us", 1)]
        }
        Work::Messages | Work::SingleMessages => &[
            ("100 B messages/s", "per_s", 0),
            ("arrived", "arrived", 3),
            ("sender us each", "sender_us", 3),
            ("receiver us each", "receiver_us", 3),
        ],
        Work::Handshakes => &[
            ("p50 us", "p50_us", 0),
            ("p99 us", "p99_us", 0),
            ("accepted per s and core", "per_core_s", 0),
            ("client us each", "client_us", 0),
        ],
        Work::Idle => &[
            ("connections", "connections", 0),
            ("client bytes each", "client_bytes", 0),
            ("server bytes each", "server_bytes", 0),
            ("client CPU", "client_cpu", 4),
            ("server CPU", "server_cpu", 4),
        ],
        Work::Shared => &[
            ("Gbit/s in sum", "gbps", 2),
            ("Jain", "jain", 3),
            ("sender s/GB", "sender_s_per_gb", 3),
            ("receiver s/GB", "receiver_s_per_gb", 3),
            ("lost", "lost", 0),
        ],
    }
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
        let _ = write!(text, "{}", self.distance());
        for skipped in &self.skipped {
            let _ = writeln!(text, "skipped: {skipped}");
        }
        for row in &self.rows {
            for failure in &row.failures {
                let _ = writeln!(
                    text,
                    "FAILED: {} {} {}, {}: {failure}",
                    row.work, row.path, row.transport, row.cores
                );
            }
        }
        if !self.rows.is_empty() {
            let repetitions = self.plan.repetitions;
            let _ = writeln!(text, "\nMedian (smallest to largest) of {repetitions} interleaved repetitions");
        }
        Work::ALL.iter().for_each(|work| text.push_str(&self.work_table(*work)));
        if !self.parts.is_empty() {
            text.push_str(&self.part_table());
        }
        if !self.adaptivity.is_empty() {
            text.push_str(&self.adaptivity_table());
        }
        if !self.exchanges.is_empty() {
            text.push_str(&self.exchange_table());
        }
        if !self.factors.is_empty() {
            text.push_str(&self.factor_table());
        }
        if !self.passes.is_empty() {
            text.push_str(&self.passes_table());
        }
        if !self.bars.is_empty() {
            text.push_str(&self.bar_table());
        }
        if !self.leads.is_empty() {
            text.push_str(&self.lead_table());
        }
        text
    }

    /// How far from each other cores were, if two took part.
    fn distance(&self) -> String {
        let near_ns = works::near_line_ns(&self.rows);
        if !near_ns.is_finite() {
            return String::new();
        }
        let (mut again, mut far, mut all) = (0, 0, 0);
        for row in &self.rows {
            again += row.set_aside.len();
            far += row.far(near_ns);
            all += row.figures.get(works::LINE_NS).map_or(0, Vec::len);
        }
        format!(
            "a line of memory goes from one core to the other in {near_ns:.1} ns where they are near; of {all} measurements {far} are of \
             a time when it took more than twice as long, and {again} more, made again for that reason, are set aside\n"
        )
    }

    fn work_table(&self, work: Work) -> String {
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.work == work.name()).collect();
        if rows.is_empty() {
            return String::new();
        }
        let is_pinged = matches!(work, Work::Ping | Work::Spin);
        let mut head = vec![work.name().to_owned(), "transport".to_owned()];
        head.extend(columns(work).iter().map(|(title, ..)| (*title).to_owned()));
        let mut lines = vec![head];
        for row in rows {
            let place = if is_pinged { format!("{}, {}", row.path, row.cores) } else { row.path.to_owned() };
            let many = if row.connections > 1 { format!(" x {}", row.connections) } else { String::new() };
            let mut line = vec![place, format!("{}{many}", row.transport)];
            line.extend(columns(work).iter().map(|(_, figure, digits)| spread(row.summary(figure), *digits)));
            lines.push(line);
        }
        format!("\n{}", table(&lines))
    }

    fn adaptivity_table(&self) -> String {
        let head =
            ["profile", "named in the source ns", "synthesised ns", "a packet of the engine to one so named"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for Adaptivity { profile, named_ns, synthesised_ns, ratio } in &self.adaptivity {
            let ns = [named_ns, synthesised_ns].map(|ns| spread(Some(*ns), 1));
            lines.push([vec![(*profile).to_owned()], ns.to_vec(), vec![spread(Some(*ratio), 3)]].concat());
        }
        format!("\nAdaptivity: the functions of a packet, both ends in one core\n{}", table(&lines))
    }

    fn exchange_table(&self) -> String {
        let mut lines = vec![["exchange", "sender us", "receiver us"].map(str::to_owned).to_vec()];
        for ExchangeCost { way, sender_us, receiver_us } in &self.exchanges {
            let us = [sender_us, receiver_us].map(|us| spread(Some(*us), 2));
            lines.push([vec![(*way).to_owned()], us.to_vec()].concat());
        }
        format!("\nProcessor time of an exchange: two engines in memory, both in one core\n{}", table(&lines))
    }

    fn factor_table(&self) -> String {
        let head = ["left out", "packet", "sender ns", "receiver ns", "Gbit/s, both in one core"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for factor in &self.factors {
            lines.push(vec![
                factor.left_out.clone(),
                format!("{} B", factor.bytes),
                spread(Some(factor.sender_ns), 0),
                spread(Some(factor.receiver_ns), 0),
                format!(
                    "{:.2}",
                    factor.bytes as f64 * 8.0 / (factor.sender_ns.median + factor.receiver_ns.median)
                ),
            ]);
        }
        format!("\nFunctions factored out: two engines in memory, per packet\n{}", table(&lines))
    }

    fn passes_table(&self) -> String {
        let titles = ["end", "work", "passes", "in cache ns", "gain ns", "from memory ns", "gain ns"];
        let mut lines = vec![titles.map(str::to_owned).to_vec()];
        for passes in &self.passes {
            let mut line = vec![passes.end.to_owned(), passes.work.clone(), passes.way.to_owned()];
            for timing in [&passes.cached, &passes.memory] {
                line.extend([timing.ns, timing.gain_ns].map(|summary| spread(Some(summary), 0)));
            }
            lines.push(line);
        }
        format!(
            "\nOne pass, or passes in turn: per packet of {} B; gain to the first of the same work\n{}",
            crate::parts::DATA_BYTES,
            table(&lines)
        )
    }

    fn bar_table(&self) -> String {
        let mut lines = vec![["work", "what", "reached", "bar", ""].map(str::to_owned).to_vec()];
        for bar in &self.bars {
            let digits = if bar.wanted >= 100.0 { 0 } else { 2 };
            lines.push(vec![
                bar.work.clone(),
                bar.what.clone(),
                spread(bar.reached, digits),
                bar.wanted(),
                bar.verdict(),
            ]);
        }
        format!("\nBars\n{}", table(&lines))
    }

    fn lead_table(&self) -> String {
        let mut lines = vec![["work", "ahead of uts", "in", "times"].map(str::to_owned).to_vec()];
        for Lead { rival, work, what, ratio } in &self.leads {
            let (rival, what) = ((*rival).to_owned(), (*what).to_owned());
            lines.push(vec![work.clone(), rival, what, format!("{ratio:.2}")]);
        }
        format!("\nWhere rivals that encrypt lead, by the median of repetitions\n{}", table(&lines))
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

    /// Writes the JSON; gives it.
    pub fn save(&self, file: &Path) -> Result<String> {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let json = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(file, &json).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(json)
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
