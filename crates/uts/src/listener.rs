//! Accepting connections.

use crate::AuthorizedKeys;
use crate::authorized_keys::{Admitted, Watched};
use crate::connection::Connection;
#[cfg(unix)]
use crate::driver::succession::{self, Handover, Link, Pulse, TakenOver};
use crate::driver::{Host, Inner, OwnSocket, PerKey, Shared};
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::machine::memory_for_connections;
use crate::tls::{self, KeyExchange, OnRefused, TlsError};
use crate::trust::{ClientAuth, ClientAuthError, RefusedClient};
use core::fmt;
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use uts_engine::requirements::Requirements;
use uts_engine::{ConnectionConfig, EndpointConfig, Mapping, Probes, WORKERS_MAX, Worker};

/// Of all places, one in so many is for clients with known keys.
const PART_OF_KEYS: usize = 8;

/// Time between two looks at the file of keys for those that were taken out.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Settings by which connections are accepted.
///
/// ```
/// use uts::{Identity, Requirements, ServerOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut options = ServerOptions::new(Identity::generate()?)
///     .requirements(Requirements::messages())
///     .authorized_keys("/etc/program/authorized_keys")
///     .on_refused(|client| eprintln!("{} was refused: {}", client.address, client.why));
/// options.connections_per_address_max = 100;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ServerOptions {
    /// Key and certificate of this server.
    pub identity: Identity,
    /// Clients that it lets in.
    pub client_auth: ClientAuth,
    /// Settings of connections.
    pub connection: ConnectionConfig,
    /// Most connections at once.
    pub connections_max: usize,
    /// Most connections at once from one address (of IPv6: from one /64 network); `usize::MAX` =
    /// any number. Many clients may be behind one address.
    pub connections_per_address_max: usize,
    /// Most connections at once of one client's key; `usize::MAX` = any number. Has an effect if
    /// clients are asked for keys.
    pub connections_per_key_max: usize,
    /// If more than this many handshakes are under way, clients must first show that they are at
    /// their address.
    pub handshakes_before_retry: usize,
    /// Memory that all connections together may take, in bytes, for what is received and not read,
    /// and for what is written and not acknowledged. Each connection has a little beside it, so
    /// that it goes on when others have taken all
    /// ([`EndpointConfig::memory_bytes_max`](uts_engine::EndpointConfig::memory_bytes_max)). A
    /// sixteenth of the memory that this process may have, if nothing else is said, and at least
    /// 96 MiB. Many connections that share little memory send little at a time, which costs
    /// processor time.
    pub memory_bytes_max: usize,
    /// Tasks that carry the connections side by side, 1 to [`WORKERS_MAX`]: as many processors as
    /// there are can then be used. Each has a socket at the address, and connections of its own,
    /// which stay with it. Limits of connections are for all of them together; a newcomer takes the
    /// place of a connection of its own worker. More than one is for Linux, for [`Listener::bind`],
    /// and for a runtime of tokio with several threads.
    pub workers: usize,
    /// Time to look for arrivals before sleeping: see
    /// [`ConnectOptions::spin`](crate::ConnectOptions::spin).
    pub spin: Duration,
    /// Write what each connection does as qlog to a file in this directory, from the first packet
    /// of its handshake on (`MILLISECONDS-PROCESS-NUMBER.ROLE.sqlog`). A log that cannot be written
    /// is left out, which `tracing` is told. `None` = write none, which costs nothing.
    pub qlog: Option<PathBuf>,
    /// Append the secrets of TLS to the file that the environment variable `SSLKEYLOGFILE` names,
    /// if it does, for programs that look into captures. Whoever has them can read all.
    pub key_log: bool,
    /// Way in which secrets are agreed on with clients.
    pub key_exchange: KeyExchange,
    /// Told of the points that packets pass ([`ProbeLog`](crate::ProbeLog)); by default nobody is,
    /// which costs nothing.
    pub probes: Probes,
    early: bool,
    on_refused: Option<OnRefused>,
}

