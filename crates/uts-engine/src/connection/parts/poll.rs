//! A poll asks the peer to report at once, where the acknowledgement mechanism has it that the sender asks.

use super::super::Ways;
use super::super::packet::{Packet, Reason};
use super::Part;
use uts_functions::acknowledgement::Acknowledgement;
use uts_wire::frame::Frame;

/// When the peer was last asked.
#[derive(Debug, Default)]
pub(crate) struct Poll {
    /// Packets since, of those that elicit an acknowledgement.
    packets: u32,
}

impl Poll {
    /// More such packets have been sent, none with a poll.
    pub fn on_unpolled(&mut self, packets: u64) {
        self.packets = self.packets.saturating_add(u32::try_from(packets).unwrap_or(u32::MAX));
    }
}

impl Part for Poll {
    fn write(&mut self, packet: &mut Packet<'_>, ways: &mut Ways) {
        if !packet.eliciting || matches!(packet.reason, Reason::SizeProbe(_)) {
            return;
        }
        self.packets = self.packets.saturating_add(1);
        let has_more = ways.flows.wants_to_send();
        let Some(outbound) = &ways.outbound else { return };
        let Some(stack) = outbound.stacks.get(packet.stack) else { return };
        let asks_of_probe = packet.reason == Reason::Probe && stack.acknowledgement.poll(u32::MAX, true);
        let is_full = outbound.delivery.in_flight + 2 * packet.packet_bytes > outbound.window_bytes();
        let asks = asks_of_probe || stack.acknowledgement.poll(self.packets, !has_more || is_full);
        if asks && packet.left() > 0 {
            Frame::Poll.emit(packet.out);
            self.packets = 0;
        }
    }
}
