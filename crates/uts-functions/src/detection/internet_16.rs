//! The Internet checksum (RFC 1071): the complement of the ones'-complement sum of 16-bit words.
//!
//! It finds every error that is confined to one word, and one in about 65,000 of the others. It does not find words
//! that have changed places, nor a word of zeros that became a word of ones.

use super::Detection;
use crate::mechanism::{Mechanism, Params};
use crate::profile::Function;

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
        params: &[],
        needs: &[],
        predict: |_, facts, prediction| {
            prediction.header_bytes += TRAILER_BYTES as f64;
            // 107 ns for 1400 bytes, at both ends.
            prediction.cpu_ns += 2.0 * 0.076 * facts.mtu_bytes as f64;
        },
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        Internet16
    }
}

impl Detection for Internet16 {
    fn trailer_bytes(&self) -> usize {
        TRAILER_BYTES
    }

    fn append(&self, covered: &[u8], trailer: &mut [u8]) {
        trailer.copy_from_slice(&checksum(covered).to_be_bytes());
    }

    fn verify(&self, covered: &[u8], trailer: &[u8]) -> bool {
        trailer == checksum(covered).to_be_bytes()
    }
}

/// RFC 1071 section 1; an odd last byte is the high half of a word.
fn checksum(bytes: &[u8]) -> u16 {
    // Sums of 32-bit words fold to the same 16 bits (section 2(C)); 64 bits hold the carries of 2^32 of them.
    let mut words = bytes.chunks_exact(4);
    let mut sum: u64 = words.by_ref().map(|w| u64::from(u32::from_be_bytes([w[0], w[1], w[2], w[3]]))).sum();
    let mut last = [0; 4];
    for (place, byte) in last.iter_mut().zip(words.remainder()) {
        *place = *byte;
    }
    sum += u64::from(u32::from_be_bytes(last));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
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
        for len in 0..9 {
            let bytes = &[0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0][..len.min(8)];
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len().next_multiple_of(2), 0);
            assert_eq!(checksum(bytes), checksum(&padded), "{len} bytes");
        }
        assert_eq!(checksum(&[]), 0xffff);
        assert_eq!(checksum(&[0xab]), !0xab00);
    }
}
