//! Virtual scheduling: each packet has a theoretical departure time, and leaves no earlier than
//! some tolerance before it (ITU-T I.371, the generic cell rate algorithm; Richards, "The Universal
//! Transport System", 1995, figure 2.2, where "the smaller" must read "the greater"). It spaces as
//! a bucket does, with one instant as its state.

use super::{Bucket, Pace, RateControl};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Promise, Unasked, Unit};
use crate::time::{Rate, Time};
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct VirtualScheduling {
    tolerance: Duration,
    /// When the next packet is due, and billionths of a nanosecond beyond; unknown until a packet
    /// has left.
    due: Option<(Time, u64)>,
}

impl VirtualScheduling {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Rate,
        number: 4,
        name: "virtual-scheduling",
        what: "each packet leaves at its theoretical departure time, or a tolerance earlier",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "tolerance",
            unit: Unit::Micros,
            default: 1000,
            min: 0,
            max: 4000,
            bold: Bold::Above,
            what: "how much earlier than its time a packet may leave",
        }],
        needs: &[],
        facts: Facts { uniform: true, promises: &[Promise::Rate], unasked: Unasked::Never, ..Facts::PLAIN },
        predict: |params, _, p| {
            p.delay_p99_s += f64::from(params.get(0)) * 1e-6;
            p.cpu_ns += 20.0;
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        VirtualScheduling { tolerance: Duration::from_micros(u64::from(params.get(0))), due: None }
    }

    /// The theoretical departure time at an instant: the time itself if it has passed.
    fn due_at(&mut self, bucket: &Bucket, now: Time, rate: Rate) -> Time {
        // rate.md R-2: what was sent ahead under a predecessor is owed.
        let owed = || {
            let bytes = u64::try_from(bucket.tokens.saturating_neg()).unwrap_or(0);
            if rate == Rate::default() { Duration::ZERO } else { rate.time_for(bytes) }
        };
        let (due, fraction) = self.due.unwrap_or_else(|| (now + owed(), 0));
        // rate.md R-20: idleness earns nothing.
        self.due = Some(if due < now { (now, 0) } else { (due, fraction) });
        due.max(now)
    }
}

impl RateControl for VirtualScheduling {
    fn wait_until(&mut self, bucket: &mut Bucket, now: Time, pace: &Pace) -> Option<Time> {
        let rate = pace.rate?;
        if rate == Rate::default() {
            return Some(Time::NEVER);
        }
        // rate.md R-19.
        let early = self.due_at(bucket, now, rate).since(now);
        early.checked_sub(self.tolerance).filter(|wait| !wait.is_zero()).map(|wait| now + wait)
    }

    fn on_sent(&mut self, bucket: &mut Bucket, now: Time, bytes: u64, pace: &Pace) {
        // rate.md R-2: no burst is left for a successor.
        bucket.empty(now);
        let Some(rate) = pace.rate.filter(|rate| *rate > Rate::default()) else { return };
        let due = self.due_at(bucket, now, rate);
        let fraction = self.due.map_or(0, |(_, fraction)| fraction);
        // rate.md R-21.
        let per_sec = u128::from(rate.bytes_per_sec());
        let attos = u128::from(bytes) * NANOS_A_SECOND * BILLION / per_sec + u128::from(fraction);
        let nanos = u64::try_from(attos / BILLION).unwrap_or(u64::MAX);
        self.due = Some((due + Duration::from_nanos(nanos), (attos % BILLION) as u64));
    }

    fn batch_bytes(&self, _: &Bucket, pace: &Pace) -> u64 {
        pace.rate.map_or(u64::MAX, |_| pace.packet_bytes.max(1))
    }
}

const NANOS_A_SECOND: u128 = 1_000_000_000;
const BILLION: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1250;

    fn pace() -> Pace {
        // A packet in a millisecond.
        let rate = Some(Rate::from_bits_per_sec(10_000_000));
        Pace { rate, packet_bytes: PACKET, burst_bytes: None, rtt_min: Duration::ZERO }
    }

    /// When each of some packets leaves that are there from `start` on.
    fn departures(m: &mut VirtualScheduling, bucket: &mut Bucket, start: Time, count: usize) -> Vec<u64> {
        let mut now = start;
        let mut leave = || {
            while let Some(at) = m.wait_until(bucket, now, &pace()) {
                assert!(at > now);
                now = at;
            }
            m.on_sent(bucket, now, PACKET, &pace());
            now.since(Time::ZERO).as_micros() as u64
        };
        (0..count).map(|_| leave()).collect()
    }

    fn build(tolerance_us: u64) -> VirtualScheduling {
        let params = VirtualScheduling::INFO.params_within(&[("tolerance", tolerance_us)]);
        VirtualScheduling::build(&params, ())
    }

    /// By hand, after figure 2.2.
    #[test]
    fn packets_leave_at_their_time_or_earlier_by_the_tolerance() {
        let mut bucket = Bucket::default();
        let strict = departures(&mut build(0), &mut bucket, Time::from_millis(5), 4);
        assert_eq!(strict, [5_000, 6_000, 7_000, 8_000]);
        let mut bucket = Bucket::default();
        let lenient = departures(&mut build(1_500), &mut bucket, Time::from_millis(5), 5);
        assert_eq!(lenient, [5_000, 5_000, 5_500, 6_500, 7_500]);
    }

    #[test]
    fn idleness_earns_the_tolerance_and_no_more() {
        let (mut m, mut bucket) = (build(1_000), Bucket::default());
        departures(&mut m, &mut bucket, Time::from_millis(5), 3);
        let later = departures(&mut m, &mut bucket, Time::from_millis(500), 3);
        assert_eq!(later, [500_000, 500_000, 501_000]);
    }

    #[test]
    fn the_average_is_exact_at_odd_rates() {
        let (mut m, mut bucket) = (build(0), Bucket::default());
        let odd = Pace { rate: Some(Rate::from_bytes_per_sec(333_333)), ..pace() };
        let mut now = Time::ZERO;
        for _ in 0..10_000 {
            if let Some(at) = m.wait_until(&mut bucket, now, &odd) {
                now = at;
            }
            m.on_sent(&mut bucket, now, PACKET, &odd);
        }
        let expected = 9_999.0 * PACKET as f64 / 333_333.0;
        assert!((now.since(Time::ZERO).as_secs_f64() - expected).abs() < 1e-5, "{now:?} of {expected}");
    }
}
