//! Distinction of an endpoint from others of the same identity: on other hosts, in other
//! containers, at other ports.
//!
//! Nothing is stored. A server that is started again at its place has the same key, and can reset
//! the connections that it has forgotten. A server at any other place has another key, and can be
//! no oracle for them (RFC 9000 section 21.11).

use ring::hmac;
use std::net::{IpAddr, SocketAddr};

/// The key of an endpoint's ids and resets. It follows from its owner's secret, and from where it
/// is. [P-53]
pub(crate) fn secret(kept: &[u8; 32], at: SocketAddr) -> [u8; 32] {
    secret_of(kept, at, &host())
}

fn secret_of(kept: &[u8; 32], at: SocketAddr, host: &[Vec<u8>]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, kept));
    let mut add = |part: &[u8]| {
        // With its length, so that no two lists of parts read alike.
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    };
    add(b"uts instance");
    match at.ip() {
        IpAddr::V4(ip) => add(&ip.octets()),
        IpAddr::V6(ip) => add(&ip.octets()),
    }
    add(&at.port().to_be_bytes());
    host.iter().for_each(|part| add(part));
    let mut secret = [0; 32];
    secret.copy_from_slice(context.sign().as_ref());
    secret
}

/// Facts of this host. An address and a port belong to one socket of a network namespace. The other
/// facts tell that namespace from those of other hosts and containers. All outlive a restart of the
/// host, except the namespace of a container.
fn host() -> Vec<Vec<u8>> {
    let read = |path| std::fs::read(path).unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    vec![read("/etc/machine-id"), name(), namespace.into_os_string().into_encoded_bytes()]
}

#[cfg(unix)]
fn name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

#[cfg(not(unix))]
fn name() -> Vec<u8> {
    std::env::var_os("COMPUTERNAME").unwrap_or_default().into_encoded_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_secret_and_no_other_place_has_it() {
        let at = |text: &str| text.parse().expect("an address");
        let here = secret(&[1; 32], at("127.0.0.1:4433"));
        assert_eq!(here, secret(&[1; 32], at("127.0.0.1:4433")));
        assert_ne!(here, secret(&[2; 32], at("127.0.0.1:4433")));
        assert_ne!(here, secret(&[1; 32], at("127.0.0.1:4434")));
        assert_ne!(here, secret(&[1; 32], at("127.0.0.2:4433")));
        assert_ne!(here, secret(&[1; 32], at("[::1]:4433")));
    }

    #[test]
    fn each_part_of_what_is_known_of_a_host_counts() {
        let at = "[::]:4433".parse().expect("an address");
        let of = |parts: [&str; 3]| secret_of(&[1; 32], at, &parts.map(|part| part.as_bytes().to_vec()));
        let all = [["a", "b", "c"], ["x", "b", "c"], ["a", "x", "c"], ["a", "b", "x"], ["ab", "", "c"]];
        for (index, one) in all.iter().enumerate() {
            for other in &all[index + 1..] {
                assert_ne!(of(*one), of(*other), "{one:?} and {other:?}");
            }
        }
        assert!(!name().is_empty(), "the host has a name");
    }
}
