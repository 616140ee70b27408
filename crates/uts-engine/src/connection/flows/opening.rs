//! Flows come and go: which end opens them, how many there may be, and when they are dropped.

use super::Flows;
use super::halves::{Flow, ReceiveHalf, SendHalf};
use super::incoming::Counted;
use super::order::Turn;
use crate::connection::CloseReason;
use crate::connection::parts::Signal;
use crate::event::FlowId;
use uts_functions::Time;
use uts_functions::flow::{FlowControl as _, Grant};
use uts_functions::segmentation::buffer::SendBuffer;
use uts_functions::sequencing::reassembly::Reassembly;

/// The priority of a flow unless another is given.
pub const DEFAULT_PRIORITY: u8 = 100;

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
    pub(super) fn say_limit(&mut self) {
        self.limit_rides = false;
        self.signals.insert(Signal::FlowLimit);
    }
}
