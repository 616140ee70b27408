//! XXH3 with 64 bits (xxHash specification 0.2): as fast as memory, and evenly spread over all
//! kinds of damage. Unlike a CRC it promises nothing of short bursts but odds of one in 2^64.

use super::BY_NAME;
use crate::function::Function;
use crate::mechanism::{Consent, Mechanism, Params};
use twox_hash::XxHash3_64;

const TRAILER_BYTES: usize = 8;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Xxh3;

impl Xxh3 {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Detection,
        number: 7,
        name: "xxh3-64",
        what: "a 64-bit hash that is as fast as memory (XXH3)",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: BY_NAME,
        predict: |_, facts, prediction| {
            prediction.header_bytes += TRAILER_BYTES as f64;
            prediction.cpu_ns += 2.0 * (6.0 + 0.02 * facts.mtu_bytes as f64);
        },
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        Xxh3
    }
}

checks_by_sum!(Xxh3, TRAILER_BYTES, checksum);

/// In the canonical order: most significant byte first (detection.md R-16; xxHash specification,
/// "Step 7").
fn checksum(bytes: &[u8]) -> [u8; TRAILER_BYTES] {
    XxHash3_64::oneshot(bytes).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of seed 0, as `xxhsum -H3` prints them.
    #[test]
    fn published_values() {
        let values: [(&[u8], u64); 3] =
            [(b"", 0x2d06_8005_38d3_94c2), (b"a", 0xe6c6_32b6_1e96_4e1f), (b"abc", 0x78af_5f94_892f_3950)];
        for (text, value) in values {
            assert_eq!(checksum(text), value.to_be_bytes(), "{text:?}");
        }
    }
}
