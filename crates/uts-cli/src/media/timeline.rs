//! Media times of a stream: the same at its sender, at the server, and at its receivers.
//!
//! A receiver plays by the differences of media times, whoever's clock they are by. So the server
//! hands them on as they came, less a difference that is the same for all of one connection: by it
//! they are times of the server's clock, at which another sender of the stream goes on. (V-10)

use super::queue::Waiting;
use bytes::Bytes;
use tokio::time::Instant;
use uts::{MediaTime, Timing};

/// The media times of datagrams that come by one connection, or from one source.
#[derive(Debug)]
pub struct Timeline {
    /// The instant zero of the media times that are given out.
    zero: Instant,
    /// Microseconds that these are ahead of the sender's, once one of those is known.
    ahead: Option<i64>,
    last: i64,
}

impl Timeline {
    /// One whose times count from an instant: that of all senders of a stream is the same.
    pub fn new(zero: Instant) -> Self {
        Timeline { zero, ahead: None, last: i64::MIN }
    }

    /// A datagram that was made now, after all before it.
    pub fn now(&mut self, now: Instant, message: Bytes) -> Waiting {
        self.last = self.micros(now).max(self.last.saturating_add(1));
        Waiting { message, made: now, media: MediaTime::from_micros(self.last) }
    }

    /// A datagram that came with the time of its sender.
    pub fn timed(&mut self, now: Instant, message: Bytes, timing: Timing) -> Waiting {
        let made = now.checked_sub(timing.age).unwrap_or(now);
        let of_sender = timing.media.as_micros();
        let own = self.micros(made);
        let ahead = *self.ahead.get_or_insert(own.saturating_sub(of_sender));
        Waiting { message, made, media: MediaTime::from_micros(of_sender.saturating_add(ahead)) }
    }

    fn micros(&self, at: Instant) -> i64 {
        match at.checked_duration_since(self.zero) {
            Some(since) => since.as_micros() as i64,
            None => -((self.zero - at).as_micros() as i64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn timing(media_us: i64, age: Duration) -> Timing {
        Timing { media: MediaTime::from_micros(media_us), delay: ms(1), age, is_late: false }
    }

    /// Differences stay, however late each comes and however wrong the guess of its age is.
    #[tokio::test(start_paused = true)]
    async fn times_of_a_sender_keep_their_distances() {
        let zero = Instant::now();
        let mut timeline = Timeline::new(zero);
        let sent = [5_000_000, 5_000_010, 5_040_000, 5_000_020];
        let mut given = Vec::new();
        for (n, media) in sent.iter().enumerate() {
            tokio::time::advance(ms(7 * n as u64)).await;
            let age = ms([30, 2, 90, 0][n]);
            given.push(timeline.timed(Instant::now(), Bytes::new(), timing(*media, age)).media.as_micros());
        }
        assert_eq!(given[0], -30_000);
        for (media, given_out) in sent.iter().zip(&given) {
            assert_eq!(given_out - given[0], media - sent[0]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_sender_goes_on_at_the_same_clock() {
        let zero = Instant::now();
        let (mut first, mut second) = (Timeline::new(zero), Timeline::new(zero));
        let before = first.timed(Instant::now(), Bytes::new(), timing(77, ms(0))).media;
        tokio::time::advance(ms(500)).await;
        let after = second.timed(Instant::now(), Bytes::new(), timing(-9_000_000, ms(10))).media;
        assert_eq!(after.since(before), ms(490));
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_that_are_made_in_one_microsecond_the_first_is_first() {
        let mut timeline = Timeline::new(Instant::now());
        let [first, second] = [0, 0].map(|_| timeline.now(Instant::now(), Bytes::new()).media);
        assert!(first < second);
    }
}
