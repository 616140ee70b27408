//! A thread that carries its endpoints itself, while it waits for something.
//!
//! There is no task that would have to be woken, and nothing between who waits and the kernel: what a thread says leaves before its call
//! returns, and what arrives is taken in by the call in which the thread waits for it. In between nothing happens.

use super::task::{Intake, LOOKS_PER_SPIN};
use super::{Driver, Inner};
use crate::clock::Clock;
use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Wake;
use uts_functions::Time;

/// What a wait brought sooner than this was there before it began, and more may be: unless it was an answer, which comes alone.
const AT_ONCE: Duration = Duration::from_micros(2);

/// What is read without waiting does not show that more is wanted; every so often that is looked after.
const UNCARRIED_MAX: u32 = 8;

thread_local! {
    static THREAD: Rc<Thread> = Rc::new(Thread::new());
}

/// The endpoints of a thread.
pub(crate) struct Thread {
    clock: Clock,
    carried: RefCell<Vec<Carried>>,
    /// Such as were made since the last turn.
    new: RefCell<Vec<Driver>>,
    /// What is waited for may have happened.
    woken: Arc<Woken>,
    waker: Waker,
    /// When that is so at the latest.
    alarm: Cell<Time>,
    /// Waits that were none, since the last turn.
    uncarried: Cell<u32>,
    /// Sleeps in the call that receives, and others.
    #[cfg(test)]
    sleeps: Cell<(u32, u32)>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Woken {
    fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Acquire)
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Has the thread carry an endpoint.
pub(crate) fn adopt(driver: Driver) {
    Thread::here().new.borrow_mut().push(driver);
}

/// Waits, in the thread, for so long.
pub(crate) async fn sleep(duration: Duration) {
    let until = Thread::here().clock.now() + duration;
    poll_fn(|_| {
        let thread = Thread::here();
        if thread.clock.now() >= until {
            return Poll::Ready(());
        }
        thread.alarm.set(thread.alarm.get().min(until));
        Poll::Pending
    })
    .await;
}

/// By which the endpoints of this thread tell the time.
pub(crate) fn clock() -> Clock {
    Thread::here().clock
}

impl Thread {
    fn new() -> Self {
        let woken = Arc::new(Woken::default());
        Thread {
            clock: Clock::start(),
            carried: RefCell::default(),
            new: RefCell::default(),
            waker: woken.clone().into(),
            woken,
            alarm: Cell::new(Time::NEVER),
            uncarried: Cell::new(0),
            #[cfg(test)]
            sleeps: Cell::default(),
        }
    }

    /// The one that is running.
    pub fn here() -> Rc<Self> {
        THREAD.with(Rc::clone)
    }

    /// Waits for `future`.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut cx = Context::from_waker(&self.waker);
        // Who is polled for the first time was not woken.
        let mut is_due = true;
        loop {
            if (core::mem::take(&mut is_due) | self.woken.take())
                && let Poll::Ready(result) = future.as_mut().poll(&mut cx)
            {
                return result;
            }
            if let Some(rests_until) = self.carry(true) {
                self.sleep(rests_until);
            }
            let alarm = self.alarm.get();
            if alarm != Time::NEVER && self.clock.now() >= alarm {
                self.alarm.set(Time::NEVER);
                self.waker.wake_by_ref();
            }
        }
    }

