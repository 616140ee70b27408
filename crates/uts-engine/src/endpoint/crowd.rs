//! Counts what the peers of an endpoint hold of its places, by where they come from, so that no
//! host and no network takes them all.
//!
//! Anybody can send first packets in the name of another. What counts against an address is
//! therefore what has shown to come from it; what has not shown it makes this end ask for proof,
//! and nothing else.
//!
//! One host has an IPv4 address, or 64 bits of IPv6, whose other half it chooses freely (RFC 4291
//! section 2.5.4). One customer has up to 48 bits of IPv6 (RFC 6177), and nobody is routed with
//! less than 24 bits of IPv4. Each of these counts, and may hold the more the larger it is.

use std::collections::HashMap;
use std::net::IpAddr;

/// Bits of the networks that count, from the host on, and how many times as much as a host each may
/// hold.
const OF_IPV4: [(u32, usize); 2] = [(32, 1), (24, 4)];
const OF_IPV6: [(u32, usize); 3] = [(64, 1), (56, 2), (48, 4)];

/// Loads are told in parts of this: it is a multiple of what networks may hold.
pub(super) const SCALE: u64 = 4;

/// Place, or handshake, that a connection holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Held {
    /// Nothing: this end has begun it, or it has been given up.
    #[default]
    Nothing,
    /// Its handshake is under way. It says that it comes from its address.
    Claimed,
    /// Its handshake is under way. It has shown that it comes from there.
    HalfOpen,
    /// A place: its handshake is done.
    Place,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    claimed: u32,
    half_open: u32,
    places: u32,
}

impl Count {
    fn of(&mut self, held: Held) -> Option<&mut u32> {
        match held {
            Held::Nothing => None,
            Held::Claimed => Some(&mut self.claimed),
            Held::HalfOpen => Some(&mut self.half_open),
            Held::Place => Some(&mut self.places),
        }
    }
}

/// A network of addresses, or a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Network {
    /// The first 64 bits of an IPv6 address, or the bits of an IPv4 address, as far as they count.
    bits: u64,
    /// Number of these bits; those of IPv6 are more than any of IPv4.
    len: u32,
}

impl Network {
    /// True if an address is in it.
    pub fn has(self, address: IpAddr) -> bool {
        networks(address).any(|(network, _)| network == self)
    }

    /// True if it is no more than a host.
    pub fn is_host(self) -> bool {
        matches!(self.len, 32 | 64)
    }
}

/// The networks of an address, the host first, each with how many times as much it may hold.
fn networks(of: IpAddr) -> impl Iterator<Item = (Network, usize)> {
    let (bits, width, levels) = match of.to_canonical() {
        IpAddr::V4(v4) => (u64::from(v4.to_bits()), 32, &OF_IPV4[..]),
        IpAddr::V6(v6) => ((v6.to_bits() >> 64) as u64, 64, &OF_IPV6[..]),
    };
    levels.iter().map(move |(len, times)| {
        (Network { bits: bits >> (width - len) << (width - len), len: *len }, *times)
    })
}

/// Counts of what is held, by the networks that it is held from.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    max: usize,
    counts: HashMap<Network, Count>,
}

impl Crowd {
    /// At most `max` of one host from now on; `usize::MAX` = any number. None at first.
    pub fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    fn count(&self, network: Network) -> Count {
        self.counts.get(&network).copied().unwrap_or_default()
    }

    /// True if an address has to show that it is there before it holds any more.
    pub fn wants_proof(&self, from: IpAddr) -> bool {
        networks(from).any(|(network, times)| {
            let count = self.count(network);
            let all = u64::from(count.claimed) + u64::from(count.half_open) + u64::from(count.places);
            all >= self.max.saturating_mul(times) as u64
        })
    }

    /// The smallest network of an address that holds as much of this as it may.
    pub fn full(&self, from: IpAddr, held: Held) -> Option<Network> {
        let is_full = |network: Network, times: usize| {
            let mut count = self.count(network);
            count.of(held).is_some_and(|count| *count as usize >= self.max.saturating_mul(times))
        };
        networks(from).find(|(network, times)| is_full(*network, *times)).map(|(network, _)| network)
    }

    /// One more is held.
    pub fn join(&mut self, from: IpAddr, held: Held) {
        for (network, _) in networks(from) {
            if let Some(count) = self.counts.entry(network).or_default().of(held) {
                *count += 1;
            }
        }
    }

    /// It is held no more.
    pub fn leave(&mut self, from: IpAddr, held: &mut Held) {
        let held = core::mem::take(held);
        if held == Held::Nothing {
            return;
        }
        for (network, _) in networks(from) {
            let Some(all) = self.counts.get_mut(&network) else { continue };
            if let Some(count) = all.of(held) {
                *count = count.saturating_sub(1);
            }
            if all.claimed == 0 && all.half_open == 0 && all.places == 0 {
                self.counts.remove(&network);
            }
        }
    }

