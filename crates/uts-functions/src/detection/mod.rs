//! Error detection: finding packets that were damaged on the way.
//!
//! A mechanism computes a trailer over all bytes of the packet that come before it; what the packet
//! leaves out of its number is added to the trailer of every mechanism alike ([`add_left_out`]). A
//! mechanism may let damage through at the packet's end, where the sender allows it. There is no
//! state: every packet stands for itself. See `spec/functions/detection.md`.

use crate::mechanism::{Described, Facts, Promise, Unasked};
use crate::registry;
use auto_impl::auto_impl;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;

/// A mechanism whose trailer is a sum over what is covered. Any difference is damage. Nothing is
/// put right.
macro_rules! checks_by_sum {
    ($mechanism:ty, $trailer_bytes:expr, $sum:expr) => {
        impl $crate::detection::Detection for $mechanism {
            fn trailer_bytes(&self) -> usize {
                $trailer_bytes
            }

            fn append(&self, covered: &[u8], trailer: &mut [u8]) {
                trailer.copy_from_slice(&($sum)(covered));
            }

            fn check(&self, covered: &mut [u8], trailer: &[u8]) -> $crate::detection::Verdict {
                $crate::detection::Verdict::of(trailer == ($sum)(covered))
            }
        }
    };
}

/// Properties of checks that find damage and are used by name only.
const BY_NAME: Facts =
    Facts { uniform: true, promises: &[Promise::Integrity], unasked: Unasked::Never, ..Facts::PLAIN };

pub mod crc_32;
pub mod crc_32c;
pub mod crc_64;
pub mod fletcher_32;
pub mod hamming;
pub mod header_and_data;
pub mod internet_16;
pub mod none;
pub mod parity;
pub mod partial_coverage;
pub mod xxh3_64;

/// Result of a check of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It is as it was sent, as far as the mechanism can tell.
    Right,
    /// It was damaged, and has been put right.
    Repaired {
        /// Where: in bytes from the packet's begin.
        at: usize,
    },
    /// It is damaged behind so many bytes, where its sender allows that; those are right.
    RightTo(usize),
    /// It is damaged.
    Wrong,
}

impl Verdict {
    /// The verdict of a mechanism that repairs nothing.
    pub const fn of(is_right: bool) -> Self {
        if is_right { Verdict::Right } else { Verdict::Wrong }
    }
}

/// A way to find damage.
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Detection: Described + DynClone {
    /// Bytes of the trailer.
    fn trailer_bytes(&self) -> usize;

    /// Writes the trailer for `covered`. `trailer` is [`Detection::trailer_bytes`] long
    /// (detection.md R-4).
    fn append(&self, covered: &[u8], trailer: &mut [u8]);

    /// The same for a packet of which only the first `up_to` bytes have to be right. A mechanism
    /// that lets no damage through covers all of it.
    fn append_up_to(&self, packet: &[u8], _up_to: usize, trailer: &mut [u8]) {
        self.append(packet, trailer);
    }

    /// Checks if `covered` and `trailer` belong together; a trailer of another length never does.
    /// Damage may be put right in `covered`.
    fn check(&self, covered: &mut [u8], trailer: &[u8]) -> Verdict;
}

/// The longest trailer of any mechanism, in bytes.
pub const TRAILER_BYTES_MAX: usize = 8;

/// Adds to a trailer what its packet leaves out of its number, or takes it off again: a packet that
/// comes so late that its number is completed to another is found as one that was damaged. (A
/// cipher, whose nonce is the whole number, refuses it by itself.) (detection.md R-2)
#[inline]
pub fn add_left_out(left_out: u64, trailer: &mut [u8]) {
    if left_out == 0 || trailer.is_empty() {
        return;
    }
    for group in left_out.to_be_bytes().chunks(trailer.len()) {
        trailer.iter_mut().zip(group).for_each(|(byte, added)| *byte ^= added);
    }
}

dyn_clone::clone_trait_object!(Detection);

