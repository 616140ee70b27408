//! Bounds of what adaptation costs an endpoint, however many connections it has: they take turns in
//! watching their paths and in comparing profiles. What they know of the host is here as well.

use crate::host::Host;
use core::time::Duration;
use uts_functions::Time;

/// Watching takes up to a microsecond where a connection's state is not in cache, comparing up to a
/// hundred: a few per cent, and at worst a tenth, of a core. As often as a connection does it at
/// most, that suffices for 100 that watch and 10 that compare.
const OBSERVE_EVERY: Duration = Duration::from_micros(50);
const COMPARE_EVERY: Duration = Duration::from_millis(1);

/// So many turns may come at once.
const AT_ONCE: u32 = 16;

/// The turns of an endpoint's connections.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    /// To take in what is known of a path.
    pub observe: Spaced,
    /// To compare profiles.
    pub compare: Spaced,
    /// Facts of the host, for all of them.
    pub host: Host,
}

impl Default for Turns {
    fn default() -> Self {
        Turns {
            observe: Spaced::new(OBSERVE_EVERY),
            compare: Spaced::new(COMPARE_EVERY),
            host: Host::default(),
        }
    }
}

/// Instants that are `every` apart on average, given out in the order in which they are asked for.
#[derive(Clone, Debug)]
pub(crate) struct Spaced {
    every: Duration,
    /// All instants before have been given out.
    free_at: Time,
}

impl Spaced {
    fn new(every: Duration) -> Self {
        Spaced { every, free_at: Time::ZERO }
    }

    fn give(&mut self, now: Time) -> Time {
        let at = now.max(self.free_at - self.every * AT_ONCE);
        self.free_at = self.free_at.max(now) + self.every;
        at
    }
}

/// A connection's place among connections that wait for a turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turn {
    at: Option<Time>,
}

impl Turn {
    /// True if it has come; if so it is taken, else the place is kept. `now` must not go back.
    pub fn has_come(&mut self, now: Time, turns: &mut Spaced) -> bool {
        let at = *self.at.get_or_insert_with(|| turns.give(now));
        if at > now {
            return false;
        }
        self.at = None;
        true
    }

    /// When it comes, if it is waited for.
    pub fn at(&self) -> Option<Time> {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of turns that each of `count` gets in `span`, if each asks again every `every`.
    fn share(count: usize, every: Duration, span: Duration) -> Vec<u32> {
        let mut turns = Turns::default();
        let mut all = vec![(Turn::default(), Time::ZERO, 0); count];
        let mut now = Time::ZERO;
        while now.since(Time::ZERO) < span {
            for (turn, next_at, taken) in &mut all {
                if now >= *next_at && turn.has_come(now, &mut turns.compare) {
                    *next_at = now + every;
                    *taken += 1;
                }
            }
            now += Duration::from_micros(100);
        }
        all.into_iter().map(|(_, _, taken)| taken).collect()
    }

    #[test]
    fn few_are_not_held_back() {
        let taken = share(10, Duration::from_millis(10), Duration::from_secs(1));
        assert!(taken.iter().all(|taken| *taken == 100), "{taken:?}");
    }

    #[test]
    fn many_get_alike_and_cost_no_more_than_few() {
        let taken = share(500, Duration::from_millis(10), Duration::from_secs(5));
        assert!(taken.iter().all(|taken| (9..=11).contains(taken)), "{taken:?}");
        assert!(taken.iter().sum::<u32>() <= 5_000 + AT_ONCE + 1);
    }
}
