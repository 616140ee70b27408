//! Keys of a group: what the sender says is sealed under a key that all members have, and signed;
//! what a member asks is sealed under a key that it alone shares with the sender.
//!
//! The key of the group has a *generation* and a *step*. The next step follows from the one before,
//! and there is no way back: it is taken when a member comes, who then reads nothing of before. A
//! generation follows from nothing: members hear of it by their connections when one has left, who
//! then reads nothing from there on. (G-18, G-19)

use crate::wire::{FromSender, Request};
use core::fmt;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::collections::VecDeque;
use uts_functions::Params;
use uts_functions::protection::chacha20_poly1305::Chacha20Poly1305;
use uts_functions::protection::{Protection, Secret};
use uts_wire::WireError;
use zeroize::Zeroize;

/// First byte of a packet of the sender, and of a member: version and way. (G-2)
const BY_SENDER: u8 = 0x10;
const BY_MEMBER: u8 = 0x11;

/// Bytes before what is sealed: first byte, group, key or member, number.
const HEADER_BYTES: usize = 17;

const TAG_BYTES: usize = 16;

/// Bytes of a signature (RFC 8032 section 5.1.6).
const SIGNATURE_BYTES: usize = 64;

/// Words before what is signed, so that no signature serves elsewhere.
const SIGNED: &[u8] = b"uts group 1";

/// Bytes that sealing adds to a packet of the sender.
pub const SEALED_BYTES: usize = HEADER_BYTES + SIGNATURE_BYTES + TAG_BYTES;

/// Steps that a member may have missed: bounds the hashes that a forged packet costs. (G-18)
const STEPS_AHEAD_MAX: u16 = 64;

/// Generations of the key that a member keeps: the last is not in use yet.
const GENERATIONS_MAX: usize = 3;

/// Numbers of packets that may come after a higher one.
const WINDOW: u64 = u128::BITS as u64;

/// A key of a group. Not printed; wiped when dropped.
#[derive(Clone)]
pub struct Key {
    /// Its generation.
    pub generation: u16,
    /// Steps taken since.
    pub step: u16,
    /// The secret of this step.
    pub secret: [u8; Secret::BYTES],
}

impl Drop for Key {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}.{})", self.generation, self.step)
    }
}

impl Key {
    /// The key a step further.
    fn next(&self) -> Key {
        let mut secret = [0; Secret::BYTES];
        Stretched::step(&self.secret, &mut secret);
        Key { generation: self.generation, step: self.step.wrapping_add(1), secret }
    }

    fn cipher(&self) -> Chacha20Poly1305 {
        cipher(&self.secret)
    }
}

/// HKDF-Expand with SHA-256 (RFC 5869), of which the next secret comes.
struct Stretched;

impl ring::hkdf::KeyType for Stretched {
    fn len(&self) -> usize {
        Secret::BYTES
    }
}

impl Stretched {
    fn step(secret: &[u8], out: &mut [u8]) {
        let prk = ring::hkdf::Prk::new_less_safe(ring::hkdf::HKDF_SHA256, secret);
        let filled = prk.expand(&[b"uts group step"], Stretched).and_then(|okm| okm.fill(out));
        assert!(filled.is_ok(), "HKDF output of one hash");
    }
}

fn cipher(secret: &[u8; Secret::BYTES]) -> Chacha20Poly1305 {
    Chacha20Poly1305::build(&Params::default(), &Secret::from_bytes(*secret))
}

/// Why a packet is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is of another group, another version, or none at all.
    #[error("no packet of this group")]
    Foreign,
    /// Its key is not known here: this end is no member any more, or has missed too much.
    #[error("the key {generation}.{step} is not known here")]
    NoKey {
        /// Its generation.
        generation: u16,
        /// Its step.
        step: u16,
    },
    /// Nobody who has the key has made it.
    #[error("does not authenticate")]
    Forged,
    /// A member has made it, and not the sender.
    #[error("is not signed by the sender")]
    Unsigned,
    /// Its number has come before, or is far below others.
    #[error("its number was used")]
    Replayed,
    /// Whoever made it breaks a rule.
    #[error(transparent)]
    Malformed(#[from] WireError),
}

/// Keys of the sender.
pub struct SenderKeys {
    group: u32,
    key: Key,
    cipher: Chacha20Poly1305,
    /// Something was sealed under the key.
    is_used: bool,
    signing: Ed25519KeyPair,
}

impl fmt::Debug for SenderKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SenderKeys({:?})", self.key)
    }
}

