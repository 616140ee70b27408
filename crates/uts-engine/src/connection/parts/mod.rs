//! Parts of a connection that have frames of their own. Each keeps what it has to say, writes it
//! into packets, hears what became of it, and reads what the peer's part has written. A new one is
//! a file, a field of [`Parts`], a name in its list, its frames in [`Parts::read`], and a kind of
//! [`Token`].

mod control;
mod data;
mod exchanges;
mod feedback;
mod flow_control;
mod ids;
mod ping;
mod poll;
mod repairs;
mod report;
mod size;

pub(super) use control::Control;
pub(super) use data::{Data, How, Written, append_whole};
pub(super) use exchanges::{Exchanges, MESSAGES_MAX};
pub(super) use feedback::{Feedback, Topic};
pub(super) use flow_control::{FlowControl, Signal};
pub(super) use ids::{Ids, SPARE_IDS};
pub(super) use ping::Ping;
pub(super) use poll::Poll;
pub(super) use repairs::{Repairs, has_repair};
pub(super) use report::{Report, emit_report};
pub(super) use size::PacketSize;

use super::Ways;
use super::life::deadlines::earlier;
use super::packet::Packet;
use super::receive::inbound::Arrived;
use crate::event::{CloseReason, Direction};
use core::ops::Range;
use uts_functions::Time;
use uts_functions::retransmission::ledger::Carried;
use uts_wire::frame::{self, Frame};

/// A part of a connection that has frames of its own. What a part shares with others is in the
/// [`Ways`].
pub(super) trait Part {
    /// Kind of content that waits to be sent as soon as window and rate allow a packet.
    fn interest(&self, _ways: &Ways) -> Interest {
        Interest::Nothing
    }

    /// Writes what waits into a packet, as far as there is room.
    fn write(&mut self, packet: &mut Packet<'_>, ways: &mut Ways);

    /// Reads a frame of the part that a packet brought. Returns what it asks for beyond the part
    /// and the ways.
    fn read<'f>(&mut self, _at: &Arrived, _frame: &'f Frame<'f>, _ways: &mut Ways) -> Reading<'f> {
        Ok(Effect::Nothing)
    }

    /// Takes note that content of this part has arrived in a packet.
    fn acked(&mut self, _now: Time, _token: &Token, _ways: &mut Ways) {}

    /// A packet was lost that carried this.
    fn lost(&mut self, _loss: &LostPacket, _token: &Token, _ways: &mut Ways) {}

    /// The oldest packet in flight carried this, and no acknowledgement comes: what a probe should
    /// repeat of it is to be sent again (RFC 9002 section 6.2.4).
    fn probe(&mut self, _token: &Token, _ways: &mut Ways) {}

    /// When something is due.
    fn timeout(&self, _ways: &Ways) -> Option<Time> {
        None
    }

    /// Does what is due, if anything is.
    fn on_timeout(&mut self, _now: Time, _ways: &mut Ways) {}
}

/// Work that a frame asks of the connection, beyond its part and the ways. The hub does it.
#[derive(Debug)]
pub(super) enum Effect<'f> {
    Nothing,
    /// Packets have arrived at the peer: what they carried is settled.
    Arrived(&'f frame::Ack<'f>),
    /// Packets did not arrive, and the peer has their data from redundancy.
    Repaired(&'f frame::AckRanges<'f>),
    /// A message of an exchange goes to its machine.
    Exchange(&'f Frame<'f>),
    /// The peer closes the connection.
    Close(&'f frame::Close<'f>),
    /// The peer has answered the challenge of this number.
    Answered(u64),
    /// Packets to the peer carry this id from now on.
    UseId(frame::NewId),
}

/// Outcome of reading a frame. The error: the peer has broken the protocol.
pub(super) type Reading<'f> = Result<Effect<'f>, CloseReason>;

/// Content that a part has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    Nothing,
    /// Data of flows: packets of it may be alike.
    Data,
    /// Frames of its own.
    Frames,
}

impl Interest {
    /// Frames, if there are any.
    pub fn frames_if(wants: bool) -> Self {
        if wants { Interest::Frames } else { Interest::Nothing }
    }
}

