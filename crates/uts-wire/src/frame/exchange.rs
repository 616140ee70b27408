//! Frames of the exchange of profiles (`spec/exchange.md`).

use super::kind;
use crate::error::WireError;
use crate::profile::{WireChoice, WireProfile};
use crate::varint::{Reader, Sink, emitters};

/// Groups of flows that a direction can have. [P-25]
pub const MAX_GROUPS: usize = 8;

/// A direction of data, as seen by the sender of the frame that names it. [P-25]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Direction {
    /// Data that the sender of this frame sends.
    FromSender = 0,
    /// Data that the sender of this frame receives.
    ToSender = 1,
}

/// Asks that a direction change to another profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPf {
    /// Which direction is to change.
    pub direction: Direction,
    /// Which group of flows.
    pub group: u8,
    /// The epoch that the profile gets.
    pub epoch: u32,
    /// The epoch in use for each group, if the sender of data asks; otherwise all `None`.
    pub using: [Option<u32>; MAX_GROUPS],
    /// The profile; boxed because it is large and rare.
    pub profile: Box<WireProfile>,
}

/// A packet whose profile the receiver may not know yet, with the request for it. [P-63]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsePf<'a> {
    /// Which group of flows.
    pub group: u8,
    /// The epoch of the packet.
    pub epoch: u32,
    /// The number of the first packet that was built under it.
    pub first: u64,
    /// The epoch in use for each group before.
    pub using: [Option<u32>; MAX_GROUPS],
    /// The profile; boxed because it is large and rare.
    pub profile: Box<WireProfile>,
    /// The packet, as it would be sent alone.
    pub packet: &'a [u8],
}

/// Agrees: the receiver of data has opened the epoch, or its sender will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPf {
    /// The request's direction, as seen by the sender of this frame.
    pub direction: Direction,
    /// The request's epoch.
    pub epoch: u32,
}

/// Refuses, and says what would be agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NakPf {
    /// The request's direction, as seen by the sender of this frame.
    pub direction: Direction,
    /// The request's epoch.
    pub epoch: u32,
    /// The function whose mechanism cannot be had.
    pub function: u8,
    /// Why.
    pub reason: u8,
    /// Mechanism that the sender of this frame has instead.
    pub alternative: Option<WireChoice>,
}

/// Ends an exchange: the requester has the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmPf {
    /// The request's direction, as seen by the sender of this frame.
    pub direction: Direction,
    /// The request's epoch.
    pub epoch: u32,
}

/// Answers a request whose number came too late; it will never be agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StalePf {
    /// The request's direction, as seen by the sender of this frame.
    pub direction: Direction,
    /// The request's epoch.
    pub epoch: u32,
    /// The highest epoch that the sender of this frame knows.
    pub highest: u32,
}

impl Direction {
    /// The same direction as the other end sees it.
    pub const fn seen_by_peer(self) -> Direction {
        match self {
            Direction::FromSender => Direction::ToSender,
            Direction::ToSender => Direction::FromSender,
        }
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let at = r.offset();
        match r.u8("direction")? {
            0 => Ok(Direction::FromSender),
            1 => Ok(Direction::ToSender),
            found => Err(WireError::value("direction", at, u64::from(found), "0 or 1")), // P-25
        }
    }

    pub(crate) fn write<S: Sink>(self, out: &mut S) {
        out.put_u8(self as u8);
    }
}

fn read_group(r: &mut Reader<'_>) -> Result<u8, WireError> {
    let at = r.offset();
    let group = r.varint_u8("group")?;
    if usize::from(group) >= MAX_GROUPS {
        return Err(WireError::value("group", at, u64::from(group), "below 8")); // P-25
    }
    Ok(group)
}

fn read_using(r: &mut Reader<'_>) -> Result<[Option<u32>; MAX_GROUPS], WireError> {
    let mask = r.u8("groups in use")?;
    let mut using = [None; MAX_GROUPS];
    for (index, slot) in using.iter_mut().enumerate() {
        if mask >> index & 1 == 1 {
            *slot = Some(r.varint_u32("epoch in use")?);
        }
    }
    Ok(using)
}

fn write_using<S: Sink>(using: &[Option<u32>; MAX_GROUPS], out: &mut S) {
    let used = using.iter().enumerate().filter(|(_, epoch)| epoch.is_some());
    out.put_u8(used.fold(0, |mask, (index, _)| mask | 1 << index));
    using.iter().flatten().for_each(|epoch| out.put_varint(u64::from(*epoch)));
}

impl<'a> UsePf<'a> {
    pub(crate) fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let (group, epoch) = (read_group(r)?, r.varint_u32("epoch")?);
        let (first, using) = (r.varint("first packet number")?, read_using(r)?);
        let profile = Box::new(WireProfile::read(r)?);
        Ok(UsePf { group, epoch, first, using, profile, packet: r.rest() })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::USE_PF);
        out.put_varint(u64::from(self.group));
        out.put_varint(u64::from(self.epoch));
        out.put_varint(self.first);
        write_using(&self.using, out);
        self.profile.write(out);
        out.put(self.packet);
    }
}

impl RequestPf {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (direction, group) = (Direction::read(r)?, read_group(r)?);
        let (epoch, using) = (r.varint_u32("epoch")?, read_using(r)?);
        Ok(RequestPf { direction, group, epoch, using, profile: Box::new(WireProfile::read(r)?) })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::REQUEST_PF);
        self.direction.write(out);
        out.put_varint(u64::from(self.group));
        out.put_varint(u64::from(self.epoch));
        write_using(&self.using, out);
        self.profile.write(out);
    }
}

impl AckPf {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(AckPf { direction: Direction::read(r)?, epoch: r.varint_u32("epoch")? })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::ACK_PF);
        self.direction.write(out);
        out.put_varint(u64::from(self.epoch));
    }
}

impl NakPf {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (direction, epoch) = (Direction::read(r)?, r.varint_u32("epoch")?);
        let (function, reason) = (r.u8("function")?, r.u8("refusal reason")?);
        let at = r.offset();
        let alternative = match r.u8("alternative count")? {
            0 => None,
            1 => Some(WireChoice::read(r)?),
            found => return Err(WireError::value("alternative count", at, u64::from(found), "0 or 1")), // P-26
        };
        Ok(NakPf { direction, epoch, function, reason, alternative })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::NAK_PF);
        self.direction.write(out);
        out.put_varint(u64::from(self.epoch));
        out.put(&[self.function, self.reason, u8::from(self.alternative.is_some())]);
        if let Some(choice) = &self.alternative {
            choice.write(out);
        }
    }
}

impl ConfirmPf {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(ConfirmPf { direction: Direction::read(r)?, epoch: r.varint_u32("epoch")? })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::CONFIRM_PF);
        self.direction.write(out);
        out.put_varint(u64::from(self.epoch));
    }
}

impl StalePf {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let direction = Direction::read(r)?;
        Ok(StalePf { direction, epoch: r.varint_u32("epoch")?, highest: r.varint_u32("highest epoch")? })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::STALE_PF);
        self.direction.write(out);
        out.put_varint(u64::from(self.epoch));
        out.put_varint(u64::from(self.highest));
    }
}

emitters!(RequestPf, UsePf<'_>, AckPf, NakPf, ConfirmPf, StalePf);
