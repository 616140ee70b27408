//! Flows: sequences of messages or bytes inside a connection, each way with a profile of its own.

pub(in crate::connection) mod application;
pub(in crate::connection) mod batch;
mod door;
mod expedited;
pub(in crate::connection) mod halves;
pub(in crate::connection) mod incoming;
pub(in crate::connection) mod interface;
pub(in crate::connection) mod outgoing;

mod order;
mod playing;
pub(in crate::connection) mod tagged;

use self::incoming::{Counted, Incoming};
use self::order::{Order, Turn};
use self::outgoing::Outgoing;
use crate::config::ConnectionConfig;
use crate::connection::CloseReason;
use crate::connection::flows::halves::{Flow, ReceiveHalf, SendHalf};
use crate::connection::parts::Signal;
use crate::endpoint::budget::Stores;
use crate::event::{Event, FlowId};
use crate::requirements::Scheduler;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use uts_functions::flow::{self, FlowControl as _, Grant};
use uts_functions::segmentation::buffer::SendBuffer;
use uts_functions::sequencing::reassembly::{Reassembly, Spares};
use uts_functions::{RangeSet, Time};

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It asked for the connection.
    Client,
    /// It accepted it.
    Server,
}

impl Side {
    /// True if a flow of this id was opened by this side. (F-1)
    pub(crate) fn opens(self, flow: u32) -> bool {
        (flow & 1 == 0) == (self == Side::Client)
    }
}

/// All flows of a connection.
#[derive(Debug)]
pub(crate) struct Flows {
    table: BTreeMap<u32, Box<Flow>>,
    /// Indices (id / 2) of flows of each parity that existed and are gone.
    gone: [RangeSet; 2],
    /// Of the next flow that this end opens; whether it is even says which end this is.
    next_id: u32,
    /// Flows that this end may open.
    pub opened_max: u32,
    /// Window with which flows begin that this end sends in group 0, in bytes; windows are smaller
    /// than the most that this holds, which is no bound.
    pub window_out: u32,
    /// Flows that the peer may open (a count of all ever opened).
    pub accepted_max: u32,
    /// Flows that the peer has opened, and how many of them are gone.
    peers_opened: u32,
    peers_gone: u32,
    pub accepted: VecDeque<u32>,
    /// Flows with something to send.
    order: Order,
    /// Flows of which something is due ([`Flow::next_alarm`]), by when. Most connections have none,
    /// and many rest.
    #[allow(clippy::box_collection, reason = "16 bytes less for each connection at rest")]
    alarms: Option<Box<BTreeSet<(Time, u32)>>>,
    /// Signals about flows that wait to be sent to the peer.
    pub signals: BTreeSet<Signal>,
    /// Bytes that the peer grants a flow at its begin, at the most.
    pub credit_initial_out: u64,
    /// Flow control in the way in has granted nothing at some time: what left then may be beyond
    /// any limit, and is repeated under what came after (flow.md R-39).
    pub has_come_free: bool,
    /// Flow control in the way in has been exchanged for one with another window.
    pub has_other_window: bool,
    /// The peer reads frames of messages of one length (packets.md P-34).
    pub peer_reads_messages: bool,
    /// The peer takes expedited messages (packets.md P-55).
    pub peer_takes_expedited: bool,
    /// Flow control of what the peer sends in group 0; flows begin with it.
    pub flow_template: flow::Slot,
    /// Credit is given at a rate.
    pub is_rated: bool,
    /// New limits of flows wait for a packet that leaves anyway.
    has_riding: bool,
    /// So does the number of flows that the peer may open.
    limit_rides: bool,
    /// The flows of the peer together, and those of this end.
    pub incoming: Incoming,
    pub outgoing: Outgoing,
    /// Way in which flows share the connection.
    pub scheduler: Scheduler,
    config: Arc<ConnectionConfig>,
    /// Large buffers, shared by all connections of an endpoint.
    spares: Spares,
}

/// Violation by a frame that names a flow which cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FlowViolation {
    #[error("flow {0} is beyond the limit of {1} flows")]
    BeyondLimit(u32, u32),
    #[error("flow {0} was never opened by this end")]
    NeverOpened(u32),
}

