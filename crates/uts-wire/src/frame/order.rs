//! Order: how much of a flow a message has to wait for.

use super::kind;
use crate::error::WireError;
use crate::varint::{Reader, Sink, VARINT_MAX, emitters};
use core::ops::Range;

/// A message need not wait for all that was sent before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The flow.
    pub flow: u32,
    /// Where the message begins.
    pub start: u64,
    /// The positions that it waits for, which do not end behind `start`.
    pub after: Range<u64>,
}

impl Order {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (flow, start) = (r.varint_u32("flow")?, r.varint("order start")?);
        let at = r.offset();
        let distance = r.varint("order distance")?;
        let Some(end) = start.checked_sub(distance) else {
            return Err(WireError::value("order distance", at, distance, "at most the message's position")); // P-36
        };
        let at = r.offset();
        let len = r.varint("order length")?;
        let Some(from) = end.checked_sub(len) else {
            return Err(WireError::value("order length", at, len, "at most what is before it")); // P-36
        };
        Ok(Order { flow, start, after: from..end })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        let end = self.after.end.min(self.start);
        out.put_u8(kind::ORDER);
        out.put_varint(u64::from(self.flow));
        out.put_varint(self.start.min(VARINT_MAX));
        out.put_varint(self.start - end);
        out.put_varint(end.saturating_sub(self.after.start));
    }
}

emitters!(Order);
