//! Stop-and-wait: one packet of a flow is outstanding at a time (the alternating bit; TFTP, RFC
//! 1350).

use super::credit::Credit;
use super::sending::{LOOKS, one_in_a_round_trip};
use super::{Allowed, FlowControl, Grant, Outstanding};
use crate::function::Function;
use crate::mechanism::{Consent, Mechanism, Params};
use crate::time::Time;
use core::time::Duration;

/// See the module's page. The receiver grants credit besides, so that it is not overrun.
#[derive(Clone, Debug)]
pub struct StopAndWait {
    /// In a box, so that the slot is not larger for it.
    receiver: Box<Credit>,
}

impl StopAndWait {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Flow,
        number: 2,
        name: "stop-and-wait",
        what: "one packet is outstanding; the next waits for its acknowledgement",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: LOOKS,
        predict: |_, facts, p| {
            // A window for each round trip.
            let window = 1.0;
            one_in_a_round_trip(window, facts, p);
        },
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        StopAndWait { receiver: Box::new(Credit::by_default()) }
    }
}

impl FlowControl for StopAndWait {
    fn window_bytes(&self) -> u64 {
        self.receiver.window_bytes()
    }

    fn allows(&self, limit: u64, flow: &Outstanding) -> Allowed {
        // flow.md R-14.
        if flow.packets == 0 { Allowed::To(limit) } else { flow.nothing_new() }
    }

    fn on_consumed(&mut self, state: &mut Grant, now: Time, rtt: Duration) -> Option<u64> {
        self.receiver.on_consumed(state, now, rtt)
    }
}
