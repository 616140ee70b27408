//! Redundancy: a sum over packets, of a block or of a window.

use super::kind;
use crate::error::{Problem, WireError};
use crate::varint::{Reader, Sink, VARINT_MAX, emitters};

/// The longest mask, in bytes: a repair spans at most 256 packet numbers. [P-29]
pub const MAX_MASK_BYTES: usize = 32;

/// The longest symbol, in bytes.
pub const MAX_SYMBOL_BYTES: usize = 65_535;

/// Which sum over its packets a repair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairId {
    /// A parity of a block.
    Block {
        /// Which of the block's repair symbols this is, below `parities`.
        index: u8,
        /// Number of repair symbols that the block has, at least 1.
        parities: u8,
    },
    /// A sum over a window.
    Window {
        /// Key that the coefficients follow from.
        key: u16,
    },
}

/// One repair symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair<'a> {
    /// The packet number that the mask starts from.
    pub first: u64,
    /// Which packets it covers: bit `i % 8` (from the least significant) of byte `i / 8` stands for
    /// `first + i`. 1 to 32 bytes.
    pub mask: &'a [u8],
    /// Which sum it is.
    pub id: RepairId,
    /// The symbol.
    pub symbol: &'a [u8],
}

impl<'a> Repair<'a> {
    /// The numbers of the packets that it covers, ascending.
    pub fn packets(&self) -> impl Iterator<Item = u64> + 'a {
        let (first, mask) = (self.first, self.mask);
        let is_set = move |i: u64| {
            let byte = usize::try_from(i / 8).ok().and_then(|at| mask.get(at).copied());
            byte.is_some_and(|byte| byte >> (i % 8) & 1 == 1)
        };
        (0..mask.len() as u64 * 8).filter(move |i| is_set(*i)).map(move |i| first.saturating_add(i))
    }

    pub(crate) fn read(frame_kind: u8, r: &mut Reader<'a>) -> Result<Self, WireError> {
        let at = r.offset();
        let first = r.varint("first packet of repair")?;
        let mask_at = r.offset();
        let mask = r.prefixed(MAX_MASK_BYTES, "repair mask")?;
        if mask.iter().all(|byte| *byte == 0) {
            return Err(WireError::new("repair mask", mask_at, Problem::Missing)); // P-29
        }
        if first.saturating_add(mask.len() as u64 * 8) > VARINT_MAX {
            return Err(WireError::value("first packet of repair", at, first, "an end below 2^62")); // P-24
        }
        let at = r.offset();
        let pair = [r.u8("repair id")?, r.u8("repair id")?];
        let id = match (frame_kind, pair) {
            (kind::WINDOW_REPAIR, key) => RepairId::Window { key: u16::from_be_bytes(key) },
            (_, [index, parities]) if index < parities => RepairId::Block { index, parities },
            (_, [index, _]) => {
                let expected = "less than the repair count";
                return Err(WireError::value("repair index", at, u64::from(index), expected)); // P-29
            }
        };
        Ok(Repair { first, mask, id, symbol: r.prefixed(MAX_SYMBOL_BYTES, "repair symbol")? })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        debug_assert!(self.mask.len() <= MAX_MASK_BYTES);
        let (frame_kind, pair) = match self.id {
            RepairId::Block { index, parities } => (kind::REPAIR, [index, parities]),
            RepairId::Window { key } => (kind::WINDOW_REPAIR, key.to_be_bytes()),
        };
        out.put_u8(frame_kind);
        out.put_varint(self.first);
        out.put_prefixed(self.mask);
        out.put(&pair);
        out.put_prefixed(self.symbol);
    }
}

emitters!(Repair<'_>);
