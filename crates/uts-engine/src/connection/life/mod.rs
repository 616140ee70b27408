//! The life of a connection: where it is in it, when the peer was last heard, and why it ended.

pub(in crate::connection) mod closing;
pub(in crate::connection) mod codes;
pub(in crate::connection) mod deadlines;
pub(crate) mod keys;
pub(in crate::connection) mod liveness;
pub(in crate::connection) mod rest;

use crate::connection::life::liveness::Liveness;
use crate::connection::life::rest::REST_AFTER;
use crate::event::CloseReason;
use core::time::Duration;
use uts_functions::Time;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::connection) enum Phase {
    Handshake,
    Open,
    /// This end has closed; it repeats that to whatever still arrives.
    Closing {
        until: Time,
        said: u32,
        due: bool,
    },
    /// The peer has closed, or nobody is there: nothing is sent any more.
    Draining {
        until: Time,
    },
    /// Nothing is left to do.
    Over,
}

/// The life of a connection.
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
            phase: Phase::Handshake,
            close_reason: None,
            idle_timeout,
            last_heard_at: now,
            last_write_at: now,
            liveness: Liveness::new(now),
            rest_at: now + REST_AFTER,
            flight_ms: 0,
        }
    }

    /// A packet leaves that the peer is to acknowledge.
    pub fn on_asked(&mut self, now: Time) {
        self.liveness.on_asked(now, self.last_heard_at);
    }
}