/// Reason for closing, as it is said to a peer that names such a flow.
pub(in crate::connection) fn violation(violation: FlowViolation) -> CloseReason {
    CloseReason::Protocol(violation.to_string())
}

impl Flows {
    pub fn new(side: Side, config: Arc<ConnectionConfig>, stores: Stores) -> Self {
        let Stores { spares, received, sent, first_credit } = stores;
        Flows {
            incoming: Incoming::new(received, first_credit),
            outgoing: Outgoing::new(sent),
            table: BTreeMap::new(),
            gone: [RangeSet::new(), RangeSet::new()],
            next_id: u32::from(side == Side::Server),
            opened_max: 0,
            accepted_max: config.flows_max,
            peers_opened: 0,
            peers_gone: 0,
            accepted: VecDeque::new(),
            order: Order::default(),
            scheduler: config.requirements.conn_scheduler,
            alarms: None,
            signals: BTreeSet::new(),
            credit_initial_out: 0,
            window_out: u32::MAX,
            has_come_free: false,
            has_other_window: false,
            peer_reads_messages: false,
            peer_takes_expedited: false,
            flow_template: flow::unlimited(),
            is_rated: config.requirements.max_recv_rate.is_some(),
            has_riding: false,
            limit_rides: false,
            config,
            spares,
        }
    }

    fn side(&self) -> Side {
        if self.next_id.is_multiple_of(2) { Side::Client } else { Side::Server }
    }

    /// True if the number is one of a flow that the peer opens.
    pub fn is_peers(&self, id: u32) -> bool {
        !self.side().opens(id)
    }

    /// True if there ever was a flow.
    pub fn has_had_any(&self) -> bool {
        self.peers_opened > 0 || self.next_id > 1
    }

    /// True if the peer allows another flow, and there is a number for it: no number is given
    /// twice.
    pub fn may_open(&self) -> bool {
        self.next_id / 2 < self.opened_max && self.next_id <= u32::MAX - 2
    }

    /// Opens a flow; `None` while the peer allows no more. (F-2)
    pub fn open(&mut self, priority: u8) -> Option<FlowId> {
        if !self.may_open() {
            return None;
        }
        let id = self.next_id;
        self.next_id += 2;
        self.insert(id, priority);
        Some(FlowId(id))
    }

    /// The credit with which a flow begins whose flow control begins with this window (flow.md
    ///
    pub fn first_credit_out(&self, window: u32) -> u64 {
        if window == u32::MAX { self.credit_initial_out } else { self.credit_initial_out.min(window.into()) }
    }

    fn insert(&mut self, id: u32, priority: u8) {
        let (window, first) = (self.config.credit_bytes_initial, self.config.first_credit());
        let flow_control = self.flow_template.clone();
        let its_window = flow_control.window_bytes();
        let mut flow = Flow {
            send: SendHalf {
                counted: 0,
                held: 0,
                buffer: SendBuffer::default(),
                limit: self.first_credit_out(self.window_out),
                group: 0,
                is_held: false,
                refused: None,
                priority,
                writer_waits: false,
                reset: None,
                stopped: None,
                is_done: false,
                retransmission: None,
                rare: None,
                turn: Turn::default(),
            },
            receive: ReceiveHalf {
                counted: Counted::default(),
                final_sent: None,
                is_final_known: false,
                data: Reassembly::sharing(self.spares.clone()),
                grant: Grant {
                    // flow.md R-24
                    limit: first.min(its_window),
                    consumed: 0,
                    given_up: 0,
                    window_bytes: window.min(its_window),
                    window_bytes_max: self.config.credit_bytes_max.max(window),
                    grown_at: Time::ZERO,
                },
                flow: flow_control,
                group: 0,
                is_placed: false,
                has_riding: false,
                reader_told: false,
                reader_waits: false,
                told_limit: if self.is_rated { first } else { u64::MAX },
                free_limit: first,
                lines: None,
                asking: None,
                playing: None,
                expedited: None,
                tagged: None,
                reset: None,
                stop: None,
                is_done: false,
            },
            alarm: None,
        };
        self.incoming.note(&mut flow.receive);
        self.table.insert(id, Box::new(flow));
    }

