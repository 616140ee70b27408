//! Where clients of a server may connect and listen: only what is named, and nothing by default.

use crate::dial::{self, Budget};
use crate::forward::{BIND, HOST_BYTES_MAX, Place, Protocol, fields};
use crate::near::is_near;
use crate::stream::Refused;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use uts::{Fingerprint, zone};

/// A permitted place, written `[udp/][HOST:]PORT[@KEY]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    protocol: Protocol,
    host: HostPattern,
    /// `None` = all.
    port: Option<u16>,
    /// The client's key; `None` = all that the server lets in.
    key: Option<Fingerprint>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    All,
    Address(IpAddr),
    /// In small letters.
    Name(String),
    /// All names that end so, with the dot.
    Below(String),
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (place, key) = match text.split_once('@') {
            Some((place, key)) => {
                let parsed = key.parse().map_err(|error| format!("`{text}`: {error}"))?;
                (place, Some(parsed))
            }
            None => (text, None),
        };
        let (protocol, place) = Protocol::split(place);
        let (host, port) = match fields(place).map_err(|why| format!("`{text}`: {why}"))?[..] {
            [port] => (BIND, port),
            [host, port] => (host, port),
            _ => return Err(format!("`{text}` is not [udp/][HOST:]PORT[@KEY], as 127.0.0.1:80 or *:443")),
        };
        let port = match port {
            "*" => None,
            number => match number.parse::<u16>() {
                Ok(port) if port > 0 => Some(port),
                _ => return Err(format!("`{text}`: `{port}` is not a port (1 to 65535, or * for all)")),
            },
        };
        let host = HostPattern::parse(host).ok_or_else(|| {
            format!("`{text}`: `{host}` is not a host; write a name, an address, *.DOMAIN, or * for all")
        })?;
        Ok(Pattern { protocol, host, port, key })
    }
}

impl HostPattern {
    fn parse(host: &str) -> Option<HostPattern> {
        if host == "*" {
            return Some(HostPattern::All);
        }
        if let Ok(address) = host.parse::<IpAddr>() {
            return Some(HostPattern::Address(address.to_canonical()));
        }
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= HOST_BYTES_MAX
                && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
        };
        let lower = host.to_lowercase();
        match lower.strip_prefix('*') {
            Some(below) => {
                (below.starts_with('.') && is_name(&below[1..])).then(|| HostPattern::Below(below.to_owned()))
            }
            None => is_name(&lower).then_some(HostPattern::Name(lower)),
        }
    }

    /// True if a host is permitted by its name.
    fn has_name(&self, host: &str) -> bool {
        let lower = host.to_lowercase();
        match self {
            HostPattern::All => true,
            HostPattern::Address(_) => false,
            HostPattern::Name(name) => *name == lower,
            HostPattern::Below(below) => lower.ends_with(below) && lower.len() > below.len(),
        }
    }

    fn has_address(&self, address: IpAddr) -> bool {
        matches!(self, HostPattern::All) || self.names_address(address)
    }

    /// True if just this address is named.
    fn names_address(&self, address: IpAddr) -> bool {
        match self {
            HostPattern::Address(permitted) => *permitted == address.to_canonical(),
            HostPattern::Name(name) => is_localhost(name) && address.to_canonical().is_loopback(),
            HostPattern::All | HostPattern::Below(_) => false,
        }
    }

    /// True if a name may lead to what is named by its address. A near address has no other name
    /// than `localhost`, whatever others say.
    fn may_be_meant_by(&self, name: &str) -> bool {
        matches!(self, HostPattern::Address(address) if is_localhost(name) || !is_near(*address))
    }
}

/// True if a name is of the host itself (RFC 6761 section 6.3).
fn is_localhost(name: &str) -> bool {
    let lower = name.to_lowercase();
    lower == "localhost" || lower.ends_with(".localhost")
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.protocol.prefix())?;
        match &self.host {
            HostPattern::All => write!(f, "*:")?,
            HostPattern::Address(IpAddr::V6(address)) => write!(f, "[{address}]:")?,
            HostPattern::Address(address) => write!(f, "{address}:")?,
            HostPattern::Name(name) => write!(f, "{name}:")?,
            HostPattern::Below(below) => write!(f, "*{below}:")?,
        }
        match self.port {
            Some(port) => write!(f, "{port}")?,
            None => write!(f, "*")?,
        }
        self.key.map_or(Ok(()), |key| write!(f, " for {key}"))
    }
}

/// All that a server permits.
#[derive(Clone, Debug, Default)]
pub struct Permits {
    /// Where clients may connect.
    pub connect: Vec<Pattern>,
    /// Where they may have the server listen.
    pub listen: Vec<Pattern>,
}

