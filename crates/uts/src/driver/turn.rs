//! The steps of which a turn of an endpoint consists: receive, send, dispatch, spin, wake. A task
//! (`task.rs`) and a thread (`thread.rs`) take them; they differ in how they wait.

use super::outgoing::Outgoing;
use super::schedule::Schedule;
use super::socket::{Received, Socket};
use super::waiting::Waiting;
use super::{Crew, Inner, Shared, said, timer};
use crate::clock::kernel_tick;
use core::task::{Context, Poll, Waker};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, MutexGuard, Weak};
use uts_engine::{Ecn, Point, worker_of};
use uts_functions::Time;

/// Batches and bytes that are sent before looking for arrivals: batches of many connections are
/// small, those of one hold 64 KiB.
const BATCHES_PER_TURN: usize = 64;
const BYTES_PER_TURN: usize = 1 << 20;

/// Errors of the socket in a row after which it is given up.
const ERRORS_MAX: u32 = 1000;

/// An endpoint with its socket, and what was found of late of how to wait.
pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) socket: Socket,
    outgoing: Outgoing,
    /// For whom something has happened.
    pub(super) woken: Vec<Waker>,
    /// Errors of the socket in a row.
    errors: u32,
    pub(super) schedule: Schedule,
    pub(super) waiting: Waiting,
    /// Begin of the turn, where somebody is told of points.
    turn_begun: Option<Time>,
}

/// Result of sending what was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// All has left.
    All,
    /// There may be more.
    Some,
    /// The socket takes no more.
    Blocked,
}

impl Driver {
    pub fn new(shared: Arc<Shared>, socket: Socket) -> Self {
        let buffer_bytes = if timer::IS_FINE { socket.buffer_bytes() } else { 0 };
        let waiting = Waiting::new(shared.clock.now(), shared.spin, buffer_bytes, kernel_tick());
        let (outgoing, schedule, woken) = (Outgoing::default(), Schedule::default(), Vec::new());
        Driver { shared, socket, outgoing, woken, errors: 0, schedule, waiting, turn_begun: None }
    }

    /// A turn begins.
    pub fn begin_turn(&mut self) {
        self.turn_begun = self.shared.probes.now();
    }

    /// The endpoint goes on by another socket. What the one before still holds is read by nobody:
    /// peers repeat it.
    pub fn move_to(&mut self, socket: Socket) {
        self.socket = socket;
        self.errors = 0;
        let local = said(self.shared.local_addr());
        let mut inner = self.shared.lock();
        inner.engine.on_moved(self.shared.clock.now(), local);
    }

    /// A call begins that waits for what arrives.
    #[cfg(unix)]
    pub fn begin_wait(&mut self) {
        self.turn_begun = None;
    }

