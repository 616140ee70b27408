//! What a run yields: figures, and samples for pictures.

use core::time::Duration;
use serde::{Deserialize, Serialize};

/// One figure of a run, in the application's terms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// What it is, as `goodput`, `completion`, `request_p99`, `in_time`.
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
    /// So many bytes of the application have arrived by then.
    Delivered {
        /// When.
        at_ns: u64,
        /// How many since the start.
        bytes: u64,
    },
    /// A message, request or keystroke: when it was due to leave, and how long it took, `None` if it never arrived.
    Latency {
        /// When it left, or should have left.
        at_ns: u64,
        /// How long it took to arrive, or to be answered.
        took: Option<Duration>,
        /// Within which time it was of use.
        deadline: Option<Duration>,
    },
    /// What the transport told of itself.
    Status {
        /// When.
        at_ns: u64,
        /// Congestion window in bytes.
        window_bytes: Option<u64>,
        /// Sent and not acknowledged, in bytes.
        in_flight_bytes: Option<u64>,
        /// Smoothed round-trip time.
        rtt: Option<Duration>,
    },
    /// The transport changed its protocol.
    Exchange {
        /// When.
        at_ns: u64,
        /// What it saw, what it changed, what it expects, in one line.
        line: String,
    },
}
