//! Where datagrams lead at the far end: one of the addresses of a name.
//!
//! A name may lead to two families, and its service be there for one. The first address is
//! taken, as long as it is of use. Where nobody listens (ICMP says so), the next is sent the
//! last datagram again. One that is silent says less: many protocols never answer. So what
//! comes after a while goes to the next address, and to the first again, for good, if none has
//! answered. Once anything has come back, it stays at that.

use crate::datagrams::DATAGRAM_BYTES_MAX;
use crate::dial;
use crate::exit::Way;
use crate::stream::{Kind, Refused};
use bytes::Bytes;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::Instant;

/// An address that has not answered by then may be of no use: longer than most round trips, shorter
/// than programs wait before they ask again (RFC 1035 section 4.2.1 has 2 to 5 s).
const SILENT: Duration = Duration::from_secs(1);

/// A socket to one address of a place.
pub struct Far {
    socket: UdpSocket,
    /// Addresses that are not tried yet, the next one last; empty once one has answered.
    others: Vec<SocketAddr>,
    /// Datagram that was sent last, as long as there are other addresses.
    last: Option<Bytes>,
    /// When the first datagram went to this address, as long as nothing has come back.
    asked_at: Option<Instant>,
}

impl Far {
    /// At the first of the addresses to which there is a way.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn reach(way: &Way) -> Result<Far, Refused> {
        let mut others: Vec<SocketAddr> = way.addresses.iter().rev().copied().collect();
        if let [_, .., first] = others[..] {
            // It is the last as well: there what nobody answers stays.
            others.insert(0, first);
        }
        let socket = next_socket(&mut others).await.map_err(|failed| {
            let (kind, why) = dial::summary(&failed);
            Refused { kind, why: format!("{} cannot be reached: {why}", way.to) }
        })?;
        Ok(Far { socket, others, last: None, asked_at: None })
    }

    /// Sends a datagram. What cannot be sent is lost, as datagrams are.
    pub async fn put(&mut self, datagram: &[u8]) {
        if !self.others.is_empty() {
            self.last = Some(Bytes::copy_from_slice(datagram));
            let asked_at = *self.asked_at.get_or_insert_with(Instant::now);
            if asked_at.elapsed() >= SILENT && self.go_on().await {
                return;
            }
        }
        let sent = self.socket.send(datagram).await;
        if sent.is_err_and(|error| is_of_no_use(&error)) && !self.go_on().await {
            // The error was about an earlier one: it is this one's turn all the same.
            let _ = self.socket.send(datagram).await;
        }
    }

    /// The next datagram. `space` is where it is read to.
    pub async fn next(&mut self, space: &mut Vec<u8>) -> Option<Bytes> {
        space.resize(DATAGRAM_BYTES_MAX, 0);
        loop {
            match self.socket.recv(space).await {
                Ok(bytes) => {
                    (self.others, self.last) = (Vec::new(), None);
                    return Some(Bytes::copy_from_slice(space.get(..bytes)?));
                }
                Err(error) if is_of_no_use(&error) => drop(self.go_on().await),
                // UDP goes on.
                Err(_) => {}
            }
        }
    }

    /// Goes on to the next address, if there is one, with what was sent last.
    async fn go_on(&mut self) -> bool {
        let Ok(socket) = next_socket(&mut self.others).await else { return false };
        (self.socket, self.asked_at) = (socket, Some(Instant::now()));
        let last = if self.others.is_empty() { self.last.take() } else { self.last.clone() };
        if let Some(last) = last {
            let _ = self.socket.send(&last).await;
        }
        true
    }
}

/// True if nobody is at an address, as far as the system knows.
fn is_of_no_use(error: &io::Error) -> bool {
    use Kind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(Kind::of(error), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

/// A socket to the last of these addresses to which there is a way; it and those behind it are
/// taken.
async fn next_socket(addresses: &mut Vec<SocketAddr>) -> Result<UdpSocket, Vec<io::Error>> {
    let mut failed = Vec::new();
    while let Some(address) = addresses.pop() {
        let any: SocketAddr = if address.is_ipv4() {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let connected = async {
            let socket = UdpSocket::bind(any).await?;
            socket.connect(address).await.map(|()| socket)
        };
        match connected.await {
            Ok(socket) => return Ok(socket),
            Err(error) => failed.push(error),
        }
    }
    Err(failed)
}
