//! A client that goes from one network to another: who asks for it is moved along before the
//! connection is missed.
//!
//! The kernel is asked by which of its addresses it would reach the peer now. That takes two calls,
//! sends nothing, and is the same on all systems. Linux tells when it is worth asking ([`news`]);
//! elsewhere it is asked twice a second.

mod news;

use crate::driver::Shared;
use news::News;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// The address of this host by which a peer is reached now.
fn way_to(peer: SocketAddr) -> io::Result<IpAddr> {
    let socket = Socket::new(Domain::for_address(peer), Type::DGRAM, Some(Protocol::UDP))?;
    socket.connect(&peer.into())?;
    let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok(local.ip())
}

fn any_like(peer: SocketAddr) -> SocketAddr {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(any, 0)
}

/// Moves an endpoint with the host, as long as somebody holds it. It must be called in a runtime.
pub(crate) fn follow(shared: &Arc<Shared>, peer: SocketAddr) {
    // A simulated network is no business of the kernel's.
    if crate::driver::is_simulated() {
        return;
    }
    tokio::spawn(watch(shared.clone(), peer, way_to(peer).ok(), News::new()));
}

async fn watch(shared: Arc<Shared>, peer: SocketAddr, mut way: Option<IpAddr>, mut news: News) {
    loop {
        {
            let ended = shared.accept.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if !shared.is_held() {
                return;
            }
            tokio::select! {
                () = news.next() => {}
                // Nothing is accepted here but the end.
                () = ended => continue,
            }
        }
        // While there is no way at all, there is nowhere to go.
        let Ok(now) = way_to(peer) else { continue };
        if way == Some(now) {
            continue;
        }
        match shared.migrate(any_like(peer)) {
            Ok(()) => {
                tracing::debug!(before = ?way, %now, "another way to {peer}");
                way = Some(now);
            }
            Err(error) => tracing::debug!(%error, "no socket for another way to {peer}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_the_way() {
        for peer in ["127.0.0.1:9", "[::1]:9"] {
            let peer: SocketAddr = peer.parse().expect("an address");
            if let Ok(way) = way_to(peer) {
                assert_eq!(way, peer.ip());
            }
        }
    }
}
