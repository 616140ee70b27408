//! Forwards of a client, as they are written: `[udp/][BIND:]PORT:HOST:HOSTPORT`, as ssh has it.

use std::fmt;
use uts::Requirements;
use uts::requirements::PROPERTIES;

/// Form in which a place is written.
const PLACE: &str = "[udp/][BIND:]PORT:HOST:HOSTPORT";

/// The longest name of a host (RFC 1035 section 2.3.4).
pub const HOST_BYTES_MAX: usize = 255;

/// Where a forward listens unless it says otherwise: at this host only.
pub const BIND: &str = "127.0.0.1";

/// Kind of traffic that is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Streams of bytes.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Protocol {
    /// The protocol that a text begins with, and the rest of it.
    pub fn split(text: &str) -> (Protocol, &str) {
        let udp = text.strip_prefix("udp/").map(|rest| (Protocol::Udp, rest));
        udp.unwrap_or((Protocol::Tcp, text.strip_prefix("tcp/").unwrap_or(text)))
    }

    /// Prefix of a place of this protocol, as it is written.
    pub fn prefix(self) -> &'static str {
        match self {
            Protocol::Tcp => "",
            Protocol::Udp => "udp/",
        }
    }
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A name or an address, without brackets; `*` = all addresses, to listen at.
    pub host: String,
    /// 0 = any free port, to listen at.
    pub port: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Where what is accepted goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// To one place.
    Place(Place),
    /// To where each connection says (SOCKS5).
    Any,
}

/// One forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Kind of traffic that is carried.
    pub protocol: Protocol,
    /// Where it listens.
    pub bind: Place,
    /// Where it leads.
    pub goal: Goal,
    /// Properties that are asked of its flows, beyond those of the connection.
    pub properties: Vec<Property>,
}

/// A name and a value.
pub type Property = (String, String);

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.protocol.prefix(), self.bind)?;
        match &self.goal {
            Goal::Place(place) => write!(f, " to {place}"),
            Goal::Any => write!(f, " (SOCKS5)"),
        }
    }
}

impl Forward {
    /// Reads `[udp/][BIND:]PORT:HOST:HOSTPORT`, and behind commas properties `NAME=VALUE`.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn parse(text: &str) -> Result<Forward, String> {
        let (rest, properties) = properties(text)?;
        let (protocol, rest) = Protocol::split(rest);
        let fields = fields(rest).map_err(|why| format!("`{text}`: {why}"))?;
        let wrong = || format!("`{text}` is not {PLACE}, as 8080:127.0.0.1:80");
        let (bind, port, host, host_port) = match fields[..] {
            [port, host, host_port] => (BIND, port, host, host_port),
            [bind, port, host, host_port] => (bind, port, host, host_port),
            _ => return Err(wrong()),
        };
        let bind = listening(text, bind, port)?;
        if host.is_empty() {
            return Err(format!("`{text}` names no host to lead to; write {PLACE}"));
        }
        let host = sound(text, host)?;
        let port = match number(text, host_port)? {
            0 => return Err(format!("`{text}`: port 0 cannot be connected to")),
            port => port,
        };
        Ok(Forward { protocol, bind, goal: Goal::Place(Place { host, port }), properties })
    }

    /// Reads `[BIND:]PORT`, where SOCKS5 is spoken, and behind commas properties `NAME=VALUE`.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn parse_dynamic(text: &str) -> Result<Forward, String> {
        let (rest, properties) = properties(text)?;
        if rest.starts_with("udp/") {
            return Err(format!("`{text}`: SOCKS5 is over TCP here; write [BIND:]PORT"));
        }
        let fields = fields(rest).map_err(|why| format!("`{text}`: {why}"))?;
        let (bind, port) = match fields[..] {
            [port] => (BIND, port),
            [bind, port] => (bind, port),
            _ => return Err(format!("`{text}` is not [BIND:]PORT, as 1080")),
        };
        let bind = listening(text, bind, port)?;
        Ok(Forward { protocol: Protocol::Tcp, bind, goal: Goal::Any, properties })
    }
}

/// Takes the properties off.
fn properties(text: &str) -> Result<(&str, Vec<Property>), String> {
    let mut parts = text.split(',');
    let place = parts.next().unwrap_or_default();
    let mut all = Vec::new();
    for part in parts {
        let (name, value) = part.split_once('=').ok_or_else(|| {
            format!("`{text}`: `{part}` is not a property; write NAME=VALUE behind the comma")
        })?;
        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
        checked(&name, &value).map_err(|why| format!("`{text}`: {why}"))?;
        all.push((name, value));
    }
    Ok((place, all))
}

