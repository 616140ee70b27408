//! Attempts to connect to the addresses of one host, side by side (RFC 8305, "happy eyeballs").
//!
//! A host has several addresses, and some may be silent. The families take turns ([`in_turns`]).
//! The next address is tried while the one before has not answered yet. The first that answers is
//! taken ([`race`]). Connections of this library are made so. Programs may connect sockets of
//! other kinds in the same way.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use std::net::SocketAddr;

/// An address that has not answered by then is perhaps of no use: the next is tried beside it (RFC
/// 8305 section 5).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Why no address was connected to.
#[derive(Debug)]
pub enum Lost<E> {
    /// This error ends the race: no other address may be tried after it.
    Final(E),
    /// Each address with its error, in the order in which the addresses were given.
    All(Vec<(SocketAddr, E)>),
}

/// The families in turns, the one that the resolver puts first in front (RFC 8305 section 4). Where
/// one family leads nowhere, only every other attempt is in vain. An address is kept once.
///
/// ```
/// let addrs = ["[::1]:1", "[::2]:1", "127.0.0.1:1"].map(|addr| addr.parse().expect("an address"));
/// let families: Vec<bool> =
/// uts::race::in_turns(addrs).iter().map(std::net::SocketAddr::is_ipv6).collect();
/// assert_eq!(families, [true, false, true]);
/// ```
pub fn in_turns(addrs: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut distinct: Vec<SocketAddr> = Vec::new();
    for addr in addrs {
        if !distinct.contains(&addr) {
            distinct.push(addr);
        }
    }
    let Some(is_first_v6) = distinct.first().map(SocketAddr::is_ipv6) else { return distinct };
    let (first, second): (Vec<_>, Vec<_>) = distinct.iter().partition(|addr| addr.is_ipv6() == is_first_v6);
    let longer = first.len().max(second.len());
    (0..longer).flat_map(|n| [first.get(n), second.get(n)]).flatten().copied().collect()
}

/// Tries the addresses in their order, each [`ATTEMPT_DELAY`] after the one before, or as soon as
/// that has failed. The first result is taken, and the other attempts are dropped. `sleep` is the
/// caller's clock. Attempts have bounds of their own: the race has none.
///
/// # Errors
/// [`Lost`]: an error for which `is_final` holds ends the race at once.
pub async fn race<T, E, A, S>(
    addrs: &[SocketAddr],
    sleep: impl Fn(Duration) -> S,
    attempt: impl Fn(SocketAddr) -> A,
    is_final: impl Fn(&E) -> bool,
) -> Result<T, Lost<E>>
where
    A: Future<Output = Result<T, E>>,
    S: Future<Output = ()>,
{
    let (mut left, mut under_way) = (addrs.iter(), Vec::new());
    let mut failed: Vec<(SocketAddr, E)> = Vec::new();
    loop {
        match left.next() {
            Some(addr) => under_way.push((*addr, Box::pin(attempt(*addr)))),
            None if under_way.is_empty() => {
                failed.sort_by_key(|(addr, _)| addrs.iter().position(|known| known == addr));
                return Err(Lost::All(failed));
            }
            None => {}
        }
        let is_last = left.len() == 0;
        let mut delay = pin!(sleep(ATTEMPT_DELAY));
        let ended = poll_fn(|cx| {
            for (index, (_, attempt)) in under_way.iter_mut().enumerate() {
                if let Poll::Ready(ended) = attempt.as_mut().poll(cx) {
                    return Poll::Ready(Some((index, ended)));
                }
            }
            if is_last { Poll::Pending } else { delay.as_mut().poll(cx).map(|()| None) }
        })
        .await;
        let Some((index, ended)) = ended else { continue };
        let (addr, _) = under_way.swap_remove(index);
        match ended {
            Ok(connected) => return Ok(connected),
            Err(error) if is_final(&error) => return Err(Lost::Final(error)),
            Err(error) => failed.push((addr, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::time::Instant;

    fn addr(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn families_take_turns() {
        let [a, b, c] = ["[::1]:1", "[::2]:1", "[::3]:1"].map(addr);
        let [x, y] = ["10.0.0.1:1", "10.0.0.2:1"].map(addr);
        assert_eq!(in_turns([a, b, c, x, y]), [a, x, b, y, c]);
        assert_eq!(in_turns([x, y, a]), [x, a, y]);
        assert_eq!(in_turns([x, x, a, x]), [x, a]);
        assert_eq!(in_turns([]), []);
    }

    /// Attempts begun, with the time at which each began.
    type Begun = Mutex<Vec<(u16, Duration)>>;

    /// Ports stand for what an address does: 1 answers after a second, 2 fails at once, 3 is silent
    /// for 20 s and then fails, 4 fails for good.
    async fn run(ports: &[u16], begun: &Begun) -> Result<u16, Lost<u16>> {
        let since = Instant::now();
        let addrs: Vec<SocketAddr> =
            ports.iter().zip(1..).map(|(port, n)| SocketAddr::from(([127, 0, 0, n], *port))).collect();
        let attempt = |addr: SocketAddr| async move {
            begun.lock().expect("no panic").push((addr.port(), since.elapsed()));
            let (takes, ended) = match addr.port() {
                1 => (1, Ok(1)),
                3 => (20, Err(3)),
                port => (0, Err(port)),
            };
            tokio::time::sleep(Duration::from_secs(takes)).await;
            ended
        };
        race(&addrs, tokio::time::sleep, attempt, |error| *error == 4).await
    }

    #[tokio::test(start_paused = true)]
    async fn silent_addresses_cost_a_quarter_of_a_second_each() {
        let (begun, since) = (Begun::default(), Instant::now());
        assert_eq!(run(&[3, 3, 3, 1, 3], &begun).await.expect("connected"), 1);
        assert_eq!(since.elapsed(), 3 * ATTEMPT_DELAY + Duration::from_secs(1));
        assert_eq!(begun.lock().expect("no panic").len(), 5, "all are tried beside each other");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_fails_is_followed_by_the_next_at_once() {
        let begun = Begun::default();
        assert_eq!(run(&[2, 2, 1], &begun).await.expect("connected"), 1);
        assert!(begun.lock().expect("no panic").iter().all(|(_, at)| at.is_zero()));
    }

    #[tokio::test(start_paused = true)]
    async fn each_error_is_kept_in_the_order_of_the_addresses() {
        let Err(Lost::All(all)) = run(&[3, 2, 3, 2], &Begun::default()).await else {
            panic!("nobody is there")
        };
        assert_eq!(all.iter().map(|(_, error)| *error).collect::<Vec<_>>(), [3, 2, 3, 2]);
        let Err(Lost::All(none)) = run(&[], &Begun::default()).await else { panic!("no address") };
        assert!(none.is_empty());
        let (begun, since) = (Begun::default(), Instant::now());
        assert!(matches!(run(&[3, 4, 1], &begun).await, Err(Lost::Final(4))));
        assert_eq!((since.elapsed(), begun.lock().expect("no panic").len()), (ATTEMPT_DELAY, 2));
    }
}
