//! Tagged buffers: memory that an application has named before data comes, and in which the bytes
//! of a flow are placed as they arrive, in whatever order (flows.md F-15; direct data placement,
//! RFC 5041). Between the packet, which is opened where it lies, and the memory there is one copy.

use super::halves::ReceiveHalf;
use crate::connection::Ways;
use crate::connection::parts::Signal;
use crate::connection::stage::Open;
use crate::event::FlowId;
use core::fmt;
use uts_functions::Time;
use uts_functions::sequencing::reassembly::SegmentError;
use uts_wire::frame::Data;

/// Memory in which bytes of a flow are placed. It is dropped once the flow brings no more for it:
/// its end was read, or it was reset or stopped, or its connection is gone.
pub trait Memory: fmt::Debug + Send {
    /// Its size in bytes.
    fn bytes(&self) -> usize;
    /// Places bytes, `at` bytes behind its begin. Each byte comes once, and none beyond its end.
    /// `was_held` = they came before the flow had this memory, so that this copies them anew.
    fn place(&mut self, at: usize, bytes: &[u8], was_held: bool);
}

/// Finds the memory for what a flow begins with, under the lock of the endpoint: it is to be quick.
pub trait FindMemory: fmt::Debug + Send {
    /// A flow of the peer's begins with these bytes. Gives the position from which on its bytes are
    /// placed, and where; `None` if the flow is one like others.
    fn find(&mut self, id: FlowId, begin: &[u8]) -> Option<(u64, Box<dyn Memory>)>;
}

/// The memory of a flow, and the position of the first byte that is placed in it.
#[derive(Debug)]
pub(crate) struct Tagged {
    from: u64,
    memory: Box<dyn Memory>,
}

impl Tagged {
    /// The first position behind it, as far as positions go.
    fn end(&self) -> u64 {
        self.from.saturating_add(self.memory.bytes() as u64)
    }

    fn put(&mut self, position: u64, bytes: &[u8], was_held: bool) {
        self.memory.place(position.saturating_sub(self.from) as usize, bytes, was_held);
    }
}

impl ReceiveHalf {
    /// Places the bytes of a frame if they are the next, and all of them have their place.
    pub(super) fn append_tagged(&mut self, start: u64, bytes: &[u8], limit: u64) -> bool {
        let Some(tagged) = &mut self.tagged else { return false };
        let is_within = tagged.from <= start && start.saturating_add(bytes.len() as u64) <= tagged.end();
        is_within && self.data.append_placed(start, bytes, limit, |bytes| tagged.put(start, bytes, false))
    }

    /// Takes in the bytes of a frame: those that have a place are placed, the others are held. Says
    /// how many positions were new; `None` if the flow has no memory.
    pub fn insert_tagged(
        &mut self,
        start: u64,
        data: &Data<'_>,
        limit: u64,
    ) -> Option<Result<u64, SegmentError>> {
        use uts_functions::sequencing::reassembly::Segment;
        // What has the form of a presentation mechanism is not what is meant.
        let tagged = self.tagged.as_mut().filter(|_| !data.flags.message && !data.flags.presented)?;
        let (bytes, fin) = (data.bytes, data.flags.fin);
        let end = start.saturating_add(bytes.len() as u64);
        let (a, b) = (tagged.from.clamp(start, end), tagged.end().clamp(start, end));
        let cut = |from: u64, to: u64| &bytes[(from - start) as usize..(to - start) as usize];
        let held = |from: u64, to: u64, fin: bool| Segment {
            start: from,
            data: bytes::Bytes::copy_from_slice(cut(from, to)),
            message: false,
            presented: false,
            begin: false,
            end: false,
            fin,
        };
        // The end of the frame is looked at first: nothing of one that is refused is placed.
        if let Err(error) = self.data.admit(start..end, fin, limit) {
            return Some(Err(error));
        }
        let mut taken = || {
            let mut new = 0;
            if a > start {
                new += self.data.insert(held(start, a, false), limit)?;
            }
            let put = |at: u64, bytes: &[u8]| tagged.put(at, bytes, false);
            new += self.data.insert_placed(a, cut(a, b), fin && b == end, limit, put)?;
            if b < end {
                new += self.data.insert(held(b, end, fin), limit)?;
            }
            Ok(new)
        };
        Some(taken())
    }

    /// True if an arrival is nothing that the application is told of: the bytes have their place,
    /// and more are to come.
    pub(super) fn is_placed_silently(&self) -> bool {
        self.tagged.is_some()
            && !self.data.holds_anything()
            && !self.data.is_complete()
            && self.due_reset().is_none()
    }

    fn tag(&mut self, from: u64, memory: Box<dyn Memory>) {
        let mut tagged = Tagged { from, memory };
        self.data.place_held(from..tagged.end(), |at, bytes| tagged.put(at, bytes, true));
        self.tagged = Some(Box::new(tagged));
    }
}

impl Ways {
    /// Data has come that may be the first of a flow: looks whether there is memory for it.
    pub(in crate::connection) fn find_memory(&mut self, data: &Data<'_>) {
        let is_first = data.offset.unwrap_or(0) == 0 && !data.bytes.is_empty() && !data.flags.message;
        if !is_first || !self.flows.is_peers(data.flow) {
            return;
        }
        let finder = self.rare.as_mut().and_then(|rare| rare.finder.take());
        let Some(mut finder) = finder else { return };
        if let Some(receive) = self.flows.get_mut(data.flow).map(|flow| &mut flow.receive)
            && receive.tagged.is_none()
            && receive.data.contiguous() == 0
            && let Some((from, memory)) = finder.find(FlowId(data.flow), data.bytes)
        {
            receive.tag(from, memory);
            self.grant_memory(data.flow);
        }
        self.rare.get_or_insert_default().finder = Some(finder);
    }

    /// Grants all positions of a flow that have memory of their own, at once: they wait for nothing
    /// that is consumed.
    fn grant_memory(&mut self, id: u32) {
        let Some(receive) = self.flows.get_mut(id).map(|flow| &mut flow.receive) else { return };
        // F-6: the end of the flow takes a position as well.
        let limit = receive.tagged.as_ref().map_or(0, |tagged| tagged.end().saturating_add(1));
        let needs_none = receive.is_placed && !receive.is_credited();
        // flow.md R-10: a rate bounds what is granted, whatever there is memory for.
        if needs_none || self.receive_rate.is_some() || limit <= receive.grant.limit {
            return;
        }
        // flow.md R-40
        receive.grant.limit = limit;
        self.flows.signals.insert(Signal::Credit(id));
    }

    /// Bytes of a flow have been placed: they count as handed over, so that credit may be due.
    pub(in crate::connection) fn consumed_if_tagged(&mut self, now: Time, id: u32) {
        if self.flows.get(id).is_some_and(|flow| flow.receive.tagged.is_some()) {
            self.consumed(now, id);
        }
    }
}

impl Open {
    pub(in crate::connection) fn place_in(
        &mut self,
        now: Time,
        id: FlowId,
        from: u64,
        memory: Box<dyn Memory>,
    ) -> bool {
        let receive = self.ways.flows.get_mut(id.0).map(|flow| &mut flow.receive);
        let Some(receive) = receive.filter(|receive| !receive.is_done && receive.tagged.is_none()) else {
            return false;
        };
        receive.tag(from, memory);
        self.ways.grant_memory(id.0);
        self.ways.consumed(now, id.0);
        true
    }
}
