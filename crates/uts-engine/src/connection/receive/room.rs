//! Finds memory for what a packet makes this end hold, or tells that there is none (flow.md R-37).

use crate::connection::flows::incoming::{AROUND_BYTES, FLOW_BYTES};
use crate::connection::parts::Signal;
use crate::connection::receive::contents::Contents;
use crate::connection::{CloseReason, Ways};
use uts_wire::frame::{self, Data, Frame};

/// Memory of a position that is named out of order, in bytes: a place among ranges, or in a tree.
const MARK_BYTES: usize = 96;

/// Memory that a packet makes this end hold.
#[derive(Clone, Copy, Debug)]
struct Demand {
    data_bytes: u64,
    /// To keep track of the data.
    around: usize,
    /// All of it follows on what has arrived.
    is_edge: bool,
}

impl Ways {
    /// True if the packet makes this end hold what it has no memory for.
    pub(in crate::connection) fn lacks_memory(&mut self, epoch: u32, contents: &Contents<'_, '_>) -> bool {
        let mut demand = Demand { data_bytes: 0, around: 0, is_edge: true };
        let stack = self.inbound.stack(epoch);
        let counts = stack.is_some_and(|stack| stack.layout.offsets);
        match contents {
            Contents::Data(data) => self.add_data(&mut demand, counts, data),
            Contents::Messages(messages) => {
                let rows = messages.rows().len() * AROUND_BYTES;
                self.add(&mut demand, messages.flow, messages.start.filter(|_| counts), rows);
                demand.data_bytes += messages.data_bytes;
            }
            Contents::Frames(frames) => frames.for_each(|frame| self.add_frame(&mut demand, counts, frame)),
        }
        let Demand { data_bytes, around, is_edge } = demand;
        (data_bytes > 0 || around > 0) && !self.flows.finds_room(data_bytes, around, is_edge)
    }

    fn add_frame(&self, demand: &mut Demand, counts: bool, frame: &Frame<'_>) {
        match frame {
            Frame::Data(data) => self.add_data(demand, counts, data),
            Frame::Messages(messages) => {
                self.add(demand, messages.flow, messages.offset.filter(|_| counts), AROUND_BYTES);
                demand.data_bytes += messages.bytes.len() as u64;
            }
            Frame::Skip(skip) => {
                let receive = self.flows.get(skip.flow).map(|flow| &flow.receive.data);
                let leaves_gap = receive.map_or(skip.start > 0, |data| data.leaves_gap(skip.start));
                self.add(demand, skip.flow, None, if leaves_gap { MARK_BYTES } else { 0 });
                demand.is_edge &= !leaves_gap;
            }
            Frame::Order(order) => self.add(demand, order.flow, None, MARK_BYTES),
            Frame::MediaTime(media) => self.add(demand, media.flow, None, MARK_BYTES),
            Frame::Credit(frame::Credit { flow, .. })
            | Frame::ResetFlow(frame::ResetFlow { flow, .. })
            | Frame::StopFlow(frame::StopFlow { flow, .. })
            | Frame::ExpeditedAck(frame::ExpeditedAck { flow, .. }) => self.add(demand, *flow, None, 0),
            Frame::Expedited(expedited) => self.add(demand, expedited.flow, None, MARK_BYTES),
            _ => {}
        }
    }

    fn add_data(&self, demand: &mut Demand, counts: bool, data: &Data<'_>) {
        let start = data.offset.filter(|_| counts);
        let receive = self.flows.get(data.flow).map(|flow| &flow.receive.data);
        let follows = receive.is_some_and(|data| start.is_some_and(|start| data.is_next(start)));
        let around = if follows && !data.flags.message { 0 } else { AROUND_BYTES };
        self.add(demand, data.flow, start, around);
        demand.data_bytes += data.bytes.len() as u64;
    }

    /// Adds something of a flow that begins at a position.
    fn add(&self, demand: &mut Demand, flow: u32, start: Option<u64>, around: usize) {
        demand.around += around;
        match self.flows.get(flow) {
            Some(flow) => {
                let contiguous = flow.receive.data.contiguous();
                demand.is_edge &= start.is_none_or(|start| start <= contiguous);
            }
            None if self.flows.would_open(flow) => {
                demand.around += FLOW_BYTES;
                demand.is_edge = false;
            }
            None => {}
        }
    }

    /// Counts what the decoders of redundancy keep, of all epochs that are open.
    pub(in crate::connection) fn note_redundancy(&mut self) {
        let stacks = &self.inbound.stacks;
        let held =
            stacks.iter().filter_map(|stack| stack.fec.as_ref()).map(|decoder| decoder.memory_bytes()).sum();
        self.flows.incoming.note_redundancy(held);
    }

    /// The peer has sent no more than it was granted in all flows together (flow.md R-33).
    pub(in crate::connection) fn keeps_to_credit(&self) -> Result<(), CloseReason> {
        if !self.flows.incoming.is_exceeded() {
            return Ok(());
        }
        let limit = self.flows.incoming.limit();
        Err(CloseReason::Protocol(format!("data beyond the credit of the connection, which is {limit}")))
    }

    /// Data of a flow that nobody wants any more has arrived: it may say where the flow ends.
    pub(in crate::connection) fn note_end(&mut self, data: &Data<'_>) {
        let Some(end) = data.offset.filter(|_| data.flags.fin) else { return };
        let end = end + data.bytes.len() as u64 + u64::from(data.flags.end);
        if let Some(flow) = self.flows.get_mut(data.flow).filter(|flow| flow.receive.is_done) {
            flow.receive.end_at(end);
            self.flows.note_received(data.flow);
            self.grant_again();
            self.flows.drop_if_done(data.flow);
        }
    }

    /// Grants anew when counts of flows have changed, though nobody has read anything: more credit
    /// may be due.
    pub(in crate::connection) fn grant_again(&mut self) {
        self.flows.make_room();
        if self.flows.incoming.grant_again() {
            self.flows.signals.insert(Signal::ConnectionCredit);
        }
    }

    /// Leaves credit for flows that are read, where others that are not hold most of it (flow.md
    ///
    #[inline]
    pub(in crate::connection) fn leave_window(&mut self) {
        if self.flows.incoming.holds_up() {
            self.flows.make_room();
            if self.flows.incoming.leave_window() {
                self.flows.signals.insert(Signal::ConnectionCredit);
            }
        }
    }

    /// Flows may send that had to wait for the connection.
    pub(in crate::connection) fn go_on_sending(&mut self) {
        for id in self.flows.unsent() {
            self.after_send_change(id);
        }
    }
}
