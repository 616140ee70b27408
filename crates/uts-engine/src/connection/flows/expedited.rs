//! Expedited data: a message of a few bytes that passes all other data of its flow, and a closed
//! window (flow.md ).
//!
//! A flow has one under way in each direction, until the peer's application has taken it. So this
//! end keeps [`MAX_EXPEDITED_BYTES`] for each flow at the most, whatever the peer does.

use crate::connection::flows::batch::Queue;
use crate::connection::flows::halves::{ReceiveHalf, SendHalf};
use crate::connection::flows::interface::{ReadError, WriteError};
use crate::connection::parts::Signal;
use crate::connection::stage::Open;
use crate::connection::{CloseReason, Ways};
use crate::event::{Event, FlowId};
use bytes::Bytes;
use uts_functions::Time;
use uts_wire::frame::{self, Frame, MAX_EXPEDITED_BYTES};

/// Expedited messages of a flow, as its sender knows them.
#[derive(Debug, Default)]
pub(crate) struct SendSide {
    /// Number of messages that were handed over.
    count: u64,
    /// The last of them, until the peer's application has taken it.
    out: Option<Out>,
    /// The application has another.
    writer_waits: bool,
}

#[derive(Debug)]
struct Out {
    message: Bytes,
    /// Its packet was acknowledged.
    has_arrived: bool,
    /// Position from which on written data waits for this arrival (flow.md R-27).
    before: u64,
}

/// Expedited messages that came in a flow, as its receiver knows them.
#[derive(Debug, Default)]
pub(crate) struct ReceiveSide {
    /// Number of messages that came.
    count: u64,
    /// The last of them, until the application has taken it.
    unread: Option<Bytes>,
    /// The application wants none of them.
    is_unwanted: bool,
}

impl SendSide {
    /// The number of the message under way.
    fn number(&self) -> u64 {
        self.count.saturating_sub(1)
    }

    /// The message of this number, if it is still to arrive.
    fn missing(&self, number: u64) -> Option<&Out> {
        self.out.as_ref().filter(|out| number == self.number() && !out.has_arrived)
    }
}

impl SendHalf {
    /// Position up to which the flow may send: `limit`, or less while an expedited message has not
    /// arrived (flow.md R-27).
    #[inline]
    pub fn behind_expedited(&self, limit: u64) -> u64 {
        let out = self.rare.as_ref().and_then(|rare| rare.expedited.out.as_ref());
        out.filter(|out| !out.has_arrived).map_or(limit, |out| limit.min(out.before))
    }

    /// The frame of the message of this number, unless it has arrived.
    pub fn expedited_frame(&self, flow: u32, number: u64) -> Option<Frame<'_>> {
        let out = self.rare.as_ref()?.expedited.missing(number)?;
        Some(Frame::Expedited(frame::Expedited { flow, number, bytes: &out.message }))
    }
}

impl ReceiveHalf {
    /// True if an expedited message waits for the application.
    pub fn has_expedited(&self) -> bool {
        self.expedited.as_ref().is_some_and(|arrived| arrived.unread.is_some())
    }

    /// The application does not want what has come.
    pub fn drop_expedited(&mut self) {
        if let Some(arrived) = &mut self.expedited {
            arrived.unread = None;
        }
    }

    /// The number of the last expedited message that the application has taken.
    pub fn expedited_taken(&self) -> Option<u64> {
        self.expedited.as_ref().filter(|arrived| arrived.unread.is_none())?.count.checked_sub(1)
    }
}

impl Open {
    pub(in crate::connection) fn read_expedited(&mut self, id: FlowId) -> Result<Bytes, ReadError> {
        let closed = self.life.close_reason.as_deref().cloned();
        let Some(flow) = self.ways.flows.get_mut(id.0) else {
            return Err(closed.map_or(ReadError::Unknown, ReadError::Closed));
        };
        let receive = &mut flow.receive;
        if let Some(message) = receive.expedited.as_mut().and_then(|arrived| arrived.unread.take()) {
            self.ways.flows.signals.insert(Signal::ExpeditedAck(id.0));
            self.ways.flows.drop_if_done(id.0);
            return Ok(message);
        }
        let is_over =
            receive.is_done || receive.due_reset().is_some() || receive.data.end_position().is_some();
        Err(match closed {
            Some(reason) => ReadError::Closed(reason),
            None if is_over => ReadError::Unknown,
            None => ReadError::Blocked,
        })
    }