    /// Receiving half of a flow, and what counts it.
    pub fn receiving(&mut self, id: u32) -> Option<(&mut ReceiveHalf, &mut Incoming)> {
        Some((&mut self.table.get_mut(&id)?.receive, &mut self.incoming))
    }

    /// Changes the receiving half of each flow of a group, and notes how it stands then.
    pub fn change_receiving(&mut self, group: u8, mut change: impl FnMut(&mut ReceiveHalf)) {
        let of_group = self.table.values_mut().map(|flow| &mut flow.receive);
        for receive in of_group.filter(|receive| receive.group == group) {
            change(receive);
            self.incoming.note(receive);
        }
    }

    /// Notes how what is received of a flow stands.
    pub fn note_received(&mut self, id: u32) {
        if let Some((receive, incoming)) = self.receiving(id) {
            incoming.note(receive);
        }
    }

    /// Notes how what is sent of a flow stands.
    pub fn note_sent(&mut self, id: u32) {
        if let Some(flow) = self.table.get_mut(&id)
            && self.outgoing.note(&mut flow.send)
        {
            self.leave_but_repeats();
        }
    }

    /// True if a flow has its place among flows that have something to send.
    #[cfg(debug_assertions)]
    pub fn is_in_order(&self, id: u32) -> bool {
        self.get(id).is_some_and(|flow| flow.send.turn.is_on())
    }

    /// True if each flow of which something is due is listed, no later than it is. It may be early:
    /// what is found not to be due then is listed anew.
    #[cfg(debug_assertions)]
    pub fn alarms_are_right(&self) -> bool {
        let listed = self.alarms.as_ref().map_or(0, |alarms| alarms.len());
        let is_listed = |at: Time, id: u32| self.alarms.as_ref().is_some_and(|all| all.contains(&(at, id)));
        let mut due = 0;
        let is_so = self.table.iter().all(|(id, flow)| {
            due += usize::from(flow.alarm.is_some());
            let is_in_time = flow.next_alarm().is_none_or(|next| flow.alarm.is_some_and(|at| at <= next));
            is_in_time && flow.alarm.is_none_or(|at| is_listed(at, *id))
        });
        is_so && due == listed
    }

    /// True if the counted memory is the memory of all flows.
    #[cfg(debug_assertions)]
    pub fn counts_are_right(&self) -> bool {
        let charges = self.table.values().map(|flow| flow.receive.counted.charge).sum::<usize>();
        let held = self.table.values().map(|flow| flow.send.held).sum::<usize>();
        let is_so = |flow: &Flow| flow.receive.counted.charge == flow.receive.memory_bytes();
        charges == self.incoming.charge_of_flows()
            && held == self.outgoing.held()
            && self.table.values().all(|flow| is_so(flow))
    }

    /// Bytes that the window of a flow may grow to: all that may be granted, if it is the only
    /// flow; together no more than half of that, if there are many, for flows that come.
    pub fn share_of_flow(&self) -> u64 {
        self.incoming.grantable_max() / (2 * self.table.len() as u64).saturating_sub(1).max(1)
    }

    /// Gives back what flows hold and do not need (flow.md R-37).
    fn compact(&mut self) {
        for flow in self.table.values_mut() {
            flow.receive.data.compact();
            self.incoming.note(&mut flow.receive);
        }
    }

    /// Where memory is short, buffers that only wait to be used again leave it to credit.
    pub fn make_room(&mut self) {
        if self.incoming.is_tight() {
            self.compact();
        }
    }

    /// True if there is memory for so many bytes of data, and so many to keep track of them. Such
    /// as follow on all that has arrived of a flow find room the longest. (flow.md R-37)
    pub fn finds_room(&mut self, data_bytes: u64, around: usize, is_edge: bool) -> bool {
        if self.incoming.has_room(data_bytes, around, is_edge) {
            return true;
        }
        self.compact();
        self.incoming.has_room(data_bytes, around, is_edge)
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

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Flow)> {
        self.table.iter_mut().map(|(id, flow)| (*id, &mut **flow))
    }

