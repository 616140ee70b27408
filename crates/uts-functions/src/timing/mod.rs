//! Round-trip timing: how samples of the round trip become time-outs.
//!
//! A packet number is never reused, so every sample names the transmission that it measures,
//! repeats included (the Rx paper's serial numbers, against Karn's rule). The function keeps the
//! samples; a mechanism smooths them.

use crate::mechanism::Described;
use crate::registry;
use crate::time::Time;
use auto_impl::auto_impl;
use core::time::Duration;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;
use longer::{Longer, micros, of_micros};

pub mod fixed;
pub mod jacobson;
mod longer;

/// The round trip assumed before the first sample (RFC 9002 section 6.2.2).
pub const INITIAL_RTT: Duration = Duration::from_millis(333);

/// Timers are no finer than this (RFC 9002 section 6.1.2).
pub const GRANULARITY: Duration = Duration::from_millis(1);

/// For how long a smallest round trip holds before newer samples may raise it (draft-ietf-ccwg-bbr:
/// 10 s).
const RTT_MIN_WINDOW: Duration = Duration::from_secs(10);

/// The state of the function: what the round trip was, is, and how far it strays.
#[derive(Clone, Debug)]
pub struct RoundTrip {
    /// The last sample, without the peer's delay.
    pub latest: Duration,
    /// Smoothed round trip, as the mechanism sees it.
    pub smoothed: Duration,
    /// Mean deviation, as the mechanism sees it.
    pub deviation: Duration,
    /// Smallest sample of the last ten to twenty seconds.
    pub min: Duration,
    /// Samples so far.
    pub samples: u64,
    /// In microseconds.
    window_min_us: u32,
    /// In milliseconds, which wrap.
    window_start_ms: u32,
    longer: Longer,
}

impl Default for RoundTrip {
    fn default() -> Self {
        RoundTrip {
            latest: Duration::ZERO,
            smoothed: INITIAL_RTT,
            deviation: INITIAL_RTT / 2,
            min: Duration::ZERO,
            samples: 0,
            window_min_us: u32::MAX,
            window_start_ms: 0,
            longer: Longer::default(),
        }
    }
}

impl RoundTrip {
    /// Before any sample, where something is known of the path.
    pub fn guessed(smoothed: Duration, deviation: Duration) -> Self {
        RoundTrip { smoothed, deviation, ..RoundTrip::default() }
    }

    /// Takes in a sample of one transmission: `raw` as measured, of which the peer says that it
    /// held back the acknowledgement for `ack_delay`. Returns the sample that mechanisms should
    /// use.
    pub fn on_sample(&mut self, now: Time, raw: Duration, ack_delay: Duration) -> Duration {
        if self.samples == 0 {
            self.min = raw;
            self.window_start_ms = now.wrapping_millis();
        }
        self.samples += 1;
        self.min = self.min.min(raw);
        self.window_min_us = self.window_min_us.min(micros(raw));
        // timing.md R-9.
        if now.since_wrapped(self.window_start_ms) > RTT_MIN_WINDOW {
            self.min = of_micros(self.window_min_us);
            self.window_min_us = micros(raw);
            self.window_start_ms = now.wrapping_millis();
        }
        // timing.md R-17.
        if let Some(longer) = self.longer.on_sample(now, raw, self.min) {
            (self.min, self.window_min_us) = (longer, micros(longer));
            self.window_start_ms = now.wrapping_millis();
        }
        // timing.md R-2 (RFC 9002 section 5.3): the delay is taken off unless the sample would fall
        // below the smallest.
        self.latest = if raw >= self.min.saturating_add(ack_delay) { raw - ack_delay } else { raw };
        self.latest
    }

    /// Moves `smoothed` and `deviation` towards a sample that [`RoundTrip::on_sample`] has taken
    /// in, by an eighth and a quarter (RFC 6298 section 2, RFC 9002 section 5.3).
    fn smooth(&mut self, sample: Duration) {
        // timing.md R-3: the first sample replaces the assumption.
        if self.samples <= 1 {
            self.smoothed = sample;
            self.deviation = sample / 2;
            return;
        }
        // timing.md R-4: the deviation first, against the mean before this sample.
        let error = self.smoothed.abs_diff(sample);
        self.deviation = self.deviation - self.deviation / 4 + error / 4;
        self.smoothed = self.smoothed - self.smoothed / 8 + sample / 8;
    }
}

