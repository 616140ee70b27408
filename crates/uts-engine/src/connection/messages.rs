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
use uts_functions::segmentation::buffer::{Together, UnsentMessages};
use uts_functions::sequencing::message_row::Places;
use uts_wire::Reader;
use uts_wire::frame::{
    self, Data, DataFlags, DataWriter, InRow, RowHead, RowReader, data_header_len, emit_messages_header,
    kind, messages_header_len,
};
use uts_wire::varint::varint_len;

/// Whole messages of one flow that a packet consists of. They stand in a row.
#[derive(Default)]
pub(super) struct Messages {
    pub flow: u32,
    /// Position of the first, if they have positions.
    pub start: Option<u64>,
    rows: SmallVec<[Places; 4]>,
    pub data_bytes: u64,
    count: u64,
}

impl Messages {
    /// Reads those of a payload. Says whether it could be read, and has nothing else.
    // On its own: within whoever asks, what it goes by would not stay in registers.
    #[inline(never)]
    pub fn read(&mut self, payload: &[u8]) -> bool {
        self.rows.clear();
        (self.data_bytes, self.count) = (0, 0);
        let mut r = Reader::new(payload);
        let mut next = None;
        while !r.is_empty() {
            if r.peek().first().is_some_and(|kind| frame::Messages::is_kind(*kind)) {
                let Some((messages, from)) = frame::Messages::next(&mut r) else { return false };
                if !self.goes_on(&mut next, messages.flow, messages.offset) {
                    return false;
                }
                let (bytes, count) = (messages.message_bytes(), messages.count);
                self.rows.push(Places::side_by_side(from, bytes, count));
                self.add(&mut next, messages.bytes.len() as u64, count.into());
            } else if !self.read_row(&mut r, payload, &mut next) {
                let Some((data, from)) = Data::next_message(&mut r) else { return false };
                if !self.goes_on(&mut next, data.flow, data.offset) {
                    return false;
                }
                self.rows.push(Places::one(from, from + data.bytes.len(), data.flags.presented));
                self.add(&mut next, data.bytes.len() as u64, 1);
            }
            // P-21: nothing but padding may follow padding here.
            if r.peek().first() == Some(&kind::PADDING) {
                return r.rest().iter().all(|byte| *byte == kind::PADDING);
            }
        }
        self.count > 0
    }

    /// Whether a payload that begins with a frame of this type may consist of such messages.
    #[inline]
    pub fn may_begin_with(frame_kind: u8) -> bool {
        Data::is_message(frame_kind) || frame::Messages::is_kind(frame_kind)
    }

    /// Whether what is of this flow, and at this position, follows on what was read. The first says which flow, and where it begins.
    #[inline(always)]
    fn goes_on(&mut self, next: &mut Option<u64>, flow: u32, offset: Option<u64>) -> bool {
        match *next {
            None => {
                (self.flow, self.start) = (flow, offset);
                *next = Some(offset.unwrap_or(0));
                true
            }
            Some(next) => {
                flow == self.flow
                    && offset.is_some() == self.start.is_some()
                    && offset.is_none_or(|offset| offset == next)
            }
        }
    }

    #[inline(always)]
    fn add(&mut self, next: &mut Option<u64>, bytes: u64, count: u64) {
        self.data_bytes += bytes;
        self.count += count;
        *next = next.map(|next| next.saturating_add(bytes + count));
    }

    /// Reads messages of which each has a frame of its own, as long as their heads are alike and they follow on each other. Says
    /// whether there were any.
    #[inline(always)]
    fn read_row(&mut self, r: &mut Reader<'_>, payload: &[u8], next: &mut Option<u64>) -> bool {
        let begin = r.offset();
        let Some(mut row) = payload.get(begin..).and_then(RowReader::new) else { return false };
        let (presented, flow) = (row.head().presented(), row.head().flow());
        // What it goes by stays in registers.
        let (mut end, mut position, mut bytes, mut count) = (0, None, 0, 0);
        let mut places = Places::one(0, 0, presented);
        while let Some(InRow { offset, from, to }) = row.next_message() {
            let follows = match position {
                None => self.goes_on(next, flow, offset),
                Some(position) => offset.is_none_or(|offset| offset == position),
            };
            if !follows {
                break;
            }
            if count == 0 {
                places = Places::one(begin + from, begin + to, presented);
            } else if !places.extend(begin + from, begin + to) {
                self.rows.push(places);
                places = Places::one(begin + from, begin + to, presented);
            }
            let len = (to - from) as u64;
            position = Some(position.or(*next).unwrap_or(0).saturating_add(len + 1));
            (end, bytes, count) = (row.end(), bytes + len, count + 1);
        }
        if count > 0 {
            self.rows.push(places);
            self.add(next, bytes, count);
        }
        r.bytes(end as u64, "row").is_ok() && count > 0
    }

