//! The meter: from what is acknowledged and lost to path facts.

use super::cause::{self, Cause, Low};
use core::time::Duration;
use std::collections::VecDeque;
use uts_functions::congestion::RateSample;
use uts_functions::timing::RoundTrip;
use uts_functions::{PathFacts, Rate, Time};

/// Loss figures rest on this many of the latest packets at least, so that a burst or two do not
/// look like a regime.
const WINDOW_PACKETS: u32 = 1500;

/// … cut into this many slots, the oldest of which is dropped as a new one begins.
const SLOTS: usize = 10;

/// No slot is filled for longer: a sender of little learns within ten seconds, too, that the path
/// has changed.
const SLOT_TIME: Duration = Duration::from_secs(1);

/// Rarer losses than this many in a window rest on a longer memory: where 12 MB are in flight, one
/// loss in 10,000 packets costs CUBIC nine tenths of the rate, and a window that holds one now and
/// then tells nothing of it.
const RARE_LOSSES: u32 = 2;

/// So many in a window are another regime, of which the long memory knows nothing.
const FREQUENT_LOSSES: u32 = 5;

/// The long memory counts from this many packets on, and halves what it holds at as many as that.
const MEMORY_PACKETS_MIN: u32 = 2 * WINDOW_PACKETS;
const MEMORY_PACKETS_MAX: u32 = 1 << 17;

/// The delivery rate is the largest of this many round trips (draft-ietf-ccwg-bbr:
/// BBR.MaxBwFilterLen in spirit).
const CAPACITY_ROUNDS: u32 = 10;

/// A queue shorter than this says nothing of the path's limit.
const QUEUE_MIN: Duration = Duration::from_millis(3);

/// More in a row are no losses but a hole: nothing has passed for a while, which no mechanism could
/// have changed. Bursts of eight on average are longer once in 5,000.
const HOLE_PACKETS: u32 = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    packets: u32,
    lost: u32,
    bursts: u32,
    /// Of those lost, the ones that left while the application sent less than it could.
    unhurried: u32,
    /// Of the others, those that stand low ([`Low`]).
    low: Low,
}

impl Slot {
    fn and(self, other: Slot) -> Slot {
        Slot {
            packets: self.packets.saturating_add(other.packets),
            lost: self.lost.saturating_add(other.lost),
            bursts: self.bursts.saturating_add(other.bursts),
            unhurried: self.unhurried.saturating_add(other.unhurried),
            low: self.low.and(other.low),
        }
    }

    fn half(self) -> Slot {
        Slot {
            packets: self.packets / 2,
            lost: self.lost / 2,
            bursts: self.bursts / 2,
            unhurried: self.unhurried / 2,
            low: self.low.half(),
        }
    }

    /// Share of the losses (0..=1) that are congestion's. Of a sender that takes what it can get
    /// all are until shown to be the medium's; then twice as many are the medium's as stand low,
    /// for those are spread evenly. Of others none are until shown to go with the queue.
    fn congestive_share(self, cause: Option<&Cause>) -> f64 {
        if self.lost == 0 {
            return 0.0;
        }
        let hurried = self.lost.saturating_sub(self.unhurried);
        let low = 2.0 * self.low.queue.min(self.low.flight) + (hurried as f32).sqrt();
        let of_hurried = if cause.is_some_and(Cause::is_mediums) { low.min(hurried as f32) } else { 0.0 };
        let of_unhurried = if cause.is_some_and(Cause::goes_with_queue) { 0 } else { self.unhurried };
        (1.0 - (f64::from(of_hurried) + f64::from(of_unhurried)) / f64::from(self.lost)).clamp(0.0, 1.0)
    }
}

/// A packet that is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostPacket {
    pub number: u64,
    pub sent_at: Time,
    /// Bytes in flight just after it left.
    pub in_flight: u64,
    pub bytes: u64,
}

/// Losses that are not counted yet: in a row, so that they may be part of an outage; or larger than
/// what has arrived since, so that such packets may not fit.
#[derive(Debug, Default)]
struct Pending {
    row: Slot,
    /// When the first and the last of the row left, in milliseconds, which wrap.
    first_at_ms: u32,
    last_at_ms: u32,
    /// Of rows that have ended.
    ended: Slot,
    /// The largest of all these packets, and the last number.
    bytes: u64,
    number: u64,
}

