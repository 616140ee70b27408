//! Packets whose end came damaged, where their sender allows that and this end takes it
//! (detection.md ).

use crate::bug::bug;
use crate::connection::receive::contents::{Contents, Frames};
use crate::connection::receive::inbound::Arrived;
use crate::connection::stage::Open;
use uts_wire::frame::{Data, Frame, FrameIter};

impl Open {
    /// Takes in a packet of which only the first `right_bytes` are as they were sent, if the rest
    /// is the end of a message and this end wants such messages. If not, it counts as lost.
    pub(in crate::connection) fn take_in_damaged(
        &mut self,
        at: &Arrived,
        payload: &[u8],
        right_bytes: usize,
    ) {
        let tail =
            damaged_end(payload, right_bytes).filter(|(data, right)| self.takes(at.epoch, data, *right));
        let mut frames = Frames::new(payload);
        let Some((data, right_bytes)) = tail.filter(|_| frames.read()) else {
            self.ways.stats.dropped_malformed += 1;
            return;
        };
        let contents = Contents::Frames(&frames);
        let receive = self.ways.flows.get(data.flow).map(|flow| &flow.receive.data);
        if receive.is_some_and(|data| data.is_full_of_damage())
            || self.ways.overruns(at.epoch, &contents)
            || self.ways.lacks_memory(at.epoch, &contents)
        {
            self.ways.stats.dropped_overrun += 1;
            return;
        }
        self.on_authentic(at.now);
        if self.ways.refuses(at, &contents) {
            return;
        }
        let arrival = self.ways.on_arrival(at, contents.seen(), payload.len() as u64);
        if arrival.is_none() {
            bug!("epoch {} of a damaged packet is gone", at.epoch);
            return;
        }
        self.on_packet_of_epoch(at.now, at.epoch, at.is_enclosed);
        self.ways.stats.packets_damaged += 1;
        let handled = frames.try_for_each(|frame| match frame {
            Frame::Data(found) if core::ptr::eq(found.bytes, data.bytes) => {
                let Some(placed) = self.ways.place(at.epoch, data.flow)? else { return Ok(()) };
                self.ways.insert_data(at, placed, found, Some(right_bytes))
            }
            frame => self.handle_frame(at, frame),
        });
        match handled {
            Ok(()) => self.ways.hold_back(at, &contents),
            Err(reason) => self.fail(reason),
        }
    }

    /// True if a part of a message that came under a stack is taken with so many right bytes: the
    /// stack lets damage through, and all that this end asks to be right is (`recvChecksumLen`).
    fn takes(&self, epoch: u32, data: &Data<'_>, right_bytes: u64) -> bool {
        let stack = self.ways.inbound.stack(epoch);
        let is_let_through = stack.is_some_and(|stack| stack.layout.tolerates && stack.layout.offsets);
        let Some(least) = self.ways.config.requirements.recv_checksum_len.filter(|_| is_let_through) else {
            return false;
        };
        // Of a part that comes before the parts in front of it, the place in the message is not
        // known.
        let place = || match data.offset {
            _ if data.flags.begin => Some(0),
            Some(offset) => self.ways.flows.get(data.flow)?.receive.data.place_in_message(offset),
            None => None,
        };
        least == 0 || place().is_some_and(|place| place.saturating_add(right_bytes) >= u64::from(least))
    }
}

/// The data that ends a packet, and how many of its bytes are right, if nothing else is damaged: a
/// part of a message that runs to the packet's end and travels as it is.
fn damaged_end(payload: &[u8], right_bytes: usize) -> Option<(Data<'_>, u64)> {
    // What follows from damaged bytes, if they are read as frames, has no part in this.
    let Frame::Data(data) = FrameIter::new(payload).last()?.ok()? else { return None };
    let right_bytes = right_bytes.checked_sub(payload.len().checked_sub(data.bytes.len())?)?;
    let is_plain = data.flags.message && !data.flags.presented && !data.has_len;
    is_plain.then_some((data, right_bytes as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_wire::frame::DataFlags;

    fn packet(has_len: bool, presented: bool) -> Vec<u8> {
        let flags = DataFlags { message: true, begin: true, end: true, presented, ..DataFlags::default() };
        let data = Data { flow: 2, offset: Some(7), flags, has_len, bytes: b"a voice" };
        let mut out = Vec::new();
        Frame::Ping.emit(&mut out);
        Frame::Data(data).emit(&mut out);
        out
    }

    #[test]
    fn only_the_end_of_a_message_may_be_damaged() {
        let whole = packet(false, false);
        let begin = whole.len() - b"a voice".len();
        let right = |packet: &[u8], bytes| damaged_end(packet, bytes).map(|(_, right)| right);
        assert_eq!(right(&whole, begin), Some(0));
        assert_eq!(right(&whole, begin + 3), Some(3));
        assert_eq!(right(&whole, begin - 1), None, "the frame's header is damaged");
        // Behind what has a length, something may stand; what was presented cannot be read.
        for other in [packet(true, false), packet(false, true)] {
            assert_eq!(right(&other, other.len() - 2), None);
        }
        let mut ping = Vec::new();
        Frame::Ping.emit(&mut ping);
        assert_eq!(right(&ping, 0), None);
        assert_eq!(right(&[], 0), None);
    }
}
