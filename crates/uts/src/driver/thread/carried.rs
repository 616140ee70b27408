//! An endpoint that a thread carries, and how the thread waits for it and for others.

use crate::driver::turn::Sent;
use crate::driver::waiting::{Situation, Sleeper, Wait, Waiting};
use crate::driver::{Driver, Inner};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use uts_functions::Time;

/// When an endpoint wants a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Now,
    At(Time),
    /// Nobody needs it any more.
    Never,
}

/// An endpoint, carried by a thread.
pub(super) struct Carried {
    pub(super) driver: Driver,
    /// Nothing is to be done until then, if nothing arrives and nothing is changed.
    pub(super) rests_until: Option<Time>,
    /// Something may have arrived.
    has_more: bool,
}

impl Carried {
    pub(super) fn new(driver: Driver) -> Self {
        Carried { driver, rests_until: None, has_more: false }
    }

    /// Does what there is to do.
    pub(super) fn turn(&mut self) -> io::Result<Due> {
        self.driver.begin_turn();
        let (kicked, moved_to) = {
            let mut inner = self.driver.shared.lock();
            (inner.kicked, inner.moved_to.take())
        };
        if let Some(socket) = moved_to {
            self.driver.move_to(*socket);
        }
        if let Some(at) = self.rests_until.filter(|_| !self.has_more && !kicked) {
            return Ok(Due::At(at));
        }
        // No task is to be woken by the socket.
        let mut cx = Context::from_waker(Waker::noop());
        self.has_more = self.has_more && self.driver.receive(&mut cx)?;
        let sent = self.driver.send(&mut cx, self.has_more)?;
        self.driver.dispatch(sent);
        let due = self.due(sent);
        self.driver.wake();
        Ok(due)
    }

    /// When there is something to do again.
    fn due(&mut self, sent: Sent) -> Due {
        self.rests_until = None;
        let mut inner = self.driver.shared.lock();
        if inner.is_over() {
            return Due::Never;
        }
        if self.has_more || sent != Sent::All || !self.driver.woken.is_empty() || inner.kicked {
            return Due::Now;
        }
        let at = inner.engine.poll_timeout().unwrap_or(Time::NEVER);
        self.rests_until = Some(at);
        Due::At(at)
    }

    /// Waits for what arrives, until `until` at most. Says whether it has waited: else all sockets
    /// of the thread are to be waited for.
    fn wait(&mut self, now: Time, until: Time, sleeper: Sleeper) -> io::Result<bool> {
        let Driver { shared, waiting, socket, .. } = &mut self.driver;
        let mut inner = shared.lock();
        let situation = Situation { now, until, sleeper, has_woken: false };
        let mut wait = waiting.next(situation, &mut inner.dialogue);
        let busy_polls = matches!(wait, Wait::BusyPoll(_));
        if socket.set_busy_polling(busy_polls).is_err() {
            waiting.on_busy_polling_refused();
            if busy_polls {
                wait = waiting.next(situation, &mut inner.dialogue);
            }
        }
        let is_response = matches!(wait, Wait::Spin { .. }) && inner.dialogue.take_response();
        drop(inner);
        tracing::trace!(endpoint = %shared.local_addr(), ?wait, "wait");
        match wait {
            Wait::Not => Ok(true),
            Wait::Spin { looks, .. } => {
                if is_response {
                    // To a response comes one.
                    socket.expect_one();
                }
                self.rests_until = None;
                self.driver.spin(looks, Inner::dispatch)?;
                self.driver.wake();
                Ok(true)
            }
            Wait::Nap(until) => {
                self.nap(until.since(now));
                Ok(true)
            }
            Wait::Sleep(_) if sleeper != Sleeper::Thread => Ok(false),
            Wait::Sleep(until) | Wait::BusyPoll(until) => match waiting.receive_timeout(until.since(now)) {
                Some(timeout) => self.receive_within(now, timeout),
                None => Ok(false),
            },
        }
    }

    /// Blocks until something arrives, for so long at most, and takes it in.
    fn receive_within(&mut self, now: Time, timeout: Duration) -> io::Result<bool> {
        let mut is_response = false;
        self.driver.begin_wait();
        let (received, at) = self.driver.take_in(
            |socket, intake| socket.receive_within(timeout, |received| intake.add(received)),
            |inner, shared, woken| {
                is_response = inner.dialogue.take_response();
                inner.dispatch(shared, woken);
            },
        );
        self.driver.wake();
        match received {
            Poll::Pending => return Ok(true),
            Poll::Ready(Ok(_)) => {
                self.has_more = at.is_some_and(|at| Waiting::may_be_more(now, at, is_response));
            }
            Poll::Ready(Err(error)) => self.driver.on_error(error)?,
        }
        self.rests_until = None;
        Ok(true)
    }

    /// Sleeps for so long, whatever arrives.
    fn nap(&mut self, lasts: Duration) {
        // An interruption ends it early.
        let _ = poll(&mut [], Some(&timespec(lasts)));
        (self.has_more, self.rests_until) = (true, None);
    }
}

/// Waits until something arrives, or until `until`: as suits the only endpoint, or for all of
/// several.
pub(super) fn wait(carried: &mut Vec<Carried>, now: Time, until: Time) {
    let sleeper = if carried.len() == 1 { Sleeper::Thread } else { Sleeper::SharedThread };
    let (mut has_waited, mut n) = (false, 0);
    while let Some(next) = carried.get_mut(n) {
        match next.wait(now, until, sleeper) {
            Ok(waits) => {
                has_waited |= waits;
                n += 1;
            }
            Err(error) => {
                carried.swap_remove(n).driver.fail(&error);
                has_waited = true;
            }
        }
    }
    if !has_waited {
        wait_for_any(carried, until.since(now));
    } else if sleeper == Sleeper::SharedThread {
        // While one endpoint spins, the others are not kept from receiving.
        carried.iter_mut().for_each(|carried| carried.has_more = true);
    }
}

