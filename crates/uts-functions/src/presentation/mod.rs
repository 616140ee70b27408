//! Presentation: what is done to messages before they are sent, and undone before they are handed
//! over. Byte streams pass unchanged, but for the ends of lines ([`Lines`]).

use crate::mechanism::Described;
use crate::registry;
use auto_impl::auto_impl;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;
use std::borrow::Cow;

pub mod ascii_lines;
pub mod byte_order;
pub mod dictionary;
pub mod lz4;
pub mod none;
pub mod zstd;

/// Why a message that arrived cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Shorter than its own header.
    #[error("a presented message ends within its header")]
    Truncated,
    /// The first byte says something that this mechanism does not know.
    #[error("unknown presentation form {0}")]
    UnknownForm(u8),
    /// The message would be larger than allowed.
    #[error("a message of {bytes} bytes is over the limit of {max_bytes}")]
    TooLarge {
        /// Its size, or what it claims.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// The message would be larger than its block can hold.
    #[error("a block of {block_bytes} bytes cannot hold a message of {bytes} bytes")]
    Impossible {
        /// Size that it claims.
        bytes: usize,
        /// Size of the block.
        block_bytes: usize,
    },
    /// It was compressed with a dictionary that this end does not have.
    #[error("it was compressed with dictionary {0}, which is not here")]
    UnknownDictionary(u32),
    /// The data is not what its header says.
    #[error("a presented message is corrupt")]
    Corrupt,
}

/// A policy over whole messages; without state, as messages may be lost or overtake each other
/// (presentation.md R-2).
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Presentation: Described + DynClone {
    /// The form in which a message travels.
    fn present<'a>(&self, message: &'a [u8]) -> Cow<'a, [u8]>;
    /// The message, from the form in which it travelled; at most `max_bytes`, whatever the data
    /// claims.
    ///
    /// # Errors
    /// [`Error`] if the data is malformed or the message too large.
    fn unpresent<'a>(&self, data: &'a [u8], max_bytes: usize) -> Result<Cow<'a, [u8]>, Error>;
    /// The form in which the next bytes of a stream travel, if the mechanism gives streams one (a
    /// fact of its entry: `streams`). [`Lines`] undoes it.
    fn present_stream<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(bytes)
    }
}

dyn_clone::clone_trait_object!(Presentation);

pub use ascii_lines::Lines;

/// First byte of a message that follows as it is (presentation.md R-10).
const FORM_PLAIN: u8 = 0;

/// Reads a message in whichever form it travelled: its first byte says which (presentation.md
/// R-10), so that one is read as it was written, whatever has been exchanged meanwhile.
fn read_form(data: &[u8], max_bytes: usize) -> Result<Cow<'_, [u8]>, Error> {
    let (form, rest) = data.split_first().ok_or(Error::Truncated)?;
    match *form {
        FORM_PLAIN if rest.len() > max_bytes => Err(Error::TooLarge { bytes: rest.len(), max_bytes }),
        FORM_PLAIN => Ok(Cow::Borrowed(rest)),
        lz4::FORM => lz4::read(rest, max_bytes),
        ascii_lines::FORM => ascii_lines::read(rest, max_bytes),
        byte_order::FORM => byte_order::read(rest, max_bytes),
        zstd::FORM => zstd::read(rest, max_bytes),
        zstd::FORM_WITH_DICTIONARY => zstd::read_with_dictionary(rest, max_bytes),
        // presentation.md R-3.
        form => Err(Error::UnknownForm(form)),
    }
}

/// A form byte, and a message as it is.
fn plain(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + message.len());
    out.push(FORM_PLAIN);
    out.extend_from_slice(message);
    out
}

