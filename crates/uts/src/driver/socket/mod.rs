//! The UDP socket of an endpoint: sends a batch of datagrams, receives what has arrived, says when
//! there is something to receive.
//!
//! The kernel cuts and joins segments (GSO, GRO). Marks for congestion are passed on both ways
//! (ECN). Nothing is fragmented. The socket may be read at any time. A task has it watched before
//! it sleeps; a thread blocks in the call that receives.
//!
//! * [`buffers`]: where datagrams are received into;
//! * [`readiness`]: when the socket may be read and written;
//! * `steering`: several sockets at one port, on Linux;
//! * `plain_send`: sending without ancillary data, on Linux;
//! * `blocking`: receiving by a call that blocks, on Unix.

#[cfg(unix)]
mod blocking;
mod buffers;
#[cfg(target_os = "linux")]
mod plain_send;
mod readiness;
#[cfg(target_os = "linux")]
mod steering;

use crate::driver::Host;
use buffers::{Buffers, FILLS_ALL};
use core::task::{Context, Poll, ready};
use quinn_udp::{EcnCodepoint, Transmit, UdpSocketState};
use readiness::Readiness;
use std::io;
use std::net::{IpAddr, SocketAddr};
use uts_engine::Ecn;

pub(crate) use buffers::Received;
#[cfg(target_os = "linux")]
pub(crate) use readiness::watch;

/// Asked of the kernel; it gives what it may. Half a second at 64 Mbit/s, or a few batches at 10
/// Gbit/s.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// The most that a UDP datagram, and hence a batch of segments, can hold over IPv4 (RFC 768, RFC
/// 791).
const BATCH_BYTES_MAX: usize = 65_507;

/// Receptions without sleep after which the runtime need not watch: to have it watch again costs as
/// much as a few packets.
const RECEPTIONS_AWAKE: u32 = 8;

/// A socket, bound to an address, and its buffers for what arrives.
pub(crate) struct Socket {
    io: Readiness,
    state: UdpSocketState,
    buffers: Buffers,
    /// The only peer, if it has one.
    peer: Option<SocketAddr>,
    /// The socket has several addresses. The kernel says to which a datagram came.
    has_many_addresses: bool,
    /// Receptions since the last sleep.
    receptions: u32,
    /// Another process reads what arrives.
    is_deaf: bool,
    #[cfg(unix)]
    blocking: blocking::Blocking,
    #[cfg(target_os = "linux")]
    plain: plain_send::PlainSend,
}

/// A socket that a program hands in.
#[allow(clippy::disallowed_types, reason = "it is the program's: no datagram passes through this type")]
pub(crate) type OwnSocket = std::net::UdpSocket;

/// A batch that is to be sent: datagrams of `segment_bytes`, the last may be shorter.
pub(crate) struct Batch<'a> {
    /// Where to.
    pub remote: SocketAddr,
    /// The address of this host that it is to come from; `None` = the system chooses.
    pub local: Option<IpAddr>,
    /// ECN mark of the datagrams.
    pub ecn: Option<Ecn>,
    /// Bytes of each datagram.
    pub segment_bytes: usize,
    /// All datagrams, one behind the other.
    pub contents: &'a [u8],
}

impl Socket {
    /// A socket at an address; `peer` = the only one that it will talk to, so that it hears of
    /// ports that are closed.
    pub fn bind(addr: SocketAddr, peer: Option<SocketAddr>, host: Host) -> io::Result<Self> {
        let socket = open(addr)?;
        if peer.is_none() {
            take_both_families(&socket, addr);
        }
        socket.bind(&addr.into())?;
        Self::adopt(socket, peer, host)
    }

    /// Sockets at one address for so many workers. A datagram comes to that of its worker.
    ///
    /// # Errors
    /// Those of the system. It cannot do that: only Linux can.
    pub fn bind_workers(addr: SocketAddr, workers: usize, host: Host) -> io::Result<Vec<Self>> {
        #[cfg(target_os = "linux")]
        return steering::bind(addr, workers)?
            .into_iter()
            .map(|socket| Self::adopt(socket, None, host))
            .collect();
        #[cfg(not(target_os = "linux"))]
        Err(io::Error::new(io::ErrorKind::Unsupported, "several workers at one port are for Linux"))
    }

