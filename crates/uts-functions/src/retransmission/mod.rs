//! Retransmission: what is sent again when transmissions are lost.
//!
//! The function keeps the ledger of what was sent, as tokens rather than bytes, and finds losses;
//! a mechanism decides, for data that was lost, whether and what to repeat. Whatever was sent under one mechanism can
//! be repeated under any other.

pub mod ledger;

use crate::mechanism::Mechanism;
use core::ops::Range;
use enum_dispatch::enum_dispatch;

/// Data of one flow that was in a transmission declared lost.
#[derive(Clone, Debug)]
pub struct LostData {
    /// Positions in the flow that it carried.
    pub range: Range<u64>,
    /// The number of the packet that carried it.
    pub packet: u64,
    /// Everything of the flow below this position has been sent at least once.
    pub sent_to: u64,
    /// The next packet number to be sent.
    pub next_packet: u64,
}

/// What to do about lost data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// Send these positions again (those already acknowledged are left out by the caller).
    Repeat(Range<u64>),
    /// Give it up: the receiver is told not to wait for it.
    Abandon(Range<u64>),
    /// Nothing: an earlier response covers it.
    Covered,
}

/// A policy over lost data, private to each group of flows.
#[enum_dispatch]
pub trait Retransmission {
    /// Data was in a packet that was declared lost.
    fn on_lost(&mut self, lost: &LostData) -> Response;
}

/// The mechanisms of this function, in the order of their numbers.
pub static MECHANISMS: &[&Mechanism] = &[];