    /// Amount of this that is held where an address is: in the network of it that holds most for
    /// its size. `apart_from` = networks that the other address is in as well are left out; `None`
    /// = both are of one host.
    pub fn load(&self, of: IpAddr, held: Held, apart_from: Option<IpAddr>) -> Option<u64> {
        let is_apart = |network: &Network| apart_from.is_none_or(|other| !network.has(other));
        let of_network = |(network, times): (Network, usize)| {
            let mut count = self.count(network);
            count.of(held).map_or(0, |count| u64::from(*count) * SCALE / times as u64)
        };
        networks(of).filter(|(network, _)| is_apart(network)).map(of_network).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "192.0.2.1";

    fn crowd(max: usize) -> Crowd {
        Crowd { max, ..Crowd::default() }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Whoever sends first packets in the name of another does not keep it out.
    #[test]
    fn what_is_only_claimed_keeps_nobody_out() {
        let mut crowd = crowd(2);
        assert!(!crowd.wants_proof(ip(A)));
        for _ in 0..100 {
            crowd.join(ip(A), Held::Claimed);
        }
        assert!(crowd.wants_proof(ip(A)) && !crowd.wants_proof(ip("198.51.100.1")));
        assert_eq!(crowd.full(ip(A), Held::HalfOpen).or(crowd.full(ip(A), Held::Place)), None);
        crowd.join(ip(A), Held::Place);
        crowd.join(ip(A), Held::Place);
        assert!(crowd.full(ip(A), Held::Place).expect("full").is_host());
        assert_eq!(crowd.full(ip("192.0.2.2"), Held::Place), None);
        (0..100).for_each(|_| crowd.leave(ip(A), &mut Held::Claimed.clone()));
        (0..2).for_each(|_| crowd.leave(ip(A), &mut Held::Place.clone()));
        assert!(crowd.counts.is_empty(), "nothing is kept of who is gone");
    }

    #[test]
    fn networks_count_as_hosts_do_and_hold_more() {
        let mut crowd = crowd(1);
        crowd.join(ip("2001:db8::1"), Held::Place);
        let full = |crowd: &Crowd, from| crowd.full(ip(from), Held::Place);
        assert!(full(&crowd, "2001:db8::ffff:2").expect("of one host").is_host());
        assert_eq!(full(&crowd, "2001:db8:0:1::1"), None);
        crowd.join(ip("2001:db8:0:1::1"), Held::Place);
        assert_eq!(full(&crowd, "2001:db8:0:2::1").map(|network| network.len), Some(56));
        assert_eq!(full(&crowd, "2001:db8:0:100::1"), None);
        crowd.join(ip("2001:db8:0:100::1"), Held::Place);
        crowd.join(ip("2001:db8:0:200::1"), Held::Place);
        assert_eq!(full(&crowd, "2001:db8:0:300::1").map(|network| network.len), Some(48));
        assert_eq!(full(&crowd, "2001:db8:1::1"), None);
        crowd.join(ip("::ffff:192.0.2.1"), Held::Place);
        assert!(full(&crowd, A).expect("IPv4 within IPv6 is itself").is_host());
        (2..5).for_each(|n| crowd.join(ip(&format!("192.0.2.{n}")), Held::Place));
        assert_eq!(full(&crowd, "192.0.2.9").map(|network| network.len), Some(24));
        assert_eq!(full(&crowd, "192.0.3.9"), None);
    }

    /// Hosts that share a network are told apart by what they do not share.
    #[test]
    fn loads_are_compared_where_addresses_differ() {
        let mut crowd = crowd(usize::MAX);
        (0..40).for_each(|n| crowd.join(ip(&format!("2001:db8:0:{n:x}::1")), Held::Place));
        (0..3).for_each(|_| crowd.join(ip("2001:db8:0:ff::1"), Held::Place));
        crowd.join(ip(A), Held::Place);
        let load = |of, apart_from: Option<&str>| crowd.load(ip(of), Held::Place, apart_from.map(ip));
        assert_eq!(
            load("2001:db8:0:1::1", Some(A)),
            Some(43 * SCALE / 2),
            "for its size, the /56 holds most"
        );
        assert_eq!(load(A, Some("2001:db8:0:1::1")), Some(SCALE));
        assert_eq!(load("2001:db8:0:1::1", Some("2001:db8:0:ff::1")), Some(SCALE));
        assert_eq!(load("2001:db8:0:ff::1", Some("2001:db8:0:1::1")), Some(3 * SCALE));
        assert_eq!(load("2001:db8:0:ff::1", Some("2001:db8:0:ff::2")), None);
        assert_eq!(load("192.0.2.9", None), Some(SCALE / 4));
    }
}
