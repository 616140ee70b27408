//! Selective repeat: what was lost is sent again, and nothing else.

use super::{LostData, Response, Retransmission};
use crate::function::Function;
use crate::mechanism::{Consent, Mechanism, Params};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Selective;

impl Selective {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Retransmission,
        number: 2,
        name: "selective",
        what: "what was lost is sent again, and nothing else",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: super::REPEATS,
        predict: |_, facts, p| {
            super::predict_repeats(facts, p);
            p.cpu_ns += 10.0;
        },
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        Selective
    }
}

impl Retransmission for Selective {
    fn on_lost(&mut self, lost: &LostData) -> Response {
        // retransmission.md R-8.
        Response::Repeat(lost.range.clone())
    }
}