    /// Waits for `future`, for so long at most if that is limited; `None` = it was not there by then.
    pub fn wait_within<T>(&self, future: impl Future<Output = T>, most: Option<Duration>) -> Option<T> {
        let Some(most) = most else { return Some(self.wait(future)) };
        let (mut future, mut limit) = (pin!(future), pin!(sleep(most)));
        self.wait(poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => limit.as_mut().poll(cx).map(|()| None),
        }))
    }

    /// Has what was just said leave, as far as the path takes it.
    pub fn send(&self) {
        // In what an endpoint calls it has its turn already.
        if self.carried.try_borrow_mut().is_ok() {
            self.carry(false);
        }
    }

    /// Something was taken that was there: that the peer may send more is said now and then.
    pub fn took(&self) {
        self.uncarried.set(self.uncarried.get() + 1);
        if self.uncarried.get() >= UNCARRIED_MAX {
            self.carry(false);
        }
    }

    /// A turn for each endpoint; `is_waiting` = what arrives is waited for. Says until when nothing is to be done; `None` = there is
    /// more, or somebody was woken.
    fn carry(&self, is_waiting: bool) -> Option<Time> {
        self.uncarried.set(0);
        let mut carried = self.carried.borrow_mut();
        if !self.new.borrow().is_empty() {
            carried.extend(self.new.take().into_iter().map(Carried::new));
        }
        let (mut rests_until, mut turns) = (Some(Time::NEVER), 0);
        while let Some(next) = carried.get_mut(turns) {
            let due = next.turn(is_waiting).unwrap_or_else(|error| {
                next.driver.fail(&error);
                Due::Never
            });
            match due {
                Due::Now => rests_until = None,
                Due::At(at) => rests_until = rests_until.map(|until: Time| until.min(at)),
                Due::Never => {
                    carried.swap_remove(turns);
                    continue;
                }
            }
            turns += 1;
        }
        rests_until.filter(|_| !self.woken.is_set())
    }

    /// Waits in the kernel until something arrives, or until `until`.
    fn sleep(&self, until: Time) {
        let mut carried = self.carried.borrow_mut();
        let (now, until) = (self.clock.now(), until.min(self.alarm.get()));
        if until > now {
            let most = until.since(now);
            let has_waited = match &mut carried[..] {
                [only] => only.wait(now, most),
                _ => Ok(false),
            };
            #[cfg(test)]
            {
                let (receiving, others) = self.sleeps.get();
                let is_receiving = u32::from(matches!(has_waited, Ok(true)));
                self.sleeps.set((receiving + is_receiving, others + 1 - is_receiving));
            }
            match has_waited {
                Ok(true) => {}
                Ok(false) => wait_for_any(&mut carried, most),
                Err(error) => carried.drain(..).for_each(|only| only.driver.fail(&error)),
            }
        }
        for carried in carried.iter_mut() {
            carried.rests_until.take_if(|at| *at <= now);
        }
    }
}

