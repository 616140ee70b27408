//! Path facts: what an endpoint has learnt of the path that its packets take.

use crate::time::Rate;
use core::time::Duration;

/// What is known of a path in one direction. Everything is measured; a field nobody could measure
/// yet keeps its default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathFacts {
    /// Smallest round trip of the last while: the path without queues.
    pub rtt_min: Duration,
    /// Smoothed round trip.
    pub rtt_smoothed: Duration,
    /// Mean deviation of the round trip.
    pub rtt_deviation: Duration,
    /// What the path has been seen to deliver: the filtered maximum of delivery rate, in bytes of
    /// UDP payload per second.
    pub capacity: Rate,
    /// Share of packets lost (0..=1), over the last few hundred packets and a few round trips at
    /// least.
    pub loss: f64,
    /// Mean number of packets lost in a row.
    pub loss_burst: f64,
    /// Share of the losses (0..=1) that met a queue, so that congestion may have caused them.
    pub loss_congestive: f64,
    /// Largest UDP payload that the path carries, in bytes.
    pub mtu_bytes: u64,
    /// Packets that the figures above rest on; below a few hundred they mean little.
    pub samples: u64,
}

impl Default for PathFacts {
    fn default() -> Self {
        PathFacts {
            rtt_min: Duration::ZERO,
            rtt_smoothed: Duration::ZERO,
            rtt_deviation: Duration::ZERO,
            capacity: Rate::default(),
            loss: 0.0,
            loss_burst: 1.0,
            loss_congestive: 0.0,
            mtu_bytes: 1200,
            samples: 0,
        }
    }
}

/// Loss below this (0..=1) is left to retransmission, or borne (selection.md A-3).
pub const LOSS_MIN: f64 = 0.0005;

impl PathFacts {
    /// Mean time in queues: the smoothed round trip beyond the smallest.
    pub fn queueing(&self) -> Duration {
        self.rtt_smoothed.saturating_sub(self.rtt_min)
    }

    /// Share of packets lost without a queue (0..=1).
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

    /// How long a full packet takes at the path's capacity; zero while that is unknown.
    pub fn packet_time(&self) -> Duration {
        if self.capacity == Rate::default() { Duration::ZERO } else { self.capacity.time_for(self.mtu_bytes) }
    }
}
