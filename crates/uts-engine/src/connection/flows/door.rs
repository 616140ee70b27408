//! Door of a connection's flows: what the application asks of them. Before the connection is
//! established there are none.

use crate::connection::flows::batch::{MessageBatch, ReadSink};
use crate::connection::flows::interface::{
    FlowError, FlowOptions, MessageOptions, Read, ReadError, WriteError,
};
use crate::connection::flows::tagged::{FindMemory, Memory};
use crate::connection::{Connection, both};
use crate::event::{Direction, FlowId};
use crate::requirements::Requirements;
use bytes::Bytes;
use std::collections::VecDeque;
use uts_functions::playout::Figures;
use uts_functions::{Profile, Time};

impl Connection {
    /// Opens a flow, which goes both ways.
    ///
    /// # Errors
    /// [`FlowError::Blocked`] while the peer allows no more; it is worth trying again at the next
    /// event. Others are about the flow's own requirements.
    pub fn open_flow(&mut self, options: FlowOptions) -> Result<FlowId, FlowError> {
        self.open_or(FlowError::Closed, FlowError::Blocked)?.open_flow(options)
    }

    /// Gives what this end sends in a flow requirements of its own, as
    /// [`FlowOptions::requirements`] does: for flows that the peer has opened. Possible until
    /// something is written.
    ///
    /// # Errors
    /// [`FlowError`]; nothing has changed then.
    pub fn set_flow_requirements(
        &mut self,
        id: FlowId,
        requirements: &Requirements,
    ) -> Result<(), FlowError> {
        self.open_or(FlowError::Closed, FlowError::Unknown)?.set_flow_requirements(id, requirements)
    }

    /// Gives what this end sends in a flow another [`FlowOptions::priority`]: 0 = the most
    /// important, 255 = the least. It holds from the next packet on.
    ///
    /// # Errors
    /// [`FlowError::Unknown`], [`FlowError::Closed`].
    pub fn set_flow_priority(&mut self, id: FlowId, priority: u8) -> Result<(), FlowError> {
        self.open_or(FlowError::Closed, FlowError::Unknown)?.set_flow_priority(id, priority)
    }

    /// The priority of what this end sends in a flow; `None` if there is no such flow.
    pub fn flow_priority(&self, id: FlowId) -> Option<u8> {
        self.open()?.ways.flows.get(id.0).map(|flow| flow.send.priority)
    }

    /// The profile under which a flow's data travels; `None` while that is not agreed, or if there
    /// is no such flow. For what the peer sends it is the connection's until the first data has
    /// come.
    pub fn flow_profile(&self, direction: Direction, id: FlowId) -> Option<Profile> {
        self.open()?.flow_profile(direction, id)
    }

    /// The next flow that the peer opened.
    pub fn accept_flow(&mut self) -> Option<FlowId> {
        self.open_mut()?.ways.flows.accepted.pop_front().map(FlowId)
    }

    /// Bytes that the application has handed over and the peer has not acknowledged, of all flows.
    pub fn undelivered_bytes(&self) -> u64 {
        let flows = self.open().into_iter().flat_map(|open| open.ways.flows.iter());
        flows.map(|(_, flow)| flow.send.buffer.held_bytes() as u64).sum()
    }

    /// Bytes of a flow that the application has handed over and that have not left this end for the
    /// first time; ends of messages count as one each. `None` if there is no such flow.
    pub fn unsent_bytes(&self, id: FlowId) -> Option<u64> {
        let buffer = &self.open()?.ways.flows.get(id.0)?.send.buffer;
        Some(buffer.written().saturating_sub(buffer.sent()))
    }

    /// Bytes that the peer lets this end send in a flow beyond those that were handed over, as soon
    /// as there are `least`, or nothing waits to leave, and less than `ahead` waits to leave. A
    /// caller that asks before it fetches what it sends holds nothing for a peer that takes
    /// nothing.
    ///
    /// # Errors
    /// [`WriteError`]; [`WriteError::Blocked`] while that is not so.
    pub fn granted(&mut self, id: FlowId, least: u64, ahead: u64) -> Result<u64, WriteError> {
        self.open_or(WriteError::Closed, WriteError::Unknown)?.granted(id, least, ahead)
    }

