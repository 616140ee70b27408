//! The samples of a run as tables, with their writers and readers. docs/lab.md lists their columns.

use crate::csv_text::Csv;
use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use uts_traffic::measure::{PacketEvent, Sample};
use uts_traffic::transport::Status;

/// The name of the end that connects, in columns.
pub const CLIENT: &str = "client";
/// The kind of a row of an acknowledgement.
const ACKED: &str = "acked";

/// All samples of a run, to be written. A table that stays empty makes no file.
#[derive(Debug, Default)]
pub struct Samples {
    tables: Vec<Table>,
    /// The highest position that was acknowledged, by flow.
    acked: BTreeMap<String, u64>,
}

/// The state of kernel TCP as a segment came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpState {
    /// Bytes of data in the segment.
    pub data_bytes: u64,
    /// The next sequence number to be sent.
    pub next: u64,
    /// The first that is not acknowledged.
    pub unacknowledged: u64,
    /// The congestion window.
    pub window_segments: u64,
    /// The slow-start threshold, once there is one.
    pub threshold_segments: Option<u32>,
    /// Bytes that the peer is ready to take.
    pub send_window_bytes: u64,
    /// Bytes that this end is ready to take.
    pub receive_window_bytes: u64,
    /// The smoothed round-trip time.
    pub rtt_ms: f64,
}

#[derive(Debug)]
struct Table {
    file: &'static str,
    csv: Csv,
}

const SEQUENCE: (&str, &[&str]) = (
    Sequence::FILE,
    &[
        "t_s",
        "flow",
        "kind",
        "position_bytes",
        "acked_bytes",
        "window_bytes",
        "threshold_bytes",
        "in_flight_bytes",
    ],
);
const WINDOW: (&str, &[&str]) =
    (Window::FILE, &["t_s", "flow", "end", "window_bytes", "in_flight_bytes", "rtt_ms", "threshold_bytes"]);
const GOODPUT: (&str, &[&str]) = (Delivered::FILE, &["t_s", "flow", "delivered_bytes"]);
const QUEUE: (&str, &[&str]) = (Queue::FILE, &["t_s", "link", "packets", "bytes", "sojourn_ms"]);
const LATENCY: (&str, &[&str]) = (Latency::FILE, &["t_s", "flow", "latency_ms", "deadline_ms"]);
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
const EXCHANGES: (&str, &[&str]) = (Exchange::FILE, &["t_s", "flow", "line"]);
const CHANGES: (&str, &[&str]) = (Change::FILE, &["t_s", "link", "change"]);

/// All tables: file and columns.
#[cfg(feature = "parquet")]
pub(crate) const TABLES: [(&str, &[&str]); 8] =
    [SEQUENCE, WINDOW, GOODPUT, QUEUE, LATENCY, TCP_PROBE, EXCHANGES, CHANGES];

