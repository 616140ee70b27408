//! The parts of BBR's model of the path: round trips, bandwidth, smallest round trip, aggregation,
//! and whether the pipe is full. Section names are those of draft-ietf-ccwg-bbr.

use crate::congestion::RateSample;
use crate::time::{Rate, Time};
use core::time::Duration;

/// Maximum over the current slot of time and the one before it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TwoSlotMax<T> {
    previous: T,
    current: T,
}

impl<T: Ord + Copy + Default> TwoSlotMax<T> {
    /// Takes a value into the current slot.
    pub fn update(&mut self, value: T) {
        self.current = self.current.max(value);
    }

    /// Begins a slot; values older than the one that ends are forgotten.
    pub fn advance(&mut self) {
        *self = TwoSlotMax { previous: self.current, current: T::default() };
    }

    /// The maximum.
    pub fn get(&self) -> T {
        self.previous.max(self.current)
    }
}

/// Packet-timed round trips ("BBR.round_count: Tracking Packet-Timed Round Trips").
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    next_delivered: u64,
    /// Number of rounds that have passed.
    pub count: u64,
    /// The acknowledgement at hand began a round.
    pub started: bool,
}

impl Rounds {
    /// A round begins with what is sent from now on.
    pub fn start(&mut self, delivered: u64) {
        self.next_delivered = delivered;
    }

    /// `UpdateRound`.
    pub fn on_ack(&mut self, sample: &RateSample, delivered: u64) {
        self.started = sample.prior_delivered >= self.next_delivered;
        if self.started {
            self.start(delivered);
            self.count += 1;
        }
    }
}

/// The smallest round trip, and when it is due to be measured anew ("ProbeRTT Logic").
#[derive(Clone, Copy, Debug)]
pub(super) struct MinRtt {
    /// Smallest round trip of the last 10 s.
    pub value: Option<Duration>,
    at: Time,
    probe_value: Duration,
    probe_at: Time,
    /// No small round trip was seen for 5 s.
    pub expired: bool,
}

impl MinRtt {
    /// From what is known at `now`.
    pub fn new(known: Option<Duration>, now: Time) -> Self {
        MinRtt {
            value: known,
            at: now,
            probe_value: known.unwrap_or(Duration::MAX),
            probe_at: now,
            expired: false,
        }
    }

    /// `UpdateMinRTT`. `known` is the smallest round trip that timing knows.
    pub fn on_ack(&mut self, now: Time, rtt: Option<Duration>, known: Duration) {
        if self.value.is_some_and(|value| known > value + value / LONGER_DIVISOR) {
            // C-39: the path has become longer (timing.md R-17).
            (self.value, self.at, self.probe_value) = (Some(known), now, known);
            self.refresh(now);
        }
        self.expired = now > self.probe_at + PROBE_RTT_INTERVAL;
        if let Some(rtt) = rtt
            && (rtt < self.probe_value || self.expired)
        {
            self.probe_value = rtt;
            self.probe_at = now;
        }
        // C-37: a round trip as small as the smallest known, but for noise, is as good as a probe
        // for it.
        if let (Some(rtt), Some(value)) = (rtt, self.value)
            && rtt <= value.saturating_add(value / NOISE_DIVISOR)
        {
            self.at = now;
            self.refresh(now);
        }
        let outdated = now > self.at + MIN_RTT_FILTER;
        if self.probe_value != Duration::MAX && (outdated || self.value.is_none_or(|v| self.probe_value < v))
        {
            self.value = Some(self.probe_value);
            self.at = self.probe_at;
        }
    }

    /// The smallest round trip was just measured on purpose.
    pub fn refresh(&mut self, now: Time) {
        self.probe_at = now;
        self.expired = false;
    }
}

/// Data acknowledged beyond what the bandwidth explains ("BBR.extra_acked").
#[derive(Clone, Copy, Debug)]
pub(super) struct Aggregation {
    interval_start: Time,
    delivered: u64,
    filter: TwoSlotMax<u64>,
    slot_start: u64,
}

impl Aggregation {
    /// Nothing is known at `now`.
    pub fn new(now: Time) -> Self {
        Aggregation { interval_start: now, delivered: 0, filter: TwoSlotMax::default(), slot_start: 0 }
    }

    /// Sending begins again after idleness.
    pub fn restart(&mut self, now: Time) {
        self.interval_start = now;
        self.delivered = 0;
    }

