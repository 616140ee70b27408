//! Rules that hold between the parts of a connection whatever a peer or an application does. Tests,
//! simulation and fuzzers check them after each turn, so that a fault shows where it begins; builds
//! without debug assertions do not have them.

use super::flows::halves::Flow;
use super::stage::Open;
use super::{Outbound, Ways};

/// Entries of the ledger that are added up after each turn; longer ones now and then.
const LEDGER_ALWAYS: usize = 32;

/// One turn of so many in which all of a long ledger is added up.
const SELDOM: u64 = 256;

impl Open {
    /// Panics where a rule does not hold.
    pub(super) fn check_invariants(&self) {
        if !self.life.is_live() {
            return;
        }
        let outbound = &self.ways.outbound;
        let turn = self.ways.stats.packets_sent + self.ways.stats.packets_received;
        if outbound.ledger.len() <= LEDGER_ALWAYS || turn.is_multiple_of(SELDOM) {
            outbound.check_in_flight();
        }
        let (is_awaited, wakes) = (outbound.ledger.eliciting() > 0, outbound.loss_timeout());
        assert!(!is_awaited || wakes.is_some(), "packets are in flight, and nothing looks for their loss");
        assert!(self.ways.flows.counts_are_right(), "what is counted is what there is");
        assert!(self.ways.flows.alarms_are_right(), "alarms are those of the flows");
        for (id, flow) in self.ways.flows.iter() {
            self.ways.check_flow(id, flow);
        }
    }
}

impl Outbound {
    fn check_in_flight(&self) {
        let (packets, bytes) = self.ledger.in_flight();
        assert_eq!(packets, self.ledger.eliciting(), "packets in flight, by the ledger and as counted");
        assert_eq!(bytes, self.delivery.in_flight, "bytes in flight, by the ledger and as counted");
    }
}

impl Ways {
    fn check_flow(&self, id: u32, flow: &Flow) {
        let send = &flow.send;
        let (done, sent, written) = (send.buffer.done_to(), send.buffer.sent(), send.buffer.written());
        assert!(done <= sent && sent <= written, "flow {id}: done to {done}, sent {sent} of {written}");
        let receive = &flow.receive;
        let (consumed, contiguous) = (receive.data.consumed(), receive.data.contiguous());
        assert!(consumed <= contiguous, "flow {id}: consumed {consumed} of {contiguous}");
        let gate = self.outbound.gate_of(send.group);
        let Some(limit) = gate.and_then(|gate| gate.fixed_limit(send)) else { return };
        let may = !send.is_held && !send.is_given_up();
        let wants = may && send.buffer.wants_to_send(limit.min(send.within(self.flows.outgoing.spare())));
        assert_eq!(wants, self.flows.has_turn(id), "flow {id}: in the order, and its gate lets it send");
    }
}
