//! Common parts of the mechanisms that steer by a window: where to start, recovery, and when growth
//! is earned.

use super::learnt::bdp_bytes;
use super::{Ack, Context};

/// The smallest window, in packets, unless a mechanism says otherwise, and the smallest threshold
/// (C-3, RFC 9002 section 7.2).
pub(super) const MIN_PACKETS: u64 = 2;

/// The window and threshold, in bytes, that a mechanism built from `context` starts with, whose
/// smallest window is of `packets_min` packets (C-5).
pub(super) fn start(context: &Context, packets_min: u64) -> (u64, u64) {
    let floor = packets_min * context.packet_bytes.max(1);
    let summary = &context.summary;
    if summary.threshold_bytes == u64::MAX {
        // What was delivered in a round trip has been in flight before: no need to search for it
        // again.
        let known = bdp_bytes(summary).unwrap_or(0);
        return (summary.window_bytes.max(known).clamp(floor, WINDOW_MAX_BYTES), u64::MAX);
    }
    let window = summary.window_bytes.clamp(floor, WINDOW_MAX_BYTES);
    let threshold_min = MIN_PACKETS * context.packet_bytes.max(1);
    (window, summary.threshold_bytes.clamp(threshold_min, WINDOW_MAX_BYTES))
}

/// The recovery period: one reduction per round trip. Packets that left before it are told by their
/// numbers from those that left in it, also where a repeat leaves at the very instant at which it
/// begins (RFC 9002 section 7.3.2).
#[derive(Clone, Debug, Default)]
pub(super) struct Recovery {
    /// Packets below this number left before the last period began; 0 = there was none.
    below: u64,
    /// Packets that arrive below this number do not end it: further losses of the flight were
    /// found.
    until: u64,
    /// No packet that left in it is known to have arrived.
    is_under_way: bool,
    /// No more is in flight than this can count.
    lost_bytes: u32,
}

impl Recovery {
    /// A period that a predecessor has entered, if it has (C-52).
    pub fn of(below: Option<u64>) -> Self {
        Recovery { below: below.unwrap_or(0), until: below.unwrap_or(0), ..Recovery::default() }
    }

    /// Packets below this number left before the last period began.
    pub fn below(&self) -> Option<u64> {
        (self.below > 0).then_some(self.below)
    }

    /// True if the packet of this number left before the last period began: its fate has been
    /// answered already.
    pub fn covers(&self, number: u64) -> bool {
        number < self.below
    }

    /// A new period begins, with the packet of this number.
    pub fn enter(&mut self, next_packet: u64) {
        *self = Recovery { lost_bytes: 0, ..*self };
        self.renew(next_packet);
    }

    /// The period goes on in a new one: what was lost in it counts in both.
    pub fn renew(&mut self, next_packet: u64) {
        *self = Recovery { below: next_packet, until: next_packet, is_under_way: true, ..*self };
    }

    /// A partial acknowledgement has shown a further loss of the flight, whose repeat is the next
    /// packet: the period lasts until that arrives (RFC 6582 section 3.2, step 3).
    pub fn extend(&mut self, next_packet: u64) {
        self.until = self.until.max(next_packet);
        self.is_under_way = true;
    }

    /// True if it goes on when the packet of this number has arrived.
    pub fn lasts(&self, number: u64) -> bool {
        number < self.until
    }

    /// A packet has arrived that left in the period, behind all that was found lost, which ends it.
    /// Says whether it was under way.
    pub fn end(&mut self) -> bool {
        core::mem::take(&mut self.is_under_way)
    }

    /// No period is under way any more, and none can be undone.
    pub fn leave(&mut self) {
        *self = Recovery::default();
    }

    /// Counts bytes lost in the period.
    pub fn count_lost(&mut self, bytes: u64) {
        self.lost_bytes = self.lost_bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Counts lost bytes that arrived after all. True once nothing of the period was lost, so that
    /// its reduction was unfounded (RFC 9438 section 4.9).
    pub fn all_spurious(&mut self, bytes: u64) -> bool {
        let had_losses = self.lost_bytes > 0;
        self.lost_bytes = self.lost_bytes.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
        had_losses && self.lost_bytes == 0
    }
}

/// Use of the window in the last two rounds. A sender that something else holds back (flow control,
/// the application) must not earn a window that it never tried (C-4, RFC 9002 section 7.8).
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    peaks: [u64; 2],
    round_end: u64,
}

impl Usage {
    /// Takes an acknowledgement into account.
    pub fn on_ack(&mut self, ack: &Ack) {
        if ack.largest >= self.round_end {
            self.round_end = ack.next_packet;
            self.peaks = [self.peaks[1], 0];
        }
        self.peaks[1] = self.peaks[1].max(ack.prior_in_flight);
    }

    /// True if a window of `window_bytes` may grow: at least half of it was in flight.
    pub fn earns_growth(&self, window_bytes: u64) -> bool {
        self.peaks[0].max(self.peaks[1]).saturating_mul(2) >= window_bytes
    }
}

/// The largest window, in bytes: more than any path holds, and small enough to compute with.
pub(super) const WINDOW_MAX_BYTES: u64 = 1 << 40;
