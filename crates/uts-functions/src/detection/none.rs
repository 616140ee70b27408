//! No detection: for packets that are protected (whose tag finds damage), or applications that prefer damaged data to
//! none.

use super::Detection;
use crate::mechanism::{Consent, Mechanism, Params};
use crate::profile::Function;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct None;

impl None {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Detection,
        number: 0,
        name: "none",
        what: "no check of its own; UDP's checksum or protection's tag has to do",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        predict: |_, _, _| {},
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        None
    }
}

impl Detection for None {
    fn trailer_bytes(&self) -> usize {
        0
    }

    fn append(&self, _: &[u8], _: &mut [u8]) {}

    fn verify(&self, _: &[u8], trailer: &[u8]) -> bool {
        trailer.is_empty()
    }
}