    /// Hands bytes over; says how many were taken.
    ///
    /// # Errors
    /// [`WriteError`]; with [`WriteError::Blocked`] nothing was taken.
    pub fn write(&mut self, now: Time, id: FlowId, data: Bytes) -> Result<usize, WriteError> {
        self.open_or(WriteError::Closed, WriteError::Unknown)?.write(now, id, data)
    }

    /// Hands one message over, whole or not at all. Under a profile of bytes its end is not kept.
    ///
    /// # Errors
    /// [`WriteError`]; nothing was taken then.
    pub fn send_message(
        &mut self,
        now: Time,
        id: FlowId,
        message: Bytes,
        options: MessageOptions,
    ) -> Result<(), WriteError> {
        let open = self.open_or(WriteError::Closed, WriteError::Unknown)?;
        open.hand_over(now, id, &mut Some(message), options).map(|_| ())
    }

    /// Hands messages over, each as [`Connection::send_message`] does, as many as the flow takes at
    /// present; says how many, which is one at least unless `messages` is empty. Those that were
    /// taken are no longer in `messages`.
    ///
    /// # Errors
    /// [`WriteError`], of the message in front; nothing was taken then.
    pub fn send_messages(
        &mut self,
        now: Time,
        id: FlowId,
        messages: &mut VecDeque<Bytes>,
        options: MessageOptions,
    ) -> Result<usize, WriteError> {
        self.open_or(WriteError::Closed, WriteError::Unknown)?.hand_over(now, id, messages, options)
    }

    /// Hands the messages of a batch over, as [`Connection::send_messages`] does.
    ///
    /// # Errors
    /// [`WriteError`], of the message in front; nothing was taken then.
    pub fn send_batch(
        &mut self,
        now: Time,
        id: FlowId,
        batch: &mut MessageBatch,
        options: MessageOptions,
    ) -> Result<usize, WriteError> {
        self.open_or(WriteError::Closed, WriteError::Unknown)?.hand_over(now, id, batch, options)
    }

    /// The position in a flow behind everything that was handed over so far, for
    /// [`After::Positions`](crate::After::Positions); `None` if there is no such flow.
    pub fn position(&self, id: FlowId) -> Option<u64> {
        self.open()?.ways.flows.get(id.0).map(|flow| flow.send.buffer.written())
    }

    /// Ends the flow after what was written. Without effect if it was reset. (F-6)
    pub fn finish(&mut self, id: FlowId) {
        if let Some(open) = self.open_mut() {
            open.finish(id);
        }
    }

    /// True if something that is to be written waits for memory that others hold
    /// ([`EndpointConfig::memory_bytes_max`](crate::EndpointConfig::memory_bytes_max)).
    pub fn waits_for_memory(&self) -> bool {
        self.open().is_some_and(|open| open.ways.flows.outgoing.has_waiting())
    }

    /// Gives the flow up: what was not delivered is not.
    pub fn reset(&mut self, id: FlowId, code: u64) {
        if let Some(open) = self.open_mut() {
            open.ways.reset_flow(id, code);
        }
    }

    /// Resets the flow behind what was written: the peer reads all of that, and then the reset. If
    /// the peer takes nothing of it for the idle time-out, or stops the flow, the rest is given up.
    /// Data without positions is given up at once, as by [`Connection::reset`]. Without effect if
    /// the flow was finished or reset. (flow.md)
    pub fn reset_reliably(&mut self, now: Time, id: FlowId, code: u64) {
        if let Some(open) = self.open_mut() {
            open.ways.reset_flow_reliably(now, id, code);
        }
    }

    /// Says that no more data of the flow is wanted; what has arrived is dropped. (F-8)
    pub fn stop(&mut self, id: FlowId, code: u64) {
        if let Some(open) = self.open_mut() {
            open.stop(id, code);
        }
    }

