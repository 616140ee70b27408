//! Feedback: the words in which the half of a mechanism at the receiver speaks to its half at the
//! sender (packets.md P-35).

/// Words that a mechanism cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("feedback of {mechanism} that cannot be read")]
pub struct BadFeedback {
    /// The mechanism that they are for.
    pub mechanism: &'static str,
}

/// Appends a variable-length integer (RFC 9000 section 16). What is over 2^62 - 1 becomes that.
pub fn put_varint(value: u64, out: &mut Vec<u8>) {
    let value = value.min((1 << 62) - 1);
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Takes a variable-length integer off the front.
pub fn take_varint(words: &mut &[u8]) -> Option<u64> {
    let len = 1usize << (words.first()? >> 6);
    let (bytes, rest) = words.split_at_checked(len)?;
    *words = rest;
    let value = bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some(value & (u64::MAX >> (66 - 8 * len as u32)))
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
            let mut out = Vec::new();
            put_varint(value, &mut out);
            assert_eq!(out, bytes);
            let mut rest = bytes;
            assert_eq!((take_varint(&mut rest), rest), (Some(value), &[][..]));
            assert_eq!(take_varint(&mut &bytes[..bytes.len() - 1]), None);
        }
    }
}
