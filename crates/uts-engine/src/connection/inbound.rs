//! What the peer sends: open epochs, and which packets arrived.

use super::secrets::SecretChain;
use crate::synthesis::ReceiveStack;
use uts_functions::acknowledgement::Arrivals;
use uts_functions::{Function, Profile, presentation};

pub(crate) struct Inbound {
    /// Open epochs, oldest first.
    pub stacks: Vec<ReceiveStack>,
    pub secrets: SecretChain,
    pub arrivals: Arrivals,
    /// What undoes the presentation of messages. They keep their form when the profile changes, so it outlives its epoch.
    pub presentation: Option<presentation::Slot>,
    /// Packets that failed authentication, against the cipher's limit.
    pub forged: u64,
    /// Acknowledgement-only packets sent since the last one that was itself acknowledged.
    pub reports: u32,
}

impl Inbound {
    /// The direction's start. `None` if this library lacks a mechanism of the profile.
    pub fn new(profile: &Profile, secrets: SecretChain) -> Option<Self> {
        let stack = ReceiveStack::new(0, 0, profile, &secrets.of(0)?)?;
        let arrivals = Arrivals::default();
        let presentation = presentation_of(&stack);
        Some(Inbound { stacks: vec![stack], secrets, arrivals, presentation, forged: 0, reports: 0 })
    }

    /// Opens an epoch. Says whether the library had everything.
    pub fn open(&mut self, epoch: u32, group: u8, profile: &Profile) -> bool {
        let Some(mut stack) =
            self.secrets.of(epoch).and_then(|s| ReceiveStack::new(epoch, group, profile, &s))
        else {
            return false;
        };
        // all packets of the epoch are sent later than any that has arrived.
        stack.first_number = self.arrivals.largest.map_or(0, |(largest, _)| largest + 1);
        self.presentation = presentation_of(&stack).or(self.presentation.take());
        let at = self.stacks.partition_point(|s| s.epoch < epoch);
        self.stacks.insert(at, stack);
        true
    }

    /// Closes an epoch under which nothing can arrive any more.
    pub fn retire(&mut self, epoch: u32) {
        if self.stacks.len() > 1 {
            self.stacks.retain(|s| s.epoch != epoch);
        }
        if let Some(oldest) = self.stacks.first() {
            self.secrets.forget_before(oldest.epoch);
        }
    }

    /// The open epoch that a packet's five bits mean. Open epochs lie within 32 of each other.
    pub fn by_low_bits(&self, low5: u8) -> Option<usize> {
        self.stacks.iter().rposition(|s| s.epoch % 32 == u32::from(low5))
    }

    /// The profile of the newest open epoch of a group.
    pub fn newest(&self, group: u8) -> Option<&ReceiveStack> {
        let of = |group| self.stacks.iter().rev().find(|s| s.group == group);
        of(group).or_else(|| of(0))
    }

    /// What the newest open epoch of a group is, to change.
    pub fn newest_mut(&mut self, group: u8) -> Option<&mut ReceiveStack> {
        let index = self
            .stacks
            .iter()
            .rposition(|s| s.group == group)
            .or(self.stacks.iter().rposition(|s| s.group == 0));
        self.stacks.get_mut(index?)
    }

    pub fn heap_bytes(&self) -> usize {
        self.stacks.capacity() * size_of::<ReceiveStack>()
            + self.arrivals.received.heap_bytes()
            + self.arrivals.repaired.heap_bytes()
    }
}

/// The stack's presentation, unless it is `none`.
fn presentation_of(stack: &ReceiveStack) -> Option<presentation::Slot> {
    (stack.profile.name(Function::Presentation) != "none").then(|| stack.presentation.clone())
}
