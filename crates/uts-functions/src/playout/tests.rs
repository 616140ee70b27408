//! All mechanisms of the function, and how they compare.

use super::clock::micros;
use super::*;
use crate::Params;
use crate::sequencing::reassembly::Delivery;
use crate::time::Time;
use bytes::Bytes;

/// Numbers that look random, from a seed (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A message: when it was made and when it arrives, in microseconds of this end's clock.
type Sent = (i64, i64);

fn slot(number: u8, settings: &[(&str, u64)]) -> Slot {
    let mechanism = MECHANISMS[usize::from(number)];
    let choice = crate::Choice { number, params: mechanism.params_within(settings) };
    Slot::build(&choice, ()).expect("in the library")
}

/// Fates of the messages: of those that were in time how long after they were made they were
/// handed over, and when; and how many were late.
#[derive(Debug, Default)]
struct Outcome {
    delays: Vec<i64>,
    handed_at: Vec<i64>,
    late: u64,
    missing: u64,
    held_max: usize,
}

impl Outcome {
    fn mean_ms(&self) -> f64 {
        self.delays.iter().sum::<i64>() as f64 / self.delays.len().max(1) as f64 / 1e3
    }

    fn share(&self) -> f64 {
        self.delays.len() as f64 / (self.delays.len() as u64 + self.late) as f64
    }
}

/// A receiver, whose sender's clock is `skew` microseconds ahead and gains `drift` parts of a
/// million.
struct Receiver {
    clock: Clock,
    buffer: Buffer,
    mechanism: Slot,
    outcome: Outcome,
    skew: i64,
    drift: f64,
}

impl Receiver {
    fn new(mechanism: Slot) -> Self {
        let (clock, buffer, outcome) = (Clock::default(), Buffer::default(), Outcome::default());
        Receiver { clock, buffer, mechanism, outcome, skew: 0, drift: 0.0 }
    }

    fn wire(&self, made: i64) -> u32 {
        (made + self.skew + (made as f64 * self.drift / 1e6) as i64) as u32
    }

    /// Takes in messages in the order of their arrival, and hands over at each instant what is due.
    fn run(&mut self, sent: &[Sent]) {
        let mut order: Vec<usize> = (0..sent.len()).collect();
        order.sort_by_key(|n| sent[*n].1);
        for n in order {
            let (made, arrives) = sent[n];
            self.hand_over(sent, arrives - 1);
            let start = 11 * n as u64;
            self.buffer.note(start, self.wire(made), 0);
            let what = Delivery::Message(start, Bytes::from_static(&[7; 10]));
            let now = Time::from_micros(arrives as u64);
            self.buffer.insert(now, &mut self.clock, &self.mechanism, false, what);
            self.outcome.held_max = self.outcome.held_max.max(self.buffer.load_bytes());
        }
        self.hand_over(sent, i64::MAX / 4);
        self.outcome.late = self.buffer.figures().late;
    }

