//! The one place where the clock is read.

use core::time::Duration;
use uts_functions::Time;

/// Tells the time since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: imp::Instant,
    /// The begin of a network in virtual time, by whose clock this one goes.
    #[cfg(any(test, feature = "simulation"))]
    simulated: Option<tokio::time::Instant>,
}

impl Clock {
    pub fn start() -> Self {
        Clock {
            origin: imp::now(),
            #[cfg(any(test, feature = "simulation"))]
            simulated: crate::simulation::Network::current().map(|_| tokio::time::Instant::now()),
        }
    }

    pub fn now(&self) -> Time {
        #[cfg(any(test, feature = "simulation"))]
        if let Some(begin) = self.simulated {
            return Time::ZERO + begin.elapsed();
        }
        Time::from_nanos(imp::nanos_since(self.origin))
    }
}

/// By what the kernel measures how long a call may block: some milliseconds.
pub(crate) fn kernel_tick() -> Duration {
    #[cfg(target_os = "linux")]
    {
        use nix::time::{ClockId, clock_getres};
        clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).map_or(TICK_MAX, Duration::from).min(TICK_MAX)
    }
    #[cfg(not(target_os = "linux"))]
    TICK_MAX
}

/// The longest tick of a system that is in use.
const TICK_MAX: Duration = Duration::from_millis(10);

/// Clock of the standard library, without its arithmetic. A short round trip asks for the time
/// several times.
#[cfg(unix)]
mod imp {
    use core::time::Duration;
    use nix::time::{ClockId, clock_gettime};

    /// In nanoseconds: 584 years of them.
    pub type Instant = u64;

    /// A clock that goes on while the system is suspended: the peer's does. By one that stands
    /// still, a connection that the peer has long given up would look alive.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

    pub fn now() -> Instant {
        // Every system has this clock.
        clock_gettime(CLOCK).map_or(0, |now| Duration::from(now).as_nanos() as u64)
    }

    pub fn nanos_since(origin: Instant) -> u64 {
        now().saturating_sub(origin)
    }
}

#[cfg(not(unix))]
mod imp {
    pub use std::time::Instant;

    #[allow(
        clippy::disallowed_methods,
        reason = "this crate faces the world: it hands the time to the engine"
    )]
    pub fn now() -> Instant {
        Instant::now()
    }

    pub fn nanos_since(origin: Instant) -> u64 {
        u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
