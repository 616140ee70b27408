//! Chunks of a flow: bytes, parts of messages, repeats, and the flow's end.

use super::super::super::packet::DATA_ROOM_MIN_BYTES;
use super::{Cargo, Written};
use crate::bug::bug;
use uts_wire::frame::{DataFlags, Frame, MediaTime, Order, data_header_len, emit_data_header};

/// Bytes of what a message says of when it was made, at most: type, flow, position, time.
const MEDIA_TIME_BYTES_MAX: usize = 17;

/// Bytes of what a message says it waits for, at most: type, flow, position, distance, length.
const ORDER_BYTES_MAX: usize = 33;

impl Cargo<'_, '_> {
    /// Writes one data frame.
    pub(super) fn write_chunk(&mut self) -> Written {
        let Cargo { flows, stack, gate, stats, packet, flow, end, polls, .. } = self;
        let (flow, end, polls) = (*flow, *end, *polls);
        let spare = flows.outgoing.spare();
        let Some(send) = flows.get_mut(flow).map(|f| &mut f.send) else {
            bug!("flow {flow} is in the order and is gone");
            return Written::Nothing;
        };
        // A poll may follow the frame, which then needs a length.
        let length_bytes = 2;
        let room = end.saturating_sub(packet.out.len() + if polls { length_bytes + 1 } else { 0 });
        // A repeat's position is smaller than what was sent, so its field is not longer.
        let position = send.buffer.sent();
        let order_bytes = if stack.layout.orders { ORDER_BYTES_MAX } else { 0 };
        let order_bytes = order_bytes + if stack.layout.times { MEDIA_TIME_BYTES_MAX } else { 0 };
        let header_bytes = data_header_len(flow, Some(position), None) + order_bytes;
        if room < header_bytes + length_bytes + 1 || (packet.shape.has_data && room < DATA_ROOM_MIN_BYTES) {
            return Written::NoRoom;
        }
        let limit = gate.limit(send).min(send.within(spare));
        // segmentation.md R-13, for what is not for `write_messages`.
        let room_of_full =
            room + (packet.out.len() - packet.mark.payload_offset()) + (packet.full_end - packet.end);
        let would_be_torn = |bytes: usize| bytes > room && bytes <= room_of_full;
        if !stack.layout.repeats
            && send.buffer.unsent_message().is_some_and(|len| would_be_torn(header_bytes + len))
        {
            return Written::NoRoom;
        }
        let Some(chunk) = send.buffer.next_chunk(room - header_bytes, limit) else { return Written::Nothing };
        if !chunk.repeat {
            gate.on_sent(send);
        }
        let media = send.rare.as_ref().filter(|_| stack.layout.times && chunk.begin);
        let media = media.and_then(|rare| rare.media.get(&chunk.range.start).copied());
        let after = send.rare.as_ref().filter(|_| stack.layout.orders && chunk.begin);
        let tolerant = if stack.layout.tolerates { send.tolerant_bytes(&chunk) } else { 0 };
        let after = after.and_then(|rare| rare.orders.get(&chunk.range.start).cloned());
        let whole = chunk.begin && chunk.end;
        // A repeat may be of what arrived with its position; the end of the flow is a position.
        let offset =
            (stack.layout.offsets || !whole || chunk.repeat || chunk.fin).then_some(chunk.range.start);
        let spare = room - header_bytes - chunk.data_bytes;
        // The last frame of a packet needs no length.
        let more = flows.others_want_to_send(flow, stack.group)
            || flows.get(flow).is_some_and(|f| f.send.buffer.wants_to_send(limit));
        // detection.md R-19: what may come damaged ends its packet.
        let is_last = spare < length_bytes + DATA_ROOM_MIN_BYTES || !more || tolerant > 0;
        let with_len = polls || (!is_last && spare >= length_bytes);
        let flags = DataFlags {
            fin: chunk.fin,
            message: chunk.message,
            begin: chunk.begin,
            end: chunk.end,
            presented: chunk.presented,
        };
        if let Some(micros) = media {
            Frame::MediaTime(MediaTime { flow, start: chunk.range.start, micros }).emit(packet.out);
        }
        if let Some(after) = after {
            Frame::Order(Order { flow, start: chunk.range.start, after }).emit(packet.out);
        }
        emit_data_header(packet.out, flow, offset, with_len.then_some(chunk.data_bytes), flags);
        if let Some(send) = flows.get(flow).map(|f| &f.send) {
            send.buffer.copy(&chunk, packet.out);
        }
        packet.tolerant = packet.out.len() - tolerant..packet.out.len();
        packet.shape.has_data = true;
        packet.eliciting = true;
        packet.shape.repeats |= chunk.repeat;
        if chunk.repeat {
            stats.bytes_repeated += chunk.data_bytes as u64;
            stats.chunks_repeated += 1;
        }
        stats.data_bytes_sent += chunk.data_bytes as u64;
        packet.shape.is_open = with_len;
        packet.note_data(flow, chunk.range);
        if with_len && !is_last { Written::More } else { Written::Last }
    }
}
