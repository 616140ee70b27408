//! From the engine's events to the handles that wait for them.

use super::per_key::{self, Joined};
use super::{Inner, Shared, gone};
use crate::AuthorizedKeys;
use crate::connection::peer_key;
use crate::early::{Kept, Ticket};
use crate::stats::Stats;
use crate::trust::RefusedClient;
use core::num::NonZeroUsize;
use core::task::Waker;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use uts_engine::{CloseReason, ConnectionHandle, Event, ExchangeEvent, FlowId};
use uts_functions::{PathFacts, Rate, Time};
use uts_units::printable;

/// Events that are kept for the first subscriber. A connection without one has few.
const BACKLOG_MAX: usize = 256;

/// Event of a connection that may interest an application, beside events of its flows.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// A step of an exchange of mechanisms. Boxed, for that of others many wait at idle
    /// connections.
    Exchange(Box<ExchangeEvent>),
    /// The path now carries packets of this many bytes of UDP payload.
    PacketSize(usize),
    /// Something is expected of the peer, and nothing has been heard from it for so long: 3 s or
    /// three probe time-outs, whichever is longer; less if the network says that nobody listens
    /// there. The connection goes on, and is probed. Told only to who asks for events before; see
    /// also [`Connection::silence`](crate::Connection::silence).
    Silent(Duration),
    /// After [`ConnectionEvent::Silent`] the peer was heard again; it had been silent for so long.
    Heard(Duration),
    /// An end is reached at another address, and both have proved it: the connection goes on from
    /// there.
    Moved {
        /// Where the peer is.
        remote: SocketAddr,
        /// It is the peer that has moved; else this end.
        is_peer: bool,
    },
    /// This property has no effect with the profile in use: `maxRecvRate`, where the peer sends
    /// without flow control (flow/none), so that nothing can hold it back. Told once.
    NoEffect(&'static str),
    /// This end may send so much from now on, in UDP payload. Told to those who ask for it, by
    /// [`Connection::want_rate`](crate::Connection::want_rate).
    MaySend(Rate),
    /// The connection has ended; nothing follows.
    Closed(CloseReason),
}

/// State of a connection that handles wait for.
#[derive(Default)]
pub(crate) struct ConnectionState {
    pub is_connected: bool,
    pub closed: Option<Box<CloseReason>>,
    /// Handles, those of flows included.
    pub users: usize,
    pub flows: BTreeMap<FlowId, FlowState>,
    /// Held by those who wait. Many connections have none.
    notify: Weak<ConnectionNotify>,
    /// Counts of the connection and facts of its path, at its end.
    pub last: Option<Box<(Stats, PathFacts)>>,
    /// State of early requests, if there is any. Boxed, since most have none.
    pub kept: Option<Box<Kept>>,
    subscribers: Vec<UnboundedSender<ConnectionEvent>>,
    /// The latest packet size, older than what is in `backlog`. At most connections it is all that
    /// waits for a subscriber.
    packet_size: Option<NonZeroUsize>,
    /// Boxed, since a queue makes room for more than there is.
    backlog: Option<VecDeque<Box<ConnectionEvent>>>,
}

/// Several tasks may wait for each of these.
#[derive(Default)]
pub(crate) struct ConnectionNotify {
    /// It was established, or has ended, or its peer cannot be reached.
    pub state: Notify,
    /// The peer may have opened a flow.
    pub accept: Notify,
    /// A flow may be opened.
    pub open: Notify,
}

/// Whom to wake for a flow: each has one owner.
#[derive(Default)]
pub(crate) struct FlowState {
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
    /// Task that waits for an expedited message.
    pub expedited: Option<Waker>,
    /// A task that waits for the peer to want no more.
    pub stop_watcher: Option<Waker>,
    /// All that was written, and its end, has been acknowledged or given up.
    pub is_finished: bool,
    pub stopped: Option<u64>,
    /// Why it cannot have what it requires.
    pub refused: Option<String>,
    /// Halves that are held; who has expedited messages for himself holds another.
    pub halves: u8,
}

impl ConnectionState {
    /// Notifier of changes from now on, for as long as somebody holds it.
    pub fn notify(&mut self) -> Arc<ConnectionNotify> {
        self.notify.upgrade().unwrap_or_else(|| {
            let notify = Arc::default();
            self.notify = Arc::downgrade(&notify);
            notify
        })
    }

    /// Tells those who wait, if anybody does.
    pub fn tell(&self, which: fn(&ConnectionNotify) -> &Notify) {
        if let Some(waiters) = self.notify.upgrade() {
            which(&waiters).notify_waiters();
        }
    }

