//! Keys of a session from its secrets: those of the two levels of the handshake, and the value from
//! which those of adaptive packets follow (`spec/keys.md`).

use ring::aead::quic;
use ring::{aead, digest, hkdf};
use uts_functions::protection::Secret;
use uts_wire::packet::establishment::{EstablishmentPacket, unmask_number};
use uts_wire::packet::sample;
use zeroize::Zeroizing;

/// Salt of the initial secrets: that of QUIC version 1 (K-13; RFC 9001 section 5.2).
const INITIAL_SALT: [u8; 20] = [
    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc,
    0xbb, 0x7f, 0x0a,
];

/// A suite of TLS 1.3, as it protects packets of the handshake (K-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// TLS_AES_128_GCM_SHA256.
    Aes128,
    /// TLS_AES_256_GCM_SHA384.
    Aes256,
    /// TLS_CHACHA20_POLY1305_SHA256.
    ChaCha20,
}

impl Suite {
    /// The suite of that number of TLS.
    pub fn from_number(number: u16) -> Option<Suite> {
        match number {
            0x1301 => Some(Suite::Aes128),
            0x1302 => Some(Suite::Aes256),
            0x1303 => Some(Suite::ChaCha20),
            _ => None,
        }
    }

    fn hash(self) -> (hkdf::Algorithm, &'static digest::Algorithm) {
        match self {
            Suite::Aes256 => (hkdf::HKDF_SHA384, &digest::SHA384),
            Suite::Aes128 | Suite::ChaCha20 => (hkdf::HKDF_SHA256, &digest::SHA256),
        }
    }

    fn ciphers(self) -> (&'static aead::Algorithm, &'static quic::Algorithm) {
        match self {
            Suite::Aes128 => (&aead::AES_128_GCM, &quic::AES_128),
            Suite::Aes256 => (&aead::AES_256_GCM, &quic::AES_256),
            Suite::ChaCha20 => (&aead::CHACHA20_POLY1305, &quic::CHACHA20),
        }
    }
}

/// Keys of one level of the handshake, in one direction.
pub struct LongKeys {
    packet: aead::LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
    header: quic::HeaderProtectionKey,
}

impl LongKeys {
    /// Keys from a secret of the level Handshake (K-15). `None` if the secret has not the length of
    /// the suite's hash.
    pub fn of_secret(suite: Suite, secret: &[u8]) -> Option<Self> {
        let (hash, digest) = suite.hash();
        let fits = secret.len() == digest.output_len();
        fits.then(|| Self::derive(suite, &hkdf::Prk::new_less_safe(hash, secret)))?
    }

    /// Keys of the level Initial, of what the client sends and of what the server sends, from the
    /// id that the client's first packet went to (K-13).
    pub fn initial(dcid: &[u8]) -> Option<[Self; 2]> {
        let initial = hkdf::Salt::new(hkdf::HKDF_SHA256, &INITIAL_SALT).extract(dcid);
        let keys = |label| {
            let mut secret = Zeroizing::new([0; 32]);
            expand(&initial, label, &[], &mut secret[..])?;
            Self::of_secret(Suite::Aes128, &secret[..])
        };
        Some([keys("client in")?, keys("server in")?])
    }

    fn derive(suite: Suite, secret: &hkdf::Prk) -> Option<Self> {
        let (algorithm, header) = suite.ciphers();
        let mut key = Zeroizing::new([0; 32]);
        let key = &mut key[..algorithm.key_len()];
        expand(secret, "quic key", &[], key)?;
        let packet = aead::UnboundKey::new(algorithm, key).map(aead::LessSafeKey::new).ok()?;
        expand(secret, "quic hp", &[], key)?;
        let header = quic::HeaderProtectionKey::new(header, key).ok()?;
        let mut iv = [0; aead::NONCE_LEN];
        expand(secret, "quic iv", &[], &mut iv)?;
        Some(LongKeys { packet, iv, header })
    }

    /// Opens a packet in place. Says its number, and where in `bytes` its body stands. `None` if it
    /// does not authenticate.
    pub fn open(
        &self,
        packet: &EstablishmentPacket<'_>,
        bytes: &mut [u8],
    ) -> Option<(u32, core::ops::Range<usize>)> {
        let mask = self.header.new_mask(sample(bytes, packet.pn_offset).ok()?).ok()?;
        let number = unmask_number(bytes, packet.pn_offset, &mask).ok()?;
        let mut nonce = self.iv;
        nonce.iter_mut().rev().zip(number.to_be_bytes().iter().rev()).for_each(|(byte, n)| *byte ^= n);
        let body = packet.body();
        let (header, rest) = bytes.split_at_mut_checked(body.start)?;
        let sealed = rest.get_mut(..body.len())?;
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        let plain = self.packet.open_in_place(nonce, aead::Aad::from(&*header), sealed).ok()?.len();
        Some((number, body.start..body.start + plain))
    }
}

/// The value that the ends export, from the exporter_master_secret (K-17). `None` if that has not
/// the length of the suite's hash.
pub fn exported(suite: Suite, master: &[u8]) -> Option<Zeroizing<[u8; Secret::BYTES]>> {
    let (hash, digest) = suite.hash();
    let empty = digest::digest(digest, &[]);
    let mut derived = Zeroizing::new([0; 48]);
    let derived = derived.get_mut(..digest.output_len())?;
    if master.len() != derived.len() {
        return None;
    }
    expand(&hkdf::Prk::new_less_safe(hash, master), "EXPORTER-uts", empty.as_ref(), derived)?;
    let mut exported = Zeroizing::new([0; Secret::BYTES]);
    expand(&hkdf::Prk::new_less_safe(hash, derived), "exporter", empty.as_ref(), &mut exported[..])?;
    Some(exported)
}

/// HKDF-Expand-Label of RFC 8446 section 7.1. `None` beyond 255 hashes of output.
fn expand(secret: &hkdf::Prk, label: &str, context: &[u8], out: &mut [u8]) -> Option<()> {
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    const PREFIX: &[u8] = b"tls13 ";
    let length = u16::try_from(out.len()).ok()?.to_be_bytes();
    let label_length = [(PREFIX.len() + label.len()) as u8];
    let context_length = [context.len() as u8];
    let info: [&[u8]; 6] = [&length, &label_length, PREFIX, label.as_bytes(), &context_length, context];
    secret.expand(&info, Length(out.len())).and_then(|okm| okm.fill(out)).ok()
}