registry! {
    /// The presentation mechanism in use.
    #[derive(Clone, Debug)]
    Slot: Presentation, context: ();
    None => none::None,
    Lz4 => lz4::Lz4,
    AsciiLines => ascii_lines::AsciiLines,
    ByteOrder => byte_order::ByteOrder,
    Zstd => zstd::Zstd,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn every_mechanism() -> impl Iterator<Item = (&'static str, Slot)> {
        MECHANISMS.iter().map(|m| (m.name, Slot::build(&m.choice(), ()).expect(m.name)))
    }

    fn lz4(threshold: u64) -> Slot {
        let choice = MECHANISMS[1].choice_with(&[("threshold", threshold)]).expect("in range");
        Slot::build(&choice, ()).expect("in range")
    }

    proptest! {
        /// Conformance: what is presented comes back, under every mechanism that may be in use by
        /// then, and never grows by more than two bytes, and one for each end of a line.
        #[test]
        fn every_message_comes_back(seed in prop::collection::vec(any::<u8>(), 0..80), repeats in 0usize..60) {
            let message = seed.repeat(repeats);
            for (name, slot) in every_mechanism() {
                let data = slot.present(&message);
                let line_ends = message.iter().filter(|b| b"\r\n".contains(b)).count();
                prop_assert!(data.len() <= message.len() + 2 + line_ends, "{}", name);
                let back = slot.unpresent(&data, message.len());
                prop_assert_eq!(back.as_deref(), Ok(message.as_slice()), "{}", name);
                let inert = |slot: &Slot| slot.info().facts.inert;
                for (after, reader) in every_mechanism().filter(|(_, reader)| !inert(reader) && !inert(&slot)) {
                    let back = reader.unpresent(&data, message.len());
                    prop_assert_eq!(back.as_deref(), Ok(message.as_slice()), "{} by {}", name, after);
                }
            }
        }

        /// Conformance: no data from outside panics or yields more than allowed.
        #[test]
        fn any_data_is_read_or_refused(mut data in prop::collection::vec(any::<u8>(), 0..300), form in 0u8..7, max in 0usize..4000) {
            if let Some(first) = data.first_mut() {
                *first = form;
            }
            // Lengths that pass the first checks reach the decompressor.
            if let Some(length) = data.get_mut(1..4) {
                length.copy_from_slice(&[0, 0, 3]);
            }
            for (name, slot) in every_mechanism() {
                if let Ok(message) = slot.unpresent(&data, max) {
                    prop_assert!(message.len() <= max, "{}", name);
                }
            }
        }

        /// Damage to a compressed message is refused, or at least stays within the size that was
        /// sent.
        #[test]
        fn damage_is_contained(at in 0usize..200, bit in 0u8..8) {
            let message: Vec<u8> = (0..4000u32).map(|i| (i / 7 % 50) as u8).collect();
            let slot = lz4(0);
            let mut data = slot.present(&message).into_owned();
            let at = at % data.len();
            data[at] ^= 1 << bit;
            if let Ok(back) = slot.unpresent(&data, message.len()) {
                prop_assert!(back.len() <= message.len());
            }
            let cut = slot.unpresent(&data[..at], message.len()).map(|m| m.len());
            prop_assert!(cut != Ok(message.len()), "a truncated message is not the message");
        }
    }

    #[test]
    fn small_and_incompressible_messages_are_left_alone() {
        let slot = lz4(64);
        let small = [7; 63];
        assert_eq!(slot.present(&small)[..], [&[0][..], &small[..]].concat());
        assert!(slot.present(&[7; 64]).len() < 64);
        let mut state = 1u32;
        let noise: Vec<u8> = core::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(1000)
        .collect();
        assert_eq!(slot.present(&noise).len(), 1001);
    }

    #[test]
    fn bombs_are_refused_before_anything_is_allocated() {
        let slot = lz4(0);
        let bomb = slot.present(&vec![0; 10 << 20]).into_owned();
        assert!(bomb.len() < 50_000, "{}", bomb.len());
        let too_large = Error::TooLarge { bytes: 10 << 20, max_bytes: 1 << 20 };
        assert_eq!(slot.unpresent(&bomb, 1 << 20), Err(too_large));
        let mut claim = vec![1];
        claim.extend_from_slice(&(16u32 << 20).to_be_bytes());
        claim.extend_from_slice(&[0; 20]);
        assert_eq!(
            slot.unpresent(&claim, 16 << 20),
            Err(Error::Impossible { bytes: 16 << 20, block_bytes: 20 })
        );
        assert_eq!(slot.unpresent(&[0; 12], 10), Err(Error::TooLarge { bytes: 11, max_bytes: 10 }));
    }

    #[test]
    fn malformed_headers_are_named() {
        let slot = lz4(0);
        assert_eq!(slot.unpresent(&[], 100), Err(Error::Truncated));
        assert_eq!(slot.unpresent(&[1, 0, 0], 100), Err(Error::Truncated));
        assert_eq!(slot.unpresent(&[9, 1, 2], 100), Err(Error::UnknownForm(9)));
        assert_eq!(slot.unpresent(&[1, 0, 0, 0, 5, 0], 100), Err(Error::Corrupt));
    }
}
