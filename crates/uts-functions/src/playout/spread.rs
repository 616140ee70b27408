//! The spread of the delays of a flow's messages.

use super::clock::Transit;
use crate::time::Time;
use core::time::Duration;

/// Messages whose delays are remembered.
const MESSAGES: usize = 256;

/// For so long they are, at the most: what came before was another path, and another difference of
/// the clocks.
const REMEMBERED: Duration = Duration::from_secs(30);

/// Two delays differ by no more, in microseconds: an hour, about.
const DIFFERENCE_MAX: u64 = 1 << 32;

/// Delays of a flow's messages, as far as they are known. It outlives every mechanism.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    /// Jitter, in sixteenths of a microsecond.
    jitter: u64,
    last: Option<Transit>,
    /// The last messages: when each came, and how long it was on its way. The oldest is at `next`
    /// once there are as many as are remembered.
    recent: Vec<(Time, Transit)>,
    next: usize,
    now: Time,
    quickest: Transit,
}

impl Spread {
    /// A message came, which was so long on its way; so long was the quickest lately.
    pub(super) fn on_arrival(&mut self, now: Time, transit: Transit, quickest: Transit) {
        // RFC 3550 section 6.4.1, appendix A.8.
        if let Some(last) = self.last.replace(transit) {
            let difference = transit.saturating_sub(last).unsigned_abs().min(DIFFERENCE_MAX);
            self.jitter = self.jitter + difference - (self.jitter + 8) / 16;
        }
        (self.now, self.quickest) = (now, quickest);
        if self.recent.len() < MESSAGES {
            self.recent.push((now, transit));
        } else {
            self.recent[self.next] = (now, transit);
        }
        self.next = (self.next + 1) % MESSAGES;
    }

    /// The quickest way is another.
    pub(super) fn begin_anew(&mut self, quickest: Transit) {
        self.quickest = quickest;
    }

    /// Mean difference between the delays of messages that follow each other (RFC 3550).
    pub fn jitter(&self) -> Duration {
        Duration::from_micros(self.jitter / 16)
    }

    fn transits(&self) -> impl Iterator<Item = Transit> + '_ {
        let is_recent = |(at, _): &&(Time, Transit)| self.now.since(*at) <= REMEMBERED;
        self.recent.iter().filter(is_recent).map(|(_, transit)| *transit)
    }

    /// Number of messages that are remembered.
    pub fn len(&self) -> usize {
        self.transits().count()
    }

    /// True if none is.
    pub fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }

    /// The delay beyond the quickest way that so large a share (0..=1) of the messages kept to.
    pub fn beyond_quickest(&self, share: f64) -> Duration {
        let mut transits: Vec<Transit> = self.transits().collect();
        let Some(last) = transits.len().checked_sub(1) else { return Duration::ZERO };
        let place = ((transits.len() as f64 * share).ceil() as usize).saturating_sub(1).min(last);
        let (_, transit, _) = transits.select_nth_unstable(place);
        let beyond = transit.saturating_sub(self.quickest);
        Duration::from_micros(u64::try_from(beyond).unwrap_or(0))
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.recent.capacity() * size_of::<(Time, Transit)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example of RFC 3550: |D| of 16 units each leads to a jitter of 16 in the end.
    #[test]
    fn jitter_is_that_of_rfc_3550() {
        let mut spread = Spread::default();
        for n in 0..400 {
            spread.on_arrival(Time::from_millis(n), 1600 * (n as i64 % 2), 0);
        }
        let jitter = spread.jitter().as_micros();
        assert!((1590..=1610).contains(&jitter), "{jitter}");
    }

    #[test]
    fn a_share_is_read_off_the_last_messages() {
        let mut spread = Spread::default();
        assert_eq!(spread.beyond_quickest(0.99), Duration::ZERO);
        for n in 0..1000 {
            spread.on_arrival(Time::from_millis(n), 100_000, 100);
        }
        for n in 0..MESSAGES as u64 {
            spread.on_arrival(Time::from_millis(1000 + n), 100 + n as i64, 100);
        }
        assert_eq!(spread.beyond_quickest(1.0), Duration::from_micros(255));
        assert_eq!(spread.beyond_quickest(0.5), Duration::from_micros(127));
        spread.on_arrival(Time::from_millis(100_000), 107, 100);
        assert_eq!(spread.len(), 1, "the others are too old");
        assert_eq!(spread.beyond_quickest(0.5), Duration::from_micros(7));
    }
}
