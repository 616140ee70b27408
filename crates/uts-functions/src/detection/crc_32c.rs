//! CRC-32C (Castagnoli), as in iSCSI (RFC 3720 section 12.1) and SCTP (RFC 4960 appendix B).
//!
//! It finds every burst of up to 32 bits and, in packets of up to 5,243 bits, every error of up to
//! five bits; one in 2^32 of the others passes.

use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise};
use crc_fast::CrcParams;
use std::sync::LazyLock;

const TRAILER_BYTES: usize = 4;

/// For [`folded`]: the polynomial as any other is described.
static FOLDING: LazyLock<CrcParams> =
    LazyLock::new(|| CrcParams::new("CRC-32C", 32, 0x1edc_6f41, 0xffff_ffff, true, 0xffff_ffff, 0xe306_9283));

/// From so many bytes on, where it is the faster way: below them, to begin and to end takes more
/// than it saves.
const FOLDED_FROM_BYTES: usize = 256;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Crc32c;

impl Crc32c {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Detection,
        number: 2,
        name: "crc-32c",
        what: "the 32-bit cyclic redundancy check of Castagnoli (RFC 3720)",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts { uniform: true, promises: &[Promise::Integrity], ..Facts::PLAIN },
        predict: |_, facts, prediction| {
            prediction.header_bytes += TRAILER_BYTES as f64;
            // 22 ns for 1400 bytes, at both ends.
            prediction.cpu_ns += 2.0 * (5.0 + 0.012 * facts.mtu_bytes as f64);
        },
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        Crc32c
    }
}

checks_by_sum!(Crc32c, TRAILER_BYTES, checksum);

/// In the byte order of RFC 3720's examples: least significant byte first (detection.md R-7).
fn checksum(bytes: &[u8]) -> [u8; TRAILER_BYTES] {
    let folds = bytes.len() >= FOLDED_FROM_BYTES && starts_crc_rarely();
    let sum = if folds { folded(bytes) } else { crc_fast::crc32_iscsi(bytes) };
    sum.to_le_bytes()
}

/// The checksum of two pieces, one behind the other.
pub(super) fn checksum_of_two(first: &[u8], second: &[u8]) -> [u8; TRAILER_BYTES] {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(first);
    digest.update(second);
    (digest.finalize() as u32).to_le_bytes()
}

/// True if the processor's instruction for CRC-32C, through which crc-fast sends a part of the
/// bytes, starts only once in three cycles, as the first of AMD's Zen does: 1468 bytes take it 190
/// ns by [`folded`], 286 by the other way. AMD's have SSE4a, and from Zen 3 on carry-less
/// multiplication of wide vectors.
#[cfg(target_arch = "x86_64")]
fn starts_crc_rarely() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("sse4a") && has!("pclmulqdq") && !has!("vpclmulqdq")
}

#[cfg(not(target_arch = "x86_64"))]
fn starts_crc_rarely() -> bool {
    false
}

/// By carry-less multiplication alone, as for any polynomial.
fn folded(bytes: &[u8]) -> u32 {
    crc_fast::checksum_with_params(*FOLDING, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_3720() {
        // Appendix B.4.
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        assert_eq!(checksum(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(checksum(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(checksum(&up), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(checksum(&down), [0x5c, 0xdb, 0x3f, 0x11]);
        let mut read = [0; 48];
        read[0] = 0x01;
        read[1] = 0xc0;
        read[16] = 0x14;
        read[22] = 0x04;
        read[27] = 0x14;
        read[31] = 0x18;
        read[32] = 0x28;
        read[40] = 0x02;
        assert_eq!(checksum(&read), [0x56, 0x3a, 0x96, 0xd9]);
    }

    /// Whatever a processor takes, and wherever a packet lies and ends.
    #[test]
    fn both_ways_find_the_same() {
        let bytes: Vec<u8> = (0..2100_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for start in 0..32 {
            for bytes in (start..bytes.len()).map(|end| &bytes[start..end]) {
                assert_eq!(folded(bytes), crc_fast::crc32_iscsi(bytes), "{} bytes from {start}", bytes.len());
            }
        }
    }

    #[test]
    fn the_usual_check_value() {
        assert_eq!(checksum(b"123456789"), 0xe306_9283_u32.to_le_bytes());
    }
}
