//! Time and rates as plain values: the driver of the engine reads the clock, never this crate.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// An instant: nanoseconds since an origin that the driver chose and keeps for the life of an
/// endpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);
    /// Later than anything that will happen.
    pub const NEVER: Time = Time(u64::MAX);

    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Time(nanos)
    }

    /// The instant `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Time(micros.saturating_mul(1_000))
    }

    /// The instant `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Time(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Milliseconds since the origin, modulo 2^32 (49 days): for spans that are far shorter.
    pub const fn wrapping_millis(self) -> u32 {
        (self.0 / 1_000_000) as u32
    }

    /// Time passed since an instant of which [`Time::wrapping_millis`] was kept.
    pub const fn since_wrapped(self, millis: u32) -> Duration {
        Duration::from_millis(self.wrapping_millis().wrapping_sub(millis) as u64)
    }

    /// Seconds since the origin.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, rhs: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, rhs: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::NEVER { f.write_str("never") } else { write!(f, "{:.6}s", self.as_secs_f64()) }
    }
}

/// A rate in bytes per second.
///
/// ```
/// use std::time::Duration;
/// use uts_functions::Rate;
///
/// let rate = Rate::from_delivery(1_000_000, Duration::from_secs(2));
/// assert_eq!(rate, Rate::from_bits_per_sec(4_000_000));
/// assert_eq!(rate.bytes_per_sec(), 500_000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

impl Rate {
    /// `bytes` per second.
    pub const fn from_bytes_per_sec(bytes: u64) -> Self {
        Rate(bytes)
    }

    /// `bits` per second.
    pub const fn from_bits_per_sec(bits: u64) -> Self {
        Rate(bits / 8)
    }

    /// The rate at which `bytes` pass in `interval`; zero for an empty interval.
    pub fn from_delivery(bytes: u64, interval: Duration) -> Self {
        let nanos = interval.as_nanos();
        if nanos == 0 {
            return Rate(0);
        }
        // Division by 128 bits takes several times as long.
        match (bytes.checked_mul(1_000_000_000), u64::try_from(nanos)) {
            (Some(scaled), Ok(nanos)) => Rate(scaled / nanos),
            _ => Rate(u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)),
        }
    }

    /// Bytes per second.
    pub const fn bytes_per_sec(self) -> u64 {
        self.0
    }

    /// Bits per second.
    pub const fn bits_per_sec(self) -> u64 {
        self.0.saturating_mul(8)
    }

    /// Bytes that pass in `interval`.
    pub fn bytes_in(self, interval: Duration) -> u64 {
        self.bytes_and_billionths_in(interval, 0).0
    }

    /// Bytes that pass in `interval`, with so many billionths of one that were left before, and
    /// billionths that are left now.
    pub(crate) fn bytes_and_billionths_in(self, interval: Duration, left: u32) -> (u64, u32) {
        const BILLION: u64 = 1_000_000_000;
        let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let short = self.0.checked_mul(nanos).and_then(|billionths| billionths.checked_add(left.into()));
        // Division by 128 bits takes several times as long.
        if let Some(billionths) = short {
            return (billionths / BILLION, (billionths % BILLION) as u32);
        }
        let billionths = u128::from(self.0) * u128::from(nanos) + u128::from(left);
        let bytes = u64::try_from(billionths / u128::from(BILLION)).unwrap_or(u64::MAX);
        (bytes, (billionths % u128::from(BILLION)) as u32)
    }

    /// Time that `bytes` take; [`Duration::MAX`] at rate zero.
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// This rate times `factor` (at least 0).
    pub fn mul_f64(self, factor: f64) -> Self {
        Rate((self.0 as f64 * factor.max(0.0)) as u64)
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} Mbit/s", self.bits_per_sec() as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_instead_of_wrapping() {
        assert_eq!(Time::NEVER + Duration::from_secs(1), Time::NEVER);
        assert_eq!(Time::ZERO - Duration::from_secs(1), Time::ZERO);
        assert_eq!(Time::from_millis(1).since(Time::from_millis(2)), Duration::ZERO);
    }

    #[test]
    fn bytes_of_long_intervals_are_counted_as_those_of_short_ones() {
        let rate = Rate::from_bytes_per_sec(12_345_678_901);
        for (interval, left) in [(1, 0), (999_999_999, 7), (u64::MAX / 12_345_678_901, 1), (u64::MAX, 3)] {
            let billionths = 12_345_678_901 * u128::from(interval) + u128::from(left);
            let counted = rate.bytes_and_billionths_in(Duration::from_nanos(interval), left);
            let (bytes, rest) = (billionths / 1_000_000_000, billionths % 1_000_000_000);
            assert_eq!((u128::from(counted.0), u128::from(counted.1)), (bytes.min(u64::MAX.into()), rest));
        }
    }

    #[test]
    fn rate_and_its_inverse_agree() {
        let rate = Rate::from_bits_per_sec(100_000_000);
        assert_eq!(rate.bytes_in(Duration::from_millis(20)), 250_000);
        assert_eq!(rate.time_for(250_000), Duration::from_millis(20));
        assert_eq!(Rate::from_delivery(250_000, Duration::from_millis(20)), rate);
        assert_eq!(Rate::default().time_for(1), Duration::MAX);
    }
}