/// A policy over [`RoundTrip`].
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Timing: Described + DynClone {
    /// Updates `smoothed` and `deviation` for a sample that [`RoundTrip::on_sample`] has taken in.
    fn on_sample(&mut self, state: &mut RoundTrip, sample: Duration);
    /// True if packets with data that was sent before give samples.
    fn measures_repeats(&self) -> bool {
        true
    }
    /// After how long without acknowledgement to probe (before back-off, without the peer's ACK
    /// delay).
    fn timeout(&self, state: &RoundTrip) -> Duration;
    /// The same, of a peer that may hold its report back for so long (timing.md R-10).
    fn timeout_with(&self, state: &RoundTrip, report_delay: Duration) -> Duration {
        self.timeout(state).saturating_add(report_delay)
    }
    /// Time after the acknowledgement of a later packet from which an earlier one counts as lost
    /// (RFC 9002 section 6.1.2).
    fn loss_delay(&self, state: &RoundTrip) -> Duration;
}

dyn_clone::clone_trait_object!(Timing);

registry! {
    /// The timing mechanism in use.
    #[derive(Clone, Debug)]
    Slot: Timing, context: ();
    Fixed => fixed::Fixed,
    Jacobson => jacobson::Jacobson,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::Choice;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn every_mechanism() -> impl Iterator<Item = (&'static str, Slot)> {
        MECHANISMS.iter().map(|m| (m.name, Slot::build(&m.choice(), ()).expect(m.name)))
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn feed(slot: &mut Slot, state: &mut RoundTrip, now: Time, raw: Duration) {
        let sample = state.on_sample(now, raw, Duration::ZERO);
        slot.on_sample(state, sample);
    }

    #[test]
    fn the_first_sample_replaces_the_assumption() {
        for (name, mut slot) in every_mechanism() {
            let mut state = RoundTrip::default();
            feed(&mut slot, &mut state, Time::ZERO, ms(100));
            assert_eq!((state.smoothed, state.deviation, state.min), (ms(100), ms(50), ms(100)), "{name}");
        }
    }

    #[test]
    fn jacobson_follows_the_formulas() {
        let mut slot = Slot::build(&MECHANISMS[1].choice(), ()).expect("mandatory");
        let mut state = RoundTrip::default();
        assert_eq!(slot.timeout(&state), ms(999), "before any sample");
        feed(&mut slot, &mut state, Time::ZERO, ms(100));
        assert_eq!(slot.timeout(&state), ms(300));
        feed(&mut slot, &mut state, Time::ZERO, ms(200));
        assert_eq!(state.deviation, Duration::from_micros(62_500), "3/4 * 50 + 1/4 * 100");
        assert_eq!(state.smoothed, Duration::from_micros(112_500), "7/8 * 100 + 1/8 * 200");
        assert_eq!(slot.timeout(&state), Duration::from_micros(362_500));
        assert_eq!(slot.loss_delay(&state), ms(225), "9/8 of the latest, which is above the mean");
    }

    #[test]
    fn deviations_and_floor_are_as_many_as_are_asked_for() {
        let timeout = |settings: &[(&str, u64)], raw: Duration| {
            let choice = MECHANISMS[1].choice_with(settings).expect("in range");
            let mut slot = Slot::build(&choice, ()).expect("in range");
            let mut state = RoundTrip::default();
            (0..200).for_each(|_| feed(&mut slot, &mut state, Time::ZERO, raw));
            state.deviation = raw / 10;
            (slot.timeout(&state), slot.measures_repeats())
        };
        for (k, beyond) in [(1, 10), (2, 20), (4, 40)] {
            assert_eq!(timeout(&[("k", k), ("repeats", 0)], ms(100)), (ms(100 + beyond), false));
        }
        assert_eq!(timeout(&[("floor", 200_000)], ms(100)), (ms(200), true));
        let us = Duration::from_micros;
        assert_eq!(timeout(&[("k", 1), ("floor", 10)], us(50)).0, us(60), "below a millisecond");
        let fixed = |timeout, micros| {
            let choice = MECHANISMS[0].choice_with(&[("timeout", timeout), ("micros", micros)]);
            let slot = Slot::build(&choice.expect("in range"), ()).expect("in range");
            slot.timeout(&RoundTrip::default())
        };
        assert_eq!([fixed(0, 250), fixed(2, 1), fixed(0, 0)], [us(250), us(2001), us(10)]);
    }

    #[test]
    fn a_steady_round_trip_leaves_the_granularity() {
        let mut slot = Slot::build(&MECHANISMS[1].choice(), ()).expect("mandatory");
        let mut state = RoundTrip::default();
        for _ in 0..200 {
            feed(&mut slot, &mut state, Time::ZERO, Duration::from_micros(80));
        }
        let timeout = slot.timeout(&state);
        assert!(timeout >= GRANULARITY && timeout <= GRANULARITY + Duration::from_micros(81), "{timeout:?}");
        assert_eq!(slot.loss_delay(&state), GRANULARITY);
    }

    #[test]
    fn fixed_does_not_move_but_learns_for_its_successor() {
        let fixed = MECHANISMS[0].choice_with(&[("timeout", 250)]).expect("in range");
        let mut slot = Slot::build(&fixed, ()).expect("in range");
        let mut jacobson = Slot::build(&MECHANISMS[1].choice(), ()).expect("mandatory");
        let (mut state, mut other) = (RoundTrip::default(), RoundTrip::default());
        for step in 0..50 {
            let raw = ms(20 + step * 7 % 30);
            feed(&mut slot, &mut state, Time::from_millis(step), raw);
            feed(&mut jacobson, &mut other, Time::from_millis(step), raw);
            assert_eq!(slot.timeout(&state), ms(250));
        }
        assert_eq!(state.smoothed, other.smoothed);
        assert_eq!(
            jacobson.timeout(&state),
            jacobson.timeout(&other),
            "an exchange starts from what is known"
        );
    }

    /// Conformance: whatever the samples, time-outs stay within sense and nothing overflows.
    #[test]
    fn any_samples_give_sensible_timeouts() {
        for seed in 0..200 {
            for (name, mut slot) in every_mechanism() {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let mut state = RoundTrip::default();
                let mut now = Time::ZERO;
                let mut largest = Duration::ZERO;
                for _ in 0..100 {
                    now += Duration::from_nanos(rng.random_range(0..1_000_000_000));
                    let raw = Duration::from_nanos(1 << rng.random_range(0..40));
                    let delay = Duration::from_nanos(1 << rng.random_range(0..63));
                    largest = largest.max(raw);
                    let sample = state.on_sample(now, raw, delay);
                    slot.on_sample(&mut state, sample);
                    assert!(sample <= raw && sample >= state.min.min(raw), "{name}, seed {seed}: {state:?}");
                    assert!(state.smoothed <= largest && state.deviation <= largest, "{name}, seed {seed}");
                    assert!(slot.timeout(&state) >= GRANULARITY, "{name}, seed {seed}");
                    assert!(slot.loss_delay(&state) >= GRANULARITY, "{name}, seed {seed}");
                }
            }
        }
    }

    #[test]
    fn the_smallest_round_trip_is_forgotten_in_time() {
        let mut state = RoundTrip::default();
        state.on_sample(Time::ZERO, ms(10), Duration::ZERO);
        for second in 1..=30 {
            state.on_sample(Time::from_millis(second * 1000), ms(40), Duration::ZERO);
        }
        assert_eq!(state.min, ms(40));
    }

    #[test]
    fn parameters_out_of_range_build_nothing() {
        let mut choice: Choice = MECHANISMS[0].choice();
        choice.params.0[0] = 60_001;
        assert!(Slot::build(&choice, ()).is_none());
        assert!(Slot::build(&Choice { number: 200, ..Choice::default() }, ()).is_none());
    }
}