    pub(in crate::connection) fn stop_expedited(&mut self, id: FlowId) {
        let is_on = self.ways.config.requirements.expedited;
        let Some(flow) = self.ways.flows.get_mut(id.0).filter(|_| is_on) else { return };
        let arrived = flow.receive.expedited.get_or_insert_default();
        arrived.is_unwanted = true;
        if arrived.unread.take().is_some() {
            self.ways.flows.signals.insert(Signal::ExpeditedAck(id.0));
        }
        self.ways.flows.drop_if_done(id.0);
    }

    /// Hands an expedited message over; says how many were taken, which is one.
    pub(super) fn expedite(
        &mut self,
        now: Time,
        id: FlowId,
        messages: &mut impl Queue,
    ) -> Result<usize, WriteError> {
        let is_agreed = self.ways.config.requirements.expedited && self.ways.flows.peer_takes_expedited;
        let send = self.writable(id)?;
        let Some(size) = messages.front().map(<[u8]>::len) else { return Ok(0) };
        if !is_agreed {
            return Err(WriteError::NotExpedited);
        }
        if size > MAX_EXPEDITED_BYTES {
            return Err(WriteError::TooLarge { size, max: MAX_EXPEDITED_BYTES });
        }
        if send.is_held {
            send.writer_waits = true;
            return Err(WriteError::Blocked);
        }
        let before = send.buffer.written();
        let sent = &mut send.rare.get_or_insert_default().expedited;
        if sent.out.is_some() {
            sent.writer_waits = true;
            return Err(WriteError::Blocked);
        }
        let Some(message) = messages.take_front() else { return Ok(0) };
        let number = sent.count;
        sent.count += 1;
        sent.out = Some(Out { message, has_arrived: false, before });
        self.ways.flows.signals.insert(Signal::Expedited(id.0, number));
        self.after_write(now, id.0, size);
        Ok(1)
    }
}

impl Ways {
    /// The packet with an expedited message was acknowledged: what waits for that may leave.
    pub(in crate::connection) fn on_expedited_arrived(&mut self, id: u32, number: u64) {
        let sent = self.flows.get_mut(id).and_then(|flow| flow.send.rare.as_mut());
        let Some(sent) = sent.map(|rare| &mut rare.expedited) else { return };
        if sent.missing(number).is_some() {
            if let Some(out) = &mut sent.out {
                out.has_arrived = true;
            }
            self.after_send_change(id);
        }
    }

    /// The peer's application has taken an expedited message.
    pub(in crate::connection) fn on_expedited_ack(
        &mut self,
        ack: frame::ExpeditedAck,
    ) -> Result<(), CloseReason> {
        let found = self.flows.of_frame(ack.flow).map_err(super::violation)?;
        let Some((flow, _)) = found else { return Ok(()) };
        if flow.send.is_given_up() {
            return Ok(());
        }
        let sent = flow.send.rare.as_mut().map(|rare| &mut rare.expedited);
        let Some(sent) = sent.filter(|sent| ack.number < sent.count) else {
            let what = format!("flow {}: an expedited message was taken that was not sent", ack.flow);
            return Err(CloseReason::Protocol(what));
        };
        if ack.number == sent.number() && sent.out.take().is_some() {
            if core::mem::take(&mut sent.writer_waits) {
                self.events.push_back(Event::Writable(FlowId(ack.flow)));
            }
            self.after_send_change(ack.flow);
        }
        Ok(())
    }

    /// An expedited message has come.
    pub(in crate::connection) fn on_expedited(
        &mut self,
        expedited: &frame::Expedited<'_>,
    ) -> Result<(), CloseReason> {
        let id = expedited.flow;
        let wrong = |what: &str| Err(CloseReason::Protocol(format!("flow {id}: {what}")));
        if !self.config.requirements.expedited {
            return wrong("an expedited message, which this end does not take");
        }
        let found = self.flows.of_frame(id).map_err(super::violation)?;
        let Some((flow, is_new)) = found else { return Ok(()) };
        let receive = &mut flow.receive;
        let is_over = receive.is_done || receive.due_reset().is_some();
        let arrived = receive.expedited.get_or_insert_default();
        // flow.md R-26
        match expedited.number {
            number if number < arrived.count => return Ok(()),
            number if number > arrived.count || arrived.unread.is_some() => {
                return wrong("an expedited message before the one before it was taken");
            }
            _ => {}
        }
        arrived.count += 1;
        if is_new {
            self.events.push_back(Event::FlowOpened(FlowId(id)));
        }
        // flow.md R-28
        if arrived.is_unwanted {
            self.flows.signals.insert(Signal::ExpeditedAck(id));
        } else if !is_over {
            arrived.unread = Some(Bytes::copy_from_slice(expedited.bytes));
            self.events.push_back(Event::Expedited(FlowId(id)));
        }
        Ok(())
    }
}