    /// Finds the flow that a frame of the peer names, opening it if it is the peer's to open.
    /// `Ok(None)`: it was, and is gone. The flag says whether it is new. (F-3, F-4, F-12)
    pub fn of_frame(&mut self, id: u32) -> Result<Option<(&mut Flow, bool)>, FlowViolation> {
        if self.table.contains_key(&id) {
            return Ok(self.table.get_mut(&id).map(|flow| (&mut **flow, false)));
        }
        let index = id / 2;
        if self.gone[(id & 1) as usize].contains(u64::from(index)) {
            return Ok(None);
        }
        if self.side().opens(id) {
            return Err(FlowViolation::NeverOpened(id));
        }
        if index >= self.accepted_max {
            return Err(FlowViolation::BeyondLimit(id, self.accepted_max));
        }
        self.insert(id, DEFAULT_PRIORITY);
        self.peers_opened += 1;
        self.accepted.push_back(id);
        // F-14: the bound that it knows is near, at the latest.
        if self.limit_rides && self.accepted_max - self.peers_opened <= self.config.flows_max / 2 {
            self.say_limit();
        }
        Ok(self.table.get_mut(&id).map(|flow| (&mut **flow, true)))
    }

    /// True if a frame that names this flow opens it.
    pub fn would_open(&self, id: u32) -> bool {
        !self.side().opens(id)
            && !self.table.contains_key(&id)
            && !self.gone[(id & 1) as usize].contains(u64::from(id / 2))
    }

    /// The peer says how many flows this end may open.
    pub fn on_limit(&mut self, max_flows: u32) {
        self.opened_max = self.opened_max.max(max_flows);
    }

    /// Puts a flow into the order of sending if it has something to send, and takes it out if it
    /// has not.
    pub fn update_order(&mut self, id: u32, limit_of: impl FnOnce(&mut SendHalf) -> u64) {
        let Some(flow) = self.table.get_mut(&id) else { return };
        let send = &mut flow.send;
        let has_used_up = self.outgoing.note(send);
        let may = !send.is_held && !send.is_given_up();
        let limit = limit_of(send).min(send.within(self.outgoing.spare()));
        let wants = may && send.buffer.wants_to_send(limit);
        if wants {
            self.order
                .enter(self.scheduler, (id, send.priority), &mut send.turn, || send.buffer.next_expiry());
        } else {
            self.order.leave((id, send.priority), &mut send.turn);
        }
        if flow.send.rare.is_some() {
            self.update_alarm(id);
        }
        self.outgoing.settle();
        if has_used_up {
            self.leave_but_repeats();
        }
    }

    /// The connection's credit is used up: only what repeats something is left in the order.
    #[cold]
    fn leave_but_repeats(&mut self) {
        let ids: Vec<u32> = self.order.iter().collect();
        for id in ids {
            let Some(send) = self.table.get_mut(&id).map(|flow| &mut flow.send) else { continue };
            if !send.buffer.wants_to_send(send.counted) {
                self.order.leave((id, send.priority), &mut send.turn);
            }
        }
    }

    /// Flows that have something new to send.
    pub fn unsent(&self) -> Vec<u32> {
        let is_unsent = |flow: &Flow| flow.send.buffer.sent() < flow.send.buffer.written();
        self.iter().filter(|(_, flow)| is_unsent(flow)).map(|(id, _)| id).collect()
    }

    /// Flows whose writers wait.
    pub fn waiting_writers(&self) -> Vec<u32> {
        self.iter().filter(|(_, flow)| flow.send.writer_waits).map(|(id, _)| id).collect()
    }

    /// Keeps a flow's place among those of which something is due.
    pub fn update_alarm(&mut self, id: u32) {
        let Some(flow) = self.table.get_mut(&id) else { return };
        let next = flow.next_alarm();
        let before = core::mem::replace(&mut flow.alarm, next);
        if next != before {
            self.relist_alarm(id, before, next);
        }
    }

    fn relist_alarm(&mut self, id: u32, before: Option<Time>, next: Option<Time>) {
        let alarms = self.alarms.get_or_insert_default();
        if let Some(at) = before {
            alarms.remove(&(at, id));
        }
        if let Some(at) = next {
            alarms.insert((at, id));
        }
    }

