//! Cumulative: a packet is reported when all data of its flows up to it is there, and each packet
//! behind a gap brings the same report again (RFC 793 section 3.7, RFC 5681 section 4.2).

use super::delayed::Delayed;
use super::{Acknowledgement, Arrival, Arrivals, HELD_MAX};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Promise, Unasked, Unit};
use crate::timing::RoundTrip;
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct InOrder {
    reports: Delayed,
    /// At most [`HELD_MAX`].
    keeps: u16,
    /// Bytes of the receive buffer that a packet takes; 0 = they are not counted.
    charge_bytes: u16,
}

impl InOrder {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Acknowledgement,
        number: 4,
        name: "in-order",
        what: "packets are reported when all data up to them is there; behind a gap the report is repeated",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[
            Delayed::INFO.params[0],
            Delayed::INFO.params[1],
            Param {
                name: "keep",
                unit: Unit::Packets,
                default: HELD_MAX as u32,
                min: 0,
                max: HELD_MAX as u32,
                bold: Bold::Below,
                what: "packets behind a gap that the receiver keeps; one more, and it gives all of them up",
            },
            Param {
                name: "charge",
                unit: Unit::Bytes,
                default: 0,
                min: 0,
                max: 65_535,
                bold: Bold::Above,
                what: "what each of them takes of a buffer of two windows, which keeps no more (0 = they are not counted so)",
            },
        ],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Reports],
            unasked: Unasked::Never,
            ..Facts::PLAIN
        },
        predict: |params, facts, p| {
            (Delayed::INFO.predict)(params, facts, p);
            // What was behind a gap, and is given up, is sent again.
            let behind = facts.bdp_packets().max(1.0);
            if f64::from(params.get(2)) < behind {
                p.expansion *= 1.0 + p.loss * (behind - 1.0);
            }
            // Of what is lost together, one is found in a round trip.
            p.delay_p99_s += p.loss * facts.bdp_packets().min(32.0) * facts.rtt_smoothed.as_secs_f64();
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        let (keeps, charge_bytes) = (params.get(2) as u16, params.get(3) as u16);
        InOrder { reports: Delayed::build(params, ()), keeps, charge_bytes }
    }
}

impl Acknowledgement for InOrder {
    fn on_arrival(&mut self, state: &mut Arrivals, arrival: &Arrival) {
        // acknowledgement.md R-17.
        if arrival.eliciting && state.holds_back() {
            state.report_by(arrival.now);
        }
        self.reports.on_arrival(state, arrival);
    }

    fn delay_max(&self, rtt: &RoundTrip) -> Duration {
        self.reports.delay_max(rtt)
    }

    fn poll(&self, _: u32, _: bool) -> bool {
        false
    }

    fn is_cumulative(&self) -> bool {
        true
    }

    fn keeps(&self, window_bytes: u64) -> usize {
        // acknowledgement.md R-22.
        let buffer_bytes = window_bytes.saturating_mul(2);
        let within = buffer_bytes.checked_div(self.charge_bytes.into()).unwrap_or(u64::MAX);
        within.min(self.keeps.into()) as usize
    }
}
