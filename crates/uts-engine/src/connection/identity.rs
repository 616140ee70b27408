//! Identity of a connection: the two ends, their addresses, and the ids by which its packets are
//! known.

use super::Side;
use super::migration::PeerPlace;
use std::net::{IpAddr, SocketAddr};
use uts_wire::ConnectionId;

/// Ends, addresses and ids of a connection.
#[derive(Clone)]
pub(super) struct Identity {
    pub side: Side,
    pub remote: SocketAddr,
    /// The address of this host that the peer talks to, where that is known.
    pub local: Option<IpAddr>,
    pub local_cid: ConnectionId,
    pub peer_cid: ConnectionId,
    /// The id that the client's first packet was sent to.
    pub original_dcid: ConnectionId,
    pub retry_scid: Option<ConnectionId>,
    /// The peer ends the connection with it when it has lost all state.
    pub peer_reset_token: Option<[u8; 16]>,
    /// The place or an id has changed, and the endpoint has yet to hear of it.
    pub has_news: bool,
    pub seed: u64,
}

impl Identity {
    /// The peer's place.
    pub fn place(&self) -> PeerPlace {
        PeerPlace { remote: self.remote, local: self.local }
    }

    /// Packets go to another place from now on.
    pub fn go_to(&mut self, place: PeerPlace) {
        self.remote = place.remote;
        if self.side == Side::Server {
            self.local = place.local;
        }
        self.has_news = true;
    }

    /// True if something has changed since this was last asked.
    #[inline]
    pub fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.has_news)
    }

    /// Notes the id by which a packet of the peer has come.
    #[inline]
    pub fn came_by(&mut self, id: &ConnectionId) {
        if self.local_cid != *id {
            self.local_cid = *id;
        }
    }

    /// True if a datagram that ends so is the peer's word that it no longer knows the connection.
    pub fn is_reset(&self, tail: Option<[u8; 16]>) -> bool {
        match (tail, &self.peer_reset_token) {
            (Some(tail), Some(own)) => crate::endpoint::is_same(own, &tail),
            _ => false,
        }
    }
}
