//! AES-128 in Galois/counter mode (NIST SP 800-38D; use as in RFC 9001 section 5).
//!
//! The fastest where the processor computes AES, as nearly all now do.

use super::aead::{Keys, TAG_BYTES};
use super::crypto::{aead, quic};
use super::{Forged, MASK_BYTES, Protection, SAMPLE_BYTES, Secret};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise};

/// Bytes of a block. A rest behind whole blocks goes a way of its own: 32 ns to seal and 17 to
/// open, where 1440 bytes take 225.
const BLOCK_BYTES: usize = 16;

/// See the module's page.
#[derive(Debug)]
pub struct Aes128Gcm(Keys);

impl Aes128Gcm {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Protection,
        number: 1,
        name: "aes-128-gcm",
        what: "AES-128 in Galois/counter mode, headers masked",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts { uniform: true, promises: &[Promise::Integrity, Promise::Secrecy], ..Facts::PLAIN },
        predict: |_, facts, prediction| {
            prediction.header_bytes += TAG_BYTES as f64;
            // Sealing and opening, each with a header mask: 255 ns for 1400 bytes.
            prediction.cpu_ns += 2.0 * (60.0 + 0.15 * facts.mtu_bytes as f64);
        },
    };

    /// Builds it with keys from the secret.
    pub fn build(_: &Params, secret: &Secret) -> Self {
        Aes128Gcm(Keys::derive(secret, &aead::AES_128_GCM, &quic::AES_128))
    }
}

impl Protection for Aes128Gcm {
    fn tag_bytes(&self) -> usize {
        TAG_BYTES
    }

    fn sample_bytes(&self) -> usize {
        SAMPLE_BYTES
    }

    fn block_bytes(&self) -> usize {
        BLOCK_BYTES
    }

    fn seal(&self, number: u64, associated: &[u8], payload: &mut [u8], tag: &mut [u8]) {
        self.0.seal(number, associated, payload, tag);
    }

    fn open(&self, number: u64, associated: &[u8], payload_and_tag: &mut [u8]) -> Result<usize, Forged> {
        self.0.open(number, associated, payload_and_tag)
    }

    fn header_mask(&self, sample: &[u8; SAMPLE_BYTES]) -> [u8; MASK_BYTES] {
        self.0.header_mask(sample)
    }

    fn packets_max(&self) -> u64 {
        1 << 23
    }

    fn forgeries_max(&self) -> u64 {
        1 << 52
    }
}
