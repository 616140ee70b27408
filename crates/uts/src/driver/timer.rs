//! A timer that is fine enough for pacing. The runtime's own has a grain of a millisecond, in which
//! a path of 1 Gbit/s carries 83 packets; the kernel's keeps time to some microseconds.

use core::task::{Context, Poll};
use std::io;
use uts_functions::Time;

/// True if the timer's grain is finer than a millisecond.
pub(super) const IS_FINE: bool = cfg!(target_os = "linux");

/// Wakes the task that polls it at a deadline.
pub(crate) struct Timer {
    imp: imp::Timer,
}

impl Timer {
    pub fn new() -> io::Result<Self> {
        Ok(Timer { imp: imp::Timer::new()? })
    }

    /// Ready once `deadline` has passed, which may be [`Time::NEVER`]. May wake the task earlier.
    pub fn poll(&mut self, cx: &mut Context<'_>, now: Time, deadline: Time) -> io::Result<Poll<()>> {
        if deadline == Time::NEVER {
            return Ok(Poll::Pending);
        }
        if deadline <= now {
            return Ok(Poll::Ready(()));
        }
        self.imp.wait(cx, now, deadline)?;
        Ok(Poll::Pending)
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use crate::driver::socket::watch;
    use core::task::{Context, Poll};
    use core::time::Duration;
    use rustix::io::Errno;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::io;
    use std::os::fd::OwnedFd;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;
    use uts_functions::Time;

    pub struct Timer {
        fd: AsyncFd<OwnedFd>,
        armed: Option<Time>,
    }

    impl Timer {
        pub fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            // What has become due while the system was suspended is done when it resumes.
            let fd = timerfd_create(TimerfdClockId::Boottime, flags)?;
            let fd = watch(fd, Interest::READABLE)?;
            Ok(Timer { fd, armed: None })
        }

        /// Makes sure that the task is woken at `deadline` or earlier. A deadline that moves away
        /// costs nothing: the timer goes off at the old one and is set again.
        pub fn wait(&mut self, cx: &mut Context<'_>, now: Time, deadline: Time) -> io::Result<()> {
            if self.armed.is_none_or(|armed| deadline < armed || armed <= now) {
                self.arm(now, deadline)?;
            }
            while let Poll::Ready(guard) = self.fd.poll_read_ready(cx) {
                let mut guard = guard?;
                let mut count = [0; 8];
                match rustix::io::read(guard.get_inner(), &mut count) {
                    Ok(_) => {
                        // It has just gone off.
                        guard.clear_ready();
                        drop(guard);
                        self.arm(now, deadline)?;
                    }
                    Err(Errno::AGAIN) => guard.clear_ready(),
                    Err(Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            Ok(())
        }

        fn arm(&mut self, now: Time, deadline: Time) -> io::Result<()> {
            // Zero would disarm it.
            let wait = deadline.since(now).max(Duration::from_nanos(1));
            let it_value = Timespec {
                tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: wait.subsec_nanos().into(),
            };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
            self.armed = Some(deadline);
            Ok(())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use core::future::Future;
    use core::pin::Pin;
    use core::task::{Context, Poll};
    use std::io;
    use tokio::time::{Sleep, sleep};
    use uts_functions::Time;

    pub struct Timer {
        sleep: Option<(Time, Pin<Box<Sleep>>)>,
    }

    impl Timer {
        pub fn new() -> io::Result<Self> {
            Ok(Timer { sleep: None })
        }

        pub fn wait(&mut self, cx: &mut Context<'_>, now: Time, deadline: Time) -> io::Result<()> {
            if self.sleep.as_ref().is_none_or(|(at, _)| *at != deadline) {
                self.sleep = Some((deadline, Box::pin(sleep(deadline.since(now)))));
            }
            if let Some((_, sleep)) = &mut self.sleep {
                if let Poll::Ready(()) = sleep.as_mut().poll(cx) {
                    self.sleep = None;
                    cx.waker().wake_by_ref();
                }
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use core::time::Duration;
    use std::future::poll_fn;

    #[tokio::test]
    async fn it_goes_off_after_the_deadline_and_again() {
        let clock = Clock::start();
        let mut timer = Timer::new().expect("a timer");
        for micros in [1, 200, 5_000, 50] {
            let deadline = clock.now() + Duration::from_micros(micros);
            poll_fn(|cx| match timer.poll(cx, clock.now(), deadline) {
                Ok(poll) => poll,
                Err(e) => panic!("{e}"),
            })
            .await;
            assert!(clock.now() >= deadline);
        }
    }

    #[tokio::test]
    async fn a_deadline_may_move_either_way() {
        let clock = Clock::start();
        let mut timer = Timer::new().expect("a timer");
        let (start, mut polls) = (clock.now(), 0);
        let [far, near, later] = [3_600_000, 20, 40].map(|ms| start + Duration::from_millis(ms));
        poll_fn(|cx| {
            polls += 1;
            let deadline = if polls == 1 { far } else { near };
            if polls == 1 {
                cx.waker().wake_by_ref();
            }
            timer.poll(cx, clock.now(), deadline).expect("polled")
        })
        .await;
        assert!(clock.now() >= near);
        poll_fn(|cx| timer.poll(cx, clock.now(), later).expect("polled")).await;
        assert!(clock.now() >= later);
    }
}
