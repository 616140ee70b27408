//! Flows: sequences of messages or bytes inside a connection, each way with a profile of its own.

use super::messages::Messages;
use crate::event::{Direction, Event, FlowId};
use crate::synthesis::ReceiveStack;
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use uts_functions::flow::{self, Grant};
use uts_functions::retransmission::ledger::Carried;
use uts_functions::segmentation::buffer::SendBuffer;
use uts_functions::sequencing::reassembly::{Reassembly, Spares};
use uts_functions::{RangeSet, Time, retransmission};
use uts_wire::frame::Data;

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It asked for the connection.
    Client,
    /// It accepted it.
    Server,
}

impl Side {
    /// Whether a flow of this id was opened by this side.
    pub(crate) fn opens(self, flow: u32) -> bool {
        (flow & 1 == 0) == (self == Side::Client)
    }
}

/// The sending half of a flow.
#[derive(Debug)]
pub(crate) struct SendHalf {
    pub buffer: SendBuffer,
    /// The peer's credit.
    pub limit: u64,
    pub group: u8,
    /// Its group's profile is not agreed yet: nothing of it is sent.
    pub is_held: bool,
    /// Why its group's profile could not be agreed.
    pub refused: Option<Box<str>>,
    /// 0 = most urgent.
    pub priority: u8,
    /// The application found it full and wants to know when it is not.
    pub writer_waits: bool,
    /// The application reset it: code and final position, until the peer has acknowledged that.
    pub reset: Option<(u64, u64)>,
    pub stopped: Option<u64>,
    pub is_done: bool,
    /// What repeats this flow's losses, and the epoch that it was built for: its memory is the flow's own.
    pub retransmission: Option<(u32, retransmission::Slot)>,
    /// Place in the order of sending, if it is in it.
    turn: Option<u64>,
}

/// The receiving half of a flow.
#[derive(Debug)]
pub(crate) struct ReceiveHalf {
    pub data: Reassembly,
    pub grant: Grant,
    /// The flow-control mechanism in charge of the grant.
    pub flow: flow::Slot,
    pub group: u8,
    /// Its group is known: data has arrived.
    pub is_placed: bool,
    /// The application has been told that there is something to read and has not read everything since.
    pub reader_told: bool,
    /// Data that was sent while nothing had to be granted may still arrive below this position.
    pub free_limit: u64,
    pub reset: Option<u64>,
    pub stop: Option<u64>,
    /// The application has seen its end (or its reset, or wants no more).
    pub is_done: bool,
}

impl ReceiveHalf {
    /// Whether memory is given to so many more bytes, whatever the peer was granted.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.data.held_bytes() as u64 + bytes <= self.grant.window_bytes_max.saturating_mul(2)
    }

    /// Takes in the data of a frame if it is the next bytes, or a whole message without a position, and the flow is one that takes such
    /// under this stack.
    pub fn append(&mut self, stack: &ReceiveStack, data: &Data<'_>) -> bool {
        if !self.takes_from(stack) {
            return false;
        }
        if let Some(start) = stack.layout.start_of_bytes(data) {
            let limit = if stack.layout.offsets { self.limit() } else { u64::MAX };
            return self.data.append(start, data.bytes, limit);
        }
        stack.layout.is_unplaced_message(data) && self.data.append_unplaced(data.bytes, data.flags.presented)
    }

    /// Takes in the messages that a packet consists of if they are the next, or have no positions, and the flow is one that takes such
    /// under this stack.
    pub fn append_messages(&mut self, stack: &ReceiveStack, messages: &Messages, payload: &[u8]) -> bool {
        let (limit, offsets) = (self.limit(), stack.layout.offsets);
        self.takes_from(stack)
            && match messages.start {
                Some(start) => offsets && self.data.append_messages(start, payload, messages.list(), limit),
                None => !offsets && self.data.append_unplaced_messages(payload, messages.list()),
            }
    }

    /// Whether data that comes under a stack goes into this flow with nothing changed about it.
    fn takes_from(&self, stack: &ReceiveStack) -> bool {
        let is_ours = self.is_placed && self.group == stack.group && self.reset.is_none() && !self.is_done;
        is_ours && (self.is_free() || !matches!(stack.flow, flow::Slot::None(_)))
    }

    /// Tells the application once that there is something to read.
    pub fn tell_reader(&mut self, id: u32, events: &mut VecDeque<Event>) {
        if !core::mem::replace(&mut self.reader_told, true) {
            events.push_back(Event::Readable(FlowId(id)));
        }
    }

    /// Whether the sender needs no credit.
    pub fn is_free(&self) -> bool {
        matches!(self.flow, flow::Slot::None(_))
    }

    /// Positions beyond this are refused: what was granted, or where nothing is granted what memory allows.
    pub fn limit(&self) -> u64 {
        match self.flow {
            flow::Slot::None(_) => {
                self.data.consumed().saturating_add(self.grant.window_bytes_max.saturating_mul(4))
            }
            _ => self.grant.limit.max(self.free_limit),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Flow {
    pub send: SendHalf,
    pub receive: ReceiveHalf,
}

/// Control of a flow that has to be sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FlowControl {
    Credit(u32),
    Reset(u32),
    Stop(u32),
    Skip(u32),
    Limit,
}

/// All flows of a connection.
#[derive(Debug)]
pub(crate) struct Flows {
    side: Side,
    table: BTreeMap<u32, Box<Flow>>,
    /// Indices (id / 2) of flows of each parity that existed and are gone.
    gone: [RangeSet; 2],
    next_index: u32,
    /// Flows that this end may open.
    pub opened_max: u32,
    /// Flows that the peer may open (a count of all ever opened).
    pub accepted_max: u32,
    accept_window: u32,
    pub accepted: VecDeque<u32>,
    /// Flows with something to send: (priority, turn, id).
    order: BTreeSet<(u8, u64, u32)>,
    turns: u64,
    pub control: BTreeSet<FlowControl>,
    pub credit_initial_out: u64,
    credit_initial_in: u64,
    credit_max_in: u64,
    /// Flow control of what the peer sends in group 0; flows begin with it.
    pub flow_template: Option<flow::Slot>,
    /// Large buffers, shared by all connections of an endpoint.
    spares: Spares,
}

/// What a frame says about a flow that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FlowViolation {
    #[error("flow {0} is beyond the limit of {1} flows")]
    BeyondLimit(u32, u32),
    #[error("flow {0} was never opened by this end")]
    NeverOpened(u32),
}

