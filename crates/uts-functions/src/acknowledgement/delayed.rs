//! One report for several packets, at the latest after a delay; at once for what the sender should
//! know (RFC 9000 section 13.2).

use super::{Acknowledgement, Arrival, Arrivals, REPORT_NS, WAIT_MIN};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Promise, Unit, millis};
use crate::time::Time;
use crate::timing::RoundTrip;
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Delayed {
    packets: u16,
    /// In milliseconds, which takes less than a duration.
    delay_ms: u16,
}

impl Delayed {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Acknowledgement,
        number: 1,
        name: "delayed",
        what: "one report for several packets, or after a delay; gaps and marks at once",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[
            Param {
                name: "packets",
                unit: Unit::Packets,
                default: 2,
                min: 1,
                max: 256,
                bold: Bold::Above,
                what: "how many packets one report covers",
            },
            Param {
                name: "delay",
                unit: Unit::Millis,
                default: 25,
                min: 1,
                max: 1000,
                bold: Bold::Above,
                what: "how long a packet waits for its report at most",
            },
        ],
        needs: &[],
        facts: Facts { uniform: true, promises: &[Promise::Reports], ..Facts::PLAIN },
        predict: |params, facts, p| {
            // Around a loss packets are reported singly.
            let packets = f64::from(params.get(0).max(1));
            p.cpu_ns += REPORT_NS * (1.0 / packets + facts.loss).min(1.0);
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Delayed { packets: params.get(0) as u16, delay_ms: params.get(1) as u16 }
    }
}

/// Factor by which urgent arrivals are reported more often.
const URGENT_FACTOR: u32 = 4;

impl Delayed {
    fn delay(&self) -> Duration {
        millis(self.delay_ms.into())
    }

    /// When the next report may leave, if they are to be so far apart (acknowledgement.md R-14).
    fn next_after(&self, state: &Arrivals, apart_us: u32) -> Time {
        let apart = Duration::from_micros(apart_us.into()).min(self.delay());
        if apart < WAIT_MIN { state.reported_at } else { state.reported_at + apart }
    }
}

impl Acknowledgement for Delayed {
    fn on_arrival(&mut self, state: &mut Arrivals, arrival: &Arrival) {
        // acknowledgement.md R-2.
        if !arrival.eliciting {
            return;
        }
        // acknowledgement.md.
        let enough = state.unreported.saturating_add(1) >= self.packets.into();
        let urgent = arrival.marked || state.is_out_of_order(arrival.number);
        if arrival.polled {
            state.report_by(arrival.now);
        } else if urgent {
            state.report_by(arrival.now.max(self.next_after(state, state.apart_us / URGENT_FACTOR)));
        } else if enough {
            state.report_by(arrival.now.max(self.next_after(state, state.apart_us)));
        } else {
            // acknowledgement.md R-9: the delay runs from the first packet that is unreported.
            state.report_by(state.unreported_since.unwrap_or(arrival.now) + self.delay());
        }
    }

    fn delay_max(&self, _: &RoundTrip) -> Duration {
        self.delay()
    }

    fn poll(&self, _: u32, _: bool) -> bool {
        false
    }
}
