//! The meter: from what is acknowledged and lost to path facts.

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

/// No slot is filled for longer: who sends little learns within ten seconds, too, that the path has
/// changed.
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

/// Losses whose queueing delay was above this share of the largest seen met a queue that was nearly
/// full.
const FULL_QUEUE: f64 = 0.7;

/// A queue shorter than this says nothing of the path's limit.
const QUEUE_MIN: Duration = Duration::from_millis(3);

/// A buffer of ten packets, which is full at each loss, adds little more to a round trip on a fast
/// path; hosts vary by less.
const SHALLOW_QUEUE_MIN: Duration = Duration::from_micros(500);

/// From so many packets that met no full queue (and a twentieth of all) it is told how many are
/// lost without one.
const UNQUEUED_MIN: u32 = 60;

/// More in a row are no losses but a hole: nothing has passed for a while, which no mechanism could
/// have changed. Bursts of eight on average are longer once in 5,000.
const HOLE_PACKETS: u16 = 64;

/// The same of who sends few: nothing has passed for so long, nor of so many packets. No code spans
/// as much.
const HOLE_TIME_MS: u16 = 300;
const HOLE_PACKETS_MIN: u16 = 8;

/// What is lost in a row is a hole.
const HOLE: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    packets: u32,
    lost: u32,
    bursts: u32,
    congestive: u32,
    /// Packets that met no full queue, those that were lost included.
    unqueued: u32,
}

impl Slot {
    fn and(self, other: Slot) -> Slot {
        Slot {
            packets: self.packets.saturating_add(other.packets),
            lost: self.lost.saturating_add(other.lost),
            bursts: self.bursts.saturating_add(other.bursts),
            congestive: self.congestive.saturating_add(other.congestive),
            unqueued: self.unqueued.saturating_add(other.unqueued),
        }
    }

    fn half(self) -> Slot {
        Slot {
            packets: self.packets / 2,
            lost: self.lost / 2,
            bursts: self.bursts / 2,
            congestive: self.congestive / 2,
            unqueued: self.unqueued / 2,
        }
    }

    /// Share of the losses (0..=1) that congestion may have caused: what is lost beyond the share
    /// of those that met no full queue. Losses of the medium hit packets in a queue as often, which
    /// that does not take for congestion.
    fn congestive_share(self) -> f64 {
        if self.lost == 0 {
            return 0.0;
        }
        if self.unqueued < UNQUEUED_MIN.max(self.packets / 20) {
            return f64::from(self.congestive) / f64::from(self.lost);
        }
        let without = f64::from(self.lost.saturating_sub(self.congestive)) / f64::from(self.unqueued);
        let all = f64::from(self.lost) / f64::from(self.packets.max(1));
        (1.0 - without / all).clamp(0.0, 1.0)
    }
}

