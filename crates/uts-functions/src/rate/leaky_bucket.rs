//! A leaky bucket that polices: each flow may hand over messages at a rate, and some in advance.
//! What is beyond is discarded, marked or made to wait before it is part of the flow (ITU-T I.371,
//! the continuous-state leaky bucket). Packets are spaced as the pacing bucket does it.

use super::pacing_bucket::PacingBucket;
use super::{Bucket, Meter, Pace, RateControl, Verdict};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Promise, Unasked, Unit};
use crate::time::{Rate, Time};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct LeakyBucket {
    rate: Rate,
    depth_bytes: u64,
    excess: Excess,
    pacing: PacingBucket,
}

/// Fate of a message that comes too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excess {
    Discard,
    Tag,
    Wait,
}

impl LeakyBucket {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Rate,
        number: 2,
        name: "leaky-bucket",
        what: "each flow keeps to a rate; messages beyond it are discarded, marked or wait",
        mandatory: false,
        consent: Consent::OfSender,
        params: &[
            Param {
                name: "rate",
                unit: Unit::KilobitsPerSecond,
                default: 1000,
                min: 1,
                max: 100_000_000,
                bold: Bold::Neither,
                what: "the rate that a flow may hand over",
            },
            Param {
                name: "depth",
                unit: Unit::Kibibytes,
                default: 64,
                min: 0,
                max: 1_048_576,
                bold: Bold::Neither,
                what: "how much may be handed over in advance",
            },
            Param {
                name: "excess",
                unit: Unit::Count,
                default: 0,
                min: 0,
                max: 2,
                bold: Bold::Neither,
                what: "what becomes of messages beyond: 0 = discarded, 1 = marked, 2 = they wait",
            },
        ],
        needs: &[],
        facts: Facts {
            uniform: true,
            judges: true,
            promises: &[Promise::Rate],
            unasked: Unasked::Never,
            ..Facts::PLAIN
        },
        predict: |_, facts, p| {
            let defaults = PacingBucket::INFO.params_within(&[]);
            (PacingBucket::INFO.predict)(&defaults, facts, p);
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        LeakyBucket {
            rate: Rate::from_bits_per_sec(u64::from(params.get(0)) * 1000),
            depth_bytes: u64::from(params.get(1)) * 1024,
            excess: match params.get(2) {
                0 => Excess::Discard,
                1 => Excess::Tag,
                _ => Excess::Wait,
            },
            pacing: PacingBucket::build(&PacingBucket::INFO.params_within(&[]), ()),
        }
    }
}

impl RateControl for LeakyBucket {
    fn wait_until(&mut self, bucket: &mut Bucket, now: Time, pace: &Pace) -> Option<Time> {
        // rate.md R-13.
        self.pacing.wait_until(bucket, now, pace)
    }

    fn on_sent(&mut self, bucket: &mut Bucket, now: Time, bytes: u64, pace: &Pace) {
        self.pacing.on_sent(bucket, now, bytes, pace);
    }

    fn batch_bytes(&self, bucket: &Bucket, pace: &Pace) -> u64 {
        self.pacing.batch_bytes(bucket, pace)
    }

