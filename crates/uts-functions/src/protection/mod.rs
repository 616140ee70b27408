//! Protection: secrecy and authenticity of adaptive packets.
//!
//! The function's state is the direction's [`Secret`]: it comes from the handshake's exporter, is
//! ratcheted once per epoch, and gives each mechanism its keys, so that exchanging one cipher for
//! another needs no new handshake and no key serves two of them. See
//! `spec/functions/protection.md`.

use crate::mechanism::Described;
use crate::registry;
use auto_impl::auto_impl;
use core::fmt;
use enum_dispatch::enum_dispatch;
use zeroize::Zeroize;

mod aead;
pub mod aes_128_gcm;
pub mod chacha20_poly1305;
pub mod none;

/// The only place that names the library of primitives.
mod crypto {
    pub(super) use ring::{aead, aead::quic, hkdf};
}

/// Bytes of ciphertext from which a header mask is made (RFC 9001 section 5.4).
pub const SAMPLE_BYTES: usize = 16;

/// Bytes of a header mask (RFC 9001 section 5.4.1).
pub const MASK_BYTES: usize = 5;

/// Bytes of the longest tag.
pub const TAG_BYTES_MAX: usize = 16;

/// A packet that was not made by the peer, or not for this number and associated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("packet does not authenticate")]
pub struct Forged;

/// A way to protect packets. One instance serves one direction in one epoch; a packet number is
/// used once.
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Protection: Described {
    /// Bytes that sealing adds behind the payload.
    fn tag_bytes(&self) -> usize;

    /// Bytes of ciphertext that [`Protection::header_mask`] needs; 0 if headers stay in clear.
    fn sample_bytes(&self) -> usize;

    /// Payloads of a multiple of so many bytes cost less to seal and to open than shorter ones; 1
    /// if it makes no difference.
    fn block_bytes(&self) -> usize {
        1
    }

    /// Encrypts `payload` in place and writes the tag that authenticates it together with
    /// `associated` and `number`. `tag` is [`Protection::tag_bytes`] long. [P-39]
    fn seal(&self, number: u64, associated: &[u8], payload: &mut [u8], tag: &mut [u8]);

    /// Decrypts in place and returns the length of the plaintext, which stands at the beginning.
    ///
    /// # Errors
    /// [`Forged`]; the bytes are then undefined and must not be used.
    fn open(&self, number: u64, associated: &[u8], payload_and_tag: &mut [u8]) -> Result<usize, Forged>;

    /// The mask for the header's protected bits, from a sample of the ciphertext (RFC 9001 section
    /// 5.4).
    fn header_mask(&self, sample: &[u8; SAMPLE_BYTES]) -> [u8; MASK_BYTES];

    /// Packets that may be sealed with these keys (RFC 9001 section 6.6: confidentiality limit).
    fn packets_max(&self) -> u64;

    /// Packets that may fail to open with these keys (RFC 9001 section 6.6: integrity limit).
    fn forgeries_max(&self) -> u64;
}

registry!(
    /// A protection mechanism with its keys.
    #[derive(Debug)]
    Slot: Protection, context: &Secret;
    None => none::None,
    Aes128Gcm => aes_128_gcm::Aes128Gcm,
    Chacha20Poly1305 => chacha20_poly1305::Chacha20Poly1305,
);

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the end that opened the connection.
    ClientToServer,
    /// To the end that opened the connection.
    ServerToClient,
}

/// The secret of one direction in one epoch. Not printed; wiped when dropped.
#[derive(Clone)]
pub struct Secret([u8; Self::BYTES]);

impl Secret {
    /// Length of a secret.
    pub const BYTES: usize = 32;

    /// A secret that was agreed otherwise, or a fixed one for tests.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Secret(bytes)
    }

    /// The first secret of a direction, from the value that the handshake exports to both ends
    /// (protection.md R-2; RFC 8446 section 7.5).
    pub fn from_exporter(exporter: &[u8; Self::BYTES], direction: Direction) -> Self {
        let label = match direction {
            Direction::ClientToServer => "uts c2s",
            Direction::ServerToClient => "uts s2c",
        };
        Secret(*exporter).derive(label)
    }

    /// The secret of the following epoch. There is no way back. (protection.md R-3)
    #[must_use]
    pub fn next(&self) -> Self {
        self.derive("uts ratchet")
    }

    fn derive(&self, label: &str) -> Self {
        let mut secret = Secret([0; Self::BYTES]);
        self.expand_label(label, &mut secret.0);
        secret
    }

    /// HKDF-Expand-Label of RFC 8446 section 7.1 with SHA-256 and an empty context.
    fn expand_label(&self, label: &str, out: &mut [u8]) {
        use crypto::hkdf;

        struct Length(usize);
        impl hkdf::KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }

        const PREFIX: &[u8] = b"tls13 ";
        let length = (out.len() as u16).to_be_bytes();
        let label_length = [(PREFIX.len() + label.len()) as u8];
        let info: [&[u8]; 5] = [&length, &label_length, PREFIX, label.as_bytes(), &[0]];
        let filled = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &self.0)
            .expand(&info, Length(out.len()))
            .and_then(|okm| okm.fill(out));
        // HKDF fails above 255 hashes of output; ours are at most one.
        assert!(filled.is_ok(), "HKDF output of {} bytes", out.len());
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests;
