//! CRC-32 as Ethernet, zip and PNG have it (IEEE 802.3, CRC-32/ISO-HDLC in the catalogue of
//! parametrised CRC algorithms).

use super::BY_NAME;
use crate::function::Function;
use crate::mechanism::{Consent, Mechanism, Params};

const TRAILER_BYTES: usize = 4;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Crc32;

impl Crc32 {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Detection,
        number: 5,
        name: "crc-32",
        what: "the 32-bit cyclic redundancy check of Ethernet (IEEE 802.3)",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: BY_NAME,
        predict: |_, facts, prediction| {
            prediction.header_bytes += TRAILER_BYTES as f64;
            // As for CRC-32C, of which there is an instruction: 30 ns for 1400 bytes, at both ends.
            prediction.cpu_ns += 2.0 * (5.0 + 0.018 * facts.mtu_bytes as f64);
        },
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        Crc32
    }
}

checks_by_sum!(Crc32, TRAILER_BYTES, checksum);

/// Least significant byte first, as Ethernet sends it (detection.md R-10).
fn checksum(bytes: &[u8]) -> [u8; TRAILER_BYTES] {
    crc_fast::crc32_iso_hdlc(bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926_u32.to_le_bytes());
    }
}
