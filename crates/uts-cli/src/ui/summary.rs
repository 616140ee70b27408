//! The table at the end of a copy.

use super::{Done, lines};
use uts_units::show;

/// The table, a line each.
pub fn table(done: &Done) -> String {
    let t = &done.telemetry;
    let mut files = done.files.to_string();
    // What failed before it could be planned, as a directory that cannot be read, is one more.
    let all = done.files_total.max(done.files + done.failures);
    if done.files != all {
        files.push_str(&format!(" of {all}"));
    }
    let notes = [(done.files_already_there, "already there"), (done.failures, "failed")];
    let notes: Vec<String> =
        notes.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if !notes.is_empty() {
        files.push_str(&format!(" ({})", notes.join(", ")));
    }
    if let Some((wanted, bytes)) = done.wanted {
        let there = done.files_already_there;
        let failed = if done.failures > 0 { format!(" ({} failed)", done.failures) } else { String::new() };
        let deleted =
            if done.deleted > 0 { format!("to be deleted {}\n", done.deleted) } else { String::new() };
        return format!(
            "nothing was changed\nto be copied  {wanted} files, {}\nalready there {there} files{failed}\n{deleted}",
            show::bytes(bytes)
        );
    }
    let share = |n: u64| if t.packets_sent > 0 { n as f64 * 100.0 / t.packets_sent as f64 } else { 0.0 };
    let mut rows = vec![
        ("files", files),
        ("bytes", format!("{} ({} carried)", show::bytes(done.bytes), show::bytes(done.bytes_carried))),
    ];
    if done.says_all {
        rows.extend([
            ("literal", show::bytes(done.bytes_literal)),
            ("matched", show::bytes(done.bytes_matched)),
            ("directories", done.directories.to_string()),
            ("links", done.links.to_string()),
        ]);
    }
    if done.says_all || done.deleted > 0 {
        rows.push(("deleted", done.deleted.to_string()));
    }
    rows.extend([
        ("time", show::seconds(done.seconds)),
        ("goodput", show::bits_per_second(done.goodput_bps())),
        ("packets sent", t.packets_sent.to_string()),
        ("repeated", format!("{} ({:.2} %)", t.packets_repeated, share(t.packets_repeated))),
        ("repaired", t.packets_repaired.to_string()),
        ("exchanges", t.exchanges.to_string()),
        ("profile", t.profile.clone()),
        (
            "hash",
            done.hash
                .as_ref()
                .map_or_else(|| "-".into(), |hash| format!("BLAKE3 {hash}, the same at both ends")),
        ),
    ]);
    rows.iter().map(|(name, value)| format!("{name:<13} {}\n", lines::line(value.as_str()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Telemetry;

    #[test]
    fn the_table_says_what_was_done() {
        let telemetry = Telemetry {
            packets_sent: 50_000,
            packets_repeated: 1000,
            profile: "cubic, no fec".into(),
            ..Telemetry::default()
        };
        let done = Done {
            files: 4,
            files_total: 5,
            files_already_there: 1,
            failures: 1,
            bytes: 64_000_000,
            bytes_carried: 50_000_000,
            seconds: 10.0,
            telemetry,
            ..Done::default()
        };
        assert!(!table(&done).contains("deleted"));
        let done = Done { deleted: 3, bytes_literal: 60_000_000, bytes_matched: 4_000_000, ..done };
        assert!(table(&done).contains("\ndeleted       3\n") && !table(&done).contains("literal"));
        let table = table(&Done { says_all: true, ..done });
        for row in [
            "literal       60.0 MB",
            "matched       4.0 MB",
            "directories   0",
            "links         0",
            "deleted       3",
            "files         4 of 5 (1 already there, 1 failed)",
            "bytes         64.0 MB (50.0 MB carried)",
            "time          10.00 s",
            "goodput       40.0 Mbit/s",
            "repeated      1000 (2.00 %)",
        ] {
            assert!(table.lines().any(|line| line == row), "{row} not in\n{table}");
        }
        assert_eq!(super::super::Done::default().goodput_bps(), 0.0);
    }
}
