//! Repeats of lost data, so many times and no more (SCTP's partial reliability, RFC 7496 section
//! 3.2).

use super::{LostData, Response, Retransmission};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unasked, Unit};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct CountLimited {
    tries: u32,
}

impl CountLimited {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Retransmission,
        number: 5,
        name: "count-limited",
        what: "what is lost is sent again so many times, and then given up",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "tries",
            unit: Unit::Count,
            default: 3,
            min: 1,
            max: 255,
            bold: Bold::Neither,
            what: "how often the same data may be lost before it is given up",
        }],
        needs: &[],
        facts: Facts { promises: &[], unasked: Unasked::Never, ..super::REPEATS },
        predict: |params, facts, p| {
            let repeats = f64::from(params.get(0).max(1)) - 1.0;
            let left = p.loss.clamp(0.0, 1.0).powf(repeats + 1.0);
            super::predict_repeats(facts, p);
            p.loss = left;
            p.cpu_ns += 10.0;
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        CountLimited { tries: params.get(0) }
    }
}

impl Retransmission for CountLimited {
    fn counts(&self) -> bool {
        true
    }

    fn on_lost(&mut self, lost: &LostData) -> Response {
        // retransmission.md R-21.
        if lost.losses < self.tries {
            Response::Repeat(lost.range.clone())
        } else {
            Response::Abandon(lost.range.clone())
        }
    }
}
