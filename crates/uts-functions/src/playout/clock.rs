//! The sender's clock, as it reads here. Neither end knows the other's clock: the quickest of the
//! messages that came lately stands for the way itself.

use crate::time::Time;
use core::time::Duration;

/// The quickest way is that of the last so many seconds: clocks that drift apart by 200 parts in a
/// million have done so by 1.6 ms.
const SECONDS: usize = 8;

/// A time by the sender's clock, in microseconds from an instant that is the same for all flows of
/// a connection. Only differences mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediaTime(i64);

impl MediaTime {
    /// So many microseconds.
    pub const fn from_micros(micros: i64) -> Self {
        MediaTime(micros)
    }

    /// The same as a number of microseconds.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Time that has passed since another; zero if it is not.
    pub fn since(self, earlier: MediaTime) -> Duration {
        let micros = self.0.saturating_sub(earlier.0);
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    }

    /// The media time of what was made so long before `now`, by the clock of this end.
    pub const fn before(now: Time, age: Duration) -> Self {
        MediaTime(micros(now).saturating_sub_unsigned(age.as_micros() as u64))
    }

    /// The time as it travels: modulo 2^32 (packets.md P-64).
    pub const fn on_the_wire(self) -> u32 {
        self.0 as u32
    }
}

/// Time from the making of something to its arrival, by two clocks that nobody has compared, in
/// microseconds.
pub type Transit = i64;

/// The clock of the sender of a connection, as it is seen here. It outlives every mechanism.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// The last media time that came, and when.
    last: Option<(Time, MediaTime)>,
    /// The last second in which something came.
    second: u64,
    /// The quickest of a second.
    quickest: [Option<(u64, Transit)>; SECONDS],
}

impl Clock {
    /// A media time as it travelled: the one nearest to what the sender's clock shows by now, as
    /// the last that came makes it (playout.md R-1).
    pub fn read(&mut self, now: Time, wire: u32) -> MediaTime {
        let time = self.nearest(now, wire);
        self.last = Some((now, time));
        time
    }

    /// The media time that [`Clock::read`] would tell.
    pub fn nearest(&self, now: Time, wire: u32) -> MediaTime {
        let Some((then, last)) = self.last else { return MediaTime(wire.into()) };
        let shows = last.0.saturating_add(micros(now).saturating_sub(micros(then)));
        let step = wire.wrapping_sub(shows as u32).cast_signed();
        MediaTime(shows.saturating_add(step.into()))
    }

    /// A message has come whole. Says how long it was on its way. (playout.md R-2)
    pub fn on_arrival(&mut self, now: Time, media: MediaTime) -> Transit {
        let transit = micros(now).saturating_sub(media.0);
        self.second = now.as_nanos() / 1_000_000_000;
        let place = &mut self.quickest[(self.second % SECONDS as u64) as usize];
        match place {
            Some((second, quickest)) if *second == self.second => *quickest = transit.min(*quickest),
            _ => *place = Some((self.second, transit)),
        }
        transit
    }

    /// The quickest way lately, in microseconds by two clocks that nobody has compared.
    pub fn quickest(&self) -> i64 {
        let is_recent = |(second, _): &&(u64, Transit)| second + SECONDS as u64 > self.second;
        let recent = self.quickest.iter().flatten().filter(is_recent);
        recent.map(|(_, transit)| *transit).min().unwrap_or(0)
    }

    /// The instant at which what was made then is so much older than the quickest way makes it.
    pub fn due(&self, media: MediaTime, age: Duration) -> Time {
        let made = media.0.saturating_add(self.quickest());
        instant(made.saturating_add(age.as_micros() as i64))
    }

    /// The way is another: only what came in the last second tells how quick it is
    /// (playout.md R-3).
    pub(super) fn begin_anew(&mut self) {
        let last = self.second;
        for place in &mut self.quickest {
            place.take_if(|(second, _)| *second < last);
        }
    }
}

/// An instant of this end, in microseconds.
pub(super) const fn micros(time: Time) -> i64 {
    (time.as_nanos() / 1000) as i64
}

/// The instant of so many microseconds.
pub(super) fn instant(micros: i64) -> Time {
    Time::from_micros(u64::try_from(micros).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_time_goes_on_beyond_its_bits_in_both_directions() {
        let (mut clock, now) = (Clock::default(), Time::from_millis(1000));
        let first = clock.read(now, u32::MAX - 10);
        let second = clock.read(now, 20);
        assert_eq!(second.as_micros() - first.as_micros(), 31);
        assert_eq!(clock.read(now, u32::MAX - 10), first);
        for _ in 0..100_000 {
            clock.read(now, clock.last.expect("read").1.0 as u32 ^ (1 << 31));
        }
    }

    /// The bits of a media time have come round any number of times in a pause.
    #[test]
    fn a_media_time_goes_on_after_a_pause_of_any_length() {
        for pause_s in [1, 2000, 2200, 4000, 4300, 86_400, 10_000_000] {
            let mut clock = Clock::default();
            let first = clock.read(Time::from_millis(7000), 4_000_000_000);
            let passed = pause_s * 1_000_000;
            let second = clock.read(Time::from_millis((7 + pause_s) * 1000), (4_000_000_000 + passed) as u32);
            assert_eq!(second.since(first), Duration::from_secs(pause_s), "{pause_s} s");
        }
    }

    /// The maker's clock is ahead, wraps, and runs 200 parts in a million faster. For an hour
    /// things are due when they are of their age, but for the drift within the seconds.
    #[test]
    fn an_hour_of_clocks_that_drift() {
        let age = Duration::from_millis(120);
        let mut clock = Clock::default();
        for step in 0..360_000u64 {
            let made = Time::from_millis(step * 10);
            let theirs = (step * 10_002 + 4_000_000_000) as u32;
            let jitter = Duration::from_micros(step * 7919 % 10_000);
            let now = made + Duration::from_millis(30) + jitter;
            let media = clock.read(now, theirs);
            clock.on_arrival(now, media);
            let due = clock.due(media, age);
            let ideal = made + Duration::from_millis(150);
            let off = due.since(ideal).max(ideal.since(due));
            assert!(step < 2000 || off < Duration::from_micros(2000), "{step}: {off:?}");
        }
    }

    #[test]
    fn the_quickest_way_is_that_of_the_last_seconds() {
        let mut clock = Clock::default();
        let mut at = |ms: u64, transit: i64| {
            let now = Time::from_millis(ms);
            clock.on_arrival(now, MediaTime(micros(now) - transit));
            clock.quickest()
        };
        assert_eq!(at(0, 500), 500);
        assert_eq!(at(10, 300), 300);
        assert_eq!(at(7900, 900), 300);
        assert_eq!(at(8100, 700), 700);
        assert_eq!(at(60_000, 5000), 5000);
    }
}
