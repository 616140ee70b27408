//! Compression of content on its way (`uts cp -z`), a piece at a time, by the library's own
//! mechanism for messages: presentation/zstd.
//!
//! A piece that does not shrink goes as it is. Content that does not pay is found by a sample, and
//! left alone for a while: what was compressed already costs next to nothing. The length of a piece
//! tells of its content (presentation.md R-15), so that only who asks for it has it.

use super::error::{Fault, FaultKind};
use super::message::invalid;
use super::stream::LENGTH_BYTES;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};
use uts::functions::presentation::zstd::Zstd;
use uts::functions::presentation::{Presentation, Slot};

/// In place of the length of a chunk: a compressed piece comes next.
pub(super) const PACKED: u32 = u32::MAX - 3;
/// Bytes before a packed piece.
pub(super) const PACKED_HEAD_BYTES: usize = 3 * LENGTH_BYTES;
/// The longest piece that is compressed, in bytes of content. Zstandard looks at no more for one
/// block (RFC 8878 section 3.1.1.2.4). Its receiver holds it twice.
pub(super) const PACKED_BYTES_MAX: usize = 128 * 1024;
/// Less is not worth a try.
const PACKED_BYTES_MIN: usize = 128;
/// Bytes in the middle of a piece that are tried first.
const SAMPLE_BYTES: usize = 16 * 1024;
/// A piece pays if it loses this part of its length.
const SAVED_PART: usize = 16;
/// Pieces that are left alone after some that did not pay, at most: 4 MiB.
const PAUSE_MAX: u32 = 32;

/// Head of a packed piece.
pub(super) fn packed_head(bytes: usize, packed: usize) -> [u8; PACKED_HEAD_BYTES] {
    let mut head = [0; PACKED_HEAD_BYTES];
    let numbers = [PACKED, bytes as u32, packed as u32].map(u32::to_be_bytes);
    head.copy_from_slice(numbers.as_flattened());
    head
}

/// The lengths of a piece of content, and of the form in which it comes.
pub(super) async fn packed_lengths<R: AsyncRead + Unpin>(flow: &mut R) -> io::Result<(usize, usize)> {
    let (bytes, packed) = (flow.read_u32().await? as usize, flow.read_u32().await? as usize);
    if (1..=PACKED_BYTES_MAX).contains(&bytes) && (1..bytes).contains(&packed) {
        return Ok((bytes, packed));
    }
    let why =
        format!("a piece of {bytes} bytes packed into {packed}; up to {PACKED_BYTES_MAX} can be, into fewer");
    Err(invalid(why))
}

/// Compressor of one file's content.
#[derive(Debug)]
pub(super) struct Packing {
    mechanism: Slot,
    /// Pieces to be left alone now, and the next time.
    rest: u32,
    pause: u32,
}

fn mechanism() -> Option<Slot> {
    Slot::build(&Zstd::INFO.choice(), ())
}

impl Packing {
    /// One that begins with a try, or none.
    pub(super) fn new(is_wanted: bool) -> Option<Packing> {
        let mechanism = is_wanted.then(mechanism).flatten()?;
        Some(Packing { mechanism, rest: 0, pause: 0 })
    }

    /// The form of a piece in which it travels; `None` = as it is.
    pub(super) fn pack(&mut self, piece: &[u8]) -> Option<Vec<u8>> {
        if !(PACKED_BYTES_MIN..=PACKED_BYTES_MAX).contains(&piece.len()) {
            return None;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let packed = self.pays(sample(piece)).then(|| self.mechanism.present(piece).into_owned());
        let packed = packed.filter(|packed| is_shorter(packed.len(), piece.len()));
        self.pause = if packed.is_some() { 0 } else { (2 * self.pause).clamp(1, PAUSE_MAX) };
        self.rest = self.pause;
        packed
    }

    fn pays(&self, sample: &[u8]) -> bool {
        is_shorter(self.mechanism.present(sample).len(), sample.len())
    }
}

fn sample(piece: &[u8]) -> &[u8] {
    let from = piece.len().saturating_sub(SAMPLE_BYTES) / 2;
    piece.get(from..piece.len().min(from + SAMPLE_BYTES)).unwrap_or_default()
}

fn is_shorter(packed: usize, piece: usize) -> bool {
    packed <= piece - piece / SAVED_PART
}

/// The content of a packed piece, of exactly `bytes`.
///
/// # Errors
/// [`FaultKind::Corrupt`] if it is none, or of another length: before memory is taken for it.
pub(super) fn unpack(packed: &[u8], bytes: usize) -> Result<Vec<u8>, Fault> {
    let corrupt = |why: String| Fault::new(FaultKind::Corrupt, b"", why);
    let mechanism = mechanism().ok_or_else(|| corrupt("there is no zstd here".into()))?;
    match mechanism.unpresent(packed, bytes) {
        Ok(content) if content.len() == bytes => Ok(content.into_owned()),
        Ok(content) => Err(corrupt(format!(
            "a packed piece has {} bytes, and was announced with {bytes}",
            content.len()
        ))),
        Err(error) => Err(corrupt(format!("a packed piece cannot be read: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::content;

    fn text(bytes: usize) -> Vec<u8> {
        (0u32..).flat_map(|i| format!("line {} of a log\n", i % 1000).into_bytes()).take(bytes).collect()
    }

    #[test]
    fn what_pays_is_packed_and_comes_back() {
        let mut packing = Packing::new(true).unwrap();
        for bytes in [PACKED_BYTES_MIN, 5000, PACKED_BYTES_MAX] {
            let piece = text(bytes);
            let packed = packing.pack(&piece).unwrap();
            assert!(packed.len() < bytes, "{bytes}");
            assert_eq!(unpack(&packed, bytes).unwrap(), piece);
            for wrong in [bytes - 1, bytes + 1, 0, usize::MAX] {
                assert_eq!(unpack(&packed, wrong).unwrap_err().kind, FaultKind::Corrupt);
            }
            assert!(unpack(&packed[..packed.len() / 2], bytes).is_err());
        }
        assert!(packing.pack(&text(PACKED_BYTES_MIN - 1)).is_none());
        assert!(packing.pack(&text(PACKED_BYTES_MAX + 1)).is_none());
        assert!(Packing::new(false).is_none());
    }

    /// Of content that does not pay fewer and fewer pieces are tried; what pays again is found.
    #[test]
    fn what_does_not_pay_is_left_alone_for_a_while() {
        let mut packing = Packing::new(true).unwrap();
        let noise = content(1, PACKED_BYTES_MAX);
        let mut tried = 0;
        for _ in 0..100 {
            let rested = packing.rest;
            assert!(packing.pack(&noise).is_none());
            tried += u32::from(rested == 0);
        }
        assert!(tried < 10, "{tried}");
        let text = text(PACKED_BYTES_MAX);
        let until = (0..100).position(|_| packing.pack(&text).is_some());
        assert!(until.is_some_and(|pieces| pieces <= PAUSE_MAX as usize), "{until:?}");
        assert!(packing.pack(&text).is_some());
    }
}
