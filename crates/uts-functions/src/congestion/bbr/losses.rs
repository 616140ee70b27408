//! Losses as BBR reads them: per round trip, against its threshold, with enough of them to tell
//! chance from a full queue.

use crate::congestion::{Loss, RateSample};
use crate::time::Rate;

/// Losses, marks and deliveries of the loss round under way ("When not Probing for Bandwidth").
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossRound {
    /// The round ends with a packet sent after this much was delivered.
    end_delivered: u64,
    start_delivered: u64,
    lost_bytes: u64,
    ranges: u32,
    last_lost: Option<u64>,
    marked: bool,
    /// A loss or mark was met in the round.
    pub hurt: bool,
    /// Largest delivery rate of the last round trip.
    pub bw_latest: Rate,
    /// Largest volume delivered over a round trip.
    pub inflight_latest: u64,
}

/// Losses and marks of a loss round that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    /// Packets were lost or marked in the round.
    pub hurt: bool,
    /// Bytes lost, and bytes lost or delivered.
    pub lost_bytes: u64,
    /// See `lost_bytes`.
    pub total_bytes: u64,
    /// Separate ranges of packets among the lost.
    pub ranges: u32,
    /// The network marked packets.
    pub marked: bool,
}

impl LossRound {
    /// `ResetCongestionSignals`.
    pub fn reset_signals(&mut self) {
        self.hurt = false;
        self.marked = false;
        self.bw_latest = Rate::default();
        self.inflight_latest = 0;
    }

    /// Nothing was lost after all.
    pub fn forgive(&mut self) {
        self.hurt = false;
        self.lost_bytes = 0;
        self.ranges = 0;
    }

    /// `NoteLoss`: the first loss makes a round of its own. True if it is the first.
    pub fn note(&mut self, delivered: u64) -> bool {
        let first = !self.hurt;
        if first {
            self.begin(delivered);
        }
        self.hurt = true;
        first
    }

    /// Counts packets declared lost.
    pub fn count(&mut self, loss: &Loss) {
        self.lost_bytes = self.lost_bytes.saturating_add(loss.bytes);
        // Several ranges lost at one instant count as one: too few, never too many.
        let lowest = loss.largest.saturating_sub(loss.packets.saturating_sub(1));
        if self.last_lost.is_none_or(|last| lowest > last.saturating_add(1)) {
            self.ranges += 1;
        }
        self.last_lost = self.last_lost.max(Some(loss.largest));
    }

    /// The network marked packets.
    pub fn mark(&mut self) {
        self.marked = true;
    }

    /// `UpdateLatestDeliverySignals`; a verdict where a round ends.
    pub fn on_ack(&mut self, sample: &RateSample, delivered: u64) -> Option<Verdict> {
        self.bw_latest = self.bw_latest.max(sample.rate);
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
        if sample.prior_delivered < self.end_delivered {
            return None;
        }
        let verdict = Verdict {
            hurt: self.hurt,
            lost_bytes: self.lost_bytes,
            total_bytes: self.lost_bytes.saturating_add(delivered.saturating_sub(self.start_delivered)),
            ranges: self.ranges,
            marked: self.marked,
        };
        self.hurt = false;
        self.marked = false;
        self.begin(delivered);
        Some(verdict)
    }

    /// `AdvanceLatestDeliverySignals`, at the end of an acknowledgement that ended a round.
    pub fn advance(&mut self, sample: &RateSample) {
        self.bw_latest = sample.rate;
        self.inflight_latest = sample.delivered;
    }

    fn begin(&mut self, delivered: u64) {
        self.end_delivered = delivered;
        self.start_delivered = delivered;
        self.lost_bytes = 0;
        self.ranges = 0;
    }
}

/// The loss rate that counts as too high, and the evidence that it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct LossThreshold {
    share: f64,
}

impl LossThreshold {
    /// `BBR.LossThresh`, in thousandths.
    pub fn per_mille(value: u32) -> Self {
        LossThreshold { share: f64::from(value.clamp(1, 999)) / 1000.0 }
    }

    /// Number of losses among `packets` before the threshold is exceeded beyond chance (C-33): two
    /// standard deviations above the mean at the threshold itself, and one less than the least
    /// number of losses that tell anything.
    pub fn allowance(self, packets: f64) -> f64 {
        let mean = self.share * packets;
        (mean + 2.0 * mean.sqrt()).max(LOSSES_MIN - 1.0)
    }

    /// True if `lost` of `total` bytes show a loss rate above the threshold.
    pub fn exceeded(self, lost: u64, total: u64, packet_bytes: u64) -> bool {
        let packet = packet_bytes.max(1) as f64;
        lost as f64 / packet > self.allowance(total as f64 / packet)
    }

    /// `InflightAtLoss`: how much was in flight where losses crossed the threshold, given what was
    /// in flight when the last of them was sent, what was lost since, and the size of this loss.
    pub fn inflight_at(self, tx_in_flight: u64, lost: u64, size: u64) -> u64 {
        let before = tx_in_flight.saturating_sub(size) as f64;
        let lost_before = lost.saturating_sub(size) as f64;
        let prefix = (self.share * before - lost_before) / (1.0 - self.share);
        (before + prefix).max(0.0) as u64
    }
}

/// Fewer losses than these tell nothing of the rate: `BBRStartupFullLossCnt`, used for every
/// judgement.
pub(super) const LOSSES_MIN: f64 = 6.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_losses_in_a_small_window_are_chance() {
        let two_percent = LossThreshold::per_mille(20);
        assert!(!two_percent.exceeded(5 * 1200, 50 * 1200, 1200));
        assert!(two_percent.exceeded(6 * 1200, 50 * 1200, 1200));
        assert!(!two_percent.exceeded(8 * 1200, 208 * 1200, 1200));
        assert!(two_percent.exceeded(9 * 1200, 208 * 1200, 1200));
        // Over many packets the evidence is close to the threshold itself.
        assert!(two_percent.exceeded(2_300, 100_000, 1));
        assert!(!two_percent.exceeded(1_900, 100_000, 1));
    }

    #[test]
    fn a_raised_threshold_is_respected() {
        let raised = LossThreshold::per_mille(200);
        assert!(!raised.exceeded(31 * 1200, 208 * 1200, 1200));
        assert!(raised.exceeded(60 * 1200, 208 * 1200, 1200));
    }

    #[test]
    fn inflight_at_loss_solves_for_the_prefix() {
        let threshold = LossThreshold::per_mille(20);
        // Nothing lost before a burst of 100 of 1100 packets: 2 % is crossed 20.4 packets into it.
        assert_eq!(threshold.inflight_at(1_100_000, 100_000, 100_000), 1_020_408);
    }
}