    /// `UpdateACKAggregation`; slots last `slot_rounds`, half of the filter's length.
    pub fn on_ack(
        &mut self,
        now: Time,
        bytes: u64,
        bandwidth: Rate,
        window: u64,
        round: u64,
        slot_rounds: u64,
    ) {
        let mut expected = bandwidth.bytes_in(now.since(self.interval_start));
        if self.delivered <= expected {
            self.restart(now);
            expected = 0;
        }
        self.delivered = self.delivered.saturating_add(bytes);
        if round >= self.slot_start + slot_rounds {
            self.slot_start = round;
            self.filter.advance();
        }
        self.filter.update(self.delivered.saturating_sub(expected).min(window));
    }

    /// The volume, in bytes.
    pub fn extra(&self) -> u64 {
        self.filter.get()
    }
}

/// State of the search for the bandwidth at which sending faster brings no more ("Exiting
/// Acceleration Based on Bandwidth Plateau").
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    baseline: Rate,
    count: u32,
    /// The bandwidth is in full use, since the search last began.
    pub now: bool,
    /// The bandwidth was in full use at some time.
    pub reached: bool,
}

impl FullPipe {
    /// The search begins, from a `baseline` to be surpassed.
    pub fn reset(&mut self, baseline: Rate) {
        *self = FullPipe { baseline, count: 0, now: false, reached: self.reached };
    }

    /// `CheckFullBWReached`, for the sample that ended a round and was not limited by the
    /// application.
    pub fn on_round(&mut self, rate: Rate) {
        if self.now {
            return;
        }
        if rate >= self.baseline.mul_f64(1.25) {
            self.reset(rate);
            return;
        }
        self.count += 1;
        self.now = self.count >= 3;
        self.reached |= self.now;
    }
}

/// Part of the smallest round trip that counts as noise.
const NOISE_DIVISOR: u32 = 64;
/// A smallest round trip that exceeds the one known here by more than such a part is another
/// path's.
const LONGER_DIVISOR: u32 = 4;
/// `BBR.MinRTTFilterLen`.
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);
/// `BBR.ProbeRTTInterval`.
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn mbps(n: u64) -> Rate {
        Rate::from_bits_per_sec(n * 1_000_000)
    }

    #[test]
    fn a_maximum_lasts_for_its_slot_and_the_next() {
        let mut max = TwoSlotMax::default();
        max.update(7);
        max.advance();
        max.update(3);
        assert_eq!(max.get(), 7);
        max.advance();
        assert_eq!(max.get(), 3);
    }

    #[test]
    fn the_pipe_is_full_after_three_rounds_without_a_quarter_more() {
        let mut pipe = FullPipe::default();
        for rate in [10, 20, 40, 50, 51, 52] {
            pipe.on_round(mbps(rate));
            assert!(!pipe.now);
        }
        pipe.on_round(mbps(53));
        assert!(pipe.now && pipe.reached);
        pipe.reset(mbps(53));
        assert!(!pipe.now && pipe.reached);
    }

    #[test]
    fn a_longer_path_is_believed_after_ten_seconds() {
        let short = Duration::from_millis(20);
        let mut min = MinRtt::new(Some(short), Time::ZERO);
        for s in 1..=10 {
            min.on_ack(Time::from_millis(1000 * s), Some(Duration::from_millis(50)), short);
            assert_eq!(min.value, Some(Duration::from_millis(20)));
            assert_eq!(min.expired, s == 6, "second {s}");
        }
        min.on_ack(Time::from_millis(10_001), Some(Duration::from_millis(50)), short);
        assert_eq!(min.value, Some(Duration::from_millis(50)));
    }

    #[test]
    fn a_path_that_timing_knows_to_be_longer_is_believed_at_once() {
        let mut min = MinRtt::new(Some(Duration::from_millis(20)), Time::ZERO);
        let longer = Duration::from_millis(80);
        min.on_ack(Time::from_millis(500), Some(longer), longer);
        assert!(min.value == Some(longer) && !min.expired);
    }

    #[test]
    fn acknowledgements_in_lumps_are_seen_as_aggregation() {
        let mut aggregation = Aggregation::new(Time::ZERO);
        let bandwidth = Rate::from_bytes_per_sec(1_000_000);
        for ms in 1..=20 {
            aggregation.on_ack(Time::from_millis(ms), 1_000, bandwidth, 100_000, 0, 5);
        }
        assert!(aggregation.extra() <= 2_000, "{}", aggregation.extra());
        aggregation.on_ack(Time::from_millis(40), 20_000, bandwidth, 100_000, 1, 5);
        assert!(aggregation.extra() >= 19_000, "{}", aggregation.extra());
    }
}
