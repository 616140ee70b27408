//! Whole messages, many in a packet, on their way out and in: what holds for all of them is asked once, so that for each there
//! is nothing but what is its own.

use super::chunks::Written;
use super::contents::Frames;
use super::draft::{DATA_ROOM_MIN_BYTES, Draft, FULL_BUT};
use super::incoming::GAPS_MAX;
use super::{CloseReason, Connection};
use crate::synthesis::SendStack;
use smallvec::SmallVec;
use uts_functions::Time;
use uts_functions::flow::FlowControl as _;
use uts_functions::segmentation::buffer::UnsentMessages;
use uts_functions::sequencing::reassembly::Whole;
use uts_wire::Reader;
use uts_wire::frame::{Data, DataFlags, DataWriter, InRow, RowHead, RowReader, data_header_len, kind};
use uts_wire::varint::varint_len;

/// Whole messages of one flow that a packet consists of. They stand in a row.
#[derive(Default)]
pub(super) struct Messages {
    pub flow: u32,
    /// Position of the first, if they have positions.
    pub start: Option<u64>,
    list: SmallVec<[Whole; 16]>,
    pub data_bytes: u64,
}

impl Messages {
    /// Reads those of a payload. Says whether it could be read, and has nothing else.
    // On its own: within whoever asks, what it goes by would not stay in registers.
    #[inline(never)]
    pub fn read(&mut self, payload: &[u8]) -> bool {
        self.list.clear();
        let Some((first, _)) = Data::next_message(&mut Reader::new(payload)) else { return false };
        let (flow, start) = (first.flow, first.offset);
        let (mut data_bytes, mut next) = (0, start.unwrap_or(0));
        let mut at = 0;
        if let Some(mut row) = RowReader::new(payload) {
            let presented = row.head().presented();
            while let Some(InRow { offset, from, to }) = row.next_message() {
                if offset.is_some_and(|offset| offset != next) {
                    return false;
                }
                self.list.push(Whole { from, to, presented });
                let len = (to - from) as u64;
                data_bytes += len;
                next += len + 1;
            }
            at = row.end();
        }
        let left = payload.get(at..).unwrap_or_default();
        // P-21: nothing but padding may follow padding here.
        if at > 0 && left.iter().all(|byte| *byte == kind::PADDING) {
            (self.flow, self.start, self.data_bytes) = (flow, start, data_bytes);
            return true;
        }
        let mut r = Reader::at(left, at);
        while !r.is_empty() {
            let Some((data, from)) = Data::next_message(&mut r) else { return false };
            let is_placed = data.offset.is_some();
            if data.flow != flow || is_placed != start.is_some() || (is_placed && data.offset != Some(next)) {
                return false;
            }
            let len = data.bytes.len();
            self.list.push(Whole { from, to: from + len, presented: data.flags.presented });
            data_bytes += len as u64;
            next = next.saturating_add(len as u64 + 1);
        }
        (self.flow, self.start, self.data_bytes) = (flow, start, data_bytes);
        true
    }

    /// Where each lies in the payload.
    pub fn list(&self) -> &[Whole] {
        &self.list
    }

    /// Positions that they take: each ends with one.
    pub fn positions(&self) -> u64 {
        self.data_bytes + self.list.len() as u64
    }
}

impl Connection {
    /// Takes in the messages that a packet consists of.
    pub(super) fn on_messages(
        &mut self,
        now: Time,
        index: usize,
        messages: &Messages,
        payload: &[u8],
    ) -> Result<(), CloseReason> {
        let Some((counts, repeats)) = self.place(index, messages.flow)? else { return Ok(()) };
        if counts && messages.start.is_none() {
            // P-30: each of them is at the front of the flow.
            let mut frames = Frames::new(payload);
            return if frames.read() { self.handle_frames(now, index, &frames) } else { Ok(()) };
        }
        let Some(receive) = self.flows.get_mut(messages.flow).map(|flow| &mut flow.receive) else {
            return Ok(());
        };
        self.stats.data_bytes_received += messages.data_bytes;
        let (limit, packet, list) = (receive.limit(), receive.data.keep(payload), &messages.list);
        match messages.start {
            // No positions: handed over as they come.
            None => {
                let taken = receive.data.push_unplaced_messages(&packet, list);
                self.stats.dropped_overrun += (list.len() - taken) as u64;
            }
            Some(start) => {
                let new = receive.data.insert_messages(start, &packet, list, limit);
                let new =
                    new.map_err(|error| CloseReason::Protocol(format!("flow {}: {error}", messages.flow)))?;
                self.stats.data_bytes_repeated += messages.data_bytes.saturating_sub(new);
            }
        }
        if counts {
            if !repeats {
                receive.data.limit_gaps(GAPS_MAX);
            }
            self.consumed(now, messages.flow);
        }
        self.tell_reader(messages.flow);
        Ok(())
    }
}

