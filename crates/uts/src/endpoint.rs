//! Opening connections.

use crate::attempts::Target;
use crate::connection::Connection;
use crate::driver::Host;
use crate::driver::{OwnSocket, Shared};
use crate::early::{Early, Ticket};
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::machine::memory_for_connections;
use crate::race::in_turns;
use crate::random::random_bytes;
use crate::tls::KeyExchange;
use crate::trust::{Trust, TrustError};
use crate::zone;
use bytes::Bytes;
use core::time::Duration;
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use uts_engine::requirements::Requirements;
use uts_engine::{
    CLIENT_CID_BYTES, CloseReason, ConnectionConfig, EndpointConfig, Mapping, Probes, Tried, seconds,
};
use uts_units::printable;

/// Words of C libraries for `EAI_AGAIN`, in small letters: glibc and others, musl. The standard
/// library hands on no more.
const TEMPORARY: [&str; 2] = ["temporary failure", "try again"];

/// Options for connecting to a server.
///
/// ```
/// use std::time::Duration;
/// use uts::{ConnectOptions, Identity, NewHost, Requirements, Trust};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut options = ConnectOptions::new(Trust::known_hosts(NewHost::Refuse)?)
///     .identity(Identity::generate()?)
///     .requirements(Requirements::interactive())
///     .service("chat");
/// options.connection.idle_timeout = Duration::from_secs(60);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Means to recognize the server that is meant.
    pub trust: Trust,
    /// Identity of this end, for servers that ask.
    pub identity: Option<Identity>,
    /// Settings of the connection.
    pub connection: ConnectionConfig,
    /// The name that the server's certificate must be made out to. `None` = the host that is
    /// connected to.
    pub server_name: Option<String>,
    /// Time to look for arrivals before sleeping, after anything has arrived or left. Zero = only
    /// if that has paid lately, for some 10 us while data streams in, and some 50 us for an answer.
    /// A round trip then needs no wake-up, which is most of a short one, at the price of a core
    /// that is busy meanwhile. Useful up to some 100 us, with a runtime that has a thread for it.
    /// Applies if the connection has a socket of its own ([`connect`]). See
    /// [`Endpoint::client_spinning`].
    pub spin: Duration,
    /// Write what each connection does as qlog to a file in this directory, from the first packet
    /// of its handshake on (`MILLISECONDS-PROCESS-NUMBER.ROLE.sqlog`). A log that cannot be written
    /// is left out, which `tracing` is told. `None` = write none, which costs nothing.
    pub qlog: Option<PathBuf>,
    /// Append the secrets of TLS to the file that the environment variable `SSLKEYLOGFILE` names,
    /// if it does, for programs that look into captures. Whoever has them can read all.
    pub key_log: bool,
    /// Way in which a secret is agreed on with the server.
    pub key_exchange: KeyExchange,
    /// A request that travels with the first flight: [`ConnectOptions::early`].
    pub early: Option<Early>,
    /// Told of the points that packets pass ([`ProbeLog`](crate::ProbeLog)); by default nobody is,
    /// which costs nothing. Applies if the connection has a socket of its own ([`connect`]).
    pub probes: Probes,
}

impl ConnectOptions {
    /// Options of a client that says nothing of itself.
    pub fn new(trust: Trust) -> Self {
        ConnectOptions {
            trust,
            identity: None,
            connection: ConnectionConfig::default(),
            server_name: None,
            spin: Duration::ZERO,
            qlog: None,
            key_log: false,
            key_exchange: KeyExchange::default(),
            early: None,
            probes: Probes::default(),
        }
    }

    /// Options of a client that knows the server's key.
    pub fn pinned(fingerprint: Fingerprint) -> Self {
        Self::new(Trust::Pin(vec![fingerprint]))
    }

    /// Shows who this end is to servers that ask.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Writes functions and mechanisms by an administrator's numbers:
    /// [`ConnectionConfig::mapping`].
    #[must_use]
    pub fn mapping(mut self, mapping: Arc<Mapping>) -> Self {
        self.connection.mapping = Some(mapping);
        self
    }

    /// Asks this of the connection: [`ConnectionConfig::requirements`].
    #[must_use]
    pub fn requirements(mut self, requirements: Requirements) -> Self {
        self.connection.requirements = requirements;
        self
    }

    /// Sends a request with the first flight, by a ticket that the same server gave with an earlier
    /// connection ([`Connection::take_ticket`]). It must be a request that may be done twice
    /// (`safelyReplayable`, RFC 9622): whoever copies the packets on the way can have it done
    /// again. Whoever learns the server's memory within two hours can read it. It has at most
    /// [`EARLY_BYTES_MAX`](crate::EARLY_BYTES_MAX). [`Connection::early_answer`] has the answer, or
    /// says that there is none. If several addresses are tried, it goes to the first.
    #[must_use]
    pub fn early(mut self, ticket: Ticket, request: impl Into<Bytes>) -> Self {
        self.early = Some(Early { ticket, request: request.into() });
        self
    }

