//! Whole messages, many in a packet, on their way out: what holds for all of them is asked once, so
//! that for each there is nothing but what is its own.

use super::super::super::packet::{DATA_ROOM_MIN_BYTES, FULL_BUT, Shape};
use super::{Cargo, Written};
use uts_functions::segmentation::buffer::{Together, UnsentMessages};
use uts_wire::frame::{
    self, Data, DataFlags, DataWriter, RowHead, data_header_len, emit_messages_header, messages_header_len,
};
use uts_wire::varint::varint_len;

impl Cargo<'_, '_> {
    /// Writes messages that are new and go into the packet whole, one behind the other, as long as
    /// it is the flow's turn. `None` if what comes next is anything else.
    pub(super) fn write_messages(&mut self) -> Option<Written> {
        let Cargo { flows, stack, gate, flow, polls, coalesce, .. } = self;
        let gate = *gate;
        let (flow, polls, coalesce) = (*flow, *polls, *coalesce);
        let spare = flows.outgoing.spare();
        let send = &mut flows.get_mut(flow)?.send;
        if stack.layout.orders || stack.layout.times || stack.layout.tolerates {
            return None;
        }
        let limit = gate.limit(send).min(send.within(spare));
        // The first question, as it is asked of every frame of bytes too.
        if !send.buffer.may_have_messages() {
            return None;
        }
        let (is_alone, together) = (!flows.others_want_to_send(flow, stack.group), flows.peer_reads_messages);
        let mut messages = flows.get_mut(flow)?.send.buffer.unsent_messages(limit)?;
        let packet = &mut *self.packet;
        // A poll may follow, which takes a byte, and the frame before it then needs a length.
        let end = self.end.saturating_sub(usize::from(polls));
        let room_of_all = end.saturating_sub(packet.mark.payload_offset());
        let before = packet.out.len();
        let how = How {
            flow,
            offsets: stack.layout.offsets,
            polls,
            coalesce,
            is_alone,
            is_kept_whole: !stack.layout.repeats,
            is_next: packet.is_next,
            together,
            room_of_all,
            room_of_full: room_of_all + (packet.full_end - packet.end),
        };
        let filled = append_whole(&mut messages, &how, packet.shape.has_data, end.max(before), packet.out);
        if packet.out.len() > before {
            let (range, data_bytes) = messages.taken();
            packet.eliciting = true;
            packet.shape = Shape {
                has_data: true,
                messages: packet.shape.messages + filled.messages,
                is_open: filled.is_open,
                is_even: filled.is_even,
                is_steady: filled.is_steady,
                ..packet.shape
            };
            packet.note_data(flow, range);
            self.stats.data_bytes_sent += data_bytes as u64;
            if let Some(send) = self.flows.get_mut(flow).map(|f| &mut f.send) {
                gate.on_sent(send);
            }
        }
        filled.written
    }
}

/// Terms for all messages of a call.
pub(in crate::connection) struct How {
    pub flow: u32,
    pub offsets: bool,
    /// A poll may follow.
    pub polls: bool,
    pub coalesce: bool,
    /// No other flow has something to send.
    pub is_alone: bool,
    /// segmentation.md R-13: no message is torn that fits into a packet of its own.
    pub is_kept_whole: bool,
    /// See [`Packet::is_next`](crate::connection::packet::Packet::is_next).
    pub is_next: bool,
    /// Messages of one length may go in a frame together.
    pub together: bool,
    /// Bytes that this packet would hold without anything else.
    pub room_of_all: usize,
    /// Bytes that the longest packet would hold without anything else.
    pub room_of_full: usize,
}

/// Outcome of filling a room with messages.
#[derive(Default)]
pub(in crate::connection) struct Filled {
    /// Outcome of the last attempt; `None` if what comes next is anything else.
    pub written: Option<Written>,
    pub messages: usize,
    /// See [`Shape::is_open`].
    pub is_open: bool,
    /// See [`Shape::is_even`].
    pub is_even: bool,
    /// See [`Shape::is_steady`].
    pub is_steady: bool,
}

impl Filled {
    fn and(self, written: Option<Written>) -> Self {
        Filled { written, ..self }
    }
}

/// Appends messages of one flow up to `end`, as long as it is the flow's turn.
#[inline]
pub(in crate::connection) fn append_whole(
    messages: &mut UnsentMessages<'_>,
    how: &How,
    has_data: bool,
    end: usize,
    out: &mut Vec<u8>,
) -> Filled {
    if let Some(filled) = append_even(messages, how, end.saturating_sub(out.len()), out) {
        return filled;
    }
    let before = out.len();
    out.resize(end.max(before), 0);
    let Some(room) = out.get_mut(before..) else { return Filled::default() };
    let mut room = DataWriter::new(room);
    let filled = fill(messages, how, has_data, &mut room);
    let left = room.left();
    out.truncate(out.len() - left);
    filled
}

