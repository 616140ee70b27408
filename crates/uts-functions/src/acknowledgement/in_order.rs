//! Cumulative: a packet is reported when all data of its flows up to it is there, and each packet
//! behind a gap brings the same report again (RFC 793 section 3.7, RFC 5681 section 4.2).

use super::delayed::Delayed;
use super::{Acknowledgement, Arrival, Arrivals};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise, Unasked};
use crate::timing::RoundTrip;
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct InOrder(Delayed);

impl InOrder {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Acknowledgement,
        number: 4,
        name: "in-order",
        what: "packets are reported when all data up to them is there; behind a gap the report is repeated",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: Delayed::INFO.params,
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Reports],
            unasked: Unasked::Never,
            ..Facts::PLAIN
        },
        predict: |params, facts, p| {
            (Delayed::INFO.predict)(params, facts, p);
            // Of what is lost together, one is found in a round trip.
            p.delay_p99_s += p.loss * facts.bdp_packets().min(32.0) * facts.rtt_smoothed.as_secs_f64();
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        InOrder(Delayed::build(params, ()))
    }
}

impl Acknowledgement for InOrder {
    fn on_arrival(&mut self, state: &mut Arrivals, arrival: &Arrival) {
        // acknowledgement.md R-17.
        if arrival.eliciting && state.holds_back() {
            state.report_by(arrival.now);
        }
        self.0.on_arrival(state, arrival);
    }

    fn delay_max(&self, rtt: &RoundTrip) -> Duration {
        self.0.delay_max(rtt)
    }

    fn poll(&self, _: u32, _: bool) -> bool {
        false
    }

    fn is_cumulative(&self) -> bool {
        true
    }
}
