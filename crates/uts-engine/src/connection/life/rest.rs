//! Rest: a connection that has been quiet for a while keeps what it has learnt and what it could
//! not make anew, and lets go of the rest: keys (the epoch's secret stays), and the memory of
//! buffers that are empty. Nothing is due then but the idle time-out and what keeps the connection
//! alive.

use crate::connection::parts::Part;
use crate::connection::secrets::SecretChain;
use crate::connection::stage::Open;
use crate::connection::{Inbound, Outbound, Ways};
use core::time::Duration;
use std::sync::Arc;
use uts_functions::{Function, Profile, Time, protection};

/// Quiet for so long, a connection goes to rest. Waking takes a few microseconds, for the keys.
pub(in crate::connection) const REST_AFTER: Duration = Duration::from_secs(2);

impl Open {
    /// When to look whether the connection may rest; `None` while it does.
    pub(in crate::connection) fn rest_timeout(&self) -> Option<Time> {
        (!self.is_resting() && !self.is_out()).then_some(self.life.rest_at)
    }

    /// The path counts as out: there is nothing to do but to ask whether it is back.
    pub(in crate::connection) fn is_out(&self) -> bool {
        self.ways.outbound.is_out()
    }

    pub(in crate::connection) fn is_resting(&self) -> bool {
        self.life.rest_at == Time::NEVER
    }

    /// Something arrives or is to be sent.
    pub(in crate::connection) fn wake(&mut self, now: Time) {
        if self.is_resting() {
            self.life.rest_at = now + REST_AFTER;
            self.ways.outbound.wake();
            self.ways.inbound.wake();
            if let Some(home) = self.agreement.home.take() {
                self.start_policy(now, *home);
            }
        }
    }

    pub(in crate::connection) fn on_rest_timeout(&mut self, now: Time) {
        if !self.life.is_live() || now < self.life.rest_at {
            return;
        }
        let active_at =
            self.life.last_heard_at.max(self.ways.last_eliciting_at()).max(self.life.last_write_at);
        let quiet_at = active_at + REST_AFTER;
        if quiet_at > now {
            self.life.rest_at = quiet_at;
        } else if self.is_quiet() {
            self.rest();
        } else {
            self.life.rest_at = now + REST_AFTER;
        }
    }

    /// True if nothing is under way and nothing waits to be sent.
    fn is_quiet(&self) -> bool {
        let (parts, ways) = (&self.parts, &self.ways);
        self.is_confirmed()
            && ways.outbound.ledger.eliciting() == 0
            && ways.outbound.envelope.is_none()
            && parts.repairs.timeout(ways).is_none()
            && parts.report.timeout(ways).is_none()
            && parts.exchanges.timeout(ways).is_none()
            && !self.wants_to_send()
    }

    fn rest(&mut self) {
        self.life.rest_at = Time::NEVER;
        let Ways { outbound, inbound, .. } = &mut self.ways;
        outbound.rest();
        inbound.rest();
        if let Some(home) = self.agreement.adaptation.as_mut().and_then(|a| a.rest()) {
            let in_use = outbound.stack(0).map(|s| &s.profile).filter(|in_use| ***in_use == *home);
            self.agreement.home = Some(in_use.map_or_else(|| Arc::new(*home), Arc::clone));
            self.agreement.adaptation = None;
        }
        self.ways.flows.shrink();
        self.parts.exchanges.pending.shrink_to_fit();
        self.ways.events.shrink_to_fit();
        self.parts.control.shrink();
    }
}

/// Makes the keys of an epoch anew, if they are not there.
fn restore(
    protection: &mut Option<Box<protection::Slot>>,
    profile: &Profile,
    epoch: u32,
    secrets: &SecretChain,
) {
    if protection.is_none()
        && let Some(secret) = secrets.of(epoch)
    {
        *protection = protection::Slot::build(profile.get(Function::Protection), &secret).map(Box::new);
    }
}

impl Outbound {
    fn wake(&mut self) {
        for stack in &mut self.stacks {
            restore(&mut stack.protection, &stack.profile, stack.epoch, &self.secrets);
        }
    }

    fn rest(&mut self) {
        self.stacks.shrink_to_fit();
        self.stacks.iter_mut().for_each(|stack| stack.protection = None);
        self.ledger.shrink();
        self.meter.shrink();
    }
}

impl Inbound {
    fn wake(&mut self) {
        for stack in &mut self.stacks {
            restore(&mut stack.protection, &stack.profile, stack.epoch, &self.secrets);
        }
    }

    fn rest(&mut self) {
        self.stacks.shrink_to_fit();
        self.stacks.iter_mut().for_each(|stack| stack.protection = None);
        self.arrivals.received.shrink();
        self.arrivals.repaired.shrink();
    }
}
