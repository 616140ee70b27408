//! Reed-Solomon erasure code: with `parity` parities, any `parity` losses in a block are repaired.
//!
//! Systematic, over the field of 256 elements, with a Cauchy matrix (Bloemer et al., "An XOR-based
//! erasure-resilient coding scheme", 1995) whose columns are scaled so that the first parity is the
//! exclusive-or of the sources. Every square part of such a matrix can be inverted, and its
//! elements depend on neither the number of sources nor that of parities, so a block may be closed
//! before it is full. Blocks are interleaved: against bursts, short blocks in turns do what long
//! ones would, for a fraction of the arithmetic.

use super::block::{BlockCode, block_scheme};
use super::{DATA_MAX, PARITIES_MAX, SYMBOL_PREFIX_BYTES, Shape, gf256, predict, prefix};
use crate::facts::{LOSS_MIN, PathFacts};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unasked, Unit, millis};
use core::time::Duration;
use smallvec::SmallVec;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct ReedSolomon {
    shape: Shape,
}

impl ReedSolomon {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Fec,
        number: 2,
        name: "reed-solomon",
        what: "several parities per block, each of which repairs any one loss",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[
            Param {
                name: "data",
                unit: Unit::Packets,
                default: 20,
                min: 2,
                max: DATA_MAX as u32,
                bold: Bold::Neither,
                what: "sources of a block",
            },
            Param {
                name: "parity",
                unit: Unit::Packets,
                default: 5,
                min: 1,
                max: PARITIES_MAX as u32,
                bold: Bold::Neither,
                what: "parities of a block",
            },
            Param {
                name: "flush",
                unit: Unit::Millis,
                default: 10,
                min: 0,
                max: 1000,
                bold: Bold::Neither,
                what: "how long an unfinished block may wait for its parities",
            },
            Param {
                name: "interleave",
                unit: Unit::Count,
                default: 4,
                min: 1,
                max: INTERLEAVE_MAX,
                bold: Bold::Neither,
                what: "blocks that are filled in turns",
            },
        ],
        needs: &[],
        facts: Facts { unasked: Unasked::Candidate(2), tuned: Some(tuned), ..Facts::PLAIN },
        predict: |params, facts, prediction| {
            predict::apply(&shape(params), CODE_NS_PER_BYTE, facts, prediction);
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        ReedSolomon { shape: shape(params) }
    }
}

/// Parities for the losses of a block, and for more than the mean of them, where packets are lost
/// at all (selection.md A-3).
fn tuned(facts: &PathFacts) -> Vec<Params> {
    if facts.loss < LOSS_MIN {
        return Vec::new();
    }
    if facts.packets_within(predict::FLUSH_LONGEST) < BLOCK_DATA as f64 {
        return predict::sparse(facts).iter().flat_map(|flush| sparse(facts, *flush)).collect();
    }
    let of = |deviations| {
        let parity = predict::parities(BLOCK_DATA, facts, deviations);
        ReedSolomon::INFO.params_within(&[("data", BLOCK_DATA), ("parity", parity)])
    };
    PARITY_DEVIATIONS.map(of).to_vec()
}

/// Blocks of what a sender of few packets makes within `flush`.
fn sparse(facts: &PathFacts, flush: Duration) -> Vec<Params> {
    let sources = facts.packets_within(flush).min(BLOCK_DATA as f64).floor() as u64;
    // A block of one takes half the parities of one of two, which is the smallest.
    let share = if sources < 2 { 2 } else { 1 };
    let of = |deviations| {
        let parity = predict::parities(sources, facts, deviations).saturating_mul(share);
        let flush_ms = u64::try_from(flush.as_millis()).unwrap_or(u64::MAX);
        let settings = [("data", sources), ("parity", parity), ("flush", flush_ms), ("interleave", 1)];
        ReedSolomon::INFO.params_within(&settings)
    };
    let mut list = PARITY_DEVIATIONS.map(of).to_vec();
    list.dedup();
    list
}

/// Sources of the blocks that are compared.
const BLOCK_DATA: u64 = 20;

/// Parities beyond the mean number of losses in a block, in standard deviations.
const PARITY_DEVIATIONS: [f64; 3] = [1.0, 2.0, 3.0];

