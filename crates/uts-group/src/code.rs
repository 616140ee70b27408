//! The code over blocks: that of fec/reed-solomon, whose parities are made when they are asked for.

use bytes::Bytes;
use uts_functions::fec::block::BlockCode;
use uts_functions::fec::reed_solomon::ReedSolomon;
use uts_functions::fec::{DATA_MAX, PARITIES_MAX, SYMBOL_PREFIX_BYTES};

/// Most sources of a block.
pub const SOURCES_MAX: usize = DATA_MAX;

/// Parities that a block has.
pub const PARITIES: usize = PARITIES_MAX;

/// The code.
#[derive(Clone, Debug)]
pub struct Code(ReedSolomon);

impl Default for Code {
    fn default() -> Self {
        let settings = [("data", SOURCES_MAX as u64), ("parity", PARITIES as u64), ("interleave", 1)];
        Code(ReedSolomon::build(&ReedSolomon::INFO.params_within(&settings), ()))
    }
}

impl Code {
    /// The first `count` parities of a block (fec.md ). (G-9)
    pub fn parities(&self, sources: &[Bytes], count: usize) -> Vec<Bytes> {
        let longest = sources.iter().map(Bytes::len).max().unwrap_or(0) + SYMBOL_PREFIX_BYTES;
        let mut rows = vec![vec![0; longest]; count.min(PARITIES)];
        for (index, source) in sources.iter().enumerate() {
            let length = u16::try_from(source.len()).unwrap_or(u16::MAX).to_be_bytes();
            self.0.accumulate(index, 0, &length, &mut rows);
            self.0.accumulate(index, SYMBOL_PREFIX_BYTES, source, &mut rows);
        }
        rows.into_iter().map(Bytes::from).collect()
    }

    /// The sources that are `None`, in their order, from parities (index, symbol) with different
    /// indices. `None` if there are too few, or if they are not of these sources.
    pub fn repair(&self, sources: &[Option<Bytes>], parities: &[(u8, &[u8])]) -> Option<Vec<Bytes>> {
        let missing = sources.iter().filter(|source| source.is_none()).count();
        let parities = parities.get(..missing)?;
        let length = parities.first()?.1.len();
        let longest = sources.iter().flatten().map(Bytes::len).max().unwrap_or(0);
        let is_proper =
            parities.iter().all(|(index, symbol)| usize::from(*index) < PARITIES && symbol.len() == length);
        if !is_proper || sources.len() > SOURCES_MAX || length < longest + SYMBOL_PREFIX_BYTES {
            return None;
        }
        let known: Vec<Option<&[u8]>> = sources.iter().map(Option::as_deref).collect();
        self.0.reconstruct(&known, parities)?.into_iter().map(source).collect()
    }
}

/// The source of a symbol: its length stands before it.
fn source(symbol: Vec<u8>) -> Option<Bytes> {
    let (length, rest) = symbol.split_first_chunk::<SYMBOL_PREFIX_BYTES>()?;
    let length = usize::from(u16::from_be_bytes(*length));
    let is_padded = rest.get(length..)?.iter().all(|byte| *byte == 0);
    is_padded.then(|| Bytes::from(symbol).slice(SYMBOL_PREFIX_BYTES..SYMBOL_PREFIX_BYTES + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parities repair different losses.
    #[test]
    fn two_parities_repair_any_two_losses() {
        let code = Code::default();
        let sources: Vec<Bytes> =
            (0..16u8).map(|i| (0..20 + i).map(|j| (i * 17) ^ j).collect::<Vec<u8>>().into()).collect();
        let parities = code.parities(&sources, 12);
        let used = [(3, &parities[3][..]), (11, &parities[11][..])];
        for a in 0..16 {
            for b in 0..a {
                let mut here: Vec<Option<Bytes>> = sources.iter().cloned().map(Some).collect();
                (here[a], here[b]) = (None, None);
                assert_eq!(code.repair(&here, &used), Some(vec![sources[b].clone(), sources[a].clone()]));
            }
        }
    }

    #[test]
    fn parities_of_something_else_are_refused() {
        let code = Code::default();
        let here = [Some(Bytes::from_static(b"long enough")), None];
        assert_eq!(code.repair(&here, &[]), None);
        assert_eq!(code.repair(&here, &[(0, b"short")]), None);
        assert_eq!(code.repair(&here, &[(32, &[0; 40])]), None);
        // The length of what comes out is none.
        assert_eq!(code.repair(&here, &[(0, &[0xff; 13])]), None);
    }
}
