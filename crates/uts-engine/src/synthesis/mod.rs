//! Synthesis: from a profile to the stack that sends or receives under it.
//!
//! Slots are enums: each function costs a packet a jump, not a pointer (design section 2, principle
//! 7). What the connection shares (congestion, rate, timing) is not in a stack. The connection has
//! one slot of each. An exchange replaces it and hands over what the old one knew.

use crate::connection::keys::KeyUse;
use bytes::Bytes;
use std::sync::Arc;
use uts_functions::acknowledgement::Acknowledgement as _;
use uts_functions::fec::Fec;
use uts_functions::mechanism::Promise;
use uts_functions::protection::Secret;
use uts_functions::retransmission::{Demand, Retransmission as _};
use uts_functions::{
    Function, Profile, Time, acknowledgement, detection, fec, flow, presentation, protection, retransmission,
    segmentation, sequencing,
};
use uts_wire::frame::{self, Data, DataFlags};

/// The run-time protocol of one epoch at the sender of data.
pub(crate) struct SendStack {
    pub epoch: u32,
    pub group: u8,
    pub profile: Arc<Profile>,
    pub detection: detection::Slot,
    /// `None` while the connection rests: the keys come from the epoch's secret again.
    pub protection: Option<Box<protection::Slot>>,
    /// `None` where FEC is inert.
    pub fec: Option<Box<fec::Encoder>>,
    pub retransmission: retransmission::Slot,
    pub acknowledgement: acknowledgement::Slot,
    pub flow: flow::Slot,
    pub segmentation: segmentation::Slot,
    pub presentation: presentation::Slot,
    pub layout: DataLayout,
    /// Flow control looks at what is outstanding.
    pub windows: bool,
    /// The receiver asks for what it lacks.
    pub is_demanded: bool,
    /// Every packet of a run costs its mechanisms the same: packets may be built as runs.
    pub is_uniform: bool,
    /// A cipher or a checksum covers packet numbers, those bytes too that are not sent.
    pub checks_numbers: bool,
    /// Use of its keys, against the cipher's limit.
    pub keys: KeyUse,
}

/// The run-time protocol of one epoch at the receiver of data.
pub(crate) struct ReceiveStack {
    pub epoch: u32,
    pub group: u8,
    pub profile: Arc<Profile>,
    pub detection: detection::Slot,
    /// `None` while the connection rests: the keys come from the epoch's secret again.
    pub protection: Option<Box<protection::Slot>>,
    pub fec: Option<Box<fec::Decoder>>,
    pub acknowledgement: acknowledgement::Slot,
    pub flow: flow::Slot,
    pub sequencing: sequencing::Slot,
    pub presentation: presentation::Slot,
    /// Mechanism that asks for missing data, if one does: each flow has its own.
    pub demand: Option<Box<dyn Demand>>,
    pub layout: DataLayout,
    /// Every packet of a run costs its mechanisms the same: packets may be taken in as runs.
    pub is_uniform: bool,
    /// Packets below this number are older than the epoch.
    pub first_number: u64,
}

/// Fields of a data frame that the profile's mechanisms need (P-30, P-62).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataLayout {
    /// Lost data is sent again.
    pub repeats: bool,
    /// Positions are sent. They are left out if nobody needs them: whole messages, never repeated,
    /// in no order, without credit.
    pub offsets: bool,
    /// Messages say what they wait for.
    pub orders: bool,
    /// Messages say when they were made.
    pub times: bool,
    /// Damage is let through at the ends of messages that allow it.
    pub tolerates: bool,
    /// Streams of bytes travel in a form of their own.
    pub lines: bool,
}

impl DataLayout {
    pub fn of(profile: &Profile) -> Self {
        DataLayout {
            repeats: profile.mechanisms().any(|m| m.facts.repeats),
            offsets: profile.mechanisms().any(|m| m.facts.positions),
            orders: profile.mechanisms().any(|m| m.facts.orders),
            times: profile.mechanisms().any(|m| m.facts.times),
            // detection.md R-19: a cipher lets nothing through, and redundancy would spread damage.
            tolerates: profile.mechanisms().any(|m| m.facts.tolerates)
                && profile.is_inert(Function::Protection)
                && profile.is_inert(Function::Fec),
            // What is read in pieces has to come in its order, and all of it.
            lines: profile.mechanisms().any(|m| m.facts.streams)
                && !profile.promises(Function::Segmentation, Promise::Boundaries)
                && profile.promises(Function::Sequencing, Promise::Order)
                && profile.promises(Function::Retransmission, Promise::Reliability),
        }
    }

    /// Where the bytes of a frame stand in their flow, if it carries nothing else. If positions are
    /// not sent, all bytes have the same one.
    pub fn start_of_bytes(self, data: &Data<'_>) -> Option<u64> {
        // P-30: at the front of a flow the position goes without saying.
        let start = data.offset.or(self.offsets.then_some(0));
        start.filter(|_| data.flags == DataFlags::default())
    }

    /// True if a frame carries a whole message that has no position.
    #[inline]
    pub const fn is_unplaced_message(&self, data: &Data<'_>) -> bool {
        let DataFlags { fin, message, begin, end, .. } = data.flags;
        !self.offsets && data.offset.is_none() && message && begin && end && !fin
    }
}

