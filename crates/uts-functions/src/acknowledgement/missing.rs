//! The receiver speaks when something is missing, and else only if it is asked (negative
//! acknowledgement; RFC 5740, RFC 998).

use super::{Acknowledgement, Arrival, Arrivals, REPORT_NS};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unasked, Unit};
use crate::timing::RoundTrip;
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Missing {
    every: u32,
}

impl Missing {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Acknowledgement,
        number: 5,
        name: "missing",
        what: "the receiver reports when something is missing, and when the sender polls",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "every",
            unit: Unit::Packets,
            default: 256,
            min: 1,
            max: 1024,
            bold: Bold::Above,
            what: "how many packets the sender sends from poll to poll",
        }],
        needs: &[],
        facts: Facts { unasked: Unasked::Never, ..Facts::PLAIN },
        predict: |params, facts, p| {
            p.cpu_ns += REPORT_NS * (1.0 / f64::from(params.get(0).max(1)) + facts.loss).min(1.0);
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Missing { every: params.get(0) }
    }
}

impl Acknowledgement for Missing {
    fn on_arrival(&mut self, state: &mut Arrivals, arrival: &Arrival) {
        // acknowledgement.md R-18.
        if arrival.eliciting && (arrival.polled || state.leaves_gap(arrival.number)) {
            state.report_by(arrival.now);
        }
    }

    fn delay_max(&self, _: &RoundTrip) -> Duration {
        Duration::ZERO
    }

    fn poll(&self, unpolled: u32, last: bool) -> bool {
        last || unpolled.saturating_add(1) >= self.every
    }
}
