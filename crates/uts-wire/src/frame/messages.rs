//! Messages of one length under one head: small ones cost next to nothing but their bytes.

use super::data::{Data, DataFlags, OFFSET};
use super::kind;
use crate::error::WireError;
use crate::varint::{Reader, Sink, VARINT_MAX, emitters, varint_len};

/// Whole messages of one length of a flow, one behind the other. [P-34]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Messages<'a> {
    /// The flow.
    pub flow: u32,
    /// Position of the first one's first byte; absent where the profile counts none.
    pub offset: Option<u64>,
    /// Number of messages; one at least.
    pub count: u32,
    /// The bytes of all: as many for each, and one at least.
    pub bytes: &'a [u8],
}

impl<'a> Messages<'a> {
    /// True if a frame of this type is one.
    #[inline]
    pub const fn is_kind(frame_kind: u8) -> bool {
        frame_kind & !OFFSET == kind::MESSAGES
    }

    /// Reads one at the cursor. If there is anything else, or if it is malformed, the cursor is
    /// anywhere. Returns it, and where its bytes begin, as the cursor counts.
    #[inline]
    pub fn next(r: &mut Reader<'a>) -> Option<(Self, usize)> {
        let frame_kind = r.u8("frame type").ok().filter(|kind| Messages::is_kind(*kind))?;
        let messages = Messages::read(frame_kind, r).ok()?;
        Some((messages, r.offset().checked_sub(messages.bytes.len())?))
    }

    pub(crate) fn read(frame_kind: u8, r: &mut Reader<'a>) -> Result<Self, WireError> {
        let flow = r.varint_u32("flow")?; // P-24
        let at = r.offset();
        let offset = if frame_kind & OFFSET != 0 { Some(r.varint("data offset")?) } else { None };
        let count_at = r.offset();
        let count = r.varint_u32("message count")?;
        let len_at = r.offset();
        let len = r.varint("message length")?;
        // P-34: what has no bytes would be any number of messages for none.
        if count == 0 {
            return Err(WireError::value("message count", count_at, 0, "at least 1"));
        }
        if len == 0 {
            return Err(WireError::value("message length", len_at, 0, "at least 1"));
        }
        let bytes = r.bytes(len.saturating_mul(u64::from(count)), "messages")?;
        let positions = bytes.len() as u64 + u64::from(count);
        match offset {
            Some(first) if first.saturating_add(positions) > VARINT_MAX => {
                Err(WireError::value("data offset", at, first, "an end below 2^62")) // P-24
            }
            _ => Ok(Messages { flow, offset, count, bytes }),
        }
    }

    /// Bytes of each message.
    #[inline]
    pub fn message_bytes(&self) -> usize {
        self.bytes.len() / self.count.max(1) as usize
    }

    /// Each of them as a frame of its own would have it.
    pub fn iter(&self) -> impl Iterator<Item = Data<'a>> {
        let Messages { flow, offset, bytes, .. } = *self;
        let flags = DataFlags { message: true, begin: true, end: true, ..DataFlags::default() };
        bytes.chunks_exact(self.message_bytes().max(1)).zip(0..).map(move |(bytes, n): (_, u64)| Data {
            flow,
            offset: offset.map(|first| first + n * (bytes.len() as u64 + 1)),
            flags,
            has_len: true,
            bytes,
        })
    }

    #[inline]
    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        debug_assert!(
            self.count > 0 && !self.bytes.is_empty() && self.bytes.len().is_multiple_of(self.count as usize),
            "P-34"
        );
        write_header(out, self.flow, self.offset, self.count, self.message_bytes());
        out.put(self.bytes);
    }
}

#[inline]
fn write_header<S: Sink>(out: &mut S, flow: u32, offset: Option<u64>, count: u32, message_bytes: usize) {
    out.put_u8(kind::MESSAGES | if offset.is_some() { OFFSET } else { 0 });
    out.put_varint(u64::from(flow));
    if let Some(offset) = offset {
        out.put_varint(offset);
    }
    out.put_varint(u64::from(count));
    out.put_varint(message_bytes as u64);
}

/// Appends the header of a frame of messages. The caller can then write the bytes in place after
/// it. [P-34]
#[inline]
pub fn emit_messages_header(
    out: &mut Vec<u8>,
    flow: u32,
    offset: Option<u64>,
    count: u32,
    message_bytes: usize,
) {
    write_header(out, flow, offset, count, message_bytes);
}

emitters!(Messages<'_>);

/// Bytes before those of up to `count` messages of `message_bytes` each in a frame of messages.
#[inline]
pub fn messages_header_len(flow: u32, offset: Option<u64>, count: u32, message_bytes: usize) -> usize {
    let of = |value: u64| varint_len(value);
    1 + of(flow.into()) + offset.map_or(0, of) + of(count.into()) + of(message_bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, FrameIter};
    use super::*;

    #[test]
    fn they_are_what_frames_of_their_own_would_be() {
        let messages = Messages { flow: 3, offset: Some(60), count: 3, bytes: b"onetwosix" };
        let alone = |start, bytes| {
            let flags = DataFlags { message: true, begin: true, end: true, ..DataFlags::default() };
            Data { flow: 3, offset: Some(start), flags, has_len: true, bytes }
        };
        assert!(messages.iter().eq([alone(60, b"one"), alone(64, b"two"), alone(68, b"six")]));
        let mut out = Vec::new();
        messages.emit(&mut out);
        assert_eq!(out.len(), messages_header_len(3, Some(60), 3, 3) + 9);
        assert_eq!(Messages::next(&mut Reader::new(&out)), Some((messages, 5)));
        assert_eq!(FrameIter::new(&out).collect::<Vec<_>>(), vec![Ok(Frame::Messages(messages))]);
        assert_eq!(Messages::next(&mut Reader::new(&out[1..])), None);
        let unplaced = Messages { offset: None, ..messages };
        assert!(unplaced.iter().all(|data| data.offset.is_none()));
    }
}
