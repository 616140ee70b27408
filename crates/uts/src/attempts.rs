//! Attempts to connect to a server, and what their ends mean. Its addresses are tried side by side
//! ([`crate::race`]).

use crate::connection::{Connection, explain, objects_to_key};
use crate::driver::Host;
use crate::driver::Shared;
use crate::early::Early;
use crate::endpoint::{ConnectError, ConnectOptions};
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::known_hosts::KnownHosts;
use crate::race::{Lost, race};
use crate::random::random_bytes;
use crate::tls::{self, ClientTls, TlsError};
use crate::trust::{self, Expected, NewHost, NewHostKey, Trust, TrustError};
use core::time::Duration;
use rustls::pki_types::ServerName;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use uts_engine::{CERTIFICATE_WORDS, CloseReason, EndpointConfig, Probes};

/// Once the kernel has said that nobody listens at the server's port, it may still answer within
/// this time: what the kernel says is not authenticated, and a server may be starting.
const UNREACHABLE_PATIENCE: Duration = Duration::from_millis(300);

/// A server that is meant: its name, and what is expected of it.
pub(crate) struct Target<'a> {
    /// `host:port`, as it stands among known hosts.
    pub host: String,
    pub name: ServerName<'static>,
    pub options: &'a ConnectOptions,
    pub from: Option<&'a Arc<Shared>>,
    /// Carrier of the endpoint that is made for the connection.
    pub carrier: Host,
    /// The early request, until an attempt has taken it: a ticket is good once.
    pub early: Mutex<Option<Early>>,
}

/// An attempt that has come to nothing.
struct Failure {
    addr: SocketAddr,
    error: ConnectError,
    /// The key that the server has shown, if that is what was wrong.
    found: Option<Fingerprint>,
}

impl Failure {
    /// True if the host may answer at another address.
    fn next_may_answer(&self) -> bool {
        matches!(
            self.error,
            ConnectError::Unreachable { .. }
                | ConnectError::NoAnswer { .. }
                | ConnectError::Unconfirmed { .. }
                | ConnectError::Socket { .. }
        )
    }
}

/// Failure after no address has answered: the error of a single address, or the list of several.
fn none_answers(failed: Vec<(SocketAddr, Failure)>) -> Failure {
    let addr = failed.first().map_or(SocketAddr::from(([0; 4], 0)), |(addr, _)| *addr);
    let mut tried: Vec<ConnectError> = failed.into_iter().map(|(_, failure)| failure.error).collect();
    let error = match (tried.len(), tried.pop()) {
        (1, Some(error)) => error,
        (_, last) => {
            tried.extend(last);
            ConnectError::NoneAnswers { tried }
        }
    };
    Failure { addr, error, found: None }
}