/// Writes messages that are new and go into the packet whole, one behind the other, as long as it is the flow's turn. `None` if
/// what comes next is anything else.
#[allow(clippy::too_many_arguments, reason = "parts of a connection that are borrowed apart")]
pub(super) fn write_messages(
    flows: &mut super::flows::Flows,
    stack: &SendStack,
    flow: u32,
    end: usize,
    polls: bool,
    coalesce: bool,
    draft: &mut Draft,
    out: &mut Vec<u8>,
    stats: &mut super::Stats,
) -> Option<Written> {
    let send = &mut flows.get_mut(flow)?.send;
    let limit = stack.flow.send_limit(send.limit);
    // The first question, as it is asked of every frame of bytes too.
    if !send.buffer.may_have_messages() {
        return None;
    }
    let is_alone = !flows.others_want_to_send(flow, stack.group);
    let mut messages = flows.get_mut(flow)?.send.buffer.unsent_messages(limit)?;
    // A poll may follow, which takes a byte, and the frame before it then needs a length.
    let end = end.saturating_sub(usize::from(polls));
    let room_of_all = end.saturating_sub(draft.mark.payload_offset());
    let room_of_full = room_of_all + (draft.full_end - draft.end);
    let before = out.len();
    out.resize(end.max(before), 0);
    let mut room = DataWriter::new(out.get_mut(before..)?);
    let how = How {
        flow,
        offsets: stack.layout.offsets,
        polls,
        coalesce,
        is_alone,
        is_kept_whole: !stack.layout.repeats,
        is_next: draft.is_next,
        block_bytes: draft.block_bytes,
        room_of_all,
        room_of_full,
    };
    let filled = fill(&mut messages, &how, draft.has_data, &mut room);
    let left = room.left();
    out.truncate(out.len() - left);
    if out.len() > before {
        let (range, data_bytes) = messages.taken();
        (draft.has_data, draft.eliciting) = (true, true);
        draft.messages += filled.messages;
        (draft.is_open, draft.is_even, draft.is_steady) = (filled.is_open, filled.is_even, filled.is_steady);
        stats.data_bytes_sent += data_bytes as u64;
        draft.note_data(flow, range);
    }
    filled.written
}

/// What holds for all messages of a call.
pub(super) struct How {
    pub flow: u32,
    pub offsets: bool,
    /// A poll may follow.
    pub polls: bool,
    pub coalesce: bool,
    /// No other flow has something to send.
    pub is_alone: bool,
    /// segmentation.md R-13: no message is torn that fits into a packet of its own.
    pub is_kept_whole: bool,
    /// See [`Draft::is_next`].
    pub is_next: bool,
    /// See [`Draft::block_bytes`].
    pub block_bytes: usize,
    /// What this packet would hold without anything else.
    pub room_of_all: usize,
    /// What the longest packet would.
    pub room_of_full: usize,
}

/// What a room was filled with.
#[derive(Default)]
pub(super) struct Filled {
    /// What became of the last attempt; `None` if what comes next is anything else.
    pub written: Option<Written>,
    pub messages: usize,
    /// See [`Draft::is_open`].
    pub is_open: bool,
    /// See [`Draft::is_even`].
    pub is_even: bool,
    /// See [`Draft::is_steady`].
    pub is_steady: bool,
}

impl Filled {
    fn and(self, written: Option<Written>) -> Self {
        Filled { written, ..self }
    }
}

