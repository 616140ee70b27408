//! What UTS has to reach, as ratios to its rivals in the same run.

use crate::ends::{Transport, Work};
use crate::parts::Adaptivity;
use crate::summary::Summary;
use crate::works::{ONE_CORE, Row, TWO_CORES};
use serde::Serialize;

/// A figure of rows: their work, path, cores, transports of which the best counts, and name.
#[derive(Clone, Copy)]
struct Pick<'a> {
    work: Work,
    path: &'a str,
    cores: &'a str,
    transports: &'a [Transport],
    figure: &'a str,
}

/// A bar, and how UTS stands to it.
#[derive(Debug, Serialize)]
pub struct Bar {
    /// The work, and where.
    pub work: String,
    /// What is compared.
    pub what: String,
    /// What was reached, by repetition.
    pub reached: Option<Summary>,
    /// What should be.
    pub wanted: f64,
    /// Whether less is better.
    pub at_most: bool,
}

impl Bar {
    /// Whether it is met, or by how much it is missed.
    pub fn verdict(&self) -> String {
        let Some(reached) = self.reached else { return "not measured".to_owned() };
        let share = reached.median / self.wanted;
        let (met, missed) =
            if self.at_most { (share <= 1.0, share - 1.0) } else { (share >= 1.0, 1.0 - share) };
        // Less than a hundredth is not nothing.
        let digits = usize::from(missed < 0.0095);
        if met { "met".to_owned() } else { format!("missed by {:.digits$} %", missed * 100.0) }
    }

    /// What is wanted, as it is written.
    pub fn wanted(&self) -> String {
        format!("{} {}", if self.at_most { "<=" } else { ">=" }, self.wanted)
    }
}

/// All bars that a run of these works can speak about.
pub fn judge(rows: &[Row], adaptivity: &[Adaptivity]) -> Vec<Bar> {
    let mut bars = Vec::new();
    bulk(rows, &mut bars);
    waiting(rows, &mut bars);
    connections(rows, &mut bars);
    // Works that were not asked for are of no interest.
    bars.retain(|bar| bar.reached.is_some() || rows.iter().any(|row| bar.work.starts_with(row.work)));
    bars.extend(adaptivity.iter().map(|Adaptivity { profile, ratio, .. }| Bar {
        work: "adaptivity".to_owned(),
        what: format!("{profile}: time of a packet in memory to one of mechanisms named in the source"),
        reached: Some(*ratio),
        wanted: 1.02,
        at_most: true,
    }));
    bars
}

fn bulk(rows: &[Row], bars: &mut Vec<Bar>) {
    use Transport::{
        Iperf3Cubic, Iperf3CubicW1m, Quinn, RawUdp, S2nQuic, TcpCubic, TcpRustls, Uts, UtsBare, UtsCrc32c,
        UtsCrc32cBlocking,
    };
    let mut compare = |path, ours, rivals: &[Transport], figure, what: &str, wanted, at_most| {
        let theirs = Pick { work: Work::Bulk, path, cores: TWO_CORES, transports: rivals, figure };
        let reached = ratio(rows, &Pick { transports: &[ours], ..theirs }, &theirs, at_most);
        bars.push(Bar { work: format!("bulk, {path}"), what: what.to_owned(), reached, wanted, at_most });
    };
    for (path, wanted) in [("veth", 2.0), ("veth-1500", 1.7), ("veth-1500-gro", 1.7)] {
        let what = "protected: goodput to the better of quinn and s2n-quic";
        compare(path, Uts, &[Quinn, S2nQuic], "gbps", what, wanted, false);
        compare(path, Uts, &[TcpRustls], "gbps", "protected: goodput to TLS over TCP", 1.0, false);
    }
    for path in ["veth-1500", "veth-1500-gro"] {
        // All of these wait in the threads that use them.
        for (ours, by) in [(UtsCrc32cBlocking, "by calls that wait"), (UtsCrc32c, "through tokio")] {
            let rivals: [(&[Transport], &str, f64); 3] = [
                (&[RawUdp], "raw UDP", 0.8),
                (&[Iperf3Cubic, Iperf3CubicW1m], "TCP, iperf3 at its best", 1.0),
                // Which does nothing but write and read, 256 KiB at a time.
                (&[TcpCubic], "TCP, without iperf3", 1.0),
            ];
            for (rivals, what, wanted) in rivals {
                let what = format!("CRC-32C: goodput to {what}, {by}");
                compare(path, ours, rivals, "gbps", &what, wanted, false);
            }
        }
    }
    for path in ["veth", "veth-1500", "veth-1500-gro"] {
        let what = "no detection, no repeats: goodput to raw UDP";
        compare(path, UtsBare, &[RawUdp], "gbps", what, 0.85, false);
    }
    for path in ["veth", "veth-1500", "veth-1500-gro"] {
        let what = "protected: CPU per byte, both ends, to quinn";
        compare(path, Uts, &[Quinn], "both_s_per_gb", what, 0.55, true);
    }
}

