//! The task of a socket: take in, do what is due, send, tell, sleep.

#[cfg(unix)]
use super::busy_polling::BusyPolling;
use super::lone::{Lone, Sender};
use super::looking::Looking;
use super::napping::Napping;
use super::socket::{Batch, Received, Socket};
use super::timer::Timer;
use super::{Inner, Shared};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, MutexGuard};
use uts_engine::Transmit;
use uts_functions::Time;

/// Turns before other tasks of the runtime have theirs.
const TURNS_MAX: usize = 16;

/// While more has arrived, only every so many turns send: each brings up to 64 KiB, and an answer may be to several.
const TURNS_PER_ANSWER: u32 = 8;

/// What is sent before looking for what has arrived: batches of many connections are small, those of one hold 64 KiB.
const BATCHES_PER_TURN: usize = 64;
const BYTES_PER_TURN: usize = 1 << 20;

/// What is got from the engine at once: with more than this, or so many parts, nothing is added.
const FETCH_BYTES: usize = 32 << 10;
const FETCH_PARTS: usize = 16;

/// How often a spinning task looks for what has arrived before others have their turn: for some 25 us.
pub(super) const LOOKS_PER_SPIN: usize = 48;

/// How often a task looks for more before it sleeps, if that has paid of late: for some 10 us, which is about what it costs both
/// ends to have it woken.
const LOOKS_BEFORE_SLEEP: usize = 24;

/// Turns without sleep after which nobody needs to be told of what arrives: to have that told again costs as much as a few packets.
const TURNS_AWAKE: u32 = 8;

/// Errors of the socket in a row after which it is given up.
const ERRORS_MAX: u32 = 1000;

pub(crate) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) socket: Socket,
    /// Made when it is first needed.
    timer: Option<Timer>,
    outgoing: Outgoing,
    pub(super) woken: Vec<Waker>,
    pub(super) errors: u32,
    /// When something last arrived or left.
    last_busy: Time,
    pub(super) looking: Looking,
    /// Turns since something was sent, while more arrives.
    unanswered: u32,
    /// Turns since the task slept.
    awake: u32,
    pub(super) napping: Napping,
    /// Asked by the thread only: a task must not wait in the kernel.
    #[cfg(unix)]
    pub(super) busy_polling: BusyPolling,
    pub(super) lone: Lone,
    /// The look before this turn has found all that had arrived.
    has_found_all: bool,
    /// The last turn has sent an answer before it would have looked for what had arrived.
    has_answered: bool,
}

/// Datagrams on their way out, of which the first `sent` bytes have left.
#[derive(Default)]
struct Outgoing {
    contents: Vec<u8>,
    parts: VecDeque<Part>,
    sent: usize,
    /// The engine had no more when these were got.
    is_all: bool,
}

/// Datagrams of one size for one peer, up to `end` of the contents.
struct Part {
    transmit: Transmit,
    end: usize,
}

impl Outgoing {
    /// Takes note of what the engine has put behind the rest, so that what can leave in one call does: single packets of
    /// one size for the same peer make a batch.
    fn add(&mut self, transmit: Transmit) {
        let end = self.contents.len();
        let before = self.parts.len().checked_sub(2).and_then(|i| self.parts.get(i)).map_or(0, |p| p.end);
        if let Some(Part { transmit: last, end: last_end }) = self.parts.back_mut() {
            let segment_bytes = last.segment_bytes.max(1);
            // The last datagram of a batch may be shorter.
            let fits = transmit.segment_bytes == segment_bytes
                || (transmit.segment_bytes < segment_bytes && end - *last_end == transmit.segment_bytes);
            let is_whole = (*last_end - before).is_multiple_of(segment_bytes);
            if fits && is_whole && (Transmit { segment_bytes, ..transmit }) == *last {
                *last_end = end;
                return;
            }
        }
        self.parts.push_back(Part { transmit, end });
    }
}