fn shape(params: &Params) -> Shape {
    Shape {
        data: params.get(0) as usize,
        parities: params.get(1) as usize,
        slack: 0,
        interleave: params.get(3) as usize,
        flush: millis(params.get(2)),
    }
}

/// Most blocks that are filled in turns: bounds the parities that a sender keeps, which are 8 * 32
/// packets then.
pub(super) const INTERLEAVE_MAX: u32 = 8;

type Column = SmallVec<[u8; PARITIES_MAX]>;

/// Factor of source `source` in parity `parity`: `(X0 + Y) / (Xp + Y)`, where `Xp` is 64 + `parity`
/// and `Y` is `source`, none of which are equal (fec.md ).
fn coefficient(parity: u8, source: usize) -> u8 {
    let x = |parity: u8| DATA_MAX as u8 + parity;
    let y = source as u8;
    gf256::multiply(x(0) ^ y, gf256::inverse(x(parity) ^ y))
}

block_scheme!(ReedSolomon);

impl BlockCode for ReedSolomon {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn accumulate(&self, index: usize, offset: usize, bytes: &[u8], parities: &mut [Vec<u8>]) {
        let column: Column = (0..parities.len() as u8).map(|parity| coefficient(parity, index)).collect();
        gf256::accumulate(&column, offset, bytes, parities);
    }

    fn reconstruct(&self, sources: &[Option<&[u8]>], parities: &[(u8, &[u8])]) -> Option<Vec<Vec<u8>>> {
        let missing: SmallVec<[usize; PARITIES_MAX]> =
            sources.iter().enumerate().filter(|(_, s)| s.is_none()).map(|(i, _)| i).collect();
        let used = parities.get(..missing.len())?;
        // What the missing sources contributed to each parity: the parity less the sources that are
        // there.
        let mut shares: Vec<Vec<u8>> = used.iter().map(|(_, symbol)| symbol.to_vec()).collect();
        for (source, payload) in sources.iter().enumerate().filter_map(|(i, s)| s.map(|payload| (i, payload)))
        {
            let column: Column = used.iter().map(|(parity, _)| coefficient(*parity, source)).collect();
            gf256::accumulate(&column, 0, &prefix(payload), &mut shares);
            gf256::accumulate(&column, SYMBOL_PREFIX_BYTES, payload, &mut shares);
        }
        // As many equations as unknowns.
        let equations = used
            .iter()
            .map(|(parity, _)| missing.iter().map(|source| coefficient(*parity, *source)).collect())
            .collect();
        let solution = gf256::invert(equations)?;
        let mut symbols: Vec<Vec<u8>> = shares.iter().map(|share| vec![0; share.len()]).collect();
        for (equation, share) in shares.iter().enumerate() {
            let column: Column = solution.iter().map(|row| row[equation]).collect();
            gf256::accumulate(&column, 0, share, &mut symbols);
        }
        Some(symbols)
    }
}

