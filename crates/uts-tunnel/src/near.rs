//! Addresses that lead to this host or to what is nearest to it: programs here trust who comes by
//! them, as do services of the machine that it runs on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The metadata service of a cloud, beside the one at a link-local address.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Nobody has this address (RFC 5737): who may use it may use all.
const NOBODYS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// True if an address is of this host, of its own link alone, of many hosts, or of a service that
/// trusts whoever can reach it: loopback, unspecified, link-local, multicast, broadcast, an address
/// that an interface here has, and where clouds keep credentials.
pub fn is_near(address: IpAddr) -> bool {
    let address = embedded(address);
    let by_kind = match address {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.octets()[0] == 0
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_unicast_link_local()
                || v6.is_multicast()
                || v6 == METADATA
        }
    };
    by_kind || is_own(address)
}

/// The IPv4 address that is meant by an IPv6 one: mapped (`::ffff:0:0/96`), compatible (`::/96`),
/// or behind a translator (`64:ff9b::/96`, RFC 6052).
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address.to_canonical() else { return address.to_canonical() };
    let last = Ipv4Addr::from((v6.to_bits() & u128::from(u32::MAX)) as u32);
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => IpAddr::V4(last),
        [0, 0, 0, 0, 0, 0, high, _] if high != 0 => IpAddr::V4(last),
        _ => IpAddr::V6(v6),
    }
}

/// True if an interface of this host has the address: then a socket can have it, too.
#[expect(clippy::disallowed_types, reason = "nothing is sent: the system is asked for an address")]
fn is_own(address: IpAddr) -> bool {
    let can_have = |address: IpAddr| std::net::UdpSocket::bind((address, 0)).is_ok();
    can_have(address) && !can_have(NOBODYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_told_by_its_address() {
        for near in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.0.1",
            "224.0.0.1",
            "239.1.1.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0.0.0.0",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert!(is_near(near.parse().unwrap()), "{near}");
        }
        for far in
            ["192.0.2.1", "198.51.100.7", "2001:db8::1", "64:ff9b::c000:201", "203.0.113.255", "fd00::1"]
        {
            assert!(!is_near(far.parse().unwrap()), "{far}");
        }
    }
}