impl Pending {
    /// The row has ended. What spans more than a round trip is an outage: a repeat comes sooner
    /// than any code could have spanned it.
    fn end_row(&mut self, rtt: &RoundTrip) {
        let row = core::mem::take(&mut self.row);
        let span = Duration::from_millis(self.last_at_ms.wrapping_sub(self.first_at_ms).into());
        if row.lost <= HOLE_PACKETS && span <= rtt.smoothed + 4 * rtt.deviation {
            self.ended = self.ended.and(row);
        }
    }
}

/// Judgement of losses: losses that may not count, and their cause.
#[derive(Debug, Default)]
struct Doubts {
    pending: Pending,
    cause: Cause,
}

/// Gathers path facts of one direction at its sender.
#[derive(Debug)]
pub(crate) struct Meter {
    slots: VecDeque<Slot>,
    /// Sum of the slots that left the window while losses were rare.
    memory: Slot,
    /// When the newest slot began, in milliseconds, which wrap.
    slot_at_ms: u32,
    /// The number behind the last loss; 0 = none so far.
    behind_lost: u64,
    /// None at rest.
    doubts: Option<Box<Doubts>>,
    /// Losses of packets below this number are not counted.
    left_out_before: u64,
    rates: VecDeque<(Time, Rate)>,
    queues: VecDeque<(Time, Duration)>,
    samples: u32,
}

impl Meter {
    pub fn new() -> Self {
        Meter {
            slots: VecDeque::from([Slot::default()]),
            memory: Slot::default(),
            slot_at_ms: 0,
            behind_lost: 0,
            doubts: None,
            left_out_before: 0,
            rates: VecDeque::new(),
            queues: VecDeque::new(),
            samples: 0,
        }
    }

    /// A quiet while has passed. Of the rates of the past the largest is kept, which is all that is
    /// told of them; rare losses go into the long memory, and queues are met anew.
    pub fn shrink(&mut self) {
        self.rates.truncate(1);
        self.queues.clear();
        let all = self.window();
        if all.lost < RARE_LOSSES {
            self.memory = self.memory.and(all);
        }
        self.slots.clear();
        self.slots.shrink_to_fit();
        self.rates.shrink_to_fit();
        self.queues.shrink_to_fit();
        self.doubts = None;
    }

