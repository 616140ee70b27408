//! The way in, as far as the connection: to which a datagram belongs, found by the id that this end gave out, or by the peer's
//! address where it gave out none.

use super::Endpoint;
use super::table::Entry;
use crate::connection::{Ecn, Place, Side};
use crate::event::ConnectionHandle;
use std::net::{IpAddr, SocketAddr};
use uts_functions::Time;
use uts_wire::ConnectionId;
use uts_wire::packet::establishment::{Level, LongPacket, parse_header};

impl Endpoint {
    /// Takes in a datagram. It is deciphered in place.
    pub fn handle_datagram(&mut self, now: Time, remote: SocketAddr, ecn: Option<Ecn>, datagram: &mut [u8]) {
        self.handle_datagram_at(now, remote, None, ecn, datagram);
    }

    /// Takes in a datagram that came to `local`, where a host has several addresses: what answers it leaves from there.
    pub fn handle_datagram_at(
        &mut self,
        now: Time,
        remote: SocketAddr,
        local: Option<IpAddr>,
        ecn: Option<Ecn>,
        datagram: &mut [u8],
    ) {
        self.handle_datagrams(now, remote, local, ecn, datagram.len(), datagram);
    }

    /// Takes in datagrams that came together from one address to one, marked alike (receive offload): each of
    /// `segment_bytes`, but for the last, which may be shorter. What they make due is looked at once for all.
    pub fn handle_datagrams(
        &mut self,
        now: Time,
        remote: SocketAddr,
        local: Option<IpAddr>,
        ecn: Option<Ecn>,
        segment_bytes: usize,
        datagrams: &mut [u8],
    ) {
        self.arrived_at = local;
        let mut last = None;
        let mut last_id = ConnectionId::EMPTY;
        let (segment_bytes, mut rest) = (segment_bytes.max(1), datagrams);
        while !rest.is_empty() {
            let (datagram, behind) = rest.split_at_mut(segment_bytes.min(rest.len()));
            rest = behind;
            let handle = if uts_wire::packet::is_long(datagram[0]) {
                last_id = ConnectionId::EMPTY;
                self.route_long(now, remote, datagram)
            } else if last.is_some() && !last_id.is_empty() && datagram[1..].starts_with(last_id.as_slice()) {
                // The next of a batch.
                last
            } else {
                last_id = datagram
                    .get(1..1 + self.config.cid_bytes)
                    .and_then(ConnectionId::new)
                    .unwrap_or(ConnectionId::EMPTY);
                self.route_short(now, remote, datagram)
            };
            if last != handle
                && let Some(last) = last
            {
                self.after_datagrams(now, last);
            }
            last = handle;
            let Some(Entry { connection, .. }) = handle.and_then(|h| self.connections.get_mut(h)) else {
                continue;
            };
            // The peer's address is the one that the handshake proved.
            if connection.remote() != remote {
                self.strangers += 1;
                (last, last_id) = (None, ConnectionId::EMPTY);
                continue;
            }
            // A client's address is for its system to choose, which knows where the server is.
            if connection.side() == Side::Server && connection.local().is_none() {
                connection.set_local(local);
            }
            let was_handshaking = connection.is_handshaking();
            connection.handle_datagram(now, ecn, datagram);
            if !was_handshaking {
                let taken = connection.handle_run(now, ecn, segment_bytes, rest);
                rest = &mut rest[taken..];
            }
            if was_handshaking && !connection.is_handshaking() {
                connection.share_certificates(&mut self.certificates);
                self.by_reset
                    .extend(connection.peer_reset_token().zip(handle).map(|(t, h)| ((remote, *t), h)));
                if connection.side() == Side::Server {
                    self.handshakes = self.handshakes.saturating_sub(1);
                    self.accepted.extend(handle.filter(|_| connection.is_open()));
                }
            }
        }
        if let Some(last) = last {
            self.after_datagrams(now, last);
        }
    }

    /// Datagrams of a connection have been taken in.
    fn after_datagrams(&mut self, now: Time, handle: ConnectionHandle) {
        if let Some(entry) = self.connections.get_mut(handle) {
            entry.connection.after_datagrams(now, &mut self.turns);
            let rtt = entry.connection.latest_round_trip();
            self.peers.on_news(now, &mut entry.share, entry.connection.in_flight_bytes(), rtt);
        }
        self.touch(handle);
        self.call_waiting(handle);
    }

    fn route_short(&mut self, now: Time, remote: SocketAddr, datagram: &[u8]) -> Option<ConnectionHandle> {
        let found = if self.config.cid_bytes == 0 {
            self.by_remote.get(&remote).copied()
        } else {
            let id = datagram.get(1..1 + self.config.cid_bytes).and_then(ConnectionId::new)?;
            self.by_cid.get(&id).copied()
        };
        match found {
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
                let known =
                    self.by_cid.get(&header.dcid).or_else(|| self.by_first.get(&(remote, header.dcid)));
                let known = known.or_else(|| self.by_remote.get(&remote).filter(|_| header.dcid.is_empty()));
                match known {
                    Some(handle) => Some(*handle),
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
                self.on_version_refusal(now, remote, &refusal);
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
