//! A thread that carries its endpoints itself, while it waits for something.
//!
//! No task has to be woken, and nothing stands between the waiting thread and the kernel: what a
//! thread writes leaves before its call returns, and what arrives is taken in by the call in which
//! the thread waits for it. In between nothing happens.

mod carried;

use super::Driver;
use crate::clock::Clock;
use carried::{Carried, Due, wait};
use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Wake;
use uts_functions::Time;

/// Reads that found data without waiting, after which the endpoints have a turn: the peer may have
/// to be told that it may send more.
const READS_PER_TURN: u32 = 8;

thread_local! {
    static THREAD: Rc<Thread> = Rc::new(Thread::new());
}

/// The endpoints of a thread.
pub(crate) struct Thread {
    clock: Clock,
    carried: RefCell<Vec<Carried>>,
    /// Endpoints that were made since the last turn.
    new: RefCell<Vec<Driver>>,
    /// An awaited event may have happened.
    woken: Arc<Woken>,
    waker: Waker,
    /// Sleepers, by the instants at which they are to be woken.
    alarms: RefCell<BTreeMap<(Time, u64), Waker>>,
    /// Sleeps so far: each has a number.
    sleeps: Cell<u64>,
    /// Waits under way, one within the other.
    waits: Cell<u32>,
    /// Reads that found data without waiting, since the last turn.
    reads: Cell<u32>,
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
pub(super) fn adopt(driver: Driver) {
    Thread::here().new.borrow_mut().push(driver);
}

/// Waits, in the thread, for so long.
pub(crate) fn sleep(duration: Duration) -> Sleep {
    let thread = Thread::here();
    let number = thread.sleeps.get();
    thread.sleeps.set(number + 1);
    Sleep { alarm: (thread.clock.now() + duration, number) }
}

/// A wait for an instant. It wakes who has polled it: a thread may wait for many things at once.
pub(crate) struct Sleep {
    /// Its place among the alarms of the thread.
    alarm: (Time, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let thread = Thread::here();
        if thread.clock.now() >= self.alarm.0 {
            return Poll::Ready(());
        }
        thread.alarms.borrow_mut().insert(self.alarm, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // A thread that ends has no alarms any more.
        let _ = THREAD.try_with(|thread| thread.alarms.borrow_mut().remove(&self.alarm));
    }
}

/// The clock of this thread's endpoints.
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
            alarms: RefCell::default(),
            sleeps: Cell::new(0),
            waits: Cell::new(0),
            reads: Cell::new(0),
        }
    }

    /// The one that is running.
    pub fn here() -> Rc<Self> {
        THREAD.with(Rc::clone)
    }

    /// Waits for `future`. What is waited for may itself wait in the thread.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let _wait = Within::begin(self);
        let mut future = pin!(future);
        let mut cx = Context::from_waker(&self.waker);
        // The first poll needs no waker.
        let mut is_due = true;
        loop {
            if (core::mem::take(&mut is_due) | self.woken.take())
                && let Poll::Ready(result) = future.as_mut().poll(&mut cx)
            {
                return result;
            }
            if let Some(until) = self.carry() {
                self.rest(until);
            }
            self.ring();
        }
    }

    /// Wakes those whose time has come.
    fn ring(&self) {
        let mut alarms = self.alarms.borrow_mut();
        if alarms.is_empty() {
            return;
        }
        let now = self.clock.now();
        while let Some(alarm) = alarms.first_entry().filter(|alarm| alarm.key().0 <= now) {
            alarm.remove().wake();
        }
    }

    /// Instant at which somebody is to be woken, at the latest.
    fn next_alarm(&self) -> Time {
        self.alarms.borrow().first_key_value().map_or(Time::NEVER, |((at, _), _)| *at)
    }

    /// Waits for `future`, for so long at most if that is limited; `None` = it was not there by
    /// then.
    pub fn wait_within<T>(&self, future: impl Future<Output = T>, most: Option<Duration>) -> Option<T> {
        let Some(most) = most else { return Some(self.wait(future)) };
        let (mut future, mut limit) = (pin!(future), pin!(sleep(most)));
        self.wait(poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => limit.as_mut().poll(cx).map(|()| None),
        }))
    }

    /// Has what was just written leave, as far as the path takes it.
    pub fn send(&self) {
        // In what an endpoint calls it has its turn already.
        if self.carried.try_borrow_mut().is_ok() {
            self.carry();
        }
    }

    /// Something was read that was there. So now and then the peer is told that it may send more.
    pub fn took(&self) {
        self.reads.set(self.reads.get() + 1);
        if self.reads.get() >= READS_PER_TURN {
            self.carry();
        }
    }

    /// A turn for each endpoint. Says until when nothing is to be done; `None` = there is more, or
    /// somebody was woken.
    fn carry(&self) -> Option<Time> {
        self.reads.set(0);
        let mut carried = self.carried.borrow_mut();
        if !self.new.borrow().is_empty() {
            carried.extend(self.new.take().into_iter().map(Carried::new));
        }
        let (mut rests_until, mut turns) = (Some(Time::NEVER), 0);
        while let Some(next) = carried.get_mut(turns) {
            let due = next.turn().unwrap_or_else(|error| {
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

    /// Waits until something arrives, or until `until`.
    fn rest(&self, until: Time) {
        let mut carried = self.carried.borrow_mut();
        let (now, until) = (self.clock.now(), until.min(self.next_alarm()));
        if until > now {
            wait(&mut carried, now, until);
        }
        for carried in carried.iter_mut() {
            carried.rests_until.take_if(|at| *at <= now);
        }
    }
}

/// A wait, until it is dropped.
struct Within<'t>(&'t Thread);

impl<'t> Within<'t> {
    fn begin(thread: &'t Thread) -> Self {
        thread.waits.set(thread.waits.get() + 1);
        Within(thread)
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        let around = self.0.waits.get() - 1;
        self.0.waits.set(around);
        if around > 0 {
            // It has heard what the one around it waits for.
            self.0.waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::{Listener, connect};
    use crate::driver::testing::Log;
    use crate::{ConnectOptions, FlowOptions, Identity, ServerOptions};
    use std::io::{Read, Write};
    use std::sync::mpsc;

    const ANSWERS: usize = 30;

    /// Gives its client back what that says, byte by byte and after a while.
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

    /// A thread that waits for responses sleeps in the call that receives them: another call to
    /// wait, and the kernel's telling, would be a good part of a short round trip.
    #[test]
    fn a_thread_that_waits_for_a_response_sleeps_in_the_call_that_receives_it() {
        let (tell, told) = mpsc::channel();
        let server = std::thread::spawn(move || answer(&tell));
        let (target, options) = told.recv().expect("bound");
        let connection = connect(&target, options).expect("connected");
        let mut flow = connection.open_flow(FlowOptions::default()).expect("opened");
        let log = Log::begin();
        for n in 0..ANSWERS {
            flow.write_all(&[n as u8]).expect("written");
            let mut word = [0];
            flow.read_exact(&mut word).expect("read");
            assert_eq!(word, [n as u8]);
        }
        let others = log.count(|line| line.what == "wait for any socket");
        let sleeps = log.count(|line| line.what == "wait" && !line.says("Spin"));
        let receiving = sleeps - others;
        assert!(receiving >= ANSWERS / 2 && others <= receiving / 2, "{receiving} and {others} others");
        flow.send_half().finished().expect("delivered");
        server.join().expect("answered");
    }
}