    /// Takes in what has arrived; says whether there may be more.
    pub fn receive(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        match self.take_in(|socket, intake| socket.poll_receive(cx, |r| intake.add(r)), |_, _, _| {}).0 {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(may_be_more)) => Ok(may_be_more),
            Poll::Ready(Err(error)) => self.on_error(error).map(|()| true),
        }
    }

    /// Looks again and again for what arrives, so often at most; says whether anything has. `then`
    /// is done under the lock under which the engine is given what was found.
    pub fn spin(
        &mut self,
        looks: usize,
        then: impl Fn(&mut Inner, &Shared, &mut Vec<Waker>),
    ) -> io::Result<bool> {
        for look in 0..looks {
            self.begin_turn();
            match self.take_in(|socket, intake| socket.try_receive(|r| intake.add(r)), &then).0 {
                Poll::Pending => core::hint::spin_loop(),
                Poll::Ready(Ok(may_be_more)) => {
                    self.schedule.on_spin_found(may_be_more);
                    self.waiting.on_spin_found(look == 0);
                    return Ok(true);
                }
                Poll::Ready(Err(error)) => self.on_error(error)?,
            }
        }
        self.waiting.on_spin_missed();
        Ok(false)
    }

    /// Receives by `call`, and gives the engine what that brings, under one lock and at one time,
    /// which it says. `then` is done under the same lock.
    pub fn take_in(
        &mut self,
        call: impl FnOnce(&mut Socket, &mut Intake<'_>) -> Poll<io::Result<bool>>,
        then: impl FnOnce(&mut Inner, &Shared, &mut Vec<Waker>),
    ) -> (Poll<io::Result<bool>>, Option<Time>) {
        let begun = self.turn_begun.take().zip(self.shared.probes.now());
        let mut intake = Intake { shared: &self.shared, begun, inner: None, bytes: 0, strays: Vec::new() };
        let received = call(&mut self.socket, &mut intake);
        if let Poll::Ready(Ok(_)) = received {
            self.errors = 0;
        }
        let Intake { inner, bytes, strays, .. } = intake;
        let Some((mut inner, at)) = inner else {
            strays.into_iter().for_each(Stray::hand_over);
            return (received, None);
        };
        inner.engine.taken_in(at);
        inner.retry_openers();
        then(&mut inner, &self.shared, &mut self.woken);
        drop(inner);
        // Not under a lock: a sibling may have one for this worker.
        strays.into_iter().for_each(Stray::hand_over);
        self.waiting.on_arrival(at, bytes);
        (received, Some(at))
    }

    /// Sends what is due; while more arrives, not in each turn.
    pub fn send(&mut self, cx: &mut Context<'_>, more_arrives: bool) -> io::Result<Sent> {
        if !self.schedule.sends(more_arrives) {
            return Ok(Sent::Some);
        }
        // Timers are looked at once in a turn: of many connections, many are due, and each look
        // goes through all of them.
        let (mut is_first, mut bytes_sent) = (true, 0);
        for _ in 0..BATCHES_PER_TURN {
            if bytes_sent >= BYTES_PER_TURN {
                break;
            }
            if self.outgoing.is_empty() {
                // What has become due while the last was sent is done in the next turn.
                if !is_first && self.outgoing.is_all() {
                    return Ok(Sent::All);
                }
                self.fetch(core::mem::take(&mut is_first));
            }
            let Some(batch) = self.outgoing.front() else { return Ok(Sent::All) };
            let sending = self.shared.probes.now();
            let bytes = match self.socket.poll_send(cx, &batch) {
                Poll::Pending => return Ok(Sent::Blocked),
                Poll::Ready(Ok(bytes)) => {
                    if let Some(sending) = sending {
                        self.shared.probes.passed(sending, Point::Sending, bytes);
                        self.shared.probes.pass(Point::Sent, bytes);
                    }
                    self.errors = 0;
                    bytes_sent += bytes;
                    bytes
                }
                Poll::Ready(Err(error)) => {
                    // It counts as lost: a probe too large for the path, a port that is closed, a
                    // route that is gone.
                    let lost = batch.segment_bytes;
                    self.on_error(error)?;
                    lost
                }
            };
            self.outgoing.on_sent(bytes);
        }
        Ok(Sent::Some)
    }

    /// Fetches what is to be sent next from the engine. The first of a turn does what is due.
    fn fetch(&mut self, is_first: bool) {
        let mut inner = self.shared.lock();
        let now = self.shared.clock.now();
        inner.kicked = false;
        if is_first {
            let Inner { host_seen, engine, .. } = &mut *inner;
            crate::host::hand_over(now, host_seen, engine);
            inner.engine.handle_timeout(now);
        }
        self.outgoing.fetch(now, &mut inner.engine, &self.shared.probes);
        if !self.outgoing.is_empty() {
            self.waiting.on_sent(now);
        }
    }

    /// Hands what has happened to those who wait for it. They are woken by [`Driver::wake`].
    pub fn dispatch(&mut self, sent: Sent) {
        let mut inner = self.shared.lock();
        if sent == Sent::All {
            inner.on_sent_all(&self.shared);
        }
        inner.dispatch(&self.shared, &mut self.woken);
    }

    /// Wakes those for whom something has happened.
    pub fn wake(&mut self) {
        self.woken.drain(..).for_each(Waker::wake);
    }

    /// The socket is of no use any more: everybody learns.
    pub fn fail(&mut self, error: &io::Error) {
        tracing::warn!(%error, "the socket has failed");
        self.shared.lock().stop(&self.shared, &format!("the socket has failed: {error}"));
        self.wake();
    }

    /// Errors of a datagram socket are about single datagrams. Only a socket that knows nothing but
    /// errors is given up.
    pub fn on_error(&mut self, error: io::Error) -> io::Result<()> {
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
        self.errors += 1;
        if self.errors > ERRORS_MAX {
            return Err(error);
        }
        tracing::debug!(%error, "socket");
        if let Some(peer) = self.socket.peer()
            && matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
        {
            let mut inner = self.shared.lock();
            inner.unreachable += 1;
            inner.engine.on_unreachable(self.shared.clock.now(), peer);
            inner.changed();
            inner.connections.values().for_each(|state| state.tell(|waiters| &waiters.state));
        }
        Ok(())
    }
}

