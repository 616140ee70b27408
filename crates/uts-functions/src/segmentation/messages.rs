//! Messages: what was sent as one message is received as one message.

use super::Segmentation;
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Promise, Unasked, Unit};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Messages {
    message_bytes_max: usize,
}

impl Messages {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Segmentation,
        number: 1,
        name: "messages",
        what: "what was sent as one message is received as one message",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "max",
            unit: Unit::Kibibytes,
            default: 1024,
            min: 16,
            max: 16_384,
            bold: Bold::Neither,
            what: "largest message",
        }],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Boundaries],
            unasked: Unasked::Choice(1),
            ..Facts::PLAIN
        },
        predict: |_, _, p| p.header_bytes += 10.0,
    };

    /// Builds it.
    pub fn build(params: &Params, _: ()) -> Self {
        Messages { message_bytes_max: params.get(0) as usize * 1024 }
    }
}

impl Segmentation for Messages {
    // segmentation.md R-11.
    fn keeps_boundaries(&self) -> bool {
        true
    }

    // segmentation.md R-12.
    fn message_bytes_max(&self) -> usize {
        self.message_bytes_max
    }
}
