//! A write: what the application handed over at once, and the pieces that it consists of.

use bytes::Bytes;

/// Data that the application handed over at once: a stretch of bytes, or messages of one length,
/// each with the marker that ends it.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) data: Bytes,
    /// Number of messages; none in a stretch of bytes.
    pub(super) messages: u32,
    /// The messages are in the form that a presentation mechanism gave them.
    pub(super) presented: bool,
}

/// A stretch of bytes, or one message with the marker that ends it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub(super) start: u64,
    pub(super) data: &'a [u8],
    pub(super) message: bool,
    pub(super) presented: bool,
}

impl Segment {
    pub(super) fn new(start: u64, data: Bytes, message: bool, presented: bool) -> Self {
        Segment { start, data, messages: message.into(), presented }
    }

    #[inline]
    pub(super) fn is_message(&self) -> bool {
        self.messages > 0
    }

    /// Bytes as they are.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.messages == 0 && !self.presented
    }

    /// Where the last message begins, or the stretch of bytes.
    pub(super) fn last_start(&self) -> u64 {
        self.piece((self.messages as usize).saturating_sub(1), self.piece_bytes()).start
    }

    /// The end of its positions, the markers of messages included (segmentation.md R-1).
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.start + self.data.len() as u64 + u64::from(self.messages)
    }

    /// Bytes of each message, or of all that there is.
    #[inline]
    pub(super) fn piece_bytes(&self) -> usize {
        if self.messages > 1 { self.data.len() / self.messages as usize } else { self.data.len() }
    }

    /// The piece `index`, of which each has so many bytes.
    #[inline]
    pub(super) fn piece(&self, index: usize, bytes: usize) -> Piece<'_> {
        let Segment { start, ref data, presented, .. } = *self;
        if self.messages <= 1 {
            return Piece { start, data, message: self.is_message(), presented };
        }
        let from = index * bytes;
        Piece {
            start: start + (from + index) as u64,
            data: data.get(from..from + bytes).unwrap_or_default(),
            message: true,
            presented,
        }
    }

    /// Which of the pieces a position of this segment belongs to.
    #[inline]
    pub(super) fn index_of(&self, position: u64) -> usize {
        if self.messages <= 1 {
            return 0;
        }
        (position.saturating_sub(self.start) / (self.piece_bytes() as u64 + 1)) as usize
    }

    /// The piece that a position of this segment belongs to.
    #[inline]
    pub(super) fn piece_at(&self, position: u64) -> Piece<'_> {
        self.piece(self.index_of(position), self.piece_bytes())
    }
}

impl Piece<'_> {
    #[inline]
    pub(super) fn data_end(&self) -> u64 {
        self.start + self.data.len() as u64
    }

    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.data_end() + u64::from(self.message)
    }
}
