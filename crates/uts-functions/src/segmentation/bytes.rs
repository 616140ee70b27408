//! Bytes: a flow is one run of bytes; where writes began and ended is not kept.

use super::Segmentation;
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Bytes;

impl Bytes {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Segmentation,
        number: 0,
        name: "bytes",
        what: "a flow is one run of bytes",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts { uniform: true, positions: true, ..Facts::PLAIN },
        // Frame type, flow, offset of up to 8 bytes.
        predict: |_, _, p| p.header_bytes += 10.0,
    };

    /// Builds it.
    pub fn build(_: &Params, _: ()) -> Self {
        Bytes
    }
}

impl Segmentation for Bytes {
    // segmentation.md R-10.
    fn keeps_boundaries(&self) -> bool {
        false
    }

    fn message_bytes_max(&self) -> usize {
        usize::MAX
    }
}
