//! Playout: when messages of media are handed over, so that they come at the pace at which they
//! were made.
//!
//! The function keeps how the sender's clock reads here ([`Clock`], one for each connection), and
//! what has arrived of a flow and waits for its time ([`Buffer`], with the [`Spread`] of its
//! delays). A mechanism says how long after it was made a message is handed over.

use crate::mechanism::{Described, Held, Prediction};
use crate::registry;
use auto_impl::auto_impl;
use core::time::Duration;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;

pub mod adaptive;
pub mod buffer;
pub mod clock;
pub mod fixed;
pub mod none;
pub mod spread;
#[cfg(test)]
mod tests;

pub use buffer::{Buffer, Figures, Next, Timing};
pub use clock::{Clock, MediaTime};
pub use spread::Spread;

/// A policy over [`Buffer`].
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Playout: Described + DynClone {
    /// Time from the making of a message until it is handed over, beyond the quickest way, by what
    /// is known of the delays; `None` = at once.
    fn delay(&self, spread: &Spread) -> Option<Duration>;

    /// True if what comes too late is handed over all the same.
    fn keeps_late(&self) -> bool {
        false
    }
}

dyn_clone::clone_trait_object!(Playout);

registry! {
    /// The playout mechanism in use.
    #[derive(Clone, Debug)]
    Slot: Playout, context: ();
    None => none::None,
    Fixed => fixed::Fixed,
    Adaptive => adaptive::Adaptive,
}

/// The longest delay that may be asked for, in milliseconds.
const DELAY_MAX_MS: u32 = 10_000;

/// Holds messages until `usual` has passed since they were made, beyond the quickest way, and drops
/// what comes after `longest`, unless that is kept.
fn predict_held(usual: Duration, longest: Duration, keeps_late: bool, p: &mut Prediction) {
    let late_s = (!keeps_late).then_some(longest.as_secs_f64());
    p.held = Some(Held { until_s: usual.as_secs_f64(), late_s });
    // The frame with the media time.
    p.header_bytes += 9.0;
    p.cpu_ns += 200.0;
}
