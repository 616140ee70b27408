//! Forward error correction: repairing losses by redundancy sent ahead.
//!
//! Cut, after RFC 6363, into a framework and schemes. The framework says what goes in and out:
//! packets that are sent go into an [`Encode`], which hands out [`Repair`]s; what arrives goes into
//! a [`Decode`], which turns it into [`Recovered`] packets. A scheme ([`Fec`]) makes both halves,
//! which live for one epoch in one direction. There are two kinds: codes over blocks of packets
//! (`block/`), and codes over a window that slides (`window/`). See `spec/functions/fec.md`.

use crate::mechanism::Described;
use crate::registry;
use crate::time::Time;
use auto_impl::auto_impl;
use bytes::Bytes;
use core::fmt;
use core::time::Duration;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;
use smallvec::SmallVec;

mod arrived;
pub mod block;
mod gf256;
pub mod hamming;
pub mod none;
pub mod predict;
pub mod reed_solomon;
pub mod sliding_window;
mod window;
pub mod xor;

pub use window::TinyMt32;

/// The sender's half of a scheme in use.
pub type Encoder = dyn Encode;
/// The receiver's half of a scheme in use.
pub type Decoder = dyn Decode;

/// Bytes of the length that stands before each payload in its symbol.
pub const SYMBOL_PREFIX_BYTES: usize = 2;

/// Longest payload that can be a source: what the symbol's length field can say.
pub const PAYLOAD_BYTES_MAX: usize = u16::MAX as usize;

/// Most sources of a repair: bounds what a peer can make the decoder compute, and the places of the
/// code's matrix.
pub const DATA_MAX: usize = 64;

/// Most parities of a block, for the same reasons.
pub const PARITIES_MAX: usize = 32;

/// Most packet numbers that the sources of a repair span, from the first to the last: bounds the
/// mask.
pub const SPAN_MAX: u64 = 256;

/// Bytes of the longest mask.
pub const MASK_BYTES_MAX: usize = (SPAN_MAX / 8) as usize;

/// Shape of a scheme's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sources of a full block; 0 if there is no redundancy.
    pub data: usize,
    /// Parities of a full block.
    pub parities: usize,
    /// Of them, so many fewer losses are repaired whichever packets they meet.
    pub slack: usize,
    /// Blocks that are filled in turns.
    pub interleave: usize,
    /// Longest time that an unfinished block may wait.
    pub flush: Duration,
}

impl Shape {
    /// Parities of a block of `sources`: in proportion to a full block's, rounded up (fec.md R-5).
    pub fn parities_for(&self, sources: usize) -> usize {
        if self.data == 0 {
            return 0;
        }
        (self.parities * sources.min(self.data)).div_ceil(self.data)
    }

    /// Losses of a block with so many parities that are repaired whichever packets they meet.
    pub fn repairs(&self, parities: usize) -> usize {
        parities.saturating_sub(self.slack).max(parities.min(1))
    }

    /// Packet numbers that one of the encoder's blocks spans at most: twice what its sources need,
    /// since packets that are no sources lie between.
    pub fn span_max(&self) -> u64 {
        ((2 * self.data * self.interleave) as u64).next_multiple_of(8).clamp(32, SPAN_MAX)
    }

    /// Bytes of the longest mask that the encoder makes. A packet that carries a repair needs room
    /// for this, for the other fields of a repair, and for a symbol [`SYMBOL_PREFIX_BYTES`] longer
    /// than the longest source (fec.md R-8).
    pub fn mask_bytes_max(&self) -> usize {
        (self.span_max() / 8) as usize
    }
}

/// Which sum over its sources a repair is (RFC 6363 section 5.4: the payload id of a repair).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairId {
    /// A parity of a block.
    Block {
        /// Which of the block's parities this is.
        index: u8,
        /// Number of parities that the block has.
        parities: u8,
    },
    /// A sum over a window.
    Window {
        /// Key that the coefficients follow from (RFC 8681 section 4.1.3: `Repair_Key`).
        key: u16,
    },
}

/// A sum over packets, with the names of those that it covers. A value; the wire encoding is
/// elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Packet number of the first source.
    pub first: u64,
    /// Bit `i % 8` (from the least significant) of byte `i / 8` says whether packet `first + i` is
    /// a source. Bit 0 is set; the last byte is not zero.
    pub mask: SmallVec<[u8; 16]>,
    /// Which sum it is.
    pub id: RepairId,
    /// The sum: as long as the longest symbol of a source.
    pub symbol: Bytes,
}

