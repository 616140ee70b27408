//! The life of a connection: where it is in it, when the peer was last heard, and why it ended.

pub(in crate::connection) mod closing;
pub(in crate::connection) mod codes;
pub(in crate::connection) mod deadlines;
pub(crate) mod keys;
pub(in crate::connection) mod liveness;
pub(in crate::connection) mod rest;

use crate::connection::life::closing::Closing;
use crate::connection::life::liveness::Liveness;
use crate::connection::life::rest::REST_AFTER;
use crate::event::CloseReason;
use core::time::Duration;
use uts_functions::Time;

/// Step of its life that a connection is at, in either stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::connection) enum Phase {
    /// It has not ended.
    Live,
    /// This end has closed; it repeats that to whatever still arrives.
    Closing(Closing),
    /// The peer has closed, or nobody is there: nothing is sent any more.
    Draining { until: Time },
    /// Nothing is left to do.
    Over,
}

/// The life of a connection.
#[derive(Clone)]
pub(in crate::connection) struct Life {
    pub phase: Phase,
    pub close_reason: Option<Box<CloseReason>>,
    /// After so long without a packet from the peer the connection ends; zero = never.
    pub idle_timeout: Duration,
    pub last_heard_at: Time,
    pub last_write_at: Time,
    pub liveness: Liveness,
    /// When to look whether the connection may rest; `NEVER` while it rests.
    pub rest_at: Time,
    /// Time that the longest flight of the handshake and its answer took, in milliseconds; zero =
    /// not measured.
    pub flight_ms: u32,
}

impl Life {
    pub fn new(now: Time, idle_timeout: Duration) -> Self {
        Life {
            phase: Phase::Live,
            close_reason: None,
            idle_timeout,
            last_heard_at: now,
            last_write_at: now,
            liveness: Liveness::new(now),
            rest_at: now + REST_AFTER,
            flight_ms: 0,
        }
    }

    /// The peer ends the connection after so long without a packet; zero = never.
    pub fn follow_idle_timeout(&mut self, peers: Duration) {
        self.idle_timeout = match (self.idle_timeout.is_zero(), peers.is_zero()) {
            (true, _) => peers,
            (_, true) => self.idle_timeout,
            _ => self.idle_timeout.min(peers),
        };
    }

    /// True until the connection has ended, at either end.
    #[inline]
    pub fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }

    /// When nothing of it is left, once it has ended.
    pub fn over_at(&self) -> Option<Time> {
        match self.phase {
            Phase::Closing(Closing { until, .. }) | Phase::Draining { until } => Some(until),
            Phase::Live | Phase::Over => None,
        }
    }

    /// Nothing is left once it has ended, its time is over, and no word of that is due.
    pub fn look_whether_over(&mut self, now: Time) {
        let waits = matches!(self.phase, Phase::Closing(Closing { due: true, .. }));
        if !waits && self.over_at().is_some_and(|at| at <= now) {
            self.phase = Phase::Over;
        }
    }

    /// State of the word that this end has closed, while it may be said.
    pub fn closing(&mut self) -> Option<&mut Closing> {
        match &mut self.phase {
            Phase::Closing(closing) => Some(closing),
            Phase::Live | Phase::Draining { .. } | Phase::Over => None,
        }
    }

    /// A packet leaves that the peer is to acknowledge.
    pub fn on_asked(&mut self, now: Time) {
        self.liveness.on_asked(now, self.last_heard_at);
    }
}
