//! The work of connections, and its time: which may have something to send or to tell, in turn, and
//! when something is due of one.

use super::table::{Entry, Table};
use crate::event::ConnectionHandle;
use std::collections::{BTreeSet, VecDeque};
use uts_functions::Time;

/// The lists of an endpoint. A flag in the [`Entry`] says whether a connection is in one.
pub(super) struct Agenda {
    /// Connections by the instant at which something is due, or was when that was last looked at. A
    /// deadline moves with each packet: one that has become later is put right when it stands
    /// first.
    timers: BTreeSet<(Time, ConnectionHandle)>,
    /// Instant at which the driver of the endpoint was told to come back; `NEVER` = it has.
    pub expected: Time,
    pub polled_at: Time,
    /// Connections whose deadlines may have changed.
    stale: Vec<ConnectionHandle>,
    /// Connections of which something is due; kept for its memory.
    due: Vec<ConnectionHandle>,
    /// Connections that may have something to send, in turn.
    ready: VecDeque<ConnectionHandle>,
    /// Connections that may have something to tell, in turn.
    telling: VecDeque<ConnectionHandle>,
}

impl Default for Agenda {
    fn default() -> Self {
        Agenda {
            timers: BTreeSet::new(),
            expected: Time::NEVER,
            polled_at: Time::ZERO,
            stale: Vec::new(),
            due: Vec::new(),
            ready: VecDeque::new(),
            telling: VecDeque::new(),
        }
    }
}

impl Agenda {
    /// A connection has changed: it may have something to send and to tell, and its deadline may be
    /// another.
    pub fn touch(&mut self, handle: ConnectionHandle, entry: &mut Entry) {
        self.call(handle, entry);
        self.tell(handle, entry);
        self.doubt(handle, entry);
    }

    /// A connection may have something to send.
    pub fn call(&mut self, handle: ConnectionHandle, entry: &mut Entry) {
        if !core::mem::replace(&mut entry.is_ready, true) {
            self.ready.push_back(handle);
        }
    }

    /// A connection may have something to tell.
    pub fn tell(&mut self, handle: ConnectionHandle, entry: &mut Entry) {
        if !core::mem::replace(&mut entry.is_telling, true) {
            self.telling.push_back(handle);
        }
    }

    /// The deadline of a connection may have changed.
    pub fn doubt(&mut self, handle: ConnectionHandle, entry: &mut Entry) {
        if !core::mem::replace(&mut entry.is_stale, true) {
            self.stale.push(handle);
        }
    }

    /// The next connection that may have something to send. Its flag is for the caller to set anew.
    pub fn next_ready(&mut self) -> Option<ConnectionHandle> {
        self.ready.pop_front()
    }

    /// A connection stays behind the others that may have something to send.
    pub fn stay_ready(&mut self, handle: ConnectionHandle) {
        self.ready.push_back(handle);
    }

    /// The connection whose turn it is to tell something.
    pub fn first_telling(&self) -> Option<ConnectionHandle> {
        self.telling.front().copied()
    }

    /// The one whose turn it was has nothing more to tell.
    pub fn end_telling(&mut self) {
        self.telling.pop_front();
    }

    /// Asks connections that have changed when something is due. Connections that wait for their
    /// turn to send are asked after it: what is due may be just that, and while many wait it would
    /// be found due again and again.
    pub fn settle(&mut self, connections: &mut Table) {
        while let Some(handle) = self.stale.pop() {
            let Some(entry) = connections.get_mut(handle) else { continue };
            entry.is_stale = false;
            if !entry.is_ready {
                settle_deadline(handle, entry, &mut self.timers);
            }
        }
    }

    /// Takes out those of which something is due, each once: what is due may be something to send,
    /// which the next poll takes away. To be given back by [`Agenda::done`].
    pub fn take_due(&mut self, now: Time, connections: &mut Table) -> Vec<ConnectionHandle> {
        let mut due = core::mem::take(&mut self.due);
        while let Some((at, handle)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, handle));
            let Some(entry) = connections.get_mut(handle) else { continue };
            if entry.deadline <= now {
                entry.timer = Time::NEVER;
                due.push(handle);
            } else {
                self.timers.extend(entry.set_timer(handle));
            }
        }
        due
    }

    /// Ends what [`Agenda::take_due`] began.
    pub fn done(&mut self, mut due: Vec<ConnectionHandle>) {
        due.clear();
        self.due = due;
    }

    /// When something is next due of any connection.
    pub fn next_due(&mut self, connections: &mut Table) -> Option<Time> {
        self.settle(connections);
        // Normally there are none.
        for handle in &self.ready {
            if let Some(entry) = connections.get_mut(*handle) {
                settle_deadline(*handle, entry, &mut self.timers);
            }
        }
        loop {
            let (at, handle) = *self.timers.first()?;
            let moved = connections.get_mut(handle).filter(|entry| at < entry.deadline);
            let Some(entry) = moved else { return Some(at) };
            self.timers.remove(&(at, handle));
            self.timers.extend(entry.set_timer(handle));
        }
    }

    /// Nothing is due of a connection any more.
    pub fn forget(&mut self, handle: ConnectionHandle, entry: &mut Entry) {
        self.timers.remove(&(entry.timer, handle));
        entry.timer = Time::NEVER;
    }
}

/// Asks a connection when something is due.
fn settle_deadline(
    handle: ConnectionHandle,
    entry: &mut Entry,
    timers: &mut BTreeSet<(Time, ConnectionHandle)>,
) {
    entry.deadline = entry.connection.poll_timeout().unwrap_or(Time::NEVER);
    // One that has become later is put right when it stands first.
    if entry.deadline < entry.timer {
        timers.remove(&(entry.timer, handle));
        timers.extend(entry.set_timer(handle));
    }
}
