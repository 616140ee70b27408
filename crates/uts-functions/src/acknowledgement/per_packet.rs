//! Every packet that asks for it is reported at once: the earliest news, at one report per packet.

use super::{Acknowledgement, Arrival, Arrivals, REPORT_NS};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise, Unasked};
use crate::timing::RoundTrip;
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct PerPacket;

impl PerPacket {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Acknowledgement,
        number: 0,
        name: "per-packet",
        what: "every packet is reported at once",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Reports, Promise::ReportsSoon],
            unasked: Unasked::Choice(2),
            ..Facts::PLAIN
        },
        predict: |_, _, p| p.cpu_ns += REPORT_NS,
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        PerPacket
    }
}

impl Acknowledgement for PerPacket {
    fn on_arrival(&mut self, state: &mut Arrivals, arrival: &Arrival) {
        // acknowledgement.md.
        if arrival.eliciting {
            state.report_by(arrival.now);
        }
    }

    fn delay_max(&self, _: &RoundTrip) -> Duration {
        Duration::ZERO
    }

    fn poll(&self, _: u32, _: bool) -> bool {
        false
    }
}