registry!(
    /// A detection mechanism.
    #[derive(Clone, Debug)]
    Slot: Detection, context: ();
    None => none::None,
    Internet16 => internet_16::Internet16,
    Crc32c => crc_32c::Crc32c,
    Parity => parity::Parity,
    Fletcher32 => fletcher_32::Fletcher32,
    Crc32 => crc_32::Crc32,
    Crc64 => crc_64::Crc64,
    Xxh3 => xxh3_64::Xxh3,
    HeaderAndData => header_and_data::HeaderAndData,
    Hamming => hamming::Hamming,
    PartialCoverage => partial_coverage::PartialCoverage,
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slots() -> impl Iterator<Item = (&'static str, Slot)> {
        MECHANISMS.iter().map(|m| (m.name, Slot::build(&m.choice(), ()).expect("default parameters")))
    }

    /// Bytes of `covered` after a check that does not find them wrong.
    fn accepted(slot: &Slot, covered: &[u8], trailer: &[u8]) -> Option<Vec<u8>> {
        let mut covered = covered.to_vec();
        (slot.check(&mut covered, trailer) != Verdict::Wrong).then_some(covered)
    }

    fn trailer(slot: &Slot, covered: &[u8]) -> Vec<u8> {
        let mut trailer = vec![0xa5; slot.trailer_bytes()];
        slot.append(covered, &mut trailer);
        trailer
    }

    #[test]
    fn numbers_are_the_places_in_the_list() {
        assert!(MECHANISMS.iter().enumerate().all(|(i, m)| usize::from(m.number) == i));
    }

    #[test]
    fn a_trailer_of_another_length_is_refused() {
        for (name, slot) in slots() {
            let mut bytes = trailer(&slot, b"packet");
            bytes.push(0);
            assert!(accepted(&slot, b"packet", &bytes).is_none(), "{name}: longer");
            bytes.truncate(slot.trailer_bytes().saturating_sub(1));
            assert!(
                bytes.is_empty() && slot.trailer_bytes() == 0 || accepted(&slot, b"packet", &bytes).is_none(),
                "{name}"
            );
        }
    }

    #[test]
    fn every_single_bit_is_found_or_put_right() {
        let packet: Vec<u8> = (0..97u8).map(|i| i.wrapping_mul(151) ^ 0x3c).collect();
        for (name, slot) in slots().filter(|(_, s)| s.trailer_bytes() > 0) {
            let trailer = trailer(&slot, &packet);
            for bit in 0..packet.len() * 8 {
                let mut damaged = packet.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let got = accepted(&slot, &damaged, &trailer);
                assert!(got.is_none_or(|got| got == packet), "{name}: bit {bit}");
            }
            for bit in 0..trailer.len() * 8 {
                let mut damaged = trailer.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(accepted(&slot, &packet, &damaged).is_none(), "{name}: trailer bit {bit}");
            }
        }
    }

    #[test]
    fn a_number_completed_to_a_neighbour_is_found() {
        for (name, slot) in slots().filter(|(_, slot)| slot.trailer_bytes() > 0) {
            assert!(slot.trailer_bytes() <= TRAILER_BYTES_MAX && 8 % slot.trailer_bytes() == 0, "{name}");
            let bare = trailer(&slot, b"a packet");
            for left_out in [0, 1, 0xff, 0xffff, 0x12_ffff, 0xffff_ffff, 0x0012_3456_789a_bcde] {
                let mut sent = bare.clone();
                add_left_out(left_out, &mut sent);
                let as_completed = |completed: u64| {
                    let mut trailer = sent.clone();
                    add_left_out(completed, &mut trailer);
                    accepted(&slot, b"a packet", &trailer).is_some_and(|got| got == b"a packet")
                };
                assert!(as_completed(left_out), "{name}: {left_out:#x}");
                assert!(!as_completed(left_out + 1), "{name}: {left_out:#x} and one more");
                assert!(left_out == 0 || !as_completed(left_out - 1), "{name}: {left_out:#x} and one less");
            }
        }
    }

    /// Where damage may pass, it passes behind what has to be right and is said; nowhere else.
    #[test]
    fn what_has_to_be_right_is_found_damaged() {
        let packet: Vec<u8> = (0..97u8).map(|i| i.wrapping_mul(151) ^ 0x3c).collect();
        for (name, slot) in slots().filter(|(_, s)| s.info().promises(Promise::Integrity)) {
            let mut trailer = vec![0; slot.trailer_bytes()];
            slot.append_up_to(&packet, 40, &mut trailer);
            for at in 0..packet.len() {
                let mut damaged = packet.clone();
                damaged[at] ^= 0x10;
                let passes = at >= 40 && slot.info().facts.tolerates;
                let expected = if passes { Verdict::RightTo(40) } else { Verdict::Wrong };
                assert_eq!(slot.check(&mut damaged, &trailer), expected, "{name}: byte {at}");
            }
        }
    }

    #[test]
    fn what_is_left_out_is_added_to_the_last_bytes_last() {
        let mut long = [0x10, 0x20, 0x30, 0x40];
        add_left_out(0x0001_0203_0405_0607, &mut long);
        assert_eq!(long, [0x10 ^ 0x04, 0x20 ^ 0x01 ^ 0x05, 0x30 ^ 0x02 ^ 0x06, 0x40 ^ 0x03 ^ 0x07]);
        let mut short = [0, 0];
        add_left_out(0x0001_0203_0405_0607, &mut short);
        assert_eq!(short, [0x02 ^ 0x04 ^ 0x06, 0x01 ^ 0x03 ^ 0x05 ^ 0x07]);
        add_left_out(1, &mut []);
    }

    proptest! {
        /// An intact packet is accepted, and a burst shorter than the trailer never passes.
        #[test]
        fn intact_packets_pass_and_short_bursts_do_not(
            packet in prop::collection::vec(any::<u8>(), 1..1500),
            at in any::<prop::sample::Index>(),
            pattern in 1u8..=254,
        ) {
            for (name, slot) in slots() {
                let trailer = trailer(&slot, &packet);
                prop_assert_eq!(accepted(&slot, &packet, &trailer), Some(packet.clone()), "{}", name);
                if slot.info().promises(Promise::Integrity) {
                    let mut damaged = packet.clone();
                    damaged[at.index(packet.len())] ^= pattern;
                    prop_assert!(accepted(&slot, &damaged, &trailer).is_none(), "{}", name);
                }
            }
        }
    }
}