    pub fn subscribe(&mut self) -> UnboundedReceiver<ConnectionEvent> {
        let (sender, receiver) = unbounded_channel();
        let packet_size = self.packet_size.take().map(|bytes| ConnectionEvent::PacketSize(bytes.get()));
        let backlog = self.backlog.take().unwrap_or_default();
        for event in packet_size.into_iter().chain(backlog.into_iter().map(|event| *event)) {
            let _ = sender.send(event);
        }
        match &self.closed {
            // Nothing follows: the sender goes, so that the stream ends.
            Some(reason) => {
                let _ = sender.send(ConnectionEvent::Closed(CloseReason::clone(reason)));
            }
            None => self.subscribers.push(sender),
        }
        receiver
    }

    /// Tells those who have asked, if any have. It is of no interest later.
    fn publish_if_asked(&mut self, event: ConnectionEvent) {
        if !self.subscribers.is_empty() {
            self.publish(event);
        }
    }

    fn publish(&mut self, event: ConnectionEvent) {
        if self.subscribers.is_empty() {
            if let (None, ConnectionEvent::PacketSize(bytes)) = (&self.backlog, &event) {
                self.packet_size = NonZeroUsize::new(*bytes);
                return;
            }
            let backlog = self.backlog.get_or_insert_default();
            if let (Some(last), ConnectionEvent::PacketSize(_)) = (backlog.back_mut(), &event)
                && matches!(**last, ConnectionEvent::PacketSize(_))
            {
                // Of packet sizes that wait, the latest is enough.
                **last = event;
                return;
            }
            if backlog.len() == BACKLOG_MAX {
                backlog.pop_front();
            }
            backlog.push_back(Box::new(event));
            return;
        }
        self.subscribers.retain(|subscriber| subscriber.send(event.clone()).is_ok());
    }

    /// The connection has ended: everybody learns.
    fn end(&mut self, reason: CloseReason, woken: &mut Vec<Waker>) {
        if self.closed.is_some() {
            return;
        }
        self.closed = Some(Box::new(reason.clone()));
        for flow in self.flows.values_mut() {
            woken.extend(flow.reader.take());
            woken.extend(flow.writer.take());
            woken.extend(flow.expedited.take());
            woken.extend(flow.stop_watcher.take());
        }
        // Later subscribers are told of the end by `subscribe`.
        for subscriber in self.subscribers.drain(..) {
            let _ = subscriber.send(ConnectionEvent::Closed(reason.clone()));
        }
        self.tell(|waiters| &waiters.state);
        self.tell(|waiters| &waiters.accept);
        self.tell(|waiters| &waiters.open);
    }

    fn on_event(&mut self, event: Event, woken: &mut Vec<Waker>) {
        if self.notify.strong_count() == 0 {
            // Nobody waits any more. The weak reference would keep its memory.
            self.notify = Weak::new();
        }
        match event {
            Event::Connected => {
                self.is_connected = true;
                self.tell(|waiters| &waiters.state);
            }
            Event::FlowOpened(_) => self.tell(|waiters| &waiters.accept),
            Event::Readable(id) => woken.extend(self.flows.get_mut(&id).and_then(|flow| flow.reader.take())),
            Event::Expedited(id) => {
                woken.extend(self.flows.get_mut(&id).and_then(|flow| flow.expedited.take()));
            }
            Event::Writable(id) => woken.extend(self.flows.get_mut(&id).and_then(|flow| flow.writer.take())),
            Event::Finished(id) => {
                if let Some(flow) = self.flows.get_mut(&id) {
                    flow.is_finished = true;
                    woken.extend(flow.writer.take());
                    woken.extend(flow.stop_watcher.take());
                }
            }
            Event::Stopped(id, code) => {
                if let Some(flow) = self.flows.get_mut(&id) {
                    flow.stopped = Some(code);
                    woken.extend(flow.writer.take());
                    woken.extend(flow.stop_watcher.take());
                }
            }
            Event::Refused(id, why) => {
                if let Some(flow) = self.flows.get_mut(&id) {
                    flow.refused = Some(why);
                    woken.extend(flow.writer.take());
                    woken.extend(flow.stop_watcher.take());
                }
            }
            Event::Exchange(step) => self.publish(ConnectionEvent::Exchange(step)),
            Event::PacketSize(bytes) => self.publish(ConnectionEvent::PacketSize(bytes)),
            Event::NoEffect(property) => self.publish(ConnectionEvent::NoEffect(property)),
            Event::Moved { remote, is_peer } => {
                self.publish(ConnectionEvent::Moved { remote: printable::address(remote), is_peer });
            }
            Event::Silent(long) => self.publish_if_asked(ConnectionEvent::Silent(long)),
            Event::Heard(after) => self.publish_if_asked(ConnectionEvent::Heard(after)),
            Event::MaySend(rate) => self.publish_if_asked(ConnectionEvent::MaySend(rate)),
            Event::EarlyAnswer(answer) => {
                self.kept.get_or_insert_default().answer = Some(answer);
                self.tell(|waiters| &waiters.state);
            }
            Event::Ticket(ticket) => self.kept.get_or_insert_default().ticket = Some(Ticket(*ticket)),
            Event::Closed(reason) => self.end(reason, woken),
        }
    }
}

