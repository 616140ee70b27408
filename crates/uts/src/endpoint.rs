//! Opening connections.

use crate::connection::{Connection, explain, objects_to_key};
use crate::driver::{Shared, random_bytes};
use crate::fingerprint::Fingerprint;
use crate::host::Host;
use crate::identity::Identity;
use crate::known_hosts::KnownHosts;
use crate::tls::{self, ClientTls, TlsError};
use crate::trust::{self, Expected, NewHost, NewHostKey, Trust, TrustError};
use core::time::Duration;
use rustls::pki_types::ServerName;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use uts_engine::{
    CERTIFICATE_WORDS, CLIENT_CID_BYTES, CloseReason, ConnectionConfig, EndpointConfig, seconds,
};

/// Once the kernel has said that nobody listens at the server's port, it may still answer within this time: what the
/// kernel says is not authenticated, and a server may be starting.
const UNREACHABLE_PATIENCE: Duration = Duration::from_millis(300);

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// How to know that the server is the one that is meant.
    pub trust: Trust,
    /// Who this end is, for servers that ask.
    pub identity: Option<Identity>,
    /// Settings of the connection.
    pub connection: ConnectionConfig,
    /// The name that the server's certificate must be made out to; `None` = the host that is connected to.
    pub server_name: Option<String>,
    /// How long to look for what arrives before sleeping, after anything has arrived or left; zero = only where that has paid
    /// of late, for some 10 us while data streams in, and some 50 us for an answer. A round trip
    /// then takes no wake-up, which is most of a short one, at the price of a core that is busy meanwhile. Of use up to some
    /// 100 us, with a runtime that has a thread for it. Applies where the connection has a socket of its own ([`connect`]);
    /// see [`Endpoint::client_spinning`].
    pub spin: Duration,
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
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is not `host:port`.
    #[error("`{target}` is not an address: {why}")]
    Address {
        /// What was given.
        target: String,
        /// What is wrong with it.
        why: String,
    },
    /// No host of that name.
    #[error("no such host: {host}: {why}")]
    NoSuchHost {
        /// The name.
        host: String,
        /// What the resolver says.
        why: String,
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
    #[error("no answer from {addr} within {}", seconds(.after))]
    NoAnswer {
        /// Where to.
        addr: SocketAddr,
        /// How long the client waited.
        after: Duration,
    },
    /// No answer but one that anybody could have sent who sees the path: that it refuses connections, or speaks other versions.
    #[error("no answer from {addr} within {}; what came instead is not authenticated: {said}", seconds(.after))]
    Unconfirmed {
        /// Where to.
        addr: SocketAddr,
        /// How long the client waited.
        after: Duration,
        /// What came instead.
        said: Box<CloseReason>,
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
    Closed(CloseReason),
}

/// Opens a connection to `target` (`host:port`, `[v6]:port`), from a socket of its own. The addresses of a host are tried
/// in turn. Must be called within a tokio runtime; if the wait is given up the attempt ends.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect(target: &str, options: ConnectOptions) -> Result<Connection, ConnectError> {
    connect_from(Host::Runtime, None, target, options).await
}

/// A socket from which many connections can be opened.
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

    /// The same, and it looks for what arrives for `spin` before it sleeps: see [`ConnectOptions::spin`].
    ///
    /// # Errors
    /// If the address cannot be used, or outside of a tokio runtime.
    pub fn client_spinning(addr: SocketAddr, spin: Duration) -> io::Result<Self> {
        let config = EndpointConfig {
            cid_bytes: CLIENT_CID_BYTES,
            secret: random_bytes()?,
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
        self.shared.local_addr
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.release();
    }
}

/// A server that is meant: its name, and what is expected of it.
struct Target<'a> {
    /// `host:port`, as it stands among known hosts.
    host: String,
    name: ServerName<'static>,
    options: &'a ConnectOptions,
    from: Option<&'a Arc<Shared>>,
    /// Who carries what is made.
    carrier: Host,
}