/// Fills the room with messages of one flow, as long as it is the flow's turn.
#[inline(never)]
pub(super) fn fill(
    messages: &mut UnsentMessages<'_>,
    how: &How,
    mut has_data: bool,
    out: &mut DataWriter<'_>,
) -> Filled {
    let How { flow, offsets, polls, coalesce, is_alone, is_kept_whole, room_of_all, room_of_full, .. } = *how;
    let is_as_good_as_full = |room: usize| room < room_of_all / FULL_BUT;
    // Whether a frame of so many bytes, for which there is not room enough, waits for the next packet.
    let waits = |bytes: usize, room: usize| {
        if is_kept_whole { bytes <= room_of_full } else { bytes <= room_of_all && is_as_good_as_full(room) }
    };
    let flow_bytes = data_header_len(flow, None, None);
    let mut filled = Filled::default();
    if coalesce && is_alone {
        filled.messages = fill_row(messages, flow, offsets, out);
        if filled.messages > 0 {
            (has_data, filled.is_open, filled.written) = (true, true, Some(Written::More));
        }
    }
    while let Some(message) = messages.front() {
        let len = message.data.len();
        let offset = offsets.then_some(message.start);
        let header_bytes = flow_bytes + offset.map_or(0, varint_len);
        let len_bytes = varint_len(len as u64);
        let room = out.left();
        let needed = header_bytes + len + if polls { len_bytes } else { 0 };
        if has_data && room < DATA_ROOM_MIN_BYTES {
            return filled.and(Some(Written::NoRoom));
        }
        let Some(spare) = room.checked_sub(needed) else {
            return if waits(needed, room) { filled.and(Some(Written::NoRoom)) } else { filled };
        };
        let has_more = message.has_more || !is_alone;
        let left = spare.saturating_sub(len_bytes);
        let torn = message.following.map(|next| header_bytes + next).filter(|next| *next > left);
        let ends = torn.is_some_and(|next| is_as_good_as_full(left) || waits(next, left));
        filled.is_steady = message.following == Some(len);
        filled.is_even = is_kept_whole && ends && filled.is_steady;
        let is_last = !coalesce || !has_more || left < DATA_ROOM_MIN_BYTES || ends;
        let may_be_padded = (how.is_next && has_more) || how.block_bytes > 1;
        let is_open = polls || ((!is_last || may_be_padded) && spare >= len_bytes);
        let flags = DataFlags {
            message: true,
            begin: true,
            end: true,
            presented: message.presented,
            ..DataFlags::default()
        };
        out.put(&Data { flow, offset, flags, has_len: is_open, bytes: message.data });
        messages.on_sent();
        filled.messages += 1;
        (has_data, filled.is_open) = (true, is_open);
        if is_last || !is_open {
            return filled.and(Some(Written::Last));
        }
        filled.written = Some(Written::More);
        if !is_alone {
            break;
        }
    }
    filled
}

/// Fills the room with messages of a flow as long as there is so much of it left that nothing has to be decided: one goes in with
/// its length, and so will the next. Says how many.
#[inline(always)]
fn fill_row(messages: &mut UnsentMessages<'_>, flow: u32, offsets: bool, out: &mut DataWriter<'_>) -> usize {
    const AROUND_BYTES: usize = DataWriter::ROW_HEAD_MAX_BYTES;
    let Some(presented) = messages.front().map(|message| message.presented) else { return 0 };
    let Some(head) = RowHead::new(flow, offsets, presented) else { return 0 };
    messages.send_row(presented, |start, data, next| {
        let needed = data.len().saturating_add(next).saturating_add(2 * AROUND_BYTES + DATA_ROOM_MIN_BYTES);
        out.left() >= needed && out.put_in_row(head, start, data).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(frames: &[(u32, Option<u64>, &str)]) -> Vec<u8> {
        let flags = DataFlags { message: true, begin: true, end: true, ..DataFlags::default() };
        let mut payload = Vec::new();
        for (flow, offset, text) in frames {
            let (flow, offset, bytes) = (*flow, *offset, text.as_bytes());
            Data { flow, offset, flags, has_len: true, bytes }.emit(&mut payload);
        }
        payload
    }

    #[test]
    fn messages_of_a_packet_are_of_one_flow_and_stand_in_a_row() {
        let first = (4, Some(70), "one");
        let whole = payload(&[first, (4, Some(74), "three")]);
        let read = |payload: &[u8]| {
            let mut messages = Messages::default();
            messages.read(payload).then_some(messages)
        };
        let messages = read(&whole).expect("two");
        assert_eq!((messages.flow, messages.start, messages.data_bytes), (4, Some(70), 8));
        assert_eq!(messages.positions(), 10);
        let texts: Vec<_> = messages.list.iter().map(|m| &whole[m.from..m.to]).collect();
        assert_eq!(texts, [&b"one"[..], b"three"]);
        let free = payload(&[(4, None, "one"), (4, None, "three")]);
        assert_eq!(read(&free).map(|m| (m.start, m.list.len())), Some((None, 2)));
        // Of another flow, apart, repeated, without a position, cut off: these are read frame by frame.
        for other in [(6, Some(74), "x"), (4, Some(75), "x"), (4, Some(70), "one"), (4, None, "x")] {
            assert!(read(&payload(&[first, other])).is_none(), "{other:?}");
        }
        assert!(read(&whole[..whole.len() - 1]).is_none());
        assert!(read(&[]).is_none());
        // Padding may follow, short or long, and nothing behind that.
        for zeros in [1, 2, 7, 8, 20] {
            let mut padded = [whole.as_slice(), &vec![0; zeros]].concat();
            assert_eq!(read(&padded).map(|m| (m.positions(), m.list.len())), Some((10, 2)), "{zeros} zeros");
            padded.extend_from_slice(&payload(&[(4, Some(80), "x")]));
            assert!(read(&padded).is_none(), "{zeros} zeros");
            assert!(read(&padded[whole.len()..]).is_none(), "{zeros} zeros");
        }
    }
}
