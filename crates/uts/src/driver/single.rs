//! Sending a datagram that goes alone.
//!
//! What is said beside a batch, where it goes, how it is marked and cut, is said with each. Of a single datagram the socket itself may know
//! where it goes and how it is marked, and the kernel need not be told: some tenths of a microsecond of a short round trip.

use quinn_udp::Transmit;
use socket2::{SockAddr, Socket};
use std::io;
use std::net::SocketAddr;

/// How a socket marks what it sends, unless something else is said.
#[derive(Debug, Default)]
pub(super) struct Single {
    /// As ECN's two bits (RFC 3168 section 5).
    mark: u8,
    /// The mark of the last one that had another, if it was the last.
    other: Option<u8>,
    is_refused: bool,
}

impl Single {
    /// Sends a datagram that needs nothing said beside it, if this is one. `is_connected` = to the only peer that the socket has.
    pub fn try_send(
        &mut self,
        socket: &Socket,
        is_connected: bool,
        transmit: &Transmit<'_>,
    ) -> Option<io::Result<()>> {
        // Elsewhere systems differ in what a socket's own mark is good for, and IPv4 by way of an IPv6 socket has another one.
        let is_plain = cfg!(target_os = "linux")
            && transmit.segment_size.is_none()
            && transmit.src_ip.is_none()
            && !matches!(transmit.destination, SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some());
        if !is_plain || !self.marks(socket, transmit) {
            return None;
        }
        let sent = if is_connected {
            socket.send(transmit.contents)
        } else {
            socket.send_to(transmit.contents, &SockAddr::from(transmit.destination))
        };
        Some(sent.map(|_| ()))
    }

    /// Whether the socket marks what it sends as this is to be. One that is marked otherwise changes nothing, two in a row do.
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use crate::driver::socket::{Batch, Socket};
    use crate::host::Host;
    use core::task::{Context, Poll, Waker};
    use std::net::SocketAddr;
    use uts_engine::Ecn;

    /// Whatever the one before was marked with, and whoever knows where it goes.
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
                let mut arrived = Vec::new();
                for (n, ecn) in (0..).zip(marks) {
                    let contents: &[u8] = &[n; 7];
                    let batch = Batch { remote, local: None, ecn, segment_bytes: 7, contents };
                    assert!(matches!(sender.poll_send(cx, &batch), Poll::Ready(Ok(7))), "{from} to {to}");
                }
                for _ in 0..10_000_000 {
                    if arrived.len() == marks.len() {
                        break;
                    }
                    let received =
                        receiver.try_receive(|received| arrived.push((received.contents[0], received.ecn)));
                    if received.is_pending() {
                        std::thread::yield_now();
                    }
                }
                assert_eq!(arrived, (0..).zip(marks).collect::<Vec<_>>(), "{from} to {to}, {peer:?}");
            }
        }
    }
}
