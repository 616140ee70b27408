//! Levels of an application: the ways in which it can show the same, each with the rate that it
//! needs. A level is chosen by the rate that the path lets through
//! ([`Event::MaySend`](crate::Event::MaySend)), down at once, and up when there has been room for a
//! while.
//!
//! It knows neither a connection nor a clock: it is told rates, and when.
//!
//! ```
//! use uts_engine::levels::{Level, Levels};
//! use uts_functions::{Rate, Time};
//!
//! let rate = Rate::from_bits_per_sec;
//! let level = |name: &str, bits| Level { name: name.into(), rate: rate(bits), loss: 0.02 };
//! let all = [("sound", 64_000), ("small", 800_000), ("full", 4_000_000)];
//! let mut levels = Levels::new(all.map(|(name, bits)| level(name, bits)).into())?;
//! assert_eq!(levels.current().name, "sound");
//! // Room is not believed at once.
//! assert_eq!(levels.on_rate(Time::from_millis(1_000), rate(9_000_000)), None);
//! assert_eq!(levels.on_rate(Time::from_millis(4_000), rate(9_000_000)), Some(2));
//! // A lack of it is.
//! assert_eq!(levels.on_rate(Time::from_millis(5_000), rate(1_000_000)), Some(1));
//! # Ok::<(), uts_engine::levels::BadLevels>(())
//! ```

use core::time::Duration;
use uts_functions::{Rate, Time};

/// Levels of an application, at the most.
pub const LEVELS_MAX: usize = 16;

/// A level is left for a better one where there is room for so much more than that needs. Chosen:
/// a hint is a tenth off at most, and a picture may be larger than others.
const ROOM: f64 = 1.25;

/// Time that there has to be room for a better level, and the longest, where it was left again
/// soon. Chosen.
const HOLD_MIN: Duration = Duration::from_secs(3);
const HOLD_MAX: Duration = Duration::from_secs(48);

/// A level that lasts for so long has been right.
const PROVEN: Duration = Duration::from_secs(20);

/// A way to show something.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Its name, for people.
    pub name: String,
    /// Rate that it needs, redundancy and headers included.
    pub rate: Rate,
    /// Share of what is sent (0 to 1) that may be lost.
    pub loss: f64,
}

/// Levels that cannot be chosen from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLevels {
    /// None, or too many.
    #[error("1 to {LEVELS_MAX} levels can be chosen from, not {0}")]
    Count(usize),
    /// One needs no more than the one before it.
    #[error(
        "level {0} needs no more than the one before it; put them in order, the one that needs least first"
    )]
    Order(usize),
    /// One bears a loss that is no share.
    #[error("level {0} bears a loss that is not from 0 to 1")]
    Loss(usize),
}

/// Choice among levels, the first of which needs least.
#[derive(Clone, Debug)]
pub struct Levels {
    all: Vec<Level>,
    current: usize,
    /// The best level that is wanted: others cost what nobody asked for.
    most: usize,
    rate: Rate,
    loss: f64,
    /// Since when there is room for a better one.
    room_since: Option<Time>,
    hold: Duration,
    /// Since when the level is the one that it is; `None` before the first.
    since: Option<Time>,
    /// The level was reached from below.
    has_risen: bool,
}

impl Levels {
    /// These, of which the first is taken until a rate is known.
    ///
    /// # Errors
    /// [`BadLevels`].
    pub fn new(all: Vec<Level>) -> Result<Self, BadLevels> {
        if !(1..=LEVELS_MAX).contains(&all.len()) {
            return Err(BadLevels::Count(all.len()));
        }
        if let Some(at) = all.windows(2).position(|pair| pair[1].rate <= pair[0].rate) {
            return Err(BadLevels::Order(at + 1));
        }
        if let Some(at) = all.iter().position(|level| !(0.0..=1.0).contains(&level.loss)) {
            return Err(BadLevels::Loss(at));
        }
        let most = all.len() - 1;
        let (rate, room_since, since) = (Rate::default(), None, None);
        Ok(Levels {
            all,
            current: 0,
            most,
            rate,
            loss: 0.0,
            room_since,
            hold: HOLD_MIN,
            since,
            has_risen: false,
        })
    }

    /// All of them.
    pub fn all(&self) -> &[Level] {
        &self.all
    }

    /// The level now.
    pub fn current(&self) -> &Level {
        &self.all[self.current]
    }

    /// The path lets through so much. Returns the number of the level, if it is another now.
    pub fn on_rate(&mut self, now: Time, rate: Rate) -> Option<usize> {
        self.rate = rate;
        self.choose(now)
    }

    /// Such a share of what is sent is lost, after all repair. Returns the number of the level, if
    /// it is another now.
    pub fn on_loss(&mut self, now: Time, loss: f64) -> Option<usize> {
        self.loss = loss.clamp(0.0, 1.0);
        self.choose(now)
    }

    /// Time has passed. Returns the number of the level, if it is another now.
    pub fn on_time(&mut self, now: Time) -> Option<usize> {
        self.choose(now)
    }

    /// No better level than this is wanted, to save what it costs; the number of the best lifts it.
    /// Returns the number of the level, if it is another now.
    pub fn want(&mut self, now: Time, most: usize) -> Option<usize> {
        self.most = most.min(self.all.len() - 1);
        self.choose(now)
    }

    /// When [`Levels::on_time`] is to be called, unless a rate comes before.
    pub fn due(&self) -> Option<Time> {
        self.room_since.map(|since| since + self.hold)
    }

