//! Sending without ancillary data: on Linux. Elsewhere systems differ in what a socket's own mark
//! is good for.
//!
//! Where a datagram goes and how it is marked (ECN) need not be said with each where the socket
//! knows it. That saves some tenths of a microsecond of a short round trip. For a batch whose
//! destination is said the kernel looks up a route; a connected socket keeps its own.

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use quinn_udp::Transmit;
use socket2::{SockAddr, Socket};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;

/// Mark that a socket puts on its datagrams, unless the ancillary data of a datagram says something
/// else.
#[derive(Debug, Default)]
pub(super) struct PlainSend {
    /// As ECN's two bits (RFC 3168 section 5).
    mark: u8,
    /// The mark of the last datagram, if it was another.
    other: Option<u8>,
    /// The system does not let the socket be marked.
    is_refused: bool,
}

impl PlainSend {
    /// Sends a datagram, or a batch, if it needs no ancillary data but how it is cut. `None` = it
    /// needs some. `is_connected` = to the only peer that the socket has.
    pub fn try_send(
        &mut self,
        socket: &Socket,
        is_connected: bool,
        transmit: &Transmit<'_>,
    ) -> Option<io::Result<()>> {
        // IPv4 by way of an IPv6 socket has a mark of its own.
        let is_plain = (transmit.segment_size.is_none() || is_connected)
            && transmit.src_ip.is_none()
            && !matches!(transmit.destination, SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some());
        if !is_plain || !self.marks(socket, transmit) {
            return None;
        }
        let sent = match transmit.segment_size {
            Some(bytes) => return send_segments(socket, transmit.contents, bytes),
            None if is_connected => socket.send(transmit.contents),
            None => socket.send_to(transmit.contents, &SockAddr::from(transmit.destination)),
        };
        Some(sent.map(|_| ()))
    }

    /// True if the socket marks datagrams as this one is to be marked. A single datagram with
    /// another mark changes nothing, two in a row do.
    fn marks(&mut self, socket: &Socket, transmit: &Transmit<'_>) -> bool {
        let wanted = transmit.ecn.map_or(0, |ecn| ecn as u8);
        if wanted == self.mark {
            self.other = None;
            return true;
        }
        if self.is_refused || self.other.replace(wanted) != Some(wanted) {
            return false;
        }
        let marked = match transmit.destination {
            SocketAddr::V4(_) => socket.set_tos_v4(wanted.into()),
            SocketAddr::V6(_) => socket.set_tclass_v6(wanted.into()),
        };
        self.is_refused = marked.is_err();
        if !self.is_refused {
            (self.mark, self.other) = (wanted, None);
        }
        !self.is_refused
    }
}

/// Sends datagrams of so many bytes, of which the last may be shorter, to the peer that the socket
/// is connected to (GSO). `None` = the kernel does not cut them, or not so.
fn send_segments(socket: &Socket, contents: &[u8], bytes: usize) -> Option<io::Result<()>> {
    let bytes = u16::try_from(bytes).ok()?;
    let segments = [ControlMessage::UdpGsoSegments(&bytes)];
    let ancillary = if contents.len() > usize::from(bytes) { &segments[..] } else { &[] };
    let contents = [io::IoSlice::new(contents)];
    match sendmsg::<()>(socket.as_raw_fd(), &contents, ancillary, MsgFlags::empty(), None) {
        Err(Errno::EINVAL | Errno::EIO | Errno::EOPNOTSUPP) => None,
        sent => Some(sent.map(|_| ()).map_err(io::Error::from)),
    }
}

#[cfg(test)]
mod tests {
    use crate::driver::Host;
    use crate::driver::socket::{Batch, Socket};
    use crate::driver::testing::{Arrived, receive};
    use core::task::{Context, Poll, Waker};
    use std::net::SocketAddr;
    use uts_engine::Ecn;

    /// Whatever the one before was marked with, and whether the socket knows where it goes.
    #[test]
    fn each_arrives_with_its_own_mark() {
        let marks = [
            None,
            Some(Ecn::Ect0),
            Some(Ecn::Ect0),
            Some(Ecn::Ect0),
            None,
            Some(Ecn::Ect0),
            Some(Ecn::Ce),
            None,
            None,
            None,
            Some(Ecn::Ect1),
            Some(Ecn::Ect0),
            Some(Ecn::Ect0),
        ];
        let cx = &mut Context::from_waker(Waker::noop());
        for (to, from) in [
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("127.0.0.1:0", "0.0.0.0:0"),
            ("[::1]:0", "[::1]:0"),
            ("[::1]:0", "[::]:0"),
            ("127.0.0.1:0", "[::]:0"),
        ] {
            let at = |addr: &str| addr.parse::<SocketAddr>().expect("an address");
            let Ok(mut receiver) = Socket::bind(at(to), None, Host::Thread) else { continue };
            let to = receiver.local_addr().expect("bound");
            let is_mapped = to.is_ipv4() && !at(from).is_ipv4();
            for peer in [None, (!is_mapped).then_some(to)] {
                let mut sender = Socket::bind(at(from), peer, Host::Thread).expect("bound");
                let remote = match to {
                    SocketAddr::V4(v4) if is_mapped => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
                    to => to,
                };
                // Some alone, and some as batches whose last is shorter.
                for bytes in [7, 19] {
                    let mut expected = Vec::new();
                    for (n, ecn) in (0..).zip(marks) {
                        let contents = &vec![n; bytes];
                        let batch = Batch { remote, local: None, ecn, segment_bytes: 7, contents };
                        let sent = sender.poll_send(cx, &batch);
                        assert!(matches!(sent, Poll::Ready(Ok(sent)) if sent == bytes), "{from} to {to}");
                        expected.extend(contents.chunks(7).map(|one| (one.to_vec(), ecn)));
                    }
                    let mut arrived = Vec::new();
                    while arrived.len() < expected.len() {
                        let more = receive(&mut receiver, arrived.len() % 3 == 0);
                        assert!(!more.is_empty(), "{from} to {to}, {peer:?}: {arrived:?}");
                        for Arrived { ecn, stride, contents, .. } in more {
                            arrived.extend(contents.chunks(stride).map(|one| (one.to_vec(), ecn)));
                        }
                    }
                    assert_eq!(arrived, expected, "{from} to {to}, {peer:?}, {bytes} bytes");
                }
            }
        }
    }
}
