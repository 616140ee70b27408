//! Messages that come whole: in, and out again, many at a time.

use super::{Ready, Reassembly, Segment, SegmentError, UNPLACED_MAX};
use bytes::Bytes;

/// Where in a packet's payload the bytes of a whole message lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// The first.
    pub from: usize,
    /// Behind the last.
    pub to: usize,
    /// It is in the form that a presentation mechanism gave it.
    pub presented: bool,
}

impl Reassembly {
    /// Copies a packet's payload for the messages that it consists of, which are slices of what this gives.
    pub fn keep(&mut self, payload: &[u8]) -> Bytes {
        self.arena.keep(payload)
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
        self.held_bytes += data.len();
        self.ready.push_back(Ready { start, whole: Some((data, presented)) });
        Ok(end - start)
    }

    /// Takes in whole messages that a packet carried, one behind the other from `start` on; each as
    /// [`Reassembly::insert_message`] does. `packet` is what [`Reassembly::keep`] gave. Says how many bytes were new.
    ///
    /// # Errors
    /// [`SegmentError`] if the peer breaks the rules; what stands before it has been taken in.
    pub fn insert_messages(
        &mut self,
        mut start: u64,
        packet: &Bytes,
        messages: &[Whole],
        limit: u64,
    ) -> Result<u64, SegmentError> {
        let bytes: usize = messages.iter().map(|message| message.to - message.from).sum();
        let end = start.saturating_add((bytes + messages.len()) as u64);
        let is_behind_all = self.settled.last().is_none_or(|last| last.end <= start);
        if is_behind_all && self.fin.is_none() && end <= limit {
            self.end_run();
            self.settled.insert(start..end);
            self.held_bytes += bytes;
            self.ready.extend(messages.iter().map(|message| {
                let whole = Some((packet.slice(message.from..message.to), message.presented));
                let ready = Ready { start, whole };
                start += (message.to - message.from) as u64 + 1;
                ready
            }));
            return Ok(bytes as u64);
        }
        let mut new = 0;
        for message in messages {
            let data = packet.slice(message.from..message.to);
            // The end of a message is a position, too.
            new += self.insert_message(start, data, message.presented, limit)?.saturating_sub(1);
            start = start.saturating_add((message.to - message.from) as u64).saturating_add(1);
        }
        Ok(new)
    }

    /// Copies a packet's payload and takes in the messages that it consists of, if they follow on the last that has arrived; says
    /// whether it did. If not, they are for [`Reassembly::insert_messages`], and nothing has changed.
    pub fn append_messages(&mut self, start: u64, payload: &[u8], messages: &[Whole], limit: u64) -> bool {
        let positions: usize = messages.iter().map(|message| message.to - message.from + 1).sum();
        let follows = self.settled.last().map_or(0, |last| last.end) == start;
        follows && self.fin.is_none() && start.saturating_add(positions as u64) <= limit && {
            let packet = self.keep(payload);
            self.insert_messages(start, &packet, messages, limit).is_ok()
        }
    }

    /// The same of messages without positions, if there is room for all; if not, they are for
    /// [`Reassembly::push_unplaced_messages`].
    pub fn append_unplaced_messages(&mut self, payload: &[u8], messages: &[Whole]) -> bool {
        self.unplaced.len() + messages.len() <= UNPLACED_MAX && {
            let packet = self.keep(payload);
            self.push_unplaced_messages(&packet, messages) == messages.len()
        }
    }

    /// Takes in a whole message that came without a position, to be handed over as it is. Says whether there was room
    /// ([`UNPLACED_MAX`]).
    pub fn push_unplaced(&mut self, message: Bytes, presented: bool) -> bool {
        // sequencing.md R-10.
        if self.unplaced.len() >= UNPLACED_MAX {
            return false;
        }
        self.held_bytes += message.len();
        self.unplaced.push_back((message, presented));
        true
    }

    /// Copies and takes in a whole message, as [`Reassembly::push_unplaced`] does.
    #[inline]
    pub fn append_unplaced(&mut self, message: &[u8], presented: bool) -> bool {
        self.unplaced.len() < UNPLACED_MAX && {
            let message = self.keep(message);
            self.push_unplaced(message, presented)
        }
    }

    /// Takes in whole messages that a packet carried, without positions; each as [`Reassembly::push_unplaced`] does. Says for how
    /// many there was room.
    pub fn push_unplaced_messages(&mut self, packet: &Bytes, messages: &[Whole]) -> usize {
        // sequencing.md R-10.
        let taken = messages.len().min(UNPLACED_MAX.saturating_sub(self.unplaced.len()));
        let mut bytes = 0;
        self.unplaced.extend(messages.iter().take(taken).map(|message| {
            bytes += message.to - message.from;
            (packet.slice(message.from..message.to), message.presented)
        }));
        self.held_bytes += bytes;
        taken
    }

    /// Hands over messages that came whole and are as they were sent, until `put` wants no more; says whether it does. What
    /// comes next then, if anything, is for [`Reassembly::pop_front`], if they are to come `in_order`, or
    /// [`Reassembly::pop_any`]: they are those that either would have given.
    #[inline]
    pub fn take_messages(&mut self, in_order: bool, mut put: impl FnMut(Bytes) -> bool) -> bool {
        while let Some((message, _)) = self.unplaced.pop_front_if(|(_, presented)| !*presented) {
            self.held_bytes -= message.len();
            if !put(message) {
                return false;
            }
        }
        let is_first = self.unplaced.is_empty() && self.skipped.is_empty() && self.run.is_empty();
        let Some(front) = self.ready.front().filter(|_| is_first) else { return true };
        let at = if in_order { self.delivered.run_end(0) } else { front.start };
        let (mut handed, mut bytes, mut wants) = (at..at, 0, true);
        while wants {
            let is_next = |ready: &mut Ready| {
                matches!(ready.whole, Some((_, false))) && (!in_order || ready.start == handed.end)
            };
            let Some(Ready { start, whole: Some((message, _)) }) = self.ready.pop_front_if(is_next) else {
                break;
            };
            if start != handed.end {
                self.delivered.insert(handed);
                handed = start..start;
            }
            handed.end += message.len() as u64 + 1;
            bytes += message.len();
            wants = put(message);
        }
        self.delivered.insert(handed);
        self.held_bytes -= bytes;
        wants
    }
}
