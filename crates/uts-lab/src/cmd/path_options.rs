//! The options of all commands that make a path, and what its links have done, as a table.

use clap::Args;
use std::fmt::Write;
use uts_path::{Change, LinkConfig, PathConfig, Schedule, Scheduled, SpecError, Stats};

#[derive(Debug, Args)]
pub struct PathOptions {
    /// Settings of both directions
    #[arg(long, value_name = "SETTINGS")]
    both: Option<Change>,
    /// Settings of the forward direction (from clients, or from hosts with lower numbers), in
    /// addition to --both
    #[arg(long, value_name = "SETTINGS")]
    fwd: Option<Change>,
    /// Settings of the direction back, in addition to --both
    #[arg(long, value_name = "SETTINGS")]
    bwd: Option<Change>,
    /// Later change, as `at=10s fwd loss=ge:0.05,4` (time since the start) or `at=21MB both
    /// rate=20mbit` (bytes that have entered the forward direction); may be repeated
    #[arg(long, value_name = "CHANGE")]
    at: Vec<Scheduled>,
    /// Seed of the path's random decisions
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl PathOptions {
    /// The path: a link like `base` each way, but for the options.
    ///
    /// # Errors
    /// Options contradict each other.
    pub fn path(&self, base: &LinkConfig) -> Result<PathConfig, SpecError> {
        let link = |own: &Option<Change>| -> Result<LinkConfig, SpecError> {
            let changes = [&self.both, own].into_iter().flatten();
            changes.into_iter().try_fold(base.clone(), LinkConfig::with)
        };
        Ok(PathConfig {
            forward: link(&self.fwd)?,
            backward: link(&self.bwd)?,
            schedule: Schedule { entries: self.at.clone() },
        })
    }
}

/// Table of the counters of a path's links, a line for each figure.
pub fn table(forward: &Stats, backward: &Stats) -> String {
    let mut text = format!("{:<18}{:>14}{:>14}", "", "forward", "backward");
    for (name, value) in ROWS {
        let _ = write!(text, "\n{name:<18}{:>14}{:>14}", value(forward), value(backward));
    }
    text
}

type Row = (&'static str, fn(&Stats) -> u64);

const ROWS: [Row; 19] = [
    ("packets in", |s| s.packets_in),
    ("bytes in", |s| s.bytes_in),
    ("delivered", |s| s.delivered),
    ("bytes delivered", |s| s.bytes_delivered),
    ("dropped: receive", |s| s.dropped_receive),
    ("dropped: queue", |s| s.dropped_queue),
    ("dropped: loss", |s| s.dropped_loss),
    ("dropped: outage", |s| s.dropped_outage),
    ("dropped: mtu", |s| s.dropped_mtu),
    ("dropped: headers", |s| s.dropped_compression),
    ("dropped", Stats::dropped),
    ("duplicated", |s| s.duplicated),
    ("reordered", |s| s.reordered),
    ("corrupted", |s| s.corrupted),
    ("marked", |s| s.marked),
    ("compressed", |s| s.compressed_headers),
    ("restored wrong", |s| s.restored_wrong),
    ("max queue packets", |s| s.max_queue_packets),
    ("max queue bytes", |s| s.max_queue_bytes),
];

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        path: PathOptions,
    }

    #[test]
    fn a_direction_has_its_own_beyond_what_both_have() {
        let words =
            ["program", "--both", "rate=5mbit delay=20ms", "--bwd", "rate=1mbit", "--at", "at=1s fwd down"];
        let options = Program::parse_from(words).path;
        let base = LinkConfig { overhead_bytes: 28, ..LinkConfig::default() };
        let path = options.path(&base).unwrap();
        assert_eq!([path.forward.rate_bps, path.backward.rate_bps], [Some(5_000_000), Some(1_000_000)]);
        assert_eq!(path.forward.overhead_bytes, 28);
        assert_eq!((path.forward.delay_ns, path.schedule.entries.len()), (path.backward.delay_ns, 1));
        assert_eq!(options.seed, 1);
    }

    #[test]
    fn a_table_has_both_directions() {
        let forward = Stats { packets_in: 12, dropped_loss: 3, ..Stats::default() };
        let text = table(&forward, &Stats { packets_in: 7, ..Stats::default() });
        let line = |name: &str| {
            let mut lines = text.lines().filter(|line| line.starts_with(name));
            lines
                .next()
                .map(|line| line[name.len()..].split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(line("packets in").unwrap(), ["12", "7"]);
        assert_eq!(line("dropped: loss").unwrap(), ["3", "0"]);
        assert_eq!(line("dropped  ").unwrap(), ["3", "0"]);
    }
}
