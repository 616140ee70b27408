//! Three-way handshake: the client's flight, the server's answer, the client's confirmation, each
//! repeated with doubling time-outs until answered (establishment.md R-1; RFC 9002 sections 6.2.1
//! and 6.2.2).

use super::{Establishment, Heard};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unit, millis};
use crate::timing::INITIAL_RTT;
use core::time::Duration;

/// The longest wait before a flight is repeated, as long as no round trip is known. A path that
/// loses most packets is not given up after a handful of them, and one packet in two seconds is too
/// few to congest any (RFC 8085 section 3.1.1).
const REPEAT_AFTER_MAX: Duration = Duration::from_secs(2);

/// Multiples of the patience, for a peer that has claimed an address, and for a peer that has
/// answered. The former costs memory, and may not exist.
const FACTOR_OF_CLAIM: u32 = 3;
const FACTOR_OF_ANSWER: u32 = 6;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct ThreeWay {
    patience: Duration,
}

impl ThreeWay {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Establishment,
        number: 0,
        name: "three-way",
        what: "client's flight, server's answer, client's confirmation, each repeated until answered",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "patience",
            unit: Unit::Millis,
            default: 10_000,
            min: 1_000,
            max: 120_000,
            bold: Bold::Neither,
            what: "how long to try before giving up, as long as nothing has been heard",
        }],
        needs: &[],
        facts: Facts { uniform: true, ..Facts::PLAIN },
        // A connection is established once; data that follows is not touched.
        predict: |_, _, _| {},
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        ThreeWay { patience: millis(params.get(0)) }
    }
}

impl Establishment for ThreeWay {
    fn timeout(&self, tries: u32) -> Duration {
        // establishment.md R-2: srtt + 4 * (srtt / 2) before any sample, doubled with each repeat.
        let first = INITIAL_RTT * 3;
        first
            .saturating_mul(1_u32.checked_shl(tries).unwrap_or(u32::MAX))
            .min(REPEAT_AFTER_MAX)
            .min(self.patience)
    }

    fn give_up_after(&self, heard: Heard) -> Duration {
        // establishment.md R-3.
        self.patience.saturating_mul(match heard {
            Heard::Nothing => 1,
            Heard::Claim => FACTOR_OF_CLAIM,
            Heard::Answer => FACTOR_OF_ANSWER,
        })
    }
}
