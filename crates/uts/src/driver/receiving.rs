//! Receiving for less than a call takes that may bring many datagrams from anybody.
//!
//! To be told who has sent a datagram takes 65 ns, a tenth of what it takes to receive one, and a socket that is connected has one peer. To
//! receive one by a call that could bring many takes a few hundredths of a microsecond more than by one that brings one.

use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc::{in_pktinfo, in6_pktinfo};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrLike, SockaddrStorage, recvmmsg, recvmsg,
};
use quinn_udp::{EcnCodepoint, RecvMeta};
use socket2::Socket;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

/// Where the kernel says what is known of a datagram beside its contents.
pub(super) struct Said(Vec<u8>);

impl Default for Said {
    fn default() -> Self {
        // Mark, segments, and the address that it was sent to, as both versions of IP say it.
        Said(cmsg_space!(u8, i32, i32, in_pktinfo, in6_pktinfo))
    }
}

/// Receives into one buffer, and says what is known of what is in it. `peer` = who has sent it; `None` = the kernel says.
pub(super) fn receive(
    socket: &Socket,
    buffer: &mut [u8],
    said: &mut Said,
    peer: Option<SocketAddr>,
) -> io::Result<RecvMeta> {
    match peer {
        Some(peer) => receive_one(socket, buffer, said, |()| Some(peer)),
        None => receive_one(socket, buffer, said, address),
    }
}

fn receive_one<S: SockaddrLike + Copy>(
    socket: &Socket,
    buffer: &mut [u8],
    said: &mut Said,
    sender: impl Fn(S) -> Option<SocketAddr>,
) -> io::Result<RecvMeta> {
    let buffers = &mut [IoSliceMut::new(buffer)];
    let received = loop {
        match recvmsg::<S>(socket.as_raw_fd(), buffers, Some(&mut said.0), MsgFlags::empty()) {
            Err(Errno::EINTR) => {}
            received => break received?,
        }
    };
    let addr = received.address.and_then(sender);
    let addr = addr.ok_or_else(|| io::Error::other("the kernel does not say who sent a datagram"))?;
    known(&received, addr)
}

/// Receives what `peer` has sent, into as many of the buffers as there is something for, and says what is known of what is in each; how
/// many these are.
pub(super) fn receive_from<'a>(
    peer: SocketAddr,
    socket: &Socket,
    buffers: impl Iterator<Item = &'a mut [u8]>,
    metas: &mut [RecvMeta],
) -> io::Result<usize> {
    // Made for one call: the kernel leaves in it how much of its room it has used.
    let mut headers = MultiHeaders::<()>::preallocate(metas.len(), Some(Said::default().0));
    let mut slices: Vec<_> = buffers.map(|buffer| [IoSliceMut::new(buffer)]).collect();
    // Interrupted it is only while it waits, which it does not.
    let received = recvmmsg(socket.as_raw_fd(), &mut headers, &mut slices, MsgFlags::empty(), None)?;
    let mut filled = 0;
    for (meta, received) in metas.iter_mut().zip(received) {
        *meta = known(&received, peer)?;
        filled += 1;
    }
    Ok(filled)
}

/// What is known of what has been received.
fn known<S>(received: &RecvMsg<'_, '_, S>, addr: SocketAddr) -> io::Result<RecvMeta> {
    let mut meta = RecvMeta::default();
    (meta.addr, meta.len, meta.stride) = (addr, received.bytes, received.bytes);
    for said in received.cmsgs()? {
        match said {
            ControlMessageOwned::Ipv4Tos(tos) => meta.ecn = EcnCodepoint::from_bits(tos),
            ControlMessageOwned::Ipv6TClass(class) => meta.ecn = EcnCodepoint::from_bits(class as u8),
            ControlMessageOwned::UdpGroSegments(bytes) => {
                meta.stride = usize::try_from(bytes).unwrap_or(meta.len);
            }
            ControlMessageOwned::Ipv4PacketInfo(to) => {
                meta.dst_ip = Some(std::net::Ipv4Addr::from(to.ipi_addr.s_addr.to_ne_bytes()).into());
            }
            ControlMessageOwned::Ipv6PacketInfo(to) => {
                meta.dst_ip = Some(std::net::Ipv6Addr::from(to.ipi6_addr.s6_addr).into());
            }
            _ => {}
        }
    }
    Ok(meta)
}

fn address(name: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = name.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| name.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}

#[cfg(test)]
mod tests {
    use crate::driver::Host;
    use crate::driver::socket::{Batch, Socket};
    use crate::driver::testing::{Arrived, receive};
    use core::task::{Context, Poll, Waker};
    use std::net::SocketAddr;
    use uts_engine::Ecn;

    /// Joined datagrams, marks, and addresses at both ends: by a call that brings one, and to who has one peer, as by others and to others.
    #[test]
    fn what_is_said_of_a_datagram_is_the_same_by_all_calls() {
        let cx = &mut Context::from_waker(Waker::noop());
        for (to, from, has_one_peer) in [
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("127.0.0.1:0", "127.0.0.1:0", true),
            ("0.0.0.0:0", "127.0.0.1:0", false),
            ("0.0.0.0:0", "127.0.0.1:0", true),
            ("[::1]:0", "[::1]:0", false),
            ("[::1]:0", "[::1]:0", true),
            ("[::]:0", "[::1]:0", false),
            ("[::]:0", "[::1]:0", true),
            ("[::]:0", "127.0.0.1:0", false),
        ] {
            let at = |addr: &str| addr.parse::<SocketAddr>().expect("an address");
            let Ok(mut sender) = Socket::bind(at(from), None, Host::Thread) else { continue };
            let from = sender.local_addr().expect("bound");
            let peer = has_one_peer.then_some(from);
            let Ok(mut receiver) = Socket::bind(at(to), peer, Host::Thread) else { continue };
            let remote = SocketAddr::new(from.ip(), receiver.local_addr().expect("bound").port());
            for (ecn, bytes) in [(None, 1), (Some(Ecn::Ect0), 700), (Some(Ecn::Ce), 5_500), (None, 30_000)] {
                let contents: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
                let batch = Batch { remote, local: None, ecn, segment_bytes: 1_000, contents: &contents };
                // By the third it has been seen that nothing was left of what came before there was one peer.
                let [one, many, again] = [true, false, false].map(|alone| {
                    assert!(matches!(sender.poll_send(cx, &batch), Poll::Ready(Ok(n)) if n == bytes));
                    let mut arrived = Vec::new();
                    while arrived.iter().map(|a: &Arrived| a.contents.len()).sum::<usize>() < bytes {
                        let more = receive(&mut receiver, alone);
                        assert!(!more.is_empty(), "{to} from {from}, {peer:?}: {arrived:?} of {bytes}");
                        arrived.extend(more);
                    }
                    arrived
                });
                assert_eq!(one, many, "{to} from {from}, {peer:?}, {ecn:?}");
                assert_eq!(again, many, "{to} from {from}, {peer:?}, {ecn:?}");
                assert_eq!((one[0].remote.port(), one[0].ecn), (from.port(), ecn), "{to} from {from}");
                let is_told = at(to).ip().is_unspecified() && !has_one_peer;
                assert_eq!(one[0].local.is_some(), is_told, "{to} from {from}, {peer:?}");
            }
        }
    }
}
