//! Figures of a run, and samples for pictures.

use core::cell::RefCell;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// One figure of a run, in the application's terms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Name of the figure, as `goodput`, `completion`, `request_p99`, `in_time`.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit, as `bit/s`, `s`, `1`, `bytes`.
    pub unit: String,
}

impl Measure {
    /// A figure.
    pub fn new(name: impl Into<String>, value: f64, unit: impl Into<String>) -> Self {
        Measure { name: name.into(), value, unit: unit.into() }
    }
}

/// A point of a picture. Instants are nanoseconds since the clock's origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Sample {
    /// This many bytes of the application have arrived by then.
    Delivered {
        /// When.
        at_ns: u64,
        /// Bytes since the start.
        bytes: u64,
    },
    /// A message, request or keystroke: when it was due to leave, and how long it took. `None` if
    /// it never arrived.
    Latency {
        /// When it left, or should have left.
        at_ns: u64,
        /// Time that it took to arrive, or to be answered.
        took: Option<Duration>,
        /// Within which time it was of use.
        deadline: Option<Duration>,
    },
    /// Report of the transport on itself.
    Status {
        /// When.
        at_ns: u64,
        /// Congestion window in bytes.
        window_bytes: Option<u64>,
        /// Slow-start threshold in bytes.
        threshold_bytes: Option<u64>,
        /// Sent and not acknowledged, in bytes.
        in_flight_bytes: Option<u64>,
        /// Smoothed round-trip time.
        rtt: Option<Duration>,
    },
    /// Something happened to a packet of the transport's.
    Packet {
        /// When.
        at_ns: u64,
        /// Event of the packet.
        what: PacketEvent,
        /// The packet's number.
        number: u64,
        /// Its length when it was sent, that of its frames when it was received; otherwise 0.
        bytes: u64,
        /// Which protocol it was built under, when it was sent or received; otherwise 0.
        epoch: u32,
        /// The flow and the position of the first data in it, if it carried any.
        data: Option<(u32, u64)>,
    },
    /// The transport changed its protocol.
    Exchange {
        /// When.
        at_ns: u64,
        /// Change in a line: what it saw, what it changed, what it expects.
        line: String,
    },
}

/// Event of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketEvent {
    /// It was sent, with nothing that had been sent before.
    Sent,
    /// It was sent, and repeats data of a lost one.
    Repeated,
    /// It was acknowledged.
    Acked,
    /// It was declared lost.
    Lost,
    /// It is one of the peer's, and arrived.
    Received,
}

/// Takes the samples of a run as they come.
pub trait Observer {
    /// One more.
    fn sample(&self, sample: Sample);
}

/// Takes none.
impl Observer for () {
    fn sample(&self, _: Sample) {}
}

/// Keeps all.
impl Observer for RefCell<Vec<Sample>> {
    fn sample(&self, sample: Sample) {
        self.borrow_mut().push(sample);
    }
}

/// Spans of time of which exact quantiles are wanted.
#[derive(Debug, Default)]
pub(crate) struct Spans(Vec<u64>);

impl Spans {
    pub fn push(&mut self, ns: u64) {
        self.0.push(ns);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// `NAME_p50`, `NAME_p90`, `NAME_p99`, `NAME_max` and `NAME_mean` in milliseconds; nothing if
    /// there are no spans. A quantile is the smallest value that this share of all does not exceed
    /// (nearest rank).
    pub fn measures(mut self, name: &str) -> Vec<Measure> {
        self.0.sort_unstable();
        let (Some(last), count) = (self.0.last().copied(), self.0.len()) else { return Vec::new() };
        let at = |share: f64| {
            let rank = (share * count as f64).ceil() as usize;
            self.0.get(rank.saturating_sub(1)).copied().unwrap_or(last) as f64
        };
        let mean = self.0.iter().map(|ns| *ns as f64).sum::<f64>() / count as f64;
        [("p50", at(0.5)), ("p90", at(0.9)), ("p99", at(0.99)), ("max", last as f64), ("mean", mean)]
            .map(|(which, ns)| Measure::new(format!("{name}_{which}"), ns / 1e6, "ms"))
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact() {
        let mut spans = Spans::default();
        for ms in (1..=200).rev() {
            spans.push(ms * 1_000_000);
        }
        let measures = spans.measures("x");
        let values: Vec<(&str, f64)> = measures.iter().map(|m| (m.name.as_str(), m.value)).collect();
        let expected =
            [("x_p50", 100.0), ("x_p90", 180.0), ("x_p99", 198.0), ("x_max", 200.0), ("x_mean", 100.5)];
        assert_eq!(values, expected);
        let mut one = Spans::default();
        one.push(7_000_000);
        assert!(one.measures("y").iter().all(|m| m.value == 7.0 && m.unit == "ms"));
        assert!(Spans::default().measures("z").is_empty());
    }
}
