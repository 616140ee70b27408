//! An adaptive playout delay: as short as lets a given share of the messages come in time, by the
//! delays that the last of them met (S. B. Moon, J. Kurose, D. Towsley, "Packet audio playout delay
//! adjustment: performance bounds and algorithms", 1998), and by their jitter (RFC 3550 section
//! 6.4.1) on top of that. While little is known it is four times the jitter (R. Ramjee et al.,
//! "Adaptive playout mechanisms for packetized audio applications in wide-area networks", 1994).

use super::fixed::LATE;
use super::{DELAY_MAX_MS, Playout, Spread, predict_held};
use crate::facts::PathFacts;
use crate::function::Function;
use crate::mechanism::{
    Bold, Consent, Facts, Mechanism, Need, Param, Params, Promise, Unasked, Unit, millis,
};
use core::time::Duration;

/// Messages that have to have come for the delay to be read off theirs.
const MESSAGES_MIN: usize = 32;

/// Until then, so many times the jitter (Ramjee et al., algorithm 1).
const JITTERS: u32 = 4;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Adaptive {
    min: Duration,
    max: Duration,
    share: f64,
    keeps_late: bool,
}

impl Adaptive {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Playout,
        number: 2,
        name: "adaptive",
        what: "each message is handed over as soon as lets nearly all come in time",
        mandatory: false,
        consent: Consent::OfReceiver,
        params: &[
            Param {
                name: "min",
                unit: Unit::Millis,
                default: 1,
                min: 0,
                max: DELAY_MAX_MS,
                bold: Bold::Neither,
                what: "the shortest delay beyond the quickest way",
            },
            Param {
                name: "max",
                unit: Unit::Millis,
                default: 1000,
                min: 1,
                max: DELAY_MAX_MS,
                bold: Bold::Neither,
                what: "the longest",
            },
            Param {
                name: "share",
                unit: Unit::PerMille,
                default: 990,
                min: 500,
                max: 1000,
                bold: Bold::Neither,
                what: "how many of the messages are to come in time",
            },
            LATE,
        ],
        needs: &[Need::Promise(Function::Segmentation, Promise::Boundaries)],
        facts: Facts {
            positions: true,
            times: true,
            passes_over: true,
            follows_jitter: true,
            unasked: Unasked::Choice(2),
            within: Some(within),
            ..Facts::PLAIN
        },
        predict: |params, facts, p| {
            let longest = millis(params.get(1)).max(millis(params.get(0)));
            predict_held(guess(params, facts), longest, params.get(3) == 1, p);
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        let (min, max) = (millis(params.get(0)), millis(params.get(1)));
        let share = f64::from(params.get(2)) / 1000.0;
        Adaptive { min: min.min(max), max, share, keeps_late: params.get(3) == 1 }
    }
}

/// The delay on a path of which only the round trip's deviation is known.
fn guess(params: &Params, facts: &PathFacts) -> Duration {
    let (min, max) = (millis(params.get(0)), millis(params.get(1)));
    (facts.rtt_deviation * JITTERS).clamp(min.min(max), max)
}

/// The parameters for a delay of so long at the most.
fn within(delay: Duration, keeps_late: bool) -> Params {
    let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    Adaptive::INFO.params_within(&[("max", millis), ("late", keeps_late.into())])
}

impl Playout for Adaptive {
    // playout.md
    fn delay(&self, spread: &Spread) -> Option<Duration> {
        let jitter = spread.jitter();
        let delay = if spread.len() < MESSAGES_MIN {
            spread.beyond_quickest(1.0).max(jitter * JITTERS)
        } else {
            spread.beyond_quickest(self.share) + jitter
        };
        Some(delay.clamp(self.min, self.max))
    }

    fn keeps_late(&self) -> bool {
        self.keeps_late
    }
}
