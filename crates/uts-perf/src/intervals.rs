//! Content that a connection carries from one interval of time to the next.

use crate::control::Way;
use std::time::Duration;
use uts::Connection;

/// Counts of a connection, at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    at: Duration,
    sent: u64,
    received: u64,
    repeated: u64,
}

impl Counts {
    fn now(connection: &Connection, at: Duration) -> Self {
        let stats = connection.stats();
        Counts {
            at,
            sent: stats.data_bytes_sent.saturating_sub(stats.bytes_repeated),
            received: stats.data_bytes_received.saturating_sub(stats.data_bytes_repeated),
            repeated: stats.chunks_repeated,
        }
    }
}

/// The intervals of a measurement, one after the other.
#[derive(Clone, Debug)]
pub struct Intervals(Counts);

/// Content of one interval, and the state at its end.
#[derive(Clone, Debug)]
pub struct Interval {
    from: Counts,
    to: Counts,
    /// The congestion window in bytes, if there is one.
    pub window_bytes: Option<u64>,
    /// The smoothed round trip.
    pub rtt: Duration,
}

impl Intervals {
    /// From now on.
    pub fn new(connection: &Connection) -> Self {
        Intervals(Counts::now(connection, Duration::ZERO))
    }

    /// The next interval, which ends so long after the first began.
    pub fn next(&mut self, connection: &Connection, at: Duration) -> Interval {
        let to = Counts::now(connection, at);
        let from = std::mem::replace(&mut self.0, to);
        let congestion = connection.inspect(|connection| connection.congestion()).flatten();
        // A profile without congestion control has no window.
        let window_bytes = congestion.map(|(_, bytes)| bytes).filter(|bytes| *bytes != u64::MAX);
        Interval { from, to, window_bytes, rtt: connection.facts().rtt_smoothed }
    }
}

impl Interval {
    /// True if it is long enough, as the last interval, for its rate to say something.
    pub fn is_worth_telling(&self, every: Duration) -> bool {
        (self.to.at - self.from.at) * 10 >= every
    }

    /// Its begin and its end, after the first began.
    pub fn span(&self) -> (Duration, Duration) {
        (self.from.at, self.to.at)
    }

    /// Packets whose content had been sent before.
    pub fn packets_repeated(&self) -> u64 {
        self.to.repeated - self.from.repeated
    }

    /// Each direction that is measured, `out` or `in`, with the bytes that went there the first
    /// time.
    pub fn directions(&self, way: Way) -> impl Iterator<Item = (&'static str, u64)> {
        // An answer counts as much as its request.
        let out = way.is_forward().then_some(("out", self.to.sent - self.from.sent));
        let back = way.is_reverse().then_some(("in", self.to.received - self.from.received));
        out.into_iter().chain(back)
    }
}
