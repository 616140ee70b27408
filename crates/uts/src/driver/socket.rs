//! A UDP socket with segmentation offload both ways, ECN, and no IP fragmentation.

use super::readiness::Readiness;
use core::task::{Context, Poll, ready};
use quinn_udp::{EcnCodepoint, RecvMeta, UdpSockRef, UdpSocketState};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use uts_engine::Ecn;

/// Asked of the kernel; it gives what it may. Half a second at 64 Mbit/s, or a few batches at 10 Gbit/s.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Buffers that one call may fill. Each holds what the kernel coalesces, at most 64 KiB; of memory that is never written
/// to the system takes none.
const BUFFERS: usize = 32;
const BUFFER_BYTES: usize = 64 << 10;

/// Buffers that are offered at least, if little comes in each.
const OFFERED_MIN: usize = 4;

/// Whether a call fills as many buffers as there is anything for; elsewhere it fills one.
const FILLS_ALL: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// What one call should bring at most, so that it is still in cache when it is taken in, and is read before more comes:
/// the more the kernel coalesces the fewer buffers are filled at once.
const CALL_BYTES: usize = 64 << 10;

/// The most that a UDP datagram, and hence a batch of segments, can hold over IPv4 (RFC 768, RFC 791).
const BATCH_BYTES_MAX: usize = 65_507;

/// A socket, and its buffers for what arrives.
pub(crate) struct Socket {
    io: Readiness,
    state: UdpSocketState,
    /// All buffers, one behind the other.
    memory: Vec<u8>,
    /// How many of them the next call may fill.
    offered: usize,
    metas: [RecvMeta; BUFFERS],
    is_connected: bool,
    /// Bound to no address in particular, so that the system would choose one for what is sent.
    has_many_addresses: bool,
}

/// What arrived in one buffer: datagrams of `stride` bytes, the last may be shorter.
pub(crate) struct Received<'a> {
    pub remote: SocketAddr,
    /// The address of this host that it was sent to, where the socket has several.
    pub local: Option<IpAddr>,
    pub ecn: Option<Ecn>,
    pub stride: usize,
    pub contents: &'a mut [u8],
}

/// A batch that is to be sent: datagrams of `segment_bytes`, the last may be shorter.
pub(crate) struct Batch<'a> {
    pub remote: SocketAddr,
    /// The address of this host that it is to come from; `None` = the system chooses.
    pub local: Option<IpAddr>,
    pub ecn: Option<Ecn>,
    pub segment_bytes: usize,
    pub contents: &'a [u8],
}