/// Waits until something may be received.
fn wait_for_any(carried: &mut [Carried], most: Duration) {
    tracing::trace!("wait for any socket");
    for carried in &mut *carried {
        // Only a call that receives has a use for it. Where it cannot be taken back it does no
        // harm.
        carried.driver.socket.set_busy_polling(false).ok();
    }
    let ready: Vec<bool> = {
        let mut fds: Vec<_> = carried
            .iter()
            .map(|carried| PollFd::from_borrowed_fd(carried.driver.socket.fd(), PollFlags::IN))
            .collect();
        // An interruption is as good as an arrival.
        let is_interrupted = poll(&mut fds, Some(&timespec(most))).is_err();
        fds.iter().map(|fd| is_interrupted || !fd.revents().is_empty()).collect()
    };
    for (carried, is_ready) in carried.iter_mut().zip(ready) {
        carried.has_more |= is_ready;
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::socket::Socket;
    use crate::driver::testing::send_stray;
    use crate::driver::{Host, Shared};
    use std::sync::Arc;

    /// An endpoint that a thread carries, to which nothing is sent. It spins for so long after
    /// anything happens.
    fn bound_to_spin(spin: Duration) -> (Arc<Shared>, Carried) {
        let any = "127.0.0.1:0".parse().expect("an address");
        let config = uts_engine::EndpointConfig::default();
        let (shared, driver) = Shared::bind(Host::Thread, any, None, config, spin).expect("bound");
        (shared, Carried::new(driver))
    }

    fn bound() -> (Arc<Shared>, Carried) {
        bound_to_spin(Duration::ZERO)
    }

    impl Carried {
        /// Waits for so long at most, while nothing else has to be done, and applications have
        /// written something or have not.
        fn waits(&mut self, most: Duration, has_written: bool) -> bool {
            let shared = self.driver.shared.clone();
            shared.lock().dialogue = Default::default();
            if has_written {
                shared.lock().dialogue.on_written();
            }
            let now = shared.clock.now();
            self.wait(now, now + most, Sleeper::Thread).expect("it waits")
        }
    }

    /// Nothing arrives here: an endpoint that has napped receives all the same when it wakes.
    #[test]
    fn the_thread_naps_through_a_stream_and_else_waits_for_what_arrives() {
        let (_shared, mut carried) = bound();
        for (streams, has_said) in [(false, false), (true, false), (true, true)] {
            carried.driver.waiting.set_streams(streams);
            assert!(carried.waits(Duration::from_millis(50), has_said), "{streams} {has_said}");
            assert_eq!(core::mem::take(&mut carried.has_more), streams && !has_said, "{streams} {has_said}");
        }
    }

    /// The thread polls in the call that receives, while it waits for a stream only, and naps where
    /// the system does not let it poll.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_thread_polls_for_a_stream_where_that_brings_more() {
        let (_shared, mut carried) = bound();
        let may = carried.driver.socket.set_busy_polling(true).is_ok();
        for (polls, streams, has_said) in [
            (true, true, false),
            (false, true, false),
            (true, true, false),
            (true, false, false),
            (true, true, true),
        ] {
            carried.driver.waiting.set_busy_polls(polls);
            carried.driver.waiting.set_streams(streams);
            assert!(carried.waits(Duration::from_millis(50), has_said), "{polls} {streams} {has_said}");
            let is_polling = carried.driver.socket.busy_poll().expect("said") > 0;
            assert_eq!(is_polling, may && polls && streams && !has_said, "{polls} {streams} {has_said}");
            let naps = streams && !has_said && !is_polling;
            assert_eq!(core::mem::take(&mut carried.has_more), naps, "{polls} {streams} {has_said}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_waits_for_several_endpoints_polls_for_none() {
        let (_shared, mut carried): (Vec<_>, Vec<_>) = [bound(), bound()].into_iter().unzip();
        for carried in &mut carried {
            carried.driver.socket.set_busy_polling(true).ok();
        }
        wait_for_any(&mut carried, Duration::from_millis(1));
        let polls = |carried: &Carried| carried.driver.socket.busy_poll().expect("said");
        assert_eq!(carried.iter().map(polls).collect::<Vec<_>>(), [0, 0]);
    }

    /// One endpoint spins; what another has received is taken in meanwhile.
    #[test]
    fn an_endpoint_that_spins_keeps_no_other_from_receiving() {
        let (_spins, spinning) = bound_to_spin(Duration::from_secs(3600));
        let (shared, resting) = bound();
        let mut carried = vec![spinning, resting];
        let turns = |carried: &mut Vec<Carried>| {
            for carried in carried.iter_mut() {
                carried.turn().expect("a turn");
            }
            let now = shared.clock.now();
            wait(carried, now, now + Duration::from_secs(3600));
        };
        turns(&mut carried);
        let any = "127.0.0.1:0".parse().expect("an address");
        let mut peer = Socket::bind(any, None, Host::Thread).expect("bound");
        send_stray(&mut Context::from_waker(Waker::noop()), &mut peer, shared.local_addr());
        let arrived = || shared.lock().engine.strangers;
        assert!((0..100_000).any(|_| {
            turns(&mut carried);
            arrived() > 0
        }));
    }
}
