//! The way in, as far as the connection: to which a datagram belongs, found by the id that this end
//! gave out, or by the peer's address where it gave out none.

use super::Endpoint;
use super::door::EARLY_REQUESTS_MAX;
use super::reflectors;
use super::table::Entry;
use crate::connection::{Ecn, PeerPlace, Place, Side};
use crate::event::ConnectionHandle;
use std::net::{IpAddr, SocketAddr};
use uts_functions::Time;
use uts_wire::ConnectionId;
use uts_wire::packet::adaptive::RESET_TOKEN_BYTES;
use uts_wire::packet::establishment::{Level, LongPacket, parse_header};

impl Endpoint {
    /// Takes in a datagram. It is deciphered in place.
    pub fn handle_datagram(&mut self, now: Time, remote: SocketAddr, ecn: Option<Ecn>, datagram: &mut [u8]) {
        self.take_in(now, remote, None, ecn, datagram.len(), datagram);
        self.taken_in(now);
    }

    /// Takes in datagrams that came together from one address, marked alike (receive offload), but
    /// looks at nothing that they make due: for as many of these as there are at one time,
    /// [`Endpoint::taken_in`] has to be called.
    ///
    /// `local` = where they came to, if this host has several addresses: what answers them leaves
    /// from there. Each is of `segment_bytes`, but for the last, which may be shorter. They are
    /// deciphered in place. Says for which connection the last was.
    pub fn take_in(
        &mut self,
        now: Time,
        remote: SocketAddr,
        local: Option<IpAddr>,
        ecn: Option<Ecn>,
        segment_bytes: usize,
        datagrams: &mut [u8],
    ) -> Option<ConnectionHandle> {
        self.arrived_at = local;
        let (segment_bytes, mut rest) = (segment_bytes.max(1), datagrams);
        let mut of = None;
        while !rest.is_empty() {
            let taken = self.take_in_run(now, remote, ecn, segment_bytes, rest);
            if taken > 0 {
                of = self.taking.map(|(last, _)| last);
                rest = &mut rest[taken..];
                continue;
            }
            let (datagram, behind) = rest.split_at_mut(segment_bytes.min(rest.len()));
            rest = behind;
            of = self.take_in_one(now, remote, local, ecn, datagram);
        }
        of
    }

    /// Takes in a datagram, but looks at nothing that it makes due; says for which connection it
    /// was.
    fn take_in_one(
        &mut self,
        now: Time,
        remote: SocketAddr,
        local: Option<IpAddr>,
        ecn: Option<Ecn>,
        datagram: &mut [u8],
    ) -> Option<ConnectionHandle> {
        let (handle, id) = if uts_wire::packet::is_long(datagram[0]) {
            (self.route_long(now, remote, datagram), ConnectionId::EMPTY)
        } else if let Some((last, id)) = self.taking.filter(|(_, id)| is_for(id, datagram)) {
            // The next of a batch.
            (Some(last), id)
        } else {
            let id = datagram.get(1..1 + self.config.cid_bytes).and_then(ConnectionId::new);
            (self.route_short(now, remote, datagram), id.unwrap_or(ConnectionId::EMPTY))
        };
        if self.taking.is_some_and(|(last, _)| Some(last) != handle) {
            self.taken_in(now);
        }
        let handle = handle?;
        let Entry { connection, .. } = self.connections.get_mut(handle)?;
        let was_handshaking = connection.is_handshaking();
        if connection.remote() == remote {
            if !id.is_empty() {
                connection.came_by(&id);
            }
            // A client's address is for its system to choose, which knows where the server is.
            if connection.side() == Side::Server && connection.local().is_none() {
                connection.set_local(local);
            }
            connection.handle_datagram(now, ecn, datagram);
        } else if reflectors::is_one(remote)
            || !self.take_in_from_elsewhere(now, handle, (PeerPlace { remote, local }, id), ecn, datagram)
        {
            // M-15
            self.strangers += 1;
            return None;
        }
        self.taking = Some((handle, id));
        if was_handshaking {
            let entry = self.connections.get_mut(handle);
            let request = entry.and_then(|entry| entry.connection.take_early_request());
            if let Some(request) = request.filter(|_| self.door.early.len() < EARLY_REQUESTS_MAX) {
                self.door.early.push_back((handle, request));
            }
            self.on_handshake_packet(now, handle);
        }
        Some(handle)
    }

    /// A datagram of a handshake was taken in, which may have ended it.
    fn on_handshake_packet(&mut self, now: Time, handle: ConnectionHandle) {
        let Some(Entry { connection, .. }) = self.connections.get_mut(handle) else {
            return;
        };
        if connection.is_handshaking() {
            return;
        }
        connection.share_certificates(&mut self.shared.certificates);
        if connection.side() == Side::Server {
            self.door.on_handshake_over();
            if connection.is_open() {
                self.take_place(now, handle);
            }
            // One whose client closes with its last flight has been open, too.
            let is_accepted = self.peek(handle).is_some_and(|c| c.is_open() || c.was_closed_by_peer());
            self.door.accepted.extend(is_accepted.then_some(handle));
        }
    }

