//! One report for so many packets, however long they take. The sender asks with its last packet, so
//! that the rest is reported, too.

use super::{Acknowledgement, Arrival, Arrivals, REPORT_NS};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unasked, Unit};
use crate::timing::RoundTrip;
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Every {
    packets: u32,
}

impl Every {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Acknowledgement,
        number: 3,
        name: "every",
        what: "one report for so many packets, and when the sender polls",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "packets",
            unit: Unit::Packets,
            default: 4,
            min: 1,
            max: 256,
            bold: Bold::Above,
            what: "how many packets one report covers",
        }],
        needs: &[],
        facts: Facts { unasked: Unasked::Never, ..Facts::PLAIN },
        predict: |params, facts, p| {
            let packets = f64::from(params.get(0).max(1));
            p.cpu_ns += REPORT_NS / packets;
            // A loss shows with the next report.
            p.delay_s += facts.loss * packets * facts.packet_time().as_secs_f64() / 2.0;
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Every { packets: params.get(0) }
    }
}

impl Acknowledgement for Every {
    fn on_arrival(&mut self, state: &mut Arrivals, arrival: &Arrival) {
        // acknowledgement.md R-15.
        let is_enough = state.unreported.saturating_add(1) >= self.packets;
        if arrival.eliciting && (arrival.polled || is_enough) {
            state.report_by(arrival.now);
        }
    }

    fn delay_max(&self, _: &RoundTrip) -> Duration {
        Duration::ZERO
    }

    fn poll(&self, _: u32, last: bool) -> bool {
        last
    }
}