    /// Where they lie in the payload.
    pub fn rows(&self) -> &[Places] {
        &self.rows
    }

    /// Positions that they take: each ends with one.
    pub fn positions(&self) -> u64 {
        self.data_bytes + self.count
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
        let (limit, packet, rows) = (receive.limit(), receive.data.keep(payload), &messages.rows);
        match messages.start {
            // No positions: handed over as they come.
            None => {
                let taken = receive.data.push_unplaced_messages(&packet, rows);
                self.stats.dropped_overrun += messages.count - taken as u64;
            }
            Some(start) => {
                let new = receive.data.insert_messages(start, &packet, rows, limit);
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
    let (is_alone, together) = (!flows.others_want_to_send(flow, stack.group), flows.peer_reads_messages);
    let mut messages = flows.get_mut(flow)?.send.buffer.unsent_messages(limit)?;
    // A poll may follow, which takes a byte, and the frame before it then needs a length.
    let end = end.saturating_sub(usize::from(polls));
    let room_of_all = end.saturating_sub(draft.mark.payload_offset());
    let room_of_full = room_of_all + (draft.full_end - draft.end);
    let before = out.len();
    let how = How {
        flow,
        offsets: stack.layout.offsets,
        polls,
        coalesce,
        is_alone,
        is_kept_whole: !stack.layout.repeats,
        is_next: draft.is_next,
        block_bytes: draft.block_bytes,
        together,
        room_of_all,
        room_of_full,
    };
    let filled = append_whole(&mut messages, &how, draft.has_data, end.max(before), out);
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
    /// Messages of one length may go in a frame together.
    pub together: bool,
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

/// Appends messages of one flow up to `end`, as long as it is the flow's turn.
#[inline]
pub(super) fn append_whole(
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

/// Appends as many messages as there is room for, in one frame, if they are of one length and so is one behind them, which then waits
/// for the next packet: all that [`fill`] decides for each follows from that (segmentation.md R-14).
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
    if !messages.send_even(fitting, |bytes| out.extend_from_slice(bytes)) {
        out.truncate(before);
        return None;
    }
    let written = Some(Written::Last);
    Some(Filled { written, messages: fitting, is_open: true, is_even: true, is_steady: true })
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
    // Whether a frame of so many bytes, for which there is not room enough, waits for the next packet.
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

/// Those of one length that stand together in memory: they go in one frame (packets.md P-34, segmentation.md R-14). Says how many.
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

/// Those that have a frame each, up to what may stand together. Says how many.
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
        let first_bytes = payload(&[first]).len();
        let read = |payload: &[u8]| {
            let mut messages = Messages::default();
            messages.read(payload).then_some(messages)
        };
        let messages = read(&whole).expect("two");
        assert_eq!((messages.flow, messages.start, messages.data_bytes), (4, Some(70), 8));
        assert_eq!(messages.positions(), 10);
        let places = [(first_bytes, 3), (whole.len(), 5)];
        let places = places.map(|(end, bytes)| Places::one(end - bytes, end, false));
        assert_eq!(messages.rows(), places);
        let free = payload(&[(4, None, "one"), (4, None, "three")]);
        assert_eq!(read(&free).map(|m| (m.start, m.count)), Some((None, 2)));
        // Of another flow, apart, repeated, without a position, cut off: these are read frame by frame.
        for other in [(6, Some(74), "x"), (4, Some(75), "x"), (4, Some(70), "one"), (4, None, "x")] {
            assert!(read(&payload(&[first, other])).is_none(), "{other:?}");
        }
        assert!(read(&whole[..whole.len() - 1]).is_none());
        assert!(read(&[]).is_none());
        // Padding may follow, short or long, and nothing behind that.
        for zeros in [1, 2, 7, 8, 20] {
            let mut padded = [whole.as_slice(), &vec![0; zeros]].concat();
            assert_eq!(read(&padded).map(|m| (m.positions(), m.count)), Some((10, 2)), "{zeros} zeros");
            padded.extend_from_slice(&payload(&[(4, Some(80), "x")]));
            assert!(read(&padded).is_none(), "{zeros} zeros");
            assert!(read(&padded[whole.len()..]).is_none(), "{zeros} zeros");
        }
    }
}
