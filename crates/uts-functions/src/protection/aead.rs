//! Common parts of the AEAD mechanisms: keys from a secret, the nonce, sealing and opening
//! (RFC 9001 section 5.3).

use super::crypto::{aead, quic};
use super::{Forged, MASK_BYTES, SAMPLE_BYTES, Secret};
use core::fmt;
use zeroize::Zeroizing;

/// Bytes of the tag of every AEAD here.
pub(super) const TAG_BYTES: usize = 16;

/// The keys of one direction in one epoch.
pub(super) struct Keys {
    packet: aead::LessSafeKey,
    /// The first 64 bits of the IV, and the 32 behind them.
    iv: (u64, u32),
    header: quic::HeaderProtectionKey,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl Keys {
    /// Derives key, nonce base and header key by the labels `uts key`, `uts iv` and `uts hp`
    /// (protection.md R-4).
    pub(super) fn derive(
        secret: &Secret,
        algorithm: &'static aead::Algorithm,
        header: &'static quic::Algorithm,
    ) -> Self {
        let mut bytes = Zeroizing::new([0; Secret::BYTES]);
        let key = &mut bytes[..algorithm.key_len()];
        secret.expand_label("uts key", key);
        let packet = aead::UnboundKey::new(algorithm, key).map(aead::LessSafeKey::new);
        let key = &mut bytes[..header.key_len()];
        secret.expand_label("uts hp", key);
        let header = quic::HeaderProtectionKey::new(header, key);
        let mut iv = Zeroizing::new([0; aead::NONCE_LEN]);
        secret.expand_label("uts iv", &mut iv[..]);
        match (packet, header) {
            (Ok(packet), Ok(header)) => {
                let [a, b, c, d, e, f, g, h, back @ ..] = *iv;
                let iv = (u64::from_be_bytes([a, b, c, d, e, f, g, h]), u32::from_be_bytes(back));
                Keys { packet, iv, header }
            }
            _ => unreachable!("keys have the length that their algorithm asked for"),
        }
    }

    /// The packet number, left-padded, exclusive-or the IV (protection.md R-5; RFC 9001 section
    /// 5.3).
    fn nonce(&self, number: u64) -> aead::Nonce {
        let (front, back) = self.iv;
        let mut nonce = [0; aead::NONCE_LEN];
        // In the pieces in which it is read right behind this: a processor waits to read what it
        // has just written in others.
        nonce[..8].copy_from_slice(&(front ^ (number >> 32)).to_be_bytes());
        nonce[8..].copy_from_slice(&(back ^ number as u32).to_be_bytes());
        aead::Nonce::assume_unique_for_key(nonce)
    }

    pub(super) fn seal(&self, number: u64, associated: &[u8], payload: &mut [u8], tag: &mut [u8]) {
        match self.packet.seal_in_place_separate_tag(self.nonce(number), aead::Aad::from(associated), payload)
        {
            Ok(computed) => tag.copy_from_slice(computed.as_ref()),
            // Only for payloads of 2^36 bytes and more; nothing may leave in clear even then.
            Err(_) => {
                payload.fill(0);
                tag.fill(0);
            }
        }
    }

    pub(super) fn open(&self, number: u64, associated: &[u8], bytes: &mut [u8]) -> Result<usize, Forged> {
        self.packet
            .open_in_place(self.nonce(number), aead::Aad::from(associated), bytes)
            .map(|plain| plain.len())
            .map_err(|_| Forged)
    }

    /// protection.md R-7.
    pub(super) fn header_mask(&self, sample: &[u8; SAMPLE_BYTES]) -> [u8; MASK_BYTES] {
        match self.header.new_mask(sample) {
            Ok(mask) => mask,
            Err(_) => unreachable!("a sample of 16 bytes suits every algorithm"),
        }
    }
}
