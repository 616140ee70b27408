//! Figures of a connection: what it has done, and how its path is.

use core::ops::Deref;
use core::time::Duration;
use uts_functions::Rate;

/// Figures of a connection: what it has done so far, and how its path is now. Those of a connection
/// that has ended are as they were then.
///
/// ```
/// # async fn example(connection: uts::Connection) {
/// let stats = connection.stats();
/// println!("{} packets sent, {} lost", stats.packets_sent, stats.packets_lost);
/// println!("{:?} there and back, {:?} to send", stats.rtt, stats.rate);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Counts since the connection began. Its fields are fields of `Stats` as well.
    pub counts: uts_engine::Stats,
    /// Smoothed round trip (RFC 9002 section 5.3); zero before one was measured.
    pub rtt: Duration,
    /// Smallest round trip of the last while: the path without queues.
    pub rtt_min: Duration,
    /// Mean deviation of the round trip.
    pub rtt_deviation: Duration,
    /// Congestion window, in bytes of UDP payload; zero before the handshake is done, `u64::MAX`
    /// under a profile without congestion control.
    pub window_bytes: u64,
    /// Bytes of packets that were sent and neither acknowledged nor taken for lost.
    pub in_flight_bytes: u64,
    /// Rate that the path has been seen to deliver lately: the filtered maximum, of UDP payload.
    pub rate: Rate,
    /// Share of packets lost lately, 0 to 1.
    pub loss: f64,
}

impl Stats {
    /// Those of a connection of the engine.
    pub(crate) fn of(connection: &uts_engine::Connection) -> Self {
        let facts = connection.facts();
        Stats {
            counts: connection.stats(),
            rtt: facts.rtt_smoothed,
            rtt_min: facts.rtt_min,
            rtt_deviation: facts.rtt_deviation,
            window_bytes: connection.congestion().map_or(0, |(_, window)| window),
            in_flight_bytes: connection.in_flight_bytes(),
            rate: facts.capacity,
            loss: facts.loss,
        }
    }
}

impl Deref for Stats {
    type Target = uts_engine::Stats;

    fn deref(&self) -> &uts_engine::Stats {
        &self.counts
    }
}
