//! A fixed window of packets: Rx has 15 of them, HDLC 7.

use super::credit::Credit;
use super::sending::{LOOKS, one_in_a_round_trip};
use super::{Allowed, FlowControl, Grant, Outstanding};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Mechanism, Param, Params, Unit};
use crate::time::Time;
use core::time::Duration;

/// See the module's page. The receiver grants credit besides, so that it is not overrun.
#[derive(Clone, Debug)]
pub struct FixedWindow {
    packets: u32,
    /// In a box, so that the slot is not larger for it.
    receiver: Box<Credit>,
}

impl FixedWindow {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Flow,
        number: 3,
        name: "fixed-window",
        what: "so many packets are outstanding, and each that is acknowledged lets one follow",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "packets",
            unit: Unit::Packets,
            default: 15,
            min: 1,
            max: 4096,
            bold: Bold::Neither,
            what: "packets outstanding at the most",
        }],
        needs: &[],
        facts: LOOKS,
        predict: |params, facts, p| {
            // A window for each round trip.
            let window = f64::from(params.get(0).max(1));
            one_in_a_round_trip(window, facts, p);
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        FixedWindow { packets: params.get(0), receiver: Box::new(Credit::by_default()) }
    }
}

impl FlowControl for FixedWindow {
    fn window_bytes(&self) -> u64 {
        self.receiver.window_bytes()
    }

    fn allows(&self, limit: u64, flow: &Outstanding) -> Allowed {
        // flow.md R-15.
        if flow.packets < self.packets { Allowed::To(limit) } else { flow.nothing_new() }
    }

    fn on_consumed(&mut self, state: &mut Grant, now: Time, rtt: Duration) -> Option<u64> {
        self.receiver.on_consumed(state, now, rtt)
    }
}
