//! The outcome of runs as a table, for a terminal and for the page.

use uts_record::demo::{Record, Run};

/// A row: a quantity, and its value in each run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The quantity.
    pub name: &'static str,
    /// A value for each run, with its unit.
    pub values: Vec<String>,
}

/// Text of a missing value.
pub const MISSING: &str = "–";

type Value = fn(&Run) -> String;

const ROWS: [(&str, Value); 14] = [
    ("Time", time),
    ("Arrived", |r| format!("{:.1} MB", r.summary.payload_bytes as f64 / 1e6)),
    ("Goodput", |r| format!("{:.2} Mbit/s", r.summary.goodput_bps / 1e6)),
    ("Share of what the path could carry", |r| percent(r.summary.share())),
    ("Share of that less its mean loss", |r| percent(r.summary.share_after_loss())),
    ("Packets sent", |r| count(r.summary.packets_sent)),
    ("Packets repeated", |r| part(r.summary.packets_repeated, r.summary.packets_sent)),
    ("Packets repaired", |r| part(r.summary.packets_repaired, r.summary.packets_sent)),
    ("Lost on the wire", |r| count(Some(r.summary.lost_on_wire))),
    ("Dropped by the full queue", |r| count(Some(r.summary.dropped_by_queue))),
    ("Exchanges", |r| own(r, r.agreed().count())),
    ("Each took", took),
    ("Exchanges refused or unanswered", |r| own(r, r.exchanges.len() - r.agreed().count())),
    ("SHA-256 of what arrived", |r| abbreviated(&r.summary.sha256)),
];

/// The rows of the summary.
pub fn rows(record: &Record) -> Vec<Row> {
    let row =
        |(name, value): &(&'static str, Value)| Row { name, values: record.runs.iter().map(value).collect() };
    ROWS.iter().map(row).collect()
}

/// The heading of each run's column.
pub fn headings(record: &Record) -> Vec<&str> {
    let heading = |run: &'_ Run| match run.name.as_str() {
        "adaptive" => "Adaptive",
        "fixed" => "First profile fixed",
        "tcp" => "Kernel TCP",
        _ => "Run",
    };
    record.runs.iter().map(heading).collect()
}

/// Name of the run that the adaptive one is compared with, in the legends of charts.
pub(super) fn compared(run: &Run) -> &'static str {
    match run.name.as_str() {
        "tcp" => "kernel TCP",
        _ => "fixed profile",
    }
}

/// The summary as aligned text.
pub fn text(record: &Record) -> String {
    let rows = rows(record);
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let name_width = width(&mut rows.iter().map(|r| r.name.chars().count()));
    let headings = headings(record);
    let column_width = |i: usize| {
        let values = rows.iter().filter_map(|r| r.values.get(i)).map(|v| v.chars().count());
        width(&mut values.chain(headings.get(i).map(|h| h.chars().count())))
    };
    let widths: Vec<usize> = (0..headings.len()).map(column_width).collect();
    let line = |name: &str, values: &mut dyn Iterator<Item = &str>| {
        let mut line = format!("{name:<name_width$}");
        for (value, width) in values.zip(&widths) {
            line.push_str(&format!("  {value:>width$}"));
        }
        line.push('\n');
        line
    };
    let mut text = line("", &mut headings.iter().copied());
    for row in &rows {
        text.push_str(&line(row.name, &mut row.values.iter().map(String::as_str)));
    }
    text
}

/// A count of what only UTS has.
fn own(run: &Run, count: usize) -> String {
    if run.is_of_another() { MISSING.into() } else { count.to_string() }
}

fn time(run: &Run) -> String {
    let beyond = if run.summary.is_cut_short { "not done after " } else { "" };
    format!("{beyond}{:.2} s", run.summary.duration_s)
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| MISSING.into(), |s| format!("{:.1} %", s * 100.0))
}

/// A count with thin groups of three digits.
pub(super) fn count(count: Option<u64>) -> String {
    let Some(count) = count else { return MISSING.into() };
    let digits = count.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped
}

fn part(some: Option<u64>, all: Option<u64>) -> String {
    match (some, all) {
        (Some(some), Some(all)) if all > 0 => {
            format!("{} ({:.2} %)", count(Some(some)), some as f64 * 100.0 / all as f64)
        }
        _ => count(some),
    }
}

fn took(run: &Run) -> String {
    let times: Vec<String> = run.agreed().filter_map(|e| e.took_ms).map(|ms| format!("{ms:.0}")).collect();
    if times.is_empty() { MISSING.into() } else { format!("{} ms", times.join(", ")) }
}

fn abbreviated(hash: &str) -> String {
    match hash.get(..16) {
        Some(start) => format!("{start}…"),
        None => MISSING.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_record::demo::{Exchange, FORMAT, Outcome, Setting, Summary};

    #[test]
    fn a_table_has_a_column_for_each_run() {
        let exchange = |took_ms, outcome| Exchange { took_ms, outcome, ..Exchange::default() };
        let summary = Summary {
            duration_s: 10.0,
            payload_bytes: 50_000_000,
            goodput_bps: 40e6,
            capacity_bytes: Some(62_500_000.0),
            packets_sent: Some(41_234),
            packets_repeated: Some(412),
            ..Summary::default()
        };
        let adaptive = Run {
            name: "adaptive".into(),
            exchanges: vec![exchange(Some(41.2), Outcome::Agreed), exchange(None, Outcome::Failed)],
            summary: summary.clone(),
            ..Run::default()
        };
        let fixed = Run { name: "fixed".into(), summary, ..Run::default() };
        let record = Record { format: FORMAT, setting: Setting::default(), runs: vec![adaptive, fixed] };
        let text = text(&record);
        for wanted in ["Adaptive  First profile fixed\n", "40.00 Mbit/s", "80.0 %", "412 (1.00 %)", "41 ms"] {
            assert!(text.contains(wanted), "{wanted} is missing in\n{text}");
        }
        let widths: Vec<usize> = text.lines().map(|l| l.chars().count()).collect();
        assert!(widths.iter().all(|w| *w == widths[0]), "{text}");
        let values =
            |name: &str| rows(&record).into_iter().find(|row| row.name == name).map(|row| row.values);
        assert_eq!(values("Exchanges"), Some(vec!["1".into(), "0".into()]));
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(Some(1_234_567)), "1\u{202f}234\u{202f}567");
        assert_eq!(count(Some(123)), "123");
        assert_eq!(count(None), MISSING);
    }
}
