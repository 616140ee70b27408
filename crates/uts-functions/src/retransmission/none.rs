//! No retransmission: what is lost is given up, and the receiver told not to wait for it.

use super::{LostData, Response, Retransmission};
use crate::macros::inert;

inert!(Retransmission, "what is lost is given up", context: ());

impl Retransmission for None {
    fn on_lost(&mut self, lost: &LostData) -> Response {
        // retransmission.md R-4.
        Response::Abandon(lost.range.clone())
    }
}
