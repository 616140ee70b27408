//! Networks for tests inside the crate.

use super::{Network, Running};
use core::time::Duration;

/// A path that loses nothing.
pub const FAIR: &str = "delay=10ms";
/// Its delay.
pub const FAIR_DELAY: Duration = Duration::from_millis(10);

/// Begins a network, of paths that are said rightly.
pub fn begin(path: &str, seed: u64) -> Running {
    Network::begin(path, seed).unwrap_or_else(|error| panic!("{path}: {error}"))
}