/// Gives the engine what one call has brought.
pub(super) struct Intake<'a> {
    shared: &'a Shared,
    /// Begin of the turn and of the call, where somebody is told of points; `None` = the call began
    /// before anything had arrived.
    begun: Option<(Time, Time)>,
    /// The lock, and when the first was taken in.
    inner: Option<(MutexGuard<'a, Inner>, Time)>,
    bytes: usize,
    /// Datagrams for other workers at this port.
    strays: Vec<Stray>,
}

impl Intake<'_> {
    /// Takes in the contents of a buffer.
    pub fn add(&mut self, received: Received<'_>) {
        let Some(Crew { index, workers }) = self.shared.crew.get() else { return self.take_in(received) };
        let of = |datagram: &[u8]| worker_of(datagram, workers.len());
        if received.contents.chunks(received.stride).all(|datagram| of(datagram) == *index) {
            return self.take_in(received);
        }
        // The kernel has steered the first of what it joined; the others may be of other
        // connections of the same client.
        let Received { remote, local, ecn, stride, contents } = received;
        for contents in contents.chunks_mut(stride) {
            if of(contents) == *index {
                self.take_in(Received { remote, local, ecn, stride, contents });
            } else if let Some(worker) = workers.get(of(contents)).and_then(Weak::upgrade) {
                self.strays.push(Stray { worker, remote, local, ecn, contents: contents.into() });
            }
        }
    }

    fn take_in(&mut self, received: Received<'_>) {
        let (shared, bytes) = (self.shared, received.contents.len());
        if let Some(received) = shared.probes.now() {
            // What came in the same call is given by it at once.
            let (turn, call) = self.begun.unwrap_or((received, received));
            shared.probes.passed(turn, Point::Woken, bytes);
            shared.probes.passed(call, Point::Receiving, bytes);
            shared.probes.passed(received, Point::Received, bytes);
        }
        let (inner, now) = self.inner.get_or_insert_with(|| (shared.lock(), shared.clock.now()));
        self.bytes += bytes;
        shared.probes.pass(Point::Handed, bytes);
        inner.take_in(*now, received);
    }
}

/// A datagram that came to the socket of another worker than its own.
struct Stray {
    worker: Arc<Shared>,
    remote: SocketAddr,
    local: Option<IpAddr>,
    ecn: Option<Ecn>,
    contents: Box<[u8]>,
}

impl Stray {
    /// Gives it to its worker.
    fn hand_over(self) {
        let Stray { worker, remote, local, ecn, mut contents } = self;
        worker.act(|inner, now| {
            let stride = contents.len();
            inner.take_in(now, Received { remote, local, ecn, stride, contents: &mut contents });
            inner.engine.taken_in(now);
            inner.changed();
        });
    }
}

impl Inner {
    /// Gives the engine what has arrived. What is for another process is handed on to it.
    pub(super) fn take_in(&mut self, now: Time, received: Received<'_>) {
        #[cfg(unix)]
        let received = match &self.succession.predecessor {
            Some(predecessor) => return predecessor.take_in(now, &mut self.engine, received),
            None => received,
        };
        let Received { remote, local, ecn, stride, contents } = received;
        self.engine.take_in(now, remote, local, ecn, stride, contents);
    }

    /// All that is due has been sent, unless something was changed since it was fetched.
    pub(super) fn on_sent_all(&mut self, shared: &Shared) {
        if !self.kicked && self.sent != self.changes {
            self.sent = self.changes;
            if self.flush_waiters > 0 {
                shared.flushed.notify_waiters();
            }
        }
    }

    /// Nobody holds the endpoint, and its connections have said their farewell.
    pub(super) fn is_over(&mut self) -> bool {
        self.users == 0 && self.connections.is_empty() && self.engine.is_empty() && !self.kicked
    }
}

impl Drop for Driver {
    /// The runtime goes down, or the engine has failed: nobody may wait for ever.
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        if inner.stopped.is_none() {
            inner.stop(&self.shared, "");
        }
    }
}
