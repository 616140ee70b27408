//! The endpoint follows its connections to other places and other ids (migration.md).

use super::Endpoint;
use super::table::Entry;
use crate::connection::{News, PeerPlace};
use crate::event::ConnectionHandle;
use rand::Rng;
use std::net::{IpAddr, SocketAddr};
use uts_functions::Time;

impl Endpoint {
    /// This endpoint has another address, or another socket: its packets leave from elsewhere from
    /// now on. Connections go on from there: their peers follow once they hear of it. What is known
    /// of the path begins anew, from what was learnt when this endpoint was at `local` last; `None`
    /// = where it is now is not known. Connections whose handshake is not done yet are not moved,
    /// and end by their patience.
    pub fn on_moved(&mut self, now: Time, local: Option<IpAddr>) {
        let handles: Vec<_> = self.connections.handles().collect();
        for handle in &handles {
            if let Some((host, learnt)) = self.peek(*handle).and_then(|c| c.learnt_of()) {
                self.shared.history.note(host, learnt);
            }
        }
        self.shared.history.on_moved(local);
        for handle in handles {
            let luck = self.rng.next_u64();
            if let Some(entry) = self.connections.get_mut(handle) {
                let known = self.shared.history.of(entry.connection.remote().ip(), now);
                entry.connection.on_moved_here(now, known, luck);
            }
            self.follow(handle);
            self.touch(handle);
        }
    }

    /// This endpoint is at `local`: what it learns of paths is kept apart from what it learns
    /// elsewhere. For an endpoint that has not moved; see [`Endpoint::on_moved`].
    pub fn is_at(&mut self, local: IpAddr) {
        self.shared.history.is_at(Some(local));
    }

    /// Looks whether a connection's peer is elsewhere, or either end known by other ids.
    pub(super) fn follow(&mut self, handle: ConnectionHandle) {
        let Some(entry) = self.connections.get_mut(handle) else { return };
        if !entry.connection.take_migration_news() {
            return;
        }
        if let Some((host, learnt)) = entry.connection.take_left() {
            self.shared.history.note(host, learnt);
        }
        let remote = entry.connection.remote();
        if self.shared.peers.address(&entry.share) != Some(remote) {
            self.shared.peers.leave(&mut entry.share);
            entry.share = self.shared.peers.join(remote);
        }
        for gone in entry.connection.take_gone_ids() {
            self.routes.remove(&gone);
        }
        let reset = entry.connection.peer_reset_token().map(|token| (remote, *token));
        self.routes.follow_reset(handle, entry, reset);
        self.give_id(handle, remote);
    }

    /// Gives a connection another id for its peer at `remote`, if one is wanted. (M-8)
    fn give_id(&mut self, handle: ConnectionHandle, remote: SocketAddr) {
        if !self.peek(handle).is_some_and(|connection| connection.wants_id()) {
            return;
        }
        let Some(id) = self.new_cid(remote).filter(|id| !id.is_empty()) else { return };
        // P-53: of ids that only clients give out nobody asks for resets.
        let token = self.ids.reset_token(&id, remote).filter(|_| self.config.server.is_some());
        if let Some(Entry { connection, .. }) = self.connections.get_mut(handle) {
            connection.give_id(id, token);
            self.routes.add(remote, id, handle);
        }
    }

    /// Takes in a datagram that names a connection and did not come from where its peer was. Says
    /// whether it was the peer's.
    pub(super) fn take_in_from_elsewhere(
        &mut self,
        now: Time,
        handle: ConnectionHandle,
        (place, id): (PeerPlace, uts_wire::ConnectionId),
        ecn: Option<crate::connection::Ecn>,
        datagram: &mut [u8],
    ) -> bool {
        let luck = [self.rng.next_u64(), self.rng.next_u64()];
        let news = News { place, known: self.shared.history.of(place.remote.ip(), now), luck };
        let Some(entry) = self.connections.get_mut(handle) else { return false };
        let is_peers = entry.connection.handle_from_elsewhere(now, (news, id), ecn, datagram);
        if !is_peers && !entry.connection.is_open() {
            // It may be one forgery too many.
            self.touch(handle);
        }
        is_peers
    }
}