    pub fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.rates.capacity() * size_of::<(Time, Rate)>()
            + self.queues.capacity() * size_of::<(Time, Duration)>()
            + self.doubts.as_ref().map_or(0, |doubts| size_of_val(&**doubts) + doubts.cause.heap_bytes())
    }

    fn slot(&mut self, now: Time) -> &mut Slot {
        let is_old = now.since_wrapped(self.slot_at_ms) >= SLOT_TIME;
        let is_full = |slot: &Slot| slot.packets >= WINDOW_PACKETS / SLOTS as u32;
        if self.slots.back().is_none_or(|slot| is_full(slot) || (is_old && slot.packets > 0)) {
            self.slot_at_ms = now.wrapping_millis();
            let mut is_rare = self.window().lost < FREQUENT_LOSSES;
            let oldest = if self.slots.len() >= SLOTS { self.slots.pop_front() } else { None };
            let oldest = oldest.unwrap_or_default();
            is_rare &= oldest.lost < RARE_LOSSES;
            self.memory = if is_rare { self.memory.and(oldest) } else { Slot::default() };
            if self.memory.packets >= MEMORY_PACKETS_MAX {
                self.memory = self.memory.half();
            }
            self.slots.push_back(Slot::default());
        }
        let last = self.slots.len() - 1;
        &mut self.slots[last]
    }

    fn doubts(&mut self) -> &mut Doubts {
        self.doubts.get_or_insert_default()
    }

    /// Packets that arrived.
    pub fn on_acknowledged(&mut self, now: Time, packets: u64, sample: &RateSample, rtt: &RoundTrip) {
        let count = u32::try_from(packets).unwrap_or(u32::MAX);
        self.samples = self.samples.saturating_add(count);
        let slot = self.slot(now);
        slot.packets = slot.packets.saturating_add(count);
        self.doubts().cause.on_acknowledged(now, count, sample.tx_in_flight, rtt);
        if sample.rate > Rate::default() && !sample.app_limited {
            push_max(&mut self.rates, now, sample.rate, rtt.smoothed * CAPACITY_ROUNDS);
        }
        let queue = rtt.latest.saturating_sub(rtt.min);
        push_max(&mut self.queues, now, queue, Duration::from_secs(10));
    }

    /// The largest packet of a report, and the newest number in it: losses before it are counted if
    /// none of them was larger.
    pub fn on_arrived(&mut self, now: Time, (number, bytes): (u64, u64), rtt: &RoundTrip) {
        let pending = &mut self.doubts().pending;
        if pending.number >= number || pending.bytes > bytes {
            return;
        }
        pending.end_row(rtt);
        let Pending { ended, .. } = core::mem::take(pending);
        if ended.lost > 0 {
            self.samples = self.samples.saturating_add(ended.lost);
            let slot = self.slot(now);
            *slot = slot.and(ended);
        }
    }

    /// Packets as large as before do not fit any more: nothing was lost to the path that waits to
    /// be counted.
    pub fn on_smaller_path(&mut self) {
        self.doubts().pending = Pending::default();
    }

    /// A packet was lost; packets are reported in the order of their numbers within one call of the
    /// ledger. `is_limited`: the application sent less than it could.
    pub fn on_lost(&mut self, now: Time, lost: &LostPacket, is_limited: bool, rtt: &RoundTrip) {
        if lost.number < self.left_out_before {
            return;
        }
        let new_burst = self.behind_lost == 0 || lost.number != self.behind_lost;
        self.behind_lost = lost.number.saturating_add(1);
        let capacity = self.capacity();
        let packet_time =
            if capacity == Rate::default() { Duration::ZERO } else { capacity.time_for(lost.bytes) };
        let in_flight = (!is_limited).then_some(lost.in_flight);
        let Doubts { pending, cause } = self.doubts();
        let low = cause.on_lost(now, in_flight, (lost.bytes, packet_time), rtt);
        if new_burst {
            pending.end_row(rtt);
            pending.first_at_ms = lost.sent_at.wrapping_millis();
        }
        pending.last_at_ms = lost.sent_at.wrapping_millis();
        let unhurried = u32::from(is_limited);
        let one = Slot { packets: 1, lost: 1, bursts: u32::from(new_burst), unhurried, low };
        pending.row = pending.row.and(one);
        pending.bytes = pending.bytes.max(lost.bytes);
        pending.number = pending.number.max(lost.number);
    }

    /// A packet was lost that does not count, for it asks for no acknowledgement, or asks how large
    /// a packet may be. What is lost before and behind it is lost in a row.
    pub fn on_lost_uncounted(&mut self, number: u64) {
        if number == self.behind_lost {
            self.behind_lost = number.saturating_add(1);
        }
    }

    /// The search for the path's limit has ended with a loss, before packet `number` was sent.
    /// Where packets wait, losses of packets below it do not count: a sender that doubles overruns
    /// any path by as much as that holds.
    pub fn on_search_ended(&mut self, now: Time, number: u64, rtt: &RoundTrip) {
        self.doubts().cause.on_search_ended(now);
        if rtt.latest.saturating_sub(rtt.min) >= cause::NOISE_MIN {
            self.left_out_before = number;
        }
    }

    /// A packet that was counted as lost had only come late.
    pub fn on_spurious(&mut self) {
        let pending = self.doubts.as_mut().map(|doubts| &mut doubts.pending);
        let pending = pending.and_then(|p| [&mut p.row, &mut p.ended].into_iter().find(|slot| slot.lost > 0));
        let Some(slot) = pending.or(self.slots.back_mut()) else { return };
        slot.lost = slot.lost.saturating_sub(1);
        slot.bursts = slot.bursts.saturating_sub(1);
        slot.unhurried = slot.unhurried.min(slot.lost);
    }

    /// True if packets were seen to wait for each other lately: else nobody has met the path's
    /// limit.
    pub fn has_seen_queue(&self, rtt: &RoundTrip) -> bool {
        let deepest = self.queues.front().map_or(Duration::ZERO, |(_, queue)| *queue);
        deepest >= QUEUE_MIN.max(rtt.min / 8)
    }

    fn window(&self) -> Slot {
        self.slots.iter().copied().fold(Slot::default(), Slot::and)
    }

    /// The packets that losses are told from.
    fn evidence(&self) -> Slot {
        let window = self.window();
        let all = window.and(self.memory);
        if window.lost < RARE_LOSSES && all.packets >= MEMORY_PACKETS_MIN { all } else { window }
    }

    /// Rate that the path has been seen to deliver; zero = nothing so far.
    pub fn capacity(&self) -> Rate {
        self.rates.front().map_or(Rate::default(), |(_, rate)| *rate)
    }

    /// Facts of the path, as far as they are known.
    pub fn facts(&self, rtt: &RoundTrip, packet_bytes: u64) -> PathFacts {
        let sum = self.evidence();
        let share = |part: u32, whole: u32| if whole == 0 { 0.0 } else { f64::from(part) / f64::from(whole) };
        PathFacts {
            rtt_min: rtt.min,
            rtt_smoothed: rtt.smoothed,
            rtt_deviation: rtt.deviation,
            capacity: self.capacity(),
            loss: share(sum.lost, sum.packets),
            losses: u64::from(sum.lost),
            loss_burst: share(sum.lost, sum.bursts).max(1.0),
            loss_congestive: sum.congestive_share(self.doubts.as_ref().map(|doubts| &doubts.cause)),
            mtu_bytes: packet_bytes,
            samples: u64::from(self.samples),
            ..PathFacts::default()
        }
    }
}