impl Flows {
    pub fn new(side: Side, flows_max: u32, credit_initial: u64, credit_max: u64, spares: Spares) -> Self {
        Flows {
            side,
            table: BTreeMap::new(),
            gone: [RangeSet::new(), RangeSet::new()],
            next_index: 0,
            opened_max: 0,
            accepted_max: flows_max,
            accept_window: flows_max,
            accepted: VecDeque::new(),
            order: BTreeSet::new(),
            turns: 0,
            control: BTreeSet::new(),
            credit_initial_out: 0,
            credit_initial_in: credit_initial,
            credit_max_in: credit_max.max(credit_initial),
            flow_template: None,
            spares,
        }
    }

    /// Whether the peer allows another flow.
    pub fn may_open(&self) -> bool {
        self.next_index < self.opened_max
    }

    /// Opens a flow; `None` while the peer allows no more.
    pub fn open(&mut self, priority: u8) -> Option<FlowId> {
        if !self.may_open() {
            return None;
        }
        let id = self.next_index * 2 + u32::from(self.side == Side::Server);
        self.next_index += 1;
        self.insert(id, priority);
        Some(FlowId(id))
    }

    fn insert(&mut self, id: u32, priority: u8) {
        let window = self.credit_initial_in;
        let flow = Flow {
            send: SendHalf {
                buffer: SendBuffer::default(),
                limit: self.credit_initial_out,
                group: 0,
                is_held: false,
                refused: None,
                priority,
                writer_waits: false,
                reset: None,
                stopped: None,
                is_done: false,
                retransmission: None,
                turn: None,
            },
            receive: ReceiveHalf {
                data: Reassembly::sharing(self.spares.clone()),
                grant: Grant {
                    limit: window,
                    consumed: 0,
                    window_bytes: window,
                    window_bytes_max: self.credit_max_in,
                    grown_at: Time::ZERO,
                },
                flow: self.flow_template.clone().unwrap_or_else(unlimited),
                group: 0,
                is_placed: false,
                reader_told: false,
                free_limit: 0,
                reset: None,
                stop: None,
                is_done: false,
            },
        };
        self.table.insert(id, Box::new(flow));
    }

    pub fn get(&self, id: u32) -> Option<&Flow> {
        self.table.get(&id).map(|flow| &**flow)
    }

    pub fn get_mut(&mut self, id: u32) -> Option<&mut Flow> {
        self.table.get_mut(&id).map(|flow| &mut **flow)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Flow)> {
        self.table.iter().map(|(id, flow)| (*id, &**flow))
    }

