//! Events for the unit tests of mechanisms that steer by a window.

use super::{Ack, Cause, Congestion, Context, Delivery, Loss, RateSample, Snapshot, Summary, Timeout};
use crate::time::Time;
use core::time::Duration;

pub const PACKET: u64 = 1200;
pub const RTT: Duration = Duration::from_millis(50);

/// A context with this window and threshold at time zero.
pub fn context(window_packets: u64, threshold_bytes: u64) -> Context {
    let summary =
        Summary { window_bytes: window_packets * PACKET, threshold_bytes, ..Summary::initial(PACKET) };
    Context { now: Time::ZERO, packet_bytes: PACKET, summary, past: None, seed: 1 }
}

/// A mechanism whose window is always in full use, one packet per acknowledgement.
pub struct Script<M> {
    pub mechanism: M,
    pub delivery: Delivery,
    pub now: Time,
    /// What round trips take.
    pub rtt: Duration,
    next: u64,
}

impl<M: Congestion> Script<M> {
    pub fn new(mechanism: M) -> Self {
        let now = Time::from_millis(1000);
        Script { mechanism, delivery: Delivery::new(Time::ZERO), now, rtt: RTT, next: 0 }
    }

    /// The window in packets.
    pub fn packets(&self) -> f64 {
        self.mechanism.window_bytes() as f64 / PACKET as f64
    }

    /// A round trip in which a window is acknowledged that was sent a round trip before.
    pub fn round(&mut self) {
        self.marked_round(0);
    }

    /// The same; the first `marked` packets of the window carry marks.
    pub fn marked_round(&mut self, marked: u64) {
        let packets = self.mechanism.window_bytes() / PACKET;
        let start = self.now;
        self.next += packets;
        for i in 0..packets {
            self.now = start + self.rtt.mul_f64((i + 1) as f64 / packets as f64);
            self.acknowledge(self.next - packets + i, self.now - self.rtt, u64::from(i < marked));
        }
    }

    pub fn acknowledge(&mut self, largest: u64, sent_at: Time, ecn_marked: u64) {
        let ack = Ack {
            now: self.now,
            bytes: PACKET,
            largest,
            sent_at,
            rtt: Some(self.rtt),
            rtt_smoothed: self.rtt,
            rtt_min: RTT,
            prior_in_flight: self.mechanism.window_bytes(),
            sample: RateSample::default(),
            ecn_marked,
            next_packet: self.next,
        };
        self.mechanism.on_ack(&ack, &self.delivery);
    }

    /// Nothing is acknowledged for a time-out.
    pub fn time_out(&mut self, in_a_row: u32) {
        let timeout = Timeout { now: self.now, in_a_row, next_packet: self.next };
        self.mechanism.on_timeout(&timeout, &self.delivery);
    }

    /// Loses `packets` packets, the last of them sent at `sent_at`.
    pub fn lose(&mut self, packets: u64, sent_at: Time, persistent: bool) {
        let loss = Loss {
            now: self.now,
            bytes: packets * PACKET,
            packets,
            cause: Cause::Overtaken,
            largest: self.next,
            sent_at,
            snapshot: Snapshot { sent_at, ..Snapshot::default() },
            persistent,
            next_packet: self.next,
        };
        self.mechanism.on_loss(&loss, &self.delivery);
    }
}
