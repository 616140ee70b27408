//! Kernel TCP, and MPTCP, as applications use them. Each stream has one connection. Messages have
//! one connection, on which each follows its length.
//!
//! A connection first says which session it belongs to and what it is for ([`PREAMBLE_BYTES`],
//! together with its first data). A server tells the connections of a session apart by that.

mod session;

use super::{failed, sockopt};
use crate::clock;
use core::cell::RefCell;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use session::{Connection, Purpose, TcpSession};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use uts_traffic::stream_messages::MESSAGE_BYTES_MAX;
use uts_traffic::transport::{Capabilities, Listener, Local, Result, Session, Transport, TransportError};
use uts_units::text;

/// Bytes for the purpose of a connection (one byte), and for the number of its session.
const PREAMBLE_BYTES: usize = 9;

/// Within this time a connection must say what it is for.
const PREAMBLE_PATIENCE: Duration = Duration::from_secs(30);

/// If an MPTCP connection is reset with full buffers, the peer may not notice. If the receiver's
/// window has shrunk since, the reset is outside of it and ignored. A quiet end therefore asks
/// whether the other is still there. It is patient during outages.
const MULTIPATH_KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(2))
    .with_interval(Duration::from_secs(1))
    .with_retries(120);

const BACKLOG: u32 = 1024;

/// Settings of TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TcpSettings {
    /// `TCP_CONGESTION`: `cubic`, `bbr`, `reno`, or another that the kernel has. It is always set,
    /// because the defaults of kernels differ.
    pub congestion: String,
    /// The largest window that a receiver advertises, in bytes (`TCP_WINDOW_CLAMP`). In the first
    /// round trips the kernel may exceed it by half, until it has seen packets of full size.
    #[serde(with = "text::bytes_option", skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// `SO_SNDBUF` in bytes; unset, the kernel adapts it.
    #[serde(with = "text::bytes_option", skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<u64>,
    /// `SO_RCVBUF` in bytes; unset, the kernel adapts it (except where `window` is set).
    #[serde(with = "text::bytes_option", skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<u64>,
    /// `TCP_NODELAY`: small writes leave at once.
    pub nodelay: bool,
}

impl Default for TcpSettings {
    fn default() -> Self {
        TcpSettings {
            congestion: "cubic".to_owned(),
            window: None,
            send_buffer: None,
            receive_buffer: None,
            nodelay: true,
        }
    }
}

/// A sentence if this kernel has no such congestion control, and can load none; `None` otherwise,
/// as well where this user may not use it.
pub fn missing(congestion: &str) -> Option<String> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).ok()?;
    let error = socket.set_tcp_congestion(congestion.as_bytes()).err()?;
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    is_missing.then(|| {
        format!("the kernel has no congestion control {congestion}: `sysctl net.ipv4.tcp_available_congestion_control`")
    })
}

/// Kernel TCP or MPTCP.
#[derive(Clone, Debug)]
pub struct Tcp {
    settings: TcpSettings,
    is_multipath: bool,
}

impl Tcp {
    /// TCP.
    ///
    /// # Errors
    /// If a setting is out of range, with its key.
    pub fn single(settings: TcpSettings) -> std::result::Result<Self, String> {
        Self::new(settings, false)
    }

    /// MPTCP; what the kernel's path manager does with it is the host's setting.
    ///
    /// # Errors
    /// If a setting is out of range, with its key.
    pub fn multipath(settings: TcpSettings) -> std::result::Result<Self, String> {
        Self::new(settings, true)
    }

    fn new(settings: TcpSettings, is_multipath: bool) -> std::result::Result<Self, String> {
        let kind = if is_multipath { "mptcp" } else { "tcp" };
        // TCP_CA_NAME_MAX is 16, its end included.
        if !(1..16).contains(&settings.congestion.len()) || !settings.congestion.is_ascii() {
            return Err(format!("{kind}: congestion: `{}` is no name of a mechanism", settings.congestion));
        }
        let sizes = [
            ("window", settings.window),
            ("send_buffer", settings.send_buffer),
            ("receive_buffer", settings.receive_buffer),
        ];
        for (key, bytes) in sizes {
            if let Some(bytes) = bytes.filter(|bytes| !(1024..=1 << 30).contains(bytes)) {
                return Err(format!("{kind}: {key}: {bytes} bytes are not between 1 KiB and 1 GiB"));
            }
        }
        Ok(Tcp { settings, is_multipath })
    }

