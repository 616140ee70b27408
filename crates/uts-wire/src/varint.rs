//! Variable-length integers (RFC 9000, section 16), the cursor that every parser reads with, and
//! the sink that every emitter writes to.

use crate::error::{Problem, WireError};

/// The largest value that a variable-length integer holds. [P-1]
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Bytes that `value` takes: 1, 2, 4 or 8.
pub const fn varint_len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// Appends `value` in the fewest bytes. A value over [`VARINT_MAX`] is the caller's mistake. It is
/// written as the maximum.
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    out.put_varint(value);
}

/// A cursor over bytes from outside. Every read names what it reads, for the error.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
    /// Where the bytes left end, so that a read changes nothing but these.
    end: usize,
}

impl<'a> Reader<'a> {
    /// A cursor at the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Reader { left: bytes, end: bytes.len() }
    }

    /// A cursor at the start of `bytes`. These stand at `offset` of what offsets in errors count
    /// from.
    pub const fn at(bytes: &'a [u8], offset: usize) -> Self {
        Reader { left: bytes, end: offset.saturating_add(bytes.len()) }
    }

    /// Position of the cursor, counted as errors count positions.
    pub const fn offset(&self) -> usize {
        self.end.saturating_sub(self.left.len())
    }

    /// Bytes left.
    pub const fn remaining(&self) -> usize {
        self.left.len()
    }

    /// True if nothing is left.
    pub const fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// The bytes left, without taking them.
    pub const fn peek(&self) -> &'a [u8] {
        self.left
    }

    /// Takes all bytes left.
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.left)
    }

    #[cold]
    fn truncated(&self, what: &'static str, needed: u64) -> WireError {
        WireError::new(what, self.offset(), Problem::Truncated { needed, left: self.left.len() })
    }

    /// Takes `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: u64, what: &'static str) -> Result<&'a [u8], WireError> {
        let split = usize::try_from(len).ok().and_then(|len| self.left.split_at_checked(len));
        let (head, tail) = split.ok_or_else(|| self.truncated(what, len))?;
        self.left = tail;
        Ok(head)
    }

    /// Takes the last `len` bytes of those left.
    pub fn bytes_back(&mut self, len: u64, what: &'static str) -> Result<&'a [u8], WireError> {
        let keep = usize::try_from(len).ok().and_then(|len| self.left.len().checked_sub(len));
        let split = keep.and_then(|keep| self.left.split_at_checked(keep));
        let (head, tail) = split.ok_or_else(|| self.truncated(what, len))?;
        self.left = head;
        self.end = self.end.saturating_sub(tail.len());
        Ok(tail)
    }

    /// Takes `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], WireError> {
        let (head, tail) =
            self.left.split_first_chunk::<N>().ok_or_else(|| self.truncated(what, N as u64))?;
        self.left = tail;
        Ok(*head)
    }

    /// Takes a byte.
    #[inline]
    pub fn u8(&mut self, what: &'static str) -> Result<u8, WireError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    /// Takes a 16-bit integer in network byte order.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, WireError> {
        self.array(what).map(u16::from_be_bytes)
    }

    /// Takes a 32-bit integer in network byte order.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, WireError> {
        self.array(what).map(u32::from_be_bytes)
    }

    /// Takes a 64-bit integer in network byte order.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, WireError> {
        self.array(what).map(u64::from_be_bytes)
    }

    /// Takes a variable-length integer. Encodings longer than necessary are accepted, as RFC 9000
    /// does. [P-1]
    #[inline]
    pub fn varint(&mut self, what: &'static str) -> Result<u64, WireError> {
        let (value, tail) = match self.left {
            [a @ ..0x40, tail @ ..] => (u64::from(*a), tail),
            [a @ 0x40..0x80, b, tail @ ..] => (u64::from(u16::from_be_bytes([a & 0x3f, *b])), tail),
            [a @ 0x80..0xc0, b, c, d, tail @ ..] => {
                (u64::from(u32::from_be_bytes([a & 0x3f, *b, *c, *d])), tail)
            }
            [a @ 0xc0..=0xff, b, c, d, e, f, g, h, tail @ ..] => {
                (u64::from_be_bytes([a & 0x3f, *b, *c, *d, *e, *f, *g, *h]), tail)
            }
            cut_off => {
                let needed = cut_off.first().map_or(1, |first| 1 << (first >> 6));
                return Err(self.truncated(what, needed));
            }
        };
        self.left = tail;
        Ok(value)
    }

    /// Takes a variable-length integer that must fit in 32 bits.
    #[inline]
    pub fn varint_u32(&mut self, what: &'static str) -> Result<u32, WireError> {
        let at = self.offset();
        let value = self.varint(what)?;
        u32::try_from(value).map_err(|_| WireError::value(what, at, value, "less than 2^32"))
    }

    /// Takes a variable-length integer that must fit in 8 bits.
    pub fn varint_u8(&mut self, what: &'static str) -> Result<u8, WireError> {
        let at = self.offset();
        let value = self.varint(what)?;
        u8::try_from(value).map_err(|_| WireError::value(what, at, value, "less than 2^8"))
    }

    /// Takes a variable-length length of at most `max`, and as many bytes.
    #[inline]
    pub fn prefixed(&mut self, max: usize, what: &'static str) -> Result<&'a [u8], WireError> {
        let at = self.offset();
        let len = self.varint(what)?;
        if len > max as u64 {
            return Err(WireError::too_long(what, at, len, max as u64));
        }
        self.bytes(len, what)
    }

    /// Takes a text of at most `max` bytes behind its variable-length length.
    pub fn text(&mut self, max: usize, what: &'static str) -> Result<&'a str, WireError> {
        let at = self.offset();
        let bytes = self.prefixed(max, what)?;
        core::str::from_utf8(bytes).map_err(|_| WireError::new(what, at, Problem::NotText))
    }

    /// Succeeds if nothing is left.
    pub fn finish(&self, what: &'static str) -> Result<(), WireError> {
        match self.left.len() {
            0 => Ok(()),
            left => Err(WireError::new(what, self.offset(), Problem::Trailing { left })),
        }
    }
}

/// Where emitters write: a vector, memory that is there, or a counter that only measures. One
/// routine serves all. `encoded_len()` can therefore not differ from what `emit()` writes.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);

    fn put_zeros(&mut self, count: usize);

    #[inline]
    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    #[inline]
    fn put_varint(&mut self, value: u64) {
        debug_assert!(value <= VARINT_MAX, "{value} does not fit in a variable-length integer");
        let value = value.min(VARINT_MAX);
        let [.., b4, b5, b6, b7] = value.to_be_bytes();
        match varint_len(value) {
            1 => self.put(&[b7]),
            2 => self.put(&[b6 | 0x40, b7]),
            4 => self.put(&[b4 | 0x80, b5, b6, b7]),
            _ => self.put(&(value | 0xc0 << 56).to_be_bytes()),
        }
    }

    /// A variable-length length and the bytes.
    fn put_prefixed(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.put(bytes);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn put_zeros(&mut self, count: usize) {
        self.resize(self.len().saturating_add(count), 0);
    }
}

/// Memory left to write to, from the front on; what does not fit is left out.
#[derive(Debug)]
pub(crate) struct Room<'a>(pub &'a mut [u8]);

