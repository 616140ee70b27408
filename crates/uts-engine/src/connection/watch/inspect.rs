//! Inspection of a connection for tests: its work in progress.

use crate::connection::Ways;
use crate::connection::parts::Part;
use crate::connection::stage::Open;
use crate::event::Direction;

impl Open {
    pub(in crate::connection) fn is_at_rest(&self) -> bool {
        let out_at_rest = self.ways.outbound.ledger.eliciting() == 0
            && self.ways.outbound.delivery.in_flight == 0
            && are_distinct(self.ways.outbound.stacks.iter().map(|s| s.group));
        let in_at_rest = are_distinct(self.ways.inbound.stacks.iter().map(|s| s.group))
            && self.ways.inbound.arrivals.due.is_none();
        let exchanges = &self.parts.exchanges;
        let is_agreed = [Direction::Out, Direction::In].into_iter().all(|d| exchanges.is_idle(d));
        out_at_rest
            && in_at_rest
            && is_agreed
            && exchanges.pending.is_empty()
            && exchanges.timeout(&self.ways).is_none()
            && self.parts.control.is_empty()
            && self.ways.flows.signals.is_empty()
            && self.ways.flows.iter().next().is_none()
    }

    pub(in crate::connection) fn timers(&self) -> String {
        let Ways { outbound, inbound, .. } = &self.ways;
        let fec: Vec<_> =
            outbound.stacks.iter().map(|s| s.fec.as_ref().map(|f| (f.deadline(), f.has_repair()))).collect();
        let flows: Vec<_> = self
            .ways
            .flows
            .iter()
            .map(|(id, f)| {
                let (b, r) = (&f.send.buffer, &f.receive);
                let send = (b.sent(), b.written(), f.send.limit, f.send.is_done);
                (id, send, (r.data.contiguous(), r.data.consumed(), r.grant.limit, r.is_free(), r.is_done))
            })
            .collect();
        format!(
            "flows {flows:?} handshake {:?} idle {:?} loss {:?} ({} in flight, {} bytes) paced {:?} report {:?} exchange {:?} size {:?} \
             alarm {:?} policy {:?} fec {fec:?} control {:?} pending {} order {}",
            self.handshake_timer(),
            self.idle_at(),
            outbound.loss_timeout(),
            outbound.ledger.eliciting(),
            outbound.delivery.in_flight,
            outbound.paced_until,
            inbound.arrivals.due,
            self.parts.exchanges.timeout(&self.ways),
            self.parts.size.timeout(&self.ways),
            self.ways.flows.next_alarm().map(|(at, _)| at),
            self.agreement.adaptation.as_ref().and_then(|a| a.timeout()),
            self.ways.flows.signals,
            self.parts.exchanges.pending.len(),
            self.ways.flows.wants_to_send(),
        )
    }
}

/// True if no group has two stacks.
fn are_distinct(groups: impl Iterator<Item = u8>) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    groups.into_iter().all(|group| seen.insert(group))
}