impl Inner {
    /// Hands all events of the engine to those who wait for them; they are woken later, without the
    /// lock.
    pub(super) fn dispatch(&mut self, shared: &Shared, woken: &mut Vec<Waker>) {
        let mut has_new = self.engine.has_early();
        while let Some(handle) = self.engine.accept() {
            has_new |= self.admit(shared, handle);
        }
        while let Some((handle, event)) = self.engine.poll_event() {
            let is_end = matches!(event, Event::Closed(_));
            if let Some(recording) = &mut self.recording {
                recording.on_event(shared.clock.now(), &mut self.engine, handle, &event);
            }
            if is_end {
                self.per_key.leave(handle);
            }
            if let Event::Closed(CloseReason::Tls(why)) = &event {
                self.tell_refused(handle, why);
            }
            if matches!(event, Event::Readable(_)) {
                self.dialogue.on_told();
            }
            if !self.connections.contains_key(&handle) {
                // A client's connection becomes known with its first event, unless it is over
                // already.
                if self.engine.peek(handle).is_none_or(|c| c.close_reason().is_some()) {
                    continue;
                }
                self.connections.insert(handle, Box::default());
            }
            let Some(state) = self.connections.get_mut(&handle) else { continue };
            if let Some(connection) = self.engine.peek(handle).filter(|_| is_end) {
                state.last = Some(Box::new((Stats::of(connection), connection.facts())));
            }
            state.on_event(event, woken);
            // One that waits to be accepted may bring data although it has ended.
            if is_end && state.users == 0 && !self.accepted.contains(&handle) {
                self.connections.remove(&handle);
                self.engine.release(handle);
            }
        }
        has_new |= self.per_key.has_waiting() && self.admit_settled(shared);
        if let Some(recording) = &mut self.recording {
            recording.on_turn(&mut self.engine);
        }
        if has_new {
            shared.accept.notify_waiters();
        }
    }

    /// The handshake of a client has failed: it is told that it was not let in.
    fn tell_refused(&self, handle: ConnectionHandle, why: &str) {
        let (Some((told, refusals)), Some(connection)) = (&self.on_refused, self.engine.peek(handle)) else {
            return;
        };
        let remote = connection.remote();
        let (fingerprint, why) = match refusals.take(&remote) {
            Some((key, why)) => (Some(key), why),
            None => (None, why.to_owned()),
        };
        told(&RefusedClient { address: printable::address(remote), fingerprint, why });
    }

    /// A client's handshake is done. Its connection is nobody's until it is accepted.
    fn admit(&mut self, shared: &Shared, handle: ConnectionHandle) -> bool {
        if self.is_listening {
            let key = self.per_key.is_bounded().then(|| peer_key(self.engine.peek(handle)?)).flatten();
            let Some(key) = key else { return self.settle(shared, handle, Joined::Yes) };
            let (now, engine) = (shared.clock.now(), &mut self.engine);
            let joined = self.per_key.join(handle, key, |other| per_key::ask(engine, now, *other));
            return self.settle(shared, handle, joined);
        }
        self.turn_away(shared.clock.now(), handle);
        false
    }

    /// Says what becomes of a new connection; whether it may be accepted now.
    fn settle(&mut self, shared: &Shared, handle: ConnectionHandle, joined: Joined) -> bool {
        match joined {
            // Its listener was closed while it waited.
            Joined::Yes if !self.is_listening => self.turn_away(shared.clock.now(), handle),
            Joined::Yes => {
                self.connections.entry(handle).or_default();
                self.accepted.push_back(handle);
                return true;
            }
            Joined::Waits => {
                self.connections.entry(handle).or_default();
                // Somebody else is asked something.
                self.changed();
            }
            Joined::Refused(why) => {
                if let (Some((told, _)), Some(connection)) = (&self.on_refused, self.engine.peek(handle)) {
                    let address = printable::address(connection.remote());
                    told(&RefusedClient { address, fingerprint: peer_key(connection), why: why.clone() });
                }
                if let Some(connection) = self.engine.connection(handle) {
                    connection.refuse(shared.clock.now(), &why);
                }
                self.connections.remove(&handle);
                self.engine.release(handle);
                self.changed();
            }
        }
        false
    }

