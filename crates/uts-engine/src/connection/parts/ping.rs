//! A ping asks for an acknowledgement where nothing else in the packet does: a probe, or a question
//! whether the peer is there.

use super::super::Ways;
use super::super::packet::{Packet, Reason};
use super::{Interest, Part};
use uts_wire::frame::Frame;

/// Wish to hear of the peer.
#[derive(Debug, Default)]
pub(crate) struct Ping {
    /// Some packet is to be sent that the peer acknowledges.
    pub is_wanted: bool,
}

impl Part for Ping {
    fn interest(&self, _ways: &Ways) -> Interest {
        Interest::frames_if(self.is_wanted)
    }

    fn write(&mut self, packet: &mut Packet<'_>, _ways: &mut Ways) {
        if (packet.reason == Reason::Probe || self.is_wanted) && !packet.eliciting {
            packet.put(&Frame::Ping);
        }
        // Whatever elicits an acknowledgement will do.
        self.is_wanted &= !packet.eliciting;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::*;

    #[test]
    fn a_ping_is_sent_only_where_nothing_else_asks_for_an_acknowledgement() {
        let (mut ping, mut ways) = (Ping { is_wanted: true }, testing::ways());
        let frames = testing::written(&mut ways, 100, |packet, ways| ping.write(packet, ways));
        assert!(matches!(frames[..], [Frame::Ping]) && !ping.is_wanted);
        ping.is_wanted = true;
        let frames = testing::written(&mut ways, 100, |packet, ways| {
            packet.put(&Frame::PathResponse(1));
            ping.write(packet, ways);
        });
        assert!(matches!(frames[..], [Frame::PathResponse(1)]) && !ping.is_wanted);
    }
}
