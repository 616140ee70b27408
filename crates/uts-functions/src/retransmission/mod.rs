//! Retransmission: what is sent again when transmissions are lost.
//!
//! The function keeps the ledger of what was sent, as tokens rather than bytes, and finds losses;
//! a mechanism decides, for data that was lost, whether and what to repeat. Whatever was sent under one mechanism can
//! be repeated under any other.

use crate::facts::PathFacts;
use crate::mechanism::Described;
use crate::mechanism::Prediction;
use crate::registry;
use auto_impl::auto_impl;
use core::ops::Range;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;

pub mod go_back_n;
#[cfg(test)]
mod harness;
pub mod ledger;
pub mod none;
pub mod selective;

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

/// A policy over lost data, private to each flow: positions of different flows say nothing of each other.
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Retransmission: Described + DynClone {
    /// Data was in a packet that was declared lost.
    fn on_lost(&mut self, lost: &LostData) -> Response;
}

/// What repeating losses does to a prediction: nothing stays lost, each loss costs a transmission and a round trip.
fn predict_repeats(facts: &PathFacts, p: &mut Prediction) {
    let rtt_s = facts.rtt_smoothed.max(facts.rtt_min).as_secs_f64();
    let loss = p.loss.clamp(0.0, 0.99);
    p.expansion /= 1.0 - loss;
    p.delay_s += loss * rtt_s;
    // Half a round trip to the receiver is in the path's own delay; the rest is noticing, asking, and once more.
    if loss > 0.01 {
        p.delay_p99_s += 1.5 * rtt_s;
    }
    p.loss = 0.0;
}

dyn_clone::clone_trait_object!(Retransmission);

registry! {
    /// The retransmission mechanism in use.
    #[derive(Clone, Debug)]
    Slot: Retransmission, context: ();
    None => none::None,
    GoBackN => go_back_n::GoBackN,
    Selective => selective::Selective,
}
