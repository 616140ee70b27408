//! Expedited data: a few bytes that wait for no credit and for nothing before them.

use super::kind;
use crate::error::WireError;
use crate::varint::{Reader, Sink, VARINT_MAX, emitters};

/// The most that an expedited message has, in bytes (ISO 8073 section 6.11). [P-55]
pub const MAX_EXPEDITED_BYTES: usize = 16;

/// An expedited message of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expedited<'a> {
    /// The flow.
    pub flow: u32,
    /// Number of expedited messages of the flow that were sent before it.
    pub number: u64,
    /// The message: at most [`MAX_EXPEDITED_BYTES`].
    pub bytes: &'a [u8],
}

/// The receiver's application has taken an expedited message: the next may follow. [P-56]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpeditedAck {
    /// The flow.
    pub flow: u32,
    /// The number of the message.
    pub number: u64,
}

impl<'a> Expedited<'a> {
    pub(crate) fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let (flow, number) = (r.varint_u32("flow")?, r.varint("expedited number")?);
        let at = r.offset();
        let len = r.varint("expedited length")?;
        if len > MAX_EXPEDITED_BYTES as u64 {
            return Err(WireError::too_long("expedited message", at, len, MAX_EXPEDITED_BYTES as u64)); // P-55
        }
        Ok(Expedited { flow, number, bytes: r.bytes(len, "expedited message")? })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::EXPEDITED);
        out.put_varint(u64::from(self.flow));
        out.put_varint(self.number.min(VARINT_MAX));
        out.put_prefixed(self.bytes);
    }
}

impl ExpeditedAck {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(ExpeditedAck { flow: r.varint_u32("flow")?, number: r.varint("expedited number")? })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::EXPEDITED_ACK);
        out.put_varint(u64::from(self.flow));
        out.put_varint(self.number.min(VARINT_MAX));
    }
}

emitters!(Expedited<'_>, ExpeditedAck);
