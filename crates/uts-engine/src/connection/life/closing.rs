//! The end of a connection: closed here, closed by the peer, or lost.

use super::{Phase, codes};
use crate::connection::packet::{Packet, Reason};
use crate::connection::parts::emit_report;
use crate::connection::stage::{Core, Fresh, Open, Stage};
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

/// State of the word that this end has closed the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::connection) struct Closing {
    /// When nothing of the connection is left.
    pub until: Time,
    /// Packets that have said it.
    said: u32,
    /// One is to be sent.
    pub due: bool,
}

impl Closing {
    /// The peer is to be told, and hears of it until then.
    fn new(until: Time) -> Self {
        Closing { until, said: 0, due: true }
    }

    /// Something has arrived: the peer has perhaps not heard. It is told at most [`CLOSES_MAX`]
    /// times.
    fn repeat(&mut self) {
        self.due |= self.said < CLOSES_MAX;
    }

    /// Says whether a packet is to be sent that says it. It counts as sent.
    fn take_due(&mut self) -> bool {
        let is_due = core::mem::take(&mut self.due);
        self.said += u32::from(is_due);
        is_due
    }

    /// The packet that was taken as sent had no room: it is still to be sent.
    fn give_back(&mut self) {
        (self.said, self.due) = (self.said.saturating_sub(1), true);
    }
}

impl<S: Stage> Core<S> {
    /// A packet for a connection that this end has closed: the peer has perhaps not heard. (P-60)
    pub(in crate::connection) fn repeat_close(&mut self) {
        if let Some(handshake) = self.establishing.handshake.as_mut().filter(|h| h.is_done()) {
            handshake.repeat();
        }
        if let Some(closing) = self.life.closing() {
            closing.repeat();
        }
    }

    /// Builds the datagram that tells the peer that the connection has ended, if one is due. Says
    /// its bytes.
    pub(in crate::connection) fn poll_close(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        if !self.life.closing()?.take_due() {
            return None;
        }
        let written = S::write_close(self, now, out);
        self.life.look_whether_over(now);
        written
    }

    pub(in crate::connection) fn close(&mut self, now: Time, code: u64, reason: &str) {
        if !self.life.is_live() {
            return;
        }
        let mut end = reason.len().min(frame::MAX_REASON_BYTES);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        let reason = reason[..end].to_owned();
        if let Some(handshake) = self.establishing.handshake.as_mut().filter(|h| !h.is_done()) {
            handshake.close = Some((codes::ENDED, reason.clone()));
        }
        self.close_with(now, CloseReason::Local { code, reason });
    }

    pub(in crate::connection) fn refuse(&mut self, now: Time, why: &str) {
        self.close(now, codes::TRANSPORT, why);
    }

    /// Closes the connection, whose place others need. Nothing is kept of it once the peer was
    /// told.
    pub(in crate::connection) fn give_up(&mut self, now: Time, why: &str) {
        self.refuse(now, why);
        if let Some(closing) = self.life.closing() {
            closing.until = now;
        }
    }

    /// The peer broke the protocol.
    pub(in crate::connection) fn fail(&mut self, reason: CloseReason) {
        let now = self.life.last_heard_at;
        self.close_with(now, reason);
    }

    pub(in crate::connection) fn close_with(&mut self, now: Time, reason: CloseReason) {
        if !self.life.is_live() {
            return;
        }
        // In the handshake, long enough to answer what the peer repeats after its first time-out.
        let pto = S::probe_timeout(self).unwrap_or(Duration::from_secs(1));
        self.life.phase = Phase::Closing(Closing::new(now + pto * 3));
        self.end(reason);
    }

    pub(in crate::connection) fn drain(&mut self, now: Time, reason: CloseReason) {
        let pto = S::probe_timeout(self).unwrap_or(Duration::ZERO);
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

impl Fresh {
    /// Ends the connection, whose place others need, without a word: the peer has not shown to be
    /// at its address.
    pub(in crate::connection) fn give_up_silently(&mut self, why: &str) {
        self.life.phase = Phase::Over;
        self.end(CloseReason::Local { code: codes::TRANSPORT, reason: why.to_owned() });
    }
}

impl Open {
    /// The peer has lost all state.
    pub(in crate::connection) fn on_stateless_reset(&mut self, now: Time) {
        if self.life.is_live() {
            self.drain(now, CloseReason::Reset);
        }
    }

    pub(in crate::connection) fn on_peer_close(&mut self, now: Time, code: u64, reason: &str) {
        let reason = if code == codes::TRANSPORT {
            CloseReason::Refused(reason.to_owned())
        } else {
            CloseReason::Peer { code, reason: reason.to_owned() }
        };
        self.drain(now, reason);
    }

    pub(in crate::connection) fn write_close(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        let before = out.len();
        // The client's last flight, without which the server cannot know who closes. The rest of
        // the datagram is for the close.
        if self.poll_handshake(now, out).is_some()
            && out.len() - before + CLOSE_BYTES_MAX > self.parts.size.current()
        {
            if let Some(closing) = self.life.closing() {
                closing.give_back();
            }
            return Some(out.len() - before);
        }
        let (code, reason) = match self.life.close_reason.as_deref() {
            Some(CloseReason::Local { code, reason }) => (*code, reason.clone()),
            Some(other) => (codes::TRANSPORT, other.to_string()),
            None => (0, String::new()),
        };
        self.write_close_packet(now, code, &reason, out);
        (out.len() > before).then(|| out.len() - before)
    }

    /// Builds the packet that says that the connection is closed.
    fn write_close_packet(&mut self, now: Time, code: u64, reason: &str, out: &mut Vec<u8>) -> Option<usize> {
        let mut frames = Vec::new();
        // The peer, who hears nothing more, is not to be in doubt about what has arrived.
        let arrivals = &mut self.ways.inbound.arrivals;
        let room = self.parts.size.current().saturating_sub(reason.len() + CLOSE_AROUND_BYTES);
        arrivals.let_go(|_| true);
        emit_report(arrivals, now, room.min(LAST_REPORT_BYTES_MAX), &mut frames);
        Frame::Close(frame::Close { code, reason }).emit(&mut frames);
        self.write_alone(now, &frames, out)
    }

    pub(in crate::connection) fn packet_of(&mut self, now: Time, frames: &[u8]) -> Option<Vec<u8>> {
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
        let outbound = &self.ways.outbound;
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
}