impl Repair {
    /// The sources' distances from `first`, ascending.
    pub fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.mask.len() as u64 * 8).filter(|i| self.mask[(i / 8) as usize] >> (i % 8) & 1 == 1)
    }

    /// The sources' distances from `first` if mask and symbol are as every encoder makes them
    /// (fec.md ), with at most `sources_max` sources.
    fn proper_offsets(&self, sources_max: usize) -> Option<Offsets> {
        let is_proper = (1..=MASK_BYTES_MAX).contains(&self.mask.len())
            && self.mask.first().is_some_and(|byte| byte & 1 == 1)
            && self.mask.last().is_some_and(|byte| *byte != 0)
            && (SYMBOL_PREFIX_BYTES..=SYMBOL_PREFIX_BYTES + PAYLOAD_BYTES_MAX).contains(&self.symbol.len())
            && self.first < NUMBER_MAX;
        let offsets = is_proper.then(|| self.offsets().map(|offset| offset as u8).collect::<Offsets>())?;
        (offsets.len() <= sources_max.min(DATA_MAX)).then_some(offsets)
    }
}

/// Distances from a first packet number, ascending.
type Offsets = SmallVec<[u8; DATA_MAX]>;

/// Numbers stay below this (RFC 9000 section 12.3), so that adding a span cannot overflow.
const NUMBER_MAX: u64 = 1 << 62;

/// A packet that did not arrive and is known all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Its packet number.
    pub number: u64,
    /// Its plaintext payload.
    pub payload: Bytes,
}

/// Counters of repairs by their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Repairs that arrived.
    pub repairs: u64,
    /// Packets recovered.
    pub recovered: u64,
    /// Repairs that nothing was missing for, or that were there already.
    pub unneeded: u64,
    /// Repairs that no encoder makes, or that contradict others or their own symbol.
    pub refused: u64,
    /// Repairs for packets that are long past.
    pub late: u64,
    /// Repairs given up: too much was lacking for too long, or there was no room.
    pub abandoned: u64,
}

/// The sender's half: packets into repairs. Feed every source in the order of its number, then take
/// repairs until there are none.
pub trait Encode: fmt::Debug + Send + Sync {
    /// Takes in a packet that is sent: its number, above all that were taken in before, and its
    /// plaintext payload. Payloads longer than [`PAYLOAD_BYTES_MAX`] and numbers out of order go
    /// unprotected.
    fn on_source(&mut self, now: Time, number: u64, payload: &[u8]);
    /// When [`Encode::on_flush`] wants to be called.
    fn deadline(&self) -> Option<Time>;
    /// Makes the repairs of what has waited long enough.
    fn on_flush(&mut self, now: Time);
    /// Makes the repairs of all that waits: the epoch ends, or nothing more will be sent for long.
    fn flush(&mut self);
    /// The next repair to send, which stays.
    fn next_repair(&self) -> Option<&Repair>;
    /// The next repair to send.
    fn pop_repair(&mut self) -> Option<Repair>;
    /// True if a repair waits to be sent.
    fn has_repair(&self) -> bool {
        self.next_repair().is_some()
    }
    /// Repairs that nobody took before there were too many.
    fn dropped(&self) -> u64;
}

/// The receiver's half: arrivals and repairs into recovered packets. Feed every source and every
/// repair, in whatever order they arrive. A packet number is recovered at most once, and never
/// after it arrived. All memory is bounded; what is given up for that is counted in
/// [`Counters::abandoned`].
pub trait Decode: fmt::Debug + Send + Sync {
    /// Takes in a packet that arrived: its number and its plaintext payload. Returns what it was
    /// the last piece for.
    fn on_source(&mut self, number: u64, payload: &[u8]) -> Vec<Recovered>;
    /// Takes in a repair. Returns what it completes.
    fn on_repair(&mut self, repair: &Repair) -> Vec<Recovered>;
    /// Counters of repairs so far.
    fn counters(&self) -> &Counters;
    /// Bytes kept of payloads and sums.
    fn held_bytes(&self) -> usize;
    /// The same, with the memory that it takes to keep track of them.
    fn memory_bytes(&self) -> usize;
    /// Lets go of all payloads and sums. Packets that are missing by then are not recovered.
    fn forget(&mut self);
}

/// A scheme: what makes both halves. A symbol is the payload's length (two bytes, big endian), the
/// payload, and as many zero bytes as the longest symbol of a repair needs; the zeros are never
/// stored.
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Fec: Described + DynClone {
    /// The sender's half.
    fn encoder(&self) -> Box<Encoder>;
    /// The receiver's half.
    fn decoder(&self) -> Box<Decoder>;
    /// Shape of its blocks, if it codes over blocks.
    fn shape(&self) -> Option<Shape>;
}

dyn_clone::clone_trait_object!(Fec);

registry!(
    /// A scheme.
    #[derive(Clone, Debug)]
    Slot: Fec, context: ();
    None => none::None,
    Xor => xor::Xor,
    ReedSolomon => reed_solomon::ReedSolomon,
    SlidingWindow => sliding_window::SlidingWindow,
    Hamming => hamming::Hamming,
);

/// The length field of a payload's symbol.
fn prefix(payload: &[u8]) -> [u8; SYMBOL_PREFIX_BYTES] {
    u16::try_from(payload.len()).unwrap_or(u16::MAX).to_be_bytes()
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
