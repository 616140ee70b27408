//! Connecting to places of other programs, for a peer: names are looked up under a budget, and the
//! addresses of a name are tried side by side (RFC 8305).
//!
//! A lookup holds a thread until the system has given up, which may be long after who asked has. So
//! it is the lookup that holds its place in the budget, not the wait for it. Addresses that are
//! written out need none.

use crate::sockets::Sockets;
use crate::stream::{Kind, REQUEST_MAX, Refused};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use tokio::time::{sleep, timeout};
use uts::printable::words;
use uts::race::{Lost, in_turns, race};
use uts_ledger::{Charge, Payer, Resource};

/// Addresses of a name that are tried: each attempt holds a socket.
const ADDRESSES_MAX: usize = 16;

/// Means of this process that a peer may take: sockets, and threads for lookups.
#[derive(Clone)]
pub struct Budget(pub Payer);

impl Budget {
    /// Room for a socket.
    ///
    /// # Errors
    /// There is none for this peer.
    pub fn socket(&self) -> Result<Charge, uts_ledger::Refused> {
        self.0.charge(Resource::Sockets, 1)
    }

    /// The addresses of a host, the families in turns.
    ///
    /// # Errors
    /// Those of the system's resolver; [`io::ErrorKind::TimedOut`] after [`REQUEST_MAX`].
    pub async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let place = (host.to_owned(), port);
        let found = timeout(REQUEST_MAX, async {
            let held = self.0.wait(Resource::Threads, 1, 1).await;
            let looked_up = tokio::task::spawn_blocking(move || {
                let found = place.to_socket_addrs();
                drop(held);
                found
            });
            looked_up.await.map_err(io::Error::other)?
        });
        Ok(in_turns(found.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??))
    }
}

/// Why a host is not found.
pub fn not_found(why: String) -> Refused {
    Refused { kind: Kind::HostUnreachable, why }
}

/// Connects to one of these addresses. Each attempt lasts [`REQUEST_MAX`] at most. An error is why
/// none answers, of a kind and in words.
///
/// # Errors
/// The kind that says most, and the words of the system.
pub async fn connect<S: Sockets>(
    sockets: &S,
    addresses: &[SocketAddr],
    budget: &Budget,
) -> Result<S::Tcp, (Kind, String)> {
    // One socket has been charged. Where there is no room for more, only the first is tried.
    let others = addresses.len().min(ADDRESSES_MAX).saturating_sub(1);
    let side_by_side = budget.0.charge_up_to(Resource::Sockets, 1, others.max(1));
    let tried = 1 + side_by_side.as_ref().map_or(0, Charge::amount);
    let addresses = &addresses[..addresses.len().min(tried)];
    let attempt = async |address| {
        let connected = timeout(REQUEST_MAX, sockets.connect(address)).await;
        connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    };
    let failed = match race(addresses, sleep, attempt, |_: &io::Error| false).await {
        Ok(socket) => return Ok(socket),
        Err(Lost::Final(error)) => vec![error],
        Err(Lost::All(failed)) => failed.into_iter().map(|(_, error)| error).collect(),
    };
    Err(summary(&failed))
}

/// Summary of several attempts that failed: an answer says more than silence, and silence more than
/// the lack of a way.
pub fn summary(failed: &[io::Error]) -> (Kind, String) {
    const TELLING: [Kind; 5] = [
        Kind::ConnectionRefused,
        Kind::TimedOut,
        Kind::HostUnreachable,
        Kind::NetworkUnreachable,
        Kind::AddressFamily,
    ];
    let kinds: Vec<Kind> = failed.iter().map(Kind::of).collect();
    let kind = TELLING.into_iter().find(|kind| kinds.contains(kind)).unwrap_or(Kind::Other);
    let mut seen = BTreeSet::new();
    let distinct: Vec<String> = failed.iter().map(words).filter(|words| seen.insert(words.clone())).collect();
    let why = if distinct.is_empty() {
        "there is no address to connect to".to_owned()
    } else {
        distinct.join("; ")
    };
    (kind, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_ledger::Ledger;

    #[tokio::test]
    async fn addresses_need_no_lookup() {
        let budget = Budget(Ledger::of(Resource::Threads, 1, false).payer("a"));
        let _all = budget.0.charge(Resource::Threads, 1);
        let found = budget.look_up("::1", 9).await.unwrap();
        assert_eq!(found, [SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 9))]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_finds_no_place_in_time_is_given_up() {
        let budget = Budget(Ledger::of(Resource::Threads, 1, false).payer("a"));
        let _all = budget.0.charge(Resource::Threads, 1);
        let error = budget.look_up("localhost", 9).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn of_several_errors_the_one_that_says_most_is_the_kind() {
        let of = |kinds: &[io::ErrorKind]| {
            summary(&kinds.iter().map(|kind| io::Error::from(*kind)).collect::<Vec<_>>())
        };
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
        assert_eq!(of(&[NetworkUnreachable, ConnectionRefused]).0, Kind::ConnectionRefused);
        assert_eq!(of(&[NetworkUnreachable, TimedOut, NetworkUnreachable]).0, Kind::TimedOut);
        let (kind, why) = of(&[HostUnreachable, NetworkUnreachable, HostUnreachable]);
        assert_eq!((kind, why.as_str()), (Kind::HostUnreachable, "host unreachable; network unreachable"));
        assert_eq!(of(&[]).0, Kind::Other);
    }
}
