//! Copy and checksum, without a cipher.

use super::{DATA, DATA_BYTES, END, Slot, Work, is_right, place, put, put_headers, take};
use crc_fast::{CrcAlgorithm, Digest};
use uts_functions::detection::Detection;
use uts_functions::detection::crc_32c::Crc32c;
use uts_functions::detection::internet_16::Internet16;

pub(super) const CRC_BYTES: usize = 4;
const SUM_BYTES: usize = 2;

pub(super) fn works() -> Vec<Work> {
    vec![
        Work::sender("copy, CRC-32C")
            .way("in turn", put_then_crc)
            .way("in turn, CRC-32C first", |_, from, into| {
                put_headers(into);
                let crc = crc(&[&into[..DATA], &from[..DATA_BYTES]]);
                into[DATA..END].copy_from_slice(&from[..DATA_BYTES]);
                into[END..][..CRC_BYTES].copy_from_slice(&crc);
                true
            })
            .way("one pass, blocks of 64 B", put_and_crc::<64>)
            .way("one pass, blocks of 128 B", put_and_crc::<128>)
            .way("one pass, blocks of 256 B", put_and_crc::<256>),
        Work::receiver("CRC-32C, copy", put_then_crc)
            .way("in turn", |_, from, into| {
                let intact = is_right(&Crc32c, from, CRC_BYTES);
                take(from, into);
                intact
            })
            .way("one pass, blocks of 64 B", take_and_crc::<64>)
            .way("one pass, blocks of 128 B", take_and_crc::<128>)
            .way("one pass, blocks of 256 B", take_and_crc::<256>),
        Work::sender("copy, Internet-16").way("in turn", put_then_sum).way("one pass", |_, from, into| {
            put_headers(into);
            let sum = sum(&into[..DATA]) + copy_and_sum(&from[..DATA_BYTES], &mut into[DATA..END]);
            into[END..][..SUM_BYTES].copy_from_slice(&fold(sum));
            true
        }),
        Work::receiver("Internet-16, copy", put_then_sum)
            .way("in turn", |_, from, into| {
                let intact = is_right(&Internet16, from, SUM_BYTES);
                take(from, into);
                intact
            })
            .way("one pass", |_, from, into| {
                let sum = sum(&from[..DATA]) + copy_and_sum(&from[DATA..END], place(into));
                fold(sum) == from[END..][..SUM_BYTES]
            }),
    ]
}

// --- CRC-32C ---

/// As UTS does it.
pub(super) fn put_then_crc(_: u64, from: &mut Slot, packet: &mut Slot) -> bool {
    put(from, packet);
    let (covered, others) = packet.split_at_mut(END);
    Crc32c.append(covered, &mut others[..CRC_BYTES]);
    true
}

/// Copies block by block, and takes each into the checksum while it is in the first cache.
pub(super) fn put_and_crc<const BLOCK: usize>(_: u64, from: &mut Slot, packet: &mut Slot) -> bool {
    put_headers(packet);
    let (headers, others) = packet.split_at_mut(DATA);
    let (data, others) = others.split_at_mut(DATA_BYTES);
    others[..CRC_BYTES].copy_from_slice(&copy_and_crc::<BLOCK>(headers, &from[..DATA_BYTES], data));
    true
}

/// The same at the receiver; says whether the checksum is right.
pub(super) fn take_and_crc<const BLOCK: usize>(_: u64, packet: &mut Slot, into: &mut Slot) -> bool {
    copy_and_crc::<BLOCK>(&packet[..DATA], &packet[DATA..END], place(into)) == packet[END..][..CRC_BYTES]
}

/// The checksum of headers and of data that is copied.
fn copy_and_crc<const BLOCK: usize>(headers: &[u8], from: &[u8], into: &mut [u8]) -> [u8; CRC_BYTES] {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(headers);
    let ((blocks, others), (places, last)) = (from.as_chunks::<BLOCK>(), into.as_chunks_mut::<BLOCK>());
    for (block, place) in blocks.iter().zip(places) {
        *place = *block;
        digest.update(place);
    }
    last.copy_from_slice(others);
    digest.update(last);
    value(&digest)
}

/// The checksum of what stands in several places.
pub(super) fn crc(parts: &[&[u8]]) -> [u8; CRC_BYTES] {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    value(&digest)
}

fn value(digest: &Digest) -> [u8; CRC_BYTES] {
    (digest.finalize() as u32).to_le_bytes()
}

// --- Internet-16 ---

// Else the bytes of the data would change places in the words of the sum.
const _: () = assert!(DATA.is_multiple_of(2));

/// As UTS does it.
fn put_then_sum(_: u64, from: &mut Slot, packet: &mut Slot) -> bool {
    put(from, packet);
    let (covered, others) = packet.split_at_mut(END);
    Internet16.append(covered, &mut others[..SUM_BYTES]);
    true
}

/// The sum of 32-bit words, two at a time. It is folded to 16 bits at the end (RFC 1071 section
/// 2(C)).
fn sum(bytes: &[u8]) -> u64 {
    let (words, others) = bytes.as_chunks();
    words.iter().map(|word| halves(*word)).sum::<u64>() + last(others)
}

/// The same of bytes that are copied.
fn copy_and_sum(from: &[u8], into: &mut [u8]) -> u64 {
    let ((words, others), (places, place)) = (from.as_chunks(), into.as_chunks_mut());
    place.copy_from_slice(others);
    let mut sum = last(others);
    for (word, place) in words.iter().zip(places) {
        *place = *word;
        sum += halves(*word);
    }
    sum
}

fn halves(word: [u8; 8]) -> u64 {
    let word = u64::from_ne_bytes(word);
    (word & 0xffff_ffff) + (word >> 32)
}

fn last(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    halves(word)
}

/// In the order in which the bytes were added (RFC 1071 section 2(B)).
fn fold(mut sum: u64) -> [u8; SUM_BYTES] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::data;
    use super::*;

    #[test]
    fn checksums_of_copies_of_any_length() {
        let bytes = data();
        for len in 0..300 {
            let (covered, mut copy) = (&bytes[..len], vec![0; len]);
            let (mut as_sum, mut as_crc) = ([0; SUM_BYTES], [0; CRC_BYTES]);
            Internet16.append(covered, &mut as_sum);
            Crc32c.append(covered, &mut as_crc);
            assert_eq!(fold(sum(covered)), as_sum, "{len} bytes");
            assert_eq!(fold(copy_and_sum(covered, &mut copy)), as_sum, "{len} bytes");
            assert_eq!(copy, covered);
            copy.fill(0);
            assert_eq!(copy_and_crc::<64>(&[], covered, &mut copy), as_crc, "{len} bytes");
            assert_eq!(copy, covered);
        }
    }
}
