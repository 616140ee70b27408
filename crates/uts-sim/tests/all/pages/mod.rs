//! The key schedule and the protection of packets, written down from `spec/keys.md` and
//! `spec/functions/protection.md` alone: nothing here is the engine's.

use core::fmt::Write as _;
use ring::aead::{self, LessSafeKey, Nonce, UnboundKey, quic::HeaderProtectionKey};
use ring::{digest, hkdf, hmac};
use uts_wire::packet::{AdaptiveHeader, EstablishmentHeader, TruncatedNumber, adaptive, mask_number, sample};

/// Salt of QUIC version 1 (keys.md K-13).
const SALT: [u8; 20] = [
    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc,
    0xbb, 0x7f, 0x0a,
];

pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub fn unhex(text: &str) -> Vec<u8> {
    let byte =
        |at: usize| u8::from_str_radix(text.get(at..at + 2).expect("a byte"), 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(byte).collect()
}

struct Bytes(usize);

impl hkdf::KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label of RFC 8446 section 7.1.
fn expand_label(hash: hkdf::Algorithm, secret: &[u8], label: &str, context: &[u8], bytes: usize) -> Vec<u8> {
    let label = format!("tls13 {label}");
    let length = u16::try_from(bytes).expect("short").to_be_bytes();
    let (of_label, of_context) = ([label.len() as u8], [context.len() as u8]);
    let info = [&length[..], &of_label, label.as_bytes(), &of_context, context];
    let mut out = vec![0; bytes];
    let prk = hkdf::Prk::new_less_safe(hash, secret);
    prk.expand(&info, Bytes(bytes)).and_then(|okm| okm.fill(&mut out)).expect("short");
    out
}

/// Expand of keys.md and protection.md.
pub fn expand(secret: &[u8], label: &str, bytes: usize) -> Vec<u8> {
    expand_label(hkdf::HKDF_SHA256, secret, label, &[], bytes)
}

/// keys.md K-13: what the client sends, and what the server sends.
pub fn initial_secrets(dcid: &[u8]) -> [Vec<u8>; 2] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &SALT);
    let initial = hmac::sign(&key, dcid);
    ["client in", "server in"].map(|label| expand(initial.as_ref(), label, 32))
}

/// keys.md K-17, RFC 8446 section 7.5.
pub fn exporter(suite: u16, exporter_secret: &[u8]) -> Vec<u8> {
    let hash = Suite::of(suite).hash;
    let empty = digest::digest(hash.hmac_algorithm().digest_algorithm(), b"");
    let derived = expand_label(hash, exporter_secret, "EXPORTER-uts", empty.as_ref(), empty.as_ref().len());
    expand_label(hash, &derived, "exporter", empty.as_ref(), 32)
}

/// protection.md: the secret of an epoch of a direction.
pub fn secret_of_epoch(exporter: &[u8], of_client: bool, epoch: u32) -> Vec<u8> {
    let first = expand(exporter, if of_client { "uts c2s" } else { "uts s2c" }, 32);
    (0..epoch).fold(first, |secret, _| expand(&secret, "uts ratchet", 32))
}

/// keys.md K-22.
pub fn integrity(first_dcid: &[u8], retry: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"uts retry integrity 1");
    let message = [&[first_dcid.len() as u8], first_dcid, retry].concat();
    hmac::sign(&key, &message).as_ref()[..16].to_vec()
}

/// An AEAD with its header protection and hash, by the number of the suite of TLS.
struct Suite {
    hash: hkdf::Algorithm,
    aead: &'static aead::Algorithm,
    mask: &'static aead::quic::Algorithm,
}

impl Suite {
    fn of(number: u16) -> Self {
        match number {
            0x1301 => Suite { hash: hkdf::HKDF_SHA256, aead: &aead::AES_128_GCM, mask: &aead::quic::AES_128 },
            0x1302 => Suite { hash: hkdf::HKDF_SHA384, aead: &aead::AES_256_GCM, mask: &aead::quic::AES_256 },
            0x1303 => {
                Suite { hash: hkdf::HKDF_SHA256, aead: &aead::CHACHA20_POLY1305, mask: &aead::quic::CHACHA20 }
            }
            other => panic!("no suite {other:#x}"),
        }
    }
}

/// Keys of a level or an epoch, one direction.
pub struct Keys {
    key: LessSafeKey,
    iv: Vec<u8>,
    header: HeaderProtectionKey,
}

