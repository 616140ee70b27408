//! State of receiving: open epochs, and packets that arrived.

use crate::connection::receive::incoming::Ecn;
use crate::connection::receive::presentations::Presentations;
use crate::connection::secrets::SecretChain;
use crate::exchange::GROUPS_MAX;
use crate::synthesis::ReceiveStack;
use core::ops::Range;
use std::sync::Arc;
use uts_functions::acknowledgement::Arrivals;
use uts_functions::detection::{self, Detection, Verdict};
use uts_functions::playout::Clock;
use uts_functions::protection::Protection;
use uts_functions::rate::{self, RateControl as _, Watch};
use uts_functions::{Choice, Function, Profile, Time};
use uts_wire::ConnectionId;
use uts_wire::packet::{AdaptiveHeader, peek_epoch, sample, unmask};

pub(crate) struct Inbound {
    /// Open epochs, oldest first.
    pub stacks: Vec<ReceiveStack>,
    pub secrets: SecretChain,
    pub arrivals: Arrivals,
    /// Mechanisms that undo the presentation of a group's messages. Messages keep their form when
    /// the profile changes, so this outlives its epoch.
    presentations: Vec<Presentations>,
    /// The epoch whose flow control governs each group: the newest that the sender is known to use,
    /// or whose sender needs credit.
    pub flow_epochs: [u32; GROUPS_MAX],
    /// The epoch of the last packet, and whether it came in an envelope. Another such one is no
    /// news for the exchange of mechanisms.
    pub heard_of: Option<(u32, bool)>,
    /// The sender's clock, as it reads here, where messages say when they were made.
    pub clock: Option<Box<Clock>>,
    /// Meter of the rate of arrivals for the sender, if there is one, and the choice that it was
    /// built for.
    pub watch: Option<Box<(Choice, Box<dyn Watch>)>>,
}

/// A packet that is being taken in: when and how it came, and in which epoch it was built. What it
/// says may open epochs and close some, so that indices of stacks change meanwhile.
#[derive(Clone, Copy, Debug)]
pub(in crate::connection) struct Arrived {
    pub now: Time,
    /// Its mark by the network; `None` = unmarked, or recovered from redundancy.
    pub ecn: Option<Ecn>,
    pub epoch: u32,
    pub number: u64,
    /// It came in an envelope.
    pub is_enclosed: bool,
}

/// A packet that was opened.
pub(in crate::connection) struct Unsealed {
    /// Epoch in which it was built.
    pub epoch: u32,
    pub number: u64,
    /// Where its frames are.
    pub frames: Range<usize>,
    /// It came damaged, and the detection mechanism has put it right.
    pub repaired: bool,
    /// Number of right bytes of its frames, if it came damaged behind them, where its sender allows
    /// that.
    pub right_bytes: Option<usize>,
}

/// Why a packet was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::connection) enum Dropped {
    UnknownEpoch,
    Malformed,
    Forged,
    Duplicate,
}

impl Arrived {
    /// A packet that came by itself.
    pub fn of(now: Time, ecn: Option<Ecn>, epoch: u32, number: u64) -> Self {
        Arrived { now, ecn, epoch, number, is_enclosed: false }
    }
}

/// The stack of an open epoch, to be changed. See [`Inbound::stack`].
#[inline]
pub(super) fn stack_of(stacks: &mut [ReceiveStack], epoch: u32) -> Option<&mut ReceiveStack> {
    stacks.iter_mut().rev().find(|s| s.epoch == epoch)
}

impl Inbound {
    /// The direction's start. `None` if this library lacks a mechanism of the profile.
    pub fn new(profile: &Arc<Profile>, secrets: SecretChain) -> Option<Self> {
        let stack = ReceiveStack::new(0, 0, profile, &secrets.of(0)?)?;
        let mut inbound = Inbound {
            stacks: Vec::new(),
            secrets,
            arrivals: Arrivals::default(),
            presentations: Vec::new(),
            flow_epochs: [0; GROUPS_MAX],
            heard_of: None,
            clock: None,
            watch: None,
        };
        inbound.keep_presentation(&stack);
        inbound.stacks.push(stack);
        Some(inbound)
    }

    /// Notes how the stack's messages are read, unless they are sent as they are.
    fn keep_presentation(&mut self, stack: &ReceiveStack) {
        let Some(next) = Presentations::new(stack) else { return };
        match self.presentations.iter_mut().find(|known| known.group == next.group) {
            Some(known) => known.follow(next),
            None => self.presentations.push(next),
        }
    }

    /// Mechanisms that undo the presentation of a group's messages.
    pub fn presentation(&self, group: u8) -> Option<&Presentations> {
        self.presentations.iter().find(|presentations| presentations.group == group)
    }

