//! Flows: sequences of messages or bytes inside a connection, each way with a profile of its own.

pub(in crate::connection) mod application;
pub(in crate::connection) mod batch;
mod door;
mod expedited;
pub(in crate::connection) mod halves;
pub(in crate::connection) mod incoming;
pub(in crate::connection) mod interface;
mod opening;
mod order;
pub(in crate::connection) mod outgoing;
mod playing;
pub(in crate::connection) mod tagged;
mod turns;

pub use self::opening::DEFAULT_PRIORITY;
pub(in crate::connection) use self::opening::violation;

use self::incoming::Incoming;
use self::order::Order;
use self::outgoing::Outgoing;
use crate::config::ConnectionConfig;
use crate::connection::flows::halves::{Flow, ReceiveHalf};
use crate::connection::parts::Signal;
use crate::endpoint::budget::Stores;
use crate::event::Event;
use crate::requirements::Scheduler;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use uts_functions::flow::{self, FlowControl as _};
use uts_functions::sequencing::reassembly::Spares;
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

    /// Tells the readers of a group's flows that there may be something to read, now that another
    /// mechanism keeps the order.
    pub fn tell_readers(&mut self, group: u8, events: &mut VecDeque<Event>) {
        for (id, flow) in &mut self.table {
            if flow.receive.group == group && flow.receive.holds_anything() {
                flow.receive.tell_reader(*id, events);
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

#[cfg(test)]
mod tests;
