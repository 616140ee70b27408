//! Ordered: data is handed over in the order of its positions; what was given up by the sender is
//! passed over.

use super::reassembly::{Delivery, Reassembly};
use super::{Rows, Sequencing};
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
        // What arrives behind a loss waits for its repair: head-of-line blocking for about one
        // recovery.
        predict: |_, facts, p| {
            let flight = (facts.bdp_bytes() / facts.mtu_bytes.max(1)).max(1) as f64;
            let blocked = (p.loss * flight).min(1.0);
            p.delay_s += blocked * facts.rtt_smoothed.as_secs_f64() / 2.0;
        },
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
