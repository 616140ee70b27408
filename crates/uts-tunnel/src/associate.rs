//! UDP ASSOCIATE of SOCKS5 (RFC 1928 section 7): a program sends datagrams to a port of its own
//! here, each behind a header that says where to. Each place has a flow of messages, as the sender
//! of a `udp/` forward has. What comes back from there has the same header.
//!
//! An association ends with the connection by which it was asked for. Its places are bounded as the
//! senders of a forward are. Its datagrams come from one port of the program's host: from the one
//! that the program has named (RFC 1928 section 6), or from the first that sends. Many programs
//! name the place that they will send to instead, so that nothing ever comes from there.

use crate::Connections;
use crate::addressed::{Addressed, Origin};
use crate::datagrams::{DATAGRAM_BYTES_MAX, Leading, Local, Senders, enter};
use crate::entry::Entry;
use crate::forward::{Place, Protocol};
use crate::sockets::Tcp;
use crate::socks::{self, Waiting};
use crate::stream::Refused;
use crate::wire::Asked;
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;
use uts::printable::words;

/// Carries the datagrams of a program, which has connected to `at` from `from`, and says that it
/// will send from `port`, or nothing of that (0).
///
/// # Errors
/// Why there was no association, in one line.
pub async fn carry<T: Tcp>(
    entry: &Arc<Entry>,
    waiting: Waiting<T>,
    [at, from]: [SocketAddr; 2],
    port: u16,
    connections: Connections,
) -> Result<(), String> {
    let bound = async {
        let socket = Addressed::bind(SocketAddr::new(at.ip().to_canonical(), 0)).await?;
        socket.local_addr().map(|address| (socket, address))
    };
    let (socket, address) = match bound.await {
        Ok(bound) => bound,
        Err(error) => {
            let why = format!("no port for datagrams: {}", words(&error));
            waiting.refused(&Refused::absent(why.clone())).await;
            return Err(why);
        }
    };
    let held = waiting.granted(address).await?;
    let host = from.ip().to_canonical();
    tokio::select! {
        biased;
        () = relay(entry, Arc::new(socket), SocketAddr::new(host, port), connections) => {}
        () = until_closed(held) => {}
    }
    Ok(())
}

/// Waits for the end of a connection in which nothing is expected any more.
async fn until_closed(mut held: impl Tcp) {
    // However it ends, it is over.
    let _ = tokio::io::copy(&mut held, &mut tokio::io::sink()).await;
}

async fn relay(entry: &Arc<Entry>, socket: Arc<Addressed>, named: SocketAddr, connections: Connections) {
    let mut senders = Senders::default();
    let mut program: Option<Origin> = None;
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let (bytes, from) = senders.receive(&socket, &mut datagram).await;
        // Anybody may send to the port. What the program sends from first is what it sends from,
        // unless it comes from where it has said.
        let is_program = program.is_none_or(|program| program == from) || from.from == named;
        if from.from.ip() != named.ip() || !is_program {
            continue;
        }
        let (place, head, datagram) = match read(&datagram[..bytes]).await {
            Ok(read) => read,
            Err(why) => {
                entry.teller.tell(&entry.name, &why);
                continue;
            }
        };
        program = Some(from);
        senders.take((from, head.clone()), datagram, |arrivals| {
            let local = Local::Shared { socket: socket.clone(), to: from, head, arrivals };
            let (entry, connections) = (entry.clone(), connections.clone());
            async move {
                let to = format!("{}{place}", Protocol::Udp.prefix());
                let asked = Asked::Connect(Protocol::Udp, place);
                let leading = Leading { asked, from: from.from, to };
                if let Err(why) = enter(&entry, leading, local, connections).await {
                    entry.teller.tell(&entry.name, &why);
                }
            }
        });
    }
}

/// Where a datagram is to go, its header, and what is in it.
///
/// # Errors
/// Why it is dropped, in one line.
pub async fn read(datagram: &[u8]) -> Result<(Place, Bytes, Bytes), String> {
    let parsed = fast_socks5::parse_udp_request(datagram).await;
    let (fragment, target, content) =
        parsed.map_err(|_| "a program sends a datagram without a header of SOCKS5".to_owned())?;
    if fragment != 0 {
        // RFC 1928 section 7: who does not put fragments together drops them.
        return Err("a program sends fragments of datagrams, which are dropped".to_owned());
    }
    let place = socks::place(target)
        .map_err(|place| format!("a program sends a datagram to `{place}`, which is no place"))?;
    let (head, content) = datagram.split_at(datagram.len() - content.len());
    Ok((place, Bytes::copy_from_slice(head), Bytes::copy_from_slice(content)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_now(datagram: &[u8]) -> Result<(Place, Bytes, Bytes), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(read(datagram))
    }

    #[test]
    fn a_datagram_says_where_it_goes() {
        for (head, shown) in [
            (&[0, 0, 0, 1, 192, 0, 2, 1, 0, 53][..], "192.0.2.1:53"),
            (&[0, 0, 0, 3, 4, b'n', b'a', b'm', b'e', 1, 0], "name:256"),
            (&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 9], "[::1]:9"),
        ] {
            for content in [&b"query"[..], b""] {
                let (place, kept, found) = read_now(&[head, content].concat()).unwrap();
                assert_eq!(place.to_string(), shown);
                assert_eq!((&kept[..], &found[..]), (head, content));
            }
            for cut in 0..head.len() {
                read_now(&head[..cut]).unwrap_err();
            }
        }
    }

    #[test]
    fn fragments_and_what_is_no_place_are_dropped() {
        for (datagram, why) in [
            (&[0, 0, 1, 1, 192, 0, 2, 1, 0, 53, b'x'][..], "fragments"),
            (&[0, 0, 0x80, 1, 192, 0, 2, 1, 0, 53, b'x'], "fragments"),
            (&[0, 1, 0, 1, 192, 0, 2, 1, 0, 53], "without a header"),
            (&[0, 0, 0, 9, 192, 0, 2, 1, 0, 53], "without a header"),
            (&[0, 0, 0, 1, 192, 0, 2, 1, 0, 0], "`192.0.2.1:0`"),
            (&[0, 0, 0, 3, 0, 0, 53], "no place"),
            (&[0, 0, 0, 3, 2, b'a', b'\n', 0, 53], "no place"),
        ] {
            let said = read_now(datagram).unwrap_err();
            assert!(said.contains(why), "{datagram:?}: {said}");
        }
    }

    proptest! {
        #[test]
        fn nonsense_is_an_error_or_a_place(datagram in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok((place, head, content)) = read_now(&datagram) {
                prop_assert!(!place.host.is_empty() && place.port > 0);
                prop_assert_eq!([head, content].concat(), datagram);
            }
        }
    }
}
