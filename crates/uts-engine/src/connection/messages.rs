//! Whole messages, many in a packet, on their way out: what holds for all of them is asked once, so that for each there is
//! nothing but what is its own.

use super::outgoing::{DATA_ROOM_MIN_BYTES, Draft, FULL_BUT, Written};
use crate::synthesis::SendStack;
use uts_functions::flow::FlowControl as _;
use uts_functions::segmentation::buffer::UnsentMessages;
use uts_wire::frame::{Data, DataFlags, DataWriter, data_header_len};
use uts_wire::varint::varint_len;

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
    let before = out.len();
    out.resize(end.max(before), 0);
    let mut room = DataWriter::new(out.get_mut(before..)?);
    let how = How { offsets: stack.layout.offsets, polls, coalesce, is_alone, room_of_all };
    let written = fill(&mut messages, flow, how, draft, &mut room);
    let left = room.left();
    out.truncate(out.len() - left);
    if out.len() > before {
        let (range, data_bytes) = messages.taken();
        (draft.has_data, draft.eliciting) = (true, true);
        stats.data_bytes_sent += data_bytes as u64;
        draft.note_data(flow, range);
    }
    written
}

/// What holds for all messages of a call.
struct How {
    offsets: bool,
    /// A poll may follow.
    polls: bool,
    coalesce: bool,
    /// No other flow has something to send.
    is_alone: bool,
    /// What a packet without anything else would hold.
    room_of_all: usize,
}

/// Fills the room with messages of one flow, as long as it is the flow's turn.
#[inline(never)]
fn fill(
    messages: &mut UnsentMessages<'_>,
    flow: u32,
    how: How,
    draft: &mut Draft,
    out: &mut DataWriter<'_>,
) -> Option<Written> {
    let How { offsets, polls, coalesce, is_alone, room_of_all } = how;
    let is_as_good_as_full = |room: usize| room < room_of_all / FULL_BUT;
    let flow_bytes = data_header_len(flow, None, None);
    let mut has_data = draft.has_data;
    let mut written = None;
    while let Some(message) = messages.front() {
        let len = message.data.len();
        let offset = offsets.then_some(message.start);
        let header_bytes = flow_bytes + offset.map_or(0, varint_len);
        let len_bytes = varint_len(len as u64);
        let room = out.left();
        let needed = header_bytes + len + if polls { len_bytes } else { 0 };
        if has_data && room < DATA_ROOM_MIN_BYTES {
            return Some(Written::NoRoom);
        }
        let Some(spare) = room.checked_sub(needed) else {
            let waits = needed <= room_of_all && is_as_good_as_full(room);
            return if waits { Some(Written::NoRoom) } else { written };
        };
        let has_more = message.has_more || !is_alone;
        let left = spare.saturating_sub(len_bytes);
        let follows =
            message.following.is_none_or(|next| header_bytes + next <= left) || !is_as_good_as_full(left);
        let is_last = !coalesce || !has_more || left < DATA_ROOM_MIN_BYTES || !follows;
        let is_open = polls || ((!is_last || (draft.is_next && has_more)) && spare >= len_bytes);
        let flags = DataFlags {
            message: true,
            begin: true,
            end: true,
            presented: message.presented,
            ..DataFlags::default()
        };
        out.put(&Data { flow, offset, flags, has_len: is_open, bytes: message.data });
        messages.on_sent();
        (has_data, draft.is_open) = (true, is_open);
        if is_last || !is_open {
            return Some(Written::Last);
        }
        written = Some(Written::More);
        if !is_alone {
            break;
        }
    }
    written
}
