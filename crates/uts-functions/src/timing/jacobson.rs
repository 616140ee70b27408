//! Jacobson's estimator: the time-out follows the mean of the round trip and its deviation (V.
//! Jacobson, "Congestion Avoidance and Control", SIGCOMM 1988; RFC 6298; RFC 9002 sections 5.3,
//! 6.1.2 and 6.2.1). As every sample names its transmission, repeats are measured too and there is
//! no Karn's rule.

use super::{GRANULARITY, RoundTrip, Timing};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params};
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Jacobson;

impl Jacobson {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Timing,
        number: 1,
        name: "jacobson",
        what: "time-outs from the smoothed round trip and its deviation",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts { uniform: true, ..Facts::PLAIN },
        predict: |_, _, p| p.cpu_ns += 5.0,
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        Jacobson
    }
}

impl Timing for Jacobson {
    fn on_sample(&mut self, state: &mut RoundTrip, sample: Duration) {
        state.smooth(sample);
    }

    fn timeout(&self, state: &RoundTrip) -> Duration {
        // timing.md R-7 (RFC 9002 section 6.2.1).
        state.smoothed.saturating_add(state.deviation.saturating_mul(4).max(GRANULARITY))
    }

    fn loss_delay(&self, state: &RoundTrip) -> Duration {
        // timing.md R-8 (RFC 9002 section 6.1.2).
        let rtt = state.smoothed.max(state.latest);
        rtt.saturating_add(rtt / 8).max(GRANULARITY)
    }
}