    fn offer(&mut self, meter: &mut Meter, now: Time, bytes: u64) -> Verdict {
        // rate.md.
        meter.drain(now, self.rate);
        if meter.level_bytes <= self.depth_bytes {
            meter.level_bytes = meter.level_bytes.saturating_add(bytes);
            return Verdict::Go;
        }
        // rate.md R-12.
        match self.excess {
            Excess::Discard => Verdict::Discard,
            Excess::Tag => Verdict::Tag,
            Excess::Wait => Verdict::Wait(meter.falls_to(self.depth_bytes, self.rate)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const DISCARD: u64 = 0;
    const TAG: u64 = 1;
    const WAIT: u64 = 2;

    fn bucket(kbit: u64, depth_kib: u64, excess: u64) -> LeakyBucket {
        let settings = [("rate", kbit), ("depth", depth_kib), ("excess", excess)];
        LeakyBucket::build(&LeakyBucket::INFO.params_within(&settings), ())
    }

    /// By hand, at 1 Mbit/s (125 bytes a millisecond) and a depth of 1024 bytes.
    #[test]
    fn a_trace_by_hand() {
        let (mut slot, mut meter) = (bucket(1000, 1, DISCARD), Meter::default());
        let mut at = |ms, bytes| slot.offer(&mut meter, Time::from_millis(ms), bytes);
        assert_eq!(at(0, 1000), Verdict::Go, "level 1000");
        assert_eq!(at(0, 500), Verdict::Go, "1000 is within the depth: level 1500");
        assert_eq!(at(0, 1), Verdict::Discard, "1500 is beyond it");
        assert_eq!(at(3, 1), Verdict::Discard, "1125 is");
        assert_eq!(at(4, 5000), Verdict::Go, "1000 is not: level 6000; a message of any length passes");
        assert_eq!(at(43, 1), Verdict::Discard, "1125");
        assert_eq!(at(44, 1), Verdict::Go, "1000: what was discarded has cost nothing");
        assert_eq!(at(1000, 2000), Verdict::Go, "empty: no credit beyond the depth is saved up");
        assert_eq!(at(1000, 1), Verdict::Discard);
    }

    /// Messages of any length at any time: over no stretch from the start more passes than rate,
    /// depth and one message allow, and a sender that keeps to the rate loses nothing.
    #[test]
    fn what_passes_keeps_to_the_rate() {
        for seed in 0..200 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let kbit = rng.random_range(1..1_000_000);
            let depth_kib = rng.random_range(0..256);
            let (mut slot, mut meter) = (bucket(kbit, depth_kib, DISCARD), Meter::default());
            let (mut now, mut passed, mut longest) = (Time::from_millis(7), 0, 0);
            let start = now;
            for _ in 0..300 {
                let bytes = rng.random_range(1..100_000);
                longest = longest.max(bytes);
                if slot.offer(&mut meter, now, bytes) == Verdict::Go {
                    passed += bytes;
                }
                let most = depth_kib * 1024 + longest + slot.rate.bytes_in(now.since(start)) + 1;
                assert!(passed <= most, "seed {seed}: {passed} of {most}");
                now += Duration::from_nanos(1 << rng.random_range(0..32));
            }
            let (mut slot, mut meter) = (bucket(kbit, depth_kib, DISCARD), Meter::default());
            for _ in 0..300 {
                let bytes = rng.random_range(1..100_000);
                assert_eq!(slot.offer(&mut meter, now, bytes), Verdict::Go, "seed {seed}");
                now += slot.rate.time_for(bytes) + Duration::from_nanos(1);
            }
        }
    }

    #[test]
    fn a_message_that_waited_as_long_as_told_passes() {
        for seed in 0..200 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let (mut slot, mut meter) = (bucket(rng.random_range(1..1_000_000), 1, WAIT), Meter::default());
            let mut now = Time::from_millis(1);
            for _ in 0..100 {
                let bytes = rng.random_range(1..100_000);
                if let Verdict::Wait(at) = slot.offer(&mut meter, now, bytes) {
                    assert!(at > now, "seed {seed}");
                    now = at;
                    assert_eq!(slot.offer(&mut meter, now, bytes), Verdict::Go, "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn what_is_marked_costs_nothing_either() {
        let (mut slot, mut meter) = (bucket(1000, 0, TAG), Meter::default());
        assert_eq!(slot.offer(&mut meter, Time::ZERO, 125), Verdict::Go);
        assert_eq!(slot.offer(&mut meter, Time::ZERO, 125), Verdict::Tag);
        assert_eq!(slot.offer(&mut meter, Time::from_millis(1), 125), Verdict::Go);
    }

    /// Each flow has a meter of its own; it outlives mechanisms, and others let everything pass
    /// without touching it.
    #[test]
    fn an_exchange_grants_no_second_depth() {
        let (mut meter, mut other) = (Meter::default(), Meter::default());
        assert_eq!(bucket(1000, 1, DISCARD).offer(&mut meter, Time::ZERO, 5000), Verdict::Go);
        assert_eq!(bucket(1000, 1, DISCARD).offer(&mut meter, Time::ZERO, 1), Verdict::Discard);
        assert_eq!(bucket(1000, 1, DISCARD).offer(&mut other, Time::ZERO, 5000), Verdict::Go);
        let mut pacing = PacingBucket::build(&PacingBucket::INFO.params_within(&[]), ());
        assert_eq!(pacing.offer(&mut meter, Time::ZERO, u64::MAX), Verdict::Go);
        assert_eq!(bucket(1000, 1, DISCARD).offer(&mut meter, Time::ZERO, 1), Verdict::Discard);
    }
}
