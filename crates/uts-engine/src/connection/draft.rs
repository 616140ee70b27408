//! A packet under construction, and the room there is for it.

use super::flows::Token;
use super::trace::FrameKinds;
use crate::synthesis::SendStack;
use core::ops::Range;
use uts_functions::retransmission::ledger::Tokens;
use uts_wire::packet::AdaptiveMark;

/// Below this much room no further data frame is begun.
pub(super) const DATA_ROOM_MIN_BYTES: usize = 32;

/// A packet is as good as full with less than this part of its room left: a message that would go whole into the next one is
/// not torn for it, and what follows in a batch is made as long as the first by padding.
pub(super) const FULL_BUT: usize = 8;

/// Room that a packet under FEC leaves, so that the redundancy made from it fits into a packet too: type, first number,
/// mask, index, count, length (spec P: Repair), and the symbol's own length.
const REPAIR_ROOM_BYTES: usize = 56;

/// Why a packet may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Something waits, and window and rate allow it.
    Admitted,
    /// A time-out: the window does not count.
    Probe,
    /// Only an acknowledgement.
    Report,
    /// A larger packet size is tried.
    SizeProbe(usize),
}

/// A packet under construction.
pub(super) struct Draft {
    pub(super) reason: Reason,
    /// Index of the stack under which it is built.
    pub(super) stack: usize,
    pub(super) mark: AdaptiveMark,
    /// End of the room for frames, as a position in the buffer.
    pub(super) end: usize,
    /// The same if it were as long as a packet may be, not as those before it in its batch.
    pub(super) full_end: usize,
    pub(super) tokens: Tokens<Token>,
    pub(super) eliciting: bool,
    pub(super) has_data: bool,
    pub(super) repeats: bool,
    /// It is to be as long as the packets before it.
    pub(super) is_next: bool,
    /// See [`Room::block_bytes`].
    pub(super) block_bytes: usize,
    /// Padding may follow what is in it.
    pub(super) is_open: bool,
    /// Whole messages in it that are sent for the first time.
    pub(super) messages: usize,
    /// It ended because the next message would be torn, which is as long as the one before.
    pub(super) is_even: bool,
    /// The message behind the last one in it is as long.
    pub(super) is_steady: bool,
    /// For the trace.
    pub(super) frames: FrameKinds,
}

/// The room for a packet.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) bytes: usize,
    /// What the first of a batch has.
    pub(super) full: usize,
    /// The packet follows another in a batch: it is made just as long where little is lacking.
    pub(super) is_next: bool,
    /// Its payload is made whole blocks of so many bytes where nothing but padding is lacking.
    pub(super) block_bytes: usize,
}

/// A packet was built.
pub(super) struct Built {
    /// It carries data of flows, not redundancy or control alone.
    pub(super) has_data: bool,
    /// Whole messages in it.
    pub(super) messages: usize,
    /// See [`Draft::is_even`].
    pub(super) is_even: bool,
    /// See [`Draft::is_steady`].
    pub(super) is_steady: bool,
}

impl Draft {
    /// A packet for which nothing is decided yet, of frames up to `end`, and no padding behind them.
    pub(super) fn new(reason: Reason, stack: usize, mark: AdaptiveMark, end: usize) -> Self {
        Draft {
            reason,
            stack,
            mark,
            end,
            full_end: end,
            tokens: Tokens::new(),
            eliciting: false,
            has_data: false,
            repeats: false,
            is_next: false,
            block_bytes: 1,
            is_open: false,
            messages: 0,
            is_even: false,
            is_steady: false,
            frames: FrameKinds::default(),
        }
    }

    /// End of what data and padding may fill, as a position in the buffer.
    pub(super) fn end_of_data(&self, stack: &SendStack) -> usize {
        if stack.fec.is_some() { self.full_end.saturating_sub(REPAIR_ROOM_BYTES) } else { self.full_end }
    }

    /// Notes what of a flow is in it. What stands together is settled together.
    pub(super) fn note_data(&mut self, of: u32, more: Range<u64>) {
        if let Some(Token::Data { flow, range }) = self.tokens.last_mut()
            && *flow == of
            && range.end == more.start
        {
            range.end = more.end;
            return;
        }
        self.tokens.push(Token::Data { flow: of, range: more });
    }
}