    /// When something is due of any flow next, and of which.
    #[inline]
    pub fn next_alarm(&self) -> Option<(Time, u32)> {
        self.alarms.as_ref()?.first().copied()
    }

    /// A flow has a new limit. The peer is told at once, or by a packet that leaves anyway.
    pub fn tell_limit(&mut self, id: u32, rides: bool) {
        let Some(flow) = self.table.get_mut(&id) else { return };
        flow.receive.has_riding = rides;
        if rides {
            self.has_riding = true;
        } else {
            flow.receive.flow.on_told(flow.receive.grant.limit);
            self.signals.insert(Signal::Credit(id));
        }
    }

    /// A packet leaves anyway: limits that wait for one go with it.
    pub fn let_ride(&mut self) {
        if self.limit_rides {
            self.say_limit();
        }
        if !core::mem::take(&mut self.has_riding) {
            return;
        }
        for (id, flow) in &mut self.table {
            if core::mem::take(&mut flow.receive.has_riding) {
                flow.receive.flow.on_told(flow.receive.grant.limit);
                self.signals.insert(Signal::Credit(*id));
            }
        }
    }

    /// True if all data of a flow below a position has come, or will not come.
    pub fn has_all_below(&self, id: u32, position: u64) -> bool {
        self.get(id).is_none_or(|flow| {
            let receive = &flow.receive;
            receive.is_done || receive.due_reset().is_some() || receive.data.contiguous() >= position
        })
    }

    /// True if data of a flow below a position is still to come; of a flow that is not known yet
    /// all is.
    pub fn lacks_below(&self, id: u32, position: u64) -> bool {
        let is_gone = self.gone[(id & 1) as usize].contains(u64::from(id / 2));
        let is_known = self.table.contains_key(&id) || is_gone;
        if is_known { !self.has_all_below(id, position) } else { position > 0 }
    }

    /// True if a flow is in the order of sending.
    pub fn has_turn(&self, id: u32) -> bool {
        self.table.get(&id).is_some_and(|flow| flow.send.turn.is_on())
    }

    /// A flow has had its turn, and so many bytes of it are in a packet.
    pub fn on_turn(&mut self, id: u32, bytes: u64) {
        if let Some(send) = self.table.get_mut(&id).map(|flow| &mut flow.send) {
            self.order.serve(self.scheduler, (id, send.priority), &mut send.turn, bytes);
        }
    }

    /// Gives a flow another priority. False if there is no such flow.
    pub fn set_priority(&mut self, id: u32, priority: u8) -> bool {
        let Some(send) = self.table.get_mut(&id).map(|flow| &mut flow.send) else { return false };
        let before = core::mem::replace(&mut send.priority, priority);
        if send.turn.is_on() && before != priority {
            self.order.leave((id, before), &mut send.turn);
            self.order.enter(self.scheduler, (id, priority), &mut send.turn, || send.buffer.next_expiry());
        }
        true
    }

    /// The flow whose turn it is, of this group if one is named.
    pub fn next_to_send(&self, group: Option<u8>) -> Option<u32> {
        self.in_order(group).next()
    }