    /// Takes what comes next out of a flow: at most `bytes_max` bytes of a run of bytes, or a whole
    /// message.
    ///
    /// # Errors
    /// [`ReadError`]; with [`ReadError::Blocked`], an event follows when there is something.
    pub fn read(&mut self, now: Time, id: FlowId, bytes_max: usize) -> Result<Read, ReadError> {
        let mut next = None;
        self.read_into(now, id, bytes_max, |read| {
            next = Some(read);
            false
        })?;
        next.ok_or(ReadError::Blocked)
    }

    /// Has what has arrived acknowledged at once if it is to be acknowledged at some time: for a
    /// caller that may be called again late.
    pub fn acknowledge(&mut self, now: Time) {
        if let Some(open) = self.open_mut() {
            open.acknowledge(now);
        }
    }

    /// Figures of how messages of a flow were handed over in their time; `None` where no profile
    /// has playout, and before the first message came.
    pub fn playout(&self, id: FlowId) -> Option<Figures> {
        self.open()?.ways.playout(id.0)
    }

    /// True if all that has arrived in a flow was read, and more may come: to read would be in
    /// vain.
    pub fn has_read_all(&self, id: FlowId) -> bool {
        self.open().is_some_and(|open| open.has_read_all(id))
    }

    /// Takes what comes next, as [`Connection::read`] does, again and again until `put` wants no
    /// more, or the flow has ended: of small messages that is much faster.
    ///
    /// # Errors
    /// [`ReadError`] of what comes behind that which was put.
    pub fn read_many(
        &mut self,
        now: Time,
        id: FlowId,
        bytes_max: usize,
        put: impl FnMut(Read) -> bool,
    ) -> Result<(), ReadError> {
        self.read_into(now, id, bytes_max, put)
    }

    /// Takes what comes next, as [`Connection::read_many`] does, into whatever it is to be read
    /// into: of small messages an [`IntoBatch`](crate::IntoBatch) is faster still.
    ///
    /// # Errors
    /// [`ReadError`] of what comes behind that which was put.
    pub fn read_into(
        &mut self,
        now: Time,
        id: FlowId,
        bytes_max: usize,
        sink: impl ReadSink,
    ) -> Result<(), ReadError> {
        self.open_or(ReadError::Closed, ReadError::Unknown)?.read_into(now, id, bytes_max, sink)
    }

    /// Takes the expedited message that has come in a flow. The next one may come then. It can be
    /// taken after the flow's end was read, too; until then, or until
    /// [`Connection::stop_expedited`], the flow is kept.
    ///
    /// # Errors
    /// [`ReadError::Blocked`] if there is none; an
    /// [`Event::Expedited`](crate::Event::Expedited) follows when there is.
    /// [`ReadError::Unknown`], [`ReadError::Closed`] if none can come any more.
    pub fn read_expedited(&mut self, id: FlowId) -> Result<Bytes, ReadError> {
        self.open_or(ReadError::Closed, ReadError::Unknown)?.read_expedited(id)
    }

    /// Says that no expedited messages of a flow are wanted: what comes is dropped.
    pub fn stop_expedited(&mut self, id: FlowId) {
        if let Some(open) = self.open_mut() {
            open.stop_expedited(id);
        }
    }

    /// Has the first bytes of each flow that the peer opens from now on shown to `finder`, which
    /// may have memory for it.
    pub fn find_memory_by(&mut self, finder: Box<dyn FindMemory>) {
        let rare = both!(&mut self.state, core => core.ways.rare.get_or_insert_default());
        rare.finder = Some(finder);
    }

    /// Places the bytes of a flow from a position on in this memory, be they there already or not.
    /// They are not read any more. What comes beyond the memory is read as before. Says whether the
    /// flow is one that can be read; otherwise the memory is dropped.
    pub fn place_in(&mut self, now: Time, id: FlowId, from: u64, memory: Box<dyn Memory>) -> bool {
        self.open_mut().is_some_and(|open| open.place_in(now, id, from, memory))
    }
}
