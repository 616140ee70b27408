//! ChaCha20 with Poly1305 (RFC 8439; use as in RFC 9001 section 5).
//!
//! For processors without AES, and where more packets are sent in an epoch than AES-GCM allows.

use super::aead::{Keys, TAG_BYTES};
use super::crypto::{aead, quic};
use super::{Forged, MASK_BYTES, Protection, SAMPLE_BYTES, Secret};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise, Unasked};

/// See the module's page.
#[derive(Debug)]
pub struct Chacha20Poly1305(Keys);

impl Chacha20Poly1305 {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Protection,
        number: 2,
        name: "chacha20-poly1305",
        what: "ChaCha20 with Poly1305, headers masked",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Integrity, Promise::Secrecy],
            unasked: Unasked::Choice(1),
            ..Facts::PLAIN
        },
        predict: |_, facts, prediction| {
            prediction.header_bytes += TAG_BYTES as f64;
            // Sealing and opening, each with a header mask: estimated at three times AES-128-GCM.
            prediction.cpu_ns += 2.0 * (150.0 + 0.45 * facts.mtu_bytes as f64);
        },
    };

    /// Builds it with keys from the secret.
    pub fn build(_: &Params, secret: &Secret) -> Self {
        Chacha20Poly1305(Keys::derive(secret, &aead::CHACHA20_POLY1305, &quic::CHACHA20))
    }
}

impl Protection for Chacha20Poly1305 {
    fn tag_bytes(&self) -> usize {
        TAG_BYTES
    }

    fn sample_bytes(&self) -> usize {
        SAMPLE_BYTES
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
        // More than there are packet numbers.
        1 << 62
    }

    fn forgeries_max(&self) -> u64 {
        1 << 36
    }
}
