//! A path that is known, for tests.

use core::time::Duration;
use uts_functions::{PathFacts, Rate};

/// Facts of a path of `mbit` Mbit/s and `rtt_ms`, without a queue.
pub(crate) fn path(mbit: u64, rtt_ms: u64, loss: f64, burst: f64, congestive: f64) -> PathFacts {
    PathFacts {
        rtt_min: Duration::from_millis(rtt_ms),
        rtt_smoothed: Duration::from_millis(rtt_ms),
        rtt_deviation: Duration::from_millis(1),
        capacity: Rate::from_bits_per_sec(mbit * 1_000_000),
        loss,
        loss_burst: burst,
        loss_congestive: congestive,
        mtu_bytes: 1400,
        samples: 5_000,
        ..PathFacts::default()
    }
}
