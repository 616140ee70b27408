//! Services that answer datagrams to whatever address they seem to come from. A sender that writes
//! the address of such a service into packets has an answer of this end sent there, and that
//! answered in turn (migration.md M-15).

use std::net::SocketAddr;

/// Ports of services that were found to be made use of so (IANA's registry; US-CERT TA14-017A,
/// "UDP-Based Amplification Attacks"), and port 0, at which nobody is.
const PORTS: [u16; 22] = [
    0, 7, 13, 17, 19, 37, 53, 69, 111, 123, 137, 161, 389, 427, 500, 520, 1900, 3702, 5353, 5355, 5683, 11211,
];

/// True if a datagram that comes from there is no packet of a peer that begins or moves.
pub(super) fn is_one(remote: SocketAddr) -> bool {
    PORTS.binary_search(&remote.port()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_in_order() {
        assert!(PORTS.is_sorted());
        assert!(is_one(([192, 0, 2, 1], 53).into()) && !is_one(([192, 0, 2, 1], 4433).into()));
    }
}
