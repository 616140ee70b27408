//! The sender asks, and what the answer lacks is lost: at once, however little has overtaken it
//! (XTP's status; the answer to a blast).

use super::{Age, Alarm, Finding, Flight, Reported, Rule};
use crate::congestion::Cause;
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Need, Params, Unasked};

/// See the module's page.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The newest packet that an answer speaks of: older ones that it lacks are lost.
    answered: u64,
}

impl Status {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Finding,
        number: 3,
        name: "status",
        what: "what the answer to a poll lacks is lost",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[Need::Present(Function::Acknowledgement)],
        facts: Facts { uniform: true, unasked: Unasked::Never, ..Facts::PLAIN },
        predict: |_, _, p| p.cpu_ns += 5.0,
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        Status::default()
    }
}

impl Finding for Status {
    fn on_report(&mut self, report: &Reported) -> u64 {
        // finding.md R-13.
        if report.answers {
            self.answered = self.answered.max(report.newest.unwrap_or(0));
        }
        0
    }

    fn rule(&self, _: &Flight) -> Rule {
        Rule { below: self.answered, cause: Cause::Reported, within: 0, age: Age::Any }
    }

    fn alarm(&self) -> Alarm {
        // finding.md R-14.
        Alarm::Probe
    }
}
