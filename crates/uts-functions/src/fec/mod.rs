//! Forward error correction: repairing losses by redundancy sent ahead.
//!
//! Cut, after RFC 6363, into a framework and schemes. The framework is the function's state: [`Encoder`] groups the
//! packets that are sent into blocks and hands out [`Repair`]s, [`Decoder`] keeps what lately arrived and turns it and
//! repairs into [`Recovered`] packets. A scheme ([`Fec`]) is the arithmetic of one block. Both halves live for one epoch
//! in one direction. See `spec/functions/fec.md`.

use crate::mechanism::Described;
use crate::registry;
use auto_impl::auto_impl;
use bytes::Bytes;
use core::time::Duration;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;
use smallvec::SmallVec;

mod decoder;
mod encoder;
mod gf256;
pub mod none;
pub mod predict;
pub mod reed_solomon;
pub mod xor;

pub use decoder::{Counters, Decoder};
pub use encoder::Encoder;

/// Bytes of the length that stands before each payload in its symbol.
pub const SYMBOL_PREFIX_BYTES: usize = 2;

/// Longest payload that can be a source: what the symbol's length field can say.
pub const PAYLOAD_BYTES_MAX: usize = u16::MAX as usize;

/// Most sources in a block: bounds what a peer can make the decoder compute, and the places of the code's matrix.
pub const DATA_MAX: usize = 64;

/// Most parities of a block, for the same reasons.
pub const PARITIES_MAX: usize = 32;

/// Most packet numbers that a block spans, from its first source to its last: bounds the mask.
pub const SPAN_MAX: u64 = 256;

/// Bytes of the longest mask.
pub const MASK_BYTES_MAX: usize = (SPAN_MAX / 8) as usize;

/// What a scheme's blocks look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sources of a full block; 0 if there is no redundancy.
    pub data: usize,
    /// Parities of a full block.
    pub parities: usize,
    /// Blocks that are filled in turns.
    pub interleave: usize,
    /// How long an unfinished block may wait.
    pub flush: Duration,
}

impl Shape {
    /// Parities of a block of `sources`: in proportion to a full block's, rounded up.
    pub fn parities_for(&self, sources: usize) -> usize {
        if self.data == 0 {
            return 0;
        }
        (self.parities * sources.min(self.data)).div_ceil(self.data)
    }

    /// Packet numbers that one of the encoder's blocks spans at most: twice what its sources need, since packets that
    /// are no sources lie between.
    pub fn span_max(&self) -> u64 {
        ((2 * self.data * self.interleave) as u64).next_multiple_of(8).clamp(32, SPAN_MAX)
    }

    /// Bytes of the longest mask that the encoder makes. A packet that carries a repair needs room for this, for the
    /// other fields of a repair, and for a symbol [`SYMBOL_PREFIX_BYTES`] longer than the longest source.
    pub fn mask_bytes_max(&self) -> usize {
        (self.span_max() / 8) as usize
    }
}

/// One parity of a block, with the names of the sources that it covers. A value; the wire encoding is elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Packet number of the block's first source.
    pub first: u64,
    /// Bit `i % 8` (from the least significant) of byte `i / 8` says whether packet `first + i` is a source of the
    /// block. Bit 0 is set; the last byte is not zero.
    pub mask: SmallVec<[u8; 16]>,
    /// Which of the block's parities this is.
    pub index: u8,
    /// How many parities the block has.
    pub parities: u8,
    /// The parity: as long as the block's longest symbol.
    pub symbol: Bytes,
}

impl Repair {
    /// The sources' distances from `first`, ascending.
    pub fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.mask.len() as u64 * 8).filter(|i| self.mask[(i / 8) as usize] >> (i % 8) & 1 == 1)
    }
}

/// A packet that did not arrive and is known all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Its packet number.
    pub number: u64,
    /// Its plaintext payload.
    pub payload: Bytes,
}

/// The arithmetic of a block. A symbol is the payload's length (two bytes, big endian), the payload, and as many zero
/// bytes as the block's longest symbol needs; the zeros are never stored.
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Fec: Described + DynClone {
    /// What its blocks look like.
    fn shape(&self) -> Shape;

    /// Adds `bytes`, which stand at `offset` of the symbol of source `index`, to all parities of the block. Each of
    /// `parities` reaches to the end of `bytes` at least. Order does not matter, and nothing of the source need be kept.
    fn accumulate(&self, index: usize, offset: usize, bytes: &[u8], parities: &mut [Vec<u8>]);

    /// The symbols of the sources that are `None`, in their order, from the payloads of those that are not and from
    /// parities (index within the block, symbol). All parities are of one length, no payload's symbol is longer, and
    /// indices are below [`Shape::parities`] and differ. `None` if there are fewer parities than sources missing.
    fn reconstruct(&self, sources: &[Option<&[u8]>], parities: &[(u8, &[u8])]) -> Option<Vec<Vec<u8>>>;
}

dyn_clone::clone_trait_object!(Fec);

registry!(
    /// A scheme.
    #[derive(Clone, Debug)]
    Slot: Fec, context: ();
    None => none::None,
    Xor => xor::Xor,
    ReedSolomon => reed_solomon::ReedSolomon,
);

/// The length field of a payload's symbol.
fn prefix(payload: &[u8]) -> [u8; SYMBOL_PREFIX_BYTES] {
    u16::try_from(payload.len()).unwrap_or(u16::MAX).to_be_bytes()
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
