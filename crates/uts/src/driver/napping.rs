//! Whether to sleep through arrivals.
//!
//! Where data streams in at some Gbit/s, who sleeps until something arrives is woken for each batch, and on one host by its sender:
//! some microseconds of a processor that is busy sending. So there the task, or the thread, sleeps by a timer, told of nothing, and finds
//! more at once, as network interfaces moderate interrupts. Who waits for an answer is woken by it.

use core::time::Duration;
use uts_functions::Time;

/// The rate is taken anew after this.
const PERIOD: Duration = Duration::from_micros(100);

/// Nobody waits for longer than an interface that moderates its interrupts would make him wait. At 10 Gbit/s 250 KB arrive meanwhile.
const NAP: Duration = Duration::from_micros(200);

/// The share of the socket's buffer that may fill meanwhile, in which packets take up to twice their bytes.
const SHARE: usize = 8;

/// What has to come in such a period for naps to be worth it: 2.6 Gbit/s.
const BYTES_MIN: usize = 32 << 10;

/// What has arrived of late.
#[derive(Debug)]
pub(super) struct Napping {
    /// What may arrive while nobody takes it.
    room_bytes: usize,
    since: Time,
    bytes: usize,
    /// It streamed in during the last period.
    streams: bool,
}

impl Napping {
    /// `buffer_bytes` = what the socket's buffer holds.
    pub fn new(now: Time, buffer_bytes: usize) -> Self {
        Napping { room_bytes: buffer_bytes / SHARE, since: now, bytes: 0, streams: false }
    }

    /// A period that does not end, so that the rate is what is said here.
    #[cfg(all(test, target_os = "linux"))]
    pub fn set(streams: bool) -> Self {
        Napping { room_bytes: 0, since: Time::NEVER, bytes: 0, streams }
    }

