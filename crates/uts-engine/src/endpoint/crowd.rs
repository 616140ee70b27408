//! How many connections one address has begun with this endpoint, so that no single host takes them
//! all.
//!
//! Anybody can send first packets in the name of another. What counts against an address is
//! therefore what has shown to come from it; what has not shown it makes this end ask for proof,
//! and nothing else.

use std::collections::HashMap;
use std::net::IpAddr;

/// Whether another connection from an address is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Yes.
    Taken,
    /// Once it has shown that it comes from there.
    OnProof,
    /// No: the address has as many as it may.
    Refused,
}

/// How a connection counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Counted {
    /// Not at all: this end has begun it, or there is no limit.
    #[default]
    Not,
    /// It says that it comes from its address.
    Claimed,
    /// It has shown that it does.
    Proved,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    claimed: usize,
    proved: usize,
}

/// Connections by the address that they come from.
#[derive(Debug)]
pub(super) struct Crowd {
    max: usize,
    counts: HashMap<IpAddr, Count>,
}

impl Crowd {
    /// At most `max` of one address; `usize::MAX` = any number, and nothing is counted.
    pub fn new(max: usize) -> Self {
        Crowd { max, counts: HashMap::new() }
    }

    /// Whether another one is taken.
    pub fn admits(&self, from: IpAddr, is_proved: bool) -> Admission {
        let count = self.counts.get(&host(from)).copied().unwrap_or_default();
        if !is_proved && count.claimed.saturating_add(count.proved) >= self.max {
            return Admission::OnProof;
        }
        if count.proved >= self.max { Admission::Refused } else { Admission::Taken }
    }

    /// One that was taken.
    pub fn join(&mut self, from: IpAddr, is_proved: bool) -> Counted {
        if self.max == usize::MAX {
            return Counted::Not;
        }
        let count = self.counts.entry(host(from)).or_default();
        let (of, counted) = if is_proved {
            (&mut count.proved, Counted::Proved)
        } else {
            (&mut count.claimed, Counted::Claimed)
        };
        *of += 1;
        counted
    }

    /// Its handshake has shown that it comes from there. `false` = it is one too many.
    #[must_use]
    pub fn prove(&mut self, from: IpAddr, counted: &mut Counted) -> bool {
        if *counted != Counted::Claimed {
            return true;
        }
        let max = self.max;
        let count = self.counts.entry(host(from)).or_default();
        if count.proved >= max {
            return false;
        }
        count.claimed = count.claimed.saturating_sub(1);
        count.proved += 1;
        *counted = Counted::Proved;
        true
    }

    /// It is gone.
    pub fn leave(&mut self, from: IpAddr, counted: &mut Counted) {
        let host = host(from);
        let Some(count) = self.counts.get_mut(&host) else { return };
        match core::mem::take(counted) {
            Counted::Not => {}
            Counted::Claimed => count.claimed = count.claimed.saturating_sub(1),
            Counted::Proved => count.proved = count.proved.saturating_sub(1),
        }
        if count.claimed == 0 && count.proved == 0 {
            self.counts.remove(&host);
        }
    }
}

/// What one host has for certain: an IPv4 address, or 64 bits of IPv6, whose other half it chooses
/// freely (RFC 4291 section 2.5.4).
fn host(of: IpAddr) -> IpAddr {
    match of.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "192.0.2.1";

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Whoever sends first packets in the name of another does not keep it out.
    #[test]
    fn what_is_only_claimed_keeps_nobody_out() {
        let mut crowd = Crowd::new(2);
        let mut claimed = [crowd.join(ip(A), false), crowd.join(ip(A), false)];
        assert_eq!(crowd.admits(ip(A), false), Admission::OnProof);
        assert_eq!(crowd.admits(ip(A), true), Admission::Taken);
        let mut proved = [crowd.join(ip(A), true), crowd.join(ip(A), true)];
        assert_eq!(crowd.admits(ip(A), true), Admission::Refused);
        assert_eq!(crowd.admits(ip("192.0.2.2"), false), Admission::Taken);
        assert!(!crowd.prove(ip(A), &mut claimed[0]), "two have shown to come from there already");
        crowd.leave(ip(A), &mut proved[0]);
        assert!(crowd.prove(ip(A), &mut claimed[0]));
        assert_eq!(crowd.admits(ip(A), true), Admission::Refused);
        for counted in claimed.iter_mut().chain(&mut proved) {
            crowd.leave(ip(A), counted);
        }
        assert!(crowd.counts.is_empty(), "nothing is kept of who is gone");
    }

    #[test]
    fn one_network_of_ipv6_is_one_host_and_ipv4_within_ipv6_is_itself() {
        let mut crowd = Crowd::new(1);
        crowd.join(ip("2001:db8::1"), true);
        assert_eq!(crowd.admits(ip("2001:db8::ffff:2"), true), Admission::Refused);
        assert_eq!(crowd.admits(ip("2001:db8:0:1::1"), true), Admission::Taken);
        crowd.join(ip("::ffff:192.0.2.1"), true);
        assert_eq!(crowd.admits(ip(A), true), Admission::Refused);
        assert_eq!(crowd.admits(ip("::ffff:192.0.2.2"), true), Admission::Taken);
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let mut crowd = Crowd::new(usize::MAX);
        assert_eq!(crowd.join(ip(A), true), Counted::Not);
        assert_eq!(crowd.admits(ip(A), false), Admission::Taken);
        assert!(crowd.counts.is_empty());
    }
}
