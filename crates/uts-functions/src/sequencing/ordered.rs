//! Ordered: data is handed over in the order of its positions; what was given up by the sender is
//! passed over.

use super::reassembly::{Delivery, Reassembly};
use super::{Rows, Sequencing, predict_blocking};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Ordered;

impl Ordered {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Sequencing,
        number: 0,
        name: "ordered",
        what: "data is handed over in the order in which it was sent",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts { uniform: true, positions: true, promises: &[Promise::Order], ..Facts::PLAIN },
        // For about one recovery.
        predict: |_, facts, p| predict_blocking(facts, p, 2.0),
    };

    /// Builds it.
    pub fn build(_: &Params, _: ()) -> Self {
        Ordered
    }
}

impl Sequencing for Ordered {
    fn next(&mut self, state: &mut Reassembly, bytes_max: usize) -> Option<Delivery> {
        state.pop_front(bytes_max)
    }

    fn rows(&self) -> Rows {
        Rows::InOrder
    }
}