impl SenderKeys {
    /// Keys of a group, of fresh random seeds; the second is for signatures. (G-3)
    pub fn new(group: u32, key: Key, seed: &[u8; 32]) -> Self {
        let signing = match Ed25519KeyPair::from_seed_unchecked(seed) {
            Ok(pair) => pair,
            Err(_) => unreachable!("a seed of 32 bytes is a key"),
        };
        let cipher = key.cipher();
        SenderKeys { group, key, cipher, is_used: false, signing }
    }

    /// The key with which signatures are checked.
    pub fn public_key(&self) -> [u8; 32] {
        let mut key = [0; 32];
        key.copy_from_slice(self.signing.public_key().as_ref());
        key
    }

    /// The key that is in use.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Takes a step, if the key was used: a member has come, who is to read nothing of before. So
    /// many that come at once take no more steps than the others can follow. (G-18)
    pub fn step(&mut self) {
        if self.is_used {
            self.use_key(self.key.next());
        }
    }

    /// Uses another key from now on. (G-19)
    pub fn use_key(&mut self, key: Key) {
        self.cipher = key.cipher();
        self.key = key;
        self.is_used = false;
    }

    /// A datagram for the group. A number is used once. (G-2, G-3)
    pub fn seal(&mut self, number: u64, packet: &FromSender) -> Vec<u8> {
        self.is_used = true;
        let mut datagram = header(BY_SENDER, self.group, key_field(&self.key), number);
        packet.emit(&mut datagram);
        let signature = self.signing.sign(&[SIGNED, &datagram].concat());
        datagram.extend_from_slice(signature.as_ref());
        seal(&self.cipher, number, datagram)
    }
}

fn key_field(key: &Key) -> u32 {
    u32::from(key.generation) << 16 | u32::from(key.step)
}

/// Keys of a member.
pub struct MemberKeys {
    group: u32,
    member: u32,
    public: [u8; 32],
    own: Chacha20Poly1305,
    /// The number of the next request.
    number: u64,
    /// Keys by generation, the newest last, with those of a step before.
    known: VecDeque<Known>,
    came: Came,
}

impl fmt::Debug for MemberKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemberKeys({})", self.member)
    }
}

struct Known {
    key: Key,
    cipher: Chacha20Poly1305,
    before: Option<(u16, Chacha20Poly1305)>,
}

impl Known {
    fn new(key: Key) -> Self {
        Known { cipher: key.cipher(), key, before: None }
    }
}

impl MemberKeys {
    /// Keys that a member was given.
    pub fn new(group: u32, member: u32, secret: &[u8; 32], public: [u8; 32], key: Key) -> Self {
        let known = VecDeque::from([Known::new(key)]);
        MemberKeys { group, member, public, own: cipher(secret), number: 0, known, came: Came::default() }
    }

    /// Takes a key of another generation, which the sender will use. (G-19)
    pub fn add(&mut self, key: Key) {
        if self.known.iter().any(|known| known.key.generation == key.generation) {
            return;
        }
        self.known.push_back(Known::new(key));
        if self.known.len() > GENERATIONS_MAX {
            self.known.pop_front();
        }
    }

    /// A datagram of the group, and its number. Nothing of a datagram that is refused has an effect
    /// but the work of the check. (G-4)
    ///
    /// # Errors
    /// See [`Unreadable`].
    pub fn open(&mut self, datagram: &[u8]) -> Result<(u64, FromSender), Unreadable> {
        let (field, number) = read_header(BY_SENDER, self.group, datagram)?;
        if !self.came.is_new(number) {
            return Err(Unreadable::Replayed);
        }
        let (generation, step) = ((field >> 16) as u16, field as u16);
        let none = Unreadable::NoKey { generation, step };
        let at =
            self.known.iter().position(|known| known.key.generation == generation).ok_or(none.clone())?;
        let known = &self.known[at];
        let (opened, further) = match step.wrapping_sub(known.key.step) {
            0 => (open(&known.cipher, number, datagram)?, None),
            u16::MAX => {
                let before = known.before.as_ref().filter(|(old, _)| *old == step).ok_or(none)?;
                (open(&before.1, number, datagram)?, None)
            }
            steps @ 1..=STEPS_AHEAD_MAX => {
                let key = (0..steps).fold(known.key.clone(), |key, _| key.next());
                let further = Known::new(key);
                (open(&further.cipher, number, datagram)?, Some(further))
            }
            _ => return Err(none),
        };
        let body = self.signed(&datagram[..HEADER_BYTES], &opened)?;
        let packet = FromSender::parse(body)?;
        self.came.note(number);
        if let Some(mut further) = further {
            let old = &mut self.known[at];
            core::mem::swap(old, &mut further);
            old.before = Some((further.key.step, further.cipher));
        }
        Ok((number, packet))
    }

