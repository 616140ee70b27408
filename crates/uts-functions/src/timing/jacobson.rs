//! Jacobson's estimator: the time-out follows the mean of the round trip and its deviation (V.
//! Jacobson, "Congestion Avoidance and Control", SIGCOMM 1988; RFC 6298; RFC 9002 sections 5.3,
//! 6.1.2 and 6.2.1). As every sample names its transmission, repeats are measured too, unless
//! Karn's rule is asked for (P. Karn and C. Partridge, SIGCOMM 1987).

use super::{GRANULARITY, RoundTrip, Timing};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unit};
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Jacobson {
    deviations: u8,
    measures_repeats: bool,
    /// In microseconds, which takes less than a duration.
    floor_us: u32,
}

impl Jacobson {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Timing,
        number: 1,
        name: "jacobson",
        what: "time-outs from the smoothed round trip and its deviation",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[
            Param {
                name: "k",
                unit: Unit::Count,
                default: 4,
                min: 1,
                max: 8,
                bold: Bold::Below,
                what: "deviations beyond the smoothed round trip (Rx: 1, 2)",
            },
            Param {
                name: "repeats",
                unit: Unit::Count,
                default: 1,
                min: 0,
                max: 1,
                bold: Bold::Neither,
                what: "1 = packets with repeated data are measured; 0 = they are not (Karn)",
            },
            Param {
                name: "floor",
                unit: Unit::Micros,
                default: 1000,
                min: 10,
                max: 10_000_000,
                bold: Bold::Below,
                what: "the shortest time-out, with what the peer may hold its report back (TCP: 200 ms, 1 s)",
            },
        ],
        needs: &[],
        facts: Facts { uniform: true, ..Facts::PLAIN },
        predict: |_, _, p| p.cpu_ns += 5.0,
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Jacobson {
            deviations: params.get(0).min(u8::MAX.into()) as u8,
            measures_repeats: params.get(1) == 1,
            floor_us: params.get(2),
        }
    }

    fn floor(&self) -> Duration {
        Duration::from_micros(self.floor_us.into())
    }

    /// Granularity of waits: a shorter time counts as none.
    fn least(&self) -> Duration {
        self.floor().min(GRANULARITY)
    }
}

impl Timing for Jacobson {
    fn on_sample(&mut self, state: &mut RoundTrip, sample: Duration) {
        state.smooth(sample);
    }

    fn measures_repeats(&self) -> bool {
        // timing.md R-19.
        self.measures_repeats
    }

    fn timeout(&self, state: &RoundTrip) -> Duration {
        self.timeout_with(state, Duration::ZERO)
    }

    fn timeout_with(&self, state: &RoundTrip, report_delay: Duration) -> Duration {
        // timing.md R-7 (RFC 9002 section 6.2.1).
        let beyond = state.deviation.saturating_mul(self.deviations.into()).max(self.least());
        state.smoothed.saturating_add(beyond).saturating_add(report_delay).max(self.floor())
    }

    fn loss_delay(&self, state: &RoundTrip) -> Duration {
        // timing.md R-8 (RFC 9002 section 6.1.2).
        let rtt = state.smoothed.max(state.latest);
        rtt.saturating_add(rtt / 8).max(self.least())
    }
}
