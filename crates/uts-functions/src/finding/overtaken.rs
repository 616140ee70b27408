//! Later packets were acknowledged: a packet is lost if three have overtaken it, or if it is older
//! than a round trip then. Both thresholds widen where the path reorders. What nothing overtakes is
//! probed after a time-out (RFC 9002 section 6; RFC 8985, RACK-TLP).

use super::{Age, Alarm, Finding, Flight, Rule};
use crate::congestion::Cause;
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params};
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Overtaken;

impl Overtaken {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Finding,
        number: 0,
        name: "overtaken",
        what: "what later packets overtake is lost; what is last is probed",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts { uniform: true, ..Facts::PLAIN },
        predict: |_, _, p| p.cpu_ns += 5.0,
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        Overtaken
    }
}

impl Finding for Overtaken {
    fn rule(&self, flight: &Flight) -> Rule {
        let Some(largest) = flight.largest_acked else { return Rule::NOTHING };
        // finding.md.
        let age = flight.loss_delay + Duration::from_micros(flight.reordering.extra_us.into());
        Rule {
            below: largest.saturating_add(1).saturating_sub(flight.reordering.packets.into()),
            cause: Cause::Overtaken,
            within: largest,
            age: Age::Of(age.min(flight.loss_delay.max(flight.patience))),
        }
    }

    fn alarm(&self) -> Alarm {
        // finding.md R-6.
        Alarm::Probe
    }
}