impl Samples {
    fn table(&mut self, (file, header): (&'static str, &[&str])) -> &mut Csv {
        let found = self.tables.iter().position(|table| table.file == file);
        let index = found.unwrap_or_else(|| {
            self.tables.push(Table { file, csv: Csv::new(header) });
            self.tables.len() - 1
        });
        &mut self.tables[index].csv
    }

    /// A sample of an end (`client` or `server`) of a flow, on a clock on which the run began at
    /// `origin_ns`.
    pub fn add(&mut self, flow: &str, end: &str, sample: &Sample, origin_ns: u64) {
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
            Sample::Status { at_ns, window_bytes, threshold_bytes, in_flight_bytes, rtt } => {
                let csv = self.table(WINDOW);
                csv.number(t_s(*at_ns));
                csv.text(flow);
                csv.text(end);
                csv.optional(window_bytes.map(|bytes| bytes as f64));
                csv.optional(in_flight_bytes.map(|bytes| bytes as f64));
                csv.optional(rtt.map(|rtt| rtt.as_secs_f64() * 1e3));
                csv.optional(threshold_bytes.map(|bytes| bytes as f64));
                csv.end_line();
            }
            // Of the end that connects, as its positions are the data's.
            Sample::Packet { at_ns, what, data, .. } => {
                if let (Some((_, position)), CLIENT) = (data, end) {
                    let kind = match what {
                        PacketEvent::Sent => "sent",
                        PacketEvent::Repeated => "repeated",
                        PacketEvent::Acked => ACKED,
                        PacketEvent::Lost | PacketEvent::Received => return,
                    };
                    self.add_sequence(flow, t_s(*at_ns), kind, *position, &Status::default());
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

    /// A packet's position in the stream: kind is `sent`, `repeated` or `acked`. With it goes the
    /// highest position that was acknowledged by then, and what is known of the sender's state.
    pub fn add_sequence(&mut self, flow: &str, t_s: f64, kind: &str, position_bytes: u64, state: &Status) {
        if kind == ACKED {
            let highest = self.acked.entry(flow.to_owned()).or_default();
            *highest = position_bytes.max(*highest);
        }
        let acked = self.acked.get(flow).copied();
        let csv = self.table(SEQUENCE);
        csv.number(t_s);
        csv.text(flow);
        csv.text(kind);
        csv.text(&position_bytes.to_string());
        for bytes in [acked, state.window_bytes, state.threshold_bytes, state.in_flight_bytes] {
            csv.optional(bytes.map(|bytes| bytes as f64));
        }
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
    pub fn add_tcp_state(&mut self, flow: &str, end: &str, t_s: f64, state: &TcpState) {
        let csv = self.table(TCP_PROBE);
        csv.number(t_s);
        csv.text(flow);
        csv.text(end);
        for count in [state.data_bytes, state.next, state.unacknowledged, state.window_segments] {
            csv.text(&count.to_string());
        }
        csv.optional(state.threshold_segments.map(f64::from));
        csv.text(&state.send_window_bytes.to_string());
        csv.text(&state.receive_window_bytes.to_string());
        csv.number(state.rtt_ms);
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

/// A line of a table of samples, to be read.
pub trait SampleRow: DeserializeOwned {
    /// The file.
    const FILE: &'static str;
    /// The columns that it must have.
    const COLUMNS: &'static [&'static str];
}

macro_rules! sample_row {
    ($($(#[$doc:meta])* $name:ident: $file:literal [$($column:literal),*] {
        $($(#[$field_meta:meta])* $field:ident: $ty:ty),* $(,)?
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Deserialize)]
            pub struct $name {
                $($(#[$field_meta])* pub $field: $ty),*
            }

            impl SampleRow for $name {
                const FILE: &'static str = $file;
                const COLUMNS: &'static [&'static str] = &[$($column),*];
            }
        )*
    };
}

sample_row! {
    /// A packet's position in the stream.
    Sequence: "sequence.csv" ["t_s", "flow", "kind", "position_bytes"] {
        /// When, in seconds since the run began.
        t_s: f64,
        /// Of which flow.
        flow: String,
        /// `sent`, `repeated` or `acked`.
        kind: String,
        /// Its first byte.
        position_bytes: f64,
        /// The highest position that was acknowledged by then.
        #[serde(default)]
        acked_bytes: Option<f64>,
        /// The congestion window then.
        #[serde(default)]
        window_bytes: Option<f64>,
        /// The slow-start threshold then.
        #[serde(default)]
        threshold_bytes: Option<f64>,
        /// Bytes in flight then.
        #[serde(default)]
        in_flight_bytes: Option<f64>,
    }
    /// State of an end's sending: its window, and its bytes in flight.
    Window: "window.csv" ["t_s", "flow", "window_bytes", "in_flight_bytes", "rtt_ms"] {
        /// When, in seconds since the run began.
        t_s: f64,
        /// Of which flow.
        flow: String,
        /// `client` or `server`; directories of before it was written have none.
        #[serde(default)]
        end: String,
        /// The congestion window.
        window_bytes: Option<f64>,
        /// Bytes in flight.
        in_flight_bytes: Option<f64>,
        /// The smoothed round-trip time.
        rtt_ms: Option<f64>,
        /// The slow-start threshold.
        #[serde(default)]
        threshold_bytes: Option<f64>,
    }
    /// Bytes that have arrived so far.
    Delivered: "goodput.csv" ["t_s", "flow", "delivered_bytes"] {
        /// When, in seconds since the run began.
        t_s: f64,
        /// Of which flow.
        flow: String,
        /// All of it.
        delivered_bytes: f64,
    }
    /// A queue, and for how long the packet that leaves it then was in it.
    Queue: "queue.csv" ["t_s", "link", "packets", "bytes", "sojourn_ms"] {
        /// When, in seconds since the run began.
        t_s: f64,
        /// Of which link.
        link: String,
        /// Packets in it.
        packets: Option<f64>,
        /// Bytes in it.
        bytes: Option<f64>,
        /// Time that this packet was in the queue.
        sojourn_ms: Option<f64>,
    }
    /// A message, a request or a keystroke.
    Latency: "latency.csv" ["t_s", "flow", "latency_ms", "deadline_ms"] {
        /// When it was sent, in seconds since the run began.
        t_s: f64,
        /// Of which flow.
        flow: String,
        /// Time that it took; `None` if it was lost.
        latency_ms: Option<f64>,
        /// Time that it may take.
        deadline_ms: Option<f64>,
    }
    /// Report of UTS on an exchange of mechanisms.
    Exchange: "exchanges.csv" ["t_s", "line"] {
        /// When, in seconds since the run began.
        t_s: f64,
        /// Of which flow.
        flow: String,
        /// In words.
        line: String,
    }
    /// A change of a path.
    Change: "changes.csv" ["t_s", "change"] {
        /// When, in seconds since the run began.
        t_s: f64,
        /// Of which link.
        link: String,
        /// Settings, as `loss=0 rate=20mbit`.
        change: String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table as Read;
    use core::time::Duration;

    fn rows<T: SampleRow>(dir: &Path) -> Vec<T> {
        Read::open(&dir.join(T::FILE), T::FILE).and_then(|table| table.rows(T::COLUMNS)).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let mut samples = Samples::default();
        let at_ns = 2_500_000_000;
        let flow = || "f".to_owned();
        samples.add("f", CLIENT, &Sample::Delivered { at_ns, bytes: 9 }, 1_000_000_000);
        let ms = Duration::from_millis;
        samples.add("f", CLIENT, &Sample::Latency { at_ns, took: Some(ms(20)), deadline: None }, 0);
        let status = Sample::Status {
            at_ns,
            window_bytes: Some(3000),
            threshold_bytes: Some(1500),
            in_flight_bytes: None,
            rtt: Some(ms(40)),
        };
        samples.add("f", "server", &status, 0);
        samples.add("f", "server", &Sample::Exchange { at_ns, line: "fec: none -> xor, \"k\"".into() }, 0);
        let state = Status { window_bytes: Some(2880), in_flight_bytes: Some(720), ..Status::default() };
        samples.add_sequence("f", 0.5, "acked", 1440, &state);
        samples.add_sequence("f", 0.5, "acked", 720, &Status::default());
        samples.add_sequence("g", 0.5, "sent", 720, &Status::default());
        samples.add_queue("wan forward", 0.25, 3, 4500, Some(1.5));
        samples.add_change("wan both", 0.75, "loss=ge:0.05,4");
        let dir = tempfile::tempdir().unwrap();
        samples.write(dir.path()).unwrap();
        let dir = dir.path();
        assert_eq!(rows::<Delivered>(dir), [Delivered { t_s: 1.5, flow: flow(), delivered_bytes: 9.0 }]);
        let latency = Latency { t_s: 2.5, flow: flow(), latency_ms: Some(20.0), deadline_ms: None };
        assert_eq!(rows::<Latency>(dir), [latency]);
        let window = Window {
            t_s: 2.5,
            flow: flow(),
            end: "server".into(),
            window_bytes: Some(3000.0),
            in_flight_bytes: None,
            rtt_ms: Some(40.0),
            threshold_bytes: Some(1500.0),
        };
        assert_eq!(rows::<Window>(dir), [window]);
        assert_eq!(rows::<Exchange>(dir)[0].line, "fec: none -> xor, \"k\"");
        let sequence = Sequence {
            t_s: 0.5,
            flow: flow(),
            kind: "acked".into(),
            position_bytes: 1440.0,
            acked_bytes: Some(1440.0),
            window_bytes: Some(2880.0),
            threshold_bytes: None,
            in_flight_bytes: Some(720.0),
        };
        let unknown = Sequence { window_bytes: None, in_flight_bytes: None, ..sequence.clone() };
        // The second comes later, and is of a lower position.
        let second = Sequence { position_bytes: 720.0, ..unknown.clone() };
        let of_another =
            Sequence { flow: "g".into(), kind: "sent".into(), acked_bytes: None, ..second.clone() };
        assert_eq!(rows::<Sequence>(dir), [sequence, second, of_another]);
        assert_eq!(rows::<Queue>(dir)[0].sojourn_ms, Some(1.5));
        assert_eq!(rows::<Change>(dir)[0].change, "loss=ge:0.05,4");
        assert!(!dir.join("tcp_probe.csv").exists(), "a table that stays empty makes no file");
    }
}