impl Permits {
    /// True if nothing is permitted.
    pub fn is_empty(&self) -> bool {
        self.connect.is_empty() && self.listen.is_empty()
    }

    /// The addresses that a client with this key may be connected to when it asks for a place.
    ///
    /// # Errors
    /// What the client is told. A name is looked up if a pattern names it, or if it may lead to an
    /// address that one names; otherwise whether it is found is not told. What is found is judged
    /// by its address: what is near ([`is_near`]) must be named by that.
    pub async fn addresses(
        &self,
        protocol: Protocol,
        place: &Place,
        key: Option<Fingerprint>,
        budget: &Budget,
    ) -> Result<Vec<SocketAddr>, Refused> {
        let forbidden = || {
            let prefix = protocol.prefix();
            Refused::forbidden(format!("{prefix}{place} is not permitted by the server (its --forward)"))
        };
        let of = matching(&self.connect, protocol, place.port, key);
        let is_named = of.iter().any(|pattern| pattern.host.has_name(&place.host));
        // A pattern of an address means it on each link: the zone is nothing to judge by.
        let bare = if zone::is_ipv6(&place.host) { zone::split(&place.host).0 } else { &place.host };
        let may_be_permitted = match bare.parse::<IpAddr>() {
            Ok(address) => of.iter().any(|pattern| pattern.host.has_address(address)),
            Err(_) => is_named || of.iter().any(|pattern| pattern.host.may_be_meant_by(&place.host)),
        };
        if !may_be_permitted {
            return Err(forbidden());
        }
        let found: Vec<SocketAddr> = match budget.look_up(&place.host, place.port).await {
            Ok(found) => found,
            Err(_) if !is_named => return Err(forbidden()),
            Err(error) => {
                let late = if error.kind() == io::ErrorKind::TimedOut { " in time" } else { "" };
                return Err(dial::not_found(format!("{place}: the server finds no such host{late}")));
            }
        };
        let is_permitted = |address: &SocketAddr| {
            let is_literal = of.iter().any(|pattern| pattern.host.names_address(address.ip()));
            let is_of_any = is_named || of.iter().any(|pattern| pattern.host.has_address(address.ip()));
            is_literal || is_of_any && !is_near(address.ip())
        };
        let permitted: Vec<SocketAddr> = found.into_iter().filter(is_permitted).collect();
        if permitted.is_empty() { Err(forbidden()) } else { Ok(permitted) }
    }

    /// Where a client with this key may have the server listen when it asks for a place.
    ///
    /// # Errors
    /// What the client is told.
    pub fn listening(
        &self,
        protocol: Protocol,
        place: &Place,
        key: Option<Fingerprint>,
    ) -> Result<Vec<SocketAddr>, Refused> {
        let addresses = addresses_to_listen(place).map_err(Refused::absent)?;
        let of = matching(&self.listen, protocol, place.port, key);
        let is_permitted = |address: &SocketAddr| of.iter().any(|p| p.host.has_address(address.ip()));
        if addresses.iter().all(is_permitted) && !of.is_empty() {
            return Ok(addresses);
        }
        let text = format!(
            "listening at {}{place} is not permitted by the server (its --listen-forward)",
            protocol.prefix()
        );
        Err(Refused::forbidden(text))
    }
}

/// The patterns that may permit a port to a key. Port 0, which is any, is permitted where all are.
fn matching(patterns: &[Pattern], protocol: Protocol, port: u16, key: Option<Fingerprint>) -> Vec<&Pattern> {
    let is_of = |pattern: &&Pattern| {
        pattern.protocol == protocol
            && pattern.port.is_none_or(|permitted| permitted == port)
            && (pattern.key.is_none() || pattern.key == key)
    };
    patterns.iter().filter(is_of).collect()
}

