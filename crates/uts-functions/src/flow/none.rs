//! No flow control: the receiver takes whatever comes, or drops what it cannot hold.

use super::{FlowControl, Grant};
use crate::mechanism::{Consent, Mechanism, Params};
use crate::profile::Function;
use crate::time::Time;
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct None;

impl None {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Flow,
        number: 0,
        name: "none",
        what: "the receiver takes what comes",
        mandatory: true,
        consent: Consent::OfBoth,
        params: &[],
        needs: &[],
        predict: |_, _, _| {},
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        None
    }
}

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
