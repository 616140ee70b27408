//! Repetition of a message until it is answered.

use core::time::Duration;
use uts_functions::Time;

/// When a message is due next, and how often it was sent. `at` is `None` once it is given up or
/// done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Repeat {
    pub at: Option<Time>,
    tries: u8,
}

/// The outcome of a look at a repetition.
pub(super) enum Due {
    No,
    Send,
    GiveUp,
}

impl Repeat {
    /// The first sending, now.
    pub fn start(now: Time, pto: Duration) -> Self {
        Repeat { at: Some(now + pto), tries: 1 }
    }

    pub fn stopped() -> Self {
        Repeat { at: None, tries: 0 }
    }

    pub fn is_active(&self) -> bool {
        self.at.is_some()
    }

    /// Doubles the wait with each try, up to `tries_max` tries.
    pub fn fire(&mut self, now: Time, pto: Duration, tries_max: u8) -> Due {
        if self.at.is_none_or(|at| at > now) {
            return Due::No;
        }
        if self.tries >= tries_max {
            self.at = None;
            return Due::GiveUp;
        }
        let doubled = 1u32.checked_shl(u32::from(self.tries)).unwrap_or(u32::MAX);
        self.at = Some(now + pto.saturating_mul(doubled));
        self.tries += 1;
        Due::Send
    }
}