/// Checks that a property can be asked of a flow.
///
/// # Errors
/// Why not.
pub fn checked(name: &str, value: &str) -> Result<(), String> {
    Requirements::default().set(name, value).map_err(|error| error.to_string())?;
    if PROPERTIES.iter().any(|property| property.name == name && property.is_shared()) {
        return Err(format!("{name} is of the connection, not of one forward; give it by --property"));
    }
    Ok(())
}

/// Takes `a:[b]:c` apart; brackets go.
pub fn fields(text: &str) -> Result<Vec<&str>, String> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        let field = match rest.strip_prefix('[') {
            Some(inner) => {
                let (address, after) = inner.split_once(']').ok_or("a `]` is missing after the address")?;
                if !uts::zone::is_ipv6(address) {
                    return Err(format!("`{address}` is not an IPv6 address"));
                }
                rest = after;
                address
            }
            None => {
                let (field, after) = rest.split_at(rest.find(':').unwrap_or(rest.len()));
                rest = after;
                field
            }
        };
        all.push(field);
        match rest.strip_prefix(':') {
            Some(after) => rest = after,
            None if rest.is_empty() => return Ok(all),
            None => return Err("after `]` only `:` may follow".to_owned()),
        }
    }
}

fn listening(text: &str, bind: &str, port: &str) -> Result<Place, String> {
    let host = if bind.is_empty() { "*".to_owned() } else { sound(text, bind)? };
    Ok(Place { host, port: number(text, port)? })
}

fn number(text: &str, port: &str) -> Result<u16, String> {
    port.parse().map_err(|_| format!("`{text}`: `{port}` is not a port (0 to 65535)"))
}

fn sound(text: &str, host: &str) -> Result<String, String> {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '@');
    if host.len() > HOST_BYTES_MAX || host.contains(is_odd) {
        return Err(format!("`{text}`: `{host}` is not a host"));
    }
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_read_as_ssh_has_them() {
        for (text, shown) in [
            ("8080:web:80", "127.0.0.1:8080 to web:80"),
            ("0:127.0.0.1:80", "127.0.0.1:0 to 127.0.0.1:80"),
            ("[::1]:8080:[fe80::1]:80", "[::1]:8080 to [fe80::1]:80"),
            ("*:8080:web:80", "*:8080 to web:80"),
            (":8080:web:80", "*:8080 to web:80"),
            ("tcp/8080:web:80", "127.0.0.1:8080 to web:80"),
            ("udp/5353:10.0.0.1:53", "udp/127.0.0.1:5353 to 10.0.0.1:53"),
        ] {
            assert_eq!(Forward::parse(text).unwrap().to_string(), shown, "{text}");
        }
        assert_eq!(Forward::parse_dynamic("1080").unwrap().to_string(), "127.0.0.1:1080 (SOCKS5)");
        assert_eq!(Forward::parse_dynamic("[::1]:1080").unwrap().to_string(), "[::1]:1080 (SOCKS5)");
        let asked = Forward::parse("udp/1:a:2,msgLifetime=200ms").unwrap();
        assert_eq!(asked.properties, [("msgLifetime".to_owned(), "200ms".to_owned())]);
        let asked = Forward::parse("1:a:2, connPriority=7 ,connCapacityProfile=scavenger").unwrap();
        let expected = [("connPriority", "7"), ("connCapacityProfile", "scavenger")];
        assert_eq!(asked.properties, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        for (text, why) in [
            ("", "is not [udp/][BIND:]PORT"),
            ("8080", "is not [udp/][BIND:]PORT"),
            ("8080:80", "is not [udp/][BIND:]PORT"),
            ("a:b:1:2:3", "is not [udp/][BIND:]PORT"),
            ("x:web:80", "`x` is not a port"),
            ("70000:web:80", "`70000` is not a port"),
            ("80:web:0", "port 0 cannot"),
            ("80::80", "names no host"),
            ("80:a b:80", "`a b` is not a host"),
            ("80:[::1:80", "`]` is missing"),
            ("80:[::1]x:80", "only `:`"),
            ("80:[web]:80", "not an IPv6 address"),
            ("80:web:80,x", "not a property"),
            ("80:web:80,connPriorty=1", "did you mean `connPriority`"),
            ("80:web:80,maxSendRate=1Mbit/s", "is of the connection"),
        ] {
            let said = Forward::parse(text).unwrap_err();
            assert!(said.contains(why) && said.lines().count() == 1, "{text}: {said}");
        }
        for (text, why) in [("a:b:1", "is not [BIND:]PORT"), ("udp/1080", "over TCP"), ("x", "not a port")] {
            let said = Forward::parse_dynamic(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
