//! Decision to sleep through arrivals, as network interfaces do that moderate interrupts.
//!
//! Where data streams in at some Gbit/s, an endpoint that sleeps until something arrives is woken
//! for each batch, on one host by the sender: some microseconds of a processor that is busy
//! sending. So there the endpoint naps: it sleeps by a timer, is told of nothing, and finds more at
//! once. An endpoint that waits for a response does not nap.

use core::time::Duration;
use uts_functions::Time;

/// The rate is taken anew after this.
const PERIOD: Duration = Duration::from_micros(100);

/// Duration of a nap: no longer than an interface that moderates its interrupts holds packets back.
/// At 10 Gbit/s 250 KB arrive meanwhile.
const NAP: Duration = Duration::from_micros(200);

/// The share of the socket's buffer that may fill during a nap. Packets take up to twice their
/// bytes there.
const SHARE: usize = 8;

/// Bytes that have to arrive in a period for naps to be worth it: 2.6 Gbit/s.
const BYTES_MIN: usize = 32 << 10;

/// The rate at which data arrives.
#[derive(Debug)]
pub(super) struct Moderation {
    /// Bytes that may arrive during a nap.
    room_bytes: usize,
    since: Time,
    bytes: usize,
    /// Data streamed in during the last period.
    streams: bool,
}

impl Moderation {
    /// `buffer_bytes` = what the socket's buffer holds; 0 = never to nap.
    pub fn new(now: Time, buffer_bytes: usize) -> Self {
        Moderation { room_bytes: buffer_bytes / SHARE, since: now, bytes: 0, streams: false }
    }

    /// A period that does not end, so that the rate is what is said here.
    #[cfg(test)]
    pub fn set(streams: bool) -> Self {
        Moderation { room_bytes: 0, since: Time::NEVER, bytes: 0, streams }
    }

    /// Something has arrived.
    pub fn on_arrival(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// True if data streamed in of late at a rate at which naps pay.
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// Until when to nap, if data streams in at a rate at which that pays. To be asked before each
    /// sleep.
    pub fn until(&mut self, now: Time) -> Option<Time> {
        let elapsed = now.since(self.since);
        if elapsed >= PERIOD {
            let at_this_rate = |time: Duration| self.bytes as u128 * time.as_nanos() / elapsed.as_nanos();
            self.streams =
                at_this_rate(PERIOD) >= BYTES_MIN as u128 && at_this_rate(NAP) <= self.room_bytes as u128;
            (self.since, self.bytes) = (now, 0);
        }
        self.streams.then_some(now + NAP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True for each sleep that is a nap, where so many bytes come before it, and so many
    /// microseconds after the last.
    fn naps(sleeps: &[(usize, u64)]) -> Vec<bool> {
        naps_with(8 << 20, sleeps)
    }

    fn naps_with(buffer_bytes: usize, sleeps: &[(usize, u64)]) -> Vec<bool> {
        let mut now = Time::ZERO;
        let mut moderation = Moderation::new(now, buffer_bytes);
        let nap = sleeps.iter().map(|(bytes, micros)| {
            now += Duration::from_micros(*micros);
            moderation.on_arrival(*bytes);
            moderation.until(now).is_some()
        });
        nap.collect()
    }

    #[test]
    fn a_stream_is_slept_through_and_what_comes_now_and_then_is_not() {
        assert_eq!(naps(&[(60_000, 100), (60_000, 100), (100, 100), (100, 100)]), [true, true, false, false]);
        assert_eq!(naps(&[(60_000, 1_000), (0, 1_000), (60_000, 1_000_000)]), [false; 3]);
    }

    /// Data that the buffer would not hold is taken at once.
    #[test]
    fn an_endpoint_with_little_room_is_woken() {
        let stream = [(60_000, 100), (60_000, 100)];
        assert_eq!(naps_with(1_000_000, &stream), [true; 2]);
        assert_eq!(naps_with(425_984, &stream), [false; 2]);
    }

    /// A single batch is no stream: the rate is of a while.
    #[test]
    fn sleeps_are_short_while_the_rate_is_taken() {
        assert_eq!(naps(&[(60_000, 10), (1_000, 10), (1_000, 10)]), [false; 3]);
        assert_eq!(naps(&[(9_000, 25), (9_000, 25), (9_000, 25), (9_000, 25)]), [false, false, false, true]);
    }
}
