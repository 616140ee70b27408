//! Settings of an endpoint and its connections. Every bound has its reason beside it.

use crate::endpoint::Worker;
use crate::mapping::Mapping;
use crate::probe::Probes;
use crate::requirements::Requirements;
use crate::selector::Library;
use core::fmt;
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;
use uts_functions::numbering::FIRST_OWN;
use uts_functions::{Function, Numbering};

/// The ALPN name that keeps UTS apart from QUIC, whose key schedule it uses (spec P, design section
/// 4).
pub const ALPN: &[u8] = b"uts/1";

/// The UDP payload that is tried first, for most paths carry it (RFC 9000 section 14, RFC 8899
/// section 5.1.2: BASE_PLPMTU).
pub const PACKET_BYTES_BASE: usize = 1200;

/// The UDP payload that is fallen back to before the smallest: every IPv4 host takes packets of 576
/// bytes (RFC 1122 section 3.3.2), less IP and UDP headers.
pub const PACKET_BYTES_MIN: usize = 548;

/// The smallest UDP payload that is fallen back to: packets of 296 bytes, as on slow serial lines
/// (RFC 1144 section 5.1), less IP and UDP headers.
pub const PACKET_BYTES_LEAST: usize = 268;

/// Length of the ids of an endpoint that others connect to. Half of an id is random, the other half
/// proves that it is the endpoint's own (P-53).
pub const SERVER_CID_BYTES: usize = 8;

/// Length of the ids of an endpoint that only begins connections. It needs to tell its own apart,
/// and nobody asks it for resets.
pub const CLIENT_CID_BYTES: usize = 4;

/// The longest name of a service (P-52).
pub const SERVICE_BYTES_MAX: usize = uts_wire::library::MAX_SERVICE_BYTES;

/// Memory that connections of an endpoint share, unless another amount is given
/// ([`EndpointConfig::memory_bytes_max`]).
pub(crate) const MEMORY_BYTES: usize = 96 << 20;

/// Memory that each connection may hold of what it receives, whatever others hold, in bytes: credit
/// for 20 packets.
pub(crate) const LEAST_RECEIVED_BYTES: usize = 32 * 1024;

/// The same of what it sends.
pub(crate) const LEAST_SENT_BYTES: usize = 16 * 1024;

/// TLS settings by the address of a client.
pub type ServerFor = dyn Fn(SocketAddr) -> Arc<rustls::ServerConfig> + Send + Sync;

