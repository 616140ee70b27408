//! TCP sockets by which programs are met: those of the system, or others in their place.

use std::ffi::c_int;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

/// A TCP connection with a program, or what stands for one.
pub trait Tcp: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static {
    /// Both its ways.
    fn split(&mut self) -> (impl AsyncRead + Send + Unpin, impl AsyncWrite + Send + Unpin);

    /// Its address here.
    ///
    /// # Errors
    /// Those of the operating system.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// The address of its peer.
    ///
    /// # Errors
    /// Those of the operating system.
    fn peer_addr(&self) -> io::Result<SocketAddr>;

    /// Sends small pieces at once from now on, as far as that can be had.
    fn send_at_once(&self);

    /// Bytes that were written to it, and that are still on their way to its peer; zero once there
    /// is no peer.
    fn undelivered_bytes(&self) -> u64;

    /// Has it reset when it is dropped, as far as that can be had.
    fn reset_when_dropped(&self);
}

/// A TCP socket at which connections arrive, or what stands for one.
pub trait Listener: Send + Sync + 'static {
    /// Its connections.
    type Tcp: Tcp;

    /// The address at which it listens.
    ///
    /// # Errors
    /// Those of the operating system.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// The next connection, and where it comes from.
    ///
    /// # Errors
    /// Those of the operating system.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Tcp, SocketAddr)>> + Send;
}

/// The means to connect to programs, and to listen for them.
pub trait Sockets: Clone + Send + Sync + 'static {
    /// Connections.
    type Tcp: Tcp;
    /// Listeners for them.
    type Listener: Listener<Tcp = Self::Tcp>;

    /// Connects to an address.
    ///
    /// # Errors
    /// Those of the operating system.
    fn connect(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::Tcp>> + Send;

    /// Listens at an address.
    ///
    /// # Errors
    /// Those of the operating system.
    fn listen(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::Listener>> + Send;
}

/// The sockets of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Sockets for System {
    type Tcp = TcpStream;
    type Listener = TcpListener;

    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }

    async fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::bind(address).await
    }
}

impl Listener for TcpListener {
    type Tcp = TcpStream;

    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpListener::local_addr(self)
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        TcpListener::accept(self).await
    }
}

impl Tcp for TcpStream {
    fn split(&mut self) -> (impl AsyncRead + Send + Unpin, impl AsyncWrite + Send + Unpin) {
        TcpStream::split(self)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpStream::local_addr(self)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        TcpStream::peer_addr(self)
    }

    fn send_at_once(&self) {
        // Without it small pieces only come later.
        let _ = self.set_nodelay(true);
    }

    fn undelivered_bytes(&self) -> u64 {
        // An error is told once. A socket whose error was read before has no peer.
        let is_broken = !matches!(self.take_error(), Ok(None)) || TcpStream::peer_addr(self).is_err();
        if is_broken { 0 } else { unacknowledged_bytes(self).unwrap_or_default() }
    }

    fn reset_when_dropped(&self) {
        // If it cannot be set, the socket ends as others do.
        let _ = socket2::SockRef::from(self).set_linger(Some(Duration::ZERO));
    }
}

/// A connection that is reset when it is dropped, unless it has ended in order. Its peer must not
/// take half of something for the whole.
pub struct Resetting<T: Tcp = TcpStream> {
    socket: T,
    has_ended: bool,
}

impl<T: Tcp> Resetting<T> {
    /// A connection that is in use.
    pub fn new(socket: T) -> Resetting<T> {
        Resetting { socket, has_ended: false }
    }

    /// The connection itself.
    pub fn socket(&mut self) -> &mut T {
        &mut self.socket
    }

    /// Both directions have ended in order.
    pub fn end(mut self) {
        self.has_ended = true;
    }

    /// Resets it behind what was written to it.
    pub async fn reset(self) {
        drain(&self.socket).await;
    }
}

impl<T: Tcp> Drop for Resetting<T> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.socket.reset_when_dropped();
        }
    }
}

/// Waits until the peer of a socket has what was written to it: a reset would overtake it. A peer
/// that takes nothing for [`LINGER`] does not want it.
async fn drain(socket: &impl Tcp) {
    let mut left = u64::MAX;
    let (mut pause, mut since) = (DRAIN_PAUSE_MIN, Instant::now());
    while let now @ 1.. = socket.undelivered_bytes() {
        if now < left {
            (left, since) = (now, Instant::now());
        }
        if since.elapsed() >= LINGER {
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(DRAIN_PAUSE_MAX);
    }
}

/// Time after which an end that takes nothing of what was said before an abrupt end does not want
/// it.
pub(crate) const LINGER: Duration = Duration::from_secs(30);

/// A socket's queue is looked at again after this long at first, and at last. The system does not
/// say when it becomes empty.
const DRAIN_PAUSE_MIN: Duration = Duration::from_millis(1);
const DRAIN_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Has a connection reset when it is dropped.
pub fn reset(socket: impl Tcp) {
    drop(Resetting::new(socket));
}

/// Bytes that were written to a TCP socket, and that its peer's system has not acknowledged
/// (`SIOCOUTQ`, tcp(7)).
///
/// # Errors
/// Those of the operating system.
#[expect(unsafe_code, reason = "a request that neither rustix nor socket2 knows")]
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes one int.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { Ok(bytes.max(0) as u64) } else { Err(io::Error::last_os_error()) }
}