fn waiting(rows: &[Row], bars: &mut Vec<Bar>) {
    use Transport::{Quinn, RawUdp, Uts, UtsBlocking};
    let path = usual(rows);
    let mut add = |ours: Pick, theirs: Pick, what: &str, wanted, at_most| {
        let (work, what) = (format!("{}, {path}", ours.work.name()), what.to_owned());
        bars.push(Bar { work, what, reached: ratio(rows, &ours, &theirs, at_most), wanted, at_most });
    };
    // Raw UDP waits in the thread that uses it, as `uts-blocking` does. This sets the bar. A
    // runtime adds one hop.
    for (ours, by) in [(&[UtsBlocking], "by calls that wait"), (&[Uts], "through tokio")] {
        let mut compare = |work, cores, what: &str, wanted| {
            let theirs = Pick { work, path, cores, transports: &[RawUdp], figure: "p50_us" };
            add(Pick { transports: ours, ..theirs }, theirs, &format!("{what}, {by}"), wanted, true);
        };
        compare(Work::Ping, TWO_CORES, "p50 to raw UDP, two cores", 1.25);
        compare(Work::Ping, ONE_CORE, "p50 to raw UDP, one core", 2.0);
        compare(Work::Spin, TWO_CORES, "p50 to spinning raw UDP", 2.0);
    }
    let mut compare = |work, cores, rival: (Work, Transport), figure, what: &str, wanted, at_most| {
        let ours = Pick { work, path, cores, transports: &[Uts], figure };
        add(ours, Pick { work: rival.0, transports: &[rival.1], ..ours }, what, wanted, at_most);
    };
    let datagrams = (Work::Messages, Quinn);
    compare(Work::Messages, TWO_CORES, datagrams, "per_s", "messages to quinn's datagrams", 3.0, false);
    // quinn puts several into a packet unless each is let go before the next.
    let what = "a packet each: messages to quinn's datagrams, which share packets";
    compare(Work::SingleMessages, TWO_CORES, datagrams, "per_s", what, 3.0, false);
    let what = "a packet each: messages to quinn's datagrams, a packet each";
    compare(Work::SingleMessages, TWO_CORES, (Work::SingleMessages, Quinn), "per_s", what, 3.0, false);
    let shakes = (Work::Handshakes, Quinn);
    compare(Work::Handshakes, TWO_CORES, shakes, "p50_us", "time to quinn's", 0.8, true);
    let what = "accepted per second and core to quinn's";
    compare(Work::Handshakes, TWO_CORES, shakes, "per_core_s", what, 1.5, false);
}

fn connections(rows: &[Row], bars: &mut Vec<Bar>) {
    if let Some(idle) = rows.iter().find(|row| row.work == Work::Idle.name()) {
        let mut is = |figure, what: &str, wanted, at_most| {
            let (work, what) = (format!("idle, {}", idle.path), what.to_owned());
            bars.push(Bar { work, what, reached: idle.summary(figure), wanted, at_most });
        };
        is("connections", "connections on one endpoint", 100_000.0, false);
        is("client_bytes", "bytes each at the client", 4096.0, true);
        is("server_bytes", "bytes each at the server", 4096.0, true);
        is("server_cpu", "CPU seconds per second while idle, server", 0.01, true);
    }
    let shared: Vec<&Row> = rows.iter().filter(|row| row.work == Work::Shared.name()).collect();
    if let (Some(one), Some(many)) =
        (shared.iter().find(|row| row.connections == 1), shared.iter().find(|row| row.connections > 1))
    {
        let (one_gbps, many_gbps) = (one.figures.get("gbps"), many.figures.get("gbps"));
        let reached =
            one_gbps.zip(many_gbps).and_then(|(one, many)| Summary::of(ratios(many.clone(), one.clone())));
        let work = format!("shared, {}", many.path);
        let what = format!("{} connections: their sum to a single one", many.connections);
        bars.push(Bar { work: work.clone(), what, reached, wanted: 0.85, at_most: false });
        let what = format!("{} connections: Jain's index", many.connections);
        bars.push(Bar { work, what, reached: many.summary("jain"), wanted: 0.95, at_most: false });
    }
}

/// Where a rival that encrypts as UTS does is ahead of it.
#[derive(Debug, PartialEq, Serialize)]
pub struct Lead {
    /// The rival.
    pub rival: &'static str,
    /// The work, and where.
    pub work: String,
    /// What it is ahead in.
    pub what: &'static str,
    /// By how much, as a ratio above 1: the median of repetitions.
    pub ratio: f64,
}

