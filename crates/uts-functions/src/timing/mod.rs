//! Round-trip timing: how samples of the round trip become time-outs.
//!
//! A packet number is never reused, so every sample names the transmission that it measures, repeats included (the Rx
//! paper's serial numbers, against Karn's rule). The function keeps the samples; a mechanism smooths them.

use crate::registry;
use crate::time::Time;
use core::time::Duration;
use enum_dispatch::enum_dispatch;

pub mod fixed;
pub mod jacobson;

/// The round trip assumed before the first sample (RFC 9002 section 6.2.2).
pub const INITIAL_RTT: Duration = Duration::from_millis(333);

/// Timers are no finer than this (RFC 9002 section 6.1.2).
pub const GRANULARITY: Duration = Duration::from_millis(1);

/// For how long a smallest round trip holds before newer samples may raise it (draft-ietf-ccwg-bbr: 10 s).
const RTT_MIN_WINDOW: Duration = Duration::from_secs(10);

/// The state of the function: what the round trip was, is, and how far it strays.
#[derive(Clone, Debug)]
pub struct RoundTrip {
    /// The last sample, without the peer's delay.
    pub latest: Duration,
    /// Smoothed round trip, as the mechanism sees it.
    pub smoothed: Duration,
    /// Mean deviation, as the mechanism sees it.
    pub deviation: Duration,
    /// Smallest sample of the last ten to twenty seconds.
    pub min: Duration,
    /// Samples so far.
    pub samples: u64,
    window_min: Duration,
    window_start: Time,
}

impl Default for RoundTrip {
    fn default() -> Self {
        RoundTrip {
            latest: Duration::ZERO,
            smoothed: INITIAL_RTT,
            deviation: INITIAL_RTT / 2,
            min: Duration::ZERO,
            samples: 0,
            window_min: Duration::MAX,
            window_start: Time::ZERO,
        }
    }
}

impl RoundTrip {
    /// Takes in a sample of one transmission: `raw` as measured, of which the peer says that it held back the
    /// acknowledgement for `ack_delay`. Returns the sample that mechanisms should use.
    pub fn on_sample(&mut self, now: Time, raw: Duration, ack_delay: Duration) -> Duration {
        if self.samples == 0 {
            self.min = raw;
            self.window_start = now;
        }
        self.samples += 1;
        self.min = self.min.min(raw);
        self.window_min = self.window_min.min(raw);
        if now.since(self.window_start) > RTT_MIN_WINDOW {
            self.min = self.window_min;
            self.window_min = raw;
            self.window_start = now;
        }
        // RFC 9002 section 5.3: the delay is taken off unless the sample would fall below the smallest.
        self.latest = if raw >= self.min + ack_delay { raw - ack_delay } else { raw };
        self.latest
    }

    /// Moves `smoothed` and `deviation` towards a sample that [`RoundTrip::on_sample`] has taken in, by an eighth and
    /// a quarter (RFC 6298 section 2, RFC 9002 section 5.3).
    fn smooth(&mut self, sample: Duration) {
        // timing.md R-3: the first sample replaces the assumption.
        if self.samples <= 1 {
            self.smoothed = sample;
            self.deviation = sample / 2;
            return;
        }
        // timing.md R-4: the deviation first, against the mean before this sample.
        let error = self.smoothed.abs_diff(sample);
        self.deviation = self.deviation - self.deviation / 4 + error / 4;
        self.smoothed = self.smoothed - self.smoothed / 8 + sample / 8;
    }
}

/// A policy over [`RoundTrip`].
#[enum_dispatch]
pub trait Timing {
    /// Updates `smoothed` and `deviation` for a sample that [`RoundTrip::on_sample`] has taken in.
    fn on_sample(&mut self, state: &mut RoundTrip, sample: Duration);
    /// After how long without acknowledgement to probe (before back-off, without the peer's ACK delay).
    fn timeout(&self, state: &RoundTrip) -> Duration;
    /// How long after a later packet was acknowledged an earlier one counts as lost (RFC 9002 section 6.1.2).
    fn loss_delay(&self, state: &RoundTrip) -> Duration;
}

registry! {
    /// The timing mechanism in use.
    #[derive(Clone, Debug)]
    Slot: Timing, context: ();
    Fixed => fixed::Fixed,
    Jacobson => jacobson::Jacobson,
}
