//! Rate control: spacing of packets. Congestion control (or the application) says the rate, this function keeps it.

use crate::mechanism::Mechanism;
use crate::time::{Rate, Time};
use enum_dispatch::enum_dispatch;

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

/// The mechanisms of this function, in the order of their numbers.
pub static MECHANISMS: &[&Mechanism] = &[];
