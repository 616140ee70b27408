//! Bounds what the peer may make this end hold: the credit of the connection (flow.md R-33 to
//! R-38), and the memory of all that has arrived and was not read.

use crate::connection::flows::halves::{Flow, ReceiveHalf};
use crate::endpoint::budget::Share;
use core::time::Duration;
use uts_functions::Time;
use uts_functions::flow::Grant;
use uts_functions::flow::credit::Tuning;
use uts_functions::sequencing::reassembly::PIECE_MEMORY_BYTES;

/// Memory of an open flow in which nothing is: its two halves, and its place in the table.
pub(crate) const FLOW_BYTES: usize = size_of::<Flow>() + 64;

/// Of memory, what others may take than data which follows on all that has arrived: what lies
/// behind that can be read only with it.
const fn but_for_edge(bytes: usize) -> usize {
    bytes - bytes / 8
}

/// Memory set aside for what was granted and has not come: for four bytes five, so that packets of
/// usual size can be kept track of.
const fn set_aside(positions: u64) -> u64 {
    positions.saturating_add(positions / 4)
}

/// Of memory for what is received, what may be promised: the rest is for what it takes to keep
/// flows.
pub(crate) const fn but_for_flows(bytes: usize) -> usize {
    bytes - bytes / 4
}

/// The flows of the peer together.
#[derive(Debug)]
pub(crate) struct Incoming {
    share: Share,
    /// Both ends count, and the peer has to keep to the limit.
    pub is_bounded: bool,
    /// Both ends count: the limit is said.
    pub is_said: bool,
    /// Limit, what was consumed, and window of all flows together.
    grant: Grant,
    /// While something is received.
    tuning: Option<Box<Tuning>>,
    /// Sum of the positions that all flows have reached, flows that are gone included.
    received: u64,
    /// Memory that flows take, and of that what is data.
    charge: usize,
    held: u64,
    /// Memory of what redundancy is made good with: packets that have come, and sums.
    redundancy: usize,
}

/// Counts of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    /// Position that it has reached.
    received: u64,
    /// Positions of these that are consumed, and of them those that the application has not taken.
    consumed: u64,
    given_up: u64,
    /// Its memory, and of that what is data.
    pub charge: usize,
    held: u64,
}

impl Incoming {
    /// At the beginning of a connection, of which the peer was told this credit.
    pub fn new(mut share: Share, first: u64) -> Self {
        let window = usize::try_from(set_aside(first)).unwrap_or(usize::MAX);
        share.hold(window);
        Incoming {
            share,
            is_bounded: false,
            is_said: false,
            grant: Grant::new(Time::ZERO, first, u64::MAX),
            tuning: None,
            received: 0,
            charge: 0,
            held: 0,
            redundancy: 0,
        }
    }

    /// The credit that the peer was told of.
    pub fn limit(&self) -> u64 {
        self.grant.limit
    }

    /// Memory that flows and redundancy take, in bytes.
    pub fn charge(&self) -> usize {
        self.charge.saturating_add(self.redundancy)
    }

    /// Memory that flows take, in bytes.
    #[cfg(debug_assertions)]
    pub fn charge_of_flows(&self) -> usize {
        self.charge
    }

    /// True if there is room for so many bytes that redundancy may need. Flows go before.
    pub fn has_room_for_redundancy(&self, bytes: usize) -> bool {
        let need = self.need().saturating_add(bytes);
        need <= but_for_edge(self.share.room())
    }

    /// Redundancy takes so many bytes now.
    pub fn note_redundancy(&mut self, bytes: usize) {
        if bytes != self.redundancy {
            self.redundancy = bytes;
            self.settle();
        }
    }

    /// True if the peer has sent more than it was granted.
    pub fn is_exceeded(&self) -> bool {
        self.is_bounded && self.received > self.grant.limit
    }

    /// Positions that were granted and have not come.
    #[inline]
    fn promised(&self) -> u64 {
        if self.is_said { self.grant.limit.saturating_sub(self.received) } else { 0 }
    }

    /// Positions that were granted and are not here: they have not come, or were lost.
    #[inline]
    fn awaited(&self) -> u64 {
        let window = self.grant.limit.saturating_sub(self.grant.consumed);
        if self.is_said { window.saturating_sub(self.held) } else { 0 }
    }