    /// Asks for the service of this name: [`ConnectionConfig::service`].
    #[must_use]
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.connection.service = name.into();
        self
    }
}

/// Why there is no connection.
///
/// ```no_run
/// # async fn example(options: uts::ConnectOptions) -> std::io::Result<uts::Connection> {
/// match uts::connect("example.org:4433", options).await {
///     Err(error) if error.is_worth_retrying() => println!("later: {error}"),
///     // As an error of input and output, with the kind that is like it.
///     other => return Ok(other?),
/// }
/// # Err(std::io::ErrorKind::TimedOut.into())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not `host:port`.
    #[error("`{target}` is not an address: {why}")]
    Address {
        /// Address as it was given.
        target: String,
        /// Fault of the address.
        why: String,
    },
    /// No host of that name.
    #[error("no such host: {host}: {why}")]
    NoSuchHost {
        /// The name.
        host: String,
        /// Explanation of the resolver.
        why: String,
        /// The resolver could not be asked at present, so that nothing is known of the name.
        is_temporary: bool,
    },
    /// No socket.
    #[error("no socket to reach {addr}: {source}")]
    Socket {
        /// Where to.
        addr: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Nobody listens at that port, or there is no way to the host.
    #[error(
        "nobody answers at {addr}: the port is closed or the host cannot be reached; is the server running?"
    )]
    Unreachable {
        /// Where to.
        addr: SocketAddr,
    },
    /// No answer at all.
    #[error(
        "no answer from {addr} within {} ({tried}): UDP may be blocked on the way, or no server runs there", seconds(.after)
    )]
    NoAnswer {
        /// Where to.
        addr: SocketAddr,
        /// Time that the client waited.
        after: Duration,
        /// Datagrams that the client sent, and packets that came back.
        tried: Tried,
    },
    /// The only answer could have been sent by anybody who sees the path: it refuses connections,
    /// or speaks other versions.
    #[error("no answer from {addr} within {}; what came instead is not authenticated: {said}", seconds(.after))]
    Unconfirmed {
        /// Where to.
        addr: SocketAddr,
        /// Time that the client waited.
        after: Duration,
        /// Datagrams that the client sent, and packets that came back.
        tried: Tried,
        /// Reason that came instead, not authenticated.
        #[source]
        said: Box<CloseReason>,
    },
    /// The host has several addresses, and none of them answers.
    #[error("{}", none_of(.tried))]
    NoneAnswers {
        /// Error of each address, in the order in which they were tried.
        tried: Vec<ConnectError>,
    },
    /// The server is not the one that was meant.
    #[error(transparent)]
    Untrusted(#[from] TrustError),
    /// The server does not accept this end's key.
    #[error("the server refused this client: {why}")]
    KeyRefused {
        /// Its words, and this end's key.
        why: String,
    },
    /// The requirements contradict each other, or TLS cannot be set up.
    #[error("{0}")]
    Setup(String),
    /// The connection ended before it was established.
    #[error("{0}")]
    Closed(#[source] CloseReason),
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        io::Error::new(error.kind(), error)
    }
}

/// Errors of several attempts, in one line.
fn none_of(tried: &[ConnectError]) -> String {
    let unreachable = tried.iter().map(|error| match error {
        ConnectError::Unreachable { addr } => Some(addr.to_string()),
        _ => None,
    });
    match unreachable.collect::<Option<Vec<_>>>() {
        // The same of all: said once.
        Some(addrs) => format!(
            "nobody answers at {}: the port is closed or the host cannot be reached; is the server running?",
            addrs.join(" or at ")
        ),
        None => tried.iter().map(ConnectError::to_string).collect::<Vec<_>>().join("; "),
    }
}

