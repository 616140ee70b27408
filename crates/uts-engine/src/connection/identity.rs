//! Identity of a connection: the two ends, their addresses, and the ids by which its packets are
//! known.

use super::Side;
use std::net::{IpAddr, SocketAddr};
use uts_wire::ConnectionId;

/// Ends, addresses and ids of a connection.
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
    pub seed: u64,
}