    /// Finds the flow that a frame of the peer names, opening it if it is the peer's to open. `Ok(None)`: it was, and is
    /// gone. The flag says whether it is new.
    pub fn of_frame(&mut self, id: u32) -> Result<Option<(&mut Flow, bool)>, FlowViolation> {
        if self.table.contains_key(&id) {
            return Ok(self.table.get_mut(&id).map(|flow| (&mut **flow, false)));
        }
        let index = id / 2;
        if self.gone[(id & 1) as usize].contains(u64::from(index)) {
            return Ok(None);
        }
        if self.side.opens(id) {
            return Err(FlowViolation::NeverOpened(id));
        }
        if index >= self.accepted_max {
            return Err(FlowViolation::BeyondLimit(id, self.accepted_max));
        }
        self.insert(id, DEFAULT_PRIORITY);
        self.accepted.push_back(id);
        Ok(self.table.get_mut(&id).map(|flow| (&mut **flow, true)))
    }

    /// Puts a flow into the order of sending if it has something to send, and takes it out if it has not.
    pub fn update_order(&mut self, id: u32, limit_of: impl Fn(u64) -> u64) {
        let Some(flow) = self.table.get_mut(&id) else { return };
        let send = &mut flow.send;
        let may = !send.is_held && send.reset.is_none();
        let wants = may && send.buffer.wants_to_send(limit_of(send.limit));
        match (wants, send.turn) {
            (true, None) => {
                self.turns += 1;
                send.turn = Some(self.turns);
                self.order.insert((send.priority, self.turns, id));
            }
            (false, Some(turn)) => {
                send.turn = None;
                self.order.remove(&(send.priority, turn, id));
            }
            _ => {}
        }
    }

    /// Whether a flow is in the order of sending.
    pub fn has_turn(&self, id: u32) -> bool {
        self.table.get(&id).is_some_and(|flow| flow.send.turn.is_some())
    }

    /// Moves a flow behind the others of its priority.
    pub fn yield_turn(&mut self, id: u32) {
        if self.order.len() < 2 {
            return;
        }
        let Some(send) = self.table.get_mut(&id).map(|flow| &mut flow.send) else { return };
        if let Some(turn) = send.turn {
            self.order.remove(&(send.priority, turn, id));
            self.turns += 1;
            send.turn = Some(self.turns);
            self.order.insert((send.priority, self.turns, id));
        }
    }

    /// The flow whose turn it is, of this group if one is named.
    pub fn next_to_send(&self, group: Option<u8>) -> Option<u32> {
        self.in_order(group).next()
    }

    /// Flows that have something to send, of this group if one is named, in the order in which they may.
    fn in_order(&self, group: Option<u8>) -> impl Iterator<Item = u32> + '_ {
        let is_in = move |id: &u32| self.table.get(id).is_some_and(|flow| Some(flow.send.group) == group);
        self.order.iter().map(|(_, _, id)| *id).filter(move |id| group.is_none() || is_in(id))
    }

    /// What a group's flows hold may be readable now that another mechanism keeps their order.
    pub fn tell_readers(&mut self, group: u8, events: &mut VecDeque<Event>) {
        for (id, flow) in &mut self.table {
            if flow.receive.group == group && flow.receive.data.holds_anything() {
                flow.receive.tell_reader(*id, events);
            }
        }
    }

    /// Whether another flow of this group has something to send, too.
    pub fn others_want_to_send(&self, id: u32, group: u8) -> bool {
        self.only_to_send() != Some(id) && self.in_order(Some(group)).any(|other| other != id)
    }

    /// The flow that has something to send, if it is one alone.
    pub fn only_to_send(&self) -> Option<u32> {
        if self.order.len() == 1 { self.order.first().map(|(_, _, id)| *id) } else { None }
    }

    pub fn wants_to_send(&self) -> bool {
        !self.order.is_empty()
    }

    /// Drops a flow both halves of which are done; grants the peer another one if it was the peer's.
    pub fn drop_if_done(&mut self, id: u32) {
        let Some(flow) = self.table.get(&id) else { return };
        if !(flow.send.is_done && flow.receive.is_done && flow.receive.stop.is_none()) {
            return;
        }
        if let Some(turn) = flow.send.turn {
            self.order.remove(&(flow.send.priority, turn, id));
        }
        self.table.remove(&id);
        for control in [FlowControl::Credit(id), FlowControl::Skip(id)] {
            self.control.remove(&control);
        }
        self.gone[(id & 1) as usize].insert_one(u64::from(id / 2));
        if !self.side.opens(id) {
            let open = self.table.keys().filter(|id| !self.side.opens(**id)).count() as u32;
            let opened = self.gone[(id & 1) as usize].count() as u32 + open;
            // Said in steps of a quarter, not for each flow.
            if opened + self.accept_window >= self.accepted_max + (self.accept_window / 4).max(1) {
                self.accepted_max = opened - open + self.accept_window;
                self.control.insert(FlowControl::Limit);
            }
        }
    }

    /// Gives back memory that nothing is in.
    pub fn shrink(&mut self) {
        self.accepted.shrink_to_fit();
        // A tree that has become empty keeps a node.
        if self.table.is_empty() {
            self.table = BTreeMap::new();
        }
        if self.order.is_empty() {
            self.order = BTreeSet::new();
        }
        if self.control.is_empty() {
            self.control = BTreeSet::new();
        }
        self.gone.iter_mut().for_each(RangeSet::shrink);
        for flow in self.table.values_mut() {
            flow.send.buffer.shrink();
            flow.receive.data.shrink();
        }
    }

    /// Whether something has arrived that the application has not taken.
    pub fn has_unread(&self) -> bool {
        let is_unread = |r: &ReceiveHalf| !r.is_done && (r.data.held_bytes() > 0 || r.data.is_complete());
        !self.accepted.is_empty() || self.table.values().any(|flow| is_unread(&flow.receive))
    }

    pub fn heap_bytes(&self) -> usize {
        let flows: usize = self
            .table
            .values()
            .map(|f| size_of::<Flow>() + 16 + f.send.buffer.heap_bytes() + f.receive.data.heap_bytes())
            .sum();
        flows + self.order.len() * 32 + self.gone.iter().map(RangeSet::heap_bytes).sum::<usize>()
    }
}