/// Settings of an endpoint.
#[derive(Clone)]
pub struct EndpointConfig {
    /// Length of the connection ids that this endpoint gives itself, 0..=20 bytes. A server needs 8
    /// at least to tell its clients that it was restarted. [`CLIENT_CID_BYTES`] are enough for an
    /// endpoint that only begins connections, none for an endpoint with one connection per socket,
    /// and one for a server with few connections on a slow line.
    pub cid_bytes: usize,
    /// TLS settings for connections that are accepted; `None` = none are.
    pub server: Option<Arc<rustls::ServerConfig>>,
    /// TLS settings for a client at this address, in the place of `server`, for applications that
    /// want to know where clients are whose keys they judge; `None` = the same for all. It is asked
    /// when a handshake begins, and must not block.
    pub server_for: Option<Arc<ServerFor>>,
    /// Settings of accepted connections.
    pub accept: ConnectionConfig,
    /// Most connections at once, so that memory is bounded. Handshakes under way take no place of
    /// these; there may be as many, and at least 16. When places are short, connections that have
    /// nothing under way make room for newcomers, those first that ask for nothing, and where most
    /// is held for the size of the network that they come from.
    pub connections_max: usize,
    /// Of these, so many are for clients whose keys TLS has verified: they take the places of
    /// others, if need be. 0 = none.
    pub connections_of_keys: usize,
    /// Most connections at once that clients at one address (of IPv6: in one /64 network) have
    /// begun, so that no host takes all; `usize::MAX` = any number. There may be many clients
    /// behind one address. Of a /56 network it is twice as many, of a /48 and an IPv4 /24 four
    /// times.
    pub connections_per_address_max: usize,
    /// If more than this many handshakes are under way, clients must first show that they are at
    /// their address (retry). 0 = always.
    pub handshakes_before_retry: usize,
    /// Memory that all handshakes under way may take together, in bytes. A handshake that another
    /// begins takes 24 KiB, and what its peer makes this end store. Datagrams that would take more
    /// are dropped, as if they had been lost.
    pub handshake_bytes_max: usize,
    /// Memory that all connections together may take, in bytes, for what is received and not read,
    /// and for what is written and not acknowledged, including what it takes to keep track of both.
    /// Beside it each connection has 32 KiB for the one and 16 KiB for the other, so that it goes
    /// on when others have taken all. A connection may have as much as it leaves free: one alone
    /// half of it, of ten each an eleventh (flow.md R-37). At least two and a half times the
    /// largest `credit_bytes_max` and `send_buffer_bytes_max` of its connections counts, so that a
    /// flow can have what these say.
    pub memory_bytes_max: usize,
    /// Bytes that all connections to one address may have waiting on the way, if there are several
    /// or the address is near (round trips of 0.5 ms at most). This is what the socket at that
    /// address is likely to hold. Bytes that are on the way only because the path is long do not
    /// count.
    pub waiting_bytes_max: u64,
    /// Key of ids and stateless resets. It must be this endpoint's alone: another endpoint with the
    /// same key can reset its connections. A server that keeps the key over restarts can end its
    /// old connections.
    pub secret: [u8; 32],
    /// Place among the endpoints that share a port ([`Worker::crew`]). The limits of connections
    /// are for all of them together, those of memory for each. `None` = it is the only one.
    pub worker: Option<Worker>,
    /// Clients may send a request with their first flight ([`Endpoint::next_early`]), if they were
    /// given leave by a connection before. Not for a server that wants to know its clients' keys:
    /// none is known yet by whom the request is. (K-23)
    ///
    /// [`Endpoint::next_early`]: crate::Endpoint::next_early
    pub takes_early: bool,
    /// Told of the points that packets pass; by default nobody is.
    pub probes: Probes,
}

impl fmt::Debug for EndpointConfig {
    /// Without the secret, and without TLS settings, which hold the server's key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig")
            .field("cid_bytes", &self.cid_bytes)
            .field("is_server", &self.server.is_some())
            .field("accept", &self.accept)
            .field("connections_max", &self.connections_max)
            .field("connections_of_keys", &self.connections_of_keys)
            .field("connections_per_address_max", &self.connections_per_address_max)
            .field("handshakes_before_retry", &self.handshakes_before_retry)
            .field("handshake_bytes_max", &self.handshake_bytes_max)
            .field("memory_bytes_max", &self.memory_bytes_max)
            .field("waiting_bytes_max", &self.waiting_bytes_max)
            .finish_non_exhaustive()
    }
}

impl Default for EndpointConfig {
    fn default() -> Self {
        EndpointConfig {
            cid_bytes: SERVER_CID_BYTES,
            server: None,
            server_for: None,
            accept: ConnectionConfig::default(),
            connections_max: 1 << 17,
            connections_of_keys: 0,
            connections_per_address_max: usize::MAX,
            handshakes_before_retry: 256,
            handshake_bytes_max: 128 << 20,
            memory_bytes_max: MEMORY_BYTES,
            waiting_bytes_max: 2 << 20,
            secret: [0; 32],
            worker: None,
            takes_early: false,
            probes: Probes::default(),
        }
    }
}

