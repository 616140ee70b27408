//! Messages that come whole: in, and out again, many at a time.

use super::handing_over::delivery;
use super::{Delivery, Ready, Reassembly, Segment, SegmentError, UNPLACED_MAX};
use crate::sequencing::message_row::{MessageRow, Places};
use bytes::Bytes;

impl Reassembly {
    /// Copies a packet's payload for the messages that it consists of, which are slices of what
    /// this gives.
    pub fn keep(&mut self, payload: &[u8]) -> Bytes {
        self.arena.keep(payload)
    }

    /// The same, but for what follows the last of them in the payload: padding would be held with
    /// them.
    pub fn keep_rows(&mut self, payload: &[u8], rows: &[Places]) -> Bytes {
        let end = rows.iter().map(Places::end).max().unwrap_or(0);
        self.arena.keep(payload.get(..end).unwrap_or(payload))
    }

    /// Takes in a whole message that a frame carried; otherwise as [`Reassembly::insert`].
    ///
    /// # Errors
    /// [`SegmentError`] if the peer breaks the rules; nothing is changed then.
    #[inline]
    pub fn insert_message(
        &mut self,
        start: u64,
        data: Bytes,
        presented: bool,
        limit: u64,
    ) -> Result<u64, SegmentError> {
        let end = start.saturating_add(data.len() as u64).saturating_add(1);
        let is_behind_all = self.settled.last().is_none_or(|last| last.end <= start);
        if !is_behind_all || self.fin.is_some() || end > limit {
            let whole = Segment { start, data, message: true, presented, begin: true, end: true, fin: false };
            return self.insert(whole, limit);
        }
        self.end_run();
        self.settled.insert(start..end);
        self.seen = end;
        self.held_bytes += data.len();
        self.ready.push_back(Ready { start, whole: Some(MessageRow::one(data, presented)) });
        Ok(end - start)
    }

    /// Takes in whole messages that a packet carried, in rows, one behind the other from `start`
    /// on; each as [`Reassembly::insert_message`] does. `packet` is what [`Reassembly::keep`] gave.
    /// Says how many bytes were new.
    ///
    /// # Errors
    /// [`SegmentError`] if the peer breaks the rules; what stands before it has been taken in.
    pub fn insert_messages(
        &mut self,
        mut start: u64,
        packet: &Bytes,
        rows: &[Places],
        limit: u64,
    ) -> Result<u64, SegmentError> {
        let positions: u64 = rows.iter().map(Places::positions).sum();
        let end = start.saturating_add(positions);
        let is_behind_all = self.settled.last().is_none_or(|last| last.end <= start);
        let rows = rows.iter().filter_map(|places| MessageRow::new(packet.clone(), *places));
        if is_behind_all && self.fin.is_none() && end <= limit {
            self.end_run();
            self.settled.insert(start..end);
            self.seen = end;
            let mut bytes = 0;
            self.ready.extend(rows.map(|row| {
                bytes += row.data_bytes();
                let ready = Ready { start, whole: Some(row) };
                start += ready.whole.as_ref().map_or(0, MessageRow::positions);
                ready
            }));
            self.held_bytes += bytes;
            return Ok(bytes as u64);
        }
        let mut new = 0;
        for mut row in rows {
            let presented = row.is_presented();
            while let Some(data) = row.pop_front() {
                let positions = data.len() as u64 + 1;
                // The end of a message is a position, too.
                new += self.insert_message(start, data, presented, limit)?.saturating_sub(1);
                start = start.saturating_add(positions);
            }
        }
        Ok(new)
    }

    /// Copies a packet's payload and takes in the messages that it consists of, if they follow on
    /// the last that has arrived; says whether it did. If not, they are for
    /// [`Reassembly::insert_messages`], and nothing has changed.
    pub fn append_messages(&mut self, start: u64, payload: &[u8], rows: &[Places], limit: u64) -> bool {
        let positions: u64 = rows.iter().map(Places::positions).sum();
        let follows = self.settled.last().map_or(0, |last| last.end) == start;
        follows && self.fin.is_none() && start.saturating_add(positions) <= limit && {
            let packet = self.keep_rows(payload, rows);
            self.insert_messages(start, &packet, rows, limit).is_ok()
        }
    }

    /// The same of messages without positions, if there is room for all; if not, they are for
    /// [`Reassembly::push_unplaced_messages`].
    pub fn append_unplaced_messages(&mut self, payload: &[u8], rows: &[Places]) -> bool {
        let messages: usize = rows.iter().map(|row| row.count as usize).sum();
        self.unplaced_count + messages <= UNPLACED_MAX && {
            let packet = self.keep_rows(payload, rows);
            self.push_unplaced_messages(&packet, rows) == messages
        }
    }

