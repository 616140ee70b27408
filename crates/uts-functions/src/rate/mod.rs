//! Rate control: spacing of packets. Congestion control (or the application) says the rate, this function keeps it.

use crate::registry;
use crate::time::{Rate, Time};
use core::time::Duration;
use enum_dispatch::enum_dispatch;

pub mod none;
pub mod pacing_bucket;

/// What the rate is kept from.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The rate to keep; `None` = as fast as the window allows.
    pub rate: Option<Rate>,
    /// Bytes in a full packet.
    pub packet_bytes: u64,
    /// Bytes that may leave in one burst, if congestion control says.
    pub burst_bytes: Option<u64>,
}

/// The state of the function: what has been sent ahead of the rate. Outlives mechanisms, so that an exchange neither
/// grants a second burst nor stalls.
#[derive(Clone, Debug, Default)]
pub struct Bucket {
    /// Bytes that may leave now (may be negative: sent ahead).
    pub tokens: i64,
    /// When tokens were last added.
    pub filled_at: Time,
    /// Billionths of a byte earned beyond `tokens`.
    fraction: u32,
    /// Whether the first burst was granted.
    started: bool,
    /// Until when the sender was last told to wait.
    promised: Option<Time>,
}

/// Billionths in one.
const BILLION: u128 = 1_000_000_000;

impl Bucket {
    /// Adds what was earned at `rate` since the last time, up to `burst_bytes`. A sender that was told to wait and comes
    /// late keeps what it earned since, for up to `late_max`; one that comes later than twice that was idle.
    fn fill(&mut self, now: Time, rate: Rate, burst_bytes: u64, late_max: Duration) {
        let burst = i64::try_from(burst_bytes).unwrap_or(i64::MAX);
        if !self.started {
            // rate.md R-3: a connection starts with a full burst.
            *self = Bucket { tokens: burst, filled_at: now, started: true, ..Bucket::default() };
            return;
        }
        let earned = u128::from(rate.bytes_per_sec()) * now.since(self.filled_at).as_nanos()
            + u128::from(self.fraction);
        let bytes = i64::try_from(earned / BILLION).unwrap_or(i64::MAX);
        self.fraction = (earned % BILLION) as u32;
        self.filled_at = self.filled_at.max(now);
        // rate.md R-5: lateness is made up for, idleness is not.
        let late = self.promised.map_or(Duration::ZERO, |at| now.since(at));
        let made_up = if late <= 2 * late_max { rate.bytes_in(late.min(late_max)) } else { 0 };
        let limit = burst.saturating_add(i64::try_from(made_up).unwrap_or(i64::MAX));
        self.tokens = self.tokens.saturating_add(bytes);
        if self.tokens >= limit {
            self.tokens = limit;
            self.fraction = 0;
        }
    }

    /// When there will be `target_bytes` at `rate`.
    fn full_at(&self, rate: Rate, target_bytes: u64) -> Time {
        if rate == Rate::default() {
            return Time::NEVER;
        }
        let missing = u128::try_from(i128::from(target_bytes) - i128::from(self.tokens)).unwrap_or(0);
        let nanos = (missing * BILLION)
            .saturating_sub(u128::from(self.fraction))
            .div_ceil(u128::from(rate.bytes_per_sec()));
        self.filled_at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Takes out what was sent.
    fn take(&mut self, bytes: u64) {
        self.tokens = self.tokens.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Grants nothing more than what is earned from `now` on; a debt is forgiven.
    fn empty(&mut self, now: Time) {
        *self = Bucket { tokens: 0, filled_at: now, started: true, ..Bucket::default() };
    }
}

/// A policy over [`Bucket`].
#[enum_dispatch]
pub trait RateControl {
    /// Until when to wait before the next packet; `None` = it may leave now.
    fn wait_until(&mut self, bucket: &mut Bucket, now: Time, pace: &Pace) -> Option<Time>;
    /// A packet of `bytes` left.
    fn on_sent(&mut self, bucket: &mut Bucket, now: Time, bytes: u64, pace: &Pace);
    /// Bytes that may leave at `now` in one batch (for segmentation offload); `u64::MAX` = no bound.
    fn batch_bytes(&self, bucket: &Bucket, pace: &Pace) -> u64;
}

registry! {
    /// The rate-control mechanism in use.
    #[derive(Clone, Debug)]
    Slot: RateControl, context: ();
    None => none::None,
    PacingBucket => pacing_bucket::PacingBucket,
}