    /// A socket that is bound already.
    pub fn adopt(socket: socket2::Socket, peer: Option<SocketAddr>, host: Host) -> io::Result<Self> {
        let addr = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let has_many_addresses = addr.ip().is_unspecified() && peer.is_none();
        socket.set_nonblocking(true)?;
        if let Some(peer) = peer {
            socket.connect(&peer.into())?;
        }
        let state = UdpSocketState::new((&socket).into())?;
        #[cfg(target_os = "linux")]
        if !has_many_addresses {
            tell_no_destinations(&socket);
        }
        Ok(Socket {
            io: Readiness::new(socket, host)?,
            state,
            buffers: Buffers::default(),
            peer,
            has_many_addresses,
            receptions: 0,
            is_deaf: false,
            #[cfg(unix)]
            blocking: blocking::Blocking::default(),
            #[cfg(target_os = "linux")]
            plain: plain_send::PlainSend::default(),
        })
    }

    /// Where it is bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    /// The one peer that errors of this socket are about, if it has only one.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Bytes that the kernel keeps of what has arrived, with its own overhead; 0 = it does not say.
    pub fn buffer_bytes(&self) -> usize {
        self.state.recv_buffer_size(self.io.socket()).unwrap_or(0)
    }

    /// Number of segments that the kernel takes at once.
    pub fn segments_max(&self) -> usize {
        self.state.max_gso_segments().max(1)
    }

    /// A second handle of the socket, for another process.
    ///
    /// # Errors
    /// Errors of the system.
    #[cfg(unix)]
    pub fn share(&self) -> io::Result<OwnSocket> {
        self.io.plain().try_clone().map(Into::into)
    }

    /// Has another process read what arrives, or no longer. This one sends all the same.
    #[cfg(unix)]
    pub fn set_deaf(&mut self, is_deaf: bool) {
        if is_deaf && !self.is_deaf {
            self.io.unwatch();
        }
        self.is_deaf = is_deaf;
    }

    // ---- receiving ----------------------------------------------------------------------------

