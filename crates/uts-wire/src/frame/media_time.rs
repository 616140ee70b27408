//! MediaTime: when a message was made.

use super::kind;
use crate::error::WireError;
use crate::varint::{Reader, Sink, VARINT_MAX, emitters};

/// When a message was made, by its sender's clock. [P-64]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaTime {
    /// The flow.
    pub flow: u32,
    /// Where the message begins.
    pub start: u64,
    /// Microseconds, modulo 2^32.
    pub micros: u32,
}

impl MediaTime {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (flow, start) = (r.varint_u32("flow")?, r.varint("media start")?);
        Ok(MediaTime { flow, start, micros: r.u32("media time")? })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::MEDIA_TIME);
        out.put_varint(u64::from(self.flow));
        out.put_varint(self.start.min(VARINT_MAX));
        out.put(&self.micros.to_be_bytes());
    }
}

emitters!(MediaTime);
