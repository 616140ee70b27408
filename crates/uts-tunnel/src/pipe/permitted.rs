//! Which services a server lets its clients reach: only what is named, and nothing by default.

use super::NAME_BYTES_MAX;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A service, written `NAME=HOST:PORT` or `NAME=PORT` (of this host).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Name by which clients call it.
    pub name: String,
    /// Where it is, as `host:port`: TCP.
    pub address: String,
}

impl FromStr for Service {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, place) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` is not NAME=HOST:PORT, as ssh=127.0.0.1:22"))?;
        let is_sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_sound) {
            return Err(format!(
                "`{name}` cannot be a name: write 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`"
            ));
        }
        let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
        let address = match place.rsplit_once(':') {
            None if is_port(place) => format!("127.0.0.1:{place}"),
            Some((host, port)) if !host.is_empty() && is_port(port) => {
                if host.contains(':') && !host.starts_with('[') {
                    return Err(format!("`{place}`: write IPv6 addresses in brackets, as [::1]:22"));
                }
                place.to_owned()
            }
            _ => return Err(format!("`{place}` has no port from 1 to 65535; write HOST:PORT")),
        };
        Ok(Service { name: name.to_owned(), address })
    }
}

/// All services of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permitted(BTreeMap<String, String>);

impl Permitted {
    /// These services.
    ///
    /// # Errors
    /// Two have one name.
    pub fn new(services: &[Service]) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for Service { name, address } in services {
            if let Some(before) = all.insert(name.clone(), address.clone()) {
                return Err(format!("`{name}` is both {before} and {address}"));
            }
        }
        Ok(Permitted(all))
    }

    /// The host, without brackets, and the port at which a service is.
    ///
    /// # Errors
    /// What the client is told: there is none of that name.
    pub fn address(&self, name: &str) -> Result<(&str, u16), String> {
        let place = self.0.get(name).and_then(|place| place.rsplit_once(':'));
        let place = place.and_then(|(host, port)| Some((host.trim_matches(['[', ']']), port.parse().ok()?)));
        // Which there are is not for everybody to know.
        place.ok_or_else(|| format!("no service `{name}` here"))
    }
}

impl fmt::Display for Permitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (name, address)) in self.0.iter().enumerate() {
            write!(f, "{}{name} ({address})", if n == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_a_name_and_a_place() {
        let address = |text: &str| text.parse::<Service>().unwrap().address;
        assert_eq!(address("ssh=22"), "127.0.0.1:22");
        assert_eq!(address("web-1.x=example.org:80"), "example.org:80");
        assert_eq!(address("six=[::1]:22"), "[::1]:22");
        for (wrong, says) in [
            ("ssh", "NAME=HOST:PORT"),
            ("=22", "cannot be a name"),
            ("a b=22", "cannot be a name"),
            ("ssh=host", "no port"),
            ("ssh=host:0", "no port"),
            ("ssh=host:70000", "no port"),
            ("ssh=:22", "no port"),
            ("ssh=::1:22", "brackets"),
        ] {
            let why = wrong.parse::<Service>().unwrap_err();
            assert!(why.contains(says), "{wrong}: {why}");
        }
    }

    #[test]
    fn only_what_is_named_is_there() {
        let services = ["ssh=22", "git=127.0.0.1:9418", "six=[::1]:80"].map(|text| text.parse().unwrap());
        let permitted = Permitted::new(&services).unwrap();
        assert_eq!(permitted.address("ssh"), Ok(("127.0.0.1", 22)));
        assert_eq!(permitted.address("six"), Ok(("::1", 80)));
        assert_eq!(permitted.address("127.0.0.1:22"), Err("no service `127.0.0.1:22` here".into()));
        assert_eq!(permitted.to_string(), "git (127.0.0.1:9418), six ([::1]:80), ssh (127.0.0.1:22)");
        let twice = ["ssh=22", "ssh=23"].map(|text| text.parse().unwrap());
        assert!(Permitted::new(&twice).unwrap_err().contains("both"));
    }
}
