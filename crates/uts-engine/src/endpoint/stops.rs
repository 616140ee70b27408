//! Stops: an end that did not run for a while, as a process that was stopped or a system that was
//! suspended, holds nothing of that time against its peers (timing.md R-22).

use super::Endpoint;
use core::time::Duration;
use uts_functions::Time;

/// Who comes so late to what is due was stopped. Busy systems are late by less, mostly; what a
/// mistake costs is a Ping of each client.
const STOPPED_MIN: Duration = Duration::from_secs(1);

impl Endpoint {
    /// Notices that this end was stopped, and tells its connections. Deadlines are settled.
    pub(super) fn notice_stop(&mut self, now: Time) {
        let late = self.timers.first().map_or(Duration::ZERO, |(due, _)| now.since(*due));
        if late < STOPPED_MIN {
            return;
        }
        let handles: Vec<_> = self.connections.handles().collect();
        for handle in handles {
            if let Some(entry) = self.connections.get_mut(handle) {
                entry.connection.on_stopped(now, late);
            }
            self.touch(handle);
        }
        self.settle_deadlines();
    }
}
