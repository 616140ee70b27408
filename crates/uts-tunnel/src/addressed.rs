//! UDP sockets that answer from the address that was sent to.
//!
//! A socket at all addresses of a host (`*`) is bound to none of them. The system chooses the
//! address from which an answer leaves. A program whose own socket is connected hears nothing from
//! another address than it has sent to. So the system is asked to which address each datagram came
//! (IP_PKTINFO, and IPV6_RECVPKTINFO of RFC 3542 section 6.1), and told to answer from there.

use std::io;
use std::net::SocketAddr;
use tokio::net::UdpSocket;

/// A UDP socket.
pub struct Addressed {
    socket: UdpSocket,
    /// The system says to which address a datagram came.
    has_many_addresses: bool,
}

/// Sender of a datagram, and the address to which it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// Its address and port.
    pub from: SocketAddr,
    /// The address of this host; `None` = the socket has only one, or the system does not say.
    at: Option<imp::At>,
}

impl Addressed {
    /// A socket at an address.
    ///
    /// # Errors
    /// What the operating system says.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address).await?;
        // If it cannot be had, the system chooses.
        let has_many_addresses = address.ip().is_unspecified() && imp::ask(&socket, address).is_ok();
        Ok(Addressed { socket, has_many_addresses })
    }

    /// Where it is bound.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Waits for the next datagram. Returns its length in bytes; what finds no space is cut off.
    ///
    /// # Errors
    /// What the operating system says.
    pub async fn receive(&self, space: &mut [u8]) -> io::Result<(usize, Origin)> {
        if self.has_many_addresses {
            return imp::receive(&self.socket, space).await;
        }
        let (bytes, from) = self.socket.recv_from(space).await?;
        Ok((bytes, Origin { from, at: None }))
    }

    /// Answers a sender.
    ///
    /// # Errors
    /// What the operating system says.
    pub async fn answer(&self, datagram: &[u8], to: Origin) -> io::Result<()> {
        if let Some(at) = to.at
            && imp::send(&self.socket, datagram, to.from, at).await.is_ok()
        {
            return Ok(());
        }
        // An address for many (broadcast), or one that this host has no more.
        self.socket.send_to(datagram, to.from).await.map(drop)
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use super::Origin;
    use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
    use nix::sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
    };
    use std::io::{self, IoSlice, IoSliceMut};
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
    use std::os::fd::AsRawFd;
    use tokio::io::Interest;
    use tokio::net::UdpSocket;

    /// An address of this host.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum At {
        V4(Ipv4Addr),
        /// With the index of the interface, if it means something only there.
        V6(Ipv6Addr, u32),
    }

    pub fn ask(socket: &UdpSocket, address: SocketAddr) -> io::Result<()> {
        let asked = if address.is_ipv4() {
            setsockopt(socket, sockopt::Ipv4PacketInfo, &true)
        } else {
            setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)
        };
        Ok(asked?)
    }

    pub async fn receive(socket: &UdpSocket, space: &mut [u8]) -> io::Result<(usize, Origin)> {
        let received = socket.async_io(Interest::READABLE, || {
            let mut control = nix::cmsg_space!(in6_pktinfo);
            let mut parts = [IoSliceMut::new(space)];
            let flags = MsgFlags::empty();
            let message =
                recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
            let from = message.address.as_ref().and_then(to_std).ok_or(io::ErrorKind::InvalidData)?;
            let at = message.cmsgs()?.find_map(|control| match control {
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    Some(At::V4(u32::from_be(info.ipi_spec_dst.s_addr).into()))
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    let address = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                    let is_local = address.is_unicast_link_local();
                    Some(At::V6(address, if is_local { info.ipi6_ifindex } else { 0 }))
                }
                _ => None,
            });
            Ok((message.bytes, Origin { from, at }))
        });
        received.await
    }

    pub async fn send(socket: &UdpSocket, datagram: &[u8], to: SocketAddr, at: At) -> io::Result<()> {
        let to = SockaddrStorage::from(to);
        let send = |control: ControlMessage<'_>| {
            let parts = [IoSlice::new(datagram)];
            sendmsg(socket.as_raw_fd(), &parts, &[control], MsgFlags::empty(), Some(&to))?;
            Ok(())
        };
        let sent = socket.async_io(Interest::WRITABLE, || match at {
            At::V4(address) => send(ControlMessage::Ipv4PacketInfo(&in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: in_addr { s_addr: u32::from(address).to_be() },
                ipi_addr: in_addr { s_addr: 0 },
            })),
            At::V6(address, index) => send(ControlMessage::Ipv6PacketInfo(&in6_pktinfo {
                ipi6_addr: in6_addr { s6_addr: address.octets() },
                ipi6_ifindex: index,
            })),
        });
        sent.await
    }

    fn to_std(address: &SockaddrStorage) -> Option<SocketAddr> {
        let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use super::Origin;
    use std::io;
    use std::net::SocketAddr;
    use tokio::net::UdpSocket;

    /// None is known.
    pub type At = std::convert::Infallible;

    pub fn ask(_: &UdpSocket, _: SocketAddr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub async fn receive(_: &UdpSocket, _: &mut [u8]) -> io::Result<(usize, Origin)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub async fn send(_: &UdpSocket, _: &[u8], _: SocketAddr, at: At) -> io::Result<()> {
        match at {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks a socket at `any` by two addresses, from connected sockets.
    async fn is_heard(any: &str, at: &[&str]) {
        let socket = Addressed::bind(any.parse().unwrap()).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        for at in at {
            let to: SocketAddr = format!("{at}:{port}").parse().unwrap();
            let program =
                UdpSocket::bind(if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }).await.unwrap();
            program.connect(to).await.unwrap();
            for bytes in [0, 9, 9000] {
                program.send(&vec![7; bytes]).await.unwrap();
                let mut space = vec![0; 10_000];
                let (received, sender) = socket.receive(&mut space).await.unwrap();
                assert_eq!(received, bytes);
                socket.answer(&space[..received], sender).await.unwrap();
                let answered = program.recv(&mut space);
                let answered = tokio::time::timeout(std::time::Duration::from_secs(30), answered).await;
                assert_eq!(answered.expect("it is not heard").unwrap(), bytes, "{any} {at}");
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_answer_comes_from_where_the_question_went() {
        is_heard("0.0.0.0:0", &["127.0.0.1", "127.0.0.3"]).await;
        is_heard("127.0.0.2:0", &["127.0.0.2"]).await;
        if UdpSocket::bind("[::1]:0").await.is_ok() {
            is_heard("[::]:0", &["127.0.0.1", "127.0.0.3", "[::1]"]).await;
        }
    }
}