/// The mechanism before any profile is agreed: nothing can arrive then.
fn unlimited() -> flow::Slot {
    flow::Slot::None(flow::none::None::build(&uts_functions::Params::default(), ()))
}

/// The priority of a flow unless another is given.
pub const DEFAULT_PRIORITY: u8 = 100;

/// A token of the ledger: what a packet carried, to be settled when it is acknowledged or lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Data {
        flow: u32,
        range: Range<u64>,
    },
    Skip {
        flow: u32,
        range: Range<u64>,
    },
    Flow(FlowControl),
    /// An acknowledgement of packets up to this number.
    Ack(u64),
    /// A probe for a larger packet size.
    SizeProbe(usize),
    /// A token for the next connection from this address.
    Address,
    PathResponse(u64),
    /// A message of an exchange of this direction's profile.
    Exchange(Direction),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_take_turns_and_the_urgent_go_first() {
        let mut flows = Flows::new(Side::Client, 10, 1000, 1000, Spares::default());
        flows.opened_max = 10;
        flows.credit_initial_out = 1000;
        let ids: Vec<u32> =
            [100, 100, 5].iter().filter_map(|priority| flows.open(*priority)).map(|id| id.0).collect();
        assert_eq!(ids, [0, 2, 4]);
        for id in &ids {
            flows.get_mut(*id).expect("open").send.buffer.write(bytes::Bytes::from_static(b"data"));
            flows.update_order(*id, |limit| limit);
        }
        assert_eq!(flows.next_to_send(None), Some(4));
        flows.get_mut(4).expect("open").send.buffer.next_chunk(100, 1000);
        flows.update_order(4, |limit| limit);
        assert_eq!(flows.next_to_send(None), Some(0));
        flows.yield_turn(0);
        assert_eq!(flows.next_to_send(None), Some(2));
    }

    #[test]
    fn the_peer_opens_only_its_own_flows_and_only_as_many_as_granted() {
        let mut flows = Flows::new(Side::Client, 2, 1000, 1000, Spares::default());
        assert_eq!(flows.of_frame(0).err(), Some(FlowViolation::NeverOpened(0)));
        assert!(flows.of_frame(1).expect("the server's").is_some_and(|(_, new)| new));
        assert!(flows.of_frame(1).expect("the server's").is_some_and(|(_, new)| !new));
        assert_eq!(flows.of_frame(5).err(), Some(FlowViolation::BeyondLimit(5, 2)));
        let flow = flows.get_mut(1).expect("open");
        (flow.send.is_done, flow.receive.is_done) = (true, true);
        flows.drop_if_done(1);
        assert!(flows.of_frame(1).expect("was there").is_none());
        assert!(flows.accepted_max == 3 && flows.control.contains(&FlowControl::Limit));
    }
}
