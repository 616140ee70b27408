//! Data of flows, on its way into a packet: whole messages (`messages.rs`), and chunks of whatever else there is.

use super::draft::{DATA_ROOM_MIN_BYTES, Draft};
use super::flows::Flows;
use super::messages::write_messages;
use super::{Connection, Stats};
use crate::synthesis::SendStack;
use uts_functions::acknowledgement::Acknowledgement;
use uts_functions::flow::FlowControl as _;
use uts_wire::frame::{DataFlags, data_header_len, emit_data_header};

impl Connection {
    /// Data of the flows of the packet's group, in their order.
    pub(super) fn write_data(&mut self, draft: &mut Draft, out: &mut Vec<u8>) {
        let Some(stack) = self.outbound.as_ref().and_then(|o| o.stacks.get(draft.stack)) else { return };
        // Redundancy of an old epoch leaves alone: its group's data belongs to the new one.
        let is_current =
            self.outbound.as_ref().and_then(|o| o.stack(stack.group)).is_some_and(|s| s.epoch == stack.epoch);
        let has_repair = stack.fec.as_ref().is_some_and(|fec| fec.has_repair());
        if !is_current || has_repair {
            return;
        }
        let end = draft.end.min(draft.end_of_data(stack));
        let polls = stack.acknowledgement.poll(u32::MAX, true);
        while let Some(flow) = self.flows.next_to_send(Some(stack.group)) {
            let (flows, stats, coalesce) = (&mut self.flows, &mut self.stats, self.config.coalesce);
            let written = write_messages(flows, stack, flow, end, polls, coalesce, draft, out, stats)
                .unwrap_or_else(|| write_chunk(flows, stack, flow, end, polls, draft, out, stats));
            if written == Written::NoRoom {
                break;
            }
            // A flow that has nothing left must not stand before those that have.
            let limits = &stack.flow;
            self.flows.update_order(flow, |limit| limits.send_limit(limit));
            self.flows.yield_turn(flow);
            let is_stuck = written == Written::Nothing && self.flows.has_turn(flow);
            if is_stuck || written == Written::Last || (draft.has_data && !self.config.coalesce) {
                break;
            }
        }
    }
}

/// What became of an attempt to write a data frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// There was no room.
    NoRoom,
    /// The flow had nothing to send.
    Nothing,
    /// Another frame may follow.
    More,
    /// Nothing may follow.
    Last,
}

/// Writes one data frame of a flow.
#[allow(clippy::too_many_arguments, reason = "parts of a connection that are borrowed apart")]
fn write_chunk(
    flows: &mut Flows,
    stack: &SendStack,
    flow: u32,
    end: usize,
    polls: bool,
    draft: &mut Draft,
    out: &mut Vec<u8>,
    stats: &mut Stats,
) -> Written {
    let Some(send) = flows.get_mut(flow).map(|f| &mut f.send) else { return Written::Nothing };
    // A poll may follow the frame, which then needs a length.
    let length_bytes = 2;
    let room = end.saturating_sub(out.len() + if polls { length_bytes + 1 } else { 0 });
    // A repeat's position is smaller than what was sent, so its field is not longer.
    let position = send.buffer.sent();
    let header_bytes = data_header_len(flow, Some(position), None);
    if room < header_bytes + length_bytes + 1 || (draft.has_data && room < DATA_ROOM_MIN_BYTES) {
        return Written::NoRoom;
    }
    let limit = stack.flow.send_limit(send.limit);
    // segmentation.md R-13, for what is not for `write_messages`.
    let room_of_full = room + (out.len() - draft.mark.payload_offset()) + (draft.full_end - draft.end);
    let would_be_torn = |bytes: usize| bytes > room && bytes <= room_of_full;
    if !stack.layout.repeats
        && send.buffer.unsent_message().is_some_and(|len| would_be_torn(header_bytes + len))
    {
        return Written::NoRoom;
    }
    let Some(chunk) = send.buffer.next_chunk(room - header_bytes, limit) else { return Written::Nothing };
    let whole = chunk.begin && chunk.end;
    // A repeat may be of what arrived with its position; the end of the flow is a position.
    let offset = (stack.layout.offsets || !whole || chunk.repeat || chunk.fin).then_some(chunk.range.start);
    let spare = room - header_bytes - chunk.data_bytes;
    // The last frame of a packet needs no length, unless padding may follow.
    let more = flows.others_want_to_send(flow, stack.group)
        || flows.get(flow).is_some_and(|f| f.send.buffer.wants_to_send(limit));
    let is_last = spare < length_bytes + DATA_ROOM_MIN_BYTES || !more;
    let with_len = polls || ((!is_last || draft.block_bytes > 1) && spare >= length_bytes);
    let flags = DataFlags {
        fin: chunk.fin,
        message: chunk.message,
        begin: chunk.begin,
        end: chunk.end,
        presented: chunk.presented,
    };
    emit_data_header(out, flow, offset, with_len.then_some(chunk.data_bytes), flags);
    if let Some(send) = flows.get(flow).map(|f| &f.send) {
        send.buffer.copy(&chunk, out);
    }
    draft.has_data = true;
    draft.eliciting = true;
    draft.repeats |= chunk.repeat;
    if chunk.repeat {
        stats.bytes_repeated += chunk.data_bytes as u64;
        stats.chunks_repeated += 1;
    }
    stats.data_bytes_sent += chunk.data_bytes as u64;
    draft.is_open = with_len;
    draft.note_data(flow, chunk.range);
    if with_len && !is_last { Written::More } else { Written::Last }
}
