//! Time-outs in ticks of a kernel's clock: the smoothed round trip and its deviation in whole
//! numbers (V. Jacobson, "Congestion Avoidance and Control", SIGCOMM 1988).

use core::time::Duration;
use uts_functions::Time;

/// A tick of Linux on a PC, 100 to a second.
pub const TICK: Duration = Duration::from_millis(10);
/// The shortest time-out, in ticks: a fifth of a second.
const FLOOR: u64 = 20;
/// The longest: two minutes.
const CEILING: u64 = 12_000;
/// The first, before anything was measured: 3 s (RFC 1122 section 4.2.3.1).
const FIRST: u64 = 300;

/// Ticks since time zero.
pub fn ticks(now: Time) -> u64 {
    now.as_nanos() / TICK.as_nanos() as u64
}

/// The instant of a tick.
pub fn instant(tick: u64) -> Time {
    Time::ZERO + TICK * u32::try_from(tick).unwrap_or(u32::MAX)
}

/// The estimator of a connection, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    /// Eight times the smoothed round trip.
    smoothed: i64,
    /// Four times its mean deviation.
    deviation: i64,
    timeout: u64,
    /// Time-outs since something has arrived at the first attempt.
    backoff: u32,
}

impl Default for RoundTrip {
    fn default() -> Self {
        RoundTrip { smoothed: 0, deviation: 0, timeout: FIRST, backoff: 0 }
    }
}

impl RoundTrip {
    /// A round trip was measured, with this window in packets.
    pub fn on_sample(&mut self, sample: u64, window: u32) {
        let mut error = (sample as i64).max(1);
        if self.smoothed == 0 {
            (self.smoothed, self.deviation) = (error << 3, error << 2);
        } else {
            error -= self.smoothed >> 3;
            self.smoothed += error;
            self.deviation += error.abs() - (self.deviation >> 2);
        }
        // Linux adds a quarter, and more where the window is of a packet or two.
        let plain = (self.smoothed >> 3) + self.deviation;
        let more = plain.checked_shr(window.saturating_sub(1)).unwrap_or(0);
        self.timeout = ((plain + (plain >> 2) + more) as u64) << self.backoff;
        self.bound();
    }

    fn bound(&mut self) {
        self.timeout = self.timeout.clamp(FLOOR, CEILING);
    }

    /// A time-out has ended: the next is twice as long.
    pub fn on_timeout(&mut self) {
        self.backoff = (self.backoff + 1).min(12);
        self.timeout *= 2;
        self.bound();
    }

    /// All that was repeated has arrived.
    pub fn on_all_arrived(&mut self) {
        self.backoff = 0;
    }

    /// The time-out.
    pub fn timeout(&self) -> u64 {
        self.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_out_follows_the_round_trip_between_its_bounds() {
        let mut rtt = RoundTrip::default();
        assert_eq!(rtt.timeout(), 300);
        rtt.on_sample(8, 30);
        assert_eq!(rtt.timeout(), 50, "8, four times as much of deviation, and a quarter");
        (0..50).for_each(|_| rtt.on_sample(8, 30));
        assert_eq!(rtt.timeout(), 20, "no shorter than a fifth of a second");
        rtt.on_timeout();
        rtt.on_timeout();
        assert_eq!(rtt.timeout(), 80);
        rtt.on_sample(8, 30);
        assert!(rtt.timeout() >= 40, "doubled until all has arrived");
        rtt.on_all_arrived();
        rtt.on_sample(8, 30);
        assert_eq!(rtt.timeout(), 20);
        (0..20).for_each(|_| rtt.on_timeout());
        assert_eq!(rtt.timeout(), 12_000);
    }
}
