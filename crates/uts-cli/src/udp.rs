//! The transport of crate `uts`, over UDP.

mod explain;
mod link;

use crate::given::PathGiven;
use crate::link::{
    Broken, ConnectOptions, Limits, ListenOptions, Listener, ServerIdentity, ServerTrust, Transport,
    TurnedAway,
};
use crate::target::Host;
use crate::ui::lines;
use crate::ui::record::Peer;
pub use link::UdpLink;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, channel};
use uts::{
    ClientAuth, ConnectionConfig, Identity, KnownHosts, NewHost, NewHostKey, Requirements, ServerOptions,
    SshPublicKey, Trust, TrustError,
};
use uts_end::output;

/// Hashing the prefix of a big file keeps both ends silent for longer than the idle time-out.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Clients that were not let in and of which is not told yet. More are counted.
const REFUSED_MAX: usize = 256;

/// A client that has asked for nothing may be silent for this long: it says something more often.
const FIRST_REQUEST_MAX: Duration = KEEP_ALIVE.saturating_mul(2);

/// UTS over UDP.
#[derive(Clone, Copy, Debug)]
pub struct Udp;

impl Transport for Udp {
    type Link = UdpLink;
    type Listener = UdpListener;

    async fn connect(&self, host: &Host, options: &ConnectOptions) -> Result<UdpLink, Broken> {
        let wanted = client(options).map_err(Broken::for_good)?;
        let connection = uts::connect(&host.to_string(), wanted).await;
        let connection = connection.map_err(|error| Broken {
            // A name may yet be made known, here or by the resolver.
            is_worth_retrying: error.is_worth_retrying()
                || matches!(error, uts::ConnectError::NoSuchHost { .. }),
            why: not_connected(host, error),
        })?;
        if let ServerTrust::PinKept(pin, file) = &options.trust {
            keep(host, pin, file.as_deref()).map_err(Broken::for_good)?;
        }
        connection.follow_network();
        Ok(UdpLink::new(connection))
    }

    async fn listen(
        &self,
        options: &ListenOptions,
        port: Option<uts::TakenOver>,
    ) -> Result<UdpListener, String> {
        let identity = match &options.identity {
            ServerIdentity::Key(file) => load_key(file.as_deref())?.1,
            ServerIdentity::Certificate { chain, key } => {
                Identity::from_pem_files(chain, key).map_err(|e| e.to_string())?
            }
        };
        let (told, refused) = channel(REFUSED_MAX);
        let untold = Arc::new(AtomicU64::new(0));
        let uncounted = untold.clone();
        let mut wanted = ServerOptions::new(identity).on_refused(move |client| {
            let key = client.fingerprint.map(|key| key.to_string());
            let peer = Peer { address: client.address.to_string(), key, service: None };
            if told.try_send(TurnedAway { peer: Some(peer), why: client.why.clone() }).is_err() {
                uncounted.fetch_add(1, Relaxed);
            }
        });
        wanted.connection = config(&options.properties)?;
        wanted.connection.idle_timeout = wanted.connection.idle_timeout.max(options.silence_max);
        make_room(&mut wanted.connection, options.flows_max);
        wanted.qlog = options.qlog.clone();
        wanted.key_log = key_log()?;
        wanted.key_exchange = options.key_exchange;
        wanted.connection.first_request_timeout = FIRST_REQUEST_MAX;
        wanted.workers = options.workers;
        wanted.connections_max = options.limits.all;
        wanted.connections_per_address_max = options.limits.per_address;
        wanted.connections_per_key_max = options.limits.per_key;
        if let Some(file) = &options.authorized_keys {
            wanted.client_auth = ClientAuth::AuthorizedKeys(file.clone());
        }
        if let Some(port) = port {
            let listener = uts::Listener::take_over(port, wanted).map_err(|error| error.to_string())?;
            return Ok(UdpListener { listener, refused, untold });
        }
        // A service manager has bound it already (systemd's socket activation).
        let given = listenfd::ListenFd::from_env().take_udp_socket(0);
        let given = given.map_err(|error| format!("LISTEN_FDS: the first is no UDP socket: {error}"))?;
        if let Some(socket) = given {
            let listener = uts::Listener::from_socket(socket, wanted).map_err(|error| error.to_string())?;
            return Ok(UdpListener { listener, refused, untold });
        }
        let mut tried = Vec::new();
        for address in &options.addresses {
            match uts::Listener::bind(*address, wanted.clone()) {
                Ok(listener) => return Ok(UdpListener { listener, refused, untold }),
                // What is wrong beside the address is told once.
                Err(error) if tried.contains(&error.to_string()) => {}
                Err(error) => tried.push(error.to_string()),
            }
        }
        Err(tried.join("; "))
    }