impl ConnectError {
    /// The kind of error of input and output that is like it.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            ConnectError::Address { .. } | ConnectError::Setup(_) => io::ErrorKind::InvalidInput,
            ConnectError::NoSuchHost { .. } => io::ErrorKind::NotFound,
            ConnectError::Socket { source, .. } => source.kind(),
            ConnectError::Unreachable { .. } | ConnectError::KeyRefused { .. } => {
                io::ErrorKind::ConnectionRefused
            }
            ConnectError::NoAnswer { .. } | ConnectError::Unconfirmed { .. } => io::ErrorKind::TimedOut,
            ConnectError::NoneAnswers { tried } => {
                tried.first().map_or(io::ErrorKind::TimedOut, ConnectError::kind)
            }
            ConnectError::Untrusted(_) => io::ErrorKind::PermissionDenied,
            ConnectError::Closed(reason) => reason.kind(),
        }
    }

    /// True if the same may succeed if it is tried again: the path, or a server that is away or
    /// busy, was in the way. False where the address is wrong, the server is another than was
    /// meant, or does not accept this end.
    pub fn is_worth_retrying(&self) -> bool {
        match self {
            ConnectError::Socket { .. }
            | ConnectError::Unreachable { .. }
            | ConnectError::NoAnswer { .. } => true,
            ConnectError::NoSuchHost { is_temporary, .. } => *is_temporary,
            ConnectError::NoneAnswers { tried } => tried.iter().any(ConnectError::is_worth_retrying),
            ConnectError::Unconfirmed { said, .. } => !matches!(**said, CloseReason::Version { .. }),
            ConnectError::Closed(reason) => reason.is_worth_retrying(),
            ConnectError::Address { .. }
            | ConnectError::Untrusted(_)
            | ConnectError::KeyRefused { .. }
            | ConnectError::Setup(_) => false,
        }
    }
}

/// Opens a connection to `target` (`host:port`, `[v6]:port`), from a socket of its own. Of the
/// addresses of a host the next is tried 250 ms after the one before, or as soon as that has
/// failed, and the first that answers is taken (RFC 8305). Must be called within a tokio runtime;
/// if the wait is given up the attempt ends.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect(target: &str, options: ConnectOptions) -> Result<Connection, ConnectError> {
    connect_from(Host::Runtime, None, target, options).await
}

/// A socket from which many connections can be opened.
///
/// ```
/// use uts::{ConnectOptions, Endpoint};
///
/// # async fn example(first: ConnectOptions, second: ConnectOptions) -> Result<(), Box<dyn
/// std::error::Error>> { let endpoint = Endpoint::client("0.0.0.0:0".parse()?)?;
/// let one = endpoint.connect("one.example.org:4433", first).await?;
/// let other = endpoint.connect("other.example.org:4433", second).await?;
/// // Both go on from there.
/// endpoint.migrate("0.0.0.0:0".parse()?)?;
/// # Ok(())
/// # }
/// ```
pub struct Endpoint {
    shared: Arc<Shared>,
}

impl Endpoint {
    /// An endpoint at an address; port 0 = any. It reaches servers of the same address family.
    ///
    /// # Errors
    /// If the address cannot be used, or outside of a tokio runtime.
    pub fn client(addr: SocketAddr) -> io::Result<Self> {
        Self::client_spinning(addr, Duration::ZERO)
    }

    /// The same, but it looks for arrivals for `spin` before it sleeps: see
    /// [`ConnectOptions::spin`].
    ///
    /// # Errors
    /// If the address cannot be used, or outside of a tokio runtime.
    pub fn client_spinning(addr: SocketAddr, spin: Duration) -> io::Result<Self> {
        let config = EndpointConfig {
            cid_bytes: CLIENT_CID_BYTES,
            secret: random_bytes()?,
            memory_bytes_max: memory_for_connections(),
            ..EndpointConfig::default()
        };
        Ok(Endpoint { shared: Shared::start(Host::Runtime, addr, None, config, spin)? })
    }

    /// Opens a connection, as [`connect`] does.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(&self, target: &str, options: ConnectOptions) -> Result<Connection, ConnectError> {
        connect_from(Host::Runtime, Some(&self.shared), target, options).await
    }

    /// Its address.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local_addr()
    }

    /// Goes on from another address, with all connections: see [`Connection::migrate`].
    ///
    /// # Errors
    /// If the address cannot be used, or is of another family; then nothing has changed.
    pub fn migrate(&self, addr: SocketAddr) -> io::Result<()> {
        self.shared.migrate(addr)
    }

    /// Goes on by this socket, with all connections: see [`Connection::rebind`].
    ///
    /// # Errors
    /// If the socket cannot be used, or is of another family; then nothing has changed.
    pub fn rebind(&self, socket: OwnSocket) -> io::Result<()> {
        self.shared.rebind(socket)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.release();
    }
}