/// Processing per source byte and parity: 1.0 us for 1400 bytes and five parities, in SSE2.
const CODE_NS_PER_BYTE: f64 = 0.15;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fec::testing;

    /// Sources and parities of the largest block of which every pattern is tried.
    const SOURCES: usize = 6;
    const PARITIES: usize = 4;

    /// The symbols of a block: of payloads of several lengths, filled up with zeros.
    fn symbols(payloads: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let longest = payloads.iter().map(|payload| SYMBOL_PREFIX_BYTES + payload.len()).max().unwrap_or(0);
        let symbol = |payload: &Vec<u8>| [&prefix(payload)[..], payload].concat();
        payloads
            .iter()
            .map(symbol)
            .map(|mut symbol| {
                symbol.resize(longest, 0);
                symbol
            })
            .collect()
    }

    /// Every way to lose sources, and to repair them from parities: what comes of it are the
    /// solutions of plain equations, and what was sent.
    #[test]
    fn every_pattern_of_loss_is_repaired_as_plain_equations_say() {
        let scheme = ReedSolomon { shape: shape(&ReedSolomon::INFO.choice().params) };
        let payloads: Vec<Vec<u8>> =
            (0..SOURCES).map(|i| (0..3 + i % 3).map(|j| (i * 37 + j * 11) as u8).collect()).collect();
        let symbols = symbols(&payloads);
        let mut parities = vec![vec![0; symbols[0].len()]; PARITIES];
        for (index, symbol) in symbols.iter().enumerate() {
            scheme.accumulate(index, 0, symbol, &mut parities);
        }
        let mut patterns = 0;
        for lost in 1..1u32 << SOURCES {
            for there in 0..1u32 << PARITIES {
                let missing: Vec<usize> = (0..SOURCES).filter(|i| lost >> i & 1 == 1).collect();
                let used: Vec<u8> = (0..PARITIES as u8).filter(|p| there >> p & 1 == 1).collect();
                let sources: Vec<Option<&[u8]>> = payloads
                    .iter()
                    .enumerate()
                    .map(|(i, p)| (lost >> i & 1 == 0).then_some(&p[..]))
                    .collect();
                let arrived: Vec<(u8, &[u8])> =
                    used.iter().map(|p| (*p, &parities[usize::from(*p)][..])).collect();
                let repaired = scheme.reconstruct(&sources, &arrived);
                if missing.len() > used.len() {
                    assert_eq!(repaired, None, "{lost:b} {there:b}");
                    continue;
                }
                let rows = used.iter().map(|parity| {
                    let mut share = parities[usize::from(*parity)].clone();
                    for (source, symbol) in symbols.iter().enumerate().filter(|(i, _)| lost >> i & 1 == 0) {
                        let factor = testing::coefficient(*parity, source as u8);
                        share
                            .iter_mut()
                            .zip(symbol)
                            .for_each(|(s, byte)| *s ^= testing::product(factor, *byte));
                    }
                    (
                        missing.iter().map(|source| testing::coefficient(*parity, *source as u8)).collect(),
                        share,
                    )
                });
                let solved = testing::solve(rows.collect());
                assert_eq!(repaired, solved, "{lost:b} {there:b}");
                let sent: Vec<Vec<u8>> = missing.iter().map(|i| symbols[*i].clone()).collect();
                assert_eq!(repaired, Some(sent), "{lost:b} {there:b}");
                patterns += 1;
            }
        }
        assert!(patterns > 300, "{patterns}");
    }

    #[test]
    fn coefficients_are_those_of_the_specification() {
        for parity in 0..PARITIES_MAX as u8 {
            for source in 0..DATA_MAX as u8 {
                assert_eq!(coefficient(parity, usize::from(source)), testing::coefficient(parity, source));
            }
        }
    }

    /// The matrix is part of the wire format.
    #[test]
    fn known_coefficients() {
        assert!((0..DATA_MAX).all(|source| coefficient(0, source) == 1));
        for parity in 1..PARITIES_MAX as u8 {
            for source in 0..DATA_MAX {
                let c = coefficient(parity, source);
                assert_eq!(gf256::multiply(c, (64 + parity) ^ source as u8), 64 ^ source as u8);
            }
        }
    }

    /// Repair needs every square part of the matrix to have an inverse: all of two by two, and
    /// larger ones by sample.
    #[test]
    fn square_parts_have_inverses() {
        for a in 0..PARITIES_MAX as u8 {
            for b in 0..a {
                for i in 0..DATA_MAX {
                    for j in 0..i {
                        let left = gf256::multiply(coefficient(a, i), coefficient(b, j));
                        let right = gf256::multiply(coefficient(a, j), coefficient(b, i));
                        assert_ne!(left, right, "parities {a} and {b}, sources {i} and {j}");
                    }
                }
            }
        }
        for size in [3, 5, 8, 16, 32u8] {
            for stride in 1..=2 {
                let rows: Vec<u8> = (PARITIES_MAX as u8 - size..PARITIES_MAX as u8).collect();
                let part = rows
                    .iter()
                    .map(|parity| (0..usize::from(size)).map(|i| coefficient(*parity, i * stride)).collect())
                    .collect();
                assert!(gf256::invert(part).is_some(), "{size} rows, stride {stride}");
            }
        }
    }
}
