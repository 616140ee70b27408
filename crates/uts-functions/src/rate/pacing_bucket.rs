//! A token bucket that spaces packets at the rate of congestion control (RFC 9002 section 7.7).
//!
//! Tokens are bytes and are counted to the billionth, so that the average is exact however often it
//! is polled. A driver that wakes late gets what it missed on top of the burst, up to [`LATE_MAX`];
//! a sender that was idle does not.

use super::{Bucket, Pace, RateControl};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Promise, Unit};
use crate::time::{Rate, Time};
use core::time::Duration;

/// Largest delay of a wake-up that is made up for: later than that, and the sender counts as idle.
/// Timers of general-purpose systems are late by one to two milliseconds.
pub const LATE_MAX: Duration = Duration::from_millis(4);

/// A burst is no longer than this at the rate, so that it does not fill the queue of a slow link.
const BURST_TIME_MAX: Duration = Duration::from_millis(1);

/// On paths shorter than some of these, bursts are longer: each waking costs the host as much as on
/// a long one, comes more often, and what a burst holds up is soon over. Linux sizes its batches
/// likewise (`tcp_tso_rtt_log`, 2022).
const SHORT_PATH_NANOS: u64 = 512_000;

/// Largest factor by which bursts are longer: 40 packets, about what segmentation offload takes at
/// once.
const SHORT_PATH_FACTOR: u64 = 4;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct PacingBucket {
    burst_packets: u64,
}

impl PacingBucket {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Rate,
        number: 1,
        name: "pacing-bucket",
        what: "a token bucket spaces packets at the rate of congestion control",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "burst",
            unit: Unit::Packets,
            default: 10,
            min: 1,
            max: 64,
            bold: Bold::Above,
            what: "how many packets may leave back to back",
        }],
        needs: &[],
        facts: Facts { uniform: true, promises: &[Promise::Rate], ..Facts::PLAIN },
        predict: |params, facts, p| {
            // At worst a burst stands in the queue of the slowest link.
            let burst = Rate::time_for(facts.capacity, u64::from(params.get(0)) * facts.mtu_bytes);
            let burst_s = burst.min(BURST_TIME_MAX.max(2 * facts.packet_time())).as_secs_f64();
            p.delay_p99_s += burst_s;
            p.cpu_ns += 20.0;
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        PacingBucket { burst_packets: u64::from(params.get(0)) }
    }

    /// Bytes that may leave in one burst.
    fn burst_bytes(&self, rate: Rate, pace: &Pace) -> u64 {
        // rate.md R-4: congestion control's word wins; else the parameter, within a millisecond at
        // the rate.
        let own = || {
            let by_time = rate.bytes_in(BURST_TIME_MAX).max(pace.packet_bytes.saturating_mul(2));
            let burst = pace.packet_bytes.saturating_mul(self.burst_packets);
            burst.min(by_time).max(burst.saturating_mul(short_path_factor(pace.rtt_min)))
        };
        pace.burst_bytes.unwrap_or_else(own).max(pace.packet_bytes).min(i64::MAX as u64 / 4)
    }
}

/// Halved for each [`SHORT_PATH_NANOS`] of the round trip; zero on any that is not short, or not
/// known.
fn short_path_factor(rtt_min: Duration) -> u64 {
    let nanos = u64::try_from(rtt_min.as_nanos()).unwrap_or(u64::MAX);
    let halvings = u32::try_from(nanos / SHORT_PATH_NANOS).unwrap_or(u32::MAX);
    if rtt_min.is_zero() { 0 } else { SHORT_PATH_FACTOR.checked_shr(halvings).unwrap_or(0) }
}

impl RateControl for PacingBucket {
    fn wait_until(&mut self, bucket: &mut Bucket, now: Time, pace: &Pace) -> Option<Time> {
        // rate.md.
        let Some(rate) = pace.rate else {
            bucket.empty(now);
            return None;
        };
        if bucket.still_holds(now, pace.packet_bytes) {
            return None;
        }
        let burst = self.burst_bytes(rate, pace);
        bucket.fill(now, rate, burst, LATE_MAX);
        let packet = pace.packet_bytes.min(burst);
        if bucket.tokens >= packet as i64 {
            return None;
        }
        // rate.md R-6: half a burst at a time, so that a fast sender does not wake for every
        // packet.
        let target = packet.max(burst / 2);
        let at = bucket.full_at(rate, target);
        bucket.promised = Some(at);
        Some(at)
    }

    fn on_sent(&mut self, bucket: &mut Bucket, now: Time, bytes: u64, pace: &Pace) {
        match pace.rate {
            Some(_) => bucket.take(bytes),
            None => bucket.empty(now),
        }
    }

    fn batch_bytes(&self, bucket: &Bucket, pace: &Pace) -> u64 {
        match pace.rate {
            // rate.md R-7.
            Some(_) => u64::try_from(bucket.tokens).unwrap_or(0).max(pace.packet_bytes),
            None => u64::MAX,
        }
    }
}