pub(crate) async fn connect_from(
    carrier: Host,
    from: Option<&Arc<Shared>>,
    target: &str,
    options: ConnectOptions,
) -> Result<Connection, ConnectError> {
    let (host, port) = split(target)?;
    let name = ServerName::try_from(options.server_name.clone().unwrap_or_else(|| host.to_owned())).map_err(
        |_| ConnectError::Address {
            target: target.to_owned(),
            why: format!("`{host}` is neither a name nor an IP address"),
        },
    )?;
    let addrs = resolve(carrier, host, port, from).await?;
    let shown = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let target = Target { host: shown.to_lowercase(), name, options: &options, from, carrier };
    let mut last = None;
    for addr in addrs {
        match target.connect(addr).await {
            Ok(connection) => return Ok(connection),
            Err(error) => {
                let next_may_answer = matches!(
                    error,
                    ConnectError::Unreachable { .. }
                        | ConnectError::NoAnswer { .. }
                        | ConnectError::Unconfirmed { .. }
                        | ConnectError::Socket { .. }
                );
                if !next_may_answer {
                    return Err(error);
                }
                last = Some(error);
            }
        }
    }
    let why = "it has no address of a family that this endpoint uses".to_owned();
    Err(last.unwrap_or(ConnectError::NoSuchHost { host: host.to_owned(), why }))
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
    let failed = |why: String| ConnectError::NoSuchHost { host: host.to_owned(), why };
    let found = carrier.resolve(host, port).await.map_err(|e| failed(e.to_string()))?;
    let mut addrs: Vec<SocketAddr> = Vec::new();
    for addr in found {
        let fits = from.is_none_or(|shared| shared.local_addr.is_ipv4() == addr.is_ipv4());
        if fits && !addrs.contains(&addr) {
            addrs.push(addr);
        }
    }
    Ok(addrs)
}