pub(crate) async fn connect_from(
    carrier: Host,
    from: Option<&Arc<Shared>>,
    target: &str,
    options: ConnectOptions,
) -> Result<Connection, ConnectError> {
    let (host, port) = split(target)?;
    // A zone means nothing to the peer.
    // K-8
    let name = options.server_name.clone().unwrap_or_else(|| zone::split(host).0.to_owned());
    let name = ServerName::try_from(name).map_err(|_| ConnectError::Address {
        target: target.to_owned(),
        why: format!("`{host}` is neither a name nor an IP address"),
    })?;
    let addrs = resolve(carrier, host, port, from).await?;
    let shown = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let early = Mutex::new(options.early.clone());
    let target = Target { host: shown.to_lowercase(), name, options: &options, from, carrier, early };
    if addrs.is_empty() {
        let why = "it has no address of a family that this endpoint uses".to_owned();
        return Err(ConnectError::NoSuchHost { host: host.to_owned(), why, is_temporary: false });
    }
    target.connect(&addrs).await
}

/// Takes `host:port` or `[v6]:port` apart.
fn split(target: &str) -> Result<(&str, u16), ConnectError> {
    let wrong = |why: &str| ConnectError::Address { target: target.to_owned(), why: why.to_owned() };
    let (host, port) = target.rsplit_once(':').ok_or_else(|| wrong("it has no port; write host:port"))?;
    let port = port.parse().map_err(|_| wrong("its port is not a number from 1 to 65535"))?;
    if port == 0 {
        return Err(wrong("port 0 cannot be connected to"));
    }
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').ok_or_else(|| wrong("a bracket is missing"))?,
        None if host.contains(':') => return Err(wrong("write IPv6 addresses in brackets: [addr]:port")),
        None => host,
    };
    if host.is_empty() { Err(wrong("it has no host; write host:port")) } else { Ok((host, port)) }
}

async fn resolve(
    carrier: Host,
    host: &str,
    port: u16,
    from: Option<&Arc<Shared>>,
) -> Result<Vec<SocketAddr>, ConnectError> {
    let failed = |error: io::Error| {
        let why = printable::words(&error);
        let is_temporary = TEMPORARY.iter().any(|temporary| why.to_lowercase().contains(temporary));
        ConnectError::NoSuchHost { host: host.to_owned(), why, is_temporary }
    };
    let found = carrier.resolve(host, port).await.map_err(failed)?;
    let fits = |addr: &SocketAddr| from.is_none_or(|shared| shared.local_addr().is_ipv4() == addr.is_ipv4());
    Ok(in_turns(found.into_iter().filter(fits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_addresses_are_each_named() {
        let addr = |last| SocketAddr::from(([127, 0, 0, last], 4433));
        let closed = |last| ConnectError::Unreachable { addr: addr(last) };
        let text = ConnectError::NoneAnswers { tried: vec![closed(1), closed(2)] }.to_string();
        assert_eq!(
            text,
            "nobody answers at 127.0.0.1:4433 or at 127.0.0.2:4433: the port is closed or the host cannot be \
             reached; is the server running?"
        );
        let after = Duration::from_secs(10);
        let silent = ConnectError::NoAnswer { addr: addr(3), after, tried: Tried::default() };
        let text = ConnectError::NoneAnswers { tried: vec![closed(1), silent] }.to_string();
        assert!(text.contains("127.0.0.1:4433") && text.contains("no answer from 127.0.0.3:4433"), "{text}");
    }

    #[test]
    fn who_was_not_reached_is_worth_another_try() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 1));
        let host = |is_temporary| ConnectError::NoSuchHost {
            host: "example.org".into(),
            why: "who knows".into(),
            is_temporary,
        };
        let after = Duration::from_secs(10);
        for error in [
            ConnectError::Unreachable { addr },
            ConnectError::NoAnswer { addr, after, tried: Tried::default() },
            ConnectError::Closed(CloseReason::Reset),
            host(true),
        ] {
            assert!(error.is_worth_retrying(), "{error}");
        }
        let declined = CloseReason::Peer { code: 0, reason: String::new() };
        for error in [
            host(false),
            ConnectError::KeyRefused { why: String::new() },
            ConnectError::Setup("a contradiction".into()),
            ConnectError::Closed(declined),
        ] {
            assert!(!error.is_worth_retrying(), "{error}");
        }
    }

    #[test]
    fn addresses_are_taken_apart() {
        assert_eq!(split("example.org:4433").expect("fine"), ("example.org", 4433));
        assert_eq!(split("[::1]:1").expect("fine"), ("::1", 1));
        for (wrong, why) in [
            ("example.org", "no port"),
            ("example.org:", "not a number"),
            ("example.org:70000", "not a number"),
            ("host:0", "port 0"),
            (":1", "no host"),
            ("::1:1", "in brackets"),
            ("[::1:1", "bracket is missing"),
        ] {
            let error = split(wrong).expect_err("refused").to_string();
            assert!(error.contains(why) && error.contains(wrong), "{error}");
        }
    }
}
