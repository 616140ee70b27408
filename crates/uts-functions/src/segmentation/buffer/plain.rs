//! Bytes that are sent for the first time and fill packets, one after the other. What holds for all
//! of them is asked once.

use super::SendBuffer;
use super::segment::Segment;
use std::collections::vec_deque::Iter;

/// Bytes whose turn it is to be sent.
#[derive(Debug)]
pub struct UnsentBytes<'a> {
    /// Rest of the write that is next, and the writes behind it.
    data: &'a [u8],
    behind: Iter<'a, Segment>,
    /// From here on it is for others.
    end: u64,
    sent: &'a mut u64,
    cursor: &'a mut usize,
}

impl SendBuffer {
    /// The bytes that are sent next, if there is nothing else to be sent before them, between them
    /// or with them: no repeat, no message, no end of the flow, and more to follow below `limit`.
    /// That is for [`SendBuffer::next_chunk`].
    pub fn unsent_bytes(&mut self, limit: u64) -> Option<UnsentBytes<'_>> {
        if !self.repeat.is_empty() {
            return None;
        }
        self.cursor = self.index_of(self.sent);
        // What was given up unsent is not sent.
        let fresh = self.done.gaps(self.sent..self.fin.unwrap_or(self.written)).next()?;
        let SendBuffer { segments, sent, cursor, .. } = self;
        let mut behind = segments.range((*cursor).min(segments.len())..);
        let front = behind.next().filter(|segment| segment.is_plain() && fresh.start == *sent)?;
        let data = front.data.get(sent.checked_sub(front.start)? as usize..)?;
        Some(UnsentBytes { data, behind, end: limit.min(fresh.end), sent, cursor })
    }
}

impl UnsentBytes<'_> {
    /// Where the next one is.
    #[inline]
    pub fn position(&self) -> u64 {
        *self.sent
    }

    /// Appends the next `len` bytes to `out`, which are sent so. Says whether it did.
    #[inline]
    pub fn append(&mut self, len: usize, out: &mut Vec<u8>) -> bool {
        let Some(end) = self.sent.checked_add(len as u64).filter(|end| *end < self.end) else { return false };
        let (before, mut left) = (out.len(), len);
        while left > self.data.len() {
            out.extend_from_slice(self.data);
            left -= self.data.len();
            let Some(next) = self.behind.next().filter(|segment| segment.is_plain()) else {
                // These few go the general way, and so does what is behind them.
                out.truncate(before);
                self.end = *self.sent;
                return false;
            };
            self.data = &next.data;
            *self.cursor += 1;
        }
        let (now, later) = self.data.split_at(left);
        out.extend_from_slice(now);
        (self.data, *self.sent) = (later, end);
        true
    }
}
