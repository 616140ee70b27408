//! Clients of the relay.

use super::socket::Socket;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Names a client for as long as the relay runs; never used again.
pub(super) type ClientId = u64;

/// A client and the socket that stands for it before the server.
#[derive(Debug)]
pub(super) struct Client {
    pub addr: SocketAddr,
    /// The relay's address that it sends to, and so expects answers from.
    pub local_ip: Option<IpAddr>,
    pub upstream: Socket,
    pub last_used_ns: u64,
}

/// A bounded table of clients.
#[derive(Debug)]
pub(super) struct Clients {
    by_id: BTreeMap<ClientId, Client>,
    ids: HashMap<SocketAddr, ClientId>,
    next_id: ClientId,
    max: usize,
    /// Where their upstream sockets are bound.
    upstream_addr: SocketAddr,
}

/// Result of a search for a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Known(ClientId),
    New(ClientId),
    /// The table is full.
    Full,
}

impl Clients {
    pub(super) fn new(max: usize, to: SocketAddr) -> Self {
        let ip: IpAddr = match to.ip() {
            IpAddr::V4(ip) if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_loopback() => Ipv6Addr::LOCALHOST.into(),
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let upstream_addr = SocketAddr::new(ip, 0);
        Clients { by_id: BTreeMap::new(), ids: HashMap::new(), next_id: 0, max, upstream_addr }
    }

    /// Finds the client of this address, or makes it.
    pub(super) fn find(
        &mut self,
        addr: SocketAddr,
        local_ip: Option<IpAddr>,
        now_ns: u64,
    ) -> io::Result<Found> {
        if let Some(id) = self.ids.get(&addr) {
            if let Some(client) = self.by_id.get_mut(id) {
                client.last_used_ns = now_ns;
            }
            return Ok(Found::Known(*id));
        }
        if self.by_id.len() >= self.max {
            return Ok(Found::Full);
        }
        let upstream = Socket::bind(self.upstream_addr)?;
        let id = self.next_id;
        self.next_id += 1;
        self.by_id.insert(id, Client { addr, local_ip, upstream, last_used_ns: now_ns });
        self.ids.insert(addr, id);
        Ok(Found::New(id))
    }

    pub(super) fn get_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        self.by_id.iter().map(|(id, client)| (*id, client))
    }

    /// Forgets those last used before `oldest_ns`, and names them.
    pub(super) fn expire(&mut self, oldest_ns: u64) -> Vec<SocketAddr> {
        let gone: Vec<SocketAddr> =
            self.by_id.values().filter(|c| c.last_used_ns < oldest_ns).map(|c| c.addr).collect();
        self.by_id.retain(|_, client| client.last_used_ns >= oldest_ns);
        self.ids.retain(|addr, _| !gone.contains(addr));
        gone
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All there have been.
    pub(super) fn total(&self) -> u64 {
        self.next_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_bounded_and_the_idle_leave() {
        let addr = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut clients = Clients::new(2, addr(9));
        assert_eq!(clients.find(addr(1), None, 10).unwrap(), Found::New(0));
        assert_eq!(clients.find(addr(2), None, 20).unwrap(), Found::New(1));
        assert_eq!(clients.find(addr(3), None, 30).unwrap(), Found::Full);
        assert_eq!(clients.find(addr(1), None, 40).unwrap(), Found::Known(0));
        assert_eq!(clients.expire(40), [addr(2)]);
        assert_eq!(clients.find(addr(2), None, 50).unwrap(), Found::New(2));
        assert_eq!((clients.len(), clients.total()), (2, 3));
        assert!(clients.get_mut(1).is_none());
    }
}
