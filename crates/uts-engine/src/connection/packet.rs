//! A packet under construction: where its frames go, what they are, and what became of the room.

use super::parts::Token;
use crate::synthesis::SendStack;
use core::ops::Range;
use uts_functions::Time;
use uts_functions::retransmission::ledger::Tokens;
use uts_wire::frame::Frame;
use uts_wire::packet::AdaptiveMark;

/// Below this much room no further data frame is begun.
pub(super) const DATA_ROOM_MIN_BYTES: usize = 32;

/// A packet is as good as full with less than this part of its room left: a message that would go
/// whole into the next one is not torn for it, and what follows in a batch is made as long as the
/// first by padding.
pub(super) const FULL_BUT: usize = 8;

/// Room that a packet under FEC leaves, so that the redundancy made from it fits into a packet too:
/// type, first number, mask, index, count, length (spec P: Repair), and the symbol's own length.
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
pub(super) struct Packet<'o> {
    /// It stands at the end of this.
    pub out: &'o mut Vec<u8>,
    pub now: Time,
    pub reason: Reason,
    /// Index of the stack under which it is built.
    pub stack: usize,
    pub mark: AdaptiveMark,
    /// The envelope that it travels in.
    pub envelope: Option<AdaptiveMark>,
    pub number: u64,
    /// End of the room for frames, as a position in `out`.
    pub end: usize,
    /// The same if it were as long as a packet may be, not as those before it in its batch.
    pub full_end: usize,
    /// Bytes of a full packet on this path.
    pub packet_bytes: u64,
    /// It follows another in a batch, and is to be as long.
    pub is_next: bool,
    pub tokens: Tokens<Token>,
    /// The peer acknowledges it.
    pub eliciting: bool,
    /// It asks the peer to report at once.
    pub polls: bool,
    /// Nothing more goes into it, whatever room there is.
    pub is_complete: bool,
    /// Where the bytes are, in `out`, that may come damaged: the end of its last frame.
    pub tolerant: Range<usize>,
    pub shape: Shape,
}

/// Shape that its data gives a packet: it decides whether others may follow that are alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// It carries data of flows, not redundancy or control alone.
    pub has_data: bool,
    /// Some of the data was sent before.
    pub repeats: bool,
    /// Whole messages in it that are sent for the first time.
    pub messages: usize,
    /// Padding may follow what is in it.
    pub is_open: bool,
    /// It ended because the next message would be torn, which is as long as the one before.
    pub is_even: bool,
    /// The message behind the last one in it is as long.
    pub is_steady: bool,
}

/// The room for a packet.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub bytes: usize,
    /// Bytes that the first packet of a batch has.
    pub full: usize,
    /// The packet follows another in a batch: it is made just as long where little is lacking.
    pub is_next: bool,
}

impl<'o> Packet<'o> {
    /// A packet for which nothing is decided yet, of frames up to `end`.
    pub fn new(
        out: &'o mut Vec<u8>,
        now: Time,
        reason: Reason,
        (stack, mark): (usize, AdaptiveMark),
        end: usize,
    ) -> Self {
        Packet {
            out,
            now,
            reason,
            stack,
            mark,
            envelope: None,
            number: 0,
            end,
            full_end: end,
            packet_bytes: 0,
            is_next: false,
            tokens: Tokens::new(),
            eliciting: false,
            polls: false,
            is_complete: false,
            tolerant: 0..0,
            shape: Shape { is_open: true, ..Shape::default() },
        }
    }

    /// Bytes of frames that still fit.
    pub fn left(&self) -> usize {
        self.end.saturating_sub(self.out.len())
    }

    /// The frames in it.
    pub fn frames(&self) -> &[u8] {
        self.out.get(self.mark.payload_offset()..).unwrap_or_default()
    }

    /// Takes it back: nothing of it stays in `out`.
    pub fn abandon(self) {
        self.out.truncate(self.start());
    }

    /// Bytes at its end that may come damaged.
    pub fn tolerant_bytes(&self) -> usize {
        if self.tolerant.end == self.out.len() { self.tolerant.len() } else { 0 }
    }

    /// Where it begins, its envelope included.
    fn start(&self) -> usize {
        self.envelope.as_ref().map_or(self.mark.start, |outer| outer.start)
    }

    /// Bytes of the packet so far, its envelope included.
    pub fn len(&self) -> usize {
        self.out.len() - self.start()
    }

    /// Appends a frame that elicits an acknowledgement. The caller knows that there is room.
    pub fn put(&mut self, frame: &Frame<'_>) {
        frame.emit(self.out);
        self.eliciting = true;
    }

    /// The same if there is room. Says whether there was.
    pub fn put_if_it_fits(&mut self, frame: &Frame<'_>) -> bool {
        let fits = frame.encoded_len() <= self.left();
        if fits {
            self.put(frame);
        }
        fits
    }

    /// End of what data and padding may fill, as a position in `out`.
    pub fn end_of_data(&self, stack: &SendStack) -> usize {
        let full_end =
            if stack.fec.is_some() { self.full_end.saturating_sub(REPAIR_ROOM_BYTES) } else { self.full_end };
        self.end.min(full_end)
    }

    /// Notes what of a flow is in it. What stands together is settled together.
    pub fn note_data(&mut self, of: u32, more: Range<u64>) {
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
