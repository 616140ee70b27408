//! Unordered: each message (or each run of bytes, with its offset) is handed over as soon as it is
//! whole.

use super::reassembly::{Delivery, Reassembly};
use super::{Rows, Sequencing};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Unasked};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Unordered;

impl Unordered {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Sequencing,
        number: 1,
        name: "unordered",
        what: "each message is handed over as soon as it is whole",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts { uniform: true, unasked: Unasked::Choice(1), ..Facts::PLAIN },
        predict: |_, _, _| {},
    };

    /// Builds it.
    pub fn build(_: &Params, _: ()) -> Self {
        Unordered
    }
}

impl Sequencing for Unordered {
    fn next(&mut self, state: &mut Reassembly, bytes_max: usize) -> Option<Delivery> {
        state.pop_any(bytes_max)
    }

    fn rows(&self) -> Rows {
        Rows::AnyOrder
    }
}