    /// Something has arrived.
    pub fn on_arrival(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Whether data streamed in of late at a rate at which it pays to sleep through arrivals. Elsewhere timers have a grain of a
    /// millisecond, see `timer`.
    pub fn streams(&self) -> bool {
        self.streams && cfg!(target_os = "linux")
    }

    /// Until when to sleep whatever arrives, if it streams in at a rate at which that pays. To be asked before each sleep.
    pub fn until(&mut self, now: Time) -> Option<Time> {
        let elapsed = now.since(self.since);
        if elapsed >= PERIOD {
            let at_this_rate = |time: Duration| self.bytes as u128 * time.as_nanos() / elapsed.as_nanos();
            self.streams =
                at_this_rate(PERIOD) >= BYTES_MIN as u128 && at_this_rate(NAP) <= self.room_bytes as u128;
            (self.since, self.bytes) = (now, 0);
        }
        self.streams().then_some(now + NAP)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::driver::looking::Looking;
    use crate::driver::testing::Strayed;
    use core::task::{Context, Poll, Waker};
    use std::future::poll_fn;

    /// Whether each sleep is a nap, where so many bytes come before it, and so many microseconds after the last.
    fn naps(sleeps: &[(usize, u64)]) -> Vec<bool> {
        naps_with(8 << 20, sleeps)
    }

    fn naps_with(buffer_bytes: usize, sleeps: &[(usize, u64)]) -> Vec<bool> {
        let mut now = Time::ZERO;
        let mut napping = Napping::new(now, buffer_bytes);
        let nap = sleeps.iter().map(|(bytes, micros)| {
            now += Duration::from_micros(*micros);
            napping.on_arrival(*bytes);
            napping.until(now).is_some()
        });
        nap.collect()
    }

    #[test]
    fn a_stream_is_slept_through_and_what_comes_now_and_then_is_not() {
        assert_eq!(naps(&[(60_000, 100), (60_000, 100), (100, 100), (100, 100)]), [true, true, false, false]);
        assert_eq!(naps(&[(60_000, 1_000), (0, 1_000), (60_000, 1_000_000)]), [false; 3]);
    }

    /// What the buffer would not hold is taken at once.
    #[test]
    fn who_has_little_room_is_woken() {
        let stream = [(60_000, 100), (60_000, 100)];
        assert_eq!(naps_with(1_000_000, &stream), [true; 2]);
        assert_eq!(naps_with(425_984, &stream), [false; 2]);
    }

    /// What a single batch brings is no stream: the rate is of a while.
    #[test]
    fn sleeps_are_short_while_the_rate_is_taken() {
        assert_eq!(naps(&[(60_000, 10), (1_000, 10), (1_000, 10)]), [false; 3]);
        assert_eq!(naps(&[(9_000, 25), (9_000, 25), (9_000, 25), (9_000, 25)]), [false, false, false, true]);
    }

    impl Strayed {
        /// Waits until so many were taken in. Fails if nobody is woken to do so; `asleep` = who sleeps already is not asked first.
        async fn takes_in(&mut self, arrived: u64, mut asleep: bool) {
            let sequence = poll_fn(|cx| {
                if !core::mem::take(&mut asleep) {
                    self.sleeps(cx);
                }
                if self.arrived() == arrived { Poll::Ready(()) } else { Poll::Pending }
            });
            tokio::select! {
                biased;
                () = tokio::time::sleep(Duration::from_secs(60)) => panic!("nobody was woken"),
                () = sequence => {}
            }
        }
    }

    /// It is told of nothing while it naps, is woken all the same, and is told again when nothing streams.
    #[tokio::test]
    async fn the_task_naps_through_a_stream_and_else_is_woken() {
        let mut strayed = Strayed::new(Duration::ZERO, Looking::in_vain());
        for (streams, has_said) in
            [(false, false), (true, false), (true, true), (true, false), (false, false)]
        {
            strayed.task.napping = Napping::set(streams);
            strayed.shared.lock().has_said = has_said;
            poll_fn(|cx| if strayed.sleeps(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
            assert_eq!(strayed.task.socket.is_watched(), !streams || has_said, "{streams} {has_said}");
            strayed.send(&mut Context::from_waker(Waker::noop()));
            let arrived = strayed.arrived();
            strayed.takes_in(arrived + 1, true).await;
        }
    }

    /// Nobody has to wake it; for an answer it looks all the same.
    #[tokio::test]
    async fn who_naps_through_a_stream_does_not_look_before() {
        let mut strayed = Strayed::new(Duration::ZERO, Looking::default());
        for (streams, has_said, looks) in [(true, false, false), (true, true, true), (false, false, true)] {
            strayed.task.napping = Napping::set(streams);
            strayed.shared.lock().has_said = has_said;
            strayed.task.looking = Looking::default();
            strayed.task.looking.on_arrival();
            let slept = poll_fn(|cx| Poll::Ready(strayed.sleeps(cx))).await;
            assert_eq!(slept, !looks, "{streams} {has_said}");
        }
    }

    /// What came just behind it: the runtime has told of that, and will not again.
    #[tokio::test]
    async fn who_has_found_something_by_looking_finds_what_came_behind_it() {
        let mut strayed = Strayed::new(Duration::ZERO, Looking::in_vain());
        poll_fn(|cx| if strayed.sleeps(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
        strayed.send(&mut Context::from_waker(Waker::noop()));
        assert!(strayed.task.spin(1).expect("a look"));
        strayed.send(&mut Context::from_waker(Waker::noop()));
        tokio::time::sleep(Duration::from_millis(1)).await;
        strayed.takes_in(2, false).await;
    }

    /// Who looks all the time need not be told: the sender would pay for it.
    #[tokio::test]
    async fn who_does_not_sleep_is_not_told_and_finds_what_arrives() {
        let mut strayed = Strayed::new(Duration::from_secs(3600), Looking::in_vain());
        // As after a sleep.
        poll_fn(|cx| Poll::Ready(strayed.task.socket.watch(cx))).await.expect("watched");
        assert!(strayed.task.socket.is_watched());
        let mut sent = 0;
        let sequence = poll_fn(|cx| {
            assert!(!strayed.sleeps(cx));
            if !strayed.task.socket.is_watched() && strayed.arrived() == sent {
                if sent == 3 {
                    return Poll::Ready(());
                }
                sent += 1;
                strayed.send(cx);
            }
            Poll::Pending
        });
        tokio::time::timeout(Duration::from_secs(60), sequence).await.expect("it finds what arrives");
        assert!(!strayed.task.socket.is_watched());
    }
}
