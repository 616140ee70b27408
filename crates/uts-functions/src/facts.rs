//! Path facts: what an endpoint has learnt of the path that its packets take.

use crate::time::Rate;
use core::fmt;
use core::time::Duration;

/// Figures of a path in one direction. Everything is measured; a field that was not measured yet
/// keeps its default.
///
/// ```
/// use std::time::Duration;
/// use uts_functions::{PathFacts, Rate};
///
/// let facts = PathFacts {
///     rtt_min: Duration::from_millis(40),
///     rtt_smoothed: Duration::from_millis(50),
///     capacity: Rate::from_bits_per_sec(20_000_000),
///     samples: 1000,
///     ..PathFacts::default()
/// };
/// assert_eq!(facts.queueing(), Duration::from_millis(10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathFacts {
    /// Smallest round trip of the last while: the path without queues.
    pub rtt_min: Duration,
    /// Smoothed round trip.
    pub rtt_smoothed: Duration,
    /// Mean deviation of the round trip.
    pub rtt_deviation: Duration,
    /// Rate that the path has been seen to deliver: the filtered maximum of delivery rate, in bytes
    /// of UDP payload per second.
    pub capacity: Rate,
    /// Share of packets lost (0..=1), over the last few hundred packets and a few round trips at
    /// least.
    pub loss: f64,
    /// Number of lost packets that this share rests on; zero if they were not counted.
    pub losses: u64,
    /// Mean number of packets lost in a row.
    pub loss_burst: f64,
    /// Share of the losses (0..=1) that congestion may have caused: until shown to be the medium's,
    /// all of those of a sender that takes what it can get (selection.md A-16).
    pub loss_congestive: f64,
    /// Largest UDP payload that the path carries, in bytes.
    pub mtu_bytes: u64,
    /// Packets that the figures above rest on; below a few hundred they mean little.
    pub samples: u64,
    /// Packets with data that the sender makes in a second, where the application has a rate of its
    /// own; zero while it sends as many as the path carries.
    pub packets_per_s: f64,
    /// Number of these packets that leave together, on average (at least one).
    pub packets_at_once: f64,
    /// Bytes of the application in each of them, on average; zero where they are full.
    pub payload_bytes: f64,
}

impl Default for PathFacts {
    fn default() -> Self {
        PathFacts {
            rtt_min: Duration::ZERO,
            rtt_smoothed: Duration::ZERO,
            rtt_deviation: Duration::ZERO,
            capacity: Rate::default(),
            loss: 0.0,
            losses: 0,
            loss_burst: 1.0,
            loss_congestive: 0.0,
            mtu_bytes: 1200,
            samples: 0,
            packets_per_s: 0.0,
            packets_at_once: 1.0,
            payload_bytes: 0.0,
        }
    }
}

/// In the form that `uts explain --path` reads: what is not known is left out.
impl fmt::Display for PathFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (us, percent) = (|span: Duration| span.as_micros(), |share: f64| share * 100.0);
        write!(f, "rtt={}us,queue={}us", us(self.rtt_min), us(self.queueing()))?;
        if self.capacity != Rate::default() {
            write!(f, ",rate={}bit/s", self.capacity.bits_per_sec())?;
        }
        write!(f, ",loss={:.3}%", percent(self.loss))?;
        if self.loss > 0.0 {
            write!(f, ",burst={:.1},congestive={:.0}%", self.loss_burst, percent(self.loss_congestive))?;
        }
        if self.packets_per_s > 0.0 {
            write!(f, ",packets={:.1},together={:.1}", self.packets_per_s, self.packets_at_once)?;
        }
        if self.payload_bytes > 0.0 {
            write!(f, ",payload={:.0}", self.payload_bytes)?;
        }
        write!(f, ",mtu={},samples={}", self.mtu_bytes, self.samples)
    }
}

/// Loss below this (0..=1) is left to retransmission, or borne (selection.md A-3).
pub const LOSS_MIN: f64 = 0.0005;

impl PathFacts {
    /// Mean time in queues: the smoothed round trip beyond the smallest.
    pub fn queueing(&self) -> Duration {
        self.rtt_smoothed.saturating_sub(self.rtt_min)
    }

    /// Share of packets that the medium loses (0..=1).
    pub fn loss_random(&self) -> f64 {
        self.loss * (1.0 - self.loss_congestive)
    }

    /// Bandwidth-delay product in bytes.
    pub fn bdp_bytes(&self) -> u64 {
        self.capacity.bytes_in(self.rtt_min)
    }

    /// Bandwidth-delay product in full packets.
    pub fn bdp_packets(&self) -> f64 {
        self.bdp_bytes() as f64 / self.mtu_bytes.max(1) as f64
    }

    /// Packets that leave within `wait` of the first of them, itself included; infinite while the
    /// sender makes as many as the path carries.
    pub fn packets_within(&self, wait: Duration) -> f64 {
        if self.packets_per_s <= 0.0 {
            return f64::INFINITY;
        }
        let together = self.packets_at_once.max(1.0);
        together * (1.0 + (wait.as_secs_f64() * self.packets_per_s / together).floor())
    }

    /// Time that it takes to make so many packets; zero while there are as many as the path
    /// carries.
    pub fn time_of_packets(&self, packets: f64) -> Duration {
        if self.packets_per_s <= 0.0 {
            return Duration::ZERO;
        }
        let behind = (packets - self.packets_at_once.max(1.0)).max(0.0);
        Duration::try_from_secs_f64(behind / self.packets_per_s).unwrap_or(Duration::MAX)
    }

    /// Packets with data in a round trip; infinite while there are as many as the path carries.
    pub fn packets_per_round(&self) -> f64 {
        let rtt_s = self.rtt_min.as_secs_f64();
        if self.packets_per_s <= 0.0 { f64::INFINITY } else { self.packets_per_s * rtt_s }
    }

    /// Time that a full packet takes at the path's capacity; zero while that is unknown.
    pub fn packet_time(&self) -> Duration {
        if self.capacity == Rate::default() { Duration::ZERO } else { self.capacity.time_for(self.mtu_bytes) }
    }
}
