//! When to come back; and stops: an end that did not run for a while, as a process that was stopped
//! or a system that was suspended, holds nothing of that time against its peers (timing.md R-22).

use super::Endpoint;
use core::time::Duration;
use uts_functions::Time;

/// An end that comes so late to what is due was stopped. Busy systems are late by less, mostly. A
/// mistake costs a Ping of each client.
const STOPPED_MIN: Duration = Duration::from_secs(1);

impl Endpoint {
    /// When something is next due: when to call [`Endpoint::handle_timeout`]. `None` = never. To be
    /// asked once [`Endpoint::poll_transmit`] has nothing more.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        let due = self.agenda.next_due(&mut self.connections);
        // What is due may have come due earlier by what was learnt since.
        self.agenda.expected = due.map_or(Time::NEVER, |due| due.max(self.agenda.polled_at));
        due
    }

    /// Notices that this end was stopped, and tells its connections. Deadlines are settled.
    pub(super) fn notice_stop(&mut self, now: Time) {
        let late = now.since(core::mem::replace(&mut self.agenda.expected, Time::NEVER));
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
        self.agenda.settle(&mut self.connections);
    }
}
