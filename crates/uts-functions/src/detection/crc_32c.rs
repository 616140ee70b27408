//! CRC-32C (Castagnoli), as in iSCSI (RFC 3720 section 12.1) and SCTP (RFC 4960 appendix B).
//!
//! It finds every burst of up to 32 bits and, in packets of up to 5,243 bits, every error of up to five bits; one in
//! 2^32 of the others passes.

use super::Detection;
use crate::mechanism::{Mechanism, Params};
use crate::profile::Function;

const TRAILER_BYTES: usize = 4;

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
        params: &[],
        needs: &[],
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

impl Detection for Crc32c {
    fn trailer_bytes(&self) -> usize {
        TRAILER_BYTES
    }

    fn append(&self, covered: &[u8], trailer: &mut [u8]) {
        trailer.copy_from_slice(&checksum(covered));
    }

    fn verify(&self, covered: &[u8], trailer: &[u8]) -> bool {
        trailer == checksum(covered)
    }
}

/// In the byte order of RFC 3720's examples: least significant byte first.
fn checksum(bytes: &[u8]) -> [u8; TRAILER_BYTES] {
    crc_fast::crc32_iscsi(bytes).to_le_bytes()
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

    #[test]
    fn the_usual_check_value() {
        assert_eq!(checksum(b"123456789"), 0xe306_9283_u32.to_le_bytes());
    }
}