    /// A socket with all settings, which connections that it accepts inherit.
    fn socket(&self, peer: SocketAddr) -> Result<TcpSocket> {
        let protocol = if self.is_multipath { Protocol::MPTCP } else { Protocol::TCP };
        let open = || -> io::Result<Socket> {
            let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(protocol))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let name = if self.is_multipath { "no MPTCP socket" } else { "no TCP socket" };
        let socket = open().map_err(failed(name))?;
        let congestion = &self.settings.congestion;
        socket.set_tcp_congestion(congestion.as_bytes()).map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "; this user may only use those of `sysctl net.ipv4.tcp_allowed_congestion_control`"
                }
                io::ErrorKind::NotFound => {
                    "; the kernel has those of `sysctl net.ipv4.tcp_available_congestion_control`"
                }
                _ => "",
            };
            TransportError::Failed(format!("congestion control {congestion}: {error}{hint}"))
        })?;
        if self.is_multipath {
            // Older kernels know it for TCP only.
            let _ = socket.set_tcp_keepalive(&MULTIPATH_KEEPALIVE);
        }
        socket.set_tcp_nodelay(self.settings.nodelay).map_err(failed("TCP_NODELAY"))?;
        if let Some(bytes) = self.settings.send_buffer {
            socket.set_send_buffer_size(bytes as usize).map_err(failed("SO_SNDBUF"))?;
        }
        // A kernel that adapts the buffer moves the window along with it. The buffer is therefore
        // fixed. The kernel doubles the size that is asked for, and some packets take three times
        // the memory of their content.
        let receive_buffer = self.settings.receive_buffer.or(self.settings.window.map(|window| window * 2));
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes as usize).map_err(failed("SO_RCVBUF"))?;
            let got = socket.recv_buffer_size().map_err(failed("SO_RCVBUF"))? as u64;
            if got < bytes {
                let why = format!(
                    "SO_RCVBUF: {bytes} bytes were asked for, {got} given: `sysctl net.core.rmem_max`"
                );
                return Err(TransportError::Failed(why));
            }
        }
        if let Some(window) = self.settings.window {
            sockopt::keep_window_clamp(&socket, window as i32).map_err(failed("TCP_WINDOW_CLAMP"))?;
        }
        Ok(TcpSocket::from_std_stream(socket.into()))
    }

    async fn dial(&self, to: SocketAddr) -> Result<TcpStream> {
        let connecting = self.socket(to)?.connect(to);
        connecting.await.map_err(|error| TransportError::Failed(format!("cannot connect to {to}: {error}")))
    }
}

impl Transport for Tcp {
    fn capabilities(&self) -> Capabilities {
        Capabilities { streams: true, messages: true, message_bytes_max: MESSAGE_BYTES_MAX, protected: false }
    }

    fn connect(&self, to: SocketAddr) -> Local<'_, Result<Rc<dyn Session>>> {
        Box::pin(async move {
            let first = self.dial(to).await?;
            // Different for all sessions of all processes of a machine, as far as a server cares.
            let token = clock::now_ns() ^ u64::from(std::process::id()) << 40;
            Ok(Rc::new(TcpSession::client(self.clone(), to, token, first)) as Rc<dyn Session>)
        })
    }

    fn listen(&self, at: SocketAddr) -> Local<'_, Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let socket = self.socket(at)?;
            socket.set_reuseaddr(true).map_err(failed("SO_REUSEADDR"))?;
            socket.bind(at).map_err(failed("bind"))?;
            let listener = socket.listen(BACKLOG).map_err(failed("listen"))?;
            let address = listener.local_addr().map_err(failed("listen"))?;
            let (new_sessions, sessions) = unbounded_channel();
            let reception = Rc::new_cyclic(|this| Reception {
                known: RefCell::default(),
                new_sessions,
                task: tokio::task::spawn_local(receive(listener, self.settings.window, this.clone()))
                    .abort_handle(),
            });
            Ok(Box::new(TcpSessions { address, sessions, _reception: reception }) as Box<dyn Listener>)
        })
    }
}

/// Where sessions arrive.
struct TcpSessions {
    address: SocketAddr,
    sessions: UnboundedReceiver<Arriving>,
    /// Ends with the last session and this.
    _reception: Rc<Reception>,
}

/// Task that sorts the connections that arrive by session.
struct Reception {
    known: RefCell<BTreeMap<u64, UnboundedSender<Sorted>>>,
    new_sessions: UnboundedSender<Arriving>,
    task: AbortHandle,
}

/// A connection that has said what it is for.
type Sorted = (Purpose, Rc<Connection>);

/// The connections of a session that has arrived.
type Arriving = UnboundedReceiver<Sorted>;

