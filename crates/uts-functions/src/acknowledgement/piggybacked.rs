//! A report goes with the answer, if that comes soon: a lone packet waits for a part of the round
//! trip, and everything else is reported at once (RFC 1122 section 4.2.3.2).

use super::{Acknowledgement, Arrival, Arrivals, REPORT_NS, WAIT_MIN};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Promise, Unasked, Unit, millis};
use crate::timing::RoundTrip;
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Piggybacked {
    part: u32,
    /// In milliseconds, which takes less than a duration.
    delay_ms: u32,
}

impl Piggybacked {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Acknowledgement,
        number: 7,
        name: "piggybacked",
        what: "a lone packet waits for a part of the round trip, so that its report goes with the answer",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[
            Param {
                name: "part",
                unit: Unit::Count,
                default: 8,
                min: 2,
                max: 256,
                bold: Bold::Neither,
                what: "the part of the shortest round trip that a packet waits: 8 = an eighth",
            },
            Param {
                name: "delay",
                unit: Unit::Millis,
                default: 25,
                min: 1,
                max: 1000,
                bold: Bold::Above,
                what: "how long it waits at most",
            },
        ],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Reports, Promise::ReportsSoon],
            unasked: Unasked::Choice(1),
            ..Facts::PLAIN
        },
        predict: |_, facts, p| p.cpu_ns += REPORT_NS * (0.5 + facts.loss).min(1.0),
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Piggybacked { part: params.get(0).max(1), delay_ms: params.get(1) }
    }

    fn wait(&self, round_trip: Duration) -> Duration {
        let wait = (round_trip / self.part).min(millis(self.delay_ms));
        if wait < WAIT_MIN { Duration::ZERO } else { wait }
    }
}

impl Acknowledgement for Piggybacked {
    fn on_arrival(&mut self, state: &mut Arrivals, arrival: &Arrival) {
        // acknowledgement.md R-2.
        if !arrival.eliciting {
            return;
        }
        // acknowledgement.md R-21.
        let is_urgent = arrival.polled || arrival.marked || state.is_out_of_order(arrival.number);
        if is_urgent || state.unreported > 0 {
            state.report_by(arrival.now);
        } else {
            state.report_by(arrival.now + self.wait(state.round_trip()));
        }
    }

    fn delay_max(&self, rtt: &RoundTrip) -> Duration {
        self.wait(rtt.smoothed)
    }

    fn poll(&self, _: u32, _: bool) -> bool {
        false
    }
}
