//! Repeats of lost data for so long after it was first sent; then it is given up (SCTP's partial
//! reliability, RFC 3758 section 4.1).

use super::{LostData, Response, Retransmission};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unasked, Unit, millis};
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct DeadlineLimited {
    deadline: Duration,
}

impl DeadlineLimited {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Retransmission,
        number: 6,
        name: "deadline-limited",
        what: "what is lost is sent again for so long, and then given up",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "deadline",
            unit: Unit::Millis,
            default: 200,
            min: 1,
            max: 600_000,
            bold: Bold::Neither,
            what: "how long after it was first sent data is sent again",
        }],
        needs: &[],
        facts: Facts { promises: &[], unasked: Unasked::Never, ..super::REPEATS },
        predict: |params, facts, p| {
            let rtt_s = facts.rtt_smoothed.max(facts.rtt_min).as_secs_f64().max(1e-4);
            // A loss shows a round trip after it was sent, or a little later.
            let repeats = (millis(params.get(0)).as_secs_f64() / (1.25 * rtt_s)).floor().min(64.0);
            let left = p.loss.clamp(0.0, 1.0).powf(repeats + 1.0);
            super::predict_repeats(facts, p);
            p.loss = left;
            p.cpu_ns += 10.0;
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        DeadlineLimited { deadline: millis(params.get(0)) }
    }
}

impl Retransmission for DeadlineLimited {
    fn counts(&self) -> bool {
        true
    }

    fn on_lost(&mut self, lost: &LostData) -> Response {
        // retransmission.md R-22.
        if lost.age < self.deadline {
            Response::Repeat(lost.range.clone())
        } else {
            Response::Abandon(lost.range.clone())
        }
    }
}