    /// The sender has put this epoch to use: what measures its rate is what this epoch's profile
    /// says.
    pub fn follow_rate(&mut self, epoch: u32) {
        let Some(stack) = self.stacks.iter().find(|s| s.epoch == epoch && s.group == 0) else { return };
        let choice = stack.profile.get(Function::Rate);
        if self.watch.as_ref().is_none_or(|watch| watch.0 != *choice) {
            let watch = rate::Slot::build(choice, ()).and_then(|rate| rate.watch());
            self.watch = watch.map(|watch| Box::new((*choice, watch)));
        }
    }

    /// Opens an epoch. Says whether the library had everything.
    pub fn open(&mut self, epoch: u32, group: u8, profile: &Profile) -> bool {
        let shared = Arc::new(*profile);
        let Some(mut stack) =
            self.secrets.of(epoch).and_then(|s| ReceiveStack::new(epoch, group, &shared, &s))
        else {
            return false;
        };
        // all packets of the epoch are sent later than any that has arrived.
        stack.first_number = self.arrivals.largest.map_or(0, |(largest, _)| largest + 1);
        self.keep_presentation(&stack);
        let at = self.stacks.partition_point(|s| s.epoch < epoch);
        self.stacks.insert(at, stack);
        true
    }

    /// Closes an epoch under which nothing can arrive any more; says whose it was.
    pub fn retire(&mut self, epoch: u32) -> Option<u8> {
        let at = self.stacks.iter().position(|s| s.epoch == epoch).filter(|_| self.stacks.len() > 1)?;
        let closed = self.stacks.remove(at);
        if let Some(oldest) = self.stacks.first() {
            self.secrets.forget_before(oldest.epoch);
        }
        Some(closed.group)
    }

    /// The open epoch that a packet's five bits mean. Open epochs lie within 32 of each other.
    pub fn by_low_bits(&self, low5: u8) -> Option<usize> {
        self.stacks.iter().rposition(|s| s.epoch % 32 == u32::from(low5))
    }

    /// The stack of an open epoch. Most packets are of the newest.
    #[inline]
    pub fn stack(&self, epoch: u32) -> Option<&ReceiveStack> {
        self.stacks.iter().rev().find(|s| s.epoch == epoch)
    }

    /// The newest open epoch of a group.
    pub fn newest(&self, group: u8) -> Option<&ReceiveStack> {
        self.stacks.iter().rev().find(|s| s.group == group)
    }

    /// Takes mask, cipher and checksum off a packet that came by this connection's id, in place.
    /// Nothing else changes.
    pub(in crate::connection) fn unseal(
        &self,
        dcid: &ConnectionId,
        packet: &mut [u8],
    ) -> Result<Unsealed, Dropped> {
        let first = *packet.first().ok_or(Dropped::Malformed)?;
        let index = self.by_low_bits(peek_epoch(first)).ok_or(Dropped::UnknownEpoch)?;
        let stack = &self.stacks[index];
        let pn_offset = AdaptiveHeader::pn_offset(packet, dcid).ok_or(Dropped::Malformed)?;
        let protection = stack.protection.as_deref().ok_or(Dropped::UnknownEpoch)?;
        let mask = if protection.sample_bytes() > 0 {
            protection.header_mask(sample(packet, pn_offset).map_err(|_| Dropped::Malformed)?)
        } else {
            [0; 5]
        };
        let truncated = unmask(packet, pn_offset, &mask).map_err(|_| Dropped::Malformed)?;
        let expected = self.arrivals.largest.map_or(0, |(largest, _)| largest + 1);
        let number = truncated.expand(expected);
        if number < stack.first_number {
            return Err(Dropped::UnknownEpoch);
        }
        let start = pn_offset + truncated.len();
        if start > packet.len() {
            return Err(Dropped::Malformed);
        }
        // protection.md R-8: a packet that is forged changes nothing, and nothing of it is read.
        let len =
            protection.open(number, dcid.filled(), &mut packet[start..]).map_err(|_| Dropped::Forged)?;
        let trailer_bytes = stack.detection.trailer_bytes();
        let frames_bytes = len.checked_sub(trailer_bytes).ok_or(Dropped::Malformed)?;
        let (covered, sent) = packet[..start + len].split_at_mut(start + frames_bytes);
        let mut trailer = [0; detection::TRAILER_BYTES_MAX];
        let trailer = &mut trailer[..trailer_bytes];
        trailer.copy_from_slice(sent);
        detection::add_left_out(truncated.left_out_of(number), trailer);
        let (repaired, right_bytes) = match stack.detection.check(covered, trailer) {
            Verdict::Right => (false, None),
            // detection.md R-15: the header has been read as it came.
            Verdict::Repaired { at } if at >= start => (true, None),
            Verdict::RightTo(at) if at >= start => (false, Some(at - start)),
            // detection.md R-3
            Verdict::Repaired { .. } | Verdict::RightTo(_) | Verdict::Wrong => {
                return Err(Dropped::Malformed);
            }
        };
        if self.arrivals.is_duplicate(number) {
            return Err(Dropped::Duplicate);
        }
        let frames = start..start + frames_bytes;
        Ok(Unsealed { epoch: stack.epoch, number, frames, repaired, right_bytes })
    }
}
