//! A fixed time-out: for paths whose round trip is known beforehand, and for comparison.

use super::{RoundTrip, Timing};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unasked, Unit, millis};
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Fixed {
    timeout: Duration,
}

impl Fixed {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Timing,
        number: 0,
        name: "fixed",
        what: "a time-out that does not follow the path",
        mandatory: true,
        consent: Consent::OfSender,
        params: &[
            Param {
                name: "timeout",
                unit: Unit::Millis,
                default: 1000,
                min: 0,
                max: 60_000,
                bold: Bold::Below,
                what: "how long to wait for an acknowledgement",
            },
            Param {
                name: "micros",
                unit: Unit::Micros,
                default: 0,
                min: 0,
                max: 999,
                bold: Bold::Neither,
                what: "what is added to that (both 0 = 10 us)",
            },
        ],
        needs: &[],
        facts: Facts { uniform: true, unasked: Unasked::Choice(1), ..Facts::PLAIN },
        predict: |params, facts, p| {
            let timeout_s = timeout(params).as_secs_f64();
            let rtt_s = facts.rtt_smoothed.as_secs_f64();
            // Too short: each time-out within a round trip sends a probe for nothing.
            if timeout_s < rtt_s {
                p.expansion += rtt_s / timeout_s / facts.bdp_packets().max(1.0);
            }
            // Too long: what is lost at the end of a burst waits for the timer.
            if facts.loss > 0.01 {
                p.delay_p99_s += (timeout_s - 1.5 * rtt_s).max(0.0);
            }
            p.cpu_ns += 5.0;
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Fixed { timeout: timeout(params) }
    }
}

/// No time-out is shorter: the sender would do nothing but repeat.
const TIMEOUT_MIN: Duration = Duration::from_micros(10);

fn timeout(params: &Params) -> Duration {
    (millis(params.get(0)) + Duration::from_micros(params.get(1).into())).max(TIMEOUT_MIN)
}

impl Timing for Fixed {
    fn on_sample(&mut self, state: &mut RoundTrip, sample: Duration) {
        // timing.md R-5: what the path teaches is kept for others and for a successor.
        state.smooth(sample);
    }

    fn timeout(&self, _: &RoundTrip) -> Duration {
        self.timeout
    }

    fn loss_delay(&self, _: &RoundTrip) -> Duration {
        // timing.md R-6: without an estimate, nothing counts as lost by time before its time-out.
        self.timeout
    }
}
