//! Inspection of a connection for tests: its work in progress.

use crate::connection::Connection;
use crate::connection::parts::Part;
use crate::event::Direction;

impl Connection {
    /// True if nothing is under way: no packet in flight, nothing waits to be sent, no exchange is
    /// being negotiated, no flow is open. For tests of what a connection comes to rest in.
    #[doc(hidden)]
    pub fn is_at_rest(&self) -> bool {
        let out_at_rest = self.ways.outbound.as_ref().is_none_or(|o| {
            o.ledger.eliciting() == 0
                && o.delivery.in_flight == 0
                && are_distinct(o.stacks.iter().map(|s| s.group))
        });
        let in_at_rest = self
            .ways
            .inbound
            .as_ref()
            .is_none_or(|i| are_distinct(i.stacks.iter().map(|s| s.group)) && i.arrivals.due.is_none());
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

    /// Timers and their instants, as text, for tests that find a connection busy.
    #[doc(hidden)]
    pub fn timers(&self) -> String {
        let (Some(outbound), Some(inbound)) = (&self.ways.outbound, &self.ways.inbound) else {
            return format!("handshake {:?}", self.handshake_timer());
        };
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
