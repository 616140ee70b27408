//! Whole messages, many in a packet, on their way in: what holds for all of them is asked once, so
//! that for each there is nothing but what is its own.

use crate::connection::receive::contents::Frames;
use crate::connection::receive::inbound::Arrived;
use crate::connection::receive::incoming::{GAPS_MAX, Placement};
use crate::connection::{CloseReason, Ways};
use smallvec::SmallVec;
use uts_functions::sequencing::message_row::Places;
use uts_wire::Reader;
use uts_wire::frame::{self, Data, Frame, InRow, RowReader, kind};

/// Whole messages of one flow that a packet consists of. They stand in a row.
#[derive(Default)]
pub(in crate::connection) struct Messages {
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

    /// True if a payload that begins with a frame of this type may consist of such messages.
    #[inline]
    pub fn may_begin_with(frame_kind: u8) -> bool {
        Data::is_message(frame_kind) || frame::Messages::is_kind(frame_kind)
    }

    /// True if data of this flow, at this position, follows on what was read. The first data says
    /// which flow, and where it begins.
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

    /// Reads messages of which each has a frame of its own, as long as their heads are alike and
    /// they follow on each other. Says whether there were any.
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

impl Ways {
    /// Takes in the messages that a packet consists of.
    pub(in crate::connection) fn on_messages(
        &mut self,
        at: &Arrived,
        messages: &Messages,
        payload: &[u8],
    ) -> Result<(), CloseReason> {
        let Some(Placement { counts, repeats }) = self.place(at.epoch, messages.flow)? else { return Ok(()) };
        let receive = self.flows.get(messages.flow).map(|flow| &flow.receive);
        let stack = self.inbound.stack(at.epoch);
        let is_revocable = receive
            .zip(stack)
            .zip(messages.start)
            .is_some_and(|((receive, stack), start)| receive.may_give_up(stack, start));
        // P-30: without a start each of them is at the front of the flow. Of what may be given up
        // each has a place of its own.
        if is_revocable || (counts && messages.start.is_none()) {
            let mut frames = Frames::new(payload);
            return if frames.read() { self.on_data_frames(at, &frames) } else { Ok(()) };
        }
        let Some(receive) = self.flows.get_mut(messages.flow).map(|flow| &mut flow.receive) else {
            return Ok(());
        };
        self.stats.data_bytes_received += messages.data_bytes;
        let (limit, packet, rows) =
            (receive.limit(), receive.data.keep_rows(payload, &messages.rows), &messages.rows);
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
        if counts && !repeats {
            receive.data.limit_gaps(GAPS_MAX);
        }
        self.flows.note_received(messages.flow);
        if counts {
            self.keeps_to_credit()?;
            self.consumed(at.now, messages.flow);
            self.look_for_missing(at.now, messages.flow);
        }
        self.tell_reader(at.now, messages.flow);
        Ok(())
    }

    fn on_data_frames(&mut self, at: &Arrived, frames: &Frames<'_>) -> Result<(), CloseReason> {
        frames.try_for_each(|frame| match frame {
            Frame::Data(data) => self.on_data(at, data),
            Frame::Messages(messages) => messages.iter().try_for_each(|data| self.on_data(at, &data)),
            _ => Ok(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_wire::frame::DataFlags;

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
        // Of another flow, apart, repeated, without a position, cut off: these are read frame by
        // frame.
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