    /// Admits or ends connections that have waited for others of the same key to answer. True if
    /// any may be accepted now.
    fn admit_settled(&mut self, shared: &Shared) -> bool {
        let engine = &self.engine;
        let is_asked = |handle| engine.peek(handle).is_some_and(|c| c.is_asked_for_answer());
        let mut has_new = false;
        for (handle, joined) in self.per_key.settled(is_asked) {
            has_new |= self.settle(shared, handle, joined);
        }
        has_new
    }

    /// Ends the connections of clients whose keys are among these no more.
    pub fn end_revoked(&mut self, now: Time, keys: &AuthorizedKeys) {
        let is_revoked = |handle: &ConnectionHandle| {
            let key = self.engine.peek(*handle).filter(|c| c.is_open()).and_then(peer_key);
            key.is_some_and(|key| !keys.contains(&key))
        };
        let revoked: Vec<_> = self.engine.handles().filter(is_revoked).collect();
        for handle in revoked {
            if let Some(connection) = self.engine.connection(handle) {
                connection.refuse(now, "its key may not connect any more");
            }
            self.changed();
        }
    }

    /// Something arrived: flows may perhaps be opened that could not be before.
    pub(super) fn retry_openers(&mut self) {
        for handle in self.openers.drain(..) {
            if let Some(state) = self.connections.get(&handle) {
                state.tell(|waiters| &waiters.open);
            }
        }
    }

    /// The task ends: nothing will be sent or received any more.
    pub(super) fn stop(&mut self, shared: &Shared, why: &str) {
        self.stopped = Some(why.to_owned());
        self.is_listening = false;
        let mut woken = Vec::new();
        let reason = match why {
            "" => gone(),
            why => CloseReason::Local { code: 0, reason: why.to_owned() },
        };
        for state in self.connections.values_mut() {
            state.end(reason.clone(), &mut woken);
        }
        shared.accept.notify_waiters();
        shared.flushed.notify_waiters();
        woken.drain(..).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::error::TryRecvError;

    /// Connections that nobody waits for hold nothing to wait by; who waits is told.
    #[tokio::test]
    async fn only_those_who_wait_hold_something_to_wait_by() {
        let mut state = ConnectionState::default();
        let notify = state.notify();
        assert!(Arc::ptr_eq(&notify, &state.notify()), "all wait for the same");
        {
            let told = notify.accept.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            state.on_event(Event::FlowOpened(FlowId(0)), &mut Vec::new());
            told.await;
        }
        let held = Arc::downgrade(&notify);
        drop(notify);
        state.on_event(Event::PacketSize(1472), &mut Vec::new());
        assert_eq!((held.strong_count(), state.notify.weak_count()), (0, 0), "nothing is kept");
    }

    /// Of packet sizes that nobody has asked for the latest waits, in the order of all else.
    #[test]
    fn unasked_packet_sizes_do_not_pile_up() {
        let mut state = ConnectionState::default();
        let reason = CloseReason::Local { code: 0, reason: String::new() };
        for event in [Event::PacketSize(1300), Event::PacketSize(1472)] {
            state.on_event(event, &mut Vec::new());
        }
        assert!(state.backlog.is_none(), "an idle connection's packet size takes no memory of its own");
        state.on_event(Event::Closed(reason.clone()), &mut Vec::new());
        let mut events = state.subscribe();
        assert_eq!(events.try_recv(), Ok(ConnectionEvent::PacketSize(1472)));
        assert_eq!(events.try_recv(), Ok(ConnectionEvent::Closed(reason)));
        assert_eq!(events.try_recv(), Err(TryRecvError::Disconnected));
    }

    /// The stream ends with the connection, whether it was asked for before or afterwards, and
    /// however often.
    #[test]
    fn nothing_follows_the_end() {
        let mut state = ConnectionState::default();
        let reason = CloseReason::Local { code: 0, reason: String::new() };
        let mut before = [state.subscribe(), state.subscribe()];
        state.on_event(Event::Closed(reason.clone()), &mut Vec::new());
        // A second end is none.
        state.on_event(Event::Closed(CloseReason::Reset), &mut Vec::new());
        let mut after = [state.subscribe(), state.subscribe()];
        for events in before.iter_mut().chain(&mut after) {
            assert_eq!(events.try_recv(), Ok(ConnectionEvent::Closed(reason.clone())));
            assert_eq!(events.try_recv(), Err(TryRecvError::Disconnected));
        }
    }
}
