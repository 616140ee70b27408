//! Blast buffers: data leaves in units of so many bytes, the next when all of the one before is
//! acknowledged (W. Zwaenepoel, 1985; NETBLT, RFC 998).

use super::credit::Credit;
use super::sending::{LOOKS, one_in_a_round_trip};
use super::{Allowed, FlowControl, Grant, Outstanding};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Mechanism, Param, Params, Unit};
use crate::time::Time;
use core::time::Duration;

/// See the module's page. The receiver grants credit besides, so that it is not overrun.
#[derive(Clone, Debug)]
pub struct BlastBuffer {
    unit_bytes: u64,
    /// In a box, so that the slot is not larger for it.
    receiver: Box<Credit>,
}

impl BlastBuffer {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Flow,
        number: 6,
        name: "blast-buffer",
        what: "data goes in buffers, each when all of the one before is acknowledged",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "unit",
            unit: Unit::Bytes,
            default: 65_536,
            min: 1,
            max: 67_108_864,
            bold: Bold::Neither,
            what: "positions of a buffer",
        }],
        needs: &[],
        facts: LOOKS,
        predict: |params, facts, p| {
            // A buffer for each round trip.
            let window = (f64::from(params.get(0)) / facts.mtu_bytes.max(1) as f64).max(1.0);
            one_in_a_round_trip(window, facts, p);
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        BlastBuffer { unit_bytes: u64::from(params.get(0)), receiver: Box::new(Credit::by_default()) }
    }
}

impl FlowControl for BlastBuffer {
    fn window_bytes(&self) -> u64 {
        self.receiver.window_bytes()
    }

    fn allows(&self, limit: u64, flow: &Outstanding) -> Allowed {
        // flow.md R-18.
        let end = (flow.done_to / self.unit_bytes.max(1)).saturating_add(1).saturating_mul(self.unit_bytes);
        Allowed::To(limit.min(end))
    }

    fn on_consumed(&mut self, state: &mut Grant, now: Time, rtt: Duration) -> Option<u64> {
        self.receiver.on_consumed(state, now, rtt)
    }
}
