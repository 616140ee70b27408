//! Futures in virtual time: a thread, its tasks, and a clock that somebody else moves.
//!
//! The order in which things run follows from the order in which tasks were spawned and woken, and
//! from nothing else.

use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;
use uts_functions::Time;
use uts_traffic::clock::Clock;
use uts_traffic::transport::Local;

/// Tasks and timers.
#[derive(Default)]
pub(super) struct Executor {
    tasks: RefCell<Vec<Option<Task>>>,
    woken: Arc<Mutex<VecDeque<usize>>>,
    timers: RefCell<BTreeMap<(Time, u64), Waker>>,
    next_timer: Cell<u64>,
    now: Cell<Time>,
}

struct Task {
    future: Local<'static, ()>,
    waker: Arc<TaskWaker>,
}

/// Wakers must be able to go to other threads, which none does here.
struct TaskWaker {
    task: usize,
    is_queued: AtomicBool,
    woken: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            self.woken.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.task);
        }
    }
}

impl Executor {
    /// Another task; it runs at the next [`Executor::run_woken`].
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let mut tasks = self.tasks.borrow_mut();
        let woken = self.woken.clone();
        let waker = Arc::new(TaskWaker { task: tasks.len(), is_queued: AtomicBool::new(false), woken });
        waker.clone().wake();
        tasks.push(Some(Task { future: Box::pin(future), waker }));
    }

    /// Runs tasks that were woken until none is.
    pub fn run_woken(&self) {
        loop {
            let next = self.woken.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(number) = next else { return };
            // Taken out, so that a task may spawn others.
            let taken = self.tasks.borrow_mut().get_mut(number).and_then(Option::take);
            let Some(mut task) = taken else { continue };
            task.waker.is_queued.store(false, Ordering::Relaxed);
            let waker = Waker::from(task.waker.clone());
            if task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                self.tasks.borrow_mut()[number] = Some(task);
            }
        }
    }

    /// True if every task is done.
    pub fn is_done(&self) -> bool {
        self.tasks.borrow().iter().all(Option::is_none)
    }

    /// Drops all tasks, done or not.
    pub fn clear(&self) {
        let tasks = core::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
        self.timers.borrow_mut().clear();
    }

    /// When the next timer is due.
    pub fn next_timer(&self) -> Option<Time> {
        self.timers.borrow().first_key_value().map(|((at, _), _)| *at)
    }

    /// Moves the clock, and wakes what waits for an instant that has come.
    pub fn set_now(&self, now: Time) {
        self.now.set(now);
        loop {
            let mut timers = self.timers.borrow_mut();
            let due = timers.first_entry().filter(|first| first.key().0 <= now);
            let Some(waker) = due.map(|first| first.remove()) else { return };
            drop(timers);
            waker.wake();
        }
    }
}

/// The clock of an executor.
#[derive(Clone)]
pub(super) struct SimClock(pub Rc<Executor>);

impl SimClock {
    /// The instant.
    pub fn now(&self) -> Time {
        self.0.now.get()
    }
}

impl Clock for SimClock {
    fn now_ns(&self) -> u64 {
        self.now().as_nanos()
    }

    fn sleep_until(&self, at_ns: u64) -> Local<'static, ()> {
        Box::pin(Sleep { executor: self.0.clone(), at: Time::from_nanos(at_ns), timer: None })
    }
}

/// Waits for an instant. Dropped, it leaves no timer behind.
struct Sleep {
    executor: Rc<Executor>,
    at: Time,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.executor.now.get() >= self.at {
            return Poll::Ready(());
        }
        let number = self.timer.unwrap_or_else(|| {
            let number = self.executor.next_timer.get();
            self.executor.next_timer.set(number + 1);
            number
        });
        self.timer = Some(number);
        self.executor.timers.borrow_mut().insert((self.at, number), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.timer {
            self.executor.timers.borrow_mut().remove(&(self.at, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::{join, select};

    /// Runs until all is done, with a clock that jumps from timer to timer.
    fn run(executor: &Executor) {
        loop {
            executor.run_woken();
            let Some(at) = executor.next_timer() else { return };
            executor.set_now(at);
        }
    }

    #[test]
    fn sleepers_wake_in_the_order_of_their_instants_then_of_their_coming() {
        let executor = Rc::new(Executor::default());
        let clock = SimClock(executor.clone());
        let order = Rc::new(RefCell::new(Vec::new()));
        for (name, at_ns) in [("c", 30), ("a", 10), ("b1", 20), ("b2", 20), ("now", 0)] {
            let (clock, order) = (clock.clone(), order.clone());
            executor.spawn(async move {
                clock.sleep_until(at_ns).await;
                order.borrow_mut().push((name, clock.now_ns()));
            });
        }
        run(&executor);
        assert!(executor.is_done());
        assert_eq!(*order.borrow(), [("now", 0), ("a", 10), ("b1", 20), ("b2", 20), ("c", 30)]);
    }

    #[test]
    fn a_sleep_that_is_given_up_leaves_no_timer() {
        let executor = Rc::new(Executor::default());
        let clock = SimClock(executor.clone());
        let task = clock.clone();
        executor.spawn(async move {
            for n in 1..=1000 {
                select(task.sleep_until(n), task.sleep_until(1_000_000_000)).await;
            }
        });
        executor.run_woken();
        assert_eq!(executor.timers.borrow().len(), 2);
        run(&executor);
        assert!(executor.is_done() && executor.timers.borrow().is_empty());
        assert_eq!(clock.now_ns(), 1000);
    }

    #[test]
    fn tasks_may_spawn_tasks_and_what_is_left_is_dropped() {
        let executor = Rc::new(Executor::default());
        let (outer, dropped) = (executor.clone(), Rc::new(()));
        let held = dropped.clone();
        executor.spawn(async move {
            let inner = SimClock(outer.clone());
            outer.spawn(async move {
                join(inner.sleep_until(5), core::future::pending::<()>()).await;
                drop(held);
            });
        });
        run(&executor);
        assert!(!executor.is_done());
        assert_eq!(Rc::strong_count(&dropped), 2);
        executor.clear();
        assert_eq!((Rc::strong_count(&dropped), Rc::strong_count(&executor)), (1, 1));
    }
}
