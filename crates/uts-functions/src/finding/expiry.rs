//! A timer for each packet: what is not acknowledged within its time-out is lost, and nothing else
//! shows a loss (the Rx protocol; RFC 793 section 3.7).

use super::{Age, Alarm, Finding, Flight, Rule};
use crate::congestion::Cause;
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unasked, Unit};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Expiry {
    frozen: bool,
    backs_off: bool,
}

impl Expiry {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Finding,
        number: 2,
        name: "expiry",
        what: "a packet that is not acknowledged within its own time-out is lost",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[
            Param {
                name: "frozen",
                unit: Unit::Count,
                default: 0,
                min: 0,
                max: 1,
                bold: Bold::Neither,
                what: "0 = the time-out is the one at present; 1 = the one when the packet left",
            },
            Param {
                name: "back-off",
                unit: Unit::Count,
                default: 1,
                min: 0,
                max: 1,
                bold: Bold::Below,
                what: "1 = it doubles with each time-out in a row before the packet left",
            },
        ],
        needs: &[],
        facts: Facts { uniform: true, unasked: Unasked::Never, ..Facts::PLAIN },
        predict: |_, facts, p| {
            // A loss is found after a time-out instead of a round trip.
            let late_s = (facts.rtt_deviation * 4).as_secs_f64();
            p.delay_s += p.loss * late_s;
            p.delay_p99_s += late_s;
            p.cpu_ns += 5.0;
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Expiry { frozen: params.get(0) == 1, backs_off: params.get(1) == 1 }
    }
}

impl Finding for Expiry {
    fn backs_off(&self) -> bool {
        self.backs_off
    }

    fn rule(&self, flight: &Flight) -> Rule {
        // finding.md.
        let age = Age::TimeOut { now: flight.timeout, frozen: self.frozen, backs_off: self.backs_off };
        Rule { below: 0, cause: Cause::Expired, within: u64::MAX, age }
    }

    fn alarm(&self) -> Alarm {
        Alarm::Each
    }
}
