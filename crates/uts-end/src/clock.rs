//! The machine's monotonic clock.

use core::cell::{Cell, RefCell};
use core::task::Waker;
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Poll;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::AbortHandle;
use uts_traffic::clock::Clock;
use uts_traffic::transport::Local;

/// Nanoseconds of the monotonic clock: the same in all processes of a machine.
pub fn now_ns() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// CPU time of this process so far, user and system, in nanoseconds.
pub fn cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// The monotonic clock, as something to wait for. tokio's own timers have a resolution of a
/// millisecond, which is as long as a message takes on a fast path. The kernel's timers keep time
/// to some microseconds.
pub struct MonotonicClock {
    timers: Rc<Timers>,
    task: AbortHandle,
}

struct Timers {
    fd: AsyncFd<OwnedFd>,
    /// Which task waits until when. The number tells tasks apart that wait for the same instant.
    waiting: RefCell<BTreeMap<(u64, u64), Waker>>,
    next_number: Cell<u64>,
}

impl MonotonicClock {
    /// Must be called within a `LocalSet` of a tokio runtime.
    ///
    /// # Errors
    /// If the system gives no timer.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // It is deprecated because it accepts types that do not own their descriptor, or change it.
        // An `OwnedFd` owns it and never changes it.
        #[allow(deprecated, reason = "sound for an OwnedFd")]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
        let timers = Rc::new(Timers { fd, waiting: RefCell::default(), next_number: Cell::new(0) });
        let task = tokio::task::spawn_local(wake(timers.clone())).abort_handle();
        Ok(MonotonicClock { timers, task })
    }
}

impl Drop for MonotonicClock {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Clock for MonotonicClock {
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn sleep_until(&self, at_ns: u64) -> Local<'static, ()> {
        let mut wait = Wait { timers: self.timers.clone(), at_ns, number: None };
        Box::pin(poll_fn(move |cx| wait.poll(cx.waker())))
    }
}

/// One waiting task.
struct Wait {
    timers: Rc<Timers>,
    at_ns: u64,
    number: Option<u64>,
}

impl Wait {
    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        if now_ns() >= self.at_ns {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| {
            let number = self.timers.next_number.get();
            self.timers.next_number.set(number + 1);
            number
        });
        let is_first = {
            let mut waiting = self.timers.waiting.borrow_mut();
            waiting.insert((self.at_ns, number), waker.clone());
            waiting.first_key_value().is_some_and(|(first, _)| *first == (self.at_ns, number))
        };
        if is_first {
            self.timers.arm();
        }
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.timers.waiting.borrow_mut().remove(&(self.at_ns, number));
        }
    }
}

impl Timers {
    /// Sets the timer to the first instant that a task waits for.
    fn arm(&self) {
        let Some(((at_ns, _), _)) = self.waiting.borrow().first_key_value().map(|(k, v)| (*k, v.clone()))
        else {
            return;
        };
        let it_value = Timespec {
            tv_sec: i64::try_from(at_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(at_ns % 1_000_000_000).unwrap_or(0),
        };
        let setting = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // It cannot fail for a valid time; if it did, the wait would be longer and not wrong.
        let _ = timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::ABSTIME, &setting);
    }
}

/// Wakes those whose time has come, for as long as the clock lives.
async fn wake(timers: Rc<Timers>) {
    loop {
        let Ok(mut guard) = timers.fd.readable().await else { return };
        match rustix::io::read(guard.get_inner(), &mut [0; 8]) {
            Err(Errno::AGAIN) => guard.clear_ready(),
            Err(Errno::INTR) => continue,
            Ok(_) | Err(_) => guard.clear_ready(),
        }
        drop(guard);
        let now = now_ns();
        let later = {
            let mut waiting = timers.waiting.borrow_mut();
            let later = waiting.split_off(&(now + 1, 0));
            core::mem::replace(&mut *waiting, later)
        };
        later.into_values().for_each(Waker::wake);
        timers.arm();
    }
}
