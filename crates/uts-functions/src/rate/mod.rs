//! Rate control: spacing of packets. Congestion control (or the application) says the rate, this
//! function keeps it.

use crate::feedback::BadFeedback;
use crate::mechanism::Described;
use crate::registry;
use crate::time::{Rate, Time};
use auto_impl::auto_impl;
use core::time::Duration;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;

pub mod leaky_bucket;
pub mod netblt;
pub mod none;
pub mod pacing_bucket;
pub mod virtual_scheduling;

/// Rate to keep, and figures that are needed to keep it.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The rate to keep; `None` = as fast as the window allows.
    pub rate: Option<Rate>,
    /// Bytes in a full packet.
    pub packet_bytes: u64,
    /// Bytes that may leave in one burst, if congestion control says.
    pub burst_bytes: Option<u64>,
    /// The shortest round trip seen; zero = none was.
    pub rtt_min: Duration,
}

/// The state of the function: what has been sent ahead of the rate. Outlives mechanisms, so that an
/// exchange neither grants a second burst nor stalls.
#[derive(Clone, Debug, Default)]
pub struct Bucket {
    /// Bytes that may leave now (may be negative: sent ahead).
    pub tokens: i64,
    /// When tokens were last added.
    pub filled_at: Time,
    /// Billionths of a byte earned beyond `tokens`.
    fraction: u32,
    /// The first burst was granted.
    started: bool,
    /// Until when the sender was last told to wait.
    promised: Option<Time>,
}

/// Billionths in one.
const BILLION: u128 = 1_000_000_000;

impl Bucket {
    /// Adds what was earned at `rate` since the last time, up to `burst_bytes`. A sender that was
    /// told to wait and comes late keeps what it earned since, for up to `late_max`; one that comes
    /// later than twice that was idle.
    fn fill(&mut self, now: Time, rate: Rate, burst_bytes: u64, late_max: Duration) {
        let burst = i64::try_from(burst_bytes).unwrap_or(i64::MAX);
        if !self.started {
            // rate.md R-3: a connection starts with a full burst.
            *self = Bucket { tokens: burst, filled_at: now, started: true, ..Bucket::default() };
            return;
        }
        if now <= self.filled_at && self.tokens < burst {
            // The next packet of a batch: nothing has been earned since.
            return;
        }
        // rate.md R-8.
        let (bytes, fraction) = rate.bytes_and_billionths_in(now.since(self.filled_at), self.fraction);
        self.fraction = fraction;
        self.filled_at = self.filled_at.max(now);
        // rate.md R-5: lateness is made up for, idleness is not.
        let late = self.promised.map_or(Duration::ZERO, |at| now.since(at));
        let made_up = if late <= 2 * late_max { rate.bytes_in(late.min(late_max)) } else { 0 };
        let limit = burst.saturating_add(i64::try_from(made_up).unwrap_or(i64::MAX));
        self.tokens = self.tokens.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
        if self.tokens >= limit {
            self.tokens = limit;
            self.fraction = 0;
        }
    }

    /// True if `bytes` are there at `now` in any case, nothing having been earned since the last
    /// time: they are for the next packet of a batch.
    fn still_holds(&self, now: Time, bytes: u64) -> bool {
        self.started && now <= self.filled_at && u64::try_from(self.tokens).is_ok_and(|held| held >= bytes)
    }

    /// When there will be `target_bytes` at `rate`.
    fn full_at(&self, rate: Rate, target_bytes: u64) -> Time {
        if rate == Rate::default() {
            return Time::NEVER;
        }
        let missing = u128::try_from(i128::from(target_bytes) - i128::from(self.tokens)).unwrap_or(0);
        let nanos = (missing * BILLION)
            .saturating_sub(u128::from(self.fraction))
            .div_ceil(u128::from(rate.bytes_per_sec()));
        self.filled_at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Takes out what was sent.
    fn take(&mut self, bytes: u64) {
        self.tokens = self.tokens.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Grants nothing more than what is earned from `now` on; a debt is forgiven.
    fn empty(&mut self, now: Time) {
        *self = Bucket { tokens: 0, filled_at: now, started: true, ..Bucket::default() };
    }
}

/// The state of the function for one flow: what it has handed over ahead of its rate. Outlives
/// mechanisms, as [`Bucket`] does.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Bytes handed over ahead of the rate.
    level_bytes: u64,
    /// Billionths of a byte that have run out beyond that.
    fraction: u32,
    /// When that was last counted.
    counted_at: Time,
}

impl Meter {
    /// Takes away what has run out at `rate` since the last time.
    fn drain(&mut self, now: Time, rate: Rate) {
        let (bytes, fraction) = rate.bytes_and_billionths_in(now.since(self.counted_at), self.fraction);
        self.counted_at = self.counted_at.max(now);
        self.fraction = if bytes < self.level_bytes { fraction } else { 0 };
        self.level_bytes = self.level_bytes.saturating_sub(bytes);
    }