/// A packet that was lost, as the parts hear of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LostPacket {
    pub now: Time,
    pub number: u64,
    /// When it was sent.
    pub sent_at: Time,
    /// The number of the next packet that will be sent.
    pub next_packet: u64,
}

/// Record of content of a packet, to be settled when the packet is acknowledged or lost: the part
/// that it is of, and the part's own token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// An acknowledgement of packets up to this number.
    Report(u64),
    /// A message of an exchange of this direction's profile.
    Exchange(Direction),
    FlowControl(Signal),
    /// Feedback of a mechanism here to its half at the sender of data.
    Feedback(Topic),
    /// Positions of a flow that the sender gave up.
    Skip {
        flow: u32,
        range: Range<u64>,
    },
    /// A probe of a larger packet size, in bytes.
    Size(usize),
    /// An id that was given, and one that was taken back, by their numbers.
    NewId(u32),
    RetireId(u32),
    Data {
        flow: u32,
        range: Range<u64>,
    },
}

impl Carried for Token {
    /// Packets that are alike carry the next bytes of one flow, as many each.
    fn ahead(&self, places: u64) -> Self {
        match self {
            Token::Data { flow, range } => {
                let by = places * (range.end - range.start);
                Token::Data { flow: *flow, range: range.start + by..range.end + by }
            }
            other => other.clone(),
        }
    }
}

/// Does something with each part, in the order of urgency, in which they write into a packet.
macro_rules! in_order {
    ($parts:expr, $part:ident => $do:expr) => {
        in_order!(@list report exchanges control ids flow_control feedback repairs size data ping poll; $parts, $part => $do)
    };
    (@list $($name:ident)*; $parts:expr, $part:ident => $do:expr) => {{
        let Parts { $($name),* } = $parts;
        $({ let $part = $name; $do; })*
    }};
}

/// All parts.
pub(super) struct Parts {
    pub report: Report,
    pub exchanges: Exchanges,
    pub control: Control,
    pub ids: Box<Ids>,
    pub flow_control: FlowControl,
    pub feedback: Feedback,
    pub repairs: Repairs,
    pub size: PacketSize,
    pub data: Data,
    pub ping: Ping,
    pub poll: Poll,
}

impl Parts {
    pub fn new(size: PacketSize) -> Self {
        Parts {
            report: Report::default(),
            exchanges: Exchanges::new(),
            control: Control::default(),
            ids: Box::default(),
            flow_control: FlowControl::default(),
            feedback: Feedback,
            repairs: Repairs,
            size,
            data: Data,
            ping: Ping::default(),
            poll: Poll::default(),
        }
    }

    /// The part that a token is of.
    fn of(&mut self, token: &Token) -> &mut dyn Part {
        match token {
            Token::Report(_) => &mut self.report,
            Token::Exchange(_) => &mut self.exchanges,
            Token::FlowControl(_) | Token::Skip { .. } => &mut self.flow_control,
            Token::NewId(_) | Token::RetireId(_) => &mut *self.ids,
            Token::Feedback(_) => &mut self.feedback,
            Token::Size(_) => &mut self.size,
            Token::Data { .. } => &mut self.data,
        }
    }

    /// True if anything waits for a packet that window and rate must admit.
    #[inline]
    pub fn want_to_send(&self, ways: &Ways) -> bool {
        in_order!(self, part => if part.interest(ways) != Interest::Nothing { return true });
        false
    }

    /// True if anything but data waits for such a packet.
    #[inline]
    pub fn want_more_than_data(&self, ways: &Ways) -> bool {
        in_order!(self, part => if part.interest(ways) == Interest::Frames { return true });
        false
    }

    /// Writes the content of a packet.
    #[inline]
    pub fn write(&mut self, packet: &mut Packet<'_>, ways: &mut Ways) {
        // under an epoch that was replaced, which the peer may have closed, goes nothing but
        // its redundancy.
        if ways.outbound.is_replaced(packet.stack) {
            return self.repairs.write(packet, ways);
        }
        in_order!(self, part => if !packet.is_complete {
            part.write(packet, ways)
        });
    }