impl ServerOptions {
    /// Options of a server that lets everybody in.
    pub fn new(identity: Identity) -> Self {
        let defaults = EndpointConfig::default();
        ServerOptions {
            identity,
            client_auth: ClientAuth::None,
            connection: ConnectionConfig::default(),
            connections_max: defaults.connections_max,
            connections_per_address_max: defaults.connections_per_address_max,
            connections_per_key_max: usize::MAX,
            handshakes_before_retry: defaults.handshakes_before_retry,
            memory_bytes_max: memory_for_connections(),
            workers: 1,
            spin: Duration::ZERO,
            qlog: None,
            key_log: false,
            key_exchange: KeyExchange::default(),
            probes: Probes::default(),
            early: false,
            on_refused: None,
        }
    }

    /// Asks this of connections: [`ConnectionConfig::requirements`].
    #[must_use]
    pub fn requirements(mut self, requirements: Requirements) -> Self {
        self.connection.requirements = requirements;
        self
    }

    /// Writes functions and mechanisms by an administrator's numbers:
    /// [`ConnectionConfig::mapping`].
    #[must_use]
    pub fn mapping(mut self, mapping: Arc<Mapping>) -> Self {
        self.connection.mapping = Some(mapping);
        self
    }

    /// Lets in only clients whose keys are in a file, which is read again when it has changed. In a
    /// tokio runtime, the connections of a key that was taken out of it end within seconds.
    #[must_use]
    pub fn authorized_keys(mut self, file: impl Into<std::path::PathBuf>) -> Self {
        self.client_auth = ClientAuth::AuthorizedKeys(file.into());
        self
    }

    /// Takes early requests ([`Listener::early_request`]): gives each client leave to send one with
    /// the first flight of its next connection. Not together with keys of clients, for when such a
    /// request comes, it is not known whose it is.
    #[must_use]
    pub fn early_requests(mut self) -> Self {
        self.early = true;
        self
    }

    /// Is called for clients whose keys were refused, who have shown none, whose handshakes have
    /// failed otherwise, or whose keys have too many connections. The call must not block: the
    /// endpoint waits for it.
    #[must_use]
    pub fn on_refused(mut self, told: impl Fn(&RefusedClient) + Send + Sync + 'static) -> Self {
        self.on_refused = Some(Arc::new(told));
        self
    }
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("identity", &self.identity)
            .field("client_auth", &self.client_auth)
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}

