//! A thread that carries its endpoints itself, while it waits for something.
//!
//! No task has to be woken, and nothing stands between the waiting thread and the kernel: what a
//! thread writes leaves before its call returns, and what arrives is taken in by the call in which
//! the thread waits for it. In between nothing happens.

use super::Driver;
use super::Inner;
use super::turn::Sent;
use super::waiting::{Situation, Sleeper, Wait, Waiting};
use crate::clock::Clock;
use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::io;
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

/// Waits until something arrives, or until `until`: as suits the only endpoint, or for all of
/// several.
fn wait(carried: &mut Vec<Carried>, now: Time, until: Time) {
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

    /// Does what there is to do.
    fn turn(&mut self) -> io::Result<Due> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::{Listener, connect};
    use crate::driver::socket::Socket;
    use crate::driver::testing::{Log, send_stray};
    use crate::driver::{Host, Shared};
    use crate::{ConnectOptions, FlowOptions, Identity, ServerOptions};
    use std::io::{Read, Write};
    use std::sync::mpsc;

    const ANSWERS: usize = 30;

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
