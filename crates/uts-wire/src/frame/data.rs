//! Data of a flow.

use super::kind;
use crate::error::WireError;
use crate::varint::{Counter, Reader, Sink, VARINT_MAX, emitters};

/// Set instead of [`kind::DATA`]'s bit.
pub(super) const PRESENTED: u8 = 0x80;
pub(super) const LEN: u8 = 0x01;
pub(super) const OFFSET: u8 = 0x02;
const FIN: u8 = 0x04;
const MESSAGE: u8 = 0x08;
const BEGIN: u8 = 0x10;
const END: u8 = 0x20;

/// Flags of a data frame: all that it says of its bytes, besides where they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DataFlags {
    /// Nothing of the flow follows the last byte.
    pub fin: bool,
    /// The flow carries messages.
    pub message: bool,
    /// The first byte begins a message; only with `message`.
    pub begin: bool,
    /// The last byte ends a message; only with `message`.
    pub end: bool,
    /// The message is in the form that the presentation mechanism gave it. Only with `message`.
    pub presented: bool,
}

/// Data of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// The flow.
    pub flow: u32,
    /// Position of the first byte. Absent if the profile needs none, and for the first bytes of a
    /// flow.
    pub offset: Option<u64>,
    /// Marks.
    pub flags: DataFlags,
    /// The length is (to be) sent; without it the frame is the payload's last.
    pub has_len: bool,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl DataFlags {
    #[inline]
    pub(super) const fn bits(self) -> u8 {
        (if self.presented { PRESENTED } else { kind::DATA })
            | (if self.fin { FIN } else { 0 })
            | (if self.message { MESSAGE } else { 0 })
            | (if self.begin { BEGIN } else { 0 })
            | (if self.end { END } else { 0 })
    }
}

impl<'a> Data<'a> {
    #[inline(always)]
    pub(crate) fn read(frame_kind: u8, r: &mut Reader<'a>) -> Result<Self, WireError> {
        let has = |bit| frame_kind & bit != 0;
        let flags = DataFlags {
            fin: has(FIN),
            message: has(MESSAGE),
            begin: has(BEGIN),
            end: has(END),
            presented: has(PRESENTED),
        };
        if !flags.message && (flags.begin || flags.end) {
            let at = r.offset().saturating_sub(1);
            return Err(WireError::value(
                "data flags",
                at,
                u64::from(frame_kind),
                "BEGIN and END only with MESSAGE", // P-32
            ));
        }
        let flow = r.varint_u32("flow")?; // P-24
        let at = r.offset();
        let offset = if has(OFFSET) { Some(r.varint("data offset")?) } else { None };
        let bytes = if has(LEN) { r.prefixed(usize::MAX, "data")? } else { r.rest() }; // P-31
        match offset {
            Some(first) if first.saturating_add(bytes.len() as u64) > VARINT_MAX => {
                Err(WireError::value("data offset", at, first, "an end below 2^62")) // P-24
            }
            _ => Ok(Data { flow, offset, flags, has_len: has(LEN), bytes }),
        }
    }

    /// The data frame that a payload consists of, except padding behind it. `None` if it is
    /// anything else, or malformed.
    #[inline]
    pub fn only(payload: &'a [u8]) -> Option<Self> {
        let mut r = Reader::new(payload);
        let frame_kind = r.u8("frame type").ok()?;
        if !(kind::DATA..=kind::DATA_LAST).contains(&frame_kind) {
            return None;
        }
        Data::read(frame_kind, &mut r).ok().filter(|_| r.peek().iter().all(|byte| *byte == kind::PADDING))
    }

    /// True if a frame of this type carries a whole message, which does not end the flow.
    #[inline]
    pub const fn is_message(frame_kind: u8) -> bool {
        const MARKS: u8 = MESSAGE | BEGIN | END;
        kind::DATA <= frame_kind && frame_kind <= kind::DATA_LAST && frame_kind & (MARKS | FIN) == MARKS
    }

    /// Reads a whole message that ends neither the flow nor, if padding follows, the payload. The
    /// cursor is then at the end. Returns it, and where its bytes begin, as the cursor counts.
    /// `None` if there is anything else, or if it is malformed. The cursor is then anywhere.
    // Of small messages each takes this way, and most of what is read is not looked at.
    #[inline(always)]
    pub fn next_message(r: &mut Reader<'a>) -> Option<(Self, usize)> {
        let frame_kind = r.u8("frame type").ok().filter(|kind| Data::is_message(*kind))?;
        let data = Data::read(frame_kind, r).ok()?;
        let start = r.offset().checked_sub(data.bytes.len())?;
        if r.peek().first() == Some(&kind::PADDING) {
            // P-21: nothing but padding may follow padding here.
            return r.rest().iter().all(|byte| *byte == kind::PADDING).then_some((data, start));
        }
        Some((data, start))
    }

