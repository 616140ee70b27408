//! No retransmission: what is lost is given up, and the receiver told not to wait for it.

use super::{LostData, Response, Retransmission};
use crate::mechanism::{Consent, Mechanism, Params};
use crate::profile::Function;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct None;

impl None {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Retransmission,
        number: 0,
        name: "none",
        what: "what is lost is given up",
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

impl Retransmission for None {
    fn on_lost(&mut self, lost: &LostData) -> Response {
        // retransmission.md R-4.
        Response::Abandon(lost.range.clone())
    }
}
