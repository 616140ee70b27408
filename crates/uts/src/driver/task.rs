//! A task that carries an endpoint: it takes turns, and sleeps in between. The runtime's reactor
//! wakes it when something arrives, a timer when something is due, and the endpoint's handles when
//! they have changed something.

use super::Driver;
use super::timer::Timer;
use super::turn::Sent;
use super::waiting::{Situation, Sleeper, Wait};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::io;
use uts_functions::Time;

/// Turns before other tasks of the runtime have theirs.
const TURNS_MAX: usize = 16;

/// An endpoint, carried by a task.
pub(super) struct Task {
    pub(super) driver: Driver,
    /// Made when it is first needed.
    timer: Option<Timer>,
}

/// When the task has its next turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// At once: there may be more to do.
    Now,
    /// Behind those tasks that were just woken: they may answer.
    BehindWoken,
    /// Behind all other tasks.
    BehindOthers,
    /// When the task is woken.
    WhenWoken,
    /// Nobody needs the endpoint any more.
    Never,
}

impl Task {
    pub fn new(driver: Driver) -> Self {
        Task { driver, timer: None }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> io::Result<Next> {
        self.driver.begin_turn();
        let more_arrives = self.receive(cx)?;
        let sent = self.driver.send(cx, more_arrives)?;
        self.driver.dispatch(sent);
        let next = self.wait(cx, more_arrives, sent)?;
        self.driver.wake();
        Ok(next)
    }

    /// Takes in what has arrived, if this turn is to; says whether there may be more.
    fn receive(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let (has_response, moved_to) = {
            let Driver { shared, socket, .. } = &mut self.driver;
            let mut inner = shared.lock();
            #[cfg(unix)]
            inner.succession.begin_turn(socket);
            #[cfg(not(unix))]
            let _ = socket;
            (inner.dialogue.take_response(), inner.moved_to.take())
        };
        if let Some(socket) = moved_to {
            self.driver.move_to(*socket);
        }
        let Driver { shared, schedule, socket, .. } = &mut self.driver;
        let receives = schedule.receives(has_response, socket.is_watched());
        tracing::trace!(endpoint = %shared.local_addr(), receives, has_response, "turn");
        if receives { self.driver.receive(cx) } else { Ok(false) }
    }

    /// Waits, if there is nothing to do; else says when there is.
    fn wait(&mut self, cx: &mut Context<'_>, more_arrives: bool, sent: Sent) -> io::Result<Next> {
        let has_woken = !self.driver.woken.is_empty();
        let Driver { shared, waiting, .. } = &mut self.driver;
        let mut inner = shared.lock();
        if inner.is_over() {
            return Ok(Next::Never);
        }
        let now = shared.clock.now();
        #[cfg(unix)]
        let more_arrives = more_arrives || inner.succession.wants_turn();
        let wait = if more_arrives || sent == Sent::Some || (inner.kicked && sent != Sent::Blocked) {
            Wait::Not
        } else if sent == Sent::Blocked {
            // The socket wakes the task; what is due is done then.
            Wait::Sleep(Time::NEVER)
        } else {
            let until = inner.engine.poll_timeout().unwrap_or(Time::NEVER);
            waiting.next(Situation { now, until, sleeper: Sleeper::Task, has_woken }, &mut inner.dialogue)
        };
        if !matches!(wait, Wait::Not | Wait::Spin { .. }) {
            inner.parked = Some(cx.waker().clone());
        }
        drop(inner);
        tracing::trace!(endpoint = %shared.local_addr(), ?wait, "wait");
        match wait {
            // A reader that was woken reads before more is received: into memory that it leaves,
            // while the data is in cache.
            Wait::Not if has_woken => Ok(Next::BehindOthers),
            Wait::Not => Ok(Next::Now),
            Wait::Spin { .. } if has_woken => Ok(Next::BehindWoken),
            Wait::Spin { looks, .. } => {
                Ok(if self.driver.spin(looks, |_, _, _| {})? { Next::Now } else { Next::BehindOthers })
            }
            Wait::Nap(until) => self.sleep(cx, now, until, false),
            Wait::Sleep(until) | Wait::BusyPoll(until) => self.sleep(cx, now, until, true),
        }
    }

    /// Sees to it that the task is woken at `until`, and if it is to be told by what arrives.
    fn sleep(&mut self, cx: &mut Context<'_>, now: Time, until: Time, is_told: bool) -> io::Result<Next> {
        let timer = match &mut self.timer {
            Some(timer) => timer,
            none => none.insert(Timer::new()?),
        };
        if timer.poll(cx, now, until)?.is_ready() {
            return Ok(Next::Now);
        }
        if !is_told {
            self.driver.socket.unwatch();
            return Ok(Next::WhenWoken);
        }
        let has_arrived = self.driver.socket.watch(cx)?;
        Ok(if has_arrived { Next::Now } else { Next::WhenWoken })
    }
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..TURNS_MAX {
            match self.turn(cx) {
                Ok(Next::Now) => {}
                Ok(Next::BehindWoken) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(Next::BehindOthers) => break,
                Ok(Next::WhenWoken) => return Poll::Pending,
                Ok(Next::Never) => return Poll::Ready(()),
                Err(error) => {
                    self.driver.fail(&error);
                    return Poll::Ready(());
                }
            }
        }
        // Unlike a task that wakes itself, one that yields is behind all others, and behind what
        // the reactor has.
        let mut others = core::pin::pin!(tokio::task::yield_now());
        if others.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
