//! Time as a workload sees it.

use crate::transport::Local;

/// A clock that can be waited for.
///
/// All ends of a run count from the same origin (the machine's monotonic clock, or the beginning of
/// virtual time). An instant written into a message therefore says how long it travelled.
pub trait Clock {
    /// Nanoseconds since the origin.
    fn now_ns(&self) -> u64;

    /// Waits until an instant; returns at once if it has passed.
    fn sleep_until(&self, at_ns: u64) -> Local<'static, ()>;
}