    /// Takes in a whole message that came without a position, to be handed over as it is. Says
    /// whether there was room ([`UNPLACED_MAX`]).
    pub fn push_unplaced(&mut self, message: Bytes, presented: bool) -> bool {
        // sequencing.md R-10.
        if self.unplaced_count >= UNPLACED_MAX {
            return false;
        }
        self.held_bytes += message.len();
        self.unplaced_count += 1;
        self.unplaced.push_back(MessageRow::one(message, presented));
        true
    }

    /// Copies and takes in a whole message, as [`Reassembly::push_unplaced`] does.
    #[inline]
    pub fn append_unplaced(&mut self, message: &[u8], presented: bool) -> bool {
        self.unplaced_count < UNPLACED_MAX && {
            let message = self.keep(message);
            self.push_unplaced(message, presented)
        }
    }

    /// Takes in whole messages that a packet carried, without positions, in rows; each as
    /// [`Reassembly::push_unplaced`] does. Says for how many there was room.
    pub fn push_unplaced_messages(&mut self, packet: &Bytes, rows: &[Places]) -> usize {
        let mut taken = 0;
        for places in rows {
            // sequencing.md R-10.
            let room = UNPLACED_MAX.saturating_sub(self.unplaced_count);
            let Some(mut row) = MessageRow::new(packet.clone(), *places).filter(|_| room > 0) else { break };
            let row = row.split_first(room);
            self.held_bytes += row.data_bytes();
            self.unplaced_count += row.len();
            taken += row.len();
            self.unplaced.push_back(row);
        }
        taken
    }

    /// Hands over messages that came whole and are as they were sent, rows of them, from each of
    /// which `take` takes as many as it wants, and says whether it wants more. What comes next when
    /// all were taken, if anything, is for [`Reassembly::pop_front`], if they are to come
    /// `in_order`, or [`Reassembly::pop_any`]: messages are those that either would have given.
    /// Says whether more was wanted.
    #[inline]
    pub fn take_messages(&mut self, in_order: bool, mut take: impl FnMut(&mut MessageRow) -> bool) -> bool {
        while let Some(row) = self.unplaced.front_mut().filter(|row| !row.is_presented()) {
            let (count, bytes) = (row.len(), row.data_bytes());
            let wants = take(row) && row.is_empty();
            self.unplaced_count -= count - row.len();
            self.held_bytes -= bytes - row.data_bytes();
            if row.is_empty() {
                self.unplaced.pop_front();
            }
            if !wants {
                return false;
            }
        }
        let is_first = self.unplaced.is_empty() && self.skipped.is_empty() && self.run.is_empty();
        let Some(front) = self.ready.front().filter(|_| is_first) else { return true };
        let at = if in_order { self.delivered.run_end(0) } else { front.start };
        let (mut handed, mut bytes, mut wants) = (at..at, 0, true);
        while wants
            && let Some(Ready { start, whole: Some(row) }) = self.ready.front_mut()
            && !row.is_presented()
            && (!in_order || *start == handed.end)
        {
            if *start != handed.end {
                self.delivered.insert(handed);
                handed = *start..*start;
            }
            let (positions, data_bytes) = (row.positions(), row.data_bytes());
            wants = take(row) && row.is_empty();
            handed.end += positions - row.positions();
            bytes += data_bytes - row.data_bytes();
            *start = handed.end;
            if row.is_empty() {
                self.ready.pop_front();
            }
        }
        self.delivered.insert(handed);
        self.held_bytes -= bytes;
        wants
    }

    /// The first message that came without a position.
    pub(super) fn pop_unplaced(&mut self) -> Option<Delivery> {
        let front = self.unplaced.front_mut()?;
        let (message, presented) = (front.pop_front()?, front.is_presented());
        if front.is_empty() {
            self.unplaced.pop_front();
        }
        self.unplaced_count -= 1;
        self.held_bytes -= message.len();
        Some(delivery(self.consumed(), message, presented))
    }

    /// The message that came whole and is next in order of position, if that is what is there.
    pub(super) fn pop_next_whole(&mut self) -> Option<Delivery> {
        // Pieces are found in order of position.
        while self.ready.front().is_some_and(|ready| ready.whole.is_none()) {
            self.ready.pop_front();
            self.unindexed = true;
        }
        let front = self.ready.front()?;
        let at = self.delivered.run_end(0);
        // sequencing.md R-5: what was given up below it is reported before it.
        if front.start != at || self.skipped.first().is_some_and(|skipped| skipped.start < at) {
            return None;
        }
        self.pop_front_whole()
    }

    /// The first message that came whole, if that is what is first.
    pub(super) fn pop_front_whole(&mut self) -> Option<Delivery> {
        let Ready { start, whole: Some(row) } = self.ready.front_mut()? else { return None };
        let (message, presented) = (row.pop_front()?, row.is_presented());
        let end = *start + message.len() as u64 + 1;
        let start = core::mem::replace(start, end);
        if row.is_empty() {
            self.ready.pop_front();
        }
        self.held_bytes -= message.len();
        self.delivered.insert(start..end);
        Some(delivery(start, message, presented))
    }
}
