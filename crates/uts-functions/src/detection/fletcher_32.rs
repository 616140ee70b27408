//! Fletcher's checksum of 32 bits: the sum of 16-bit words, and the sum of those sums, modulo
//! 65,535 (Fletcher, "An Arithmetic Checksum for Serial Transmissions", 1982). Finds words that
//! have changed places, which the Internet checksum does not. TP4 has it in 16 bits.

use super::BY_NAME;
use crate::function::Function;
use crate::mechanism::{Consent, Mechanism, Params};

const TRAILER_BYTES: usize = 4;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Fletcher32;

impl Fletcher32 {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Detection,
        number: 4,
        name: "fletcher-32",
        what: "two sums of 16-bit words (Fletcher 1982)",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: BY_NAME,
        predict: |_, facts, prediction| {
            prediction.header_bytes += TRAILER_BYTES as f64;
            prediction.cpu_ns += 2.0 * 0.15 * facts.mtu_bytes as f64;
        },
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        Fletcher32
    }
}

checks_by_sum!(Fletcher32, TRAILER_BYTES, checksum);

/// Words in a row before the second sum could pass 32 bits.
const WORDS_IN_A_ROW: usize = 359;

/// Words are little-endian, an odd last byte is the low half of one; the second sum is the high
/// half of the result (detection.md R-9).
fn checksum(bytes: &[u8]) -> [u8; TRAILER_BYTES] {
    let (mut first, mut second) = (0_u32, 0_u32);
    for chunk in bytes.chunks(2 * WORDS_IN_A_ROW) {
        for word in chunk.chunks(2) {
            let (low, high) = (word.first().copied().unwrap_or(0), word.get(1).copied().unwrap_or(0));
            first += u32::from(u16::from_le_bytes([low, high]));
            second += first;
        }
        (first, second) = (first % 65_535, second % 65_535);
    }
    (second << 16 | first).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that are published with the algorithm for these words.
    #[test]
    fn published_values() {
        let values: [(&[u8], u32); 3] =
            [(b"abcde", 0xf04f_c729), (b"abcdef", 0x5650_2d2a), (b"abcdefgh", 0xebe1_9591)];
        for (text, value) in values {
            assert_eq!(checksum(text), value.to_be_bytes(), "{text:?}");
        }
    }

    #[test]
    fn the_longest_packets_do_not_overflow() {
        assert_eq!(checksum(&[0xff; 65_535]), checksum(&[&[0xff; 65_534][..], &[0xff]].concat()));
        assert_eq!(checksum(&[0xff; 65_534]), [0; 4], "0xffff is zero modulo 65,535");
    }

    #[test]
    fn words_that_changed_places_are_found() {
        assert_ne!(checksum(&[1, 2, 3, 4]), checksum(&[3, 4, 1, 2]));
    }
}