    /// When no more than `target_bytes` will be left at `rate`.
    fn falls_to(&self, target_bytes: u64, rate: Rate) -> Time {
        if rate == Rate::default() {
            return Time::NEVER;
        }
        let excess = u128::from(self.level_bytes.saturating_sub(target_bytes));
        let nanos = (excess * BILLION)
            .saturating_sub(u128::from(self.fraction))
            .div_ceil(u128::from(rate.bytes_per_sec()));
        self.counted_at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Fate of a message that a flow is to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is taken.
    Go,
    /// It is not taken before this instant.
    Wait(Time),
    /// It is thrown away, and costs nothing.
    Discard,
    /// It is taken, and is the first to be given up.
    Tag,
}

/// A policy over [`Bucket`], and over the [`Meter`] of each flow.
#[enum_dispatch]
#[auto_impl(Box)]
pub trait RateControl: Described + DynClone {
    /// Until when to wait before the next packet; `None` = it may leave now.
    fn wait_until(&mut self, bucket: &mut Bucket, now: Time, pace: &Pace) -> Option<Time>;
    /// A packet of `bytes` left.
    fn on_sent(&mut self, bucket: &mut Bucket, now: Time, bytes: u64, pace: &Pace);
    /// Bytes that may leave at `now` in one batch (for segmentation offload); `u64::MAX` = no
    /// bound.
    fn batch_bytes(&self, bucket: &Bucket, pace: &Pace) -> u64;
    /// The application hands a message of `bytes` to the flow of this meter. Asked before the
    /// message has a position in its flow. Mechanisms that only space packets let everything pass.
    fn offer(&mut self, _meter: &mut Meter, _now: Time, _bytes: u64) -> Verdict {
        Verdict::Go
    }
    /// The half of this mechanism at the receiver, if it has one (a fact of its entry: `speaks`).
    fn watch(&self) -> Option<Box<dyn Watch>> {
        None
    }
    /// The half at the receiver has spoken.
    ///
    /// # Errors
    /// [`BadFeedback`] if the words are none of this mechanism.
    fn on_feedback(&mut self, _words: &[u8]) -> Result<(), BadFeedback> {
        Ok(())
    }
}

/// The half of a rate-control mechanism that works at the receiver of a connection's data.
pub trait Watch: core::fmt::Debug + DynClone + Send {
    /// A packet has arrived, with so many bytes of payload. Says whether the sender is to be told
    /// something.
    fn on_arrival(&mut self, now: Time, number: u64, bytes: u64) -> bool;
    /// Appends what the sender is to be told, as it is now: at most 255 bytes.
    fn say(&self, out: &mut Vec<u8>);
}

dyn_clone::clone_trait_object!(Watch);

dyn_clone::clone_trait_object!(RateControl);

registry! {
    /// The rate-control mechanism in use.
    #[derive(Clone, Debug)]
    Slot: RateControl, context: ();
    None => none::None,
    PacingBucket => pacing_bucket::PacingBucket,
    LeakyBucket => leaky_bucket::LeakyBucket,
    Netblt => netblt::Netblt,
    VirtualScheduling => virtual_scheduling::VirtualScheduling,
}

#[cfg(test)]
mod tests {
    use super::pacing_bucket::LATE_MAX;
    use super::*;
    use crate::mechanism::Promise;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const PACKET: u64 = 1200;

    fn bucket_slot() -> Slot {
        Slot::build(&MECHANISMS[1].choice(), ()).expect("mandatory")
    }

    fn pace(bits_per_sec: u64) -> Pace {
        Pace {
            rate: Some(Rate::from_bits_per_sec(bits_per_sec)),
            packet_bytes: PACKET,
            burst_bytes: None,
            rtt_min: Duration::ZERO,
        }
    }

    /// Sends all that may leave at `now`, in batches of up to `batch_packets`; says how much it was
    /// and when there is more.
    fn drain(
        slot: &mut Slot,
        bucket: &mut Bucket,
        now: Time,
        pace: &Pace,
        batch_packets: u64,
    ) -> (u64, Time) {
        let mut sent = 0;
        loop {
            if let Some(at) = slot.wait_until(bucket, now, pace) {
                assert!(at > now, "waits for {at:?} at {now:?}");
                return (sent, at);
            }
            let packets = (slot.batch_bytes(bucket, pace) / PACKET).clamp(1, batch_packets);
            slot.on_sent(bucket, now, packets * PACKET, pace);
            sent += packets * PACKET;
        }
    }