/// What is left to do after a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// There may be more to do at once.
    Busy,
    /// The same, after others had their turn.
    Yield,
    /// The same, after those had their turn who were just woken: they may answer.
    Follow,
    /// Whatever happens will wake the task.
    Sleep,
    /// The same, but for what arrives: the timer will.
    Nap,
    /// Nothing is to be done, but something may arrive soon: it is worth looking so often before sleeping.
    Spin(usize),
    /// Nobody needs the endpoint any more.
    Done,
}

impl Driver {
    pub fn new(shared: Arc<Shared>, socket: Socket) -> Self {
        let last_busy = shared.clock.now();
        let (outgoing, napping) = (Outgoing::default(), Napping::new(last_busy, socket.buffer_bytes()));
        let (looking, woken) = (Looking::default(), Vec::new());
        Driver {
            shared,
            socket,
            timer: None,
            outgoing,
            woken,
            errors: 0,
            last_busy,
            looking,
            unanswered: 0,
            awake: 0,
            napping,
            #[cfg(unix)]
            busy_polling: BusyPolling::new(last_busy),
            lone: Lone::default(),
            has_found_all: false,
            has_answered: false,
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> io::Result<Turn> {
        let mut is_busy = !self.sends_first() && self.receive(cx)?;
        let (sent_all, is_blocked) = self.answer(cx, is_busy)?;
        is_busy |= !sent_all && !is_blocked;
        let shared = self.shared.clone();
        let mut inner = shared.lock();
        if sent_all {
            inner.on_sent_all(&shared);
        }
        inner.dispatch(&shared, &mut self.woken);
        let is_idle = !is_busy && !is_blocked && !inner.kicked;
        let turn = if inner.is_over() {
            Turn::Done
        } else if is_idle && !self.woken.is_empty() && self.spins() {
            Turn::Follow
        } else if is_idle && let Some(looks) = self.looks(&mut inner) {
            Turn::Spin(looks)
        } else {
            self.plan(cx, &mut inner, is_busy, is_blocked)?
        };
        drop(inner);
        let turn = self.watch(cx, turn)?;
        // Who was woken reads before more is received: into memory that he leaves, and while it is in cache.
        let turn = if turn == Turn::Busy && !self.woken.is_empty() { Turn::Yield } else { turn };
        self.wake();
        Ok(turn)
    }

    /// Whether to send before looking for what has arrived: where a look has just found all there was, and where an answer waits to
    /// leave, for which its peer waits. Not for one answer after the other.
    fn sends_first(&mut self) -> bool {
        let has_found_all = core::mem::take(&mut self.has_found_all);
        let is_answer = core::mem::take(&mut self.shared.lock().has_answer);
        let is_wanted = has_found_all || (is_answer && !self.has_answered);
        // Who is to be woken by what arrives has to ask for it.
        let sends_first = is_wanted && !self.socket.is_watched();
        self.has_answered = sends_first && !has_found_all;
        #[cfg(test)]
        if !sends_first {
            let counts = &mut self.shared.lock().counts;
            counts.looks += 1;
            counts.looks_before_answers += u32::from(is_answer);
        }
        sends_first
    }

    /// Has the socket watched before a sleep, and not by who does not want to be told of what arrives: to be told costs who sends it.
    fn watch(&mut self, cx: &mut Context<'_>, turn: Turn) -> io::Result<Turn> {
        self.awake = if matches!(turn, Turn::Sleep | Turn::Nap) { 0 } else { self.awake.saturating_add(1) };
        #[cfg(test)]
        {
            self.shared.lock().counts.sleeps += u32::from(self.awake == 0);
        }
        if turn == Turn::Nap || self.awake >= TURNS_AWAKE {
            self.socket.unwatch();
        }
        let has_more = turn == Turn::Sleep && self.socket.watch(cx)?;
        Ok(if has_more { Turn::Busy } else { turn })
    }

    /// Whether to look instead of sleeping since that was asked for, and something has happened of late.
    pub(super) fn spins(&self) -> bool {
        let spin = self.shared.spin;
        !spin.is_zero() && self.shared.clock.now().since(self.last_busy) < spin
    }

    /// How often it is worth looking for what arrives before sleeping, if it is: for a while after something happened where that was
    /// asked for, and else if it has paid of late. Not if somebody was just woken, who has his turn first.
    fn looks(&mut self, inner: &mut Inner) -> Option<usize> {
        if !self.woken.is_empty() {
            return None;
        }
        if self.spins() {
            return Some(LOOKS_PER_SPIN);
        }
        let is_talk = inner.takes_talk();
        let naps = self.naps(inner);
        let looks = self.looks_that_pay(is_talk, naps);
        #[cfg(test)]
        {
            inner.counts.rounds_for_answers += u32::from(looks.is_some() && self.looking.is_for_answer());
        }
        looks
    }

    /// The same where that was not asked for. `is_talk` = somebody has said something, and waits for an answer; `naps` = a sleep would be
    /// a nap.
    pub(super) fn looks_that_pay(&mut self, is_talk: bool, naps: bool) -> Option<usize> {
        let is_worth_it = self.looking.is_worth_it(is_talk, naps);
        is_worth_it.then_some(LOOKS_BEFORE_SLEEP)
    }

    /// Whether the next sleep is a nap, as it looks.
    pub(super) fn naps(&self, inner: &Inner) -> bool {
        !inner.has_said && self.napping.streams()
    }

    /// Until when to sleep whatever arrives, if that pays and nobody has just said something: he waits for an answer.
    pub(super) fn nap(&mut self, now: Time, inner: &Inner) -> Option<Time> {
        if inner.has_said { None } else { self.napping.until(now) }
    }

    /// Looks again and again for what arrives; says whether anything has. Gives up after so many looks, so that others have their
    /// turn.
    pub(super) fn spin(&mut self, looks: usize) -> io::Result<bool> {
        self.spin_and(looks, |_, _, _| {})
    }

    /// The same, and does something else under the lock under which the engine is given what was found.
    pub(super) fn spin_and(
        &mut self,
        looks: usize,
        then: impl Fn(&mut Inner, &Shared, &mut Vec<Waker>),
    ) -> io::Result<bool> {
        for look in 0..looks {
            let mut intake = Intake::new(&self.shared, &mut self.lone);
            let received = self.socket.try_receive(|received| intake.take_in(received));
            let taken_in = intake.finish_and(|inner| then(inner, &self.shared, &mut self.woken));
            self.on_taken_in(taken_in);
            match received {
                Poll::Pending => core::hint::spin_loop(),
                Poll::Ready(Ok(may_be_more)) => {
                    self.has_found_all = !may_be_more;
                    self.looking.on_found(look == 0);
                    return Ok(true);
                }
                Poll::Ready(Err(e)) => self.on_error(e)?,
            }
        }
        self.looking.on_missed();
        Ok(false)
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
        self.socket.release_unless(|remote| inner.engine.is_peer(remote));
        if is_blocked {
            // The socket's readiness comes first; what is due is done then.
            return Ok(Turn::Sleep);
        }
        let now = self.shared.clock.now();
        let deadline = inner.engine.poll_timeout();
        let nap = self.nap(now, inner);
        let wake = deadline.into_iter().chain(nap).min();
        let timer = match &mut self.timer {
            Some(timer) => timer,
            none => none.insert(Timer::new()?),
        };
        match timer.poll(cx, now, wake)? {
            Poll::Ready(()) => Ok(Turn::Busy),
            Poll::Pending if nap.is_some() => Ok(Turn::Nap),
            Poll::Pending => Ok(Turn::Sleep),
        }
    }

    /// Wakes those for whom something has happened.
    pub(super) fn wake(&mut self) {
        self.woken.drain(..).for_each(Waker::wake);
    }

    /// Takes in what has arrived; says whether there may be more.
    pub(super) fn receive(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut intake = Intake::new(&self.shared, &mut self.lone);
        let received = self.socket.poll_receive(cx, |received| intake.take_in(received));
        let taken_in = intake.finish();
        self.on_taken_in(taken_in);
        match received {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(may_be_more)) => {
                self.errors = 0;
                self.looking.on_arrival();
                Ok(may_be_more)
            }
            Poll::Ready(Err(e)) => {
                self.on_error(e)?;
                Ok(true)
            }
        }
    }

    pub(super) fn on_taken_in(&mut self, taken_in: Option<TakenIn>) {
        let Some(TakenIn { at, bytes, lone }) = taken_in else { return };
        self.last_busy = at;
        self.napping.on_arrival(bytes);
        #[cfg(unix)]
        self.busy_polling.on_arrival(bytes);
        if let Some(Sender { remote, local, .. }) = lone
            && let Err(error) = self.socket.dedicate(remote, local)
        {
            tracing::debug!(%error, %remote, "no socket of its own for a peer");
            self.lone.give_up();
        }
    }

    /// Sends what is due, but while more arrives not in each turn. Says whether all was sent, and whether the socket takes no more.
    pub(super) fn answer(&mut self, cx: &mut Context<'_>, more_arrives: bool) -> io::Result<(bool, bool)> {
        self.unanswered = if more_arrives { self.unanswered.wrapping_add(1) } else { 0 };
        if self.unanswered.is_multiple_of(TURNS_PER_ANSWER) { self.send(cx) } else { Ok((false, false)) }
    }

    /// Sends what is due. Says whether that was all, and whether the socket takes no more.
    fn send(&mut self, cx: &mut Context<'_>) -> io::Result<(bool, bool)> {
        // Timers are looked at once in a turn: of many connections, many are due, and each look goes through all of them.
        let (mut is_first, mut bytes_sent) = (true, 0);
        for _ in 0..BATCHES_PER_TURN {
            if bytes_sent >= BYTES_PER_TURN {
                break;
            }
            if self.outgoing.parts.is_empty() {
                // What has become due while the last was sent is done in the next turn.
                let is_all = !is_first && self.outgoing.is_all;
                if is_all || !self.fetch(core::mem::take(&mut is_first)) {
                    return Ok((true, false));
                }
            }
            let Some(Part { transmit, end }) = self.outgoing.parts.front() else { return Ok((true, false)) };
            let batch = Batch {
                remote: transmit.remote,
                local: transmit.local,
                ecn: transmit.ecn,
                segment_bytes: transmit.segment_bytes,
                contents: self.outgoing.contents.get(self.outgoing.sent..*end).unwrap_or_default(),
            };
            let end = *end;
            match self.socket.poll_send(cx, &batch) {
                Poll::Pending => return Ok((false, true)),
                Poll::Ready(Ok(bytes)) => {
                    self.outgoing.sent += bytes;
                    bytes_sent += bytes;
                    self.errors = 0;
                }
                Poll::Ready(Err(e)) => {
                    // It counts as lost: a probe too large for the path, a port that is closed, a route that is gone.
                    self.outgoing.sent += batch.segment_bytes.max(1);
                    self.on_error(e)?;
                }
            }
            if self.outgoing.sent >= end {
                self.outgoing.sent = end;
                self.outgoing.parts.pop_front();
            }
        }
        Ok((false, false))
    }

    /// Gets what is to be sent next; says whether there is anything. The first of a turn does what is due.
    fn fetch(&mut self, is_first: bool) -> bool {
        let mut inner = self.shared.lock();
        let inner = &mut *inner;
        let outgoing = &mut self.outgoing;
        outgoing.sent = 0;
        outgoing.contents.clear();
        let now = self.shared.clock.now();
        inner.kicked = false;
        if is_first {
            inner.engine.handle_timeout(now);
        }
        outgoing.is_all = false;
        while outgoing.contents.len() < FETCH_BYTES && outgoing.parts.len() < FETCH_PARTS {
            let Some(transmit) = inner.engine.poll_transmit_more(now, &mut outgoing.contents) else {
                outgoing.is_all = true;
                break;
            };
            outgoing.add(transmit);
        }
        if !outgoing.parts.is_empty() {
            self.last_busy = now;
        }
        !outgoing.parts.is_empty()
    }

    /// The socket is of no use any more: everybody learns.
    pub(super) fn fail(&self, error: &io::Error) {
        tracing::warn!(%error, "the socket has failed");
        self.shared.lock().stop(&self.shared, &format!("the socket has failed: {error}"));
    }

    /// Errors of a datagram socket are about single datagrams. Only a socket that knows nothing but errors is given up.
    pub(super) fn on_error(&mut self, error: io::Error) -> io::Result<()> {
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

/// What one call brought.
pub(super) struct TakenIn {
    pub at: Time,
    bytes: usize,
    /// Who should have a socket of his own.
    lone: Option<Sender>,
}

/// Gives the engine what one call brought: under one lock, and at one time.
pub(super) struct Intake<'a> {
    shared: &'a Shared,
    lone: &'a mut Lone,
    inner: Option<(MutexGuard<'a, Inner>, Time)>,
    bytes: usize,
}

impl<'a> Intake<'a> {
    pub fn new(shared: &'a Shared, lone: &'a mut Lone) -> Self {
        Intake { shared, lone, inner: None, bytes: 0 }
    }

    pub fn take_in(&mut self, mut received: Received<'_>) {
        let shared = self.shared;
        let (inner, now) = self.inner.get_or_insert_with(|| (shared.lock(), shared.clock.now()));
        let Received { remote, local, ecn, stride, ref mut contents } = received;
        self.bytes += contents.len();
        let of = inner.engine.take_in(*now, remote, local, ecn, stride, contents);
        self.lone.on_received(of, &received);
    }

    /// What was taken in, if anything was.
    pub fn finish(self) -> Option<TakenIn> {
        self.finish_and(|_| {})
    }

    /// The same, and does something else under the same lock.
    pub fn finish_and(self, then: impl FnOnce(&mut Inner)) -> Option<TakenIn> {
        let (mut inner, at) = self.inner?;
        inner.engine.taken_in(at);
        inner.retry_openers();
        self.lone.on_looked();
        let lone = self.lone.found().filter(|sender| inner.knows(sender));
        then(&mut inner);
        Some(TakenIn { at, bytes: self.bytes, lone })
    }
}

impl Inner {
    /// All that is due has been sent, unless something was changed since it was got.
    pub(super) fn on_sent_all(&mut self, shared: &Shared) {
        if !self.kicked && self.sent != self.changes {
            self.sent = self.changes;
            if self.flush_waiters > 0 {
                shared.flushed.notify_waiters();
            }
        }
    }

    /// Whether somebody has heard something and said something since this was last asked: an answer is to come.
    pub(super) fn takes_talk(&mut self) -> bool {
        let is_talk = self.has_heard && self.has_said;
        if is_talk {
            (self.has_heard, self.has_said) = (false, false);
        }
        is_talk
    }

    /// Who sends has proved who he is.
    fn knows(&mut self, sender: &Sender) -> bool {
        self.engine.connection(sender.connection).is_some_and(|connection| connection.is_open())
    }

    /// Nobody holds the endpoint, and its connections have said their farewell.
    pub(super) fn is_over(&mut self) -> bool {
        self.users == 0 && self.connections.is_empty() && self.engine.is_empty() && !self.kicked
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..TURNS_MAX {
            match self.turn(cx) {
                Ok(Turn::Busy) => {}
                Ok(Turn::Yield) => break,
                Ok(Turn::Follow) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(Turn::Sleep | Turn::Nap) => return Poll::Pending,
                Ok(Turn::Spin(looks)) => match self.spin(looks) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        self.fail(&error);
                        return Poll::Ready(());
                    }
                },
                Ok(Turn::Done) => return Poll::Ready(()),
                Err(error) => {
                    self.fail(&error);
                    return Poll::Ready(());
                }
            }
        }
        // Unlike a task that wakes itself, one that yields is behind all others, and behind what the reactor has.
        let mut others = core::pin::pin!(tokio::task::yield_now());
        if others.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
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
