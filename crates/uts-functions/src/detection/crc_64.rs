//! CRC-64 with the polynomial of ECMA-182, reflected, as xz has it (CRC-64/XZ in the catalogue of
//! parametrised CRC algorithms). For data that is kept for long or sent in vast amounts.

use super::BY_NAME;
use crate::function::Function;
use crate::mechanism::{Consent, Mechanism, Params};
use crc_fast::CrcAlgorithm;

const TRAILER_BYTES: usize = 8;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Crc64;

impl Crc64 {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Detection,
        number: 6,
        name: "crc-64",
        what: "a 64-bit cyclic redundancy check (CRC-64/XZ)",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: BY_NAME,
        predict: |_, facts, prediction| {
            prediction.header_bytes += TRAILER_BYTES as f64;
            prediction.cpu_ns += 2.0 * (8.0 + 0.02 * facts.mtu_bytes as f64);
        },
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        Crc64
    }
}

checks_by_sum!(Crc64, TRAILER_BYTES, checksum);

/// Least significant byte first (detection.md R-11).
fn checksum(bytes: &[u8]) -> [u8; TRAILER_BYTES] {
    crc_fast::checksum(CrcAlgorithm::Crc64Xz, bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(checksum(b"123456789"), 0x995d_c9bb_df19_39fa_u64.to_le_bytes());
    }
}