    /// Bytes sent in `length` by a sender that always has data and wakes late by up to `late_ns`.
    fn send_for(slot: &mut Slot, pace: &Pace, length: Duration, late_ns: u64, seed: u64) -> u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut bucket = Bucket::default();
        let mut now = Time::ZERO;
        let mut sent = 0;
        while now < Time::ZERO + length {
            let (bytes, at) = drain(slot, &mut bucket, now, pace, 44);
            sent += bytes;
            now = at + Duration::from_nanos(rng.random_range(0..=late_ns));
        }
        sent
    }

    #[test]
    fn the_average_is_exact_however_late_the_driver_wakes() {
        for (bits_per_sec, secs) in [(1_000_000, 100), (100_000_000, 10), (10_000_000_000, 2)] {
            for late_ns in [0, 300, 50_000, 1_000_000] {
                let pace = pace(bits_per_sec);
                let sent = send_for(&mut bucket_slot(), &pace, Duration::from_secs(secs), late_ns, late_ns);
                let due = (bits_per_sec / 8 * secs) as f64;
                let error = (sent as f64 - due) / due;
                assert!(error.abs() < 0.001, "{bits_per_sec} bit/s, {late_ns} ns late: {error:+.5}");
            }
        }
    }

    #[test]
    fn counting_often_loses_nothing() {
        // An eighth of a byte per microsecond.
        let (mut slot, mut bucket, pace) = (bucket_slot(), Bucket::default(), pace(1_000_000));
        drain(&mut slot, &mut bucket, Time::ZERO, &pace, 1);
        let early = (1..9_600).all(|us| slot.wait_until(&mut bucket, Time::from_micros(us), &pace).is_some());
        assert!(early, "no packet before its time");
        assert_eq!(slot.wait_until(&mut bucket, Time::from_micros(9_600), &pace), None);
    }

    #[test]
    fn one_packet_at_a_time_on_a_slow_path() {
        let (mut slot, mut bucket, pace) = (bucket_slot(), Bucket::default(), pace(1_000_000));
        let (first, mut now) = drain(&mut slot, &mut bucket, Time::from_millis(5), &pace, 1);
        assert_eq!(first, 2 * PACKET, "a burst at the start");
        for _ in 0..20 {
            let (sent, next) = drain(&mut slot, &mut bucket, now, &pace, 1);
            assert_eq!(sent, PACKET);
            assert_eq!(next.since(now), Duration::from_micros(9_600));
            now = next;
        }
    }

    #[test]
    fn idleness_earns_one_burst_and_no_more() {
        let burst = 10 * PACKET;
        for idle in [Duration::from_millis(20), Duration::from_secs(3600)] {
            let (mut slot, mut bucket, pace) = (bucket_slot(), Bucket::default(), pace(100_000_000));
            let (first, at) = drain(&mut slot, &mut bucket, Time::ZERO, &pace, 44);
            assert_eq!(first, burst);
            let (again, _) = drain(&mut slot, &mut bucket, at + idle, &pace, 44);
            assert_eq!(again, burst, "after {idle:?}");
        }
    }

    #[test]
    fn congestion_control_says_the_burst() {
        let (mut slot, mut bucket) = (bucket_slot(), Bucket::default());
        let pace = Pace { burst_bytes: Some(54 * PACKET), ..pace(10_000_000_000) };
        assert_eq!(drain(&mut slot, &mut bucket, Time::ZERO, &pace, 44).0, 54 * PACKET);
        let small = Pace { burst_bytes: Some(1), ..pace };
        let (mut slot, mut bucket) = (bucket_slot(), Bucket::default());
        assert_eq!(
            drain(&mut slot, &mut bucket, Time::ZERO, &small, 44).0,
            PACKET,
            "never less than a packet"
        );
    }