    fn keygen(&self, file: Option<&Path>) -> Result<(PathBuf, String, bool), String> {
        let (file, identity, new) = load_key(file)?;
        Ok((file, identity.fingerprint().to_string(), new))
    }

    fn fingerprint(&self, file: Option<&Path>, is_of_ssh: bool) -> Result<String, String> {
        let file = key_file(file)?;
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let (own, of_ssh) = match text.lines().next().and_then(SshPublicKey::read) {
            Some(public) => {
                let public = public.map_err(|why| format!("{}: {why}", file.display()))?;
                (public.fingerprint, Some(public.ssh_fingerprint))
            }
            None => {
                let identity = Identity::load(&file).map_err(|e| e.to_string())?;
                (identity.fingerprint(), identity.ssh_fingerprint())
            }
        };
        let no_such = || format!("{}: ssh has no such key; only those of Ed25519 are both", file.display());
        let shown = if is_of_ssh { of_ssh.ok_or_else(no_such)? } else { own };
        Ok(shown.to_string())
    }

    fn explain(
        &self,
        properties: &[(String, String)],
        path: &PathGiven,
        why_not: Option<&str>,
        json: bool,
    ) -> Result<String, String> {
        let requirements = requirements(properties)?;
        match why_not {
            Some(name) => explain::why_not(&requirements, path, name),
            None => explain::explain(&requirements, path, json),
        }
    }
}

/// Options of a client that connects.
fn client(options: &ConnectOptions) -> Result<uts::ConnectOptions, String> {
    let identity = match &options.key {
        Some(file) => Some(Identity::load_or_create(file).map_err(|e| e.to_string())?.0),
        None => match Identity::default_path() {
            Ok(file) if file.exists() => Some(Identity::load(&file).map_err(|e| e.to_string())?),
            _ => None,
        },
    };
    let mut wanted = uts::ConnectOptions::new(trust(options)?);
    wanted.identity = identity;
    wanted.connection = config(&options.properties)?;
    wanted.connection.service = options.service.to_owned();
    if !options.silence_max.is_zero() {
        wanted.connection.idle_timeout = options.silence_max;
    }
    // Two questions may be lost.
    wanted.connection.keep_alive = KEEP_ALIVE.min(wanted.connection.idle_timeout / 3);
    make_room(&mut wanted.connection, options.flows_max);
    wanted.qlog = options.qlog.clone();
    wanted.key_log = key_log()?;
    wanted.server_name = options.server_name.clone();
    wanted.key_exchange = options.key_exchange;
    Ok(wanted)
}

/// True if the user wants the secrets of TLS, which is told on standard error: whoever reads the
/// file can read the connections.
fn key_log() -> Result<bool, String> {
    static TOLD: Once = Once::new();
    let Some(file) = std::env::var_os("SSLKEYLOGFILE").filter(|file| !file.is_empty()) else {
        return Ok(false);
    };
    let shown = Path::new(&file).display();
    // The library leaves it out if it cannot be written.
    let opened = uts::make_key_log(Path::new(&file));
    opened.map_err(|error| format!("SSLKEYLOGFILE {shown}: {error}"))?;
    TOLD.call_once(|| {
        lines::tell(format_args!("uts: warning: the secrets of TLS are written to {shown} (SSLKEYLOGFILE)"));
    });
    Ok(true)
}

fn key_file(file: Option<&Path>) -> Result<PathBuf, String> {
    file.map_or_else(|| Identity::default_path().map_err(|e| e.to_string()), |file| Ok(file.to_owned()))
}

pub(crate) fn load_key(file: Option<&Path>) -> Result<(PathBuf, Identity, bool), String> {
    let file = key_file(file)?;
    let (identity, new) = Identity::load_or_create(&file).map_err(|e| e.to_string())?;
    Ok((file, identity, new))
}

/// The error, and what the user can do about it.
fn not_connected(host: &Host, error: uts::ConnectError) -> String {
    match error {
        // The others name the server, or the address, that they are about.
        uts::ConnectError::KeyRefused { .. } | uts::ConnectError::Closed(_) | uts::ConnectError::Setup(_) => {
            format!("{host}: {error}")
        }
        uts::ConnectError::Untrusted(TrustError::NewHost { found, .. }) => format!(
            "{error}. If the server prints that key as well, accept it by --pin {found} (--accept-new accepts any), or at a terminal, where this asks"
        ),
        error => {
            let waits_longer =
                if has_gone_unanswered(&error) { " (--patience 60s waits longer)" } else { "" };
            format!("{error}{waits_longer}")
        }
    }
}

/// True if a server was waited for that has not said a word.
fn has_gone_unanswered(error: &uts::ConnectError) -> bool {
    match error {
        uts::ConnectError::NoAnswer { .. } => true,
        uts::ConnectError::NoneAnswers { tried } => tried.iter().any(has_gone_unanswered),
        _ => false,
    }
}