    fn hand_over(&mut self, sent: &[Sent], until: i64) {
        while let Some(due) = self.buffer.due(&self.clock).filter(|due| micros(*due) <= until) {
            let at = micros(due);
            match self.buffer.pop(due, &self.clock) {
                Some(Next::Data(Delivery::Message(start, _), timing)) => {
                    let (made, arrived) = sent[(start / 11) as usize];
                    let at = at.max(arrived);
                    if timing.is_none_or(|timing| !timing.is_late) {
                        self.outcome.delays.push(at - made);
                        self.outcome.handed_at.push(at);
                    }
                }
                Some(Next::Missing(positions)) => self.outcome.missing += positions / 11,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn outcome(mechanism: Slot, sent: &[Sent]) -> Outcome {
    let mut receiver = Receiver::new(mechanism);
    receiver.run(sent);
    receiver.outcome
}

/// Time that the way takes beyond 30 ms, in microseconds, of a message that is made at `at`.
type Jitter = fn(&mut Random, at: i64) -> i64;

/// Four minutes of messages, one each 20 ms.
fn messages(seed: u64, jitter: Jitter) -> Vec<Sent> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (1..12_000).map(|n| (n * 20_000, n * 20_000 + 30_000 + jitter(&mut random, n * 20_000))).collect()
}

fn exponential(random: &mut Random, mean_us: f64) -> i64 {
    (-(1.0 - random.next()).ln() * mean_us) as i64
}

/// Calm for most of the time, then a queue of others.
fn busy_hours(random: &mut Random, at: i64) -> i64 {
    let is_busy = at % 60_000_000 > 45_000_000;
    exponential(random, if is_busy { 25_000.0 } else { 2_000.0 })
}

/// A queue that fills and empties.
fn sawtooth(random: &mut Random, at: i64) -> i64 {
    let part = (at % 80_000_000) as f64 / 80e6;
    exponential(random, 1_000.0 + 20_000.0 * part)
}

/// Wi-Fi: packets wait for the next aggregate, which others now and then make longer.
fn aggregates(random: &mut Random, at: i64) -> i64 {
    let is_shared = (at / 20_000_000) % 4 == 0;
    let period = if is_shared { 60_000 } else { 8_000 };
    period - at.rem_euclid(period) + exponential(random, 500.0)
}

/// A cell with a hand-over each minute, after which repeats of the radio are more.
fn cellular(random: &mut Random, at: i64) -> i64 {
    let is_edge = at % 60_000_000 > 50_000_000;
    let repeats = if random.next() < if is_edge { 0.4 } else { 0.05 } { 8_000 } else { 0 };
    let again = if is_edge && random.next() < 0.3 { 60_000 } else { 0 };
    repeats + again + exponential(random, 1_500.0)
}

const PATTERNS: [(&str, Jitter); 4] =
    [("busy", busy_hours), ("sawtooth", sawtooth), ("aggregates", aggregates), ("cellular", cellular)];

/// The shortest fixed delay that has at least this share in time, known only afterwards.
fn best_fixed(sent: &[Sent], share: f64) -> (u64, Outcome) {
    let mut bounds = (1, 2000);
    while bounds.1 - bounds.0 > 1 {
        let middle = (bounds.0 + bounds.1) / 2;
        let is_enough = outcome(slot(1, &[("delay", middle)]), sent).share() >= share;
        bounds = if is_enough { (bounds.0, middle) } else { (middle, bounds.1) };
    }
    (bounds.1, outcome(slot(1, &[("delay", bounds.1)]), sent))
}

#[test]
fn adaptive_is_quicker_than_the_best_fixed_delay_at_the_same_share_in_time() {
    for (name, jitter) in PATTERNS {
        for seed in 1..=5 {
            let sent = messages(seed, jitter);
            let adaptive = outcome(slot(2, &[]), &sent);
            let (delay, fixed) = best_fixed(&sent, adaptive.share());
            println!(
                "{name} {seed}: share {:.4}, adaptive {:.1} ms, fixed({delay}) {:.1} ms",
                adaptive.share(),
                adaptive.mean_ms(),
                fixed.mean_ms()
            );
            assert!(adaptive.share() > 0.97, "{name} {seed}: {}", adaptive.share());
            assert!(adaptive.mean_ms() < fixed.mean_ms(), "{name} {seed}");
        }
    }
}

/// A path that stays the same leaves nothing to adapt to: what is given up for adapting is little.
#[test]
fn on_a_steady_path_adaptive_is_nearly_as_quick_as_the_best_fixed_delay() {
    for mean_us in [500.0, 5_000.0, 40_000.0] {
        let mut random = Random(mean_us as u64);
        let sent: Vec<Sent> = (1..12_000)
            .map(|n| (n * 20_000, n * 20_000 + 30_000 + exponential(&mut random, mean_us)))
            .collect();
        let adaptive = outcome(slot(2, &[]), &sent);
        let (_, fixed) = best_fixed(&sent, adaptive.share());
        println!("{mean_us}: {:.4} {:.1} {:.1}", adaptive.share(), adaptive.mean_ms(), fixed.mean_ms());
        assert!(adaptive.share() > 0.98, "{mean_us}: {}", adaptive.share());
        assert!(adaptive.mean_ms() < fixed.mean_ms() * 1.25 + 1.0, "{mean_us}");
    }
}

/// playout.md R-8: with a fixed delay the distances of the messages are those of the media.
#[test]
fn a_fixed_delay_restores_the_pace() {
    let sent = messages(7, |random, _| (random.next() * 50_000.0) as i64);
    let played = outcome(slot(1, &[("delay", 60)]), &sent);
    assert_eq!((played.late, played.delays.len()), (0, sent.len()));
    let uneven = played.handed_at.windows(2).filter(|two| (two[1] - two[0] - 20_000).abs() > 1_000).count();
    assert!(uneven < 40, "{uneven} of {} distances", sent.len());
}

/// Clocks that drift apart by as much as cheap crystals do make nothing late in an hour, and delay
/// nothing.
#[test]
fn clocks_that_drift_apart_for_an_hour_change_nothing() {
    let hour: Vec<Sent> = {
        let mut random = Random(11);
        (1..90_000).map(|n| (n * 40_000, n * 40_000 + 20_000 + (random.next() * 10_000.0) as i64)).collect()
    };
    for number in [1, 2] {
        let settings: &[(&str, u64)] = if number == 1 { &[("delay", 15)] } else { &[] };
        for drift in [-200.0, 0.0, 200.0] {
            let mut receiver = Receiver::new(slot(number, settings));
            (receiver.skew, receiver.drift) = (1 << 50, drift);
            receiver.run(&hour);
            let played = &receiver.outcome;
            let ends = [&played.delays[..1000], &played.delays[played.delays.len() - 1000..]]
                .map(|part| part.iter().sum::<i64>() / 1_000_000);
            println!("{number} {drift}: late {}, {:?} ms", played.late, ends);
            assert!(played.late < 90_000 / 50, "{number} {drift}: {} late", played.late);
            assert!((ends[0] - ends[1]).abs() <= 4, "{number} {drift}: {ends:?} ms");
        }
    }
}

/// A new delay is reached by going slower or faster: no message is missing, and no pause is longer
/// than a quarter of the distance more.
#[test]
fn a_delay_that_is_changed_leaves_no_gap() {
    let sent = messages(3, |random, _| (random.next() * 5_000.0) as i64);
    for (before, after) in [(40, 400), (400, 40), (120, 121)] {
        let mut receiver = Receiver::new(slot(1, &[("delay", before)]));
        receiver.run(&sent[..3000]);
        receiver.mechanism = slot(1, &[("delay", after)]);
        receiver.buffer.follow(&receiver.mechanism);
        let rest = &sent[3000..];
        let mut order: Vec<usize> = (0..rest.len()).collect();
        order.sort_by_key(|n| rest[*n].1);
        let mut receiver = Receiver { outcome: Outcome::default(), ..receiver };
        let all = sent.to_vec();
        // The same receiver goes on with what comes later.
        for n in order {
            let (made, arrives) = rest[n];
            receiver.hand_over(&all, arrives - 1);
            let start = 11 * (3000 + n) as u64;
            receiver.buffer.note(start, receiver.wire(made), 0);
            let what = Delivery::Message(start, Bytes::from_static(&[7; 10]));
            let now = Time::from_micros(arrives as u64);
            receiver.buffer.insert(now, &mut receiver.clock, &receiver.mechanism, false, what);
        }
        receiver.hand_over(&all, i64::MAX / 4);
        let played = &receiver.outcome;
        assert_eq!((receiver.buffer.figures().late, played.missing), (0, 0), "{before} to {after}");
        let longest = played.handed_at.windows(2).map(|two| two[1] - two[0]).max().expect("many");
        assert!(longest <= 26_500, "{before} to {after}: {longest} us");
        let last = played.delays.last().expect("many") / 1000;
        assert!((last - (after as i64 + 30)).abs() <= 3, "{before} to {after}: {last} ms");
    }
}

/// A lying sender: nothing is held for longer than the delay, whatever media times say,
/// and no more than there is room for.
#[test]
fn a_sender_that_lies_about_its_media_times_delays_nothing_beyond_the_delay() {
    for number in [1, 2] {
        for seed in 1..20 {
            let mut random = Random(seed);
            let mechanism = slot(number, &[("delay", 200), ("max", 200)]);
            let (mut clock, mut buffer) = (Clock::default(), Buffer::default());
            let mut held: Vec<(u64, Time)> = Vec::new();
            for n in 0..5000u64 {
                let now = Time::from_micros(1_000_000 + n * 1000);
                let media = (random.next() * 4e9) as u32;
                buffer.note(11 * n, media, 0);
                buffer.note((random.next() * 1e12) as u64, media, 0);
                if buffer.has_room(64 << 10) {
                    let what = Delivery::Message(11 * n, Bytes::from_static(&[7; 10]));
                    buffer.insert(now, &mut clock, &mechanism, false, what);
                    held.push((11 * n, now));
                }
                while let Some(next) = buffer.pop(now, &clock) {
                    if let Next::Data(Delivery::Message(start, _), _) = next {
                        held.retain(|(at, _)| *at != start);
                    }
                }
                assert!(buffer.load_bytes() < (64 << 10) + 4096, "{}", buffer.load_bytes());
                let due = buffer.due(&clock);
                assert!(due.is_none_or(|due| due <= now + Duration::from_millis(201)), "{due:?} at {now:?}");
            }
        }
    }
}

/// A message that is missing is told once, where it would have come, also if it comes too late.
#[test]
fn what_is_missing_is_told_once_in_its_place() {
    let mechanism = slot(1, &[("delay", 50)]);
    let (mut clock, mut buffer) = (Clock::default(), Buffer::default());
    let put = |buffer: &mut Buffer, clock: &mut Clock, n: u64, at_ms: u64| {
        buffer.note(11 * n, (n * 20_000) as u32, 0);
        let what = Delivery::Message(11 * n, Bytes::from_static(&[7; 10]));
        buffer.insert(Time::from_millis(at_ms), clock, &mechanism, false, what);
    };
    for (n, at) in [(0, 10), (1, 30), (3, 70), (4, 90)] {
        put(&mut buffer, &mut clock, n, at);
    }
    let mut said = Vec::new();
    let mut drain = |buffer: &mut Buffer, clock: &Clock, at_ms: u64| {
        while let Some(next) = buffer.pop(Time::from_millis(at_ms), clock) {
            said.push(match next {
                Next::Data(Delivery::Message(start, _), _) => Ok(start / 11),
                Next::Missing(positions) => Err(positions),
                other => panic!("{other:?}"),
            });
        }
    };
    drain(&mut buffer, &clock, 119);
    drain(&mut buffer, &clock, 120);
    // The second message comes after the third was handed over.
    put(&mut buffer, &mut clock, 2, 125);
    drain(&mut buffer, &clock, 500);
    assert_eq!(said, [Ok(0), Ok(1), Err(11), Ok(3), Ok(4)]);
    assert_eq!(buffer.figures().late, 1);
    assert!(buffer.is_empty());
}

/// Pictures that refer to later ones are sent in another order than they are shown in.
#[test]
fn messages_are_handed_over_in_the_order_of_the_media() {
    let mechanism = slot(1, &[("delay", 150)]);
    let (mut clock, mut buffer) = (Clock::default(), Buffer::default());
    for (n, picture) in [0u64, 3, 1, 2, 6, 4, 5].into_iter().enumerate() {
        let start = 11 * n as u64;
        buffer.note(start, (picture * 40_000) as u32, 0);
        let what = Delivery::Message(start, Bytes::copy_from_slice(&[picture as u8; 10]));
        buffer.insert(Time::from_millis(10 + 40 * n as u64), &mut clock, &mechanism, false, what);
    }
    let mut shown = Vec::new();
    while let Some(due) = buffer.due(&clock) {
        match buffer.pop(due, &clock) {
            Some(Next::Data(Delivery::Message(_, data), _)) => shown.push(data[0]),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(shown, [0, 1, 2, 3, 4, 5, 6]);
}

/// Late messages are dropped or handed over, as the parameter says.
#[test]
fn what_comes_too_late_is_handed_over_only_where_that_is_asked() {
    for (number, late) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
        let mechanism = slot(number, &[("delay", 5), ("max", 5), ("late", late)]);
        let (mut clock, mut buffer) = (Clock::default(), Buffer::default());
        for (n, arrives) in [(0u64, 10), (1, 90)] {
            buffer.note(11 * n, (n * 20_000) as u32, 0);
            let what = Delivery::Message(11 * n, Bytes::from_static(&[7; 10]));
            buffer.insert(Time::from_millis(arrives), &mut clock, &mechanism, false, what);
        }
        let mut timings = Vec::new();
        while let Some(next) = buffer.pop(Time::from_millis(200), &clock) {
            if let Next::Data(_, timing) = next {
                timings.push(timing.expect("it has a time").is_late);
            }
        }
        assert_eq!(timings, if late == 1 { vec![false, true] } else { vec![false] }, "{number} {late}");
        assert_eq!(buffer.figures().late, 1);
    }
}

/// playout.md R-7: what waits under one mechanism is handed over under the next.
#[test]
fn an_exchange_forgets_nothing() {
    for from in MECHANISMS {
        for to in MECHANISMS {
            let build = |m: &crate::Mechanism| {
                Slot::build(&crate::Choice { number: m.number, params: m.params_within(&[]) }, ())
            };
            let (from, to) = (build(from).expect("built"), build(to).expect("built"));
            let (mut clock, mut buffer) = (Clock::default(), Buffer::default());
            for n in 0..10u64 {
                buffer.note(11 * n, (n * 20_000) as u32, 0);
                let what = Delivery::Message(11 * n, Bytes::from_static(&[7; 10]));
                let mechanism = if n < 5 { &from } else { &to };
                if n == 5 {
                    buffer.follow(&to);
                }
                buffer.insert(Time::from_millis(10 + 20 * n), &mut clock, mechanism, false, what);
            }
            let mut count = 0;
            while let Some(next) = buffer.pop(Time::from_millis(60_000), &clock) {
                count += u64::from(matches!(next, Next::Data(Delivery::Message(..), _)));
            }
            assert_eq!(count, 10, "{from:?} {to:?}");
        }
    }
}

#[test]
fn parameters_out_of_range_are_refused() {
    for m in MECHANISMS {
        for (place, param) in m.params.iter().enumerate() {
            let mut params = m.params_within(&[]);
            params.0[place] = param.max + 1;
            assert!(m.check(&params).is_err(), "{m:?} {}", param.name);
        }
        assert!(m.check(&Params::default()).is_ok() == m.params.iter().all(|p| p.min == 0), "{m:?}");
    }
}

/// Whatever media times say, what was let go in an order is handed over in it, and says its own
/// time.
#[test]
fn an_order_is_kept_against_media_times() {
    for seed in 1..50 {
        let mut random = Random(seed);
        let mechanism = slot(1, &[("delay", 100), ("late", 1)]);
        let (mut clock, mut buffer) = (Clock::default(), Buffer::default());
        let (mut let_go, mut handed_over) = (Vec::new(), Vec::new());
        for n in 0..500u64 {
            let now = Time::from_millis(1000 + n * 7);
            // Positions that are in no order, as under an order of keys.
            let (start, made) = (11 * (n ^ 5), (random.next() * 4e9) as u32);
            buffer.note(start, made, 0);
            let what = Delivery::Message(start, Bytes::from_static(&[7; 10]));
            buffer.insert(now, &mut clock, &mechanism, true, what);
            let_go.push((start, made));
            while let Some(next) = buffer.pop(now, &clock) {
                if let Next::Data(Delivery::Message(start, _), timing) = next {
                    handed_over.push((start, timing.expect("it has a time").media.on_the_wire()));
                }
            }
        }
        assert!(handed_over.len() > 400, "seed {seed}: {}", handed_over.len());
        assert_eq!(handed_over, let_go[..handed_over.len()], "seed {seed}");
    }
}

/// An exchange has the flow go on in bytes, or without media times: what follows does not overtake
/// what waits, and is not missing.
#[test]
fn what_has_no_time_follows_what_waits() {
    let text = Bytes::from_static(b"0123456789");
    for next in [Delivery::Bytes(11, text.clone()), Delivery::Message(11, text.clone())] {
        let (mechanism, mut clock, mut buffer) =
            (slot(1, &[("delay", 100)]), Clock::default(), Buffer::default());
        buffer.note(0, 0, 0);
        let now = Time::from_millis(30);
        buffer.insert(now, &mut clock, &mechanism, true, Delivery::Message(0, text.clone()));
        buffer.insert(now, &mut clock, &mechanism, true, next.clone());
        assert_eq!(buffer.pop(Time::from_millis(60), &clock), None);
        let later = Time::from_millis(200);
        let mut popped = || match buffer.pop(later, &clock) {
            Some(Next::Data(what, _)) => Some(what),
            other => panic!("{other:?}"),
        };
        assert_eq!(popped(), Some(Delivery::Message(0, text.clone())));
        assert_eq!(popped(), Some(next.clone()));
        let end = if matches!(next, Delivery::Bytes(..)) { 21 } else { 22 };
        buffer.insert(later, &mut clock, &mechanism, true, Delivery::Message(end, text.clone()));
        let last = buffer.pop(later, &clock);
        assert!(matches!(last, Some(Next::Data(Delivery::Message(..), _))), "{last:?}");
    }
}
