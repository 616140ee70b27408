//! Datagrams that belong to no connection: what little is answered, and to whom.

use super::table::Entry;
use super::{Endpoint, FIRST_CID_BYTES};
use crate::connection::Side;
use crate::event::ConnectionHandle;
use crate::token::retry_integrity;
use bytes::Bytes;
use rand::Rng;
use std::net::SocketAddr;
use uts_functions::Time;
use uts_wire::packet::adaptive::{MIN_RESET_BYTES, RESET_TOKEN_BYTES};
use uts_wire::packet::establishment::{EstablishmentHeader, OtherVersion, Retry, VersionRefusal};
use uts_wire::{ConnectionId, VERSION};

/// A reset looks like a small packet, and is no longer than one.
const RESET_BYTES_MAX: usize = 43;

impl Endpoint {
    /// Answers the datagram that is being taken in.
    pub(super) fn answer(&mut self, remote: SocketAddr, bytes: Vec<u8>) {
        self.door.answer(remote, self.arrived_at, bytes);
    }

    /// A short packet that belongs to nothing here: either a reset of one of our connections, or of
    /// one that is forgotten.
    pub(super) fn on_unknown_short(&mut self, now: Time, remote: SocketAddr, datagram: &[u8]) {
        if let Some((_, token)) = datagram.split_last_chunk::<RESET_TOKEN_BYTES>()
            && let Some(handle) = self.routes.of_reset(&(remote, *token))
        {
            self.reset_by_peer(now, handle);
            return;
        }
        self.answer_with_reset(now, remote, datagram);
    }

    pub(super) fn reset_by_peer(&mut self, now: Time, handle: ConnectionHandle) {
        if let Some(entry) = self.connections.get_mut(handle) {
            entry.connection.on_stateless_reset(now);
        }
        self.touch(handle);
    }

    /// Tells the peer of a forgotten connection that it is forgotten, if this endpoint gave that
    /// peer the id. Shorter than what it answers, so that two endpoints never keep answering each
    /// other (RFC 9000 section 10.3.3).
    pub(super) fn answer_with_reset(&mut self, now: Time, remote: SocketAddr, datagram: &[u8]) {
        let Some(id) = datagram.get(1..1 + self.config.cid_bytes).and_then(ConnectionId::new) else { return };
        if self.config.server.is_none()
            || datagram.len() <= MIN_RESET_BYTES + 1
            || !self.door.has_room_to_answer()
            || !self.door.reset_limit.allows(now, remote)
        {
            return;
        }
        // P-54
        let Some(token) = self.ids.reset_token(&id, remote) else { return };
        self.door.reset_limit.note(remote);
        let len = (datagram.len() - 1).min(RESET_BYTES_MAX);
        let mut answer = vec![0; len - RESET_TOKEN_BYTES];
        self.rng.fill_bytes(&mut answer);
        if let Some(first) = answer.first_mut() {
            *first &= 0x7f;
        }
        answer.extend_from_slice(&token);
        self.answer(remote, answer);
    }

    pub(super) fn answer_with_retry(
        &mut self,
        now: Time,
        remote: SocketAddr,
        header: &EstablishmentHeader<'_>,
    ) {
        if !self.door.has_room_to_answer() {
            return;
        }
        let scid = self.ids.draw_for_retry(&mut self.rng, FIRST_CID_BYTES);
        let Some(token) = self.door.tokens.as_mut().map(|t| t.retry(now, remote, &header.dcid, &scid)) else {
            return;
        };
        let mut answer = Vec::new();
        Retry { dcid: header.scid, scid, token: &token, integrity: [0; 16] }.emit(&mut answer);
        let body = answer.len() - 16;
        let integrity = retry_integrity(&header.dcid, &answer[..body]);
        answer[body..].copy_from_slice(&integrity);
        self.answer(remote, answer);
    }

    pub(super) fn on_retry(&mut self, remote: SocketAddr, datagram: &[u8], retry: &Retry<'_>) {
        let Some(handle) = self.client_of(remote, retry.dcid.as_slice()) else { return };
        let Some(keys) = self.initial_keys(&retry.scid, rustls::Side::Client) else { return };
        let Some(Entry { connection, .. }) = self.connections.get_mut(handle) else { return };
        let body = &datagram[..datagram.len() - 16];
        if is_same(&retry_integrity(connection.original_dcid(), body), &retry.integrity) {
            connection.on_retry(keys, retry.scid, Bytes::copy_from_slice(retry.token));
        }
        self.touch(handle);
    }

    pub(super) fn on_version_refusal(&mut self, remote: SocketAddr, refusal: &VersionRefusal<'_>) {
        let Some(handle) = self.client_of(remote, refusal.dcid) else { return };
        let Some(Entry { connection, .. }) = self.connections.get_mut(handle) else { return };
        // Only someone who saw the client's packet knows both ids.
        let is_answer = connection.peer_cid().as_slice() == refusal.scid;
        if is_answer && !refusal.versions.contains(&VERSION) {
            let theirs: Vec<String> = refusal.versions.iter().map(|v| version_name(*v)).collect();
            connection.on_version_refusal(version_name(VERSION), theirs.join(", "));
        }
        self.touch(handle);
    }

    /// The client that an unprotected answer is for.
    pub(super) fn client_of(&self, remote: SocketAddr, dcid: &[u8]) -> Option<ConnectionHandle> {
        let handle = self.routes.short(remote, &ConnectionId::new(dcid)?)?;
        let connection = &self.connections.get(handle)?.connection;
        (connection.side() == Side::Client && connection.remote() == remote).then_some(handle)
    }

    /// A packet of another version: its sender is told which one this end speaks.
    pub(super) fn on_other_version(&mut self, remote: SocketAddr, bytes: usize, other: &OtherVersion<'_>) {
        self.strangers += 1;
        let least = self.config.accept.least_packet_bytes();
        if self.config.server.is_none() || bytes < least || !self.door.has_room_to_answer() {
            return;
        }
        let versions = [VERSION].into_iter().collect();
        let mut answer = Vec::new();
        VersionRefusal { dcid: other.scid, scid: other.dcid, versions }.emit(&mut answer);
        self.answer(remote, answer);
    }
}

/// Name of a version, for people.
fn version_name(version: u32) -> String {
    match version.to_be_bytes() {
        [b'U', b'T', b'S', number] => format!("UTS {number}"),
        _ => format!("{version:#010x}"),
    }
}

/// Compares without telling by time where the difference is.
pub(crate) fn is_same(a: &[u8; 16], b: &[u8; 16]) -> bool {
    a.iter().zip(b).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}
