//! Packet groups: so many packets leave, and the next when all of them are acknowledged (VMTP, RFC
//! 1045 section 2.8: groups of up to 32).

use super::credit::Credit;
use super::sending::{LOOKS, one_in_a_round_trip};
use super::{Allowed, FlowControl, Grant, Outstanding};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Mechanism, Param, Params, Unit};
use crate::time::Time;
use core::time::Duration;

/// See the module's page. The receiver grants credit besides, so that it is not overrun.
#[derive(Clone, Debug)]
pub struct PacketGroup {
    packets: u32,
    /// In a box, so that the slot is not larger for it.
    receiver: Box<Credit>,
}

impl PacketGroup {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Flow,
        number: 5,
        name: "packet-group",
        what: "packets go in groups, each when all of the one before is acknowledged",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "packets",
            unit: Unit::Packets,
            default: 32,
            min: 1,
            max: 4096,
            bold: Bold::Neither,
            what: "packets of a group",
        }],
        needs: &[],
        facts: LOOKS,
        predict: |params, facts, p| {
            // A group for each round trip.
            let window = f64::from(params.get(0).max(1));
            one_in_a_round_trip(window, facts, p);
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        PacketGroup { packets: params.get(0), receiver: Box::new(Credit::by_default()) }
    }
}

impl FlowControl for PacketGroup {
    fn window_bytes(&self) -> u64 {
        self.receiver.window_bytes()
    }

    fn allows(&self, limit: u64, flow: &Outstanding) -> Allowed {
        // flow.md R-17.
        if flow.in_group < self.packets { Allowed::To(limit) } else { flow.nothing_new() }
    }

    fn on_consumed(&mut self, state: &mut Grant, now: Time, rtt: Duration) -> Option<u64> {
        self.receiver.on_consumed(state, now, rtt)
    }
}
