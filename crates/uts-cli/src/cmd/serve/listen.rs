//! The address that a server listens on: `ADDR:PORT`, `[V6]:PORT`, `NAME`, `:PORT`, `PORT`, each
//! port optional.

use crate::target::PORT;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use uts::printable::words;
use uts::zone;

/// The addresses to try, in their order: both families of all networks, unless one is named.
///
/// # Errors
/// Says what is wrong with the text ([`Wrong::Text`]), or that a name has no address
/// ([`Wrong::Name`]).
pub async fn addresses(text: Option<&str>) -> Result<Vec<SocketAddr>, Wrong> {
    let (host, port) = text.map_or(Ok((None, PORT)), split)?;
    let Some(host) = host else {
        return Ok(vec![
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        ]);
    };
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::from((address, port))]);
    }
    let found = tokio::net::lookup_host((host, port)).await;
    let found = found.map_err(|why| Wrong::Name(format!("{host}: no such host: {}", words(&why))))?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(Wrong::Name(format!("{host}: the name has no address")));
    }
    Ok(addresses)
}

/// Why there is nowhere to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The text is none of the forms.
    Text(String),
    /// The name leads nowhere.
    Name(String),
}

/// The host, if one is named, and the port.
fn split(text: &str) -> Result<(Option<&str>, u16), Wrong> {
    let wrong = |why: &str| Wrong::Text(format!("`{text}` {why}"));
    let port = |port: &str| port.parse::<u16>().map_err(|_| wrong("has no port from 0 to 65535"));
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or_else(|| wrong("has no `]` behind the address"))?;
        if !zone::is_ipv6(host) {
            return Err(wrong("has no IPv6 address in its brackets"));
        }
        return match after.strip_prefix(':') {
            Some(number) => Ok((Some(host), port(number)?)),
            None if after.is_empty() => Ok((Some(host), PORT)),
            None => Err(wrong("has something else than :PORT behind its `]`")),
        };
    }
    // An IPv6 address without brackets has no port: `::1:4433` is one address.
    if zone::is_ipv6(text) {
        return Ok((Some(text), PORT));
    }
    let (host, port) = match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => return Err(wrong("is not an address; write [V6]:PORT")),
        Some((host, number)) => (host, port(number)?),
        None if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => ("", port(text)?),
        None => (text, PORT),
    };
    if host.contains(|c: char| c.is_whitespace() || c.is_control() || ['/', '@'].contains(&c))
        || text.is_empty()
    {
        return Err(wrong("is neither an address nor a host name"));
    }
    Ok(((!host.is_empty()).then_some(host), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        for (text, host, port) in [
            ("127.0.0.1:0", Some("127.0.0.1"), 0),
            ("127.0.0.1", Some("127.0.0.1"), PORT),
            ("[::1]:7", Some("::1"), 7),
            ("[::1]", Some("::1"), PORT),
            ("::1", Some("::1"), PORT),
            ("::", Some("::"), PORT),
            ("fe80::1%eth0", Some("fe80::1%eth0"), PORT),
            ("[fe80::1%eth0]:7", Some("fe80::1%eth0"), 7),
            ("localhost:5000", Some("localhost"), 5000),
            ("example.org", Some("example.org"), PORT),
            (":5000", None, 5000),
            ("5000", None, 5000),
        ] {
            assert_eq!(split(text), Ok((host, port)), "{text}");
        }
        for (text, why) in [
            ("localhost:", "no port from 0 to 65535"),
            ("localhost:70000", "no port from 0 to 65535"),
            ("70000", "no port from 0 to 65535"),
            ("a:b:c", "write [V6]:PORT"),
            ("[::1", "no `]`"),
            ("[x]:1", "no IPv6 address"),
            ("[::1]x", "something else than :PORT"),
            ("uts://h", "no port"),
            ("a b", "neither an address nor a host name"),
            ("", "neither an address nor a host name"),
        ] {
            match split(text) {
                Err(Wrong::Text(said)) => {
                    assert!(said.contains(why) && said.contains(text), "{text}: {said}")
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
