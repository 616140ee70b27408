//! The end of a connection: closed here, closed by the peer, or lost.

use super::{Phase, codes};
use crate::connection::Connection;
use crate::connection::packet::{Packet, Reason};
use crate::connection::parts::emit_report;
use crate::connection::send::outbound::Outbound;
use crate::connection::watch::trace::FrameKinds;
use crate::event::{CloseReason, Event};
use core::time::Duration;
use uts_functions::Time;
use uts_wire::frame::{self, Frame};

/// A closing connection answers at most this often to what still arrives (RFC 9000 section 10.2.1).
const CLOSES_MAX: u32 = 8;

/// Most bytes of acknowledgement in a packet that closes the connection.
const LAST_REPORT_BYTES_MAX: usize = 512;

/// The most that such a packet has, where little was received.
const CLOSE_BYTES_MAX: usize = CLOSE_AROUND_BYTES + frame::MAX_REASON_BYTES;

/// Other bytes of such a packet, beside the words: header, tag, and the frame's own fields.
const CLOSE_AROUND_BYTES: usize = 64;

impl Connection {
    /// A packet for a connection that this end has closed: the peer has perhaps not heard. (P-60)
    pub(in crate::connection) fn repeat_close(&mut self) {
        if let Some(handshake) = self.establishing.handshake.as_mut().filter(|h| h.is_done()) {
            handshake.repeat();
        }
        if let Phase::Closing { until, said, .. } = self.life.phase
            && said < CLOSES_MAX
        {
            self.life.phase = Phase::Closing { until, said, due: true };
        }
    }

    /// The peer has lost all state.
    pub(crate) fn on_stateless_reset(&mut self, now: Time) {
        if self.life.phase == Phase::Open {
            self.drain(now, CloseReason::Reset);
        }
    }

    pub(in crate::connection) fn write_close(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        let before = out.len();
        if self.establishing.handshake.as_ref().is_some_and(|h| self.ways.outbound.is_none() || !h.is_done())
        {
            self.write_handshake(now, out);
            return (out.len() > before).then(|| out.len() - before);
        }
        // The client's last flight, without which the server cannot know who closes. The rest of
        // the datagram is for the close.
        if self.poll_handshake(now, out).is_some()
            && out.len() - before + CLOSE_BYTES_MAX > self.parts.size.current()
        {
            self.say_close_again();
            return Some(out.len() - before);
        }
        let (code, reason) = match self.close_reason() {
            Some(CloseReason::Local { code, reason }) => (*code, reason.clone()),
            Some(other) => (codes::TRANSPORT, other.to_string()),
            None => (0, String::new()),
        };
        self.write_close_packet(now, code, &reason, out);
        (out.len() > before).then(|| out.len() - before)
    }

    /// The packet that says that the connection is closed is still to leave.
    fn say_close_again(&mut self) {
        if let Phase::Closing { until, said, .. } = self.life.phase {
            self.life.phase = Phase::Closing { until, said: said.saturating_sub(1), due: true };
        }
    }

    /// Builds the packet that says that the connection is closed.
    fn write_close_packet(&mut self, now: Time, code: u64, reason: &str, out: &mut Vec<u8>) -> Option<usize> {
        let mut frames = Vec::new();
        // The peer, who hears nothing more, is not to be in doubt about what has arrived.
        if let Some(inbound) = &mut self.ways.inbound {
            let room = self.parts.size.current().saturating_sub(reason.len() + CLOSE_AROUND_BYTES);
            inbound.arrivals.let_go(|_| true);
            emit_report(&mut inbound.arrivals, now, room.min(LAST_REPORT_BYTES_MAX), &mut frames);
        }
        Frame::Close(frame::Close { code, reason }).emit(&mut frames);
        self.write_alone(now, &frames, out)
    }

    /// A packet that carries just these frames, right or wrong: what a broken or hostile peer could
    /// send.
    #[doc(hidden)]
    pub fn packet_of(&mut self, now: Time, frames: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.write_alone(now, frames, &mut out)?;
        Some(out)
    }