    #[inline]
    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        let len = self.has_len.then_some(self.bytes.len());
        write_header(out, self.flow, self.offset, len, self.flags);
        out.put(self.bytes);
    }
}

emitters!(Data<'_>);

/// Appends the header of a data frame. The caller can then write the bytes in place after it.
/// Without `len` the bytes run to the end of the payload. Without `offset` too, and in a flow below
/// 64, it takes 2 bytes. [P-33]
#[inline]
pub fn emit_data_header(
    out: &mut Vec<u8>,
    flow: u32,
    offset: Option<u64>,
    len: Option<usize>,
    flags: DataFlags,
) {
    write_header(out, flow, offset, len, flags);
}

/// Bytes that [`emit_data_header`] appends.
#[inline]
pub fn data_header_len(flow: u32, offset: Option<u64>, len: Option<usize>) -> usize {
    let mut counter = Counter::default();
    write_header(&mut counter, flow, offset, len, DataFlags::default());
    counter.0
}

// The marks are the same for many frames, and so is what follows from them.
#[inline(always)]
fn write_header<S: Sink>(out: &mut S, flow: u32, offset: Option<u64>, len: Option<usize>, flags: DataFlags) {
    debug_assert!(flags.message || !(flags.begin || flags.end), "P-32");
    let has_len = if len.is_some() { LEN } else { 0 };
    let has_offset = if offset.is_some() { OFFSET } else { 0 };
    let frame_kind = flags.bits() | has_len | has_offset; // P-30
    match u8::try_from(flow) {
        Ok(flow @ ..0x40) => out.put(&[frame_kind, flow]),
        _ => {
            out.put_u8(frame_kind);
            out.put_varint(u64::from(flow));
        }
    }
    if let Some(offset) = offset {
        out.put_varint(offset);
    }
    if let Some(len) = len {
        out.put_varint(len as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::DataWriter;
    use super::*;

    fn message(bytes: &[u8], offset: Option<u64>, has_len: bool) -> Data<'_> {
        let flags = DataFlags { message: true, begin: true, end: true, ..DataFlags::default() };
        Data { flow: 4, offset, flags, has_len, bytes }
    }

    #[test]
    fn a_frame_may_be_padded_where_it_has_a_length() {
        let mut payload = Vec::new();
        message(b"one", Some(70), true).emit(&mut payload);
        for zeros in 0..20 {
            assert_eq!(Data::only(&payload), Some(message(b"one", Some(70), true)), "{zeros} zeros");
            payload.push(kind::PADDING);
        }
        payload.push(kind::PING);
        assert_eq!(Data::only(&payload), None);
        // Without one, zeros are data.
        let mut open = Vec::new();
        message(b"one\0\0", None, false).emit(&mut open);
        assert_eq!(Data::only(&open), Some(message(b"one\0\0", None, false)));
    }

    #[test]
    fn messages_are_read_one_by_one_up_to_anything_else() {
        let first = [message(b"one", Some(70), true), message(b"", None, true)];
        let mut payload = Vec::new();
        first.iter().for_each(|data| data.emit(&mut payload));
        let plain = payload.len();
        message(b"three", None, false).emit(&mut payload);
        let mut r = Reader::new(&payload);
        assert_eq!(Data::next_message(&mut r), Some((first[0], 5)));
        assert_eq!(Data::next_message(&mut r), Some((first[1], plain)));
        assert_eq!(Data::next_message(&mut r), Some((message(b"three", None, false), plain + 2)));
        assert!(r.is_empty());
        assert_eq!(Data::next_message(&mut r), None);
        let mut room = vec![0xff; payload.len() + 9];
        let mut writer = DataWriter::new(&mut room);
        first.iter().for_each(|data| writer.put(data));
        writer.put(&message(b"three", None, false));
        assert_eq!(writer.left(), 9);
        writer.put(&message(b"more than fits", None, false));
        assert_eq!(room[..payload.len()], payload);
        // Padding may end it, but nothing may stand behind that.
        for (behind, expected) in [(&[0, 0][..], true), (&[0, kind::PING][..], false)] {
            let mut padded = payload[..plain].to_vec();
            padded.extend_from_slice(behind);
            let mut r = Reader::new(&padded);
            assert!(Data::next_message(&mut r).is_some());
            assert_eq!(Data::next_message(&mut r).is_some(), expected);
        }
        // A part of a message, the end of the flow, a length beyond the end.
        let part = DataFlags { end: false, ..first[0].flags };
        let fin = DataFlags { fin: true, ..first[0].flags };
        for flags in [part, fin, DataFlags::default()] {
            let mut payload = Vec::new();
            Data { flags, ..first[0] }.emit(&mut payload);
            assert_eq!(Data::next_message(&mut Reader::new(&payload)), None);
        }
        assert_eq!(Data::next_message(&mut Reader::new(&payload[..plain - 4])), None);
    }
}