impl Socket {
    /// A socket at an address; `peer` = the only one that it will talk to, so that it hears of ports that are closed.
    pub fn bind(addr: SocketAddr, peer: Option<SocketAddr>) -> io::Result<Self> {
        use socket2::{Domain, Protocol, Type};
        let socket = socket2::Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
        if let SocketAddr::V6(v6) = addr {
            // `[::]` takes IPv4 as well where the system can do that.
            if v6.ip().is_unspecified() && peer.is_none() {
                let _ = socket.set_only_v6(false);
            }
        }
        let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
        socket.set_nonblocking(true)?;
        socket.bind(&addr.into())?;
        if let Some(peer) = peer {
            socket.connect(&peer.into())?;
        }
        let io = Readiness::new(socket)?;
        let state = UdpSocketState::new(io.socket())?;
        let has_many_addresses = addr.ip().is_unspecified() && peer.is_none();
        if !has_many_addresses {
            io.tell_no_destinations();
        }
        Ok(Socket {
            io,
            state,
            memory: vec![0; BUFFERS * BUFFER_BYTES],
            offered: OFFERED_MIN,
            metas: [RecvMeta::default(); BUFFERS],
            is_connected: peer.is_some(),
            has_many_addresses,
        })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    /// What the kernel keeps of what has arrived, with what it takes to keep it; 0 = it does not say.
    pub fn buffer_bytes(&self) -> usize {
        self.state.recv_buffer_size(self.io.socket()).unwrap_or(0)
    }

    /// How many segments the kernel takes at once.
    pub fn segments_max(&self) -> usize {
        self.state.max_gso_segments().max(1)
    }

    /// Waits for datagrams, and hands them over buffer by buffer; says whether there may be more. Nobody is woken while the socket is
    /// not watched.
    pub fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        each: impl FnMut(Received<'_>),
    ) -> Poll<io::Result<bool>> {
        if !self.io.is_watched() {
            return self.try_receive(each);
        }
        let (filled, offered) = loop {
            ready!(self.io.poll_readable(cx))?;
            let mut filled = Ok(0);
            let offered = self.offered;
            // Fewer than were offered is as much as there was. To say so here, rather than to ask once more, saves a call:
            // what arrives from now on is an event of its own.
            let all = self.io.read(|| {
                filled = receive(self.io.socket(), &self.state, &mut self.memory, &mut self.metas[..offered]);
                match filled {
                    Ok(filled) if filled == offered || !FILLS_ALL => Ok(()),
                    Ok(_) => Err(io::ErrorKind::WouldBlock.into()),
                    Err(ref e) => Err(e.kind().into()),
                }
            });
            match filled {
                Ok(0) if all.is_err() => {}
                Ok(filled) => break (filled, offered),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        };
        self.hand_over(filled, each);
        // The next event must find somebody to wake.
        Poll::Ready(Ok(filled == offered || self.io.poll_readable(cx).is_ready()))
    }

    /// Hands over what is there, if anything is, whatever the runtime knows of it; says whether there may be more. Has nobody woken.
    pub fn try_receive(&mut self, each: impl FnMut(Received<'_>)) -> Poll<io::Result<bool>> {
        let offered = self.offered;
        match receive(self.io.socket(), &self.state, &mut self.memory, &mut self.metas[..offered]) {
            Ok(0) => Poll::Pending,
            Ok(filled) => {
                self.hand_over(filled, each);
                Poll::Ready(Ok(filled == offered || !FILLS_ALL))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(e) => Poll::Ready(Err(e)),
        }
    }

    /// Nobody is to be woken by what arrives, until the socket is watched: to wake costs who sends it.
    pub fn unwatch(&mut self) {
        self.io.unwatch();
    }

    /// Has the task woken by what arrives; says whether something may have already.
    pub fn watch(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.io.is_watched() {
            return Ok(false);
        }
        self.io.watch()?;
        Ok(self.io.poll_readable(cx)?.is_ready())
    }

    /// Whether the task is woken by what arrives.
    #[cfg(all(test, target_os = "linux"))]
    pub fn is_watched(&self) -> bool {
        self.io.is_watched()
    }

    fn hand_over(&mut self, filled: usize, mut each: impl FnMut(Received<'_>)) {
        let mut bytes = 0;
        for (meta, buffer) in self.metas.iter().zip(self.memory.chunks_mut(BUFFER_BYTES)).take(filled) {
            let contents = &mut buffer[..meta.len.min(BUFFER_BYTES)];
            bytes += contents.len();
            if contents.is_empty() {
                continue;
            }
            let stride = meta.stride.clamp(1, contents.len());
            let local = meta.dst_ip.filter(|_| self.has_many_addresses);
            each(Received { remote: meta.addr, local, ecn: meta.ecn.map(from_codepoint), stride, contents });
        }
        // To offer a buffer costs something, too.
        let wanted = if filled == self.offered { 2 * filled } else { filled + 2 };
        let mean = bytes.checked_div(filled).unwrap_or(0).max(1);
        let most = (CALL_BYTES / mean).clamp(1, BUFFERS);
        self.offered = wanted.max(OFFERED_MIN).min(most);
    }

    /// Sends what the kernel takes at once of a batch: says how many bytes of it are done with.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, batch: &Batch<'_>) -> Poll<io::Result<usize>> {
        let segment_bytes = batch.segment_bytes.max(1);
        let segments = self.segments_max().min(BATCH_BYTES_MAX / segment_bytes).max(1);
        let contents = &batch.contents[..batch.contents.len().min(segments.saturating_mul(segment_bytes))];
        let transmit = quinn_udp::Transmit {
            destination: batch.remote,
            ecn: batch.ecn.map(to_codepoint),
            contents,
            segment_size: (contents.len() > segment_bytes).then_some(segment_bytes),
            src_ip: batch.local,
        };
        loop {
            ready!(self.io.poll_writable(cx))?;
            match self.io.write(|socket| self.state.try_send(socket, &transmit)) {
                Ok(()) => return Poll::Ready(Ok(contents.len())),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// Whether errors of this socket are about its one peer.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }
}

fn receive(
    socket: UdpSockRef<'_>,
    state: &UdpSocketState,
    memory: &mut [u8],
    metas: &mut [RecvMeta],
) -> io::Result<usize> {
    let mut slices: [IoSliceMut<'_>; BUFFERS] = core::array::from_fn(|_| IoSliceMut::new(&mut []));
    let slices = &mut slices[..metas.len()];
    for (slice, buffer) in slices.iter_mut().zip(memory.chunks_mut(BUFFER_BYTES)) {
        *slice = IoSliceMut::new(buffer);
    }
    state.recv(socket, slices, metas)
}

fn from_codepoint(ecn: EcnCodepoint) -> Ecn {
    match ecn {
        EcnCodepoint::Ect0 => Ecn::Ect0,
        EcnCodepoint::Ect1 => Ecn::Ect1,
        EcnCodepoint::Ce => Ecn::Ce,
    }
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

    /// A batch arrives as the datagrams that it was made of, with its mark, whatever the kernel does to it on the way.
    #[tokio::test]
    async fn batches_arrive_as_datagrams() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let any: SocketAddr = any.parse().expect("an address");
            let Ok(mut receiver) = Socket::bind(any, None) else { continue };
            let to = receiver.local_addr().expect("bound");
            let mut sender = Socket::bind(any, Some(to)).expect("bound");
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

    /// The kernel says to which of its addresses a datagram came only where there are several: that costs.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[tokio::test]
    async fn the_kernel_tells_destinations_only_to_who_has_many_addresses() {
        for (bound, is_told) in
            [("127.0.0.1:0", false), ("0.0.0.0:0", true), ("[::1]:0", false), ("[::]:0", true)]
        {
            let bound: SocketAddr = bound.parse().expect("an address");
            let Ok(mut receiver) = Socket::bind(bound, None) else { continue };
            let here: IpAddr =
                if bound.is_ipv4() { [127, 0, 0, 1].into() } else { "::1".parse().expect("one") };
            let remote = SocketAddr::new(here, receiver.local_addr().expect("bound").port());
            let mut sender = Socket::bind(SocketAddr::new(here, 0), Some(remote)).expect("bound");
            let batch = Batch { local: None, remote, ecn: None, segment_bytes: 4, contents: b"ping" };
            poll_fn(|cx| sender.poll_send(cx, &batch)).await.expect("sent");
            poll_fn(|cx| receiver.poll_receive(cx, |_| ())).await.expect("received");
            assert_eq!(receiver.metas[0].dst_ip, is_told.then_some(here), "{bound}");
        }
    }

    #[tokio::test]
    async fn a_connected_socket_hears_of_a_closed_port() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let closed = Socket::bind(any, None).expect("bound").local_addr().expect("bound");
        let mut socket = Socket::bind(any, Some(closed)).expect("bound");
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