impl Drop for Reception {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reception {
    /// Hands a connection that has said what it is for to its session.
    fn sort(&self, token: u64, purpose: Purpose, connection: Rc<Connection>) {
        let mut known = self.known.borrow_mut();
        let session = known.entry(token).or_insert_with(|| {
            let (sender, arriving) = unbounded_channel();
            // Nobody takes new sessions once the listener is gone: the connection is dropped then.
            let _ = self.new_sessions.send(arriving);
            sender
        });
        let _ = session.send((purpose, connection));
    }
}

/// Accepts connections for as long as anybody wants them.
async fn receive(listener: TcpListener, window: Option<u64>, reception: Weak<Reception>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, or the like: it passes, or the run gives up.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let reception = reception.clone();
        tokio::task::spawn_local(async move {
            let connection = Rc::new(Connection::new(stream, window));
            let mut preamble = [0; PREAMBLE_BYTES];
            let read = connection.read_exact(&mut preamble);
            if !matches!(tokio::time::timeout(PREAMBLE_PATIENCE, read).await, Ok(Ok(()))) {
                return;
            }
            let [purpose, token @ ..] = preamble;
            if let (Some(purpose), Some(reception)) = (Purpose::parse(purpose), reception.upgrade()) {
                reception.sort(u64::from_be_bytes(token), purpose, connection);
            }
        });
    }
}

impl Listener for TcpSessions {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> Local<'_, Result<Rc<dyn Session>>> {
        Box::pin(async move {
            let arriving = self.sessions.recv().await.ok_or(TransportError::Closed)?;
            Ok(Rc::new(TcpSession::server(arriving, self._reception.clone())) as Rc<dyn Session>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    /// Both ends of a connection.
    async fn connected(tcp: &Tcp) -> (TcpStream, TcpStream) {
        let at: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let socket = tcp.socket(at).expect("a socket");
        socket.bind(at).expect("bound");
        let listener = socket.listen(1).expect("listens");
        let address = listener.local_addr().expect("an address");
        let (sender, accepted) = tokio::join!(tcp.dial(address), listener.accept());
        (sender.expect("connected"), accepted.expect("accepted").0)
    }

    /// The windows that a receiver grants while it reads 8 MB.
    async fn windows(window: Option<u64>) -> Vec<u32> {
        let settings = TcpSettings { congestion: "reno".into(), window, ..TcpSettings::default() };
        let tcp = Tcp::single(settings).expect("valid");
        let (mut sender, accepted) = connected(&tcp).await;
        let receiver = Connection::new(accepted, window);
        let (chunk, mut windows) = (vec![0; 8192], Vec::new());
        for _ in 0..1000 {
            sender.write_all(&chunk).await.expect("written");
            windows.push(sockopt::tcp_info(&sender).expect("told").peer_window_bytes);
            receiver.read_exact(&mut [0; 8192]).await.expect("read");
        }
        windows
    }

    /// True if a reader sees a failure when the sender gives up after `sends_for`, in the midst of
    /// its data.
    fn is_failure_seen(tcp: &Tcp, sends_for: Duration) -> bool {
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let here = runtime();
        let (dialled, accepted) = here.block_on(connected(tcp));
        let (dialled, receiver) =
            (dialled.into_std().expect("a socket"), here.block_on(async { Connection::new(accepted, None) }));
        // On a thread of its own, so that packets are on their way when it gives up.
        let sending = std::thread::spawn(move || {
            runtime().block_on(async {
                let sender = Connection::new(TcpStream::from_std(dialled).expect("a socket"), None);
                let chunk = [0; 16 << 10];
                let send = async { while sender.write_all(&chunk).await.is_ok() {} };
                let _ = tokio::time::timeout(sends_for, send).await;
                sender.abort();
            });
        });
        let mut buffer = vec![0; 64 << 10];
        let end = async {
            loop {
                match receiver.read(&mut buffer).await {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(_) => return true,
                }
            }
        };
        // MPTCP would wait for 60 seconds.
        let end = async { tokio::time::timeout(Duration::from_secs(30), end).await };
        let is_seen = here.block_on(end).expect("the reader is told");
        sending.join().expect("sent");
        is_seen
    }

    #[test]
    fn giving_up_is_told_to_the_peer() {
        let settings = TcpSettings { congestion: "reno".into(), ..TcpSettings::default() };
        let single = Tcp::single(settings.clone()).expect("valid");
        let multipath = Tcp::multipath(settings).expect("valid");
        let has_multipath = multipath.socket(([127, 0, 0, 1], 0).into()).is_ok();
        for sends_for in (1..=30).map(|n| Duration::from_micros(n * 300)) {
            assert!(is_failure_seen(&single, sends_for), "TCP, {sends_for:?}");
            assert!(!has_multipath || is_failure_seen(&multipath, sends_for), "MPTCP, {sends_for:?}");
        }
    }

    #[tokio::test]
    async fn a_window_is_kept() {
        let window = 48 << 10;
        let bounded = windows(Some(window)).await;
        let settled = bounded.iter().skip(100);
        assert!(settled.clone().all(|w| u64::from(*w) <= window), "{bounded:?}");
        assert!(settled.clone().any(|w| u64::from(*w) > window - 1500), "{bounded:?}");
        let free = windows(None).await;
        assert!(free.iter().any(|w| u64::from(*w) > window), "without the bound it is larger");
    }
}
