//! Places that media comes from and goes to at a client: a UDP socket, or a standard stream.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::UdpSocket;
use uts::printable::words;

/// Bytes that the system keeps of what has arrived and was not read: a burst of pictures.
const SOCKET_BYTES: usize = 4 << 20;

/// A place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Standard input or output, written `-`.
    Standard,
    /// A host, empty for all networks of this one, and a UDP port.
    Udp(String, u16),
}

impl Place {
    /// Reads `-` or `udp://[HOST]:PORT`.
    ///
    /// # Errors
    /// What is to be written, in one line.
    pub fn parse(text: &str) -> Result<Place, String> {
        if text == "-" {
            return Ok(Place::Standard);
        }
        let wrong = || "write udp://HOST:PORT, or - for a standard stream".to_owned();
        // Other programs write an `@` before an address to listen at (VLC), and options behind it
        // (ffmpeg).
        let rest = text.strip_prefix("udp://").ok_or_else(wrong)?.trim_start_matches('@');
        let rest = rest.trim_end_matches('/');
        let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| format!("`{port}` is no UDP port; {}", wrong()))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_name = !bare.contains(|c: char| c.is_whitespace() || c.is_control() || "/@?[]".contains(c));
        if !is_name || (bare.contains(':') && bare == host) {
            return Err(format!("`{host}` is no host; {}", wrong()));
        }
        Ok(Place::Udp(bare.to_owned(), port))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Standard => f.write_str("-"),
            Place::Udp(host, port) if host.contains(':') => write!(f, "udp://[{host}]:{port}"),
            Place::Udp(host, port) => write!(f, "udp://{host}:{port}"),
        }
    }
}

async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if host.is_empty() || host == "*" {
        return Ok(vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]);
    }
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}

/// A socket at which media arrives. Of a group of hosts (multicast) this one becomes a member.
///
/// # Errors
/// Why nothing can arrive there, in one line.
pub async fn listen(host: &str, port: u16) -> Result<UdpSocket, String> {
    let place = Place::Udp(host.to_owned(), port);
    let found = addresses(host, port).await.map_err(|error| format!("{place}: {}", words(&error)))?;
    let mut last = None;
    for address in found {
        match bind(address).await {
            Ok(socket) => return Ok(socket),
            Err(error) => last = Some(error),
        }
    }
    let why = last.map_or_else(|| "the name has no address".to_owned(), |error| words(&error));
    Err(format!("cannot listen at {place}: {why}"))
}

async fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address).await?;
    match address.ip() {
        IpAddr::V4(group) if group.is_multicast() => {
            socket.join_multicast_v4(group, Ipv4Addr::UNSPECIFIED)?;
        }
        IpAddr::V6(group) if group.is_multicast() => socket.join_multicast_v6(&group, 0)?,
        _ => {}
    }
    // The system gives less where it has to.
    let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(SOCKET_BYTES);
    Ok(socket)
}

/// A socket that sends to a place.
///
/// # Errors
/// Why nothing can be sent there, in one line.
pub async fn reach(host: &str, port: u16) -> Result<UdpSocket, String> {
    let place = Place::Udp(host.to_owned(), port);
    let wrong = |error: io::Error| format!("{place}: {}", words(&error));
    if host.is_empty() {
        return Err(format!("{place}: say to which host"));
    }
    let found = addresses(host, port).await.map_err(wrong)?;
    let address = *found.first().ok_or_else(|| format!("{place}: the name has no address"))?;
    let own: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(own).await.map_err(wrong)?;
    socket.connect(address).await.map_err(wrong)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        let udp = |host: &str, port| Ok(Place::Udp(host.into(), port));
        for (text, place) in [
            ("-", Ok(Place::Standard)),
            ("udp://:5000", udp("", 5000)),
            ("udp://@:5000", udp("", 5000)),
            ("udp://127.0.0.1:6000", udp("127.0.0.1", 6000)),
            ("udp://127.0.0.1:6000/", udp("127.0.0.1", 6000)),
            ("udp://[::1]:6000", udp("::1", 6000)),
            ("udp://@239.1.1.1:5000", udp("239.1.1.1", 5000)),
        ] {
            assert_eq!(Place::parse(text), place, "{text}");
        }
        assert_eq!(Place::parse("udp://[::1]:6").expect("a place").to_string(), "udp://[::1]:6");
        for (text, says) in [
            ("", "write udp://HOST:PORT"),
            ("udp://host", "write udp://HOST:PORT"),
            ("srt://host:1", "write udp://HOST:PORT"),
            ("udp://:70000", "`70000` is no UDP port"),
            ("udp://a b:1", "`a b` is no host"),
            ("udp://::1:5000", "`::1` is no host"),
            ("udp://h:5000?pkt_size=1316", "`5000?pkt_size=1316` is no UDP port"),
        ] {
            let why = Place::parse(text).expect_err(text);
            assert!(why.contains(says), "{text}: {why}");
        }
    }

    #[tokio::test]
    async fn what_is_sent_to_a_place_arrives_there() {
        let socket = listen("127.0.0.1", 0).await.expect("a port");
        let port = socket.local_addr().expect("an address").port();
        let sender = reach("127.0.0.1", port).await.expect("a socket");
        sender.send(b"datagram").await.expect("sent");
        let mut datagram = [0; 20];
        assert_eq!(socket.recv(&mut datagram).await.expect("received"), 8);
        let why = listen("127.0.0.1", port).await.expect_err("it is taken");
        assert!(why.starts_with("cannot listen at udp://127.0.0.1:") && why.contains("in use"), "{why}");
        assert!(reach("", 1).await.expect_err("nowhere").contains("say to which host"));
    }
}
