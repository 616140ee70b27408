//! No playout: messages are handed over when they have arrived, as the order allows.

use super::{Playout, Spread};
use crate::macros::inert;
use core::time::Duration;

inert!(Playout, "messages are handed over as they come", context: ());

impl Playout for None {
    fn delay(&self, _: &Spread) -> Option<Duration> {
        Option::None
    }

    // What waited for a predecessor came late for nobody.
    fn keeps_late(&self) -> bool {
        true
    }
}