    /// The body of an opened packet, if the sender has signed it. (G-3)
    fn signed<'a>(&self, header: &[u8], opened: &'a [u8]) -> Result<&'a [u8], Unreadable> {
        let (body, signature) = opened.split_last_chunk::<SIGNATURE_BYTES>().ok_or(Unreadable::Unsigned)?;
        let message = [SIGNED, header, body].concat();
        let public = UnparsedPublicKey::new(&ED25519, &self.public);
        public.verify(&message, signature).map_err(|_| Unreadable::Unsigned)?;
        Ok(body)
    }

    /// A datagram for the sender. (G-14)
    pub fn seal(&mut self, request: &Request) -> Vec<u8> {
        let number = self.number;
        self.number += 1;
        let mut datagram = header(BY_MEMBER, self.group, self.member, number);
        request.emit(&mut datagram);
        seal(&self.own, number, datagram)
    }
}

/// The sender's side of the key that it shares with one member.
pub struct Shared {
    cipher: Chacha20Poly1305,
    came: Came,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared(..)")
    }
}

impl Shared {
    /// The key of a member with this secret.
    pub fn new(secret: &[u8; 32]) -> Self {
        Shared { cipher: cipher(secret), came: Came::default() }
    }

    /// The member that a datagram says to be of.
    ///
    /// # Errors
    /// [`Unreadable::Foreign`].
    pub fn member(group: u32, datagram: &[u8]) -> Result<u32, Unreadable> {
        Ok(read_header(BY_MEMBER, group, datagram)?.0)
    }

    /// A request of the member. (G-14)
    ///
    /// # Errors
    /// See [`Unreadable`].
    pub fn open(&mut self, group: u32, datagram: &[u8]) -> Result<Request, Unreadable> {
        let (_, number) = read_header(BY_MEMBER, group, datagram)?;
        if !self.came.is_new(number) {
            return Err(Unreadable::Replayed);
        }
        let request = Request::parse(&open(&self.cipher, number, datagram)?)?;
        self.came.note(number);
        Ok(request)
    }
}

fn header(first: u8, group: u32, field: u32, number: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(crate::DATAGRAM_BYTES_MAX);
    header.push(first);
    header.extend(group.to_be_bytes());
    header.extend(field.to_be_bytes());
    header.extend(number.to_be_bytes());
    header
}

/// Field and number of a header.
fn read_header(first: u8, group: u32, datagram: &[u8]) -> Result<(u32, u64), Unreadable> {
    let header = datagram.first_chunk::<HEADER_BYTES>().ok_or(Unreadable::Foreign)?;
    let [f, g0, g1, g2, g3, k0, k1, k2, k3, number @ ..] = *header;
    if f != first || u32::from_be_bytes([g0, g1, g2, g3]) != group {
        return Err(Unreadable::Foreign);
    }
    Ok((u32::from_be_bytes([k0, k1, k2, k3]), u64::from_be_bytes(number)))
}

/// Seals what stands behind the header, which is authenticated with it.
fn seal(cipher: &Chacha20Poly1305, number: u64, mut datagram: Vec<u8>) -> Vec<u8> {
    let mut tag = [0; TAG_BYTES];
    let (header, body) = datagram.split_at_mut(HEADER_BYTES);
    cipher.seal(number, header, body, &mut tag);
    datagram.extend_from_slice(&tag);
    datagram
}

fn open(cipher: &Chacha20Poly1305, number: u64, datagram: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let (header, sealed) = datagram.split_at(HEADER_BYTES);
    let mut body = sealed.to_vec();
    let length = cipher.open(number, header, &mut body).map_err(|_| Unreadable::Forged)?;
    body.truncate(length);
    Ok(body)
}

/// Numbers that have come, of the last [`WINDOW`].
#[derive(Clone, Debug, Default)]
struct Came {
    /// One above the highest.
    end: u64,
    /// Bit `i` stands for the number `end - 1 - i`.
    bits: u128,
}

impl Came {
    fn is_new(&self, number: u64) -> bool {
        let back = self.end.wrapping_sub(1).wrapping_sub(number);
        number >= self.end || (back < WINDOW && self.bits >> back & 1 == 0)
    }

    fn note(&mut self, number: u64) {
        if number >= self.end {
            let by = number - self.end + 1;
            self.bits = if by < WINDOW { self.bits << by | 1 } else { 1 };
            self.end = number.saturating_add(1);
        } else {
            self.bits |= 1 << (self.end - 1 - number);
        }
    }
}

#[cfg(test)]
mod tests;
