//! Copy and cipher, with and without a checksum.
//!
//! ring seals and opens only in place. aws-lc can also do so from one place to another. But the
//! packet's plaintext begins with a frame's header, which is not beside the data. To seal both,
//! aws-lc takes what follows the first stretch as `extra_in`.

use super::checks::{CRC_BYTES, crc, put_and_crc, put_then_crc, take_and_crc};
use super::{BODY, DATA, DATA_BYTES, END, FRAME, HEADER, Slot, Work, is_right, put, put_headers, take};
use anyhow::{Context, Result};
use uts_functions::detection::Detection;
use uts_functions::detection::crc_32c::Crc32c;

const TAG_BYTES: usize = 16;

/// Where the plaintext ends that has CRC-32C in it.
const CRC_END: usize = END + CRC_BYTES;

pub(super) fn works() -> Result<Vec<Work>> {
    let mut works = Vec::new();
    for cipher in [&AES_128_GCM, &CHACHA20_POLY1305] {
        works.extend([seal_work(cipher)?, seal_work_behind(cipher)?, open_work(cipher)?]);
    }
    Ok(works)
}

fn seal_work(cipher: &Cipher) -> Result<Work> {
    fn in_turn(key: impl InPlace) -> impl FnMut(u64, &mut Slot, &mut Slot) -> bool {
        move |number, from, into| {
            put(from, into);
            seal(&key, number, into, END)
        }
    }
    let key = cipher.aws_lc()?;
    let work = Work::sender(format!("copy, {}", cipher.name))
        .way("in turn (ring)", in_turn(cipher.ring()?))
        .way("in turn (aws-lc)", in_turn(cipher.aws_lc()?));
    Ok(work.way("one pass (aws-lc)", move |number, from, into| seal_straight(&key, number, from, into)))
}

/// The same with the frame's header behind the data. The library prefers the second part to be the
/// short one.
fn seal_work_behind(cipher: &Cipher) -> Result<Work> {
    let (ring, aws_lc) = (cipher.ring()?, cipher.aws_lc()?);
    Ok(Work::sender(format!("copy, {}, frame header last", cipher.name))
        .way("in turn (ring)", move |number, from, into| {
            put_before_frame(from, into);
            seal(&ring, number, into, END)
        })
        .way("one pass (aws-lc)", move |number, from, into| seal_before(&aws_lc, number, from, &FRAME, into)))
}

fn open_work(cipher: &Cipher) -> Result<Work> {
    fn in_turn(key: impl InPlace) -> impl FnMut(u64, &mut Slot, &mut Slot) -> bool {
        move |number, from, into| {
            let intact = open(&key, number, from, END);
            take(from, into);
            intact
        }
    }
    let (arrives, key) = (cipher.ring()?, cipher.aws_lc()?);
    let arrive = move |number, from: &mut Slot, into: &mut Slot| {
        put(from, into);
        seal(&arrives, number, into, END)
    };
    Ok(Work::receiver(format!("{}, copy", cipher.name), arrive)
        .way("in turn (ring)", in_turn(cipher.ring()?))
        .way("in turn (aws-lc)", in_turn(cipher.aws_lc()?))
        .way("one pass (aws-lc)", move |number, from, into| open_straight(&key, number, from, END, into)))
}