    /// Builds a packet of these frames under group 0's epoch, as the peer is known to read it,
    /// whatever the window says.
    pub(in crate::connection) fn write_alone(
        &mut self,
        now: Time,
        frames: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        self.wake(now);
        let outbound = self.ways.outbound.as_ref()?;
        let index = outbound.plain_stack_index()?;
        let start = out.len();
        let number = outbound.ledger.next_number();
        let mark = outbound.emit_header(&outbound.stacks[index], self.identity.peer_cid, number, out);
        out.extend_from_slice(frames);
        let end = out.len();
        let mut packet = Packet::new(out, now, Reason::Report, (index, mark), end);
        packet.number = number;
        self.ways.protect(&mut packet, &self.identity.peer_cid);
        self.record(packet, FrameKinds::default());
        Some(out.len() - start)
    }

    /// Closes the connection; what was not delivered is lost. (F-13)
    pub fn close(&mut self, now: Time, code: u64, reason: &str) {
        if self.life.close_reason.is_none() {
            let mut end = reason.len().min(frame::MAX_REASON_BYTES);
            while !reason.is_char_boundary(end) {
                end -= 1;
            }
            let reason = reason[..end].to_owned();
            if let Some(handshake) =
                self.establishing.handshake.as_mut().filter(|_| self.life.phase == Phase::Handshake)
            {
                handshake.close = Some((codes::ENDED, reason.clone()));
            }
            self.close_with(now, CloseReason::Local { code, reason });
        }
    }

    /// Closes a connection that this end does not take, for this reason. The peer, which has shown
    /// its address and its key, hears it as [`CloseReason::Refused`].
    pub fn refuse(&mut self, now: Time, why: &str) {
        self.close(now, codes::TRANSPORT, why);
    }

    /// Closes a connection whose place others need. Its peer is told once, if it has shown to be at
    /// its address, and then nothing is kept of it.
    pub(crate) fn give_up(&mut self, now: Time, why: &str) {
        if self.life.phase == Phase::Handshake && !self.establishing.address_proved {
            self.life.phase = Phase::Over;
            self.end(CloseReason::Local { code: codes::TRANSPORT, reason: why.to_owned() });
            return;
        }
        self.refuse(now, why);
        if let Phase::Closing { until, .. } = &mut self.life.phase {
            *until = now;
        }
    }

    /// The peer broke the protocol.
    pub(in crate::connection) fn fail(&mut self, reason: CloseReason) {
        let now = self.life.last_heard_at;
        self.close_with(now, reason);
    }

    pub(in crate::connection) fn close_with(&mut self, now: Time, reason: CloseReason) {
        if self.life.close_reason.is_some() {
            return;
        }
        // In the handshake, long enough to answer what the peer repeats after its first time-out.
        let pto = self.ways.outbound.as_ref().map_or(Duration::from_secs(1), Outbound::probe_timeout);
        self.life.phase = Phase::Closing { until: now + pto * 3, said: 0, due: true };
        self.end(reason);
    }

    pub(in crate::connection) fn on_peer_close(&mut self, now: Time, code: u64, reason: &str) {
        let reason = if code == codes::TRANSPORT {
            CloseReason::Refused(reason.to_owned())
        } else {
            CloseReason::Peer { code, reason: reason.to_owned() }
        };
        self.drain(now, reason);
    }

    pub(in crate::connection) fn drain(&mut self, now: Time, reason: CloseReason) {
        let pto = self.ways.outbound.as_ref().map_or(Duration::ZERO, Outbound::probe_timeout);
        if !matches!(self.life.phase, Phase::Over | Phase::Draining { .. }) {
            self.life.phase = Phase::Draining { until: now + pto * 3 };
        }
        self.end(reason);
    }

    pub(in crate::connection) fn end(&mut self, reason: CloseReason) {
        if self.life.close_reason.is_none() {
            self.life.close_reason = Some(Box::new(reason.clone()));
            self.ways.events.push_back(Event::Closed(reason));
        }
    }
}