/// Requirements of copies of files unless told otherwise, and then what is asked.
fn requirements(properties: &[(String, String)]) -> Result<Requirements, String> {
    let mut requirements = Requirements::bulk();
    for (name, value) in properties {
        requirements.set(name, value).map_err(|e| e.to_string())?;
    }
    uts_tunnel::dictionary::complete(&mut requirements);
    Ok(requirements)
}

fn config(properties: &[(String, String)]) -> Result<ConnectionConfig, String> {
    let requirements = requirements(properties)?;
    Ok(ConnectionConfig { requirements, mapping: crate::mapping::given(), ..ConnectionConfig::default() })
}

/// Lets the peer open this many flows, none of which holds much while nobody reads.
fn make_room(config: &mut ConnectionConfig, flows_max: Option<u32>) {
    let Some(flows_max) = flows_max else { return };
    let (first, most) = uts_tunnel::FLOW_BYTES;
    config.flows_max = flows_max;
    (config.credit_bytes_initial, config.credit_bytes_max) = (first as u64, most as u64);
    (config.send_buffer_bytes, config.send_buffer_bytes_max) = (first, most);
}

fn trust(options: &ConnectOptions) -> Result<Trust, String> {
    match &options.trust {
        ServerTrust::Pin(pin) | ServerTrust::PinKept(pin, _) => {
            Ok(Trust::Pin(vec![pin.parse().map_err(|e| format!("--pin: {e}"))?]))
        }
        ServerTrust::Ca(roots) => Ok(Trust::Roots(roots.clone())),
        ServerTrust::KnownHosts(file) => {
            let file = known_hosts(file.as_deref())?;
            let on_new = match (options.accept_new, options.interactive) {
                (true, _) => NewHost::Accept,
                (false, true) => NewHost::Ask(Arc::new(ask)),
                (false, false) => NewHost::Refuse,
            };
            Ok(Trust::KnownHosts { file, on_new })
        }
    }
}

fn known_hosts(file: Option<&Path>) -> Result<PathBuf, String> {
    file.map_or_else(|| KnownHosts::default_path().map_err(|e| e.to_string()), |file| Ok(file.to_owned()))
}

/// Keeps a pinned key that the server has shown. If the server had another key, it is forgotten,
/// and a message says so.
fn keep(host: &Host, pin: &str, file: Option<&Path>) -> Result<(), String> {
    let file = known_hosts(file)?;
    let fingerprint = pin.parse().map_err(|e| format!("--pin: {e}"))?;
    let replaced = KnownHosts::set(&file, &host.to_string(), fingerprint).map_err(|e| e.to_string())?;
    for old in replaced {
        lines::tell(format_args!(
            "uts: warning: {host} had the key {old} in {}; it has {pin} from now on",
            file.display()
        ));
    }
    Ok(())
}

/// Asks the user about a server that was never met before.
fn ask(host: &NewHostKey) -> bool {
    lines::tell(format_args!("{} was never met before. Its key is {}", host.host, host.fingerprint));
    let question = format!("Is that the right one? It will be kept in {} (yes/no)", host.file.display());
    output::ask(question).is_ok_and(|answer| matches!(answer.as_str(), "yes" | "y"))
}

/// A server's socket.
pub struct UdpListener {
    listener: uts::Listener,
    refused: Receiver<TurnedAway>,
    /// Clients beyond those.
    untold: Arc<AtomicU64>,
}

impl Listener for UdpListener {
    type Link = UdpLink;

    fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    fn fingerprint(&self) -> String {
        self.listener.fingerprint().to_string()
    }

    async fn accept(&mut self) -> Option<Result<UdpLink, TurnedAway>> {
        tokio::select! {
            connection = self.listener.accept() => connection.map(|connection| Ok(UdpLink::new(connection))),
            Some(client) = self.refused.recv() => {
                let more = match self.untold.swap(0, Relaxed) {
                    0 => String::new(),
                    more => format!("; {more} more were refused at the same time"),
                };
                Some(Err(TurnedAway { why: client.why + &more, ..client }))
            }
        }
    }

    fn set_limits(&self, limits: Limits) {
        self.listener.set_limits(limits.all, limits.per_address, limits.per_key);
    }

    fn set_authorized_keys(&self, file: &Path) -> Result<(), String> {
        self.listener.set_authorized_keys(file).map_err(|error| error.to_string())
    }

    fn refused(&self) -> u64 {
        self.listener.refused()
    }

    fn connections(&self) -> usize {
        self.listener.connections_of_workers().iter().sum()
    }

    async fn hand_over(&self) -> Result<(uts::Handover, uts::TakenOver), String> {
        self.listener.hand_over().await.map_err(|error| error.to_string())
    }

    fn pulse(&self) -> uts::Pulse {
        self.listener.pulse()
    }

    async fn close(self) {
        self.listener.close();
    }
}
