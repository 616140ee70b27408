//! Whole messages of a flow, one behind the other. Many small ones fill a packet. What their frames
//! have in common is written, and checked, once.

use super::data::{Data, DataFlags, LEN, OFFSET, PRESENTED};
use super::messages::Messages;
use crate::varint::{Room, VARINT_MAX, varint_len};

/// Bytes at the beginning of each frame of a row: its type, and a flow whose number takes a byte.
const HEAD_BYTES: usize = 2;

/// Bytes that a varint may take.
const VARINT_BYTES_MAX: usize = 8;

/// Largest number of bytes before a message's bytes in a row.
const AROUND_BYTES_MAX: usize = HEAD_BYTES + 2 * VARINT_BYTES_MAX;

/// Writes data frames, one behind the other, into memory that is there already. For many small ones
/// this is much faster than to append each.
#[derive(Debug)]
pub struct DataWriter<'a>(Room<'a>);

/// First bytes of each frame of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowHead([u8; HEAD_BYTES]);

/// A message of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InRow {
    /// Its position, if it has one.
    pub offset: Option<u64>,
    /// Where its bytes begin in the payload.
    pub from: usize,
    /// Where they end.
    pub to: usize,
}

/// Reads the messages of a row, each of which has its length.
#[derive(Debug)]
pub struct RowReader<'a> {
    payload: &'a [u8],
    head: RowHead,
    at: usize,
}

impl RowHead {
    /// The writer of whole messages of a flow, each with its length. `None` if the flow's number
    /// takes more than a byte. [P-30]
    pub fn new(flow: u32, has_offset: bool, presented: bool) -> Option<Self> {
        let flow = u8::try_from(flow).ok().filter(|flow| *flow < 0x40)?;
        let flags = DataFlags { message: true, begin: true, end: true, presented, ..DataFlags::default() };
        Some(RowHead([flags.bits() | LEN | if has_offset { OFFSET } else { 0 }, flow]))
    }

    const fn has(self, bit: u8) -> bool {
        self.0[0] & bit != 0
    }

    /// The flow.
    pub const fn flow(self) -> u32 {
        self.0[1] as u32
    }

    /// True if messages are in the form that a presentation mechanism gave them.
    pub const fn presented(self) -> bool {
        self.has(PRESENTED)
    }
}

impl<'a> DataWriter<'a> {
    /// If room for less than this and a message's bytes is left, it may be too little for
    /// [`DataWriter::put_in_row`].
    pub const ROW_HEAD_MAX_BYTES: usize = AROUND_BYTES_MAX;

    /// Begins at the front of `room`.
    pub const fn new(room: &'a mut [u8]) -> Self {
        DataWriter(Room(room))
    }

    /// Bytes of the room that are left.
    pub const fn left(&self) -> usize {
        self.0.0.len()
    }

    /// Writes a frame. It must fit: what does not is left out.
    #[inline(always)]
    pub fn put(&mut self, data: &Data<'_>) {
        data.write(&mut self.0);
    }

    /// Writes a frame of messages. It must fit: what does not is left out.
    #[inline]
    pub fn put_messages(&mut self, messages: &Messages<'_>) {
        messages.write(&mut self.0);
    }

    /// Writes a message's frame as [`DataWriter::put`] does. `offset` is its position if the head
    /// says that there is one. `None` if it did not. It always does if
    /// [`DataWriter::ROW_HEAD_MAX_BYTES`] fit beside the message.
    // What is behind a varint is written over it: a whole word is written faster than the bytes
    // that it takes.
    #[inline(always)]
    pub fn put_in_row(&mut self, head: RowHead, offset: u64, bytes: &[u8]) -> Option<()> {
        let room = &mut *self.0.0;
        let [kind, flow, rest @ ..] = room.first_chunk_mut::<AROUND_BYTES_MAX>()?;
        [*kind, *flow] = head.0;
        let mut at = 0;
        if head.has(OFFSET) {
            at = put_varint(offset, rest, at)?;
        }
        at = put_varint(bytes.len() as u64, rest, at)?;
        let from = HEAD_BYTES + at;
        room.get_mut(from..from.checked_add(bytes.len())?)?.copy_from_slice(bytes);
        self.0.0.split_off_mut(..from + bytes.len()).map(|_| ())
    }
}

/// Writes a variable-length integer, and nothing that matters behind it. Says where it ends. [P-1]
#[inline(always)]
fn put_varint(value: u64, out: &mut [u8], at: usize) -> Option<usize> {
    debug_assert!(value <= VARINT_MAX, "{value} does not fit in a variable-length integer");
    let place = out.get_mut(at..)?.first_chunk_mut()?;
    let len = varint_len(value);
    let mark = u64::from(len.trailing_zeros()) << 62;
    *place = ((value << (64 - 8 * len)) | mark).to_be_bytes();
    Some(at + len)
}

/// The variable-length integer in front of `bytes`, and how many it takes. `None` if there is less
/// than a word.
#[inline(always)]
fn decode(bytes: &[u8]) -> Option<(u64, usize)> {
    let word = u64::from_be_bytes(*bytes.first_chunk()?);
    let len = 1_usize << (word >> 62);
    Some(((word & VARINT_MAX) >> (64 - 8 * len), len))
}

impl<'a> RowReader<'a> {
    /// The row in front of a payload. `None` if it begins with anything else, or with something
    /// that needs a closer check.
    #[inline]
    pub fn new(payload: &'a [u8]) -> Option<Self> {
        let head = RowHead(*payload.first_chunk()?);
        let [frame_kind, flow] = head.0;
        let is_row = Data::is_message(frame_kind) && head.has(LEN) && flow < 0x40;
        is_row.then_some(RowReader { payload, head, at: 0 })
    }

