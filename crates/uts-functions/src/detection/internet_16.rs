//! The Internet checksum (RFC 1071): the complement of the ones'-complement sum of 16-bit words.
//!
//! It finds every error that is confined to one word, and one in about 65,000 of the others. It
//! does not find words that have changed places, nor a word of zeros that became a word of ones.

use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise, Unasked};

const TRAILER_BYTES: usize = 2;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Internet16;

impl Internet16 {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Detection,
        number: 1,
        name: "internet-16",
        what: "the 16-bit Internet checksum (RFC 1071)",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Integrity],
            unasked: Unasked::Choice(1),
            ..Facts::PLAIN
        },
        predict: |_, facts, prediction| {
            prediction.header_bytes += TRAILER_BYTES as f64;
            // 46 ns for 1400 bytes, at both ends.
            prediction.cpu_ns += 2.0 * 0.033 * facts.mtu_bytes as f64;
        },
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        Internet16
    }
}

// detection.md R-6: a trailer is compared as it stands.
checks_by_sum!(Internet16, TRAILER_BYTES, |covered| checksum(covered).to_be_bytes());

/// detection.md R-5, RFC 1071 section 1; an odd last byte is the high half of a word.
pub(super) fn checksum(bytes: &[u8]) -> u16 {
    // Sums of 32-bit words fold to the same 16 bits (section 2(C)), in whatever order the bytes of
    // a word are added (section 2(B)): two at a time, as the processor reads them. 64 bits hold the
    // carries of 2^32 of them.
    let (pairs, rest) = bytes.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let mut sum = pairs.iter().map(halves).sum::<u64>() + halves(&last);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::from_be_bytes((sum as u16).to_ne_bytes())
}

/// The sum of the two words of 32 bits in eight bytes.
fn halves(pair: &[u8; 8]) -> u64 {
    let pair = u64::from_ne_bytes(*pair);
    (pair & 0xffff_ffff) + (pair >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        // Section 3: these words sum to ddf2.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    #[test]
    fn a_real_ip_header() {
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 0xc0, 0xa8, 0x00, 0x01,
            0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(checksum(&header), 0xb861);
    }

    #[test]
    fn odd_lengths_are_padded_at_the_end() {
        for len in 0..20 {
            let bytes: Vec<u8> = (0..len).map(|i| 0x12_u8.wrapping_add(0x29_u8.wrapping_mul(i))).collect();
            let mut padded = bytes.clone();
            padded.resize(bytes.len().next_multiple_of(2), 0);
            assert_eq!(checksum(&bytes), checksum(&padded), "{len} bytes");
            // Word by word, as the standard has it.
            let words = padded.chunks(2).map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])));
            let sum = words.fold(0, |sum, word| (sum + word) % 0xffff);
            assert_eq!(u64::from(!checksum(&bytes)) % 0xffff, sum, "{len} bytes");
        }
        assert_eq!(checksum(&[]), 0xffff);
        assert_eq!(checksum(&[0xab]), !0xab00);
    }
}