/// Why no connections can be accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address cannot be used.
    #[error("cannot listen at {addr}: {source}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Logs cannot be written there.
    #[error("no qlog in {dir}: {source}", dir = dir.display())]
    Qlog {
        /// The directory.
        dir: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Which clients to let in cannot be found out.
    #[error(transparent)]
    ClientAuth(#[from] ClientAuthError),
    /// TLS does not accept the identity.
    #[error("{0}")]
    Tls(String),
}

impl From<ListenError> for io::Error {
    fn from(error: ListenError) -> Self {
        let kind = match &error {
            ListenError::Bind { source, .. } | ListenError::Qlog { source, .. } => source.kind(),
            ListenError::ClientAuth(_) | ListenError::Tls(_) => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}

/// Accepts connections at an address. Dropped, it accepts no more; those that were accepted go on.
///
/// ```
/// use uts::{Identity, Listener, ServerOptions};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = Listener::bind("[::]:4433".parse()?, ServerOptions::new(Identity::generate()?))?;
/// println!("{} {}", listener.local_addr(), listener.fingerprint());
/// while let Some(connection) = listener.accept().await {
///     tokio::spawn(async move { println!("{:?} has come", connection.remote_addr()) });
/// }
/// # Ok(())
/// # }
/// ```
pub struct Listener {
    /// One for each worker.
    workers: Vec<Arc<Shared>>,
    /// Number of the worker that is asked first for the next connection.
    next: AtomicUsize,
    requirements: Arc<Requirements>,
    fingerprint: Fingerprint,
    authorized: Option<Arc<Admitted>>,
}

impl Listener {
    /// Accepts connections at `addr`. `[::]:port` takes IPv4 as well. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(addr: SocketAddr, options: ServerOptions) -> Result<Self, ListenError> {
        Self::bind_on(Host::Runtime, addr, options)
    }

    /// Accepts connections at a socket that is bound already: one that a service manager hands over
    /// (systemd's socket activation), or with options of its own. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn from_socket(socket: OwnSocket, options: ServerOptions) -> Result<Self, ListenError> {
        let unknown = SocketAddr::from(([0; 4], 0));
        let failed = |source| ListenError::Bind { addr: unknown, source };
        let addr = socket.local_addr().map_err(failed)?;
        if options.workers > 1 {
            let why = "several workers need several sockets, and one was handed over";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        Self::listen(Host::Runtime, addr, options, |configs, spin| {
            Shared::start_on(Host::Runtime, vec![socket], configs, spin, |_| {})
        })
    }

    /// Accepts connections at the port of a process that gives way ([`Listener::hand_over`]) with
    /// as many workers, and hands on to it what is for its connections, until it ends. Its key, its
    /// address and its host have to be the same. To be called once the other process has given way,
    /// within a tokio runtime.
    ///
    /// # Errors
    /// [`ListenError`].
    #[cfg(unix)]
    pub fn take_over(port: TakenOver, options: ServerOptions) -> Result<Self, ListenError> {
        let unknown = SocketAddr::from(([0; 4], 0));
        let failed = |addr, source| ListenError::Bind { addr, source };
        let TakenOver { sockets, links } = port;
        let (had, wanted) = (sockets.len(), options.workers);
        if had != wanted || links.len() != wanted || had == 0 {
            let why = format!("the port has {had} workers, and {wanted} were asked for");
            return Err(failed(unknown, io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let addr = sockets[0].local_addr().map_err(|source| failed(unknown, source))?;
        let links = links.into_iter().map(Link::new).collect::<io::Result<Vec<_>>>();
        let links = links.map_err(|source| failed(addr, source))?;
        Self::listen(Host::Runtime, addr, options, |configs, spin| {
            Shared::start_succeeding(Host::Runtime, sockets, links, configs, spin)
        })
    }

    /// Begins to hand the port over to another process of this host, without a word to the network:
    /// makes all that [`Listener::take_over`] wants there, and a handle by which this process gives
    /// way. Until then nothing has changed.
    ///
    /// # Errors
    /// Errors of the system, or the endpoint has ended.
    #[cfg(unix)]
    pub async fn hand_over(&self) -> io::Result<(Handover, TakenOver)> {
        succession::hand_over(&self.workers).await
    }

    /// A handle by which a watchdog finds out if the tasks of the workers take their turns.
    #[cfg(unix)]
    pub fn pulse(&self) -> Pulse {
        Pulse::of(&self.workers)
    }

    pub(crate) fn bind_on(host: Host, addr: SocketAddr, options: ServerOptions) -> Result<Self, ListenError> {
        let failed = |why: String| {
            let source = io::Error::new(io::ErrorKind::InvalidInput, why);
            Err(ListenError::Bind { addr, source })
        };
        match options.workers {
            1 => {}
            2..=WORKERS_MAX if host == Host::Runtime => {}
            2..=WORKERS_MAX => return failed("a thread carries one worker".to_owned()),
            other => return failed(format!("workers: {other}, where 1 to {WORKERS_MAX} were expected")),
        }
        Self::listen(host, addr, options, |configs, spin| Shared::start_workers(host, addr, configs, spin))
    }

    fn listen(
        host: Host,
        addr: SocketAddr,
        options: ServerOptions,
        start: impl FnOnce(Vec<EndpointConfig>, Duration) -> io::Result<Vec<Arc<Shared>>>,
    ) -> Result<Self, ListenError> {
        if options.early && !matches!(options.client_auth, ClientAuth::None) {
            let why = "early requests are for servers that ask for no keys: whose one is, is not known yet";
            return Err(ListenError::Tls(why.to_owned()));
        }
        let authorized = match &options.client_auth {
            ClientAuth::None => None,
            ClientAuth::AuthorizedKeys(file) => {
                // A wrong name is better heard of now than by the first client.
                AuthorizedKeys::load(file).map_err(ClientAuthError::from)?;
                Some(Arc::new(Admitted::File(Watched::new(file.clone()))))
            }
            ClientAuth::Keys(keys) => Some(Arc::new(Admitted::Keys(Arc::new(keys.clone())))),
        };
        let tls = tls::server(&options, authorized.clone(), options.on_refused.is_some())
            .map_err(|e: TlsError| ListenError::Tls(e.to_string()))?;
        let bind = |source| ListenError::Bind { addr, source };
        let config = EndpointConfig {
            server: Some(tls.any),
            server_for: tls.of,
            accept: options.connection.clone(),
            connections_max: options.connections_max,
            connections_of_keys: places_of_keys(options.connections_max, authorized.is_some()),
            connections_per_address_max: options.connections_per_address_max,
            handshakes_before_retry: options.handshakes_before_retry,
            secret: options.identity.endpoint_secret(),
            takes_early: options.early,
            memory_bytes_max: options.memory_bytes_max,
            probes: options.probes.clone(),
            ..EndpointConfig::default()
        };
        let workers = start(of_workers(&config, options.workers), options.spin).map_err(bind)?;
        let on_refused = options.on_refused.map(|told| (told, tls.refusals));
        let per_key = PerKey::of_workers(options.connections_per_key_max, workers.len());
        for (worker, per_key) in workers.iter().zip(per_key) {
            if let Some(dir) = &options.qlog {
                let failed = |source| ListenError::Qlog { dir: dir.clone(), source };
                worker.record(dir).map_err(failed)?;
            }
            worker.act(|inner, _| (inner.per_key, inner.on_refused) = (per_key, on_refused.clone()));
        }
        if let Some(keys) = authorized.clone().filter(|_| host == Host::Runtime) {
            tokio::spawn(end_revoked(workers.iter().map(Arc::downgrade).collect(), keys));
        }
        let requirements = Arc::new(options.connection.requirements);
        let fingerprint = options.identity.fingerprint();
        Ok(Listener { workers, next: AtomicUsize::new(0), requirements, fingerprint, authorized })
    }

    /// Waits for the next connection, whose handshake is done. It may have ended again already.
    /// Data that it brought is there to be read. `None` once the listener is closed. Nothing is
    /// lost if the wait is given up. Several tasks may wait.
    pub async fn accept(&self) -> Option<Connection> {
        let (worker, handle) = self.arrival(Inner::next_accepted).await?;
        Some(Connection::adopted(worker, handle, None, self.requirements.clone()))
    }

    /// Waits until a worker has something that clients bring, and gives both. `None` once the
    /// listener is closed.
    pub(crate) async fn arrival<T>(
        &self,
        mut take: impl FnMut(&mut Inner) -> Option<T>,
    ) -> Option<(Arc<Shared>, T)> {
        loop {
            // They share it.
            let accepts = self.workers[0].accept.notified();
            tokio::pin!(accepts);
            accepts.as_mut().enable();
            let (before, from) = self.workers.split_at(self.next.fetch_add(1, Relaxed) % self.workers.len());
            let mut is_listening = false;
            for worker in from.iter().chain(before) {
                match worker.act(|inner, _| (take(inner), inner.is_listening)) {
                    (Some(taken), _) => return Some((worker.clone(), taken)),
                    (None, listens) => is_listening |= listens,
                }
            }
            if !is_listening {
                return None;
            }
            accepts.await;
        }
    }

    /// Where it listens: the port, if any was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.workers[0].local_addr()
    }

    /// Fingerprint of the server's key, by which clients know it.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Has other limits from now on: [`ServerOptions::connections_max`],
    /// [`ServerOptions::connections_per_address_max`] and
    /// [`ServerOptions::connections_per_key_max`], which has an effect if it had one when the
    /// listener was made. Connections that are there beyond them stay.
    pub fn set_limits(&self, connections_max: usize, per_address_max: usize, per_key_max: usize) {
        let of_keys = places_of_keys(connections_max, self.authorized.is_some());
        for worker in &self.workers {
            worker.act(|inner, _| {
                inner.engine.set_places(connections_max, of_keys, per_address_max);
                inner.per_key.set_max(per_key_max);
            });
        }
    }

    /// Has another file say from now on whose clients are let in. As with a change of the file, the
    /// connections of keys that are not in it end within seconds.
    ///
    /// # Errors
    /// The file cannot be read, or the listener was made without one; then nothing has changed.
    pub fn set_authorized_keys(&self, file: impl Into<PathBuf>) -> Result<(), ListenError> {
        let file = file.into();
        AuthorizedKeys::load(&file).map_err(ClientAuthError::from)?;
        match self.authorized.as_deref() {
            Some(Admitted::File(watched)) => {
                watched.move_to(file);
                Ok(())
            }
            _ => Err(ListenError::Tls("clients were not asked for keys of a file".to_owned())),
        }
    }

    /// Number of connections that each worker carries, those of handshakes and of an end included.
    pub fn connections_of_workers(&self) -> Vec<usize> {
        self.workers.iter().map(|worker| worker.act(|inner, _| inner.engine.len())).collect()
    }

    /// Number of clients so far that were refused for want of a place.
    pub fn refused(&self) -> u64 {
        self.workers.iter().map(|worker| worker.act(|inner, _| inner.engine.refused())).sum()
    }

    /// Accepts no more connections. Those that wait to be accepted are closed. Accepted connections
    /// go on.
    pub fn close(&self) {
        self.workers.iter().for_each(|worker| worker.act(Inner::stop_listening));
        self.workers[0].accept.notify_waiters();
    }
}

/// Settings of the endpoints that share a port: what each may hold of memory is its part.
fn of_workers(config: &EndpointConfig, workers: usize) -> Vec<EndpointConfig> {
    let part = |crew: Worker| EndpointConfig {
        handshakes_before_retry: config.handshakes_before_retry.div_ceil(workers),
        handshake_bytes_max: config.handshake_bytes_max.div_ceil(workers),
        memory_bytes_max: config.memory_bytes_max.div_ceil(workers),
        worker: Some(crew),
        ..config.clone()
    };
    Worker::crew(workers).into_iter().map(part).collect()
}

/// Places that are for clients with known keys.
fn places_of_keys(connections_max: usize, asks_for_keys: bool) -> usize {
    if asks_for_keys { connections_max.div_ceil(PART_OF_KEYS) } else { 0 }
}

/// Ends the connections of clients whose keys were taken out of the file, as long as anybody holds
/// the endpoint. While the file cannot be read nobody new is let in, and nothing is ended.
async fn end_revoked(mut workers: Vec<Weak<Shared>>, keys: Arc<Admitted>) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut before = keys.keys().ok();
    loop {
        ticks.tick().await;
        workers.retain(|worker| worker.upgrade().is_some_and(|worker| worker.is_held()));
        if workers.is_empty() {
            return;
        }
        let Ok(now) = keys.keys() else { continue };
        if before.as_ref() != Some(&now) {
            for worker in workers.iter().filter_map(Weak::upgrade) {
                worker.act(|inner, at| inner.end_revoked(at, &now));
            }
            before = Some(now);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
        self.workers.iter().for_each(|worker| worker.release());
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({})", self.local_addr())
    }
}
