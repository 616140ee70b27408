//! The sender asks, the receiver answers: reports cost nothing unless wanted (XTP; Delta-t; the
//! Blast paper's block acknowledgement).

use super::{Acknowledgement, Arrival, Arrivals, REPORT_NS};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unasked, Unit};
use crate::timing::RoundTrip;
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct PollStatus {
    every: u32,
    in_bursts: bool,
}

impl PollStatus {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Acknowledgement,
        number: 2,
        name: "poll-status",
        what: "the receiver reports when the sender polls",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[
            Param {
                name: "every",
                unit: Unit::Packets,
                default: 32,
                min: 1,
                max: 1024,
                bold: Bold::Above,
                what: "how many packets the sender sends from poll to poll",
            },
            Param {
                name: "bursts",
                unit: Unit::Count,
                default: 1,
                min: 0,
                max: 1,
                bold: Bold::Neither,
                what: "1 = the last packet of a burst polls, too; 0 = only the last of all that was written (Rx)",
            },
        ],
        needs: &[],
        facts: Facts { unasked: Unasked::Choice(2), ..Facts::PLAIN },
        predict: |params, facts, p| {
            let every = params.get(0).max(1);
            p.cpu_ns += REPORT_NS / f64::from(every);
            // A loss is learnt of only with the next poll.
            let wait_s = f64::from(every) * facts.packet_time().as_secs_f64();
            p.delay_s += facts.loss * wait_s / 2.0;
            if facts.loss > 0.01 {
                p.delay_p99_s += wait_s;
            }
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        PollStatus { every: params.get(0), in_bursts: params.get(1) == 1 }
    }
}

impl Acknowledgement for PollStatus {
    fn on_arrival(&mut self, state: &mut Arrivals, arrival: &Arrival) {
        // acknowledgement.md R-10.
        if arrival.eliciting && arrival.polled {
            state.report_by(arrival.now);
        }
    }

    fn delay_max(&self, _: &RoundTrip) -> Duration {
        Duration::ZERO
    }

    fn polls_in_bursts(&self) -> bool {
        self.in_bursts
    }

    fn poll(&self, unpolled: u32, last: bool) -> bool {
        // acknowledgement.md R-11: `unpolled` does not count the packet about to be sent.
        last || unpolled.saturating_add(1) >= self.every
    }
}