    /// Memory that is held and promised, in bytes.
    #[inline]
    fn need(&self) -> usize {
        self.charge().saturating_add(set_aside(self.awaited()) as usize)
    }

    /// True if so many bytes of data can be taken in that follow on others, with no question asked.
    #[inline]
    pub fn takes(&self, bytes: u64) -> bool {
        if self.is_bounded {
            // Its memory is set aside.
            self.received.saturating_add(bytes) <= self.grant.limit
        } else {
            self.need().saturating_add(bytes as usize) <= self.share.room()
        }
    }

    /// True if there is room for so many bytes of data, and so many to keep track of them. Such as
    /// follow on all that has arrived find room the longest.
    pub fn has_room(&self, data_bytes: u64, around: usize, is_edge: bool) -> bool {
        let kept = set_aside(data_bytes.min(self.awaited())) as usize;
        let more = (data_bytes as usize).saturating_add(around);
        // What was granted has its memory, whatever others have got since.
        if more <= kept {
            return true;
        }
        // So has the least, whatever was granted besides.
        let (room, least) = (self.share.room(), self.share.least());
        let held = self.charge.saturating_add(more);
        let need = self.need().saturating_sub(kept).saturating_add(more);
        if is_edge {
            // With it the application can read, and what it reads is free.
            held <= least || need <= room.max(self.share.held()).saturating_add(least / 2)
        } else {
            held <= but_for_edge(least) || need <= but_for_edge(room)
        }
    }

    /// Gives back what a connection at rest does not need.
    pub fn shrink(&mut self) {
        self.tuning = None;
        self.settle();
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.tuning.as_ref().map_or(0, |tuning| size_of_val(&**tuning))
    }

    /// Notes how a flow stands.
    #[inline]
    pub fn note(&mut self, receive: &mut ReceiveHalf) {
        let now = receive.counts();
        self.replace(receive.counted, now);
        receive.counted = now;
    }

    /// Notes that data of a flow, of which its peer has to keep to the limit, has come up to a
    /// position. [`Incoming::note`] has to follow before anything else is asked.
    #[inline]
    pub fn note_reached(&mut self, receive: &mut ReceiveHalf, end: u64) {
        let new = end.saturating_sub(receive.counted.received);
        receive.counted.received += new;
        self.received = self.received.saturating_add(new);
    }

    #[inline]
    fn replace(&mut self, before: Counted, now: Counted) {
        // Each only grows, but for the memory. What a peer skips may be very much.
        let more = |sum: u64, before: u64, now: u64| sum.saturating_add(now.saturating_sub(before));
        self.received = more(self.received, before.received, now.received);
        self.grant.consumed = more(self.grant.consumed, before.consumed, now.consumed);
        self.grant.given_up = more(self.grant.given_up, before.given_up, now.given_up);
        self.charge = (self.charge + now.charge).saturating_sub(before.charge);
        self.held = (self.held + now.held).saturating_sub(before.held);
    }

    /// Both ends count. The peer has to keep to the limit, if its first profile `grants`.
    pub fn begin(&mut self, grants: bool) {
        (self.is_said, self.is_bounded) = (true, grants);
    }

    /// Data may come under a mechanism that grants nothing: from now on the limit binds nobody
    /// (flow.md R-36).
    pub fn release(&mut self) {
        self.is_bounded = false;
    }

    /// A flow is gone: what it has got stays counted.
    pub fn end(&mut self, receive: &mut ReceiveHalf) {
        self.note(receive);
        let last = receive.counted;
        self.replace(last, Counted { charge: 0, held: 0, ..last });
    }

    /// Draws what is held from the endpoint's memory, and gives back what is not. What data that
    /// lets the application read takes beyond the room for it is not drawn: it would be room for
    /// more.
    pub fn settle(&mut self) {
        let most = self.share.room().max(self.share.held());
        self.share.hold(self.need().min(most));
    }

    /// Data was consumed: says whether the peer is to be told another limit (flow.md ).
    pub fn on_consumed(&mut self, now: Time, rtt: Duration) -> bool {
        if !self.is_said {
            self.settle();
            return false;
        }
        self.bound_window();
        self.tuning.get_or_insert_default().tune(&mut self.grant, now, rtt);
        self.grant_again()
    }