    fn choose(&mut self, now: Time) -> Option<usize> {
        let best = |room: f64| {
            let fits = |level: &Level| level.rate.mul_f64(room) <= self.rate && self.loss <= level.loss;
            self.all[..=self.most].iter().rposition(fits).unwrap_or(0)
        };
        let (borne, roomy) = (best(1.0), best(ROOM));
        if borne < self.current || self.current > self.most {
            return self.fall(now, borne);
        }
        // One that was reached from above proves nothing about those that were not borne.
        if self.has_risen && self.since.is_some_and(|since| now.since(since) >= PROVEN) {
            self.hold = HOLD_MIN;
        }
        if roomy <= self.current {
            self.room_since = None;
            return None;
        }
        let since = *self.room_since.get_or_insert(now);
        (now.since(since) >= self.hold).then(|| self.become_level(now, roomy, true))
    }

    fn fall(&mut self, now: Time, to: usize) -> Option<usize> {
        // A level that was not borne is tried later, each time.
        if self.has_risen && self.since.is_some_and(|since| now.since(since) < PROVEN) {
            self.hold = (self.hold * 2).min(HOLD_MAX);
        }
        Some(self.become_level(now, to, false))
    }

    fn become_level(&mut self, now: Time, to: usize, has_risen: bool) -> usize {
        (self.current, self.since, self.has_risen, self.room_since) = (to, Some(now), has_risen, None);
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels() -> Levels {
        let level = |name: &str, kbit: u64, loss| Level {
            name: name.into(),
            rate: Rate::from_bits_per_sec(kbit * 1000),
            loss,
        };
        Levels::new(vec![level("a", 100, 1.0), level("b", 500, 0.05), level("c", 2000, 0.01)])
            .expect("in order")
    }

    fn kbit(kbit: u64) -> Rate {
        Rate::from_bits_per_sec(kbit * 1000)
    }

    #[test]
    fn it_falls_at_once_and_rises_when_there_was_room_for_a_while() {
        let mut levels = levels();
        let at = Time::from_millis;
        assert_eq!(levels.on_rate(at(0), kbit(700)), None);
        assert_eq!(levels.due(), Some(at(3000)));
        assert_eq!(levels.on_time(at(2999)), None);
        assert_eq!(levels.on_time(at(3000)), Some(1));
        // Not quite enough for the best.
        assert_eq!((levels.on_rate(at(4000), kbit(2400)), levels.due()), (None, None));
        assert_eq!(levels.on_rate(at(5000), kbit(2600)), None);
        // Room that is gone meanwhile was none.
        assert_eq!(levels.on_rate(at(6000), kbit(2000)), None);
        assert_eq!(levels.on_rate(at(8500), kbit(2600)), None);
        assert_eq!(levels.on_time(at(11_500)), Some(2));
        assert_eq!(levels.on_rate(at(12_000), kbit(1990)), Some(1));
        assert_eq!(levels.on_rate(at(12_100), kbit(1)), Some(0));
        assert_eq!(levels.current().name, "a");
    }

    #[test]
    fn a_rate_that_swings_about_a_level_moves_it_more_and_more_rarely() {
        let mut levels = levels();
        let mut changes = Vec::new();
        for second in 0..600u64 {
            // It lets the best level through while that is not in use.
            let rate = if levels.current().name == "c" { 1500 } else { 3000 };
            if let Some(level) = levels.on_rate(Time::from_millis(second * 1000), kbit(rate)) {
                changes.push((second, level));
            }
        }
        assert!(changes.len() < 40, "{changes:?}");
        let last: Vec<u64> = changes.iter().rev().take(4).map(|(second, _)| *second).collect();
        assert!(last[0] - last[3] > 48, "{changes:?}");
    }

    #[test]
    fn losses_and_wishes_count_as_well() {
        let mut levels = levels();
        levels.on_rate(Time::ZERO, kbit(9000));
        assert_eq!(levels.on_time(Time::from_millis(3_000)), Some(2));
        assert_eq!(levels.on_loss(Time::from_millis(30_000), 0.02), Some(1));
        assert_eq!(levels.on_loss(Time::from_millis(31_000), 0.2), Some(0));
        levels.on_loss(Time::from_millis(32_000), 0.0);
        assert_eq!(levels.on_time(Time::from_millis(35_000)), Some(2));
        // Nobody is to pay for the picture.
        assert_eq!(levels.want(Time::from_millis(36_000), 0), Some(0));
        assert_eq!(levels.on_time(Time::from_millis(99_000)), None);
        assert_eq!(levels.want(Time::from_millis(100_000), usize::MAX), None);
        assert!(levels.due().is_some());
    }

    #[test]
    fn levels_that_cannot_be_chosen_from_are_refused() {
        let level = |kbit, loss| Level { name: String::new(), rate: self::kbit(kbit), loss };
        for (all, why) in [
            (vec![], BadLevels::Count(0)),
            (vec![level(1, 0.0); 17], BadLevels::Count(17)),
            (vec![level(2, 0.0), level(2, 0.0)], BadLevels::Order(1)),
            (vec![level(1, 0.0), level(3, 0.0), level(2, 0.0)], BadLevels::Order(2)),
            (vec![level(1, 1.5)], BadLevels::Loss(0)),
            (vec![level(1, f64::NAN)], BadLevels::Loss(0)),
        ] {
            assert_eq!(Levels::new(all).expect_err("refused"), why);
        }
    }
}
