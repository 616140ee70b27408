//! Reports as often as packets call for: a report for each stretch of time, which is more packets
//! the faster they come (TACK, SIGCOMM 2020; draft-ietf-quic-ack-frequency).

use super::{Acknowledgement, Arrival, Arrivals, REPORT_NS};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Promise, Unasked, Unit, millis};
use crate::timing::RoundTrip;
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Adaptive {
    /// In milliseconds, which takes less than a duration.
    interval_ms: u32,
    packets_max: u32,
}

/// A report covers so many packets at least: a sender needs its clock.
const PACKETS_MIN: u32 = 2;

impl Adaptive {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Acknowledgement,
        number: 6,
        name: "adaptive",
        what: "a report for each stretch of time, of as many packets as come in it; gaps and marks at once",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[
            Param {
                name: "interval",
                unit: Unit::Millis,
                default: 10,
                min: 1,
                max: 1000,
                bold: Bold::Above,
                what: "the time for which one report is meant",
            },
            Param {
                name: "packets",
                unit: Unit::Packets,
                default: 64,
                min: 2,
                max: 256,
                bold: Bold::Above,
                what: "how many packets one report covers at the most",
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
            let packet_s = facts.packet_time().as_secs_f64().max(1e-9);
            let packets = millis(params.get(0)).as_secs_f64() / packet_s;
            let packets = packets.clamp(f64::from(PACKETS_MIN), f64::from(params.get(1).max(PACKETS_MIN)));
            p.cpu_ns += REPORT_NS * (1.0 / packets + facts.loss).min(1.0);
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Adaptive { interval_ms: params.get(0), packets_max: params.get(1) }
    }

    /// Number of packets that come in the interval, at the pace of late.
    fn packets(&self, state: &Arrivals) -> u32 {
        let in_interval = millis(self.interval_ms).as_nanos() / state.gap().as_nanos().max(1);
        u32::try_from(in_interval).unwrap_or(u32::MAX).clamp(PACKETS_MIN, self.packets_max)
    }
}

impl Acknowledgement for Adaptive {
    fn on_arrival(&mut self, state: &mut Arrivals, arrival: &Arrival) {
        if !arrival.eliciting {
            return;
        }
        // acknowledgement.md R-19.
        let is_urgent = arrival.polled || arrival.marked || state.is_out_of_order(arrival.number);
        if is_urgent || state.unreported.saturating_add(1) >= self.packets(state) {
            state.report_by(arrival.now);
        } else {
            state.report_by(state.unreported_since.unwrap_or(arrival.now) + millis(self.interval_ms));
        }
    }

    fn delay_max(&self, _: &RoundTrip) -> Duration {
        millis(self.interval_ms)
    }

    fn poll(&self, _: u32, _: bool) -> bool {
        false
    }
}
