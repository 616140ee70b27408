//! Turns in sending: which flows have something to send, and which of them is next.

use super::Flows;
use super::halves::{Flow, SendHalf};

impl Flows {
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
    pub(super) fn leave_but_repeats(&mut self) {
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
    pub(super) fn in_order(&self, group: Option<u8>) -> impl Iterator<Item = u32> + '_ {
        let is_in = move |id: &u32| self.table.get(id).is_some_and(|flow| Some(flow.send.group) == group);
        self.order.iter().filter(move |id| group.is_none() || is_in(id))
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
}
