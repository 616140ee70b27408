//! The samples of a run as files; see docs/lab.md for their columns.

use super::csv::Csv;
use crate::router::tcp_probe::TcpState;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use uts_end::Role;
use uts_traffic::measure::{PacketEvent, Sample};

/// All samples of a run. A table that stays empty makes no file.
#[derive(Debug, Default)]
pub struct Samples {
    tables: Vec<Table>,
}

#[derive(Debug)]
struct Table {
    file: &'static str,
    csv: Csv,
}

const SEQUENCE: (&str, &[&str]) = ("sequence.csv", &["t_s", "flow", "kind", "position_bytes"]);
const WINDOW: (&str, &[&str]) =
    ("window.csv", &["t_s", "flow", "end", "window_bytes", "in_flight_bytes", "rtt_ms"]);
const GOODPUT: (&str, &[&str]) = ("goodput.csv", &["t_s", "flow", "delivered_bytes"]);
const QUEUE: (&str, &[&str]) = ("queue.csv", &["t_s", "link", "packets", "bytes", "sojourn_ms"]);
const LATENCY: (&str, &[&str]) = ("latency.csv", &["t_s", "flow", "latency_ms", "deadline_ms"]);
const TCP_PROBE: (&str, &[&str]) = (
    "tcp_probe.csv",
    &[
        "t_s",
        "flow",
        "end",
        "data_bytes",
        "next",
        "unacknowledged",
        "window_segments",
        "threshold_segments",
        "send_window_bytes",
        "receive_window_bytes",
        "rtt_ms",
    ],
);
const EXCHANGES: (&str, &[&str]) = ("exchanges.csv", &["t_s", "flow", "line"]);
const CHANGES: (&str, &[&str]) = ("changes.csv", &["t_s", "link", "change"]);

impl Samples {
    fn table(&mut self, (file, header): (&'static str, &[&str])) -> &mut Csv {
        let found = self.tables.iter().position(|table| table.file == file);
        let index = found.unwrap_or_else(|| {
            self.tables.push(Table { file, csv: Csv::new(header) });
            self.tables.len() - 1
        });
        &mut self.tables[index].csv
    }

    /// A sample of an end of a flow, on a clock on which the run began at `origin_ns`.
    pub fn add(&mut self, flow: &str, role: Role, sample: &Sample, origin_ns: u64) {
        let t_s = |at_ns: u64| (at_ns as f64 - origin_ns as f64) / 1e9;
        match sample {
            Sample::Delivered { at_ns, bytes } => {
                let csv = self.table(GOODPUT);
                csv.number(t_s(*at_ns));
                csv.text(flow);
                csv.text(&bytes.to_string());
                csv.end_line();
            }
            Sample::Latency { at_ns, took, deadline } => {
                let csv = self.table(LATENCY);
                csv.number(t_s(*at_ns));
                csv.text(flow);
                csv.optional(took.map(|took| took.as_secs_f64() * 1e3));
                csv.optional(deadline.map(|deadline| deadline.as_secs_f64() * 1e3));
                csv.end_line();
            }
            Sample::Status { at_ns, window_bytes, in_flight_bytes, rtt } => {
                let csv = self.table(WINDOW);
                csv.number(t_s(*at_ns));
                csv.text(flow);
                csv.text(role.name());
                csv.optional(window_bytes.map(|bytes| bytes as f64));
                csv.optional(in_flight_bytes.map(|bytes| bytes as f64));
                csv.optional(rtt.map(|rtt| rtt.as_secs_f64() * 1e3));
                csv.end_line();
            }
            // Of the end that connects, as its positions are the data's.
            Sample::Packet { at_ns, what, data, .. } => {
                if let (Some((_, position)), Role::Client) = (data, role) {
                    let kind = match what {
                        PacketEvent::Sent => "sent",
                        PacketEvent::Repeated => "repeated",
                        PacketEvent::Acked => "acked",
                        PacketEvent::Lost => return,
                    };
                    self.add_sequence(flow, t_s(*at_ns), kind, *position);
                }
            }
            Sample::Exchange { at_ns, line } => {
                let csv = self.table(EXCHANGES);
                csv.number(t_s(*at_ns));
                csv.text(flow);
                csv.text(line);
                csv.end_line();
            }
        }
    }

    /// A packet's position in the stream: kind is `sent`, `repeated` or `acked`.
    pub fn add_sequence(&mut self, flow: &str, t_s: f64, kind: &str, position_bytes: u64) {
        let csv = self.table(SEQUENCE);
        csv.number(t_s);
        csv.text(flow);
        csv.text(kind);
        csv.text(&position_bytes.to_string());
        csv.end_line();
    }

    /// A queue, and for how long the packet that leaves it then was in it.
    pub fn add_queue(&mut self, link: &str, t_s: f64, packets: u64, bytes: u64, sojourn_ms: Option<f64>) {
        let csv = self.table(QUEUE);
        csv.number(t_s);
        csv.text(link);
        csv.text(&packets.to_string());
        csv.text(&bytes.to_string());
        csv.optional(sojourn_ms);
        csv.end_line();
    }

    /// The state of kernel TCP at an end of a flow as a segment came.
    pub fn add_tcp_state(&mut self, flow: &str, role: Role, t_s: f64, state: &TcpState) {
        let csv = self.table(TCP_PROBE);
        csv.number(t_s);
        csv.text(flow);
        csv.text(role.name());
        csv.text(&state.data_bytes.to_string());
        csv.text(&state.next.to_string());
        csv.text(&state.unacknowledged.to_string());
        csv.text(&state.window.to_string());
        csv.optional(state.threshold.map(f64::from));
        csv.text(&state.send_window_bytes.to_string());
        csv.text(&state.receive_window_bytes.to_string());
        csv.number(state.rtt.as_secs_f64() * 1e3);
        csv.end_line();
    }

    /// A change of a path.
    pub fn add_change(&mut self, link: &str, t_s: f64, change: &str) {
        let csv = self.table(CHANGES);
        csv.number(t_s);
        csv.text(link);
        csv.text(change);
        csv.end_line();
    }

    /// Writes what there is into a directory.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(self, dir: &Path) -> Result<()> {
        for Table { file, csv } in self.tables {
            let path = dir.join(file);
            fs::write(&path, csv.into_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}