/// Appends as many messages as there is room for, in one frame, if they are of one length and so is
/// one behind them, which then waits for the next packet, or none is: all that [`fill`] decides for
/// each follows from that (segmentation.md R-14).
#[inline]
fn append_even(
    messages: &mut UnsentMessages<'_>,
    how: &How,
    room: usize,
    out: &mut Vec<u8>,
) -> Option<Filled> {
    if !(how.together && how.coalesce && how.is_alone && how.is_kept_whole) {
        return None;
    }
    let (start, message_bytes) = messages.front().map(|message| (message.start, message.data.len()))?;
    let offset = how.offsets.then_some(start);
    let most = u32::try_from(room.checked_div(message_bytes)?).ok()?;
    let header_bytes = messages_header_len(how.flow, offset, most, message_bytes);
    let fitting = room.saturating_sub(header_bytes) / message_bytes;
    let alone_bytes = data_header_len(how.flow, offset, None) + message_bytes;
    if fitting < 2 || alone_bytes > how.room_of_full {
        return None;
    }
    let before = out.len();
    emit_messages_header(out, how.flow, offset, fitting as u32, message_bytes);
    let is_even = messages.send_even(fitting, |bytes| out.extend_from_slice(bytes));
    // The last are sent like those before them, or they would need more room.
    if !is_even && !messages.send_last_even(fitting, |bytes| out.extend_from_slice(bytes)) {
        out.truncate(before);
        return None;
    }
    let written = Some(Written::Last);
    Some(Filled { written, messages: fitting, is_open: true, is_even, is_steady: is_even })
}

/// Fills the room with messages of one flow, as long as it is the flow's turn.
#[inline(never)]
fn fill(
    messages: &mut UnsentMessages<'_>,
    how: &How,
    mut has_data: bool,
    out: &mut DataWriter<'_>,
) -> Filled {
    let How { flow, offsets, polls, coalesce, is_alone, is_kept_whole, room_of_all, room_of_full, .. } = *how;
    let is_as_good_as_full = |room: usize| room < room_of_all / FULL_BUT;
    // Whether a frame of so many bytes, for which there is not room enough, waits for the next
    // packet.
    let waits = |bytes: usize, room: usize| {
        if is_kept_whole { bytes <= room_of_full } else { bytes <= room_of_all && is_as_good_as_full(room) }
    };
    let flow_bytes = data_header_len(flow, None, None);
    let mut filled = Filled::default();
    if coalesce && is_alone {
        filled.messages = fill_ample(messages, how, out);
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
        let may_be_padded = how.is_next && has_more;
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

/// Fills the room with messages of a flow as long as there is so much of it left that nothing has
/// to be decided: one goes in with its length, and so will the next. Says how many.
#[inline(always)]
fn fill_ample(messages: &mut UnsentMessages<'_>, how: &How, out: &mut DataWriter<'_>) -> usize {
    let mut count = 0;
    loop {
        let together = if how.together { fill_together(messages, how, out) } else { 0 };
        let row = fill_row(messages, how, out);
        count += together + row;
        // What stands behind a row may stand together again.
        if row == 0 || !how.together {
            return count;
        }
    }
}

/// Messages of one length that stand together in memory: they go in one frame (packets.md P-34,
/// segmentation.md R-14). Says how many.
#[inline(always)]
fn fill_together(messages: &mut UnsentMessages<'_>, how: &How, out: &mut DataWriter<'_>) -> usize {
    let Some(Together { start, message_bytes, count }) = messages.together() else { return 0 };
    let offset = how.offsets.then_some(start);
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let header_bytes = messages_header_len(how.flow, offset, count, message_bytes);
    let behind = message_bytes + DataWriter::ROW_HEAD_MAX_BYTES + DATA_ROOM_MIN_BYTES;
    let most = out.left().saturating_sub(header_bytes + behind) / message_bytes;
    let count = (count as usize).min(most);
    if count < 2 {
        return 0;
    }
    // They are one piece.
    let put = |bytes: &[u8]| {
        out.put_messages(&frame::Messages { flow: how.flow, offset, count: count as u32, bytes })
    };
    if messages.send_even(count, put) { count } else { 0 }
}

/// Messages that have a frame each, up to what may stand together. Says how many.
#[inline(always)]
fn fill_row(messages: &mut UnsentMessages<'_>, how: &How, out: &mut DataWriter<'_>) -> usize {
    const AROUND_BYTES: usize = DataWriter::ROW_HEAD_MAX_BYTES;
    let Some(presented) = messages.front().map(|message| message.presented) else { return 0 };
    let Some(head) = RowHead::new(how.flow, how.offsets, presented) else { return 0 };
    messages.send_row(presented, how.together, |start, data, next| {
        let needed = data.len().saturating_add(next).saturating_add(2 * AROUND_BYTES + DATA_ROOM_MIN_BYTES);
        out.left() >= needed && out.put_in_row(head, start, data).is_some()
    })
}