pub(super) fn works_with_crc() -> Result<Vec<Work>> {
    fn seals(key: impl InPlace) -> impl FnMut(u64, &mut Slot, &mut Slot) -> bool {
        move |number, from, into| put_then_crc(number, from, into) && seal(&key, number, into, CRC_END)
    }
    fn opens(key: impl InPlace) -> impl FnMut(u64, &mut Slot, &mut Slot) -> bool {
        move |number, from, into| {
            let intact = open(&key, number, from, CRC_END) && is_right(&Crc32c, from, CRC_BYTES);
            take(from, into);
            intact
        }
    }
    let cipher = &AES_128_GCM;
    let (ring, ring_last, ring_back) = (cipher.ring()?, cipher.ring()?, cipher.ring()?);
    let (aws_lc_last, aws_lc_back) = (cipher.aws_lc()?, cipher.aws_lc()?);
    Ok(vec![
        Work::sender("copy, CRC-32C, AES-128-GCM")
            .way("in turn (ring)", seals(cipher.ring()?))
            .way("in turn (aws-lc)", seals(cipher.aws_lc()?))
            .way("copy and CRC-32C in blocks of 256 B (ring)", move |number, from, into| {
                put_and_crc::<256>(number, from, into) && seal(&ring, number, into, CRC_END)
            }),
        Work::sender("copy, CRC-32C, AES-128-GCM, frame header last")
            .way("in turn (ring)", move |number, from, into| {
                put_before_frame(from, into);
                let (covered, others) = into.split_at_mut(END);
                Crc32c.append(covered, &mut others[..CRC_BYTES]);
                seal(&ring_last, number, into, CRC_END)
            })
            .way("CRC-32C, then the others in one pass (aws-lc)", move |number, from, into| {
                let mut follows = [0; FRAME.len() + CRC_BYTES];
                follows[..FRAME.len()].copy_from_slice(&FRAME);
                follows[FRAME.len()..].copy_from_slice(&crc(&[&HEADER, &from[..DATA_BYTES], &FRAME]));
                seal_before(&aws_lc_last, number, from, &follows, into)
            }),
        Work::receiver("AES-128-GCM, CRC-32C, copy", seals(cipher.ring()?))
            .way("in turn (ring)", opens(cipher.ring()?))
            .way("in turn (aws-lc)", opens(cipher.aws_lc()?))
            .way("CRC-32C and copy in blocks of 256 B (ring)", move |number, from, into| {
                open(&ring_back, number, from, CRC_END) && take_and_crc::<256>(number, from, into)
            })
            .way("CRC-32C after the others in one pass (aws-lc)", move |number, from, into| {
                let (frames, end) = (END - BODY, CRC_END - BODY);
                open_straight(&aws_lc_back, number, from, CRC_END, into)
                    && crc(&[&from[..BODY], &into[..frames]]) == into[frames..end]
            }),
    ])
}

// --- Keys ---

struct Cipher {
    name: &'static str,
    ring: &'static ring::aead::Algorithm,
    aws_lc: &'static aws_lc_rs::aead::Algorithm,
}

static AES_128_GCM: Cipher =
    Cipher { name: "AES-128-GCM", ring: &ring::aead::AES_128_GCM, aws_lc: &aws_lc_rs::aead::AES_128_GCM };

static CHACHA20_POLY1305: Cipher = Cipher {
    name: "ChaCha20-Poly1305",
    ring: &ring::aead::CHACHA20_POLY1305,
    aws_lc: &aws_lc_rs::aead::CHACHA20_POLY1305,
};

type AwsLcKey = aws_lc_rs::aead::LessSafeKey;

impl Cipher {
    fn ring(&self) -> Result<ring::aead::LessSafeKey> {
        let key = ring::aead::UnboundKey::new(self.ring, &[7; 32][..self.ring.key_len()]);
        key.map(ring::aead::LessSafeKey::new).ok().context("key of ring")
    }

    fn aws_lc(&self) -> Result<AwsLcKey> {
        let key = aws_lc_rs::aead::UnboundKey::new(self.aws_lc, &[7; 32][..self.aws_lc.key_len()]);
        key.map(AwsLcKey::new).ok().context("key of aws-lc")
    }
}

/// Every round uses the same ones with the same data: nothing leaves from here.
fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [9; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

// --- In place ---

/// What both libraries do. The tag is at the end of the body.
trait InPlace: 'static {
    fn seal(&self, number: u64, header: &[u8], body: &mut [u8]) -> bool;
    fn open(&self, number: u64, header: &[u8], body: &mut [u8]) -> bool;
}

