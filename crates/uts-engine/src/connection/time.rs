//! Time: when something is due, and doing it. Each part says when it wants to be called; the earliest of them is the
//! connection's.

use super::{Connection, Outbound, Phase};
use crate::event::{CloseReason, Tried};
use crate::policy::Turns;
use core::time::Duration;
use uts_functions::Time;
use uts_functions::establishment::Heard;

impl Connection {
    /// When something is due next.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        match self.phase {
            Phase::Over => return None,
            Phase::Closing { until, .. } | Phase::Draining { until } => return Some(until),
            Phase::Handshake | Phase::Open => {}
        }
        let mut next = self.handshake_timer();
        let mut add = |at: Option<Time>| next = earlier(next, at);
        if self.phase == Phase::Handshake {
            add(self.handshake.as_ref().map(|h| h.started + self.handshake_patience()));
        } else {
            add(self.idle_at());
            add(self.keep_alive_at());
            add(self.liveness_timeout());
            add(self.receive_rate_timeout());
        }
        if let (Some(outbound), Some(inbound)) = (&self.outbound, &self.inbound) {
            add(outbound.loss_timeout());
            add(outbound.paced_until);
            add(inbound.arrivals.due);
            add(self.exchanges.timeout());
            add(self.size.timeout().filter(|_| self.confirmed && outbound.delivery.in_flight == 0));
            add(self.flows.next_expiry().map(|(at, _)| at));
            add(self.adaptation.as_ref().filter(|_| !self.is_resting()).and_then(|a| a.timeout()));
            add(self.rest_timeout());
            for stack in &outbound.stacks {
                add(stack.fec.as_ref().and_then(|fec| fec.deadline()));
            }
        }
        next
    }

    pub(super) fn handshake_timer(&self) -> Option<Time> {
        self.handshake.as_ref()?.timer
    }

    fn handshake_patience(&self) -> Duration {
        // establishment.md R-3
        let heard = match &self.handshake {
            Some(handshake) if !handshake.heard => Heard::Nothing,
            _ if self.address_proved => Heard::Answer,
            _ => Heard::Claim,
        };
        let own = self.handshake.as_ref().map_or(Duration::MAX, |h| h.give_up_after(heard));
        self.config.handshake_timeout.min(own)
    }

    /// What the handshake under way has come to.
    fn tried(&self) -> Tried {
        let bytes = self.handshake.as_ref().map_or((0, 0), |h| h.sent_bytes);
        Tried { datagrams: self.stats.packets_sent, bytes, heard: self.stats.packets_received }
    }

    pub(super) fn idle_at(&self) -> Option<Time> {
        (!self.idle_timeout.is_zero()).then(|| {
            // As long as something is in flight, three probes at least go out before the peer counts as gone.
            let probes = self.outbound.as_ref().map_or(Duration::ZERO, |o| o.probe_timeout() * 3);
            self.last_heard_at + self.idle_timeout.max(probes)
        })
    }

    fn keep_alive_at(&self) -> Option<Time> {
        let (own, asked) = (self.config.keep_alive, &self.config.requirements);
        let every = if own.is_zero() && asked.keep_alive.is_wanted() {
            // Twice may be lost, and the connection lives.
            asked.keep_alive_timeout.unwrap_or(self.idle_timeout / 3)
        } else {
            own
        };
        (!every.is_zero() && !self.ping_wanted)
            .then(|| self.last_heard_at.max(self.last_eliciting_at) + every)
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Time, turns: &mut Turns) {
        match self.phase {
            Phase::Closing { until, .. } | Phase::Draining { until } if until <= now => {
                self.phase = Phase::Over;
                return;
            }
            Phase::Handshake
                if self.handshake.as_ref().is_some_and(|h| now >= h.started + self.handshake_patience()) =>
            {
                let after = self.handshake_patience();
                let tried = self.tried();
                let said = self.handshake.as_mut().and_then(|h| h.hint.take());
                let reason = match said {
                    Some(said) => CloseReason::Unconfirmed { after, tried, said: Box::new(said) },
                    None => CloseReason::HandshakeTimeout { after, tried },
                };
                self.drain(now, reason);
                return;
            }
            Phase::Handshake | Phase::Open => {}
            _ => return,
        }
        if let Some(handshake) = &mut self.handshake
            && handshake.timer.is_some_and(|at| at <= now)
        {
            handshake.on_timeout(now);
        }
        if self.phase != Phase::Open {
            return;
        }
        if self.idle_at().is_some_and(|at| at <= now) {
            self.drain(now, CloseReason::IdleTimeout(self.idle_timeout));
            return;
        }
        self.ping_wanted |= self.keep_alive_at().is_some_and(|at| at <= now);
        self.on_liveness_timeout(now);
        if self.phase != Phase::Open {
            return;
        }
        self.on_receive_rate_timeout(now);
        if self.outbound.as_ref().and_then(Outbound::loss_timeout).is_some_and(|at| at <= now) {
            self.on_loss_timeout(now);
        }
        if self.exchanges.timeout().is_some_and(|at| at <= now) {
            self.on_exchange_timeout(now);
        }
        self.size.on_timeout(now);
        self.expire_messages(now);
        self.outbound_mut(|o| {
            for fec in o.stacks.iter_mut().filter_map(|s| s.fec.as_mut()) {
                if fec.deadline().is_some_and(|at| at <= now) {
                    fec.on_flush(now);
                }
            }
        });
        self.adapt(now, turns);
        self.on_rest_timeout(now);
    }
}

/// The earlier of two instants, if there is one.
fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
