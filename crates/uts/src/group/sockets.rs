//! Sockets of groups.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::UdpSocket;

/// Bytes that the system keeps of what has arrived and was not read.
const SOCKET_BYTES: usize = 4 << 20;

/// A socket that sends to a group, and at which requests arrive.
pub(super) fn sending(group: SocketAddr, own: IpAddr, hops: u32) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&SocketAddr::new(unspecified(group), 0).into())?;
    match (group.ip(), own) {
        (IpAddr::V4(_), own) => {
            if let IpAddr::V4(own) = own
                && !own.is_unspecified()
            {
                socket.set_multicast_if_v4(&own)?;
            }
            socket.set_multicast_ttl_v4(hops)?;
            socket.set_multicast_loop_v4(true)?;
        }
        (IpAddr::V6(_), _) => {
            socket.set_multicast_hops_v6(hops)?;
            socket.set_multicast_loop_v6(true)?;
        }
    }
    ready(socket)
}

/// A socket at which what is sent to a group arrives, by the network of an address of this host.
/// Other programs of this host may have one too.
pub(super) fn receiving(group: SocketAddr, own: IpAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    // Bound to the group, it gets nothing that was sent to the port otherwise.
    let at = if cfg!(target_os = "linux") { group.ip() } else { unspecified(group) };
    socket.bind(&SocketAddr::new(at, group.port()).into())?;
    match (group.ip(), own) {
        (IpAddr::V4(group), IpAddr::V4(own)) => socket.join_multicast_v4(&group, &own)?,
        (IpAddr::V4(group), IpAddr::V6(own)) => {
            let own = own.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED);
            socket.join_multicast_v4(&group, &own)?;
        }
        (IpAddr::V6(group), _) => socket.join_multicast_v6(&group, 0)?,
    }
    ready(socket)
}

/// A socket that sends requests to an address.
pub(super) fn asking(to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    socket.connect(&to.into())?;
    ready(socket)
}

fn unspecified(of: SocketAddr) -> IpAddr {
    if of.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

fn ready(socket: Socket) -> io::Result<UdpSocket> {
    // The system gives less where it has to.
    let _ = socket.set_recv_buffer_size(SOCKET_BYTES);
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket.into())
}
