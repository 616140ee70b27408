//! No flow control: the receiver takes whatever comes, or drops what it cannot hold.

use super::{FlowControl, Grant};
use crate::macros::inert;
use crate::mechanism::Consent;
use crate::time::Time;
use core::time::Duration;

inert!(
    Flow,
    "the receiver takes what comes",
    context: (),
    consent: Consent::OfBoth,
);

impl FlowControl for None {
    fn window_bytes(&self) -> u64 {
        u64::MAX
    }

    fn send_limit(&self, _: u64) -> u64 {
        u64::MAX
    }

    fn on_consumed(&mut self, _: &mut Grant, _: Time, _: Duration) -> Option<u64> {
        Option::None
    }
}