impl Target<'_> {
    /// Connects to one address. A host that was never met is asked about, and then connected to again.
    async fn connect(&self, addr: SocketAddr) -> Result<Connection, ConnectError> {
        let expected = self.expected().await?;
        let (accept_new, file) = match (&self.options.trust, &expected) {
            (Trust::KnownHosts { file, on_new }, Expected::New) => {
                (matches!(on_new, NewHost::Accept), Some(file.clone()))
            }
            _ => (false, None),
        };
        let tls = self.tls(&expected, accept_new)?;
        let connected = self.attempt(addr, &tls).await;
        let (connection, file) = match (connected, tls.refused.get().copied(), file) {
            (Ok(connection), _, file) => (connection, file),
            (Err(_), Some(found), Some(file)) => {
                self.ask(found).await?;
                let tls = self.tls(&Expected::Keys(vec![found]), false)?;
                (self.attempt(addr, &tls).await?, Some(file))
            }
            (Err(_), Some(found), None) => {
                return Err(trust::unexpected(&self.options.trust, &self.host, found).into());
            }
            (Err(error), None, _) => return Err(error),
        };
        if let (Some(file), Some(fingerprint)) = (file, connection.peer_fingerprint()) {
            let host = self.host.clone();
            self.unblock(move || KnownHosts::add(&file, &host, fingerprint))
                .await?
                .map_err(TrustError::from)?;
        }
        Ok(connection)
    }

    async fn expected(&self) -> Result<Expected, ConnectError> {
        // Only known hosts are in a file, to wait for which takes another thread.
        if !matches!(self.options.trust, Trust::KnownHosts { .. }) {
            return Ok(trust::expected(&self.options.trust, &self.host)?);
        }
        let (trust, host) = (self.options.trust.clone(), self.host.clone());
        Ok(self.unblock(move || trust::expected(&trust, &host)).await??)
    }

    fn tls(&self, expected: &Expected, accept_new: bool) -> Result<ClientTls, ConnectError> {
        let options = self.options;
        tls::client(&options.trust, expected, accept_new, options.identity.as_ref()).map_err(|error| {
            match error {
                TlsError::Trust(error) => ConnectError::Untrusted(error),
                TlsError::Setup(error) => ConnectError::Setup(error.to_string()),
            }
        })
    }

    /// Puts the key of a host that was never met to the user.
    async fn ask(&self, found: Fingerprint) -> Result<(), ConnectError> {
        let Trust::KnownHosts { file, on_new } = &self.options.trust else { return Ok(()) };
        let (host, file) = (self.host.clone(), file.clone());
        match on_new {
            NewHost::Ask(ask) => {
                let (ask, question) =
                    (ask.clone(), NewHostKey { host: host.clone(), fingerprint: found, file });
                if self.unblock(move || ask(&question)).await? {
                    return Ok(());
                }
                Err(TrustError::Declined { host, found }.into())
            }
            NewHost::Accept | NewHost::Refuse => Err(TrustError::NewHost { host, found, file }.into()),
        }
    }

    /// One handshake with one address.
    async fn attempt(&self, addr: SocketAddr, tls: &ClientTls) -> Result<Connection, ConnectError> {
        let own = self.options.identity.as_ref().map(Identity::fingerprint);
        let shared = match self.from {
            Some(shared) => {
                shared.retain();
                shared.clone()
            }
            None => own_socket(self.carrier, addr, self.options.spin)
                .map_err(|source| ConnectError::Socket { addr, source })?,
        };
        let mut config = self.options.connection.clone();
        config.batch_packets_max = config.batch_packets_max.clamp(1, shared.segments_max.max(1));
        // Known before the task can hear of its end: what happens on a connection that nobody holds is told to nobody.
        let begun = shared.act(|inner, now| {
            inner.changed();
            let settings = inner.share_settings(config);
            let tls = tls.config.clone();
            let handle = inner.engine.connect(now, addr, self.name.clone(), tls, settings.config)?;
            inner.adopt(handle);
            Ok((handle, settings.requirements))
        });
        let connection = begun
            .map(|(handle, requirements)| Connection::adopted(shared.clone(), handle, own, requirements));
        // The connection holds the endpoint from here on.
        shared.release();
        let connection =
            connection.map_err(|e: uts_engine::ConnectError| ConnectError::Setup(e.to_string()))?;
        match established(&connection).await {
            Ok(()) => Ok(connection),
            Err(None) => Err(ConnectError::Unreachable { addr }),
            Err(Some(reason)) => Err(self.explain(addr, reason, own)),
        }
    }

    /// Does what may block where it may.
    async fn unblock<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, ConnectError> {
        self.carrier.unblock(work).await.map_err(ConnectError::Setup)
    }

    fn explain(&self, addr: SocketAddr, reason: CloseReason, own: Option<Fingerprint>) -> ConnectError {
        match explain(reason, own) {
            CloseReason::HandshakeTimeout(after) => ConnectError::NoAnswer { addr, after },
            CloseReason::Unconfirmed { after, said } => ConnectError::Unconfirmed { addr, after, said },
            CloseReason::Tls(why) if matches!(self.options.trust, Trust::Roots(_)) => {
                let why = why.strip_prefix(CERTIFICATE_WORDS).unwrap_or(&why).to_owned();
                TrustError::Certificate { host: self.host.clone(), why }.into()
            }
            CloseReason::Refused(why) if objects_to_key(&why) => ConnectError::KeyRefused { why },
            reason => ConnectError::Closed(reason),
        }
    }
}

/// A socket for one peer; its connection needs no id to be told from others.
fn own_socket(carrier: Host, peer: SocketAddr, spin: Duration) -> io::Result<Arc<Shared>> {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let config = EndpointConfig { cid_bytes: 0, secret: random_bytes()?, ..EndpointConfig::default() };
    Shared::start(carrier, SocketAddr::new(any, 0), Some(peer), config, spin)
}

/// Waits until the handshake is done. `None` = the peer cannot be reached.
async fn established(connection: &Connection) -> Result<(), Option<CloseReason>> {
    let notify = connection.notify();
    let mut patience = None;
    loop {
        let changes = notify.state.notified();
        tokio::pin!(changes);
        changes.as_mut().enable();
        let (is_connected, ended, unreachable) = connection.shared().act(|inner, _| {
            let state = inner.connections.get(&connection.handle());
            (state.is_some_and(|s| s.is_connected), inner.ended(connection.handle()), inner.unreachable > 0)
        });
        if let Some(reason) = ended {
            return Err(Some(reason));
        }
        if is_connected {
            return Ok(());
        }
        if unreachable && patience.is_none() {
            patience = Some(Box::pin(connection.shared().host.sleep(UNREACHABLE_PATIENCE)));
        }
        match &mut patience {
            None => changes.await,
            Some(patience) => tokio::select! {
                () = changes => {}
                () = patience => return Err(None),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
