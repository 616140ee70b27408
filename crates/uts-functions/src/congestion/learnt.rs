//! Figures of the path that every mechanism notes on the side, so that its summary serves
//! successors of any kind.

use super::{Ack, Summary};
use crate::time::Rate;
use core::time::Duration;

/// Rounds per slot of the bandwidth filter: the maximum spans 8 to 16 round trips.
const SLOT_ROUNDS: u32 = 8;

/// Delivered bandwidth (maximum of the last rounds) and the smallest round trip (C-6).
#[derive(Clone, Debug)]
pub struct Learnt {
    slots: [Rate; 2],
    slot_rounds: u32,
    round_end: u64,
    rtt_min: Option<Duration>,
}

impl Learnt {
    /// From what the predecessor knew.
    pub fn new(summary: &Summary) -> Self {
        Learnt {
            slots: [summary.bandwidth.unwrap_or_default(), Rate::default()],
            slot_rounds: 0,
            round_end: 0,
            rtt_min: summary.rtt_min,
        }
    }

    /// Takes an acknowledgement into account.
    pub fn on_ack(&mut self, ack: &Ack) {
        if !ack.rtt_min.is_zero() {
            self.rtt_min = Some(ack.rtt_min);
        }
        if ack.largest >= self.round_end {
            self.round_end = ack.next_packet;
            self.slot_rounds += 1;
            // A slot without a sample (all of them were limited by the application) keeps its
            // predecessor.
            if self.slot_rounds > SLOT_ROUNDS && self.slots[1] > Rate::default() {
                self.slots = [self.slots[1], Rate::default()];
                self.slot_rounds = 0;
            }
        }
        let best = self.slots[0].max(self.slots[1]);
        if !ack.sample.app_limited || ack.sample.rate > best {
            self.slots[1] = self.slots[1].max(ack.sample.rate);
        }
    }

    /// The largest delivery rate of the last rounds.
    pub fn bandwidth(&self) -> Option<Rate> {
        Some(self.slots[0].max(self.slots[1])).filter(|rate| *rate > Rate::default())
    }

    /// The smallest round trip.
    pub fn rtt_min(&self) -> Option<Duration> {
        self.rtt_min
    }
}

/// Bytes of `bandwidth` times `rtt_min`, if a summary has both.
pub(super) fn bdp_bytes(summary: &Summary) -> Option<u64> {
    let bytes = summary.bandwidth?.bytes_in(summary.rtt_min?);
    Some(bytes).filter(|bytes| *bytes > 0)
}
