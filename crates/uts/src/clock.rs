//! The one place where the clock is read.

use std::time::Instant;
use uts_functions::Time;

/// Tells the time since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    #[allow(
        clippy::disallowed_methods,
        reason = "this crate faces the world: it hands the time to the engine"
    )]
    pub fn start() -> Self {
        Clock { origin: Instant::now() }
    }

    pub fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