/// Keeps a descending list of recent values, the largest of the last `window` in front.
fn push_max<V: PartialOrd + Copy>(list: &mut VecDeque<(Time, V)>, now: Time, value: V, window: Duration) {
    while list.back().is_some_and(|(_, last)| *last <= value) {
        list.pop_back();
    }
    list.push_back((now, value));
    while list.len() > 1 && list.front().is_some_and(|(at, _)| now.since(*at) > window) {
        list.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(latest_ms: u64) -> RoundTrip {
        let ms = Duration::from_millis;
        let mut rtt = RoundTrip::default();
        (rtt.latest, rtt.smoothed, rtt.min) = (ms(latest_ms), ms(latest_ms), ms(40));
        rtt.deviation = ms(1);
        rtt
    }

    /// Packets of 1200 bytes with these numbers are lost, each sent `every_ms` after the one
    /// before.
    fn lose(meter: &mut Meter, now: Time, numbers: core::ops::Range<u64>, every_ms: u64) {
        let first = numbers.start;
        for number in numbers {
            let sent_at = now + Duration::from_millis(every_ms * (number - first));
            let lost = LostPacket { number, sent_at, in_flight: 12_000, bytes: 1200 };
            meter.on_lost(now, &lost, true, &round_trip(41));
        }
    }

    /// So many packets arrive, the last of which has this number.
    fn arrive(meter: &mut Meter, now: Time, packets: u64, number: u64, bytes: u64) {
        meter.on_acknowledged(now, packets, &RateSample::default(), &round_trip(41));
        meter.on_arrived(now, (number, bytes), &round_trip(41));
    }

    #[test]
    fn bursts_are_told_from_single_losses() {
        let (mut meter, now) = (Meter::new(), Time::from_millis(2));
        [10, 50].into_iter().for_each(|first| lose(&mut meter, now, first..first + 3, 1));
        arrive(&mut meter, now, 94, 100, 1200);
        let facts = meter.facts(&round_trip(45), 1200);
        assert!((facts.loss - 0.06).abs() < 1e-9, "{facts:?}");
        assert!((facts.loss_burst - 3.0).abs() < 1e-9, "{facts:?}");
    }

    /// 0.01 % is told for what it is, neither as nothing nor as a loss in a window; more than that
    /// comes from the window.
    #[test]
    fn rare_losses_are_remembered_and_frequent_ones_forgotten() {
        let (mut meter, rtt) = (Meter::new(), round_trip(41));
        let at = Time::from_millis;
        for i in 0..40 {
            if i % 10 == 9 {
                lose(&mut meter, at(i), 1000 * i..1000 * i + 1, 1);
            }
            arrive(&mut meter, at(i), 1000, 1000 * i + 999, 1200);
        }
        let loss = meter.facts(&rtt, 1200).loss;
        assert!((0.00007..0.00013).contains(&loss), "{loss}");
        for i in 0..30 {
            lose(&mut meter, at(50 + i), 50_000 + 50 * i..50_001 + 50 * i, 1);
            arrive(&mut meter, at(50 + i), 50, 50_049 + 50 * i, 1200);
        }
        let loss = meter.facts(&rtt, 1200).loss;
        assert!((0.015..0.025).contains(&loss), "{loss}");
        for i in 0..60 {
            arrive(&mut meter, at(100 + i), 100, 60_000 + 100 * i, 1200);
        }
        let loss = meter.facts(&rtt, 1200).loss;
        assert!(loss < 0.0002, "{loss}, of another regime");
    }

    /// A memory that is full keeps the share of what was lost.
    #[test]
    fn a_long_memory_does_not_end() {
        let (mut meter, rtt) = (Meter::new(), round_trip(41));
        for i in 1..=3 * u64::from(MEMORY_PACKETS_MAX) / 1000 {
            let now = Time::from_millis(i);
            if i % 10 == 0 {
                lose(&mut meter, now, 1000 * i..1000 * i + 1, 1);
            }
            arrive(&mut meter, now, 1000, 1000 * i + 999, 1200);
            assert!(meter.memory.packets < MEMORY_PACKETS_MAX);
        }
        let loss = meter.facts(&rtt, 1200).loss;
        assert!((0.00007..0.00013).contains(&loss), "{loss}");
    }

    /// While a mobile host changes its cell nothing passes, be it for a quarter of a second: that
    /// is no share of packets that the path loses, however few were sent.
    #[test]
    fn an_outage_is_no_loss() {
        let mut meter = Meter::new();
        (0..10).for_each(|i| arrive(&mut meter, Time::from_millis(i), 100, i, 1200));
        let now = Time::from_millis(20);
        lose(&mut meter, now, 1000..1010, 1);
        arrive(&mut meter, now, 1, 1010, 1200);
        let before = meter.facts(&round_trip(41), 1200);
        assert!((0.008..0.012).contains(&before.loss), "{before:?}");
        // Many packets, few over as long as that takes, and probes that are ever further apart.
        for (numbers, every_ms) in [(2000..2300, 1), (3000..3040, 20), (4000..4004, 60)] {
            let behind = numbers.end;
            lose(&mut meter, now, numbers, every_ms);
            arrive(&mut meter, now, 1, behind, 1200);
            let after = meter.facts(&round_trip(41), 1200);
            assert!((after.loss - before.loss).abs() < 0.0002, "{before:?}, {after:?}");
        }
        lose(&mut meter, now, 5000..5007, 5);
        arrive(&mut meter, now, 1, 5007, 1200);
        assert!(meter.facts(&round_trip(41), 1200).loss > before.loss + 0.004, "so few are losses");
    }

    /// Packets that do not fit any more are lost, all of them, while smaller ones arrive.
    #[test]
    fn packets_that_are_too_large_are_not_lost_to_the_path() {
        let mut meter = Meter::new();
        arrive(&mut meter, Time::ZERO, 100, 99, 1400);
        for i in 1..5 {
            let now = Time::from_millis(50 * i);
            for number in 100 * i..100 * i + 6 {
                let lost = LostPacket { number, sent_at: now, in_flight: 9_000, bytes: 1400 };
                meter.on_lost(now, &lost, true, &round_trip(41));
            }
            arrive(&mut meter, now, 1, 100 * i + 6, 700);
            assert_eq!(meter.facts(&round_trip(41), 1200).losses, 0, "they may not fit");
        }
        let mut smaller = meter;
        smaller.on_smaller_path();
        arrive(&mut smaller, Time::from_millis(300), 10, 1000, 1300);
        assert_eq!(smaller.facts(&round_trip(41), 1200).losses, 0);
        lose(&mut smaller, Time::from_millis(400), 1001..1003, 1);
        arrive(&mut smaller, Time::from_millis(400), 1, 1003, 1200);
        assert_eq!(smaller.facts(&round_trip(41), 1200).losses, 2, "as large ones arrive");
    }

    /// A sender of a few packets in a second learns within ten seconds that losses have ended.
    #[test]
    fn losses_are_forgotten_in_time_too() {
        let (mut meter, rtt) = (Meter::new(), round_trip(41));
        for i in 0..2_000 {
            let now = Time::from_millis(20 * i);
            if i < 1_000 && i % 10 == 0 {
                lose(&mut meter, now, i..i + 1, 1);
            } else {
                arrive(&mut meter, now, 1, i, 1200);
            }
            let loss = meter.facts(&rtt, 1200).loss;
            assert!(!(600..1_000).contains(&i) || (0.08..0.12).contains(&loss), "{loss} at {now:?}");
            assert!(i < 1_600 || loss < 0.01, "{loss} at {now:?}");
        }
    }

    #[test]
    fn a_burst_is_forgotten() {
        let mut meter = Meter::new();
        lose(&mut meter, Time::ZERO, 1..4, 1);
        (0..40).for_each(|i| arrive(&mut meter, Time::from_millis(i), 100, 100 + 100 * i, 1200));
        assert_eq!(meter.facts(&round_trip(41), 1200).loss, 0.0);
    }
}
