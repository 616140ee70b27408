//! Redundancy that waits to be sent: each packet takes one symbol, under the epoch whose data it repairs.

use super::super::Ways;
use super::super::packet::Packet;
use super::{Interest, Part};
use crate::synthesis::{SendStack, repair_frame};
use uts_functions::Time;
use uts_wire::frame::Frame;

/// What is made of data by FEC. The stacks have it.
#[derive(Debug)]
pub(crate) struct Repairs;

/// Whether redundancy of this epoch waits.
pub(in crate::connection) fn has_repair(stack: &SendStack) -> bool {
    stack.fec.as_ref().is_some_and(|fec| fec.has_repair())
}

impl Repairs {
    /// Whether any redundancy waits.
    pub fn wait(&self, ways: &Ways) -> bool {
        ways.outbound.as_ref().is_some_and(|outbound| outbound.stacks.iter().any(has_repair))
    }
}

impl Part for Repairs {
    fn interest(&self, ways: &Ways) -> Interest {
        Interest::frames_if(self.wait(ways))
    }

    fn write(&mut self, packet: &mut Packet<'_>, ways: &mut Ways) {
        let stack = ways.outbound.as_mut().and_then(|outbound| outbound.stacks.get_mut(packet.stack));
        let Some(fec) = stack.and_then(|stack| stack.fec.as_mut()) else { return };
        while let Some(repair) = fec.next_repair() {
            let frame = Frame::Repair(repair_frame(repair));
            let len = frame.encoded_len();
            if packet.put_if_it_fits(&frame) {
                fec.pop_repair();
                ways.stats.repairs_sent += 1;
                return;
            }
            if packet.mark.payload_offset() + len <= packet.full_end {
                return;
            }
            // Packets have become smaller since its block was begun: it fits into none.
            fec.pop_repair();
        }
    }

    /// When a block under way is closed, though it is not full.
    fn timeout(&self, ways: &Ways) -> Option<Time> {
        let stacks = ways.outbound.iter().flat_map(|outbound| &outbound.stacks);
        stacks.filter_map(|stack| stack.fec.as_ref()?.deadline()).min()
    }

    fn on_timeout(&mut self, now: Time, ways: &mut Ways) {
        let stacks = ways.outbound.iter_mut().flat_map(|outbound| &mut outbound.stacks);
        for fec in stacks.filter_map(|stack| stack.fec.as_mut()) {
            if fec.deadline().is_some_and(|at| at <= now) {
                fec.on_flush(now);
            }
        }
    }
}
