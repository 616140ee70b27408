//! No redundancy: what is lost is repeated, or missed.

use super::{Fec, Shape};
use crate::mechanism::{Consent, Mechanism, Params};
use crate::profile::Function;
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct None;

impl None {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Fec,
        number: 0,
        name: "none",
        what: "no redundancy",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        predict: |_, _, _| {},
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        None
    }
}

impl Fec for None {
    fn shape(&self) -> Shape {
        Shape { data: 0, parities: 0, interleave: 1, flush: Duration::ZERO }
    }

    fn accumulate(&self, _: usize, _: usize, _: &[u8], _: &mut [Vec<u8>]) {}

    fn reconstruct(&self, _: &[Option<&[u8]>], _: &[(u8, &[u8])]) -> Option<Vec<Vec<u8>>> {
        Option::None
    }
}
