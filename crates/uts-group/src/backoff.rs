//! Suppression of requests: the time that a receiver waits before it asks, and the round trip of a
//! group in a byte.

use core::time::Duration;
use uts_functions::fec::TinyMt32;

/// The shortest round trip that counts for a group: timers are no finer.
pub const GRTT_MIN: Duration = Duration::from_millis(2);

/// The longest: bounds what a member that lies of its round trip can hold up.
pub const GRTT_MAX: Duration = Duration::from_secs(2);

/// The round trip of a group of which nothing is known (NORM has the same, RFC 5740).
pub const GRTT_FIRST: Duration = Duration::from_millis(500);

/// Random waits of one receiver. Those of different seeds are independent.
#[derive(Clone, Debug)]
pub struct Backoff(TinyMt32);

impl Backoff {
    /// Waits that follow from a seed.
    pub fn new(seed: u64) -> Self {
        Backoff(TinyMt32::new((seed ^ seed >> 32) as u32))
    }

    /// A time from zero to `longest` before a request, of which short ones are so rare that few of
    /// `members` ask before they could have heard of another: the truncated exponential
    /// distribution of RFC 5401 section 3.2.2. (G-15)
    pub fn wait(&mut self, longest: Duration, members: u32) -> Duration {
        let uniform = f64::from(self.0.next_number()) / (f64::from(u32::MAX) + 1.0);
        let lambda = lambda(members);
        let share = libm::log1p(uniform * libm::expm1(lambda)) / lambda;
        longest.mul_f64(share.clamp(0.0, 1.0))
    }
}

/// Requests that one loss brings where all of `members` have it, if a request is heard of by all
/// `heard_after` later, as RFC 5401 section 3.2.2 expects it; it has half a round trip there, since
/// requests go to the whole group. Never more than there are members.
pub fn expected_requests(members: u32, longest: Duration, heard_after: Duration) -> f64 {
    let ratio = longest.as_secs_f64() / heard_after.as_secs_f64();
    libm::exp(1.2 * lambda(members) / ratio).min(f64::from(members))
}

/// The parameter of the distribution for a size of the group.
fn lambda(members: u32) -> f64 {
    libm::log(f64::from(members.max(1))) + 1.0
}

/// Bounds of the scale of round trips in a byte, in seconds (RFC 5401 section 3.7.4).
const SCALE_MIN: f64 = 1e-6;
const SCALE_MAX: f64 = 1e3;

/// Steps of the scale in a factor of e.
const STEPS: f64 = 13.0;

/// A round trip in a byte, rounded up (RFC 5401 section 3.7.4). (G-13)
pub fn quantised(rtt: Duration) -> u8 {
    let rtt = rtt.as_secs_f64().clamp(SCALE_MIN, SCALE_MAX);
    let linear = libm::ceil(rtt / SCALE_MIN - 1e-9);
    if linear <= 32.0 {
        return (linear as u8).saturating_sub(1);
    }
    libm::ceil(255.0 - STEPS * libm::log(SCALE_MAX / rtt)) as u8
}

/// The round trip that a byte stands for.
pub fn round_trip(quantised: u8) -> Duration {
    let seconds = if quantised <= 31 {
        f64::from(quantised + 1) * SCALE_MIN
    } else {
        SCALE_MAX / libm::exp(f64::from(255 - quantised) / STEPS)
    };
    Duration::from_secs_f64(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of waits below `t` is (e^(lambda t) - 1) / (e^lambda - 1), where `t` is a share of
    /// the longest.
    #[test]
    fn waits_have_the_truncated_exponential_distribution() {
        let longest = Duration::from_millis(100);
        for members in [1, 10, 1000] {
            let mut backoff = Backoff::new(u64::from(members));
            let waits: Vec<f64> = (0..20_000)
                .map(|_| backoff.wait(longest, members).as_secs_f64() / longest.as_secs_f64())
                .collect();
            assert!(waits.iter().all(|wait| (0.0..=1.0).contains(wait)));
            let lambda = f64::from(members).ln() + 1.0;
            for share in [0.25, 0.5, 0.75, 0.9] {
                let below = waits.iter().filter(|wait| **wait < share).count() as f64 / waits.len() as f64;
                let expected = ((lambda * share).exp() - 1.0) / (lambda.exp() - 1.0);
                assert!((below - expected).abs() < 0.012, "{members}, {share}: {below}, not {expected}");
            }
        }
    }

    #[test]
    fn a_round_trip_in_a_byte_is_not_below_it_and_little_above() {
        assert_eq!((quantised(Duration::ZERO), quantised(Duration::from_secs(5000))), (0, 255));
        for micros in (1..40).chain((1..200).map(|i| i * i * 97)) {
            let rtt = Duration::from_micros(micros);
            let read = round_trip(quantised(rtt)).as_secs_f64() / rtt.as_secs_f64();
            assert!((0.999_999..1.085).contains(&read), "{rtt:?}: {read}");
        }
        for byte in 0..=255 {
            let again = quantised(round_trip(byte));
            assert!(again.abs_diff(byte) <= 1, "{byte} {again}");
        }
    }

    #[test]
    fn requests_that_are_expected_are_those_of_the_formula() {
        let ms = Duration::from_millis;
        let of = |members, k: u64| expected_requests(members, ms(100 * k), ms(50));
        assert!((of(1000, 4) - 3.27).abs() < 0.01, "{}", of(1000, 4));
        assert!((of(10, 4) - 1.64).abs() < 0.01, "{}", of(10, 4));
        assert_eq!(of(1, 1).round(), 1.0);
    }
}