impl Sink for Room<'_> {
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        if let Some(place) = self.0.split_off_mut(..bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn put_zeros(&mut self, count: usize) {
        if let Some(place) = self.0.split_off_mut(..count) {
            place.fill(0);
        }
    }
}

/// A sink that counts.
#[derive(Default)]
pub(crate) struct Counter(pub usize);

impl Sink for Counter {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.0 = self.0.saturating_add(bytes.len());
    }

    fn put_zeros(&mut self, count: usize) {
        self.0 = self.0.saturating_add(count);
    }
}

/// Gives a type with `fn write<S: Sink>(&self, &mut S)` its public emitters.
macro_rules! emitters {
    ($($ty:ty),+ $(,)?) => {$(
        impl $ty {
            /// Appends the encoding.
            pub fn emit(&self, out: &mut Vec<u8>) {
                self.write(out);
            }

            /// Bytes that [`emit`](Self::emit) appends.
            pub fn encoded_len(&self) -> usize {
                let mut counter = $crate::varint::Counter::default();
                self.write(&mut counter);
                counter.0
            }
        }
    )+};
}
pub(crate) use emitters;

/// The longest start of `text` that has at most `max` bytes and ends between characters.
pub(crate) fn clip(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_rfc_9000_a_1() {
        let examples: [(&[u8], u64); 4] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ];
        for (bytes, value) in examples {
            assert_eq!(Reader::new(bytes).varint("x"), Ok(value));
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, bytes);
        }
        assert_eq!(Reader::new(&[0x40, 0x25]).varint("x"), Ok(37));
    }

    #[test]
    fn the_error_names_field_place_and_need() {
        let mut r = Reader::new(&[1, 0xc0, 0]);
        assert_eq!(r.u8("a"), Ok(1));
        let error = r.varint("limit").expect_err("three bytes short");
        assert_eq!(error.to_string(), "limit at byte 1: needs 8 bytes, has 2");
    }

    #[test]
    fn clip_ends_between_characters() {
        assert_eq!(clip("aé", 2), "a");
        assert_eq!(clip("aé", 3), "aé");
        assert_eq!(clip("aé", 300), "aé");
    }
}
