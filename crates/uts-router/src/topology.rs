//! Which hosts are attached where, and what addresses they have.
//!
//! All topologies are a line of nodes with a path between each two neighbours. Hosts are attached
//! to nodes. The line behaves like one long Ethernet segment: no TTL is counted down, and all hosts
//! share a subnet.

use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Most hosts of a testbed.
pub const HOSTS_MAX: usize = 200;

/// Layout of hosts and paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// Host 0, a path, host 1.
    PointToPoint,
    /// Hosts `0..pairs` on one side of a path, hosts `pairs..2 * pairs` on the other.
    Dumbbell {
        /// Hosts on each side, at least 1.
        pairs: usize,
    },
    /// This many routers in a row, at least 2, with a path between each two neighbours (path `i` is
    /// between router `i` and `i + 1`), and host `i` at router `i`. From host 0 to the last one all
    /// paths are passed. The hosts between make cross traffic.
    Chain {
        /// Routers, and hosts.
        routers: usize,
    },
}

impl Topology {
    /// Number of hosts.
    pub fn hosts(self) -> usize {
        match self {
            Topology::PointToPoint => 2,
            Topology::Dumbbell { pairs } => pairs.saturating_mul(2),
            Topology::Chain { routers } => routers,
        }
    }

    /// Number of paths.
    pub fn paths(self) -> usize {
        match self {
            Topology::PointToPoint | Topology::Dumbbell { .. } => 1,
            Topology::Chain { routers } => routers.saturating_sub(1),
        }
    }

    /// The node that a host hangs on.
    pub(super) fn node_of(self, host: usize) -> usize {
        match self {
            Topology::PointToPoint | Topology::Chain { .. } => host,
            Topology::Dumbbell { pairs } => usize::from(host >= pairs),
        }
    }
}

/// The IPv4 address of a host: 10.77.0.1 is host 0.
pub(super) fn ipv4_of(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number_of(host))
}

/// The IPv6 address of a host: fd77::1 is host 0.
pub(super) fn ipv6_of(host: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number_of(host).into())
}

/// The Ethernet address of a host.
pub(super) fn ethernet_of(host: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, number_of(host)]
}

/// The host of an Ethernet address.
pub(super) fn host_of(address: [u8; 6]) -> Option<usize> {
    match address {
        [2, 0, 0, 0, 0, number] => usize::from(number).checked_sub(1),
        _ => None,
    }
}

/// [`HOSTS_MAX`] keeps it below 255.
fn number_of(host: usize) -> u8 {
    u8::try_from(host + 1).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_addresses_of_its_own_and_is_found_by_them() {
        for host in 0..HOSTS_MAX {
            assert_eq!(host_of(ethernet_of(host)), Some(host));
        }
        assert_eq!(ipv4_of(1).to_string(), "10.77.0.2");
        assert_eq!(ipv6_of(0).to_string(), "fd77::1");
        assert_eq!(host_of([0x33, 0x33, 0, 0, 0, 1]), None);
        assert_eq!(host_of([2, 0, 0, 0, 0, 0]), None);
    }
}