    /// Takes in what follows on what was just taken in, of the same connection; says how many
    /// bytes. None if it is anything else.
    fn take_in_run(
        &mut self,
        now: Time,
        remote: SocketAddr,
        ecn: Option<Ecn>,
        segment_bytes: usize,
        datagrams: &mut [u8],
    ) -> usize {
        let last = self.taking.filter(|(_, id)| is_for(id, datagrams));
        let entry = last.and_then(|(handle, _)| self.connections.get_mut(handle));
        let Some(connection) = entry.map(|e| &mut e.connection).filter(|c| c.remote() == remote) else {
            return 0;
        };
        connection.handle_run(now, ecn, segment_bytes, datagrams)
    }

    /// All that came at one time has been taken in: looks at what that makes due.
    pub fn taken_in(&mut self, now: Time) {
        if let Some((handle, _)) = self.taking.take() {
            self.after_datagrams(now, handle);
        }
    }

    /// Datagrams of a connection have been taken in.
    fn after_datagrams(&mut self, now: Time, handle: ConnectionHandle) {
        if let Some(entry) = self.connections.get_mut(handle) {
            entry.connection.after_datagrams(now, &mut self.shared.turns);
            let rtt = entry.connection.latest_round_trip();
            self.shared.peers.on_news(now, &mut entry.share, entry.connection.in_flight_bytes(), rtt);
        }
        self.follow(handle);
        self.touch(handle);
        self.call_waiting(handle);
    }

    /// The connection that an adaptive packet is for, which is not looked into; `None` for those of
    /// handshakes and of strangers.
    pub fn recipient(&self, remote: SocketAddr, datagram: &[u8]) -> Option<ConnectionHandle> {
        let is_adaptive = datagram.first().is_some_and(|first| !uts_wire::packet::is_long(*first));
        self.routes.short(remote, &self.short_id(datagram).filter(|_| is_adaptive)?)
    }

    /// True if a datagram is for a connection that this endpoint neither has nor can begin: one of
    /// another endpoint at this port, which has the same secret, if there is one. (P-65)
    pub fn is_for_another(&self, now: Time, remote: SocketAddr, datagram: &[u8]) -> bool {
        let Some(first) = datagram.first() else { return false };
        if !uts_wire::packet::is_long(*first) {
            let Some(id) = self.short_id(datagram) else { return false };
            let word = datagram.last_chunk::<RESET_TOKEN_BYTES>();
            let is_reset = word.is_some_and(|word| self.routes.of_reset(&(remote, *word)).is_some());
            return !is_reset && self.routes.short(remote, &id).is_none();
        }
        let Ok(LongPacket::Establishment(packet)) = parse_header(datagram) else { return false };
        let header = packet.header;
        if self.routes.long(remote, &header.dcid).is_some() {
            return false;
        }
        // What begins a connection names an id that the client has drawn, or one of a retry. One
        // that a server drew for this client is of a handshake that goes on.
        let begins = header.level == Level::Initial && self.ids.reset_token(&header.dcid, remote).is_none();
        let token = header.token;
        let is_own =
            || self.door.tokens.as_ref().is_some_and(|keys| keys.check(now, remote, token).is_some());
        !begins || !(token.is_empty() || is_own())
    }

    /// The id that an adaptive packet names, if it is whole.
    fn short_id(&self, datagram: &[u8]) -> Option<ConnectionId> {
        datagram.get(1..1 + self.config.cid_bytes).and_then(ConnectionId::new)
    }

    fn route_short(&mut self, now: Time, remote: SocketAddr, datagram: &[u8]) -> Option<ConnectionHandle> {
        let id = self.short_id(datagram)?;
        match self.routes.short(remote, &id) {
            Some(handle) => Some(handle),
            None => {
                self.strangers += 1;
                self.on_unknown_short(now, remote, datagram);
                None
            }
        }
    }

    fn route_long(&mut self, now: Time, remote: SocketAddr, datagram: &[u8]) -> Option<ConnectionHandle> {
        match parse_header(datagram) {
            Ok(LongPacket::Establishment(packet)) => {
                let header = packet.header;
                match self.routes.long(remote, &header.dcid) {
                    Some(handle) => Some(handle),
                    None if header.level == Level::Initial => {
                        let place = Place::of(&packet);
                        self.on_first_packet(now, remote, datagram, &header, &place)
                    }
                    None => {
                        self.strangers += 1;
                        None
                    }
                }
            }
            Ok(LongPacket::Retry(retry)) => {
                self.on_retry(remote, datagram, &retry);
                None
            }
            Ok(LongPacket::VersionRefusal(refusal)) => {
                self.on_version_refusal(remote, &refusal);
                None
            }
            Ok(LongPacket::OtherVersion(other)) => {
                self.on_other_version(remote, datagram.len(), &other);
                None
            }
            Err(_) => {
                self.strangers += 1;
                None
            }
        }
    }
}

/// True if a packet is for the connection with this id; false if the id is empty.
fn is_for(id: &ConnectionId, datagram: &[u8]) -> bool {
    !id.is_empty() && datagram[1..].starts_with(id.as_slice())
}