/// All leads, in the order of `rows`.
pub fn leads(rows: &[Row]) -> Vec<Lead> {
    use Transport::{Quiche, Quinn, S2nQuic, TcpRustls, Tquic, Uts};
    /// What counts, and whether less of it is better.
    const FIGURES: [(&str, &str, bool); 5] = [
        ("gbps", "goodput", false),
        ("both_s_per_gb", "CPU per byte, both ends", true),
        ("p50_us", "median time", true),
        ("per_s", "messages", false),
        ("per_core_s", "accepted per second and core", false),
    ];
    let rivals = [Quinn, S2nQuic, Quiche, Tquic, TcpRustls].map(Transport::name);
    let mut leads = Vec::new();
    for row in rows.iter().filter(|row| rivals.contains(&row.transport)) {
        let beside = |ours: &&Row| {
            let key = |row: &Row| (row.work, row.path, row.cores, row.connections);
            ours.transport == Uts.name() && key(ours) == key(row)
        };
        let Some(ours) = rows.iter().find(beside) else { continue };
        for (figure, what, less) in FIGURES {
            let (Some(theirs), Some(ours)) = (row.figures.get(figure), ours.figures.get(figure)) else {
                continue;
            };
            let (better, worse) = if less { (ours, theirs) } else { (theirs, ours) };
            let Some(ratio) = Summary::of(ratios(better.clone(), worse.clone())) else { continue };
            if ratio.median > 1.0 {
                let work = format!("{}, {}, {}", row.work, row.path, row.cores);
                leads.push(Lead { rival: row.transport, work, what, ratio: ratio.median });
            }
        }
    }
    leads
}

/// The path on which what waits is measured.
fn usual(rows: &[Row]) -> &'static str {
    let waits = |row: &&Row| row.work != Work::Bulk.name();
    rows.iter().find(waits).map_or("veth", |row| row.path)
}

/// What each repetition gave of the best of some transports; `less` = less is better.
fn best(rows: &[Row], pick: &Pick<'_>, less: bool) -> Vec<Option<f64>> {
    let mut best: Vec<Option<f64>> = Vec::new();
    for row in rows {
        let fits = row.work == pick.work.name()
            && row.path == pick.path
            && row.cores == pick.cores
            && pick.transports.iter().any(|t| t.name() == row.transport);
        let Some(values) = row.figures.get(pick.figure).filter(|_| fits) else { continue };
        best.resize(best.len().max(values.len()), None);
        for (best, value) in best.iter_mut().zip(values) {
            *best = match (*best, *value) {
                (Some(a), Some(b)) => Some(if less { a.min(b) } else { a.max(b) }),
                (a, b) => a.or(b),
            };
        }
    }
    best
}

fn ratio(rows: &[Row], ours: &Pick<'_>, theirs: &Pick<'_>, less: bool) -> Option<Summary> {
    Summary::of(ratios(best(rows, ours, less), best(rows, theirs, less)))
}

/// Ratios within repetitions, where both gave something.
fn ratios(ours: Vec<Option<f64>>, theirs: Vec<Option<f64>>) -> impl Iterator<Item = f64> {
    ours.into_iter().zip(theirs).filter_map(|(a, b)| Some(a? / b?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(transport: Transport, path: &'static str, figures: &[(&'static str, &[f64])]) -> Row {
        let figures = figures.iter().map(|(name, values)| (*name, values.iter().map(|v| Some(*v)).collect()));
        Row {
            work: Work::Bulk.name(),
            path,
            cores: TWO_CORES,
            transport: transport.name(),
            connections: 1,
            figures: figures.collect(),
            note: String::new(),
            failures: Vec::new(),
            set_aside: Vec::new(),
        }
    }

    /// More of some is better, and less of others; each repetition is compared with its own.
    #[test]
    fn rivals_that_are_ahead_are_named() {
        let rows = [
            row(
                Transport::Uts,
                "veth",
                &[("gbps", &[10.0, 20.0, 10.0]), ("both_s_per_gb", &[1.0, 1.0, 1.0])],
            ),
            row(
                Transport::Quiche,
                "veth",
                &[("gbps", &[9.0, 19.0, 30.0]), ("both_s_per_gb", &[0.5, 0.8, 2.0])],
            ),
            row(Transport::TcpRustls, "veth", &[("gbps", &[11.0, 30.0, 5.0])]),
            // Not encrypted, and not on the same path.
            row(Transport::RawUdp, "veth", &[("gbps", &[90.0, 90.0, 90.0])]),
            row(Transport::Quinn, "veth-1500", &[("gbps", &[90.0, 90.0, 90.0])]),
        ];
        let lead = |rival: Transport, what, ratio| Lead {
            rival: rival.name(),
            work: "bulk, veth, two cores".to_owned(),
            what,
            ratio,
        };
        let expected = [
            lead(Transport::Quiche, "CPU per byte, both ends", 1.25),
            lead(Transport::TcpRustls, "goodput", 1.1),
        ];
        assert_eq!(leads(&rows), expected);
    }
}