macro_rules! in_place {
    ($library:ident) => {
        impl InPlace for $library::aead::LessSafeKey {
            fn seal(&self, number: u64, header: &[u8], body: &mut [u8]) -> bool {
                use $library::aead::{Aad, Nonce};
                let (plain, tag) = body.split_at_mut(body.len() - TAG_BYTES);
                let nonce = Nonce::assume_unique_for_key(nonce(number));
                let computed = self.seal_in_place_separate_tag(nonce, Aad::from(header), plain);
                computed.map(|computed| tag.copy_from_slice(computed.as_ref())).is_ok()
            }

            fn open(&self, number: u64, header: &[u8], body: &mut [u8]) -> bool {
                use $library::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce(number));
                self.open_in_place(nonce, Aad::from(header), body).is_ok()
            }
        }
    };
}
in_place!(ring);
in_place!(aws_lc_rs);

/// Seals the packet whose plaintext ends at `end`.
fn seal(key: &impl InPlace, number: u64, packet: &mut Slot, end: usize) -> bool {
    let (header, body) = packet[..end + TAG_BYTES].split_at_mut(BODY);
    key.seal(number, header, body)
}

/// Opens it.
fn open(key: &impl InPlace, number: u64, packet: &mut Slot, end: usize) -> bool {
    let (header, body) = packet[..end + TAG_BYTES].split_at_mut(BODY);
    key.open(number, header, body)
}

/// Writes the packet's header, copies the data, and writes the frame's header behind it.
fn put_before_frame(from: &Slot, packet: &mut Slot) {
    let (data, frame) = packet[BODY..END].split_at_mut(DATA_BYTES);
    data.copy_from_slice(&from[..DATA_BYTES]);
    frame.copy_from_slice(&FRAME);
    packet[..BODY].copy_from_slice(&HEADER);
}

// --- From one place to another ---

/// Encrypts the frame's header in place, and the data from where it stands into the packet.
fn seal_straight(key: &AwsLcKey, number: u64, from: &Slot, packet: &mut Slot) -> bool {
    use aws_lc_rs::aead::{Aad, Nonce};
    put_headers(packet);
    let (header, body) = packet[..END + TAG_BYTES].split_at_mut(BODY);
    let (frame, data) = body.split_at_mut(DATA - BODY);
    let (nonce, header) = (Nonce::assume_unique_for_key(nonce(number)), Aad::from(header));
    key.seal_in_place_scatter(nonce, header, frame, &from[..DATA_BYTES], data).is_ok()
}

/// Encrypts the data from where it stands into the packet, and behind it what `follows`.
fn seal_before(key: &AwsLcKey, number: u64, from: &Slot, follows: &[u8], packet: &mut Slot) -> bool {
    use aws_lc_rs::aead::{Aad, Nonce};
    packet[..BODY].copy_from_slice(&HEADER);
    let end = BODY + DATA_BYTES + follows.len() + TAG_BYTES;
    let (header, body) = packet[..end].split_at_mut(BODY);
    let (data, others) = body.split_at_mut(DATA_BYTES);
    let (nonce, header) = (Nonce::assume_unique_for_key(nonce(number)), Aad::from(header));
    key.seal_out_of_place_scatter(nonce, header, &from[..DATA_BYTES], data, follows, others).is_ok()
}

/// Decrypts straight to the place of the data. What stands before and behind it in the packet comes
/// along.
fn open_straight(key: &AwsLcKey, number: u64, packet: &Slot, end: usize, into: &mut Slot) -> bool {
    use aws_lc_rs::aead::{Aad, Nonce};
    let (body, tag) = packet[BODY..end + TAG_BYTES].split_at(end - BODY);
    let (nonce, header) = (Nonce::assume_unique_for_key(nonce(number)), Aad::from(&packet[..BODY]));
    key.open_separate_gather(nonce, header, body, tag, &mut into[..end - BODY]).is_ok()
}