/// Settings of a connection.
///
/// ```
/// use std::time::Duration;
/// use uts_engine::ConnectionConfig;
/// use uts_engine::requirements::Requirements;
///
/// let config = ConnectionConfig {
///     requirements: Requirements::bulk(),
///     idle_timeout: Duration::from_secs(60),
///     flows_max: 10,
///     ..ConnectionConfig::default()
/// };
/// assert!(config.credit_bytes_max > 0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionConfig {
    /// Requirements of the application for the data that it sends. At a client, also for the data
    /// that it is sent at first.
    pub requirements: Requirements,
    /// Service that a client asks for in the handshake, in at most [`SERVICE_BYTES_MAX`] bytes;
    /// empty = the service that the server has.
    pub service: String,
    /// Without any packet from the peer for this long, the connection is given up; zero = never.
    pub idle_timeout: Duration,
    /// A client that has asked for nothing yet, and is silent for this long, is told to go. To ask
    /// is to open a flow, and a flow that this end opens counts as well. Zero = it has the idle
    /// time-out.
    pub first_request_timeout: Duration,
    /// An otherwise idle connection sends something this often; zero = never, unless `keepAlive` is
    /// asked for: then after `keepAliveTimeout`, or a third of the idle time-out.
    pub keep_alive: Duration,
    /// The most that a handshake may take, whatever the first profile's patience says: 10 s as long
    /// as nothing is heard of the peer, 60 s once it has answered, unless
    /// `uts.profile.establishment=three-way(patience=MS)` says otherwise (1 s to 120 s, and six
    /// times that).
    pub handshake_timeout: Duration,
    /// Flows that the peer may have open at once.
    pub flows_max: u32,
    /// Positions of each flow that the peer may send before it is granted more, in bytes.
    pub credit_bytes_initial: u64,
    /// Memory for received data per flow, in bytes. At most twice that is held, and up to four
    /// times that beside it to keep track of messages of a few bytes each. Data beyond that counts
    /// as lost. A message that is longer than this never arrives.
    pub credit_bytes_max: u64,
    /// Positions of all flows together that the peer may send before it is granted more, in bytes;
    /// less, if other connections hold much. The window grows from there as the application reads
    /// (flow.md R-34).
    pub connection_credit_bytes_initial: u64,
    /// Memory of the connection, in bytes: what it may hold of what it has received, and again of
    /// what it sends, with what it takes to keep track of that, and within what the endpoint has
    /// ([`EndpointConfig::memory_bytes_max`]). At least what one flow may have counts.
    pub memory_bytes_max: usize,
    /// Data that an application may hand over to a flow before it must wait until some of it has
    /// arrived, in bytes. A write or a message of less than
    /// [`PIECE_BYTES`](uts_functions::segmentation::buffer::PIECE_BYTES) counts as that many.
    pub send_buffer_bytes: usize,
    /// If two congestion windows are more than `send_buffer_bytes`, a flow takes that many bytes,
    /// up to this bound, or its share of them if other flows send as well, and unless it waits for
    /// the peer's credit. A long fat pipe is filled that way. A value of at most
    /// `send_buffer_bytes` turns this off.
    pub send_buffer_bytes_max: usize,
    /// The largest UDP payload to try, in bytes (RFC 8899): 1472 = Ethernet less IPv4 and UDP
    /// headers. At least [`PACKET_BYTES_MIN`] counts. The peer is told no less than
    /// [`PACKET_BYTES_BASE`], which every end takes.
    pub packet_bytes_max: usize,
    /// The UDP payload that is used before anything larger has been proved, at least
    /// [`PACKET_BYTES_MIN`]. First packets have as much, up to [`PACKET_BYTES_BASE`]. Where they
    /// are not answered, and where packets of this size get lost later, this end goes down of
    /// itself: to [`PACKET_BYTES_MIN`], then to `packet_bytes_min`.
    pub packet_bytes_initial: usize,
    /// The UDP payload that is gone down to where larger ones do not pass, from
    /// [`PACKET_BYTES_LEAST`] to [`PACKET_BYTES_MIN`] bytes. A server takes first packets of that
    /// size, and no smaller ones.
    pub packet_bytes_min: usize,
    /// The longest batch of packets of one size that is handed out at once (segmentation offload).
    /// A UDP datagram can hold 44 of 1472 bytes.
    pub batch_packets_max: usize,
    /// Messages and pieces of flows that wait may share a packet. If each has its own packet, a
    /// lost packet is one lost message, at the price of a header and a seal for each.
    pub coalesce: bool,
    /// Mechanisms that the library has but this endpoint does not use: they are neither offered,
    /// nor chosen, nor agreed to in an exchange. A client's first profile may still contain those
    /// that are mandatory.
    pub withdrawn: Vec<(Function, u8)>,
    /// Numbers by which this end writes functions and mechanisms, as its administrator gives them.
    /// `None` = those of the specification, of which nothing need be said to the peer.
    pub mapping: Option<Arc<Mapping>>,
}

