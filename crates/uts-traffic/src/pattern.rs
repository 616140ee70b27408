//! Content that follows from a seed, so that a receiver notices any wrong byte.

use bytes::Bytes;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The content repeats after this many bytes. The number is prime: a stretch that is misplaced by
/// any usual size (packets, blocks, buffers) differs.
const PERIOD: usize = 65_521;

/// The longest stretch that [`Pattern::slice`] gives.
pub(crate) const SLICE_MAX: usize = 64 << 10;

/// Random bytes from a seed, repeated without end. Each file, request or message begins at another
/// place of it.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Bytes);

impl Pattern {
    pub fn new(seed: u64) -> Self {
        let mut bytes = vec![0; PERIOD + SLICE_MAX];
        let (first, second) = bytes.split_at_mut(PERIOD);
        ChaCha8Rng::seed_from_u64(seed).fill_bytes(first);
        for (copy, byte) in second.iter_mut().zip(first.iter().cycle()) {
            *copy = *byte;
        }
        Pattern(bytes.into())
    }

    /// Up to `max` bytes of item `item` from a position on.
    pub fn slice(&self, item: u64, position: u64, max: usize) -> &[u8] {
        // An odd multiplier far from the period, so that neighbouring items begin far apart.
        let begin = item.wrapping_mul(0x9e37_79b9_7f4a_7c15) % PERIOD as u64;
        let at = ((begin + position % PERIOD as u64) % PERIOD as u64) as usize;
        self.0.get(at..at + max.min(SLICE_MAX)).unwrap_or_default()
    }

    /// Appends this many bytes of an item from a position on.
    pub fn append(&self, item: u64, mut position: u64, count: usize, to: &mut Vec<u8>) {
        let end = position + count as u64;
        while position < end {
            let part = self.slice(item, position, (end - position) as usize);
            to.extend_from_slice(part);
            position += part.len() as u64;
        }
    }

    /// The position of the first byte that is not what it should be.
    pub fn check(&self, item: u64, position: u64, bytes: &[u8]) -> Option<u64> {
        let mut at = position;
        for part in bytes.chunks(SLICE_MAX) {
            let expected = self.slice(item, at, part.len());
            if part != expected {
                let wrong = part.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
                return Some(at + wrong as u64);
            }
            at += part.len() as u64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_wrong_byte_is_noticed() {
        let pattern = Pattern::new(7);
        let mut content = Vec::new();
        pattern.append(3, 1000, 200_000, &mut content);
        assert_eq!(content.len(), 200_000);
        assert_eq!(pattern.check(3, 1000, &content), None);
        assert_eq!(pattern.check(3, 1000 + 70_000, &content[70_000..]), None, "from the middle on");
        assert!(pattern.check(4, 1000, &content).is_some(), "another item");
        assert!(pattern.check(3, 1000 + 1460, &content).is_some(), "misplaced");
        assert!(Pattern::new(8).check(3, 1000, &content).is_some(), "another seed");
        for at in [0, 65_535, 65_536, 199_999] {
            let mut wrong = content.clone();
            wrong[at] ^= 1;
            assert_eq!(pattern.check(3, 1000, &wrong), Some(1000 + at as u64));
        }
    }
}
