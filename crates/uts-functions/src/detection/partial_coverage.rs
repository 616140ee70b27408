//! A checksum over the front of a packet, after UDP-Lite (RFC 3828): the sender says how many bytes
//! are covered. Damage there is found, and the packet dropped. Damage behind is found as well, by a
//! second checksum, and let through: the packet is right up to a byte.
//!
//! UDP-Lite has no second checksum. Its receiver cannot tell a damaged end from a whole one.

use super::internet_16::checksum;
use super::{Detection, Verdict, crc_32c};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise, Unasked};

const TRAILER_BYTES: usize = 8;
/// Bytes of the trailer's head: the number of bytes covered, and the checksum of those behind them.
const HEAD_BYTES: usize = 4;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct PartialCoverage;

impl PartialCoverage {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Detection,
        number: 10,
        name: "partial-coverage",
        what: "CRC-32C over the front of a packet; damage behind it is let through, and said (RFC 3828)",
        mandatory: false,
        // A receiver that has not said otherwise drops what is damaged anywhere.
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts {
            positions: true,
            tolerates: true,
            promises: &[Promise::Integrity],
            unasked: Unasked::Choice(2),
            ..Facts::PLAIN
        },
        predict: |_, facts, prediction| {
            prediction.header_bytes += TRAILER_BYTES as f64;
            prediction.cpu_ns += 2.0 * (10.0 + 0.033 * facts.mtu_bytes as f64);
        },
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        PartialCoverage
    }
}

/// The CRC of the bytes that are covered, and of what is said of the others.
fn crc(covered: &[u8], head: &[u8]) -> [u8; 4] {
    crc_32c::checksum_of_two(covered, head)
}

impl Detection for PartialCoverage {
    fn trailer_bytes(&self) -> usize {
        TRAILER_BYTES
    }

    fn append(&self, covered: &[u8], trailer: &mut [u8]) {
        self.append_up_to(covered, covered.len(), trailer);
    }

    fn append_up_to(&self, packet: &[u8], up_to: usize, trailer: &mut [u8]) {
        // detection.md R-17: packets are shorter than 2^16 bytes.
        let up_to = up_to.min(packet.len()).min(usize::from(u16::MAX));
        let (covered, tail) = packet.split_at(up_to);
        let (head, sum) = trailer.split_at_mut(HEAD_BYTES);
        head[..2].copy_from_slice(&(up_to as u16).to_be_bytes());
        head[2..].copy_from_slice(&checksum(tail).to_be_bytes());
        sum.copy_from_slice(&crc(covered, head));
    }

    fn check(&self, packet: &mut [u8], trailer: &[u8]) -> Verdict {
        let Some((head, sum)) = trailer.split_at_checked(HEAD_BYTES) else { return Verdict::Wrong };
        let &[a, b, c, d] = head else { return Verdict::Wrong };
        let up_to = usize::from(u16::from_be_bytes([a, b]));
        let Some((covered, tail)) = packet.split_at_checked(up_to) else { return Verdict::Wrong };
        if crc(covered, head) != sum {
            return Verdict::Wrong;
        }
        match checksum(tail).to_be_bytes() == [c, d] {
            true => Verdict::Right,
            // detection.md R-18: an empty end cannot be damaged.
            false if tail.is_empty() => Verdict::Wrong,
            false => Verdict::RightTo(up_to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: &[u8] = b"a header, and a voice that bears some damage";
    const COVERED: usize = 9;

    fn checked(damage: impl FnOnce(&mut Vec<u8>, &mut [u8; TRAILER_BYTES])) -> Verdict {
        let (mut packet, mut trailer) = (PACKET.to_vec(), [0; TRAILER_BYTES]);
        PartialCoverage.append_up_to(&packet, COVERED, &mut trailer);
        damage(&mut packet, &mut trailer);
        PartialCoverage.check(&mut packet, &trailer)
    }

    #[test]
    fn damage_is_let_through_only_behind_what_is_covered() {
        assert_eq!(checked(|_, _| {}), Verdict::Right);
        for bit in 0..8 * PACKET.len() {
            let verdict = checked(|packet, _| packet[bit / 8] ^= 1 << (bit % 8));
            let expected = if bit < 8 * COVERED { Verdict::Wrong } else { Verdict::RightTo(COVERED) };
            assert_eq!(verdict, expected, "bit {bit}");
        }
        for bit in 0..8 * TRAILER_BYTES {
            let verdict = checked(|_, trailer| trailer[bit / 8] ^= 1 << (bit % 8));
            assert_eq!(verdict, Verdict::Wrong, "bit {bit} of the trailer");
        }
        assert_eq!(checked(|packet, _| packet.truncate(COVERED - 1)), Verdict::Wrong);
    }

    #[test]
    fn what_is_said_of_the_rest_is_covered() {
        let mut trailer = [0; TRAILER_BYTES];
        PartialCoverage.append_up_to(PACKET, COVERED, &mut trailer);
        assert_eq!(trailer[..2], [0, COVERED as u8]);
        assert_eq!(trailer[2..4], checksum(&PACKET[COVERED..]).to_be_bytes());
        let whole = [&PACKET[..COVERED], &trailer[..4]].concat();
        let mut alone = [0; 4];
        crc_32c::Crc32c.append(&whole, &mut alone);
        assert_eq!(trailer[4..], alone, "CRC-32C of both, one behind the other");
    }

    #[test]
    fn a_packet_without_an_end_is_covered_whole() {
        let mut trailer = [0; TRAILER_BYTES];
        PartialCoverage.append_up_to(PACKET, usize::MAX, &mut trailer);
        let mut damaged = PACKET.to_vec();
        *damaged.last_mut().expect("bytes") ^= 1;
        assert_eq!(PartialCoverage.check(&mut damaged, &trailer), Verdict::Wrong);
    }
}