impl SendStack {
    /// Builds the stack; `None` if this library lacks a mechanism of the profile.
    pub fn new(now: Time, epoch: u32, group: u8, profile: &Arc<Profile>, secret: &Secret) -> Option<Self> {
        let fec = fec::Slot::build(profile.get(Function::Fec), ())?;
        Some(SendStack {
            epoch,
            group,
            profile: Arc::clone(profile),
            detection: detection::Slot::build(profile.get(Function::Detection), ())?,
            protection: Some(Box::new(protection::Slot::build(profile.get(Function::Protection), secret)?)),
            fec: (!profile.is_inert(Function::Fec)).then(|| fec.encoder()),
            retransmission: retransmission::Slot::build(profile.get(Function::Retransmission), ())?,
            acknowledgement: acknowledgement::Slot::build(profile.get(Function::Acknowledgement), ())?,
            flow: flow::Slot::build(profile.get(Function::Flow), ())?,
            segmentation: segmentation::Slot::build(profile.get(Function::Segmentation), ())?,
            presentation: presentation::Slot::build(profile.get(Function::Presentation), ())?,
            layout: DataLayout::of(profile),
            windows: profile.mechanism(Function::Flow).is_some_and(|m| m.facts.windows),
            is_demanded: profile.mechanism(Function::Retransmission).is_some_and(|m| m.facts.speaks),
            is_uniform: profile.is_uniform(),
            checks_numbers: !(profile.is_inert(Function::Protection)
                && profile.is_inert(Function::Detection)),
            keys: KeyUse::new(now),
        })
    }
}

impl SendStack {
    /// True if the receiver reports only when it is asked: packets that are to be answered must
    /// poll.
    pub fn polls(&self) -> bool {
        self.acknowledgement.poll(u32::MAX, true)
    }
}

impl ReceiveStack {
    /// Builds the stack; `None` if this library lacks a mechanism of the profile.
    pub fn new(epoch: u32, group: u8, profile: &Arc<Profile>, secret: &Secret) -> Option<Self> {
        let fec = fec::Slot::build(profile.get(Function::Fec), ())?;
        Some(ReceiveStack {
            epoch,
            group,
            profile: Arc::clone(profile),
            detection: detection::Slot::build(profile.get(Function::Detection), ())?,
            protection: Some(Box::new(protection::Slot::build(profile.get(Function::Protection), secret)?)),
            fec: (!profile.is_inert(Function::Fec)).then(|| fec.decoder()),
            acknowledgement: acknowledgement::Slot::build(profile.get(Function::Acknowledgement), ())?,
            flow: flow::Slot::build(profile.get(Function::Flow), ())?,
            sequencing: sequencing::Slot::build(profile.get(Function::Sequencing), ())?,
            presentation: presentation::Slot::build(profile.get(Function::Presentation), ())?,
            demand: retransmission::Slot::build(profile.get(Function::Retransmission), ())?.demand(),
            layout: DataLayout::of(profile),
            is_uniform: profile.is_uniform(),
            first_number: 0,
        })
    }
}

/// A repair as it travels.
pub(crate) fn repair_frame(repair: &fec::Repair) -> frame::Repair<'_> {
    let id = match repair.id {
        fec::RepairId::Block { index, parities } => frame::RepairId::Block { index, parities },
        fec::RepairId::Window { key } => frame::RepairId::Window { key },
    };
    frame::Repair { first: repair.first, mask: &repair.mask, id, symbol: &repair.symbol }
}

/// A repair from the form in which it travels.
pub(crate) fn repair_of(repair: &frame::Repair<'_>) -> fec::Repair {
    let id = match repair.id {
        frame::RepairId::Block { index, parities } => fec::RepairId::Block { index, parities },
        frame::RepairId::Window { key } => fec::RepairId::Window { key },
    };
    let symbol = Bytes::copy_from_slice(repair.symbol);
    fec::Repair { first: repair.first, mask: repair.mask.into(), id, symbol }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data that has a position, or is a part of a message, is looked for among what has come.
    #[test]
    fn only_a_whole_message_without_a_position_is_handed_over_as_it_comes() {
        let whole = DataFlags { message: true, begin: true, end: true, ..DataFlags::default() };
        let parts = [
            DataFlags { message: false, ..whole },
            DataFlags { begin: false, ..whole },
            DataFlags { end: false, ..whole },
            DataFlags { fin: true, ..whole },
        ];
        for offsets in [false, true] {
            let layout = DataLayout {
                repeats: false,
                offsets,
                orders: false,
                times: false,
                tolerates: false,
                lines: false,
            };
            let is_unplaced = |flags: DataFlags, offset: Option<u64>| {
                layout.is_unplaced_message(&Data { flow: 0, offset, flags, has_len: false, bytes: b"data" })
            };
            assert_eq!(is_unplaced(whole, None), !offsets);
            assert_eq!(is_unplaced(DataFlags { presented: true, ..whole }, None), !offsets);
            assert!(!is_unplaced(whole, Some(7)));
            assert!(parts.iter().all(|part| !is_unplaced(*part, None)));
        }
    }
}
