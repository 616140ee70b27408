//! Longitudinal parity: the exclusive or of 16-bit words (ISO 1155 has it in seven bits). Cheap,
//! and finds each error of an odd number of bits in one of the sixteen columns.

use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Unasked};

const TRAILER_BYTES: usize = 2;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Parity;

impl Parity {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Detection,
        number: 3,
        name: "parity",
        what: "longitudinal parity, sixteen bits wide",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts { uniform: true, unasked: Unasked::Never, ..Facts::PLAIN },
        predict: |_, facts, prediction| {
            prediction.header_bytes += TRAILER_BYTES as f64;
            prediction.cpu_ns += 2.0 * 0.02 * facts.mtu_bytes as f64;
        },
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        Parity
    }
}

checks_by_sum!(Parity, TRAILER_BYTES, checksum);

/// An odd last byte is the high half of a word (detection.md R-8).
fn checksum(bytes: &[u8]) -> [u8; TRAILER_BYTES] {
    let (words, rest) = bytes.as_chunks::<TRAILER_BYTES>();
    let sum = words.iter().fold(0, |sum, word| sum ^ u16::from_be_bytes(*word));
    (sum ^ rest.first().map_or(0, |last| u16::from_be_bytes([*last, 0]))).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_by_hand() {
        assert_eq!(checksum(&[0b1010_0000, 1, 0b1000_0001, 3, 0xf0]), [0b1101_0001, 2]);
        assert_eq!(checksum(&[]), [0, 0]);
    }

    /// Two errors in one column pass: that is all that parity is.
    #[test]
    fn two_errors_in_one_column_pass() {
        assert_eq!(checksum(&[1, 0, 1, 0]), checksum(&[0; 4]));
    }
}