    /// Flows that have something to send, of this group if one is named, in the order in which they
    /// may.
    fn in_order(&self, group: Option<u8>) -> impl Iterator<Item = u32> + '_ {
        let is_in = move |id: &u32| self.table.get(id).is_some_and(|flow| Some(flow.send.group) == group);
        self.order.iter().filter(move |id| group.is_none() || is_in(id))
    }

    /// Tells the readers of a group's flows that there may be something to read, now that another
    /// mechanism keeps the order.
    pub fn tell_readers(&mut self, group: u8, events: &mut VecDeque<Event>) {
        for (id, flow) in &mut self.table {
            if flow.receive.group == group && flow.receive.holds_anything() {
                flow.receive.tell_reader(*id, events);
            }
        }
    }

    /// True if another flow of this group has something to send, too.
    pub fn others_want_to_send(&self, id: u32, group: u8) -> bool {
        self.only_to_send() != Some(id) && self.in_order(Some(group)).any(|other| other != id)
    }

    /// The flow that has something to send, if it is one alone.
    pub fn only_to_send(&self) -> Option<u32> {
        self.order.only()
    }

    /// Bytes that are to be sent and to be repeated, if they are less than `most`.
    pub fn waiting_bytes(&self, most: u64) -> u64 {
        let mut bytes = 0;
        for id in self.order.iter() {
            bytes += self.get(id).map_or(0, |flow| flow.send.buffer.waiting_bytes(most));
            if bytes >= most {
                return most;
            }
        }
        bytes
    }

    /// Number of flows that have something to send.
    pub fn senders(&self) -> usize {
        self.order.len()
    }

    pub fn wants_to_send(&self) -> bool {
        !self.order.is_empty()
    }

    /// Drops a flow both halves of which are done (F-11); grants the peer another one if it was the
    /// peer's.
    pub fn drop_if_done(&mut self, id: u32) {
        let Some(flow) = self.table.get_mut(&id) else { return };
        let is_unread = flow.receive.has_expedited();
        // flow.md R-35: how far its sender has got counts for ever.
        let is_counted = !self.incoming.is_said || flow.receive.is_final();
        let is_over = flow.send.is_done && flow.receive.is_done && flow.receive.stop.is_none();
        if !is_over || is_unread || !is_counted {
            return;
        }
        self.incoming.end(&mut flow.receive);
        self.outgoing.end(&mut flow.send);
        self.order.leave((id, flow.send.priority), &mut flow.send.turn);
        if let Some(at) = flow.alarm {
            self.relist_alarm(id, Some(at), None);
        }
        self.table.remove(&id);
        for signal in [Signal::Credit(id), Signal::Skip(id)] {
            self.signals.remove(&signal);
        }
        self.gone[(id & 1) as usize].insert_one(u64::from(id / 2));
        if !self.side().opens(id) {
            self.peers_gone += 1;
            // F-5: said for a quarter of what the peer may still open, not for each flow, unless it
            // may open next to none.
            let limit = self.peers_gone.saturating_add(self.config.flows_max);
            let left = self.accepted_max.saturating_sub(self.peers_opened);
            if limit >= self.accepted_max.saturating_add((left / 4).max(1)) {
                self.accepted_max = limit;
                // F-14: a rate counts what is said (flow.md R-11).
                self.limit_rides = !self.limit_rides && !self.is_rated && left > self.config.flows_max / 2;
                if !self.limit_rides {
                    self.say_limit();
                }
            }
        }
    }

    /// The next packet says how many flows the peer may open.
    fn say_limit(&mut self) {
        self.limit_rides = false;
        self.signals.insert(Signal::FlowLimit);
    }

    /// Gives back memory that nothing is in.
    pub fn shrink(&mut self) {
        self.accepted.shrink_to_fit();
        // A tree that has become empty keeps a node.
        if self.table.is_empty() {
            self.table = BTreeMap::new();
        }
        self.order.shrink();
        self.alarms.take_if(|alarms| alarms.is_empty());
        if self.signals.is_empty() {
            self.signals = BTreeSet::new();
        }
        self.gone.iter_mut().for_each(RangeSet::shrink);
        for flow in self.table.values_mut() {
            flow.send.buffer.shrink();
            flow.receive.data.shrink();
            self.incoming.note(&mut flow.receive);
        }
        self.incoming.shrink();
    }

    /// True if something has arrived that the application has not taken.
    pub fn has_unread(&self) -> bool {
        let is_unread =
            |r: &ReceiveHalf| r.has_expedited() || !r.is_done && (r.holds_anything() || r.data.is_complete());
        !self.accepted.is_empty() || self.table.values().any(|flow| is_unread(&flow.receive))
    }

    pub fn heap_bytes(&self) -> usize {
        let flows: usize = self
            .table
            .values()
            .map(|f| size_of::<Flow>() + 16 + f.send.heap_bytes() + f.receive.heap_bytes())
            .sum();
        flows
            + self.alarms.as_ref().map_or(0, |alarms| size_of_val(&**alarms) + alarms.len() * 32)
            + self.order.heap_bytes()
            + self.incoming.heap_bytes()
            + self.gone.iter().map(RangeSet::heap_bytes).sum::<usize>()
    }
}

/// The priority of a flow unless another is given.
pub const DEFAULT_PRIORITY: u8 = 100;

#[cfg(test)]
mod tests;
