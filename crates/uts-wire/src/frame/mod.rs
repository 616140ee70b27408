//! Frames: what the payload of an adaptive packet is made of. One file for each family.

pub mod ack;
pub mod control;
pub mod data;
pub mod exchange;
pub mod expedited;
pub mod feedback;
pub mod flow;
pub mod ids;
pub mod media_time;
pub mod messages;
pub mod order;
pub mod repair;
pub mod row;

pub use ack::{Ack, AckRanges, EcnCounts, MAX_ACK_RANGES, emit_ack, emit_repaired};
pub use control::{Close, MAX_REASON_BYTES, MAX_TOKEN_BYTES};
pub use data::{Data, DataFlags, data_header_len, emit_data_header};
pub use exchange::{AckPf, ConfirmPf, Direction, MAX_GROUPS, NakPf, RequestPf, StalePf, UsePf};
pub use expedited::{Expedited, ExpeditedAck, MAX_EXPEDITED_BYTES};
pub use feedback::{Feedback, MAX_FEEDBACK_BYTES};
pub use flow::{ConnectionCredit, Credit, FlowLimit, ResetFlow, Skip, StopFlow};
pub use ids::{NewId, RetireId};
pub use media_time::MediaTime;
pub use messages::{Messages, emit_messages_header, messages_header_len};
pub use order::Order;
pub use repair::{MAX_MASK_BYTES, Repair, RepairId};
pub use row::{DataWriter, InRow, RowHead, RowReader};

use crate::error::{Problem, WireError};
use crate::varint::{Reader, Sink, emitters};

/// Frame types. [P-20]
pub mod kind {
    #![allow(missing_docs, reason = "each is named as its frame")]
    pub const PADDING: u8 = 0x00;
    pub const PING: u8 = 0x01;
    pub const ACK: u8 = 0x02;
    pub const ACK_ECN: u8 = 0x03;
    pub const REPAIRED: u8 = 0x04;
    pub const CREDIT: u8 = 0x05;
    pub const FLOW_LIMIT: u8 = 0x06;
    pub const SKIP: u8 = 0x07;
    pub const RESET_FLOW: u8 = 0x08;
    pub const STOP_FLOW: u8 = 0x09;
    pub const REQUEST_PF: u8 = 0x0a;
    pub const ACK_PF: u8 = 0x0b;
    pub const NAK_PF: u8 = 0x0c;
    pub const CONFIRM_PF: u8 = 0x0d;
    pub const POLL: u8 = 0x0e;
    pub const CLOSE: u8 = 0x0f;
    pub const PATH_CHALLENGE: u8 = 0x11;
    pub const PATH_RESPONSE: u8 = 0x12;
    pub const REPAIR: u8 = 0x13;
    pub const WINDOW_REPAIR: u8 = 0x14;
    pub const FEEDBACK: u8 = 0x15;
    pub const STALE_PF: u8 = 0x16;
    pub const ORDER: u8 = 0x17;
    pub const NEW_ID: u8 = 0x18;
    /// The same, with the token of a reset.
    pub const NEW_ID_RESET: u8 = 0x19;
    pub const RETIRE_ID: u8 = 0x1a;
    pub const EXPEDITED: u8 = 0x1b;
    pub const EXPEDITED_ACK: u8 = 0x1c;
    pub const CONNECTION_CREDIT: u8 = 0x1d;
    /// A reset that says how far data was sent.
    pub const RESET_FLOW_SENT: u8 = 0x1e;
    pub const USE_PF: u8 = 0x1f;
    pub const MEDIA_TIME: u8 = 0x20;
    /// The first of the 128 types of data. The low six bits are flags, and the upper half is of
    /// presented messages.
    pub const DATA: u8 = 0x40;
    /// The last of them.
    pub const DATA_LAST: u8 = 0xbf;
    /// The first of two types; the other has an offset.
    pub const MESSAGES: u8 = 0xc0;
    pub const MESSAGES_PLACED: u8 = 0xc2;
}