    /// True if flows take so much that little may be granted.
    pub fn is_tight(&self) -> bool {
        self.is_said && self.charge > self.share.room() / 2
    }

    /// Positions that may be granted beyond what has come: memory for them is set aside, and some
    /// is left for flows that are opened.
    fn grantable(&self) -> u64 {
        but_for_flows(self.share.room()).saturating_sub(self.charge()) as u64 / 5 * 4
    }

    /// Positions that may be granted if nothing has come.
    pub fn grantable_max(&self) -> u64 {
        but_for_flows(self.share.room()) as u64 / 5 * 4
    }

    /// The window is at most what there is memory for.
    fn bound_window(&mut self) {
        // The window is what was granted and not consumed: what is held of it has its memory.
        self.grant.window_bytes_max = self.held.saturating_add(self.grantable());
    }

    /// Grants what the window allows. Says whether there is a new limit.
    pub fn grant_again(&mut self) -> bool {
        if !self.is_said {
            return false;
        }
        self.bound_window();
        // A window that memory cuts short is wide again when there is some.
        let reach = self.grant.window_bytes.min(self.grant.window_bytes_max);
        let is_new = self.raise(reach, reach / 4);
        self.settle();
        is_new
    }

    /// Grants so much beyond what was consumed, if that is at least `step` more than was granted.
    fn raise(&mut self, window: u64, step: u64) -> bool {
        let limit = self.grant.consumed.saturating_add(window);
        let is_new = limit > self.grant.limit && limit - self.grant.limit >= step;
        if is_new {
            self.grant.limit = limit;
        }
        is_new
    }

    /// True if less than a quarter of the window is left.
    #[inline]
    fn is_short(&self) -> bool {
        self.is_said && self.promised() < self.grant.window_bytes / 4
    }

    /// True if the peer will soon have to wait, and nothing that is consumed brings more.
    #[inline]
    pub fn holds_up(&self) -> bool {
        self.is_bounded && self.is_short()
    }

    /// A message that nobody can read before it is whole takes nearly all of the credit: grants
    /// more, if there is memory (flow.md R-38). Says whether there is a new limit.
    pub fn widen(&mut self) -> bool {
        self.is_short() && self.raise_beyond_held(self.held)
    }

    /// Data that nobody has read takes nearly all of the credit: leaves a window for other flows,
    /// if there is memory (flow.md R-38). Says whether there is a new limit.
    pub fn leave_window(&mut self) -> bool {
        self.raise_beyond_held(self.grant.window_bytes)
    }

    /// Grants so much beyond what is held, if there is memory.
    fn raise_beyond_held(&mut self, more: u64) -> bool {
        let more = more.min(self.grantable());
        let is_new = self.raise(self.held.saturating_add(more), 1);
        self.settle();
        is_new
    }
}

impl ReceiveHalf {
    /// Present counts of it.
    #[inline]
    fn counts(&self) -> Counted {
        let before = self.counted;
        let (charge, held) = (self.memory_bytes(), self.data.held_bytes() as u64);
        // flow.md R-35: who has ended counts with all that was sent.
        let received = before.received.max(self.data.reached()).max(self.final_sent.unwrap_or(0));
        let consumed = before.consumed.max(self.data.consumed().min(received));
        let given_up = before.given_up.max(self.data.given_up());
        if self.is_done {
            // Nobody takes the rest.
            let given_up = given_up.saturating_add(received - consumed);
            return Counted { received, consumed: received, given_up, charge, held };
        }
        Counted { received, consumed, given_up, charge, held }
    }

    /// Memory of it, in bytes.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        FLOW_BYTES + self.data.memory_bytes() + self.playing_bytes()
    }

    /// True if all that will ever be sent of it is known.
    pub fn is_final(&self) -> bool {
        self.is_final_known || self.data.end_position().is_some() || self.due_reset().is_some()
    }

    /// Its end is at this position.
    pub fn end_at(&mut self, end: u64) {
        self.is_final_known = true;
        self.final_sent = Some(self.final_sent.unwrap_or(0).max(end));
    }
}

/// Memory to keep track of data that does not follow on what is there, in bytes.
pub(crate) const AROUND_BYTES: usize = PIECE_MEMORY_BYTES;
