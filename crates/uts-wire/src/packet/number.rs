//! Truncated packet numbers (RFC 9000, section 17.1 and appendix A).

use crate::varint::VARINT_MAX;

/// The low 1 to 4 bytes of a packet number. [P-5]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncatedNumber {
    value: u32,
    len: u8,
}

impl TruncatedNumber {
    /// Truncates `full` to the fewest bytes that the peer can complete, given the largest number
    /// that it has acknowledged (RFC 9000, A.2). With 2^31 or more numbers unacknowledged no length
    /// is enough. It is 4 then.
    pub const fn of(full: u64, largest_acked: Option<u64>) -> Self {
        let unacked = match largest_acked {
            Some(acked) => full.saturating_sub(acked),
            None => full.saturating_add(1),
        };
        let len = match unacked {
            0..=0x80 => 1,
            0x81..=0x8000 => 2,
            0x8001..=0x80_0000 => 3,
            _ => 4,
        };
        Self::with_len(full, len)
    }

    /// The low `len` bytes of `full`; `len` is brought into 1..=4.
    pub const fn with_len(full: u64, len: u8) -> Self {
        let len = if len < 1 {
            1
        } else if len > 4 {
            4
        } else {
            len
        };
        TruncatedNumber { value: (full & ((1 << (8 * len as u32)) - 1)) as u32, len }
    }

    /// Bytes, 1 to 4.
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Never: a number has at least a byte.
    pub const fn is_empty(self) -> bool {
        false
    }

    /// The bytes' value.
    pub const fn value(self) -> u32 {
        self.value
    }

    /// The packet number nearest to `expected`, the largest received so far plus 1, that ends with
    /// these bytes (RFC 9000, A.3).
    pub const fn expand(self, expected: u64) -> u64 {
        let window = 1u64 << (8 * self.len as u32);
        let half = window / 2;
        let expected = if expected > VARINT_MAX { VARINT_MAX } else { expected };
        let candidate = (expected & !(window - 1)) | self.value as u64;
        if candidate + half <= expected && candidate + window <= VARINT_MAX {
            candidate + window
        } else if candidate > expected + half && candidate >= window {
            candidate - window
        } else {
            candidate
        }
    }

    /// Part of `full` that these bytes leave out: all above them.
    pub const fn left_out_of(self, full: u64) -> u64 {
        full >> (8 * self.len as u32)
    }

    #[inline]
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        // As many bytes as there may be at once, which takes no call.
        let end = out.len().saturating_add(self.len());
        out.extend_from_slice(&(self.value << (8 * (4 - self.len))).to_be_bytes());
        out.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_rfc_9000_a() {
        assert_eq!(TruncatedNumber::of(0xac5c02, Some(0xabe8b3)), TruncatedNumber::with_len(0x5c02, 2));
        assert_eq!(TruncatedNumber::of(0xace8fe, Some(0xabe8b3)), TruncatedNumber::with_len(0xace8fe, 3));
        assert_eq!(TruncatedNumber::with_len(0x9b32, 2).expand(0xa82f30eb), 0xa82f9b32);
    }

    #[test]
    fn the_first_packets_take_a_byte() {
        assert_eq!(TruncatedNumber::of(0, None).len(), 1);
        assert_eq!(TruncatedNumber::of(127, None).len(), 1);
        assert_eq!(TruncatedNumber::of(128, None).len(), 2);
    }
}
