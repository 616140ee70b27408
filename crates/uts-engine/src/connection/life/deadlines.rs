//! Deadlines of a connection: when a handshake has failed, when a quiet connection ends, and what
//! keeps one alive.

use crate::connection::Side;
use crate::connection::stage::{Core, Fresh, Open, Stage};
use crate::event::{CloseReason, Tried};
use core::time::Duration;
use uts_functions::Time;
use uts_functions::establishment::Heard;

impl<S: Stage> Core<S> {
    pub(in crate::connection) fn handshake_timer(&self) -> Option<Time> {
        self.establishing.handshake.as_ref()?.timer
    }

    /// Says again what the peer has not answered in the handshake.
    pub(in crate::connection) fn on_handshake_timeout(&mut self, now: Time) {
        if let Some(handshake) = &mut self.establishing.handshake
            && handshake.timer.is_some_and(|at| at <= now)
        {
            handshake.on_timeout(now);
        }
    }
}

impl Fresh {
    /// When the handshake has failed.
    pub(in crate::connection) fn fails_at(&self) -> Option<Time> {
        let handshake = self.establishing.handshake.as_ref()?;
        Some(handshake.started + self.handshake_patience())
    }

    /// Ends what has lasted too long.
    pub(in crate::connection) fn end_if_due(&mut self, now: Time) {
        if self.fails_at().is_some_and(|at| at <= now) {
            let (after, tried) = (self.handshake_patience(), self.tried());
            let said = self.establishing.handshake.as_mut().and_then(|h| h.hint.take());
            let reason = match said {
                Some(said) => CloseReason::Unconfirmed { after, tried, said: Box::new(said) },
                None => CloseReason::HandshakeTimeout { after, tried },
            };
            self.drain(now, reason);
        }
    }

    fn handshake_patience(&self) -> Duration {
        // establishment.md R-3
        let heard = match &self.establishing.handshake {
            Some(handshake) if !handshake.heard => Heard::Nothing,
            _ if self.establishing.address_proved => Heard::Answer,
            _ => Heard::Claim,
        };
        let own = self.establishing.handshake.as_ref().map_or(Duration::MAX, |h| h.give_up_after(heard));
        self.ways.config.handshake_timeout.min(own)
    }

    /// Record of the handshake under way: what was sent, and what was heard.
    fn tried(&self) -> Tried {
        let bytes = self.establishing.handshake.as_ref().map_or((0, 0), |h| h.sent_bytes);
        Tried { datagrams: self.ways.stats.packets_sent, bytes, heard: self.ways.stats.packets_received }
    }
}

impl Open {
    /// Ends what has lasted too long.
    pub(in crate::connection) fn end_if_due(&mut self, now: Time) {
        if self.idle_at().is_some_and(|at| at <= now) {
            self.drain(now, CloseReason::IdleTimeout(self.life.idle_timeout));
        } else if self.unasked_at().is_some_and(|at| at <= now) {
            let most = self.ways.config.first_request_timeout.as_secs_f64();
            self.refuse(now, &format!("you were silent for {most} s, and have asked for nothing"));
        }
    }

    /// When a client that has asked for nothing, and is not heard, has to go.
    pub(in crate::connection) fn unasked_at(&self) -> Option<Time> {
        let most = self.ways.config.first_request_timeout;
        let is_due = self.identity.side == Side::Server && !most.is_zero() && !self.ways.flows.has_had_any();
        is_due.then(|| self.life.last_heard_at + most)
    }

    // P-61
    pub(in crate::connection) fn idle_at(&self) -> Option<Time> {
        (!self.life.idle_timeout.is_zero()).then(|| {
            // As long as something is in flight, three probes at least go out before the peer
            // counts as gone.
            let probes = self.ways.outbound.probe_timeout() * 3;
            self.life.last_heard_at + self.life.idle_timeout.max(probes)
        })
    }

    pub(in crate::connection) fn keep_alive_at(&self) -> Option<Time> {
        let (own, asked) = (self.ways.config.keep_alive, &self.ways.config.requirements);
        let every = if own.is_zero() && asked.keep_alive.is_wanted() {
            // Twice may be lost, and the connection lives.
            asked.keep_alive_timeout.unwrap_or(self.life.idle_timeout / 3)
        } else {
            own
        };
        (!every.is_zero() && !self.parts.ping.is_wanted)
            .then(|| self.life.last_heard_at.max(self.ways.last_eliciting_at()) + every)
    }
}

/// The earlier of two instants, if there is one.
pub(in crate::connection) fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
