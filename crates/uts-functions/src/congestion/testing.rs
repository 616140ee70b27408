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
    /// Duration of round trips.
    pub rtt: Duration,
}

impl<M: Congestion> Script<M> {
    pub fn new(mechanism: M) -> Self {
        let now = Time::from_millis(1000);
        Script { mechanism, delivery: Delivery::new(Time::ZERO), now, rtt: RTT }
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
        for i in 0..packets {
            self.now = start + self.rtt.mul_f64((i + 1) as f64 / packets as f64);
            let sent_at = self.now - self.rtt;
            // What left since the round began is the next.
            self.acknowledge_all(PACKET, sent_at, start.as_nanos() + 1, u64::from(i < marked));
        }
    }

    /// A packet that was sent at `sent_at` is acknowledged. Its number is that instant, so that
    /// packets are numbered in the order in which they leave.
    pub fn acknowledge(&mut self, sent_at: Time, ecn_marked: u64) {
        self.acknowledge_all(PACKET, sent_at, self.now.as_nanos(), ecn_marked);
    }

    /// So many bytes are acknowledged at once, of packets that left a round trip ago.
    pub fn acknowledge_bytes(&mut self, bytes: u64) {
        self.acknowledge_all(bytes, self.now - self.rtt, self.now.as_nanos(), 0);
    }

    fn acknowledge_all(&mut self, bytes: u64, sent_at: Time, next_packet: u64, ecn_marked: u64) {
        let ack = Ack {
            now: self.now,
            bytes,
            largest: sent_at.as_nanos(),
            sent_at,
            rtt: Some(self.rtt),
            rtt_smoothed: self.rtt,
            rtt_min: RTT,
            prior_in_flight: self.mechanism.window_bytes(),
            sample: RateSample::default(),
            ecn_marked,
            next_packet,
        };
        self.mechanism.on_ack(&ack, &self.delivery);
    }

    /// Nothing is acknowledged for a time-out, after which nothing counts as lost.
    pub fn time_out(&mut self, in_a_row: u32) {
        let (now, next_packet, is_loss) = (self.now, self.now.as_nanos(), false);
        let timeout = Timeout { now, is_loss, in_a_row, next_packet };
        self.mechanism.on_timeout(&timeout, &self.delivery);
    }

    /// Nothing is acknowledged for a time-out, after which everything in flight counts as lost.
    pub fn lose_by_time_out(&mut self, in_a_row: u32) {
        let (now, next_packet, is_loss) = (self.now, self.now.as_nanos() + 1, true);
        let timeout = Timeout { now, is_loss, in_a_row, next_packet };
        self.mechanism.on_timeout(&timeout, &self.delivery);
    }

    /// Loses `packets` packets, the last of them sent at `sent_at`.
    pub fn lose(&mut self, packets: u64, sent_at: Time, persistent: bool) {
        self.lose_by(Cause::Overtaken, packets, sent_at, persistent);
    }

    /// The same, found in a way of its own.
    pub fn lose_by(&mut self, cause: Cause, packets: u64, sent_at: Time, persistent: bool) {
        let loss = Loss {
            now: self.now,
            bytes: packets * PACKET,
            packets,
            cause,
            largest: sent_at.as_nanos(),
            sent_at,
            snapshot: Snapshot { sent_at, ..Snapshot::default() },
            persistent,
            // What left at this very instant left before.
            next_packet: self.now.as_nanos() + 1,
        };
        self.mechanism.on_loss(&loss, &self.delivery);
    }
}
