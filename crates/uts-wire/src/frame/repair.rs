//! Redundancy for a block of packets.

use super::kind;
use crate::error::{Problem, WireError};
use crate::varint::{Reader, Sink, VARINT_MAX, emitters};

/// The longest mask, in bytes: blocks span at most 256 packet numbers. [P-29]
pub const MAX_MASK_BYTES: usize = 32;

/// The longest symbol, in bytes.
pub const MAX_SYMBOL_BYTES: usize = 65_535;

/// One repair symbol of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair<'a> {
    /// The packet number that the mask starts from.
    pub first: u64,
    /// Which packets the block has: bit `i % 8` (from the least significant) of byte `i / 8` stands for `first + i`.
    /// 1 to 32 bytes.
    pub mask: &'a [u8],
    /// Which of the block's repair symbols this is, below `parities`.
    pub index: u8,
    /// How many repair symbols the block has, at least 1.
    pub parities: u8,
    /// The symbol.
    pub symbol: &'a [u8],
}

impl<'a> Repair<'a> {
    /// The packet numbers of the block, ascending.
    pub fn packets(&self) -> impl Iterator<Item = u64> + 'a {
        let (first, mask) = (self.first, self.mask);
        let is_set = move |i: u64| {
            let byte = usize::try_from(i / 8).ok().and_then(|at| mask.get(at).copied());
            byte.is_some_and(|byte| byte >> (i % 8) & 1 == 1)
        };
        (0..mask.len() as u64 * 8).filter(move |i| is_set(*i)).map(move |i| first.saturating_add(i))
    }

    pub(crate) fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let at = r.offset();
        let first = r.varint("first packet of block")?;
        let mask_at = r.offset();
        let mask = r.prefixed(MAX_MASK_BYTES, "block mask")?;
        if mask.iter().all(|byte| *byte == 0) {
            return Err(WireError::new("block mask", mask_at, Problem::Missing)); // P-29
        }
        if first.saturating_add(mask.len() as u64 * 8) > VARINT_MAX {
            return Err(WireError::value("first packet of block", at, first, "an end below 2^62")); // P-24
        }
        let at = r.offset();
        let (index, parities) = (r.u8("repair index")?, r.u8("repair count")?);
        if index >= parities {
            return Err(WireError::value("repair index", at, u64::from(index), "less than the repair count")); // P-29
        }
        Ok(Repair { first, mask, index, parities, symbol: r.prefixed(MAX_SYMBOL_BYTES, "repair symbol")? })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        debug_assert!(self.mask.len() <= MAX_MASK_BYTES && self.index < self.parities);
        out.put_u8(kind::REPAIR);
        out.put_varint(self.first);
        out.put_prefixed(self.mask);
        out.put(&[self.index, self.parities]);
        out.put_prefixed(self.symbol);
    }
}

emitters!(Repair<'_>);