impl ConnectionConfig {
    /// Library of this end, as the peer is told of it.
    pub fn library(&self) -> Library {
        self.library_for(&self.requirements)
    }

    /// The smallest packets, whatever was set (establishment.md R-10).
    pub(crate) fn least_packet_bytes(&self) -> usize {
        self.packet_bytes_min.clamp(PACKET_BYTES_LEAST, PACKET_BYTES_MIN)
    }

    /// The largest packets, whatever was set.
    pub(crate) fn most_packet_bytes(&self) -> u16 {
        let most = self.packet_bytes_max.max(PACKET_BYTES_MIN);
        u16::try_from(most).unwrap_or(u16::MAX)
    }

    /// Memory for what one flow may hold in each direction, with what it takes to keep track of it.
    pub(crate) fn memory_of_flow(&self) -> usize {
        let credit = usize::try_from(self.credit_bytes_max).unwrap_or(usize::MAX);
        let most = credit.max(self.send_buffer_bytes_max).max(self.send_buffer_bytes);
        most.saturating_add(most / 4)
    }

    /// Credit of a flow when it is opened.
    pub(crate) fn first_credit(&self) -> u64 {
        crate::connection::first_credit(self.credit_bytes_initial, self.requirements.max_recv_rate)
    }

    /// The same, with other requirements.
    pub(crate) fn library_for(&self, requirements: &Requirements) -> Library {
        let mut offered = Library::offered(requirements);
        let unlisted = self.mapping.iter().flat_map(|mapping| mapping.unlisted());
        for (function, number) in self.withdrawn.iter().chain(unlisted) {
            offered.remove(*function, *number);
        }
        offered
    }

    /// Numbers of this end's own, of which the peer is told; `None` if it has none, and no
    /// mechanism that only a name can tell (packets.md P-67).
    pub(crate) fn numbering(&self) -> Option<Arc<Numbering>> {
        self.numbering_of(&self.library())
    }

    /// Numbers of this end's own as [`Self::numbering`] has them, of a library that is at hand.
    pub(crate) fn numbering_of(&self, library: &Library) -> Option<Arc<Numbering>> {
        if let Some(mapping) = &self.mapping {
            return Some(Arc::clone(mapping.numbering()));
        }
        let has_own = library.pairs().any(|(_, number)| number >= FIRST_OWN);
        has_own.then(|| Arc::new(Numbering::of_library()))
    }
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        ConnectionConfig {
            requirements: Requirements::default(),
            service: String::new(),
            idle_timeout: Duration::from_secs(30),
            first_request_timeout: Duration::ZERO,
            keep_alive: Duration::ZERO,
            handshake_timeout: Duration::from_secs(720),
            flows_max: 100,
            credit_bytes_initial: 1024 * 1024,
            credit_bytes_max: 32 * 1024 * 1024,
            connection_credit_bytes_initial: 1024 * 1024,
            memory_bytes_max: 48 * 1024 * 1024,
            send_buffer_bytes: 4 * 1024 * 1024,
            send_buffer_bytes_max: 32 * 1024 * 1024,
            packet_bytes_max: 1472,
            packet_bytes_initial: PACKET_BYTES_BASE,
            packet_bytes_min: PACKET_BYTES_LEAST,
            batch_packets_max: 44,
            coalesce: true,
            withdrawn: Vec::new(),
            mapping: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings of an endpoint may go to a log as they are printed.
    #[test]
    fn the_secret_is_not_printed() {
        let config = EndpointConfig { secret: [0xab; 32], ..EndpointConfig::default() };
        for text in [format!("{config:?}"), format!("{config:#?}")] {
            assert!(text.contains("connections_max"), "{text}");
            assert!(!text.contains("secret") && !text.contains("171"), "{text}");
        }
    }
}
