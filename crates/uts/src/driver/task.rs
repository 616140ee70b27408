//! The task of a socket: take in, do what is due, send, tell, sleep.

use super::socket::{Batch, Received, Socket};
use super::timer::Timer;
use super::{Inner, Shared};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::io;
use std::sync::Arc;
use uts_engine::Transmit;

/// Turns before other tasks of the runtime have theirs.
const TURNS_MAX: usize = 16;

/// Calls to receive before what they brought is answered; each brings up to four buffers of datagrams.
const RECEIVES_PER_TURN: usize = 2;

/// Batches to send before looking for what has arrived.
const BATCHES_PER_TURN: usize = 16;

/// Errors of the socket in a row after which it is given up.
const ERRORS_MAX: u32 = 1000;

pub(super) struct Driver {
    shared: Arc<Shared>,
    socket: Socket,
    timer: Timer,
    outgoing: Outgoing,
    woken: Vec<Waker>,
    errors: u32,
}

/// A batch on its way out, of which the first `sent` bytes have left.
#[derive(Default)]
struct Outgoing {
    contents: Vec<u8>,
    transmit: Option<Transmit>,
    sent: usize,
}

/// What is left to do after a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// There may be more to do at once.
    Busy,
    /// Something will wake the task.
    Idle,
    /// Nobody needs the endpoint any more.
    Done,
}

impl Driver {
    pub fn new(shared: Arc<Shared>, socket: Socket) -> io::Result<Self> {
        let timer = Timer::new()?;
        Ok(Driver { shared, socket, timer, outgoing: Outgoing::default(), woken: Vec::new(), errors: 0 })
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> io::Result<Turn> {
        let mut is_busy = self.receive(cx)?;
        let (sent_all, is_blocked) = self.send(cx)?;
        is_busy |= !sent_all && !is_blocked;
        let shared = self.shared.clone();
        let mut inner = shared.lock();
        inner.dispatch(&shared, &mut self.woken);
        let turn = if inner.is_over() { Turn::Done } else { self.plan(cx, &mut inner, is_busy, is_blocked)? };
        drop(inner);
        self.woken.drain(..).for_each(Waker::wake);
        Ok(turn)
    }

    /// Decides whether to sleep, and sees to it that the task is woken.
    fn plan(
        &mut self,
        cx: &mut Context<'_>,
        inner: &mut Inner,
        is_busy: bool,
        is_blocked: bool,
    ) -> io::Result<Turn> {
        if is_busy || (inner.kicked && !is_blocked) {
            return Ok(Turn::Busy);
        }
        inner.parked = Some(cx.waker().clone());
        if is_blocked {
            // The socket's readiness comes first; what is due is done then.
            return Ok(Turn::Idle);
        }
        let deadline = inner.engine.poll_timeout();
        match self.timer.poll(cx, self.shared.clock.now(), deadline)? {
            Poll::Ready(()) => Ok(Turn::Busy),
            Poll::Pending => Ok(Turn::Idle),
        }
    }

    /// Takes in what has arrived; says whether there may be more.
    fn receive(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        for _ in 0..RECEIVES_PER_TURN {
            let shared = &self.shared;
            let received = self.socket.poll_receive(cx, |received| take_in(shared, received));
            match received {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(_)) => self.errors = 0,
                Poll::Ready(Err(e)) => self.on_error(e)?,
            }
        }
        Ok(true)
    }

    /// Sends what is due. Says whether that was all, and whether the socket takes no more.
    fn send(&mut self, cx: &mut Context<'_>) -> io::Result<(bool, bool)> {
        for _ in 0..BATCHES_PER_TURN {
            if self.outgoing.transmit.is_none() && !self.fetch() {
                return Ok((true, false));
            }
            let Some(transmit) = self.outgoing.transmit else { return Ok((true, false)) };
            let batch = Batch {
                remote: transmit.remote,
                local: transmit.local,
                ecn: transmit.ecn,
                segment_bytes: transmit.segment_bytes,
                contents: self.outgoing.contents.get(self.outgoing.sent..).unwrap_or_default(),
            };
            match self.socket.poll_send(cx, &batch) {
                Poll::Pending => return Ok((false, true)),
                Poll::Ready(Ok(bytes)) => {
                    self.outgoing.sent += bytes;
                    self.errors = 0;
                }
                Poll::Ready(Err(e)) => {
                    // It counts as lost: a probe too large for the path, a port that is closed, a route that is gone.
                    self.outgoing.sent += batch.segment_bytes.max(1);
                    self.on_error(e)?;
                }
            }
            if self.outgoing.sent >= self.outgoing.contents.len() {
                self.outgoing.transmit = None;
            }
        }
        Ok((false, false))
    }

    /// Gets the next batch; notes if there is none.
    fn fetch(&mut self) -> bool {
        let mut inner = self.shared.lock();
        let inner = &mut *inner;
        let now = self.shared.clock.now();
        inner.kicked = false;
        if inner.engine.poll_timeout().is_some_and(|at| at <= now) {
            inner.engine.handle_timeout(now);
        }
        self.outgoing.sent = 0;
        self.outgoing.transmit = inner.engine.poll_transmit(now, &mut self.outgoing.contents);
        if self.outgoing.transmit.is_none() && inner.sent != inner.changes {
            inner.sent = inner.changes;
            if inner.flush_waiters > 0 {
                self.shared.flushed.notify_waiters();
            }
        }
        self.outgoing.transmit.is_some()
    }

    /// Errors of a datagram socket are about single datagrams. Only a socket that knows nothing but errors is given up.
    fn on_error(&mut self, error: io::Error) -> io::Result<()> {
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
        self.errors += 1;
        if self.errors > ERRORS_MAX {
            return Err(error);
        }
        tracing::debug!(%error, "socket");
        if self.socket.is_connected()
            && matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
        {
            let mut inner = self.shared.lock();
            inner.unreachable += 1;
            inner.connections.values().for_each(|state| state.notify.state.notify_waiters());
        }
        Ok(())
    }
}

/// Gives the engine the datagrams of a buffer.
fn take_in(shared: &Shared, received: Received<'_>) {
    let mut inner = shared.lock();
    let now = shared.clock.now();
    for datagram in received.contents.chunks_mut(received.stride) {
        let Received { remote, local, ecn, .. } = received;
        inner.engine.handle_datagram_at(now, remote, local, ecn, datagram);
    }
    inner.retry_openers();
}

impl Inner {
    /// Nobody holds the endpoint, and its connections have said their farewell.
    fn is_over(&mut self) -> bool {
        self.users == 0 && self.connections.is_empty() && self.engine.is_empty() && !self.kicked
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..TURNS_MAX {
            match self.turn(cx) {
                Ok(Turn::Busy) => {}
                Ok(Turn::Idle) => return Poll::Pending,
                Ok(Turn::Done) => return Poll::Ready(()),
                Err(error) => {
                    tracing::warn!(%error, "the socket has failed");
                    let shared = self.shared.clone();
                    shared.lock().stop(&shared, &format!("the socket has failed: {error}"));
                    return Poll::Ready(());
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Driver {
    /// The runtime goes down, or the engine has failed: nobody may wait for ever.
    fn drop(&mut self) {
        let shared = self.shared.clone();
        let mut inner = shared.lock();
        if inner.stopped.is_none() {
            inner.stop(&shared, "");
        }
    }
}