    /// Hands over what has arrived, buffer by buffer; says whether there may be more. If nothing
    /// has, the task is woken once something does, but only while the socket is watched.
    pub fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        each: impl FnMut(Received<'_>),
    ) -> Poll<io::Result<bool>> {
        if self.is_deaf {
            return Poll::Pending;
        }
        self.receptions = self.receptions.saturating_add(1);
        if self.receptions > RECEPTIONS_AWAKE {
            self.io.unwatch();
        }
        if !self.io.is_watched() {
            return self.try_receive(each);
        }
        let (filled, offered) = loop {
            ready!(self.io.poll_readable(cx))?;
            let mut filled = Ok(0);
            let offered = self.buffers.offered();
            // Fewer than were offered is as much as there was. To say so here, rather than to ask
            // once more, saves a call: what arrives from now on is an event of its own.
            let all = self.io.read(|| {
                filled = self.buffers.fill(offered, &self.io, &self.state);
                match filled {
                    Ok(filled) if filled == offered || !FILLS_ALL => Ok(()),
                    Ok(_) => Err(io::ErrorKind::WouldBlock.into()),
                    // Only its kind counts here: the error itself is handed on below.
                    Err(ref e) if e.kind() == io::ErrorKind::WouldBlock => {
                        Err(io::ErrorKind::WouldBlock.into())
                    }
                    Err(_) => Err(io::ErrorKind::Other.into()),
                }
            });
            match filled {
                Ok(0) if all.is_err() => {}
                Ok(filled) => break (filled, offered),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        };
        self.buffers.hand_over(filled, self.has_many_addresses, each);
        // The next event must find a task to wake.
        Poll::Ready(Ok(filled == offered || self.io.poll_readable(cx).is_ready()))
    }

    /// Hands over what is there, if anything is, whatever the runtime knows of it; says whether
    /// there may be more. No task is woken.
    pub fn try_receive(&mut self, each: impl FnMut(Received<'_>)) -> Poll<io::Result<bool>> {
        if self.is_deaf {
            return Poll::Pending;
        }
        #[cfg(unix)]
        self.blocking.end(&self.io)?;
        self.receive(self.buffers.offered(), each)
    }

    /// The next datagram comes alone, for which it costs less to ask. Holds for one reception.
    #[cfg(unix)]
    pub fn expect_one(&mut self) {
        self.buffers.offer_one();
    }

    fn receive(&mut self, offered: usize, each: impl FnMut(Received<'_>)) -> Poll<io::Result<bool>> {
        match self.buffers.fill(offered, &self.io, &self.state) {
            Ok(0) => Poll::Pending,
            Ok(filled) => {
                self.buffers.hand_over(filled, self.has_many_addresses, each);
                Poll::Ready(Ok(filled == offered || !FILLS_ALL))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(e) => Poll::Ready(Err(e)),
        }
    }

    // ---- being told ---------------------------------------------------------------------------

    /// Has the task woken by what arrives, before it sleeps; says whether something may have
    /// arrived already.
    pub fn watch(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        self.receptions = 0;
        if self.is_deaf || self.io.is_watched() {
            return Ok(false);
        }
        self.io.watch()?;
        Ok(self.io.poll_readable(cx)?.is_ready())
    }

    /// No task is to be woken by what arrives, until the socket is watched: to wake one costs the
    /// sender.
    pub fn unwatch(&mut self) {
        self.io.unwatch();
    }

    /// True if arrivals wake the task.
    pub fn is_watched(&self) -> bool {
        self.io.is_watched()
    }

    // ---- sending ------------------------------------------------------------------------------

    /// Sends what the kernel takes at once of a batch: says how many bytes of it are done with.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, batch: &Batch<'_>) -> Poll<io::Result<usize>> {
        let segment_bytes = batch.segment_bytes.max(1);
        let segments = self.segments_max().min(BATCH_BYTES_MAX / segment_bytes).max(1);
        let contents = &batch.contents[..batch.contents.len().min(segments.saturating_mul(segment_bytes))];
        let transmit = Transmit {
            destination: batch.remote,
            ecn: batch.ecn.map(to_codepoint),
            contents,
            segment_size: (contents.len() > segment_bytes).then_some(segment_bytes),
            src_ip: batch.local,
        };
        #[cfg(target_os = "linux")]
        if let Some(sent) = self.plain.try_send(self.io.plain(), self.peer.is_some(), &transmit)
            && !sent.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
        {
            return Poll::Ready(sent.map(|()| contents.len()));
        }
        loop {
            ready!(self.io.poll_writable(cx))?;
            match self.io.write(|socket| self.state.try_send(socket, &transmit)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent.map(|()| contents.len())),
            }
        }
    }
}

/// A socket for addresses such as `addr`, not bound yet.
fn open(addr: SocketAddr) -> io::Result<socket2::Socket> {
    use socket2::{Domain, Protocol, Type};
    let socket = socket2::Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// `[::]` takes IPv4 as well where the system can do that.
fn take_both_families(socket: &socket2::Socket, addr: SocketAddr) {
    if addr.is_ipv6() && addr.ip().is_unspecified() {
        let _ = socket.set_only_v6(false);
    }
}

/// A socket that has an address for itself, for any peer.
#[cfg(target_os = "linux")]
fn bind(addr: SocketAddr) -> io::Result<socket2::Socket> {
    let socket = open(addr)?;
    take_both_families(&socket, addr);
    socket.bind(&addr.into())?;
    Ok(socket)
}

/// The kernel need not say to which address a datagram came. It would take a hundred nanoseconds
/// for each, of which the sender pays some where both are on one host.
#[cfg(target_os = "linux")]
fn tell_no_destinations(socket: &socket2::Socket) {
    use nix::sys::socket::{setsockopt, sockopt};
    // A socket has one of these, or both.
    let _ = setsockopt(socket, sockopt::Ipv4PacketInfo, &false);
    let _ = setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &false);
}

fn to_codepoint(ecn: Ecn) -> EcnCodepoint {
    match ecn {
        Ecn::Ect0 => EcnCodepoint::Ect0,
        Ecn::Ect1 => EcnCodepoint::Ect1,
        Ecn::Ce => EcnCodepoint::Ce,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// A batch arrives as the datagrams that it was made of, with its mark, whatever the kernel
    /// does to it on the way.
    #[tokio::test]
    async fn batches_arrive_as_datagrams() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let any: SocketAddr = any.parse().expect("an address");
            let Ok(mut receiver) = Socket::bind(any, None, Host::Runtime) else { continue };
            let to = receiver.local_addr().expect("bound");
            let mut sender = Socket::bind(any, Some(to), Host::Runtime).expect("bound");
            let contents: Vec<u8> = (0..100 * 1000 + 500).map(|n| (n / 1000) as u8).collect();
            let mut sent = 0;
            while sent < contents.len() {
                let batch = Batch {
                    local: None,
                    remote: to,
                    ecn: Some(Ecn::Ect0),
                    segment_bytes: 1000,
                    contents: &contents[sent..],
                };
                sent += poll_fn(|cx| sender.poll_send(cx, &batch)).await.expect("sent");
            }
            let mut datagrams: Vec<Vec<u8>> = Vec::new();
            while datagrams.len() < 101 {
                poll_fn(|cx| {
                    receiver.poll_receive(cx, |received| {
                        assert_eq!(received.ecn, Some(Ecn::Ect0));
                        assert_eq!(received.remote.port(), sender.local_addr().expect("bound").port());
                        datagrams.extend(received.contents.chunks(received.stride).map(<[u8]>::to_vec));
                    })
                })
                .await
                .expect("received");
            }
            assert_eq!(datagrams.concat(), contents);
            assert!(datagrams[..100].iter().all(|d| d.len() == 1000));
        }
    }

    /// The kernel says to which of its addresses a datagram came only where there are several: that
    /// costs.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[tokio::test]
    async fn the_kernel_tells_destinations_only_where_there_are_many_addresses() {
        for (bound, is_told) in
            [("127.0.0.1:0", false), ("0.0.0.0:0", true), ("[::1]:0", false), ("[::]:0", true)]
        {
            let bound: SocketAddr = bound.parse().expect("an address");
            let Ok(mut receiver) = Socket::bind(bound, None, Host::Runtime) else { continue };
            let here: IpAddr =
                if bound.is_ipv4() { [127, 0, 0, 1].into() } else { "::1".parse().expect("one") };
            let remote = SocketAddr::new(here, receiver.local_addr().expect("bound").port());
            let mut sender =
                Socket::bind(SocketAddr::new(here, 0), Some(remote), Host::Runtime).expect("bound");
            let batch = Batch { local: None, remote, ecn: None, segment_bytes: 4, contents: b"ping" };
            poll_fn(|cx| sender.poll_send(cx, &batch)).await.expect("sent");
            let mut local = None;
            poll_fn(|cx| receiver.poll_receive(cx, |received| local = received.local))
                .await
                .expect("received");
            assert_eq!(local, is_told.then_some(here), "{bound}");
            assert_eq!(receiver.buffers.destination(0), local, "{bound}");
        }
    }

    #[tokio::test]
    async fn a_connected_socket_hears_of_a_closed_port() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let closed = Socket::bind(any, None, Host::Runtime).expect("bound").local_addr().expect("bound");
        let mut socket = Socket::bind(any, Some(closed), Host::Runtime).expect("bound");
        let batch = Batch { remote: closed, local: None, ecn: None, segment_bytes: 4, contents: b"ping" };
        let error = loop {
            if let Err(error) = poll_fn(|cx| socket.poll_send(cx, &batch)).await {
                break error;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