/// Waits until something may be received.
fn wait_for_any(carried: &mut [Carried], most: Duration) {
    for carried in &mut *carried {
        // Only who waits in the call that receives has a use for it. Where it cannot be taken back it does no harm.
        carried.driver.socket.set_busy_polling(false).ok();
    }
    let ready: Vec<bool> = {
        let mut of = Vec::new();
        let mut fds = Vec::new();
        for (n, carried) in carried.iter().enumerate() {
            for fd in carried.driver.socket.fds() {
                of.push(n);
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
        }
        // An interruption is as good as an arrival.
        let all = poll(&mut fds, Some(&timespec(most))).is_err();
        let mut ready = vec![all; carried.len()];
        for (n, fd) in of.into_iter().zip(&fds) {
            ready[n] |= !fd.revents().is_empty();
        }
        ready
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

/// When an endpoint wants a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    Now,
    At(Time),
    /// Nobody needs it any more.
    Never,
}

/// An endpoint, carried by a thread.
struct Carried {
    driver: Driver,
    /// Nothing is to be done until then, if nothing arrives and nothing is changed.
    rests_until: Option<Time>,
    /// Something may have arrived.
    has_more: bool,
}

impl Carried {
    fn new(driver: Driver) -> Self {
        Carried { driver, rests_until: None, has_more: false }
    }

    /// Does what there is to do, and looks for what arrives if it is waited for and that is worth it.
    fn turn(&mut self, is_waited_for: bool) -> io::Result<Due> {
        let (due, is_talk) = match self.rest(is_waited_for) {
            Some((at, is_talk)) => (Due::At(at), is_talk),
            None => self.work(is_waited_for)?,
        };
        if is_waited_for && matches!(due, Due::At(_)) {
            let driver = &mut self.driver;
            let looks = if driver.spins() {
                Some(LOOKS_PER_SPIN)
            } else {
                // Mostly nothing streams, which is known without the lock.
                let naps = driver.napping.streams() && driver.naps(&driver.shared.lock());
                driver.looks_that_pay(is_talk, naps)
            };
            if let Some(looks) = looks {
                if core::mem::take(&mut driver.shared.lock().has_answer) {
                    // To an answer comes one.
                    driver.socket.expect_one();
                }
                self.rests_until = None;
                let found = driver.spin_and(looks, Inner::dispatch);
                driver.wake();
                return found.map(|_| Due::Now);
            }
        }
        Ok(due)
    }

    /// Until when nothing is to be done, if that is so; and whether somebody who waits has said something to be answered.
    fn rest(&self, is_waited_for: bool) -> Option<(Time, bool)> {
        let at = self.rests_until.filter(|_| !self.has_more)?;
        let mut inner = self.driver.shared.lock();
        if inner.kicked {
            return None;
        }
        Some((at, is_waited_for && inner.takes_talk()))
    }

    /// Takes in, sends, tells. Says the same as [`rest`](Self::rest) does.
    fn work(&mut self, is_waited_for: bool) -> io::Result<(Due, bool)> {
        self.rests_until = None;
        let driver = &mut self.driver;
        // Nobody is to be woken by the socket.
        let mut cx = Context::from_waker(Waker::noop());
        if core::mem::take(&mut self.has_more) {
            self.has_more = driver.receive(&mut cx)?;
        }
        let (sent_all, _) = driver.answer(&mut cx, self.has_more)?;
        let is_busy = self.has_more || !sent_all;
        let mut inner = driver.shared.lock();
        if sent_all {
            inner.on_sent_all(&driver.shared);
        }
        inner.dispatch(&driver.shared, &mut driver.woken);
        let due = if inner.is_over() {
            Due::Never
        } else if is_busy || !driver.woken.is_empty() || inner.kicked {
            Due::Now
        } else {
            driver.socket.release_unless(|remote| inner.engine.is_peer(remote));
            let at = inner.engine.poll_timeout().unwrap_or(Time::NEVER);
            self.rests_until = Some(at);
            Due::At(at)
        };
        let is_talk = is_waited_for && matches!(due, Due::At(_)) && inner.takes_talk();
        drop(inner);
        driver.wake();
        Ok((due, is_talk))
    }

    /// Waits for what arrives, for so long at most, and takes it in, or sleeps through it for a while. Says whether it could wait.
    fn wait(&mut self, now: Time, most: Duration) -> io::Result<bool> {
        let driver = &mut self.driver;
        // Who naps holds no lock meanwhile.
        let nap = driver.nap(now, &driver.shared.clone().lock());
        let nap = nap.map(|until| most.min(until.since(now)));
        let polls = driver.busy_polling.polls(now, driver.napping.streams()) && nap.is_some();
        let is_set = driver.socket.set_busy_polling(polls).is_ok();
        if !is_set {
            driver.busy_polling.give_up();
        }
        if let Some(nap) = nap.filter(|_| !(polls && is_set)) {
            self.nap(nap);
            return Ok(true);
        }
        let mut intake = Intake::new(&driver.shared, &mut driver.lone);
        let received = driver.socket.wait(most, |received| intake.take_in(received));
        let mut is_answer = false;
        let taken_in = intake.finish_and(|inner| {
            is_answer = core::mem::take(&mut inner.has_answer);
            inner.dispatch(&driver.shared, &mut driver.woken);
        });
        driver.wake();
        let is_at_once = taken_in.as_ref().is_some_and(|taken_in| taken_in.at.since(now) < AT_ONCE);
        driver.on_taken_in(taken_in);
        match received? {
            None => {
                if let Some(nap) = nap {
                    self.nap(nap);
                }
                return Ok(nap.is_some());
            }
            Some(Poll::Pending) => return Ok(true),
            Some(Poll::Ready(Ok(_))) => {
                driver.errors = 0;
                driver.looking.on_arrival();
                self.has_more = is_at_once && !is_answer;
            }
            Some(Poll::Ready(Err(error))) => driver.on_error(error)?,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::{Listener, connect};
    #[cfg(target_os = "linux")]
    use crate::driver::Host;
    #[cfg(target_os = "linux")]
    use crate::driver::Shared;
    #[cfg(target_os = "linux")]
    use crate::driver::busy_polling::BusyPolling;
    #[cfg(target_os = "linux")]
    use crate::driver::napping::Napping;
    use crate::{ConnectOptions, FlowOptions, Identity, ServerOptions};
    use std::io::{Read, Write};
    use std::sync::mpsc;

    const ANSWERS: u32 = 30;

    /// An endpoint that a thread carries, to which nothing is sent.
    #[cfg(target_os = "linux")]
    fn bound() -> (Arc<Shared>, Carried) {
        let any = "127.0.0.1:0".parse().expect("an address");
        let config = uts_engine::EndpointConfig::default();
        let bound = Shared::bind(Host::Thread, any, None, config, Duration::ZERO);
        let (shared, driver) = bound.expect("bound");
        (shared, Carried::new(driver))
    }

    /// Nothing arrives here: who naps looks for it all the same when he wakes.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_thread_naps_through_a_stream_and_else_waits_for_what_arrives() {
        let (shared, mut carried) = bound();
        for (streams, has_said) in [(false, false), (true, false), (true, true)] {
            carried.driver.napping = Napping::set(streams);
            shared.lock().has_said = has_said;
            let waited = carried.wait(shared.clock.now(), Duration::from_millis(50));
            assert!(waited.expect("it waits"), "{streams} {has_said}");
            assert_eq!(core::mem::take(&mut carried.has_more), streams && !has_said, "{streams} {has_said}");
        }
    }

    /// Who polls does so in the call that receives, while he waits for a stream only, and naps where the system does not let him poll.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_thread_polls_for_a_stream_where_that_brings_more() {
        let (shared, mut carried) = bound();
        let may = carried.driver.socket.set_busy_polling(true).is_ok();
        for (polls, streams, has_said) in [
            (true, true, false),
            (false, true, false),
            (true, true, false),
            (true, false, false),
            (true, true, true),
        ] {
            carried.driver.busy_polling = BusyPolling::set(polls);
            carried.driver.napping = Napping::set(streams);
            shared.lock().has_said = has_said;
            let waited = carried.wait(shared.clock.now(), Duration::from_millis(50));
            assert!(waited.expect("it waits"), "{polls} {streams} {has_said}");
            let is_polling = carried.driver.socket.busy_poll().expect("said") > 0;
            assert_eq!(is_polling, may && polls && streams && !has_said, "{polls} {streams} {has_said}");
            let naps = streams && !has_said && !is_polling;
            assert_eq!(core::mem::take(&mut carried.has_more), naps, "{polls} {streams} {has_said}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn who_waits_for_several_endpoints_polls_for_none() {
        let (_shared, mut carried): (Vec<_>, Vec<_>) = [bound(), bound()].into_iter().unzip();
        for carried in &mut carried {
            carried.driver.socket.set_busy_polling(true).ok();
        }
        wait_for_any(&mut carried, Duration::from_millis(1));
        let polls = |carried: &Carried| carried.driver.socket.busy_poll().expect("said");
        assert_eq!(carried.iter().map(polls).collect::<Vec<_>>(), [0, 0]);
    }

    /// Gives its client back what he says, byte by byte and after a while.
    fn answer(tell: &mpsc::Sender<(String, ConnectOptions)>) {
        let identity = Identity::generate().expect("a key");
        let options = ConnectOptions::pinned(identity.fingerprint());
        let listener =
            Listener::bind(([127, 0, 0, 1], 0).into(), ServerOptions::new(identity)).expect("bound");
        tell.send((listener.local_addr().to_string(), options)).expect("told");
        let connection = listener.accept().expect("a client");
        let mut flow = connection.accept_flow().expect("a flow");
        let mut word = [0];
        while flow.read(&mut word).expect("read") > 0 {
            crate::blocking::carry(Duration::from_millis(2));
            flow.write_all(&word).expect("written");
        }
    }

    /// Who waits for answers sleeps in the call that receives them: another one to wait, and the kernel's telling who does, would
    /// be a good part of a short round trip.
    #[test]
    fn who_waits_for_an_answer_sleeps_in_the_call_that_receives_it() {
        let (tell, told) = mpsc::channel();
        let server = std::thread::spawn(move || answer(&tell));
        let (target, options) = told.recv().expect("bound");
        let connection = connect(&target, options).expect("connected");
        let mut flow = connection.open_flow(FlowOptions::default()).expect("opened");
        let thread = Thread::here();
        thread.sleeps.take();
        for n in 0..ANSWERS {
            flow.write_all(&[n as u8]).expect("written");
            let mut word = [0];
            flow.read_exact(&mut word).expect("read");
            assert_eq!(word, [n as u8]);
        }
        let (receiving, others) = thread.sleeps.get();
        assert!(receiving >= ANSWERS / 2 && others <= receiving / 2, "{receiving} and {others} others");
        flow.send_half().finished().expect("delivered");
        server.join().expect("answered");
    }
}