    #[test]
    fn on_short_paths_a_burst_is_a_batch_whatever_the_rate() {
        for (rtt_us, packets) in
            [(0, 2), (1, 40), (511, 40), (700, 20), (1_200, 10), (1_600, 2), (60_000_000, 2)]
        {
            let (mut slot, mut bucket) = (bucket_slot(), Bucket::default());
            let pace = Pace { rtt_min: Duration::from_micros(rtt_us), ..pace(1_000_000) };
            let (sent, at) = drain(&mut slot, &mut bucket, Time::ZERO, &pace, 44);
            assert_eq!(sent, packets * PACKET, "{rtt_us} us");
            // The rate is kept all the same.
            let (next, _) = drain(&mut slot, &mut bucket, at, &pace, 44);
            assert!(next * 8 * 1_000 <= at.as_nanos() + 8_000_000, "{next} after {at:?}");
        }
    }

    #[test]
    fn a_batch_sent_ahead_is_paid_back() {
        let (mut slot, mut bucket, pace) = (bucket_slot(), Bucket::default(), pace(100_000_000));
        assert_eq!(slot.wait_until(&mut bucket, Time::ZERO, &pace), None);
        slot.on_sent(&mut bucket, Time::ZERO, 125_000, &pace);
        assert!(bucket.tokens < 0);
        let at = slot.wait_until(&mut bucket, Time::ZERO, &pace).expect("in debt");
        // 125 kB take 10 ms, of which the burst of 12 kB was free; then half a burst is waited for.
        assert_eq!(at, Time::from_nanos((125_000 - 12_000 + 6_000) * 80));
    }

    #[test]
    fn without_a_rate_nothing_waits_and_with_rate_zero_nothing_leaves() {
        let (mut slot, mut bucket) = (bucket_slot(), Bucket::default());
        let open = Pace { rate: None, ..pace(1) };
        assert_eq!(slot.wait_until(&mut bucket, Time::ZERO, &open), None);
        assert_eq!(slot.batch_bytes(&bucket, &open), u64::MAX);
        slot.on_sent(&mut bucket, Time::ZERO, u64::MAX, &open);
        let shut = Pace { rate: Some(Rate::default()), ..open };
        assert_eq!(slot.wait_until(&mut bucket, Time::from_millis(1), &shut), Some(Time::NEVER));
    }

    #[test]
    fn an_exchange_grants_no_second_burst() {
        let pace = pace(100_000_000);
        let (mut slot, mut bucket) = (bucket_slot(), Bucket::default());
        drain(&mut slot, &mut bucket, Time::ZERO, &pace, 44);
        assert_eq!(drain(&mut bucket_slot(), &mut bucket, Time::ZERO, &pace, 44).0, 0);
        let mut none = Slot::build(&MECHANISMS[0].choice(), ()).expect("mandatory");
        let now = Time::from_millis(50);
        assert_eq!(none.wait_until(&mut bucket, now, &pace), None);
        none.on_sent(&mut bucket, now, PACKET, &pace);
        let (sent, at) = drain(&mut bucket_slot(), &mut bucket, now, &pace, 44);
        assert_eq!(sent, 0, "what left without rate control earned nothing");
        assert!(at.since(now) <= Duration::from_millis(1), "and the successor does not stall");
    }

    /// Conformance: a promised instant is in the future and is kept; with a rate, no stretch of
    /// time carries more than the rate, a burst and what lateness allows. Rates, sizes, lateness
    /// and idle times are arbitrary.
    #[test]
    fn promises_are_kept_and_bursts_bounded() {
        for seed in 0..300 {
            for m in MECHANISMS {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let mut slot = Slot::build(&m.choice(), ()).expect(m.name);
                let mut bucket = Bucket::default();
                let rate = Rate::from_bytes_per_sec(1 << rng.random_range(10..34));
                let pace = Pace { rate: Some(rate), ..pace(0) };
                let (mut now, mut start, mut sent) = (Time::from_millis(1), None, 0);
                for _ in 0..200 {
                    match slot.wait_until(&mut bucket, now, &pace) {
                        None => {
                            let bytes = rng.random_range(1..=slot.batch_bytes(&bucket, &pace).min(PACKET));
                            slot.on_sent(&mut bucket, now, bytes, &pace);
                            sent += bytes;
                        }
                        Some(at) => {
                            assert!(at > now, "{}, seed {seed}", m.name);
                            assert_eq!(
                                slot.wait_until(&mut bucket, at, &pace),
                                None,
                                "{}, seed {seed}",
                                m.name
                            );
                            now = at + Duration::from_nanos(1 << rng.random_range(0..30));
                        }
                    }
                    let start = *start.get_or_insert(now);
                    let bound = 11 * PACKET + rate.bytes_in(now.since(start) + LATE_MAX);
                    assert!(
                        !m.promises(Promise::Rate) || sent <= bound,
                        "{}, seed {seed}: {sent} > {bound}",
                        m.name
                    );
                }
            }
        }
    }
}
