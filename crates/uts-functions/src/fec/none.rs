//! No redundancy: what is lost is repeated, or missed.

use super::Shape;
use super::block::{BlockCode, block_scheme};
use crate::macros::inert;
use core::time::Duration;

inert!(Fec, "no redundancy", context: ());

block_scheme!(None);

impl BlockCode for None {
    fn shape(&self) -> Shape {
        Shape { data: 0, parities: 0, slack: 0, interleave: 1, flush: Duration::ZERO }
    }

    fn accumulate(&self, _: usize, _: usize, _: &[u8], _: &mut [Vec<u8>]) {}

    fn reconstruct(&self, _: &[Option<&[u8]>], _: &[(u8, &[u8])]) -> Option<Vec<Vec<u8>>> {
        Option::None
    }
}
