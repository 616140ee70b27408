//! Bounds what this end may send in all flows together (flow.md ), and what it holds of
//! what the application has written.

use crate::connection::flows::halves::SendHalf;
use crate::endpoint::budget::Share;
use core::time::Duration;
use uts_functions::Time;

/// A writer that waits for memory is told once there is so much, in bytes: a few packets.
const WORTH_WAKING_BYTES: usize = 8 * 1024;

/// Time after which a connection whose writers wait for memory looks again if there is some: other
/// connections give memory back, and do not know who waits.
const LOOKS_APART: Duration = Duration::from_millis(100);

/// The flows that this end sends, together.
#[derive(Debug)]
pub(crate) struct Outgoing {
    share: Share,
    /// Sum of the positions that they may reach together; `u64::MAX` = the peer does not say.
    limit: u64,
    /// Sum of the positions that they have reached, flows that are gone included.
    sent: u64,
    /// Memory of what was written.
    held: usize,
    /// When memory is looked for again, for writers that wait for it; `Time::NEVER` = none does.
    looks_at: Time,
}

impl Outgoing {
    /// At the beginning of a connection.
    pub fn new(share: Share) -> Self {
        Outgoing { share, limit: u64::MAX, sent: 0, held: 0, looks_at: Time::NEVER }
    }

    /// Both ends count, and the peer begins with this limit.
    pub fn begin(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Data is sent under a mechanism that grants nothing: from now on the limit has no meaning
    /// (flow.md R-36).
    pub fn release(&mut self) {
        self.limit = u64::MAX;
    }

    /// The peer says another limit. Says whether flows may have waited for it.
    pub fn on_limit(&mut self, limit: u64) -> bool {
        if self.limit == u64::MAX || limit <= self.limit {
            return false;
        }
        let has_waited = self.is_used_up();
        self.limit = limit;
        has_waited
    }

    /// Nothing new may be sent.
    pub fn is_used_up(&self) -> bool {
        self.sent >= self.limit
    }

    /// Rest of the limit.
    #[inline]
    pub fn spare(&self) -> u64 {
        self.limit.saturating_sub(self.sent)
    }

    /// Notes how a flow stands; says whether that has used up the limit.
    #[inline]
    pub fn note(&mut self, send: &mut SendHalf) -> bool {
        let held = send.buffer.memory_bytes();
        self.held = (self.held + held).saturating_sub(send.held);
        send.held = held;
        if send.is_given_up() {
            return false;
        }
        let reached = send.buffer.sent_data();
        let new = reached.saturating_sub(send.counted);
        if new == 0 {
            return false;
        }
        send.counted = reached;
        let before = self.is_used_up();
        self.sent += new;
        !before && self.is_used_up()
    }

    /// A flow is gone.
    pub fn end(&mut self, send: &mut SendHalf) {
        self.note(send);
        self.held = self.held.saturating_sub(core::mem::take(&mut send.held));
        self.settle();
    }

    /// Draws what is held from the endpoint's memory.
    #[inline]
    pub fn settle(&mut self) {
        self.share.hold(self.held);
    }

    /// Memory of what was written and is not acknowledged, in bytes.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Bytes that may be written beyond what is held.
    pub fn room(&self) -> usize {
        self.share.room().saturating_sub(self.held)
    }

    /// A writer waits for memory.
    pub fn wait_for_memory(&mut self) {
        if !self.has_waiting() {
            self.looks_at = Time::ZERO;
        }
    }

    /// Nobody waits for memory, as far as is known; says when it was to be looked for.
    pub fn forget_waiting(&mut self) -> Time {
        core::mem::replace(&mut self.looks_at, Time::NEVER)
    }

    /// Writers that wait for memory by now have it looked for at this instant.
    pub fn look_at(&mut self, at: Time) {
        if self.has_waiting() {
            self.looks_at = at;
        }
    }

    /// True if a writer waits for memory.
    pub fn has_waiting(&self) -> bool {
        self.looks_at != Time::NEVER
    }

    /// When memory is looked for again.
    pub fn looks_at(&self) -> Option<Time> {
        self.has_waiting().then_some(self.looks_at)
    }

    /// True if it is time to look for memory; the next time is a while later.
    pub fn looks(&mut self, now: Time) -> bool {
        let is_due = self.has_waiting() && self.looks_at <= now;
        if is_due {
            self.looks_at = now + LOOKS_APART;
        }
        is_due
    }

    /// True if writers that wait for memory are to be told that there is some.
    #[inline]
    pub fn wakes(&self) -> bool {
        self.has_waiting() && self.room() >= WORTH_WAKING_BYTES
    }
}

impl SendHalf {
    /// The position up to which the flow may send, if `spare` is left of the connection's credit.
    #[inline]
    pub fn within(&self, spare: u64) -> u64 {
        self.counted.saturating_add(spare)
    }
}
