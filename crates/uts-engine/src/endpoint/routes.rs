//! The owner of a datagram: connections by the ids that this end gave out, by their peer's address
//! where it gave out none, and by the word with which a peer says that it has forgotten one.

use super::table::{ByOwnId, ByRemote, Entry};
use crate::event::ConnectionHandle;
use std::collections::HashMap;
use std::net::SocketAddr;
use uts_wire::ConnectionId;
use uts_wire::packet::adaptive::RESET_TOKEN_BYTES;

/// Under which word a connection is found if its peer has forgotten it.
pub(super) type ResetKey = (SocketAddr, [u8; RESET_TOKEN_BYTES]);

/// Ways to find a connection.
#[derive(Default)]
pub(super) struct Routes {
    by_id: ByOwnId,
    /// Connections without an id of their own.
    by_remote: ByRemote,
    /// Handshakes, by the client's first id.
    by_first: HashMap<(SocketAddr, ConnectionId), ConnectionHandle>,
    /// Looked up through a keyed hash, so that the time it takes says nothing of the word (RFC 9000
    /// section 10.3.1).
    by_reset: HashMap<ResetKey, ConnectionHandle>,
}

impl Routes {
    /// True if a connection has this id.
    pub fn knows(&self, id: &ConnectionId) -> bool {
        self.by_id.contains_key(id)
    }

    /// The connection of a packet with the short header.
    pub fn short(&self, remote: SocketAddr, id: &ConnectionId) -> Option<ConnectionHandle> {
        let found = if id.is_empty() { self.by_remote.get(&remote) } else { self.by_id.get(id) };
        found.copied()
    }

    /// The connection of a packet of the handshake.
    pub fn long(&self, remote: SocketAddr, id: &ConnectionId) -> Option<ConnectionHandle> {
        let by_id = self.by_id.get(id).or_else(|| self.by_first.get(&(remote, *id)));
        by_id.or_else(|| self.by_remote.get(&remote).filter(|_| id.is_empty())).copied()
    }

    /// The connection that its peer has forgotten, by the word that it says.
    pub fn of_reset(&self, key: &ResetKey) -> Option<ConnectionHandle> {
        self.by_reset.get(key).copied()
    }

    /// Finds a connection by an id of this end's; by the peer's address if that is empty.
    pub fn add(&mut self, remote: SocketAddr, id: ConnectionId, handle: ConnectionHandle) {
        if id.is_empty() {
            self.by_remote.insert(remote, handle);
        } else {
            self.by_id.insert(id, handle);
        }
    }

    /// Finds a handshake by the client's first id, too.
    pub fn add_first(&mut self, remote: SocketAddr, id: ConnectionId, handle: ConnectionHandle) {
        self.by_first.insert((remote, id), handle);
    }

    /// An id finds nothing any more.
    pub fn remove(&mut self, id: &ConnectionId) {
        self.by_id.remove(id);
    }

    /// Finds a connection by this word, and by no other.
    pub fn follow_reset(&mut self, handle: ConnectionHandle, entry: &mut Entry, key: Option<ResetKey>) {
        if entry.reset.as_deref() == key.as_ref() {
            return;
        }
        if let Some(before) = entry.reset.take() {
            self.by_reset.remove(&*before);
        }
        if let Some(key) = key {
            self.by_reset.insert(key, handle);
            entry.reset = Some(Box::new(key));
        }
    }

    /// Nothing finds the connection any more.
    pub fn forget(&mut self, handle: ConnectionHandle, entry: &mut Entry) {
        let (connection, remote) = (&entry.connection, entry.first_remote);
        for id in connection.own_ids().chain([connection.local_cid()]) {
            if self.by_id.get(id) == Some(&handle) {
                self.by_id.remove(id);
            }
        }
        if self.by_remote.get(&remote) == Some(&handle) {
            self.by_remote.remove(&remote);
        }
        let first = (remote, *connection.first_cid());
        if self.by_first.get(&first) == Some(&handle) {
            self.by_first.remove(&first);
        }
        if let Some(key) = entry.reset.take() {
            self.by_reset.remove(&*key);
        }
    }
}
