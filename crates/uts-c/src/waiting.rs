//! Waiting: one way for all functions. A time of 0 tries once, and has an entry of the queue say
//! when to try again; a negative one waits for good; else it is milliseconds.

use crate::code::{Failure, Result, uts_code};
use crate::handles::Common;
use crate::queue::uts_operation;
use core::ffi::c_int;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Wake;
use std::time::Instant;

/// The present.
#[allow(clippy::disallowed_methods, reason = "threads of C wait in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Time that a call waits.
#[derive(Clone, Copy)]
pub(crate) enum Patience {
    /// Not at all.
    Tries,
    /// Until then; `None` = for good.
    Until(Option<Instant>),
}

impl Patience {
    /// From milliseconds as C says them.
    pub fn of(timeout_ms: c_int) -> Self {
        match u64::try_from(timeout_ms) {
            Ok(0) => Patience::Tries,
            Ok(ms) => Patience::Until(now().checked_add(Duration::from_millis(ms))),
            Err(_) => Patience::Until(None),
        }
    }

    /// True if its time has come.
    pub fn is_over(self) -> bool {
        matches!(self, Patience::Until(Some(deadline)) if now() >= deadline)
    }
}

/// A thread that waits.
#[derive(Default)]
pub(crate) struct Parker {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Parker {
    /// Has the thread look.
    pub fn unpark(&self) {
        *self.is_woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.notify_one();
    }

    /// Waits to be woken, until `deadline` at most.
    fn wait(&self, deadline: Option<Instant>) {
        let mut is_woken = self.is_woken.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_woken {
            is_woken = match deadline {
                None => self.woken.wait(is_woken).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(now());
                    if left.is_zero() {
                        return;
                    }
                    self.woken.wait_timeout(is_woken, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *is_woken = false;
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.unpark();
    }
}

/// Waits for `future` with the patience that C has.
///
/// # Errors
/// UTS_AGAIN, UTS_ETIMEDOUT; UTS_EHANDLE if the handle is closed meanwhile.
pub(crate) fn wait<T>(
    common: &Arc<Common>,
    operation: uts_operation,
    patience: Patience,
    future: impl Future<Output = T>,
) -> Result<T> {
    wait_pinned(common, operation, patience, pin!(future))
}

fn wait_pinned<T>(
    common: &Arc<Common>,
    operation: uts_operation,
    patience: Patience,
    mut future: Pin<&mut dyn Future<Output = T>>,
) -> Result<T> {
    let deadline = match patience {
        Patience::Tries => {
            let post = common.posts.of(common, operation);
            post.arm();
            return match future.as_mut().poll(&mut Context::from_waker(&Waker::from(post.clone()))) {
                Poll::Ready(done) => {
                    post.disarm();
                    Ok(done)
                }
                Poll::Pending => Err(Failure::again()),
            };
        }
        Patience::Until(deadline) => deadline,
    };
    let parker = Arc::new(Parker::default());
    let waker = Waker::from(parker.clone());
    common.park(&parker);
    let _parked = Parked { common, parker: &parker };
    loop {
        if common.is_closed() {
            return Err(Failure::new(uts_code::UTS_EHANDLE, "the handle was closed while the call waited"));
        }
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(done);
        }
        if patience.is_over() {
            return Err(Failure::new(uts_code::UTS_ETIMEDOUT, "the time that was given has passed"));
        }
        parker.wait(deadline);
    }
}

/// A thread that is known to wait with a handle, also if what it waits for panics.
struct Parked<'a> {
    common: &'a Common,
    parker: &'a Arc<Parker>,
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.common.unpark(self.parker);
    }
}

/// The state of an operation, for the one thread that is in it.
///
/// # Errors
/// UTS_EBUSY if another is.
pub(crate) fn alone<T>(state: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    match state.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(Failure::new(uts_code::UTS_EBUSY, "another thread is in this call with this handle"))
        }
    }
}

/// An operation that is begun once, goes on between calls, and gives its result to the call that
/// finds it done.
pub(crate) struct Begun<T>(Mutex<Option<Going<T>>>);

type Going<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<T> Default for Begun<T> {
    fn default() -> Self {
        Begun(Mutex::new(None))
    }
}

impl<T> Begun<T> {
    /// Goes on with the operation, or begins it.
    ///
    /// # Errors
    /// As of [`wait`], and UTS_EBUSY.
    pub fn go_on(
        &self,
        common: &Arc<Common>,
        operation: uts_operation,
        patience: Patience,
        begin: impl FnOnce() -> Going<T>,
    ) -> Result<T> {
        let mut going = alone(&self.0)?;
        let future = going.get_or_insert_with(begin);
        let done = wait_pinned(common, operation, patience, future.as_mut());
        if done.is_ok() {
            *going = None;
        }
        done
    }
}