impl Target<'_> {
    /// Connects to one of these addresses. A host that was never met is asked about, once, and then
    /// connected to again.
    pub async fn connect(&self, addrs: &[SocketAddr]) -> Result<Connection, ConnectError> {
        let expected = self.expected().await?;
        let (accept_new, file) = match (&self.options.trust, &expected) {
            (Trust::KnownHosts { file, on_new }, Expected::New) => {
                (matches!(on_new, NewHost::Accept), Some(file.clone()))
            }
            _ => (false, None),
        };
        let connection = match self.race(addrs, &expected, accept_new).await {
            Ok(connection) => connection,
            Err(Failure { found: None, error, .. }) => return Err(error),
            Err(Failure { found: Some(found), .. }) if file.is_none() => {
                return Err(trust::unexpected(&self.options.trust, &self.host, found).into());
            }
            Err(Failure { found: Some(found), addr, .. }) => {
                self.ask(found).await?;
                let again = self.attempt(addr, &Expected::Keys(vec![found]), false).await;
                again.map_err(|failure| failure.error)?
            }
        };
        if let (Some(file), Some(fingerprint)) = (file, connection.peer_fingerprint()) {
            let host = self.host.clone();
            self.unblock(move || KnownHosts::add(&file, &host, fingerprint))
                .await?
                .map_err(TrustError::from)?;
        }
        Ok(connection)
    }

    /// Tries the addresses, each a while after the one before or as soon as that has failed. The
    /// first connection is taken; attempts that are still under way then end with their sockets.
    /// An answer of another server than was meant ends it, too.
    async fn race(
        &self,
        addrs: &[SocketAddr],
        expected: &Expected,
        accept_new: bool,
    ) -> Result<Connection, Failure> {
        let attempt = |addr| self.attempt(addr, expected, accept_new);
        let is_final = |failure: &Failure| failure.found.is_some() || !failure.next_may_answer();
        let raced = race(addrs, |delay| self.carrier.sleep(delay), attempt, is_final).await;
        raced.map_err(|lost| match lost {
            Lost::Final(failure) => failure,
            Lost::All(failed) => none_answers(failed),
        })
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
        let tls = tls::client(self.options, expected, accept_new);
        tls.map_err(|error| match error {
            TlsError::Trust(error) => ConnectError::Untrusted(error),
            TlsError::Setup(error) => ConnectError::Setup(error.to_string()),
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
    async fn attempt(
        &self,
        addr: SocketAddr,
        expected: &Expected,
        accept_new: bool,
    ) -> Result<Connection, Failure> {
        let tls = self.tls(expected, accept_new).map_err(|error| Failure { addr, error, found: None })?;
        let shaken = self.shake_hands(addr, &tls).await;
        shaken.map_err(|error| Failure { addr, error, found: tls.refused.get().copied() })
    }

    async fn shake_hands(&self, addr: SocketAddr, tls: &ClientTls) -> Result<Connection, ConnectError> {
        let own = self.options.identity.as_ref().map(Identity::fingerprint);
        let shared = match self.from {
            Some(shared) => {
                shared.retain();
                shared.clone()
            }
            None => own_socket(self.carrier, addr, self.options.spin, self.options.probes.clone())
                .map_err(|source| ConnectError::Socket { addr, source })?,
        };
        if let Some(dir) = &self.options.qlog
            && let Err(error) = shared.record(dir)
        {
            shared.release();
            return Err(ConnectError::Setup(format!("no qlog in {}: {error}", dir.display())));
        }
        let mut config = self.options.connection.clone();
        config.batch_packets_max = config.batch_packets_max.clamp(1, shared.segments_max.max(1));
        // Known before the task can hear of its end: what happens on a connection that nobody holds
        // is told to nobody.
        let early = self.early.lock().unwrap_or_else(PoisonError::into_inner).take();
        let begun = shared.act(|inner, now| {
            inner.changed();
            let settings = inner.share_settings(config);
            let tls = tls.config.clone();
            let is_asking = early.is_some();
            let early = early.map(|asking| (asking.ticket.0, asking.request));
            let handle = inner.engine.connect(now, addr, self.name.clone(), tls, settings.config, early)?;
            inner.adopt(handle);
            if let Some(state) = inner.connections.get_mut(&handle).filter(|_| is_asking) {
                state.kept.get_or_insert_default().is_asking = true;
            }
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
            CloseReason::HandshakeTimeout { after, tried } => ConnectError::NoAnswer { addr, after, tried },
            CloseReason::Unconfirmed { after, tried, said } => {
                ConnectError::Unconfirmed { addr, after, tried, said }
            }
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
fn own_socket(carrier: Host, peer: SocketAddr, spin: Duration, probes: Probes) -> io::Result<Arc<Shared>> {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let secret = random_bytes()?;
    let config = EndpointConfig { cid_bytes: 0, secret, probes, ..EndpointConfig::default() };
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
        let look = || {
            connection.shared().act(|inner, _| {
                let state = inner.connections.get(&connection.handle());
                let is_connected = state.is_some_and(|s| s.is_connected);
                let engine = inner.engine.peek(connection.handle());
                // Who was heard is there, whatever the network says.
                let is_unreachable = inner.unreachable > 0 && !engine.is_some_and(|c| c.has_heard_peer());
                (is_connected, inner.ended(connection.handle()), is_unreachable)
            })
        };
        let (is_connected, ended, is_unreachable) = look();
        if let Some(reason) = ended {
            return Err(Some(reason));
        }
        if is_connected {
            return Ok(());
        }
        if is_unreachable && patience.is_none() {
            patience = Some(Box::pin(connection.shared().host.sleep(UNREACHABLE_PATIENCE)));
        }
        match &mut patience {
            None => changes.await,
            Some(waited) => tokio::select! {
                () = changes => {}
                () = waited => match look() {
                    (false, None, true) => return Err(None),
                    _ => patience = None,
                },
            },
        }
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "these tests face the world: sockets that do not answer, and waits for what they do"
)]
mod tests {
    use super::*;
    use crate::listener::{Listener, ServerOptions};
    use crate::race::ATTEMPT_DELAY;
    use crate::tls::KeyExchange;
    use std::net::UdpSocket;
    use std::sync::Mutex;

    /// A socket that nobody reads.
    fn silent() -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let addr = socket.local_addr().expect("bound");
        (socket, addr)
    }

    fn listener() -> Listener {
        let options = ServerOptions::new(Identity::generate().expect("a key"));
        Listener::bind("127.0.0.1:0".parse().expect("an address"), options).expect("bound")
    }

    fn target(options: &ConnectOptions, carrier: Host) -> Target<'_> {
        let name = ServerName::try_from("localhost").expect("a name");
        Target { host: "localhost:4433".into(), name, options, from: None, carrier, early: Mutex::default() }
    }

    async fn within<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(60), future).await.expect("it hangs")
    }

    #[tokio::test]
    async fn an_address_that_is_silent_holds_up_no_other() {
        let (listener, (_open, silent_addr)) = (listener(), silent());
        let options = ConnectOptions::pinned(listener.fingerprint());
        let target = target(&options, Host::Runtime);
        let addrs = [silent_addr, listener.local_addr(), silent_addr];
        let began = target.carrier.clock();
        let connection = within(target.connect(&addrs)).await.expect("connected");
        assert_eq!(connection.remote_addr(), Some(listener.local_addr()));
        // The other attempt alone would have taken ten seconds.
        let took = began.now().as_secs_f64();
        assert!(took < 8.0, "{took} s");
    }

    #[cfg(unix)]
    #[test]
    fn nor_does_it_where_the_thread_carries_the_attempts() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(async { listener() });
        let (_open, silent_addr) = silent();
        let options = ConnectOptions::pinned(listener.fingerprint());
        let target = target(&options, Host::Thread);
        let addrs = [silent_addr, listener.local_addr()];
        let connected = crate::driver::thread::Thread::here().wait(target.connect(&addrs));
        assert_eq!(connected.expect("connected").remote_addr(), Some(listener.local_addr()));
    }

    /// Two addresses lead to the same new host: its key is asked about once, and written down once.
    #[tokio::test]
    async fn the_user_is_asked_once() {
        let (listener, dir) = (listener(), tempfile::tempdir().expect("a folder"));
        let file = dir.path().join("known_hosts");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let ask = {
            let asked = asked.clone();
            move |question: &NewHostKey| {
                // Longer than until the next address would be tried.
                std::thread::sleep(3 * ATTEMPT_DELAY);
                asked.lock().expect("no panic").push(question.fingerprint);
                true
            }
        };
        let on_new = NewHost::Ask(Arc::new(ask));
        let options = ConnectOptions::new(Trust::KnownHosts { file: file.clone(), on_new });
        let (_open, silent_addr) = silent();
        let addrs = [silent_addr, listener.local_addr(), listener.local_addr()];
        within(target(&options, Host::Runtime).connect(&addrs)).await.expect("connected");
        assert_eq!(*asked.lock().expect("no panic"), [listener.fingerprint()]);
        assert_eq!(std::fs::read_to_string(file).expect("written").lines().count(), 1);
    }

    #[tokio::test]
    async fn each_address_is_named_that_does_not_answer() {
        let ((_one, first), (_other, second)) = (silent(), silent());
        let mut options = ConnectOptions::pinned(Identity::generate().expect("a key").fingerprint());
        options.connection.handshake_timeout = Duration::from_millis(500);
        let error = within(target(&options, Host::Runtime).connect(&[first, second])).await;
        let error = error.expect_err("nobody is there");
        let ConnectError::NoneAnswers { tried } = &error else { panic!("{error}") };
        assert_eq!(tried.len(), 2);
        let text = error.to_string();
        assert!(text.contains(&first.to_string()) && text.contains(&second.to_string()), "{text}");
        assert!(error.is_worth_retrying());
    }

    /// Where the first packets of the server are in its datagram.
    fn first_packet_bytes(datagram: &[u8]) -> usize {
        let dcid = usize::from(datagram[5]);
        let scid = usize::from(datagram[6 + dcid]);
        // No token, and two bytes of length.
        let at = 7 + dcid + scid + 1;
        let length = usize::from(datagram[at] & 0x3f) << 8 | usize::from(datagram[at + 1]);
        at + 2 + length
    }

    /// A relay passes on the server's first packet and is gone for a while: its system says that
    /// nobody listens there. Then it is back.
    #[tokio::test]
    async fn who_was_heard_is_waited_for_whatever_the_network_says() {
        let listener = listener();
        let server_addr = listener.local_addr();
        let relay = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let addr = relay.local_addr().expect("bound");
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let relaying = std::thread::spawn(move || {
            let beyond = UdpSocket::bind("127.0.0.1:0").expect("bound");
            beyond.connect(server_addr).expect("connected");
            let mut buffer = [0; 2048];
            let (len, client) = relay.recv_from(&mut buffer).expect("a first packet");
            beyond.send(&buffer[..len]).expect("sent");
            let len = beyond.recv(&mut buffer).expect("an answer");
            let first = first_packet_bytes(&buffer[..len]);
            assert!(first < len, "there is more behind it");
            relay.send_to(&buffer[..first], client).expect("sent");
            drop(relay);
            std::thread::sleep(8 * UNREACHABLE_PATIENCE);
            let relay = UdpSocket::bind(addr).expect("bound again");
            for socket in [&relay, &beyond] {
                socket.set_read_timeout(Some(Duration::from_millis(5))).expect("set");
            }
            while is_done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                if let Ok((len, from)) = relay.recv_from(&mut buffer) {
                    assert_eq!(from, client);
                    beyond.send(&buffer[..len]).expect("sent");
                }
                if let Ok(len) = beyond.recv(&mut buffer) {
                    relay.send_to(&buffer[..len], client).expect("sent");
                }
            }
        });
        let mut options = ConnectOptions::pinned(listener.fingerprint());
        // A greeting of one packet, and an answer in one.
        options.key_exchange = KeyExchange::Classical;
        let connected = within(target(&options, Host::Runtime).connect(&[addr])).await;
        drop(done);
        tokio::task::spawn_blocking(move || relaying.join().expect("relayed")).await.expect("ended");
        connected.expect("connected");
    }
}
