//! A fixed playout delay: each message is handed over so long after it was made, beyond the
//! quickest way (SRT's TSBPD, draft-sharabayko-srt section 4.5).

use super::{DELAY_MAX_MS, Playout, Spread, predict_held};
use crate::function::Function;
use crate::mechanism::{
    Bold, Consent, Facts, Mechanism, Need, Param, Params, Promise, Unasked, Unit, millis,
};
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Fixed {
    delay: Duration,
    keeps_late: bool,
}

/// The parameter of messages that come too late, for both mechanisms.
pub(super) const LATE: Param = Param {
    name: "late",
    unit: Unit::Count,
    default: 0,
    min: 0,
    max: 1,
    bold: Bold::Neither,
    what: "1: what comes too late is handed over at once; 0: it is dropped",
};

impl Fixed {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Playout,
        number: 1,
        name: "fixed",
        what: "each message is handed over a fixed time after it was made",
        mandatory: false,
        consent: Consent::OfReceiver,
        params: &[
            Param {
                name: "delay",
                unit: Unit::Millis,
                default: 120,
                min: 1,
                max: DELAY_MAX_MS,
                bold: Bold::Neither,
                what: "how long after it was made a message is handed over, beyond the quickest way",
            },
            LATE,
        ],
        needs: &[Need::Promise(Function::Segmentation, Promise::Boundaries)],
        facts: Facts {
            positions: true,
            times: true,
            passes_over: true,
            unasked: Unasked::Choice(1),
            within: Some(within),
            ..Facts::PLAIN
        },
        predict: |params, _, p| {
            let delay = millis(params.get(0));
            predict_held(delay, delay, params.get(1) == 1, p);
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Fixed { delay: millis(params.get(0)), keeps_late: params.get(1) == 1 }
    }
}

/// The parameters for a delay of so long.
fn within(delay: Duration, keeps_late: bool) -> Params {
    let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    Fixed::INFO.params_within(&[("delay", millis), ("late", keeps_late.into())])
}

impl Playout for Fixed {
    // playout.md R-8
    fn delay(&self, _: &Spread) -> Option<Duration> {
        Some(self.delay)
    }

    fn keeps_late(&self) -> bool {
        self.keeps_late
    }
}