/// The addresses of which the first that can be had is listened at.
///
/// # Errors
/// What is wrong with the place, in one line.
pub fn addresses_to_listen(place: &Place) -> Result<Vec<SocketAddr>, String> {
    let address = |text: &str| text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, place.port));
    let of = match place.host.as_str() {
        "*" => vec![address("::"), address("0.0.0.0")],
        "localhost" => vec![address("127.0.0.1")],
        // The system knows the zones. It asks nobody: this is no name.
        host if zone::is_ipv6(host) && zone::split(host).1.is_some() => {
            let found = (host, place.port).to_socket_addrs();
            found.map(|found| found.map(Some).collect()).unwrap_or_default()
        }
        host => vec![address(host)],
    };
    let found: Vec<SocketAddr> = of.into_iter().flatten().collect();
    if found.is_empty() {
        return Err(format!("`{}` is not an address of this host to listen at", place.host));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Kind;
    use uts_ledger::Ledger;

    fn budget() -> Budget {
        Budget(Ledger::of_server(&uts_ledger::Budget::of_process()).payer("a"))
    }

    fn permits(connect: &[&str], listen: &[&str]) -> Permits {
        let read = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Permits { connect: read(connect), listen: read(listen) }
    }

    fn place(host: &str, port: u16) -> Place {
        Place { host: host.into(), port }
    }

    #[test]
    fn patterns_are_read_and_shown() {
        let key = Fingerprint::of_spki(b"a");
        for (text, shown) in [
            ("80", "127.0.0.1:80".to_owned()),
            ("*:443", "*:443".to_owned()),
            ("*:*", "*:*".to_owned()),
            ("[::1]:22", "[::1]:22".to_owned()),
            ("Web.Example.org:*", "web.example.org:*".to_owned()),
            ("*.example.org:80", "*.example.org:80".to_owned()),
            ("udp/53", "udp/127.0.0.1:53".to_owned()),
            (&format!("22@{key}"), format!("127.0.0.1:22 for {key}")),
        ] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), shown);
        }
        for (text, why) in [
            ("", "`` is not a port"),
            ("web", "`web` is not a port"),
            ("web:0", "`0` is not a port"),
            ("a:b:1", "is not [udp/][HOST:]PORT[@KEY]"),
            ("a b:1", "is not a host"),
            ("*example.org:1", "is not a host"),
            ("::1:22", "is not [udp/]"),
            ("22@somebody", "somebody"),
        ] {
            let said = text.parse::<Pattern>().unwrap_err();
            assert!(said.contains(why) && said.contains(text), "{text}: {said}");
        }
    }

    #[tokio::test]
    async fn only_what_is_named_may_be_connected_to() {
        let (mine, other) = (Fingerprint::of_spki(b"a"), Fingerprint::of_spki(b"b"));
        let all = permits(
            &["127.0.0.1:80", "udp/127.0.0.1:53", &format!("127.0.0.1:22@{mine}"), "*.invalid:80", "*:443"],
            &[],
        );
        let budget = budget();
        let ask = async |protocol, host: &str, port, key| {
            all.addresses(protocol, &place(host, port), key, &budget).await
        };
        let there = |port| Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]);
        assert_eq!(ask(Protocol::Tcp, "127.0.0.1", 80, None).await, there(80));
        // Another word for the same address.
        assert_eq!(ask(Protocol::Tcp, "::ffff:127.0.0.1", 80, None).await.map(|a| a.len()), Ok(1));
        assert_eq!(ask(Protocol::Tcp, "192.0.2.7", 443, None).await.map(|a| a.len()), Ok(1));
        let local = ask(Protocol::Tcp, "localhost", 80, None).await;
        assert!(local.is_ok_and(|all| all.iter().all(|a| a.ip() == IpAddr::from([127, 0, 0, 1]))));
        assert_eq!(ask(Protocol::Tcp, "127.0.0.1", 22, Some(mine)).await, there(22));
        assert_eq!(ask(Protocol::Udp, "127.0.0.1", 53, Some(other)).await, there(53));
        for (protocol, host, port, key) in [
            (Protocol::Tcp, "127.0.0.1", 22, Some(other)),
            (Protocol::Tcp, "127.0.0.1", 22, None),
            (Protocol::Tcp, "127.0.0.1", 53, None),
            (Protocol::Udp, "127.0.0.1", 80, None),
            (Protocol::Tcp, "127.0.0.2", 80, None),
            (Protocol::Tcp, "0.0.0.0", 80, None),
            (Protocol::Tcp, "::1", 80, None),
            (Protocol::Tcp, "nowhere.example", 80, None),
            (Protocol::Tcp, ".invalid", 80, None),
        ] {
            let refused = ask(protocol, host, port, key).await.unwrap_err();
            assert!(refused.kind == Kind::Forbidden && refused.why.contains("not permitted"), "{refused}");
        }
        // It may be asked for, but is not there.
        let absent = ask(Protocol::Tcp, "nowhere.invalid", 80, None).await.unwrap_err();
        assert!(absent.kind == Kind::HostUnreachable && absent.why.contains("no such host"), "{absent}");
        let nothing = Permits::default();
        assert!(
            nothing.addresses(Protocol::Tcp, &place("127.0.0.1", 80), Some(mine), &budget).await.is_err()
        );
    }

    /// Neither the server itself nor what trusts it is permitted by `*` or a name.
    #[tokio::test]
    async fn what_is_near_has_to_be_named_by_its_address() {
        let all = permits(&["*:*", "udp/*:*", "*.localhost:*", "metadata.internal:80"], &[]);
        let budget = budget();
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            // As addresses, as the resolver reads them, and as a name that leads there.
            for host in [
                "127.0.0.1",
                "127.8.8.8",
                "0.0.0.0",
                "::",
                "::1",
                "169.254.169.254",
                "::ffff:127.0.0.1",
                "fd00:ec2::254",
                "::ffff:169.254.169.254",
                "64:ff9b::a9fe:a9fe",
                "255.255.255.255",
                "224.0.0.1",
                "ff02::1",
                "fe80::1",
                "127.1",
                "0x7f000001",
                "2130706433",
                "0",
                "localhost",
                "LOCALHOST",
            ] {
                let refused = all.addresses(protocol, &place(host, 80), None, &budget).await;
                let refused = refused.expect_err(host);
                assert!(matches!(refused.kind, Kind::Forbidden | Kind::HostUnreachable), "{host}: {refused}");
            }
            let far = all.addresses(protocol, &place("192.0.2.1", 80), None, &budget).await;
            assert_eq!(far, Ok(vec![SocketAddr::from(([192, 0, 2, 1], 80))]));
        }
        // It may be named beside.
        let named = permits(&["*:*", "127.0.0.1:80", "[fd00:ec2::254]:80"], &[]);
        for host in ["127.0.0.1", "localhost", "127.1", "fd00:ec2::254"] {
            assert!(named.addresses(Protocol::Tcp, &place(host, 80), None, &budget).await.is_ok(), "{host}");
        }
        assert!(named.addresses(Protocol::Tcp, &place("127.0.0.2", 80), None, &budget).await.is_err());
        assert!(named.addresses(Protocol::Tcp, &place("127.0.0.1", 81), None, &budget).await.is_err());
        let by_name = permits(&["localhost:80"], &[]);
        assert!(by_name.addresses(Protocol::Tcp, &place("localhost", 80), None, &budget).await.is_ok());
    }

    /// A name costs a lookup, which others see, only where it may lead to what is permitted.
    #[tokio::test]
    async fn names_that_nothing_can_permit_are_not_looked_up() {
        let budget = budget();
        for (patterns, host, may) in [
            (&["127.0.0.1:80"][..], "secret.example.com", false),
            (&["127.0.0.1:80"], "localhost", true),
            (&["[::1]:80", "169.254.169.254:80"], "secret.example.com", false),
            (&["web.example:80"], "secret.example.com", false),
            (&["web.example:80"], "web.example", true),
            (&["*.example:80"], "secret.example.com", false),
            (&["*:443"], "secret.example.com", false),
            (&["*:80"], "secret.example.com", true),
            (&["192.0.2.1:80"], "secret.example.com", true),
            (&["web.example:80"], "192.0.2.1", false),
        ] {
            let permits = permits(patterns, &[]);
            let of = matching(&permits.connect, Protocol::Tcp, 80, None);
            let could = of.iter().any(|p| p.host.has_name(host) || p.host.may_be_meant_by(host));
            assert_eq!(could, may, "{patterns:?} {host}");
            if !may {
                let refused = permits.addresses(Protocol::Tcp, &place(host, 80), None, &budget).await;
                assert_eq!(refused.expect_err(host).kind, Kind::Forbidden);
            }
        }
    }

    #[test]
    fn only_what_is_named_may_be_listened_at() {
        let all = permits(&[], &["8080", "udp/*:5000", "127.0.0.1:9000"]);
        let ask =
            |protocol, host: &str, port| all.listening(protocol, &place(host, port), None).map(|a| a.len());
        assert_eq!(ask(Protocol::Tcp, "127.0.0.1", 8080), Ok(1));
        assert_eq!(ask(Protocol::Tcp, "localhost", 9000), Ok(1));
        assert_eq!(ask(Protocol::Udp, "*", 5000), Ok(2));
        for (protocol, host, port) in [
            (Protocol::Tcp, "*", 8080),
            (Protocol::Tcp, "0.0.0.0", 8080),
            (Protocol::Tcp, "127.0.0.1", 0),
            (Protocol::Tcp, "127.0.0.1", 5000),
            (Protocol::Udp, "127.0.0.1", 8080),
        ] {
            let refused = ask(protocol, host, port).unwrap_err();
            assert_eq!(refused.kind, Kind::Forbidden, "{host}:{port}");
        }
        assert_eq!(ask(Protocol::Tcp, "web", 8080).unwrap_err().kind, Kind::Other);
        let any = permits(&[], &["*"]);
        assert!(any.listening(Protocol::Tcp, &place("127.0.0.1", 0), None).is_ok());
    }
}
