//! A UDP socket that reads and writes datagrams singly, whatever the kernel batches.

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

/// Kernel buffers: at 100 Mbit/s a third of a second, for a relay that is kept from running.
const KERNEL_BUFFER_BYTES: usize = 4 << 20;
/// The most that one message takes: 64 KiB also when the kernel has joined datagrams (GRO).
const MESSAGE_BYTES: usize = 1 << 16;

/// Room for a batch of messages, shared by all sockets of a relay.
#[derive(Debug)]
pub(super) struct Batch {
    buffers: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
}

impl Batch {
    pub(super) fn new() -> Self {
        Batch { buffers: vec![0; MESSAGE_BYTES * BATCH_SIZE], metas: [RecvMeta::default(); BATCH_SIZE] }
    }
}

/// A datagram as it was read.
#[derive(Debug)]
pub(super) struct Received<'a> {
    pub from: SocketAddr,
    /// The local address it was sent to.
    pub to_ip: Option<IpAddr>,
    pub ecn: Option<EcnCodepoint>,
    pub bytes: &'a [u8],
}

/// A non-blocking socket that does not fragment.
#[derive(Debug)]
pub(super) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
}

impl Socket {
    pub(super) fn bind(addr: SocketAddr) -> io::Result<Self> {
        let io = UdpSocket::bind(addr)?;
        // The forced size needs a privilege; the plain one is cut to the system's limit.
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&io, KERNEL_BUFFER_BYTES).is_err() {
            rustix::net::sockopt::set_socket_recv_buffer_size(&io, KERNEL_BUFFER_BYTES)?;
        }
        if rustix::net::sockopt::set_socket_send_buffer_size_force(&io, KERNEL_BUFFER_BYTES).is_err() {
            rustix::net::sockopt::set_socket_send_buffer_size(&io, KERNEL_BUFFER_BYTES)?;
        }
        // Makes it non-blocking, sets DF, and asks for ECN, GRO and the address sent to.
        let state = UdpSocketState::new(UdpSockRef::from(&io))?;
        Ok(Socket { io, state })
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    /// Reads one batch and gives each datagram to `take`. Returns whether there may be more.
    pub(super) fn receive(&self, batch: &mut Batch, mut take: impl FnMut(Received<'_>)) -> io::Result<bool> {
        let mut chunks = batch.buffers.chunks_mut(MESSAGE_BYTES);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        let count = match self.state.recv(UdpSockRef::from(&self.io), &mut slices, &mut batch.metas) {
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            // An ICMP error that the kernel reports here concerns a datagram of the past.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return Ok(true),
            Err(e) => return Err(e),
        };
        for (meta, slice) in batch.metas.iter().zip(&slices).take(count) {
            let message = slice.get(..meta.len).unwrap_or_default();
            let received = |bytes| Received { from: meta.addr, to_ip: meta.dst_ip, ecn: meta.ecn, bytes };
            if message.is_empty() {
                take(received(message));
            }
            message.chunks(meta.stride.max(1)).for_each(|bytes| take(received(bytes)));
        }
        Ok(count == BATCH_SIZE)
    }

    /// Sends one datagram, from the local address `from_ip` if given.
    pub(super) fn send(
        &self,
        destination: SocketAddr,
        from_ip: Option<IpAddr>,
        ecn: Option<EcnCodepoint>,
        contents: &[u8],
    ) -> io::Result<()> {
        let transmit = Transmit { destination, ecn, contents, segment_size: None, src_ip: from_ip };
        self.state.try_send(UdpSockRef::from(&self.io), &transmit)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}
