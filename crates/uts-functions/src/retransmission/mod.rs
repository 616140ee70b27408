//! Retransmission: what is sent again when transmissions are lost.
//!
//! The function keeps the ledger of what was sent, as tokens rather than bytes. What of it is lost
//! is the finding function's to say. A mechanism decides, for data that was lost, whether and what
//! to repeat. Whatever was sent under one mechanism can be repeated under any other.
//!
//! A mechanism may have a half at the receiver, a [`Demand`], which asks for what is missing. Data
//! that is lost and has not been asked for yet waits with the function ([`Awaited`]), so that no
//! exchange forgets it. So does data that has arrived without the rest of its unit ([`Withheld`]).

use crate::facts::PathFacts;
use crate::feedback::BadFeedback;
use crate::mechanism::{Described, Facts, Later, Prediction, Promise};
use crate::registry;
use crate::time::Time;
use auto_impl::auto_impl;
pub use awaited::Awaited;
use core::ops::Range;
use core::time::Duration;
pub use demand::{Demand, Received};
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;
pub use tries::Tries;
pub use withheld::Withheld;

mod awaited;
pub mod blast;
pub mod count_limited;
pub mod deadline_limited;
pub mod demand;
pub mod go_back_n;
#[cfg(test)]
mod harness;
pub mod ledger;
pub mod nak;
pub mod none;
pub mod selective;
mod tries;
mod withheld;

/// Data of one flow that was in a transmission declared lost.
#[derive(Clone, Debug)]
pub struct LostData {
    /// Positions in the flow that it carried.
    pub range: Range<u64>,
    /// The number of the packet that carried it.
    pub packet: u64,
    /// It was lost before, and the time is over for which [`Response::Wait`] has waited.
    pub has_waited: bool,
    /// Number of times that any of it was lost, this time included; 1 where it is not counted
    /// ([`Retransmission::counts`]).
    pub losses: u32,
    /// Time since any of it was first sent; zero where it is not counted.
    pub age: Duration,
    /// The flow at this instant.
    pub flow: SentData,
}

/// A flow as its sender sees it.
#[derive(Clone, Copy, Debug)]
pub struct SentData {
    /// The instant.
    pub now: Time,
    /// Time to wait for an answer before it counts as lost.
    pub timeout: Duration,
    /// Everything of the flow below this position has been sent at least once.
    pub sent_to: u64,
    /// The end of the highest data that the receiver has reported; whatever is missing below, the
    /// receiver can see that it is.
    pub heard_to: u64,
    /// The next packet number to be sent.
    pub next_packet: u64,
    /// Packets from this number on have not been reported.
    pub acked_to: u64,
    /// First of the positions that wait to be sent again.
    pub repeats_from: u64,
    /// End of those positions; not above `repeats_from` = none waits.
    pub repeats_to: u64,
    /// Bytes that have arrived for the first time so far, of units that were not whole then. Zero
    /// under a mechanism without units.
    pub brought: u64,
}

/// Response to lost data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// Send these positions again (those already acknowledged are left out by the caller).
    Repeat(Range<u64>),
    /// Give it up: the receiver is told not to wait for it.
    Abandon(Range<u64>),
    /// Nothing: an earlier response covers it.
    Covered,
    /// Nothing yet. If it has not been repeated or acknowledged by this instant, the mechanism is
    /// asked again, or the one that has taken its place by then.
    Wait(Time),
}

/// A policy over lost data, private to each flow: positions of different flows say nothing of each
/// other.
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Retransmission: Described + DynClone {
    /// Data was in a packet that was declared lost.
    fn on_lost(&mut self, lost: &LostData) -> Response;

    /// True if it has to know how often data was lost, and how old it is.
    fn counts(&self) -> bool {
        false
    }

    /// Positions of a unit, if nothing of one counts as arrived until all of it has. What it
    /// repeats is then repeated with what has arrived ([`Withheld`]).
    fn unit(&self) -> Option<u64> {
        None
    }

    /// The half of this mechanism at the receiver, if it has one (a fact of its entry: `speaks`).
    fn demand(&self) -> Option<Box<dyn Demand>> {
        None
    }

    /// The half at the receiver has spoken: says what to send again.
    ///
    /// # Errors
    /// [`BadFeedback`] if the words are none of this mechanism.
    fn on_feedback(&mut self, _words: &[u8], _flow: &SentData) -> Result<Vec<Range<u64>>, BadFeedback> {
        Ok(Vec::new())
    }
}

/// Facts of a mechanism that repeats whatever is lost.
const REPEATS: Facts = Facts {
    uniform: true,
    positions: true,
    repeats: true,
    promises: &[Promise::Reliability],
    ..Facts::PLAIN
};

/// Predicts the effect of repeating losses: nothing stays lost, each loss costs a transmission and
/// a round trip.
fn predict_repeats(facts: &PathFacts, p: &mut Prediction) {
    let rtt_s = facts.rtt_smoothed.max(facts.rtt_min).as_secs_f64();
    let loss = p.loss.clamp(0.0, 0.99);
    p.expansion /= 1.0 - loss;
    // Half a round trip to the receiver is in the path's own delay; the rest is noticing, asking,
    // and once more.
    p.repeated = Later { share: loss, by_s: 1.5 * rtt_s, by_mean_s: rtt_s };
    p.delay(p.repeated);
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
    Nak => nak::Nak,
    Blast => blast::Blast,
    CountLimited => count_limited::CountLimited,
    DeadlineLimited => deadline_limited::DeadlineLimited,
}
