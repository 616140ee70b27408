//! Envelopes: packets of an epoch that the peer reads, with the request for a profile and a packet
//! that is built under it (exchange.md X-33).

use crate::connection::Outbound;
use crate::connection::parts::has_repair;
use crate::exchange::Carried;
use crate::synthesis::SendStack;
use uts_functions::detection::Detection as _;
use uts_functions::numbering::to_wire;
use uts_functions::protection::Protection as _;
use uts_functions::retransmission::ledger::Sent;
use uts_functions::{Numbering, Profile, Time};
use uts_wire::ConnectionId;
use uts_wire::frame::{self, Frame};
use uts_wire::packet::AdaptiveMark;

/// An envelope, as all packets of an epoch have it.
#[derive(Debug)]
pub(crate) struct Envelope {
    /// The epoch of what is in it.
    pub epoch: u32,
    /// The epoch under which it is sealed.
    outer: u32,
    /// A packet is to leave in it, if only to be acknowledged: none is known to be under way.
    pub is_due: bool,
    /// The epoch that the group goes back to if the profile is refused.
    before: u32,
    /// The frame, up to the packet.
    head: Vec<u8>,
}

impl Envelope {
    /// For packets from the number `first` on, as an end with these numbers writes it; `None` if
    /// there is nothing to seal it with.
    pub fn new(carried: &Carried<Profile>, first: u64, own: Option<&Numbering>) -> Option<Self> {
        let outer = carried.using[0]?;
        let before = carried.using.get(usize::from(carried.group)).copied().flatten()?;
        let Carried { epoch, group, using, .. } = *carried;
        let profile = Box::new(to_wire(&carried.profile, own));
        let mut head = Vec::new();
        Frame::UsePf(frame::UsePf { group, epoch, first, using, profile, packet: &[] }).emit(&mut head);
        Some(Envelope { epoch, outer, is_due: true, before, head })
    }

    /// Says whether the stack of an epoch is needed while packets travel so.
    pub fn needs(&self, epoch: u32) -> bool {
        epoch == self.outer || epoch == self.before
    }

    pub fn heap_bytes(&self) -> usize {
        self.head.capacity()
    }
}

impl Outbound {
    /// The stack that seals the envelope of packets under a stack, if they travel in one.
    pub fn outer_stack(&self, stack: &SendStack) -> Option<&SendStack> {
        let envelope = self.envelope.as_ref().filter(|envelope| envelope.epoch == stack.epoch)?;
        self.stacks.iter().find(|stack| stack.epoch == envelope.outer)
    }

    /// Index of the stack of which a packet is to leave in an envelope before all others.
    pub fn due_stack_index(&self) -> Option<usize> {
        let envelope = self.envelope.as_ref().filter(|envelope| envelope.is_due)?;
        self.stacks.iter().position(|stack| stack.epoch == envelope.epoch)
    }

    /// Index of the stack under which a packet leaves that needs no certain one, without an
    /// envelope.
    pub fn plain_stack_index(&self) -> Option<usize> {
        let index = self.stack_index(0)?;
        let outer = self.stacks.get(index).and_then(|stack| self.outer_stack(stack));
        outer.map_or(Some(index), |outer| self.stacks.iter().position(|stack| stack.epoch == outer.epoch))
    }

    /// Begins the envelope of a packet under `stack`, if it travels in one. Says where it is, and
    /// how many bytes it has behind the packet.
    pub fn begin_envelope(
        &self,
        stack: &SendStack,
        dcid: ConnectionId,
        number: u64,
        out: &mut Vec<u8>,
    ) -> Option<(AdaptiveMark, usize)> {
        let (envelope, outer) = (self.envelope.as_ref()?, self.outer_stack(stack)?);
        let tail = outer.detection.trailer_bytes() + outer.protection.as_ref()?.tag_bytes();
        // The number is that of the packet: under these keys it is sealed nowhere else.
        let mark = self.emit_header(outer, dcid, number, out);
        out.extend_from_slice(&envelope.head);
        Some((mark, tail))
    }

    /// Puts the epoch to use again that the envelope's packets have replaced, and takes out what
    /// was built under the other, in the order of its numbers.
    pub fn go_back(&mut self, now: Time, packet_bytes: u64) -> Vec<(u64, Sent<super::super::parts::Token>)> {
        let Some(envelope) = self.envelope.take() else { return Vec::new() };
        let at = |outbound: &Self, epoch: u32| outbound.stacks.iter().position(|s| s.epoch == epoch);
        let (Some(refused), Some(before)) = (at(self, envelope.epoch), at(self, envelope.before)) else {
            crate::bug::bug!("an epoch that packets travel in is gone before they arrive");
            return Vec::new();
        };
        let (group, profile) = (self.stacks[before].group, *self.stacks[before].profile);
        let old = *self.stacks[refused].profile;
        self.stacks.remove(refused);
        if group == 0 {
            self.replace_shared(now, (&old, &profile), packet_bytes, u64::from(envelope.epoch));
        }
        self.set_departure();
        let taken = self.ledger.take_epoch(envelope.epoch);
        for (number, sent) in taken.iter().filter(|(_, sent)| sent.eliciting) {
            self.delivery.forget(sent.bytes);
            self.meter.on_lost_uncounted(*number);
        }
        self.drop_idle_stacks();
        taken
    }

    /// Says whether packets that were built under an epoch may be under way, or are still to leave.
    pub fn is_under_way(&self, epoch: u32) -> bool {
        self.ledger.has_of_epoch(epoch) || self.stacks.iter().any(|s| s.epoch == epoch && has_repair(s))
    }
}