/// A frame. What it carries of variable length is borrowed from the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A run of zeros.
    Padding {
        /// Number of zeros.
        len: usize,
    },
    /// Asks for nothing but an acknowledgement.
    Ping,
    /// Packets that arrived.
    Ack(Ack<'a>),
    /// Packets that did not arrive but were recovered from redundancy.
    Repaired(AckRanges<'a>),
    /// Bound of what the peer may send in a flow.
    Credit(Credit),
    /// Bound of what the peer may send in all flows together.
    ConnectionCredit(ConnectionCredit),
    /// Number of flows that the peer may open.
    FlowLimit(FlowLimit),
    /// Positions that the receiver need not wait for.
    Skip(Skip),
    /// The sender gives a flow up.
    ResetFlow(ResetFlow),
    /// The receiver wants no more of a flow.
    StopFlow(StopFlow),
    /// Asks for an exchange of profile.
    RequestPf(RequestPf),
    /// A packet with the request for its profile.
    UsePf(UsePf<'a>),
    /// Agrees to one.
    AckPf(AckPf),
    /// Refuses one.
    NakPf(NakPf),
    /// Ends one.
    ConfirmPf(ConfirmPf),
    /// Says that a request came too late.
    StalePf(StalePf),
    /// Asks for the receiver's status now.
    Poll,
    /// Ends the connection.
    Close(Close<'a>),
    /// To be answered with the same number, to prove that the path works in both directions.
    PathChallenge(u64),
    /// The answer.
    PathResponse(u64),
    /// Redundancy for a block of packets.
    Repair(Repair<'a>),
    /// Feedback from a mechanism at the receiver to its other half at the sender.
    Feedback(Feedback<'a>),
    /// A message need not wait for all that was sent before it.
    Order(Order),
    /// When a message was made.
    MediaTime(MediaTime),
    /// Another id of the sender's.
    NewId(NewId),
    /// An id of the receiver's is no longer used.
    RetireId(RetireId),
    /// A message that waits for nothing.
    Expedited(Expedited<'a>),
    /// Such a message was taken.
    ExpeditedAck(ExpeditedAck),
    /// Data of a flow.
    Data(Data<'a>),
    /// Whole messages of one length.
    Messages(Messages<'a>),
}

impl<'a> Frame<'a> {
    /// Reads one frame.
    pub fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let at = r.offset();
        let frame_kind = r.u8("frame type")?;
        Ok(match frame_kind {
            kind::DATA..=kind::DATA_LAST => Frame::Data(Data::read(frame_kind, r)?),
            kind::MESSAGES | kind::MESSAGES_PLACED => Frame::Messages(Messages::read(frame_kind, r)?),
            kind::PADDING => {
                let zeros = r.peek().iter().take_while(|byte| **byte == 0).count();
                r.bytes(zeros as u64, "padding")?;
                Frame::Padding { len: zeros.saturating_add(1) } // P-21
            }
            kind::PING => Frame::Ping,
            kind::ACK => Frame::Ack(Ack::read(false, r)?),
            kind::ACK_ECN => Frame::Ack(Ack::read(true, r)?),
            kind::REPAIRED => Frame::Repaired(AckRanges::read(r)?),
            kind::CREDIT => Frame::Credit(Credit::read(r)?),
            kind::CONNECTION_CREDIT => Frame::ConnectionCredit(ConnectionCredit::read(r)?),
            kind::FLOW_LIMIT => Frame::FlowLimit(FlowLimit::read(r)?),
            kind::SKIP => Frame::Skip(Skip::read(r)?),
            kind::RESET_FLOW | kind::RESET_FLOW_SENT => Frame::ResetFlow(ResetFlow::read(frame_kind, r)?),
            kind::STOP_FLOW => Frame::StopFlow(StopFlow::read(r)?),
            kind::REQUEST_PF => Frame::RequestPf(RequestPf::read(r)?),
            kind::USE_PF => Frame::UsePf(UsePf::read(r)?),
            kind::ACK_PF => Frame::AckPf(AckPf::read(r)?),
            kind::NAK_PF => Frame::NakPf(NakPf::read(r)?),
            kind::CONFIRM_PF => Frame::ConfirmPf(ConfirmPf::read(r)?),
            kind::STALE_PF => Frame::StalePf(StalePf::read(r)?),
            kind::POLL => Frame::Poll,
            kind::CLOSE => Frame::Close(Close::read(r)?),
            kind::PATH_CHALLENGE => Frame::PathChallenge(r.u64("path challenge")?),
            kind::PATH_RESPONSE => Frame::PathResponse(r.u64("path response")?),
            kind::REPAIR | kind::WINDOW_REPAIR => Frame::Repair(Repair::read(frame_kind, r)?),
            kind::ORDER => Frame::Order(Order::read(r)?),
            kind::MEDIA_TIME => Frame::MediaTime(MediaTime::read(r)?),
            kind::FEEDBACK => Frame::Feedback(Feedback::read(r)?),
            kind::NEW_ID | kind::NEW_ID_RESET => Frame::NewId(NewId::read(frame_kind, r)?),
            kind::RETIRE_ID => Frame::RetireId(RetireId::read(r)?),
            kind::EXPEDITED => Frame::Expedited(Expedited::read(r)?),
            kind::EXPEDITED_ACK => Frame::ExpeditedAck(ExpeditedAck::read(r)?),
            found => {
                // P-20
                return Err(WireError::new("frame type", at, Problem::Unknown { found: u64::from(found) }));
            }
        })
    }

    /// Its type; for data, the first of the types of data.
    pub const fn kind(&self) -> u8 {
        match self {
            Frame::Padding { .. } => kind::PADDING,
            Frame::Ping => kind::PING,
            Frame::Ack(ack) if ack.ecn.is_some() => kind::ACK_ECN,
            Frame::Ack(_) => kind::ACK,
            Frame::Repaired(_) => kind::REPAIRED,
            Frame::Credit(_) => kind::CREDIT,
            Frame::ConnectionCredit(_) => kind::CONNECTION_CREDIT,
            Frame::FlowLimit(_) => kind::FLOW_LIMIT,
            Frame::Skip(_) => kind::SKIP,
            Frame::ResetFlow(reset) => reset.kind(),
            Frame::StopFlow(_) => kind::STOP_FLOW,
            Frame::RequestPf(_) => kind::REQUEST_PF,
            Frame::UsePf(_) => kind::USE_PF,
            Frame::AckPf(_) => kind::ACK_PF,
            Frame::NakPf(_) => kind::NAK_PF,
            Frame::ConfirmPf(_) => kind::CONFIRM_PF,
            Frame::StalePf(_) => kind::STALE_PF,
            Frame::Poll => kind::POLL,
            Frame::Close(_) => kind::CLOSE,
            Frame::PathChallenge(_) => kind::PATH_CHALLENGE,
            Frame::PathResponse(_) => kind::PATH_RESPONSE,
            Frame::Repair(Repair { id: RepairId::Window { .. }, .. }) => kind::WINDOW_REPAIR,
            Frame::Repair(_) => kind::REPAIR,
            Frame::Feedback(_) => kind::FEEDBACK,
            Frame::Order(_) => kind::ORDER,
            Frame::MediaTime(_) => kind::MEDIA_TIME,
            Frame::NewId(new) => new.kind(),
            Frame::RetireId(_) => kind::RETIRE_ID,
            Frame::Expedited(_) => kind::EXPEDITED,
            Frame::ExpeditedAck(_) => kind::EXPEDITED_ACK,
            Frame::Data(_) => kind::DATA,
            Frame::Messages(messages) if messages.offset.is_some() => kind::MESSAGES_PLACED,
            Frame::Messages(_) => kind::MESSAGES,
        }
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        match self {
            Frame::Padding { len } => out.put_zeros(*len),
            Frame::Ping => out.put_u8(kind::PING),
            Frame::Ack(ack) => ack.write(out),
            Frame::Repaired(ranges) => {
                out.put_u8(kind::REPAIRED);
                ranges.write(out);
            }
            Frame::Credit(frame) => frame.write(out),
            Frame::ConnectionCredit(frame) => frame.write(out),
            Frame::FlowLimit(frame) => frame.write(out),
            Frame::Skip(frame) => frame.write(out),
            Frame::ResetFlow(frame) => frame.write(out),
            Frame::StopFlow(frame) => frame.write(out),
            Frame::RequestPf(frame) => frame.write(out),
            Frame::UsePf(frame) => frame.write(out),
            Frame::AckPf(frame) => frame.write(out),
            Frame::NakPf(frame) => frame.write(out),
            Frame::ConfirmPf(frame) => frame.write(out),
            Frame::StalePf(frame) => frame.write(out),
            Frame::Poll => out.put_u8(kind::POLL),
            Frame::Close(frame) => frame.write(out),
            Frame::PathChallenge(number) => {
                out.put_u8(kind::PATH_CHALLENGE);
                out.put(&number.to_be_bytes());
            }
            Frame::PathResponse(number) => {
                out.put_u8(kind::PATH_RESPONSE);
                out.put(&number.to_be_bytes());
            }
            Frame::Repair(frame) => frame.write(out),
            Frame::Feedback(frame) => frame.write(out),
            Frame::Order(frame) => frame.write(out),
            Frame::MediaTime(frame) => frame.write(out),
            Frame::NewId(frame) => frame.write(out),
            Frame::RetireId(frame) => frame.write(out),
            Frame::Expedited(frame) => frame.write(out),
            Frame::ExpeditedAck(frame) => frame.write(out),
            Frame::Data(frame) => frame.write(out),
            Frame::Messages(frame) => frame.write(out),
        }
    }

    /// True if the receiver must acknowledge a packet with this frame: all but padding,
    /// acknowledgements and close. [P-22]
    pub const fn elicits_ack(&self) -> bool {
        !matches!(self, Frame::Padding { .. } | Frame::Ack(_) | Frame::Repaired(_) | Frame::Close(_))
    }
}

emitters!(Frame<'_>);

/// The frames of a payload, in order. After an error it yields nothing more.
#[derive(Clone, Debug)]
pub struct FrameIter<'a> {
    reader: Reader<'a>,
}

impl<'a> FrameIter<'a> {
    /// The frames of `payload`.
    pub const fn new(payload: &'a [u8]) -> Self {
        FrameIter { reader: Reader::new(payload) }
    }
}

impl<'a> Iterator for FrameIter<'a> {
    type Item = Result<Frame<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let frame = Frame::read(&mut self.reader);
        if frame.is_err() {
            self.reader.rest();
        }
        Some(frame)
    }
}

impl core::iter::FusedIterator for FrameIter<'_> {}