    /// A frame that a packet brought goes to its part. Each kind has one.
    pub fn read<'f>(&mut self, at: &Arrived, frame: &'f Frame<'f>, ways: &mut Ways) -> Reading<'f> {
        match frame {
            Frame::Data(_) | Frame::Messages(_) | Frame::Order(_) | Frame::MediaTime(_) => {
                self.data.read(at, frame, ways)
            }
            Frame::Ack(_) | Frame::Repaired(_) => self.report.read(at, frame, ways),
            Frame::Credit(_)
            | Frame::ConnectionCredit(_)
            | Frame::FlowLimit(_)
            | Frame::Skip(_)
            | Frame::ResetFlow(_)
            | Frame::StopFlow(_)
            | Frame::Expedited(_)
            | Frame::ExpeditedAck(_) => self.flow_control.read(at, frame, ways),
            Frame::RequestPf(_)
            | Frame::AckPf(_)
            | Frame::NakPf(_)
            | Frame::ConfirmPf(_)
            | Frame::StalePf(_) => self.exchanges.read(at, frame, ways),
            Frame::Close(_) | Frame::PathChallenge(_) | Frame::PathResponse(_) => {
                self.control.read(at, frame, ways)
            }
            Frame::NewId(_) | Frame::RetireId(_) => self.ids.read(at, frame, ways),
            Frame::Feedback(_) => self.feedback.read(at, frame, ways),
            // An envelope has nothing beside it.
            Frame::UsePf(_) => Err(CloseReason::Protocol("an envelope among other frames".into())),
            // A poll was noticed when the packet was read; redundancy is taken in behind all other
            // frames.
            Frame::Repair(_) | Frame::Poll | Frame::Ping | Frame::Padding { .. } => Ok(Effect::Nothing),
        }
    }

    /// Takes note that content of a packet has arrived.
    pub fn acked(&mut self, now: Time, token: &Token, ways: &mut Ways) {
        self.of(token).acked(now, token, ways);
    }

    /// A packet was lost that carried this.
    pub fn lost(&mut self, loss: &LostPacket, token: &Token, ways: &mut Ways) {
        self.of(token).lost(loss, token, ways);
    }

    /// A probe repeats what the oldest packet carried.
    pub fn probe(&mut self, token: &Token, ways: &mut Ways) {
        self.of(token).probe(token, ways);
    }

    /// When something is due in any part.
    #[inline]
    pub fn timeout(&self, ways: &Ways) -> Option<Time> {
        let mut next = None;
        in_order!(self, part => next = earlier(next, part.timeout(ways)));
        next
    }

    /// Does what is due in each part.
    pub fn on_timeout(&mut self, now: Time, ways: &mut Ways) {
        in_order!(self, part => part.on_timeout(now, ways));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::testing;
    use uts_functions::Function;
    use uts_wire::frame::Frame;

    /// The peer may have closed an epoch that was replaced: what is to arrive does not go with its
    /// redundancy, or it would be lost each time that it is repeated.
    #[test]
    fn a_replaced_epoch_carries_its_redundancy_alone() {
        let mut ways = testing::ways_with(&[(Function::Fec, "reed-solomon")]);
        let id = ways.flows.open(100).expect("granted").0;
        let outbound = &mut ways.outbound;
        let profile = *outbound.stacks[0].profile;
        let fec = outbound.stacks[0].fec.as_mut().expect("not inert");
        (0..4).for_each(|number| fec.on_source(Time::ZERO, number, &[number as u8; 500]));
        let due = fec.deadline().expect("the block is not full");
        fec.on_flush(due);
        let mut parts = Parts::new(PacketSize::new(Time::ZERO, 268, 1200, 1500));
        for is_replaced in [false, true] {
            if is_replaced {
                let next = profile.with_named(Function::Fec, "none").expect("it exists");
                let outbound = &mut ways.outbound;
                assert!(outbound.put_to_use(Time::ZERO, 2, 0, &next, 1200));
                assert_eq!(outbound.stacks.len(), 2, "redundancy waits");
            }
            ways.flows.signals.insert(Signal::Credit(id));
            let frames = testing::written(&mut ways, 1100, |packet, ways| parts.write(packet, ways));
            let has = |what: fn(&Frame<'_>) -> bool| frames.iter().any(what);
            assert!(has(|frame| matches!(frame, Frame::Repair(_))), "{frames:?}");
            assert_eq!(has(|frame| matches!(frame, Frame::Credit(_))), !is_replaced, "{frames:?}");
        }
    }
}