    /// First bytes of its frames.
    pub const fn head(&self) -> RowHead {
        self.head
    }

    /// Where the row has ended so far: behind the last message that was given.
    pub const fn end(&self) -> usize {
        self.at
    }

    /// The next message. `None` if another frame follows, if it is malformed, or if it is too near
    /// to the end of the payload to be read by words. In these cases [`Data::next_message`] reads
    /// on from [`RowReader::end`].
    #[inline(always)]
    pub fn next_message(&mut self) -> Option<InRow> {
        let (head, mut left) = self.payload.get(self.at..)?.split_first_chunk()?;
        if *head != self.head.0 {
            return None;
        }
        let mut from = self.at + HEAD_BYTES;
        let mut offset = None;
        if self.head.has(OFFSET) {
            let (value, len) = decode(left)?;
            (offset, left, from) = (Some(value), left.get(len..)?, from + len);
        }
        let (bytes, len) = decode(left)?;
        from += len;
        let to = usize::try_from(bytes).ok()?.checked_add(from).filter(|to| *to <= self.payload.len())?;
        // P-24
        if offset.is_some_and(|first| first + bytes > VARINT_MAX) {
            return None;
        }
        self.at = to;
        Some(InRow { offset, from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::varint::Reader;

    const OFFSETS: [u64; 9] =
        [0, 0x3f, 0x40, 0x3fff, 0x4000, 0x3fff_ffff, 0x4000_0000, VARINT_MAX / 3, VARINT_MAX - 300];

    fn messages() -> impl Iterator<Item = (u64, Vec<u8>)> {
        let sizes = [0_u8, 1, 63, 64, 100, 255];
        OFFSETS.iter().flat_map(move |offset| sizes.map(|size| (*offset, vec![size ^ 0x5a; size.into()])))
    }

    #[test]
    fn a_row_is_written_and_read_as_frame_by_frame() {
        for (has_offset, presented, flow) in
            [(false, false, 0), (true, false, 63), (true, true, 5), (false, true, 1)]
        {
            let head = RowHead::new(flow, has_offset, presented).expect("a small flow");
            let flags =
                DataFlags { message: true, begin: true, end: true, presented, ..DataFlags::default() };
            let (mut row, mut one_by_one) = (vec![0xff; 1 << 16], Vec::new());
            let mut writer = DataWriter::new(&mut row);
            for (start, bytes) in messages() {
                let offset = has_offset.then_some(start);
                Data { flow, offset, flags, has_len: true, bytes: &bytes }.emit(&mut one_by_one);
                writer.put_in_row(head, start, &bytes).expect("there is room");
            }
            let written = (1 << 16) - writer.left();
            assert_eq!(row[..written], one_by_one);
            let (mut row, mut general) =
                (RowReader::new(&one_by_one).expect("a row"), Reader::new(&one_by_one));
            assert_eq!(row.head(), head);
            assert_eq!(row.head().presented(), presented);
            let mut count = 0;
            while let Some(InRow { offset, from, to }) = row.next_message() {
                let (data, start) = Data::next_message(&mut general).expect("one more");
                assert_eq!((offset, &one_by_one[from..to], from), (data.offset, data.bytes, start));
                assert_eq!(row.end(), general.offset());
                count += 1;
            }
            assert_eq!(count, messages().count());
            assert!(general.is_empty());
        }
        assert_eq!(RowHead::new(64, false, false), None);
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        let head = RowHead::new(3, true, false).expect("a small flow");
        let needed = DataWriter::ROW_HEAD_MAX_BYTES + 100;
        let mut room = vec![0; needed];
        DataWriter::new(&mut room).put_in_row(head, VARINT_MAX - 100, &[7; 100]).expect("there is room");
        for lacking in 0..needed {
            let mut writer = DataWriter::new(&mut room[..lacking]);
            // A short head may fit in less; nothing is ever written in part.
            let fits = writer.put_in_row(head, 9, &[7; 100]).is_some();
            assert_eq!(writer.left(), if fits { lacking - 105 } else { lacking }, "{lacking}");
            assert!(!fits || lacking >= 105);
        }
    }

    #[test]
    fn a_row_ends_at_anything_else() {
        let flags = DataFlags { message: true, begin: true, end: true, ..DataFlags::default() };
        let frame = |flow, offset, flags, has_len| {
            let mut frame = Vec::new();
            Data { flow, offset, flags, has_len, bytes: b"0123456789" }.emit(&mut frame);
            frame
        };
        let first = frame(4, Some(70), flags, true);
        for other in [
            frame(5, Some(81), flags, true),
            frame(4, None, flags, true),
            frame(4, Some(81), DataFlags { end: false, ..flags }, true),
            frame(4, Some(81), DataFlags { fin: true, ..flags }, true),
            frame(4, Some(81), DataFlags { presented: true, ..flags }, true),
            frame(4, Some(81), flags, false),
            // Cut off, beyond the last position, padding.
            frame(4, Some(81), flags, true)[..12].to_vec(),
            frame(4, Some(VARINT_MAX - 9), flags, true),
            vec![0; 20],
            Vec::new(),
        ] {
            let payload = [first.clone(), other.clone()].concat();
            let mut row = RowReader::new(&payload).expect("a row");
            assert!(row.next_message().is_some());
            assert_eq!((row.next_message(), row.end()), (None, first.len()), "{other:?}");
        }
        // A row begins with a message that has its length, of a flow below 64.
        for payload in
            [frame(4, None, flags, false), frame(64, None, flags, true), vec![0; 20], vec![first[0]]]
        {
            assert!(RowReader::new(&payload).is_none(), "{payload:?}");
        }
    }
}
