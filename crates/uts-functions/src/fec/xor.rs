//! One parity per block, the exclusive-or of its sources (as in RFC 5109): repairs one loss in a
//! block.
//!
//! Losses come in bursts, so several blocks are filled in turns: a burst no longer than the number
//! of blocks costs each of them one packet.

use super::block::{BlockCode, block_scheme};
use super::{Shape, predict, prefix};
use crate::facts::{LOSS_MIN, PathFacts};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unasked, Unit, millis};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Xor {
    shape: Shape,
}

impl Xor {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Fec,
        number: 1,
        name: "xor",
        what: "one parity per block, the exclusive-or of its sources; blocks interleaved",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[
            Param {
                name: "data",
                unit: Unit::Packets,
                default: 8,
                min: 2,
                max: 64,
                bold: Bold::Neither,
                what: "sources of a block",
            },
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
                what: "how long an unfinished block may wait for its parity",
            },
        ],
        needs: &[],
        facts: Facts { unasked: Unasked::Candidate(1), tuned: Some(tuned), ..Facts::PLAIN },
        predict: |params, facts, prediction| {
            predict::apply(&shape(params), XOR_NS_PER_BYTE, facts, prediction);
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Xor { shape: shape(params) }
    }
}

/// Blocks interleaved by the length of a burst, where packets are lost at all (selection.md A-3).
fn tuned(facts: &PathFacts) -> Vec<Params> {
    if facts.loss < LOSS_MIN {
        return Vec::new();
    }
    let interleave = facts.loss_burst.max(1.0).ceil().min(f64::from(u32::MAX)) as u64;
    let of = |data| Xor::INFO.params_within(&[("data", data), ("interleave", interleave)]);
    [5, 10].map(of).to_vec()
}

fn shape(params: &Params) -> Shape {
    Shape {
        data: params.get(0) as usize,
        parities: 1,
        slack: 0,
        interleave: params.get(1) as usize,
        flush: millis(params.get(2)),
    }
}

block_scheme!(Xor);

impl BlockCode for Xor {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn accumulate(&self, _: usize, offset: usize, bytes: &[u8], parities: &mut [Vec<u8>]) {
        for parity in parities {
            add(&mut parity[offset..], bytes);
        }
    }

    fn reconstruct(&self, sources: &[Option<&[u8]>], parities: &[(u8, &[u8])]) -> Option<Vec<Vec<u8>>> {
        // fec.md R-13: one loss.
        let missing = sources.iter().filter(|s| s.is_none()).count();
        if missing > parities.len() || missing > 1 {
            return None;
        }
        let Some((_, parity)) = parities.first().filter(|_| missing == 1) else { return Some(Vec::new()) };
        let mut symbol = parity.to_vec();
        for payload in sources.iter().flatten() {
            let (length, rest) = symbol.split_at_mut(super::SYMBOL_PREFIX_BYTES);
            add(length, &prefix(payload));
            add(rest, payload);
        }
        Some(vec![symbol])
    }
}

fn add(sum: &mut [u8], bytes: &[u8]) {
    for (s, b) in sum.iter_mut().zip(bytes) {
        *s ^= b;
    }
}

/// Processing per source byte: two loads and a store per vector of 16 bytes, estimated.
const XOR_NS_PER_BYTE: f64 = 0.05;
