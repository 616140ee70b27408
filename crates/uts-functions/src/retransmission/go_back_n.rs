//! Go-back-N: everything from the loss on is sent again, so that the receiver gets it in order
//! without a buffer.

use super::{LostData, Response, Retransmission};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Unasked};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct GoBackN {
    last: Option<GoBack>,
}

/// The last return to an earlier position.
#[derive(Clone, Copy, Debug)]
struct GoBack {
    /// Everything of the flow from here on was ordered again.
    from: u64,
    /// Packets below this number were sent before.
    before_packet: u64,
}

impl GoBackN {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Retransmission,
        number: 1,
        name: "go-back-n",
        what: "everything from the loss on is sent again",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts { unasked: Unasked::Choice(1), ..super::REPEATS },
        predict: |_, facts, p| {
            // Each loss repeats what is in flight behind it: (1 - p + p N) / (1 - p) transmissions
            // per packet (Bertsekas and Gallager, Data Networks, section 2.4.1).
            let in_flight = facts.bdp_packets().max(1.0);
            p.expansion *= 1.0 + p.loss * (in_flight - 1.0);
            super::predict_repeats(facts, p);
            p.cpu_ns += 5.0;
        },
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        GoBackN { last: None }
    }
}

impl Retransmission for GoBackN {
    fn on_lost(&mut self, lost: &LostData) -> Response {
        let start = lost.range.start;
        match &mut self.last {
            // retransmission.md R-6: the packet left before the last return, which ordered all from
            // `from` on again.
            Some(last) if lost.packet < last.before_packet => {
                if start >= last.from {
                    return Response::Covered;
                }
                // retransmission.md R-7.
                let missed = start..last.from;
                last.from = start;
                Response::Repeat(missed)
            }
            // retransmission.md R-5.
            _ => {
                self.last = Some(GoBack { from: start, before_packet: lost.flow.next_packet });
                Response::Repeat(start..lost.flow.sent_to.max(lost.range.end))
            }
        }
    }
}
