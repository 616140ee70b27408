//! The Hamming code (7,4) over packets: three parities for four sources, each the exclusive-or of
//! three of them (Hamming, "Error Detecting and Error Correcting Codes", 1950). Over packets an
//! error is a loss, whose place is known: any two of a block's seven packets are recovered, and
//! most threes. Reed-Solomon recovers any three for as many parities; this needs no multiplication.

use super::block::{BlockCode, block_scheme};
use super::{SYMBOL_PREFIX_BYTES, Shape, predict, prefix};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unasked, Unit, millis};

/// Sources and parities of a block.
const DATA: usize = 4;
const PARITIES: usize = 3;

/// The sources that each parity is a sum of: bit `i` for source `i` (fec.md R-21).
const COVERS: [u8; PARITIES] = [0b1011, 0b1101, 0b1110];

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Hamming {
    shape: Shape,
}

impl Hamming {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Fec,
        number: 4,
        name: "hamming",
        what: "three parities for four packets, each of three of them; repairs any two losses",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[
            Param {
                name: "interleave",
                unit: Unit::Count,
                default: 4,
                min: 1,
                max: 16,
                bold: Bold::Neither,
                what: "blocks that are filled in turns",
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
        ],
        needs: &[],
        facts: Facts { unasked: Unasked::Never, ..Facts::PLAIN },
        predict: |params, facts, prediction| {
            predict::apply(&shape(params), XOR_NS_PER_BYTE, facts, prediction);
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Hamming { shape: shape(params) }
    }
}

fn shape(params: &Params) -> Shape {
    Shape {
        data: DATA,
        parities: PARITIES,
        slack: 1,
        interleave: params.get(0) as usize,
        flush: millis(params.get(1)),
    }
}

block_scheme!(Hamming);

impl BlockCode for Hamming {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn accumulate(&self, index: usize, offset: usize, bytes: &[u8], parities: &mut [Vec<u8>]) {
        let is_covered = |covers: &u8| covers.checked_shr(index as u32).is_some_and(|c| c & 1 == 1);
        for (parity, _) in parities.iter_mut().zip(COVERS).filter(|(_, covers)| is_covered(covers)) {
            if let Some(sum) = parity.get_mut(offset..) {
                add(sum, bytes);
            }
        }
    }

    fn reconstruct(&self, sources: &[Option<&[u8]>], parities: &[(u8, &[u8])]) -> Option<Vec<Vec<u8>>> {
        // Each parity, less the sources that are there: a sum of those that are missing.
        let mut rows: Vec<(u8, Vec<u8>)> = Vec::new();
        for (index, parity) in parities {
            let covers = *COVERS.get(usize::from(*index))?;
            let (mut missing, mut symbol) = (0, parity.to_vec());
            for (at, source) in sources.iter().enumerate().filter(|(at, _)| covers >> at & 1 == 1) {
                let Some(payload) = source else {
                    missing |= 1 << at;
                    continue;
                };
                let (length, rest) = symbol.split_at_mut_checked(SYMBOL_PREFIX_BYTES)?;
                add(length, &prefix(payload));
                add(rest, payload);
            }
            rows.push((missing, symbol));
        }
        solve(rows, sources)
    }
}

/// Elimination over the field of two elements; `None` if the sums do not tell all that is missing.
fn solve(mut rows: Vec<(u8, Vec<u8>)>, sources: &[Option<&[u8]>]) -> Option<Vec<Vec<u8>>> {
    let missing: Vec<usize> =
        sources.iter().enumerate().filter(|(_, s)| s.is_none()).map(|(at, _)| at).collect();
    for (done, at) in missing.iter().enumerate() {
        let pivot = (done..rows.len()).find(|row| rows[*row].0 >> at & 1 == 1)?;
        rows.swap(done, pivot);
        let (mask, symbol) = rows[done].clone();
        for (row, (other, sum)) in rows.iter_mut().enumerate() {
            if row != done && *other >> at & 1 == 1 {
                *other ^= mask;
                add(sum, &symbol);
            }
        }
    }
    Some(rows.into_iter().take(missing.len()).map(|(_, symbol)| symbol).collect())
}

fn add(sum: &mut [u8], bytes: &[u8]) {
    sum.iter_mut().zip(bytes).for_each(|(s, b)| *s ^= b);
}

/// As for one parity: two loads and a store per vector of 16 bytes, estimated.
const XOR_NS_PER_BYTE: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the 21 pairs all are recovered, of the 35 threes all but the seven that are a line of the
    /// Fano plane: what the distance of three, and the seven words of weight three, say.
    #[test]
    fn any_two_losses_and_most_threes_are_recovered() {
        let code = Hamming::build(&Hamming::INFO.choice().params, ());
        let payloads: [&[u8]; DATA] = [b"first", b"the second", b"", b"fourth"];
        let mut parities = vec![vec![0; 12]; PARITIES];
        for (index, payload) in payloads.iter().enumerate() {
            code.accumulate(index, 0, &prefix(payload), &mut parities);
            code.accumulate(index, SYMBOL_PREFIX_BYTES, payload, &mut parities);
        }
        let mut recovered = [0; 4];
        for lost in 0_u8..1 << (DATA + PARITIES) {
            let losses = lost.count_ones() as usize;
            if losses > PARITIES {
                continue;
            }
            let sources: Vec<Option<&[u8]>> =
                (0..DATA).map(|at| (lost >> at & 1 == 0).then_some(payloads[at])).collect();
            let there: Vec<(u8, &[u8])> = (0..PARITIES as u8)
                .filter(|index| lost >> (DATA as u8 + index) & 1 == 0)
                .map(|index| (index, &parities[usize::from(index)][..]))
                .collect();
            let Some(symbols) = code.reconstruct(&sources, &there) else { continue };
            let missing = (0..DATA).filter(|at| sources[*at].is_none());
            for (at, symbol) in missing.zip(symbols) {
                assert_eq!(symbol[..SYMBOL_PREFIX_BYTES], prefix(payloads[at]), "{lost:07b}");
                assert_eq!(&symbol[SYMBOL_PREFIX_BYTES..][..payloads[at].len()], payloads[at], "{lost:07b}");
            }
            recovered[losses] += 1;
        }
        assert_eq!(recovered, [1, 7, 21, 28]);
    }
}
