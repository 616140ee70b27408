//! Addresses of IPv6 with a zone, as `fe80::1%eth0` (RFC 4007 section 11): those of a link mean
//! nothing without it.

use std::net::Ipv6Addr;

/// The longest name of an interface, in bytes (Linux: `IFNAMSIZ` without its NUL).
const ZONE_BYTES_MAX: usize = 15;

/// True if a text is an address of IPv6, with or without a zone.
pub fn is_ipv6(text: &str) -> bool {
    let (address, zone) = split(text);
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '%' | ']');
    let is_zone = |zone: &str| (1..=ZONE_BYTES_MAX).contains(&zone.len()) && !zone.contains(is_odd);
    address.parse::<Ipv6Addr>().is_ok() && zone.is_none_or(is_zone)
}

/// The address and the zone, if a text has one.
///
/// ```
/// assert_eq!(uts::zone::split("fe80::1%eth0"), ("fe80::1", Some("eth0")));
/// assert_eq!(uts::zone::split("example.org"), ("example.org", None));
/// ```
pub fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)))
}

/// An address as it stands in a URL, where the sign before the zone is written `%25` (RFC 6874
/// section 2), in its usual form.
pub fn of_url(text: &str) -> String {
    match split(text) {
        (address, Some(zone)) => {
            let zone = zone.strip_prefix("25").filter(|zone| !zone.is_empty()).unwrap_or(zone);
            format!("{address}%{zone}")
        }
        (address, None) => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_told_from_addresses() {
        for text in ["::1", "fe80::1%eth0", "fe80::1%2", "ff02::1%wlp0s20f3"] {
            assert!(is_ipv6(text), "{text}");
        }
        for text in [
            "fe80::1%",
            "fe80::1%a b",
            "fe80::1%a/b",
            "fe80::1%%",
            "127.0.0.1%lo",
            "%lo",
            "fe80::1%0123456789abcdef",
        ] {
            assert!(!is_ipv6(text), "{text}");
        }
        for (text, usual) in [
            ("fe80::1%25eth0", "fe80::1%eth0"),
            ("fe80::1%eth0", "fe80::1%eth0"),
            ("fe80::1%25", "fe80::1%25"),
        ] {
            assert_eq!(of_url(text), usual);
        }
    }
}