/// Gathers path facts of one direction at its sender.
#[derive(Debug)]
pub(crate) struct Meter {
    slots: VecDeque<Slot>,
    /// What left the window while losses were rare.
    memory: Slot,
    /// When the newest slot began, in milliseconds, which wrap.
    slot_at_ms: u32,
    /// How many in a row were lost last ([`HOLE`]: so many that they are a hole), and the number
    /// behind them; 0 = none so far.
    in_row: u16,
    behind_lost: u64,
    /// When the first of them was sent, in milliseconds, which wrap after a minute.
    row_at_ms: u16,
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
            in_row: 0,
            behind_lost: 0,
            row_at_ms: 0,
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
    }

    pub fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.rates.capacity() * size_of::<(Time, Rate)>()
            + self.queues.capacity() * size_of::<(Time, Duration)>()
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

    /// Packets that arrived.
    pub fn on_acknowledged(&mut self, now: Time, packets: u64, sample: &RateSample, rtt: &RoundTrip) {
        // Who could send more is not the cause of a queue: what burst it sends waits for itself.
        let meets_queue = !sample.app_limited && self.meets_queue(rtt);
        let count = u32::try_from(packets).unwrap_or(u32::MAX);
        self.samples = self.samples.saturating_add(count);
        let slot = self.slot(now);
        slot.packets = slot.packets.saturating_add(count);
        slot.unqueued = slot.unqueued.saturating_add(if meets_queue { 0 } else { count });
        if sample.rate > Rate::default() && !sample.app_limited {
            push_max(&mut self.rates, now, sample.rate, rtt.smoothed * CAPACITY_ROUNDS);
        }
        let queue = rtt.latest.saturating_sub(rtt.min);
        push_max(&mut self.queues, now, queue, Duration::from_secs(10));
    }

    /// Whether packets meet a queue that is nearly as deep as any lately.
    fn meets_queue(&self, rtt: &RoundTrip) -> bool {
        let queue = rtt.latest.saturating_sub(rtt.min);
        let deepest = self.queues.front().map_or(Duration::ZERO, |(_, queue)| *queue);
        queue >= SHALLOW_QUEUE_MIN && queue.as_secs_f64() >= FULL_QUEUE * deepest.as_secs_f64()
    }

    /// A packet was lost that left at `sent_at`; packets are reported in the order of their numbers
    /// within one call of the ledger. `is_limited`: the application sent less than it could.
    pub fn on_lost(&mut self, now: Time, (number, sent_at): (u64, Time), is_limited: bool, rtt: &RoundTrip) {
        if number < self.left_out_before {
            return;
        }
        let congestive = !is_limited && self.meets_queue(rtt);
        let new_burst = self.behind_lost == 0 || number != self.behind_lost;
        self.behind_lost = number.saturating_add(1);
        let sent_at_ms = sent_at.wrapping_millis() as u16;
        if new_burst {
            (self.in_row, self.row_at_ms) = (0, sent_at_ms);
        }
        let is_long =
            self.in_row >= HOLE_PACKETS_MIN && sent_at_ms.wrapping_sub(self.row_at_ms) >= HOLE_TIME_MS;
        if self.in_row != HOLE && (self.in_row >= HOLE_PACKETS || is_long) {
            self.forget_row();
            self.in_row = HOLE;
        }
        if self.in_row == HOLE {
            return;
        }
        self.in_row += 1;
        self.samples = self.samples.saturating_add(1);
        let slot = self.slot(now);
        slot.packets += 1;
        slot.lost += 1;
        slot.bursts += u32::from(new_burst);
        slot.congestive += u32::from(congestive);
        slot.unqueued += u32::from(!congestive);
    }

    /// A packet was lost that does not count, for it asks for no acknowledgement, or asks how large
    /// a packet may be. What is lost before and behind it is lost in a row.
    pub fn on_lost_uncounted(&mut self, number: u64) {
        if number == self.behind_lost {
            self.behind_lost = number.saturating_add(1);
        }
    }

    /// Whether packets wait for each other now.
    pub fn has_queue(&self, rtt: &RoundTrip) -> bool {
        rtt.latest.saturating_sub(rtt.min) >= SHALLOW_QUEUE_MIN
    }

    /// Losses of packets below this number do not count: a sender that doubles overruns any path by
    /// as much as that holds.
    pub fn leave_out_before(&mut self, number: u64) {
        self.left_out_before = number;
    }

    /// What was counted of a run of losses is none.
    fn forget_row(&mut self) {
        let mut left = u32::from(self.in_row);
        for slot in self.slots.iter_mut().rev() {
            let lost = slot.lost.min(left);
            left -= lost;
            let congestive = slot.congestive.min(lost);
            slot.lost -= lost;
            slot.packets = slot.packets.saturating_sub(lost);
            slot.congestive -= congestive;
            slot.unqueued = slot.unqueued.saturating_sub(lost - congestive);
            if left == 0 {
                // Here it began.
                slot.bursts = slot.bursts.saturating_sub(1);
                break;
            }
        }
        self.samples = self.samples.saturating_sub(u32::from(self.in_row));
    }

    /// A packet that was counted as lost had only come late.
    pub fn on_spurious(&mut self) {
        let Some(slot) = self.slots.back_mut() else { return };
        slot.lost = slot.lost.saturating_sub(1);
        slot.bursts = slot.bursts.saturating_sub(1);
        slot.congestive = slot.congestive.saturating_sub(1);
    }

    /// Whether packets were seen to wait for each other lately: else nobody has met the path's
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

    /// What the path has been seen to deliver; zero = nothing so far.
    pub fn capacity(&self) -> Rate {
        self.rates.front().map_or(Rate::default(), |(_, rate)| *rate)
    }

    /// What is known of the path.
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
            loss_congestive: sum.congestive_share(),
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
        rtt
    }

    #[test]
    fn bursts_and_their_causes_are_told_apart() {
        let mut meter = Meter::new();
        let sample = RateSample::default();
        meter.on_acknowledged(Time::from_millis(1), 94, &sample, &round_trip(60));
        for number in [10, 11, 12, 50, 51, 52] {
            meter.on_lost(
                Time::from_millis(2),
                (number, Time::from_millis(number)),
                false,
                &round_trip(if number < 20 { 59 } else { 41 }),
            );
        }
        let facts = meter.facts(&round_trip(45), 1200);
        assert!((facts.loss - 0.06).abs() < 1e-9, "{facts:?}");
        assert!((facts.loss_burst - 3.0).abs() < 1e-9, "{facts:?}");
        assert!((facts.loss_congestive - 0.5).abs() < 1e-9, "{facts:?}");
    }

    /// 0.01 % is told for what it is, neither as nothing nor as a loss in a window; more than that
    /// comes from the window.
    #[test]
    fn rare_losses_are_remembered_and_frequent_ones_forgotten() {
        let (mut meter, rtt) = (Meter::new(), round_trip(41));
        for i in 0..40 {
            meter.on_acknowledged(Time::from_millis(i), 1000, &RateSample::default(), &rtt);
            if i % 10 == 9 {
                meter.on_lost(Time::from_millis(i), (1000 * i, Time::from_millis(i)), false, &rtt);
            }
        }
        let loss = meter.facts(&rtt, 1200).loss;
        assert!((0.00007..0.00013).contains(&loss), "{loss}");
        for i in 0..30 {
            meter.on_acknowledged(Time::from_millis(50 + i), 50, &RateSample::default(), &rtt);
            meter.on_lost(
                Time::from_millis(50 + i),
                (50_000 + 50 * i, Time::from_millis(50 + i)),
                false,
                &rtt,
            );
        }
        let loss = meter.facts(&rtt, 1200).loss;
        assert!((0.015..0.025).contains(&loss), "{loss}");
        for i in 0..60 {
            meter.on_acknowledged(Time::from_millis(100 + i), 100, &RateSample::default(), &rtt);
        }
        let loss = meter.facts(&rtt, 1200).loss;
        assert!(loss < 0.0002, "{loss}, of another regime");
    }

    /// A memory that is full keeps the share of what was lost.
    #[test]
    fn a_long_memory_does_not_end() {
        let (mut meter, rtt) = (Meter::new(), round_trip(41));
        for i in 1..=3 * u64::from(MEMORY_PACKETS_MAX) / 1000 {
            meter.on_acknowledged(Time::from_millis(i), 1000, &RateSample::default(), &rtt);
            if i % 10 == 0 {
                meter.on_lost(Time::from_millis(i), (1000 * i, Time::from_millis(i)), false, &rtt);
            }
            assert!(meter.memory.packets < MEMORY_PACKETS_MAX);
        }
        let loss = meter.facts(&rtt, 1200).loss;
        assert!((0.00007..0.00013).contains(&loss), "{loss}");
    }

    /// Which share of the losses is told to be congestion's, where a packet meets such a queue, and
    /// is lost as that says.
    fn congestive(queue_us: impl Fn(u64) -> u64, is_lost: impl Fn(u64, u64) -> bool) -> f64 {
        let mut meter = Meter::new();
        for number in 0..1400 {
            let now = Time::from_millis(number);
            let queue = queue_us(number);
            let mut rtt = round_trip(40);
            rtt.latest += Duration::from_micros(queue);
            if is_lost(number, queue) {
                meter.on_lost(now, (number, now), false, &rtt);
            } else {
                meter.on_acknowledged(now, 1, &RateSample::default(), &rtt);
            }
        }
        meter.facts(&round_trip(41), 1200).loss_congestive
    }

    /// A buffer of ten packets at 86 Mbit/s adds 1.4 ms at most. What is lost when it is full is
    /// lost to congestion; where as many are lost whatever the queue, they are not, though some
    /// meet it full.
    #[test]
    fn a_shallow_buffer_is_told_from_losses_of_the_medium() {
        let saw = |number: u64| 14 * (number % 100);
        let full = congestive(saw, |number, queue| queue > 1_200 && number % 7 == 0);
        assert!(full > 0.9, "{full}");
        let medium = congestive(saw, |number, _| number % 37 == 0);
        assert!(medium < 0.2, "{medium}");
        let both = congestive(saw, |number, queue| number % 37 == 0 || (queue > 1_200 && number % 4 == 0));
        assert!((0.4..0.8).contains(&both), "{both}");
    }

    /// While a mobile host changes its cell nothing passes: that is no share of packets that the
    /// path loses.
    #[test]
    fn a_hole_is_no_loss() {
        let (mut meter, rtt) = (Meter::new(), round_trip(41));
        for i in 0..10 {
            meter.on_acknowledged(Time::from_millis(i), 100, &RateSample::default(), &rtt);
        }
        let lose = |meter: &mut Meter, numbers: core::ops::Range<u64>, every_ms| {
            for (number, sent_ms) in numbers.zip((0u64..).map(|n| n * every_ms)) {
                meter.on_lost(Time::from_millis(20), (number, Time::from_millis(sent_ms)), false, &rtt);
            }
        };
        lose(&mut meter, 1000..1010, 1);
        let before = meter.facts(&rtt, 1200);
        // Many packets, or few over as long as an outage takes.
        for (numbers, every_ms) in [(2000..2300, 1), (3000..3040, 20)] {
            lose(&mut meter, numbers, every_ms);
            let after = meter.facts(&rtt, 1200);
            assert!((after.loss - before.loss).abs() < 0.002, "{before:?}, {after:?}");
            assert!((after.loss_burst - before.loss_burst).abs() < 5.1, "{before:?}, {after:?}");
        }
        lose(&mut meter, 4000..4007, 200);
        assert!(meter.facts(&rtt, 1200).loss > before.loss + 0.004, "so few are losses");
    }

    /// Who sends a few packets in a second learns within ten that losses have ended.
    #[test]
    fn losses_are_forgotten_in_time_too() {
        let (mut meter, rtt) = (Meter::new(), round_trip(41));
        for i in 0..2_000 {
            let now = Time::from_millis(20 * i);
            if i < 1_000 && i % 10 == 0 {
                meter.on_lost(now, (i, now), false, &rtt);
            } else {
                meter.on_acknowledged(now, 1, &RateSample::default(), &rtt);
            }
            let loss = meter.facts(&rtt, 1200).loss;
            assert!(!(600..1_000).contains(&i) || (0.08..0.12).contains(&loss), "{loss} at {now:?}");
            assert!(i < 1_600 || loss < 0.01, "{loss} at {now:?}");
        }
    }

    #[test]
    fn a_burst_is_forgotten() {
        let mut meter = Meter::new();
        (1..4).for_each(|number| meter.on_lost(Time::ZERO, (number, Time::ZERO), false, &round_trip(41)));
        for i in 0..40 {
            meter.on_acknowledged(Time::from_millis(i), 100, &RateSample::default(), &round_trip(41));
        }
        assert_eq!(meter.facts(&round_trip(41), 1200).loss, 0.0);
    }
}