impl Keys {
    /// keys.md K-15.
    pub fn of_level(suite: u16, secret: &[u8]) -> Self {
        Self::labelled(suite, secret, "quic")
    }

    /// protection.md R-4, by the number of the mechanism.
    pub fn of_epoch(mechanism: u8, secret: &[u8]) -> Self {
        let suite = match mechanism {
            1 => 0x1301,
            2 => 0x1303,
            other => panic!("protection {other} has no keys"),
        };
        Self::labelled(suite, secret, "uts")
    }

    fn labelled(suite: u16, secret: &[u8], prefix: &str) -> Self {
        let Suite { hash, aead, mask } = Suite::of(suite);
        let part = |name: &str, bytes| expand_label(hash, secret, &format!("{prefix} {name}"), &[], bytes);
        let key = UnboundKey::new(aead, &part("key", aead.key_len())).expect("its length");
        let header = HeaderProtectionKey::new(mask, &part("hp", aead.key_len())).expect("its length");
        Keys { key: LessSafeKey::new(key), iv: part("iv", 12), header }
    }

    /// protection.md R-5.
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        nonce.iter_mut().zip(&self.iv).for_each(|(byte, base)| *byte ^= base);
        Nonce::assume_unique_for_key(nonce)
    }

    fn seal(&self, number: u64, associated: &[u8], plain: &[u8]) -> Vec<u8> {
        let mut sealed = plain.to_vec();
        let associated = aead::Aad::from(associated);
        self.key.seal_in_place_append_tag(self.nonce(number), associated, &mut sealed).expect("sealed");
        sealed
    }

    fn open(&self, number: u64, associated: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut copy = sealed.to_vec();
        let associated = aead::Aad::from(associated);
        let plain = self.key.open_in_place(self.nonce(number), associated, &mut copy).ok()?;
        Some(plain.to_vec())
    }

    fn mask(&self, packet: &[u8], pn_offset: usize) -> [u8; 5] {
        self.header.new_mask(sample(packet, pn_offset).expect("a sample")).expect("its length")
    }

    /// Number and body of an establishment packet, which is all of `packet`.
    pub fn open_long(&self, packet: &[u8], pn_offset: usize) -> Option<(u64, Vec<u8>)> {
        let mask = self.mask(packet, pn_offset);
        let mut clear = packet.to_vec();
        mask_number(&mut clear[pn_offset..pn_offset + 4], &mask);
        let (head, sealed) = clear.split_at(pn_offset + 4);
        let number = u64::from(u32::from_be_bytes(head[pn_offset..].try_into().expect("4 bytes")));
        Some((number, self.open(number, head, sealed)?))
    }

    /// An establishment packet with this body, which is long enough for a sample.
    pub fn seal_long(&self, header: &EstablishmentHeader<'_>, number: u32, body: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        let mark = header.emit(number, &mut packet);
        packet.extend_from_slice(body);
        mark.set_length(&mut packet, 16).expect("short");
        let sealed = self.seal(u64::from(number), &packet[..mark.body_offset()], body);
        packet.truncate(mark.body_offset());
        packet.extend(sealed);
        let mask = self.mask(&packet, mark.pn_offset);
        mask_number(&mut packet[mark.pn_offset..mark.body_offset()], &mask);
        packet
    }

    /// Number and payload of an adaptive packet.
    pub fn open_short(&self, packet: &[u8], cid_len: usize, expected: u64) -> Option<(u64, Vec<u8>)> {
        let (header, pn_offset) = AdaptiveHeader::parse(packet, cid_len).ok()?;
        let mask = self.mask(packet, pn_offset);
        let mut clear = packet.to_vec();
        let truncated = adaptive::unmask(&mut clear, pn_offset, &mask).ok()?;
        let number = truncated.expand(expected);
        let sealed = &clear[pn_offset + truncated.len()..];
        Some((number, self.open(number, header.dcid.filled(), sealed)?))
    }

    /// An adaptive packet with this payload, its number in so many bytes.
    pub fn seal_short(&self, header: &AdaptiveHeader, (number, bytes): (u64, u8), payload: &[u8]) -> Vec<u8> {
        let truncated = TruncatedNumber::with_len(number, bytes);
        let mut packet = Vec::new();
        let mark = header.emit(truncated, &mut packet);
        packet.extend(self.seal(number, header.dcid.filled(), payload));
        let mask = self.mask(&packet, mark.pn_offset);
        mark.mask(&mut packet, &mask);
        packet
    }
}
