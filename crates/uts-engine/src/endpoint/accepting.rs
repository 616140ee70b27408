//! Connections that others begin: from a client's first packet to the connection that is accepted.

use super::crowd::Held;
use super::{Endpoint, FIRST_CID_BYTES, reflectors};
use crate::connection::{self, Birth, Connection, EarlyError, EarlyRequest, Place, Prepared, Side};
use crate::endpoint::budget::Stores;
use crate::event::ConnectionHandle;
use crate::token::Proof;
use rand::Rng;
use rustls::quic;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use uts_functions::Time;
use uts_wire::packet::establishment::EstablishmentHeader;

impl Endpoint {
    /// The next connection whose handshake a client has finished.
    pub fn accept(&mut self) -> Option<ConnectionHandle> {
        self.door.accepted.pop_front()
    }

    /// The next early request of a client, and the connection that is to be answered by
    /// [`Endpoint::answer_early`]. It may be a copy: the client is not known to be where it seems
    /// to be, and the request may come again by a flow.
    pub fn next_early(&mut self) -> Option<(ConnectionHandle, EarlyRequest)> {
        self.door.early.pop_front()
    }

    /// True if an early request waits to be taken.
    pub fn has_early(&self) -> bool {
        !self.door.early.is_empty()
    }

    /// Answers an early request, with at most [`EARLY_BYTES_MAX`](crate::EARLY_BYTES_MAX).
    ///
    /// # Errors
    /// [`EarlyError`]: there is no answer. The client makes its request again by a flow.
    pub fn answer_early(&mut self, handle: ConnectionHandle, answer: &[u8]) -> Result<(), EarlyError> {
        let entry = self.connections.get_mut(handle).ok_or(EarlyError::Over)?;
        entry.connection.answer_early(answer)?;
        self.touch(handle);
        Ok(())
    }

    /// Takes no more new connections.
    pub fn refuse_new(&mut self) {
        self.door.is_closed = true;
    }

    /// Has other limits from now on: as [`EndpointConfig`](crate::EndpointConfig) has them.
    /// Connections beyond them stay.
    pub fn set_places(&mut self, connections_max: usize, of_keys: usize, per_address_max: usize) {
        (self.config.connections_max, self.config.connections_of_keys) = (connections_max, of_keys);
        self.config.connections_per_address_max = per_address_max;
        self.door.counts().crowd.set_max(per_address_max);
    }

    /// Number of clients so far that were refused for want of a place.
    pub fn refused(&self) -> u64 {
        self.door.refused
    }

    /// A client's first packet. No state is made before it is found to be whole and made by a
    /// client that follows the protocol; with many handshakes under way, not before the client has
    /// shown that it is at its address.
    pub(super) fn on_first_packet(
        &mut self,
        now: Time,
        remote: SocketAddr,
        datagram: &[u8],
        header: &EstablishmentHeader<'_>,
        place: &Place,
    ) -> Option<ConnectionHandle> {
        let server = self.config.server.clone()?;
        self.strangers += 1;
        // M-15
        if reflectors::is_one(remote) {
            return None;
        }
        // K-14
        if datagram.len() < self.config.accept.least_packet_bytes()
            || header.dcid.len() < FIRST_CID_BYTES.min(self.config.cid_bytes.max(1))
        {
            return None;
        }
        let keys = self.initial_keys(&header.dcid, rustls::Side::Server)?;
        if !connection::is_authentic(&keys, datagram, place) {
            return None;
        }
        let proof = self.door.tokens.as_ref().and_then(|t| t.check(now, remote, header.token));
        if !self.door.is_closed && proof.is_none() && self.wants_proof(remote.ip()) {
            self.answer_with_retry(now, remote, header);
            return None;
        }
        let refusal = if self.door.is_closed {
            Some("it takes no new connections")
        } else {
            self.has_no_place(now, remote.ip())
        };
        if let Some(why) = refusal {
            self.door.refused += 1;
            let ids = (header.scid, header.dcid);
            if self.door.has_room_to_answer()
                && let Some(answer) = connection::refusal(&keys, ids, why)
            {
                self.answer(remote, answer);
            }
            return None;
        }
        let (original_dcid, retry_scid) = match &proof {
            Some(Proof { original_dcid, retry_scid, .. }) if *retry_scid == header.dcid => {
                (*original_dcid, Some(*retry_scid))
            }
            Some(_) => return None,
            None => (header.dcid, None),
        };
        // Without room it is as if the packet had been lost: the client repeats it.
        if !self.make_half_open_room(now, remote.ip(), proof.is_some()) {
            return None;
        }
        let ration = self.door.handshake_memory.ration()?;
        let local_cid = self.new_cid(remote)?;
        let config = Arc::clone(&self.accept);
        let reset_token = self.ids.reset_token(&local_cid, remote);
        let ids = (Some(original_dcid), retry_scid);
        let stores = Stores::new(&self.shared.budget, self.shared.spares.clone(), &config);
        let tickets = self.door.tickets.clone();
        let ticket = tickets.as_ref().map(|t| t.lock().unwrap_or_else(PoisonError::into_inner).issue(now));
        let params =
            connection::hello(&config, stores.first_credit, local_cid, ids, reset_token, None, ticket);
        let server = self.config.server_for.as_ref().map_or(server, |of| of(remote));
        let tls = quic::ServerConnection::new(server, quic::Version::V1, params).ok()?;
        let birth = Birth {
            side: Side::Server,
            config,
            remote,
            local_cid,
            peer_cid: header.scid,
            original_dcid,
            retry_scid,
            address_proved: proof.as_ref().is_some_and(|proof| proof.is_same_port),
            first_bytes: Some(datagram.len()),
            tls: quic::Connection::Server(tls),
            initial: keys,
            proposal: Arc::clone(&self.accept_profile),
            seed: self.rng.next_u64(),
            stores,
            known: self.shared.history.of(remote.ip(), now),
            ration,
            early: tickets.map(Prepared::Tickets),
        };
        let connection = Connection::new(now, birth)?;
        debug_assert_eq!(*connection.first_cid(), header.dcid);
        self.strangers -= 1;
        let handle = self.insert(connection);
        let held = if proof.is_some() { Held::HalfOpen } else { Held::Claimed };
        self.door.counts().crowd.join(remote.ip(), held);
        if let Some(entry) = self.connections.get_mut(handle) {
            entry.held = held;
        }
        self.routes.add_first(remote, header.dcid, handle);
        Some(handle)
    }
}
