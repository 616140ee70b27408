//! Data that a sender has outstanding of one flow, for mechanisms that look at that.

use crate::facts::PathFacts;
use crate::mechanism::{Facts, Prediction, Unasked};
use crate::time::Time;
use std::collections::VecDeque;

/// Packets that are counted at the most: no mechanism allows more.
pub const PACKETS_MAX: u32 = 4096;

/// Properties of mechanisms that look at what is outstanding.
pub(super) const LOOKS: Facts =
    Facts { positions: true, grants: true, windows: true, unasked: Unasked::Never, ..Facts::PLAIN };

/// Predicts for a flow of so many packets in each round trip: its use of the path, and the time
/// that it takes to look.
pub(super) fn one_in_a_round_trip(window: f64, facts: &PathFacts, p: &mut Prediction) {
    p.utilisation = p.utilisation.min(window / facts.bdp_packets().max(window));
    p.utilisation_low = p.utilisation_low.min(p.utilisation);
    p.cpu_ns += 10.0;
}

/// The state of the function at the sender of one flow. It is kept only while a mechanism looks at
/// it, and outlives those that do.
#[derive(Clone, Debug, Default)]
pub struct Sending {
    /// Where the data of each packet ends that is not acknowledged up to there, in order.
    ends: VecDeque<u64>,
    /// Packets sent since nothing was outstanding.
    in_group: u32,
    /// The largest part of the peer's window that was ever free.
    window_max: u64,
    /// It was held back for long enough: what waits goes.
    pub is_released: bool,
    /// When it will have been.
    pub release_at: Option<Time>,
}

/// A flow as its sender sees it.
#[derive(Clone, Copy, Debug)]
pub struct Outstanding {
    /// Everything below this position is acknowledged, or given up.
    pub done_to: u64,
    /// Everything below this position was sent.
    pub sent_to: u64,
    /// The application has handed over everything below this position.
    pub written_to: u64,
    /// Packets with data above `done_to`.
    pub packets: u32,
    /// Packets sent since nothing was outstanding.
    pub in_group: u32,
    /// Bytes of data in a full packet, about.
    pub packet_bytes: u64,
    /// The largest part of the peer's window that was ever free.
    pub window_max: u64,
}

/// Positions that may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Positions below this.
    To(u64),
    /// Nothing new, until something is acknowledged, the peer grants more, or a time-out is over
    /// since the last packet left.
    Hold,
}

impl Sending {
    /// Everything below this position is acknowledged, or given up.
    pub fn on_done(&mut self, done_to: u64) {
        while self.ends.front().is_some_and(|end| *end <= done_to) {
            self.ends.pop_front();
        }
        if self.ends.is_empty() {
            self.in_group = 0;
        }
    }

    /// A packet left with data that was not sent before, up to this position.
    pub fn on_sent(&mut self, end: u64) {
        self.is_released = false;
        self.release_at = None;
        self.in_group = self.in_group.saturating_add(1);
        if self.ends.len() < PACKETS_MAX as usize {
            self.ends.push_back(end);
        }
    }

    /// Outstanding data of a flow that may send up to `limit`.
    pub fn outstanding(&mut self, limit: u64, flow: Outstanding) -> Outstanding {
        self.on_done(flow.done_to);
        self.window_max = self.window_max.max(limit.saturating_sub(flow.sent_to));
        let packets = self.ends.len() as u32;
        Outstanding { packets, in_group: self.in_group, window_max: self.window_max, ..flow }
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.ends.capacity() * size_of::<u64>()
    }
}

impl Outstanding {
    /// Nothing new may be sent.
    pub(super) const fn nothing_new(&self) -> Allowed {
        Allowed::To(self.sent_to)
    }

    /// True if new data fills no packet, and something is outstanding (J. Nagle, RFC 896).
    pub(super) const fn is_small(&self) -> bool {
        self.sent_to > self.done_to && self.written_to.saturating_sub(self.sent_to) < self.packet_bytes
    }
}
