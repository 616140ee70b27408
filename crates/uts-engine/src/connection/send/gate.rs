//! Limits of what flows may send: the peer's credit, and what a flow-control mechanism makes of
//! what is outstanding.

use crate::connection::Outbound;
use crate::connection::flows::halves::SendHalf;
use crate::synthesis::SendStack;
use uts_functions::Time;
use uts_functions::flow::{self, Allowed, FlowControl as _, Outstanding};

/// Bytes of a full packet that are not data, about.
pub(in crate::connection) const AROUND_BYTES: u64 = 60;

/// Limit of what the flows of a group may send.
#[derive(Clone, Copy)]
pub(in crate::connection) struct Gate<'a> {
    flow: &'a flow::Slot,
    /// The mechanism looks at what is outstanding.
    pub windows: bool,
    /// When what is held back now has waited for long enough.
    release_at: Time,
    packet_bytes: u64,
}

impl Outbound {
    /// Limit of what flows under a stack may send. `now` = the instant at which a packet leaves;
    /// `Time::ZERO` = none does.
    #[inline]
    pub fn gate<'a>(&self, stack: &'a SendStack, now: Time) -> Gate<'a> {
        let windows = stack.windows;
        let release_at = if windows {
            self.ledger.last_eliciting_at().max(now) + self.probe_timeout()
        } else {
            Time::NEVER
        };
        let packet_bytes = u64::from(self.full_bytes).saturating_sub(AROUND_BYTES).max(1);
        Gate { flow: &stack.flow, windows, release_at, packet_bytes }
    }
}

impl Outbound {
    /// Limit of what the flows of a group may send while no packet leaves; `None` if it has no
    /// epoch yet.
    #[inline]
    pub fn gate_of(&self, group: u8) -> Option<Gate<'_>> {
        Some(self.gate(self.stack(group)?, Time::ZERO))
    }
}

impl Gate<'_> {
    /// The position up to which the peer lets a flow send; `u64::MAX` where it has no say.
    #[inline]
    pub fn credit(&self, send: &SendHalf) -> u64 {
        self.flow.send_limit(send.limit)
    }

    /// The position up to which a flow may send.
    #[inline]
    pub fn limit(&self, send: &mut SendHalf) -> u64 {
        let limit = send.behind_expedited(self.credit(send));
        if self.windows { self.window(send, limit) } else { limit }
    }

    /// The same, where nothing outstanding has a say in it.
    #[cfg(debug_assertions)]
    pub fn fixed_limit(&self, send: &SendHalf) -> Option<u64> {
        (!self.windows).then(|| send.behind_expedited(self.credit(send)))
    }

    #[cold]
    fn window(&self, send: &mut SendHalf, limit: u64) -> u64 {
        let fixed = Outstanding {
            done_to: send.buffer.done_to(),
            sent_to: send.buffer.sent(),
            written_to: send.buffer.written(),
            packets: 0,
            in_group: 0,
            packet_bytes: self.packet_bytes,
            window_max: 0,
        };
        let sending = &mut send.rare.get_or_insert_default().sending;
        let flow = sending.outstanding(limit, fixed);
        // flow.md R-12
        let (is_held, to) = match self.flow.allows(limit, &flow) {
            Allowed::Hold if !sending.is_released => (true, flow.sent_to),
            Allowed::Hold => (false, limit),
            Allowed::To(to) => (false, to.min(limit)),
        };
        // flow.md R-13: the peer's window is shut, and nothing outstanding would bring news.
        let is_shut = limit <= flow.sent_to && flow.done_to >= flow.sent_to;
        let waits = flow.written_to > flow.sent_to && (is_held || is_shut);
        sending.release_at = waits.then(|| sending.release_at.unwrap_or(self.release_at));
        to
    }

    /// Data left that was not sent before.
    #[inline]
    pub fn on_sent(&self, send: &mut SendHalf) {
        if self.windows {
            let end = send.buffer.sent();
            send.rare.get_or_insert_default().sending.on_sent(end);
        }
    }
}

impl SendHalf {
    /// Releases what was held back for long enough: it goes, or the peer is asked whether its
    /// window is still shut (flow.md R-13). Says whether the peer is to be asked.
    pub fn release(&mut self, now: Time, again_at: Time) -> bool {
        let (limit, sent_to) = (self.limit, self.buffer.sent());
        let Some(rare) = &mut self.rare else { return false };
        if rare.sending.release_at.is_none_or(|at| at > now) {
            return false;
        }
        rare.sending.is_released = limit > sent_to;
        rare.sending.release_at = Some(again_at).filter(|_| limit <= sent_to);
        limit <= sent_to
    }
}
