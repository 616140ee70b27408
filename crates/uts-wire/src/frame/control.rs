//! Frames about the connection as a whole.

use super::kind;
use crate::error::WireError;
use crate::varint::{Reader, Sink, clip, emitters};

/// The longest reason in a close, in bytes. [P-27]
pub const MAX_REASON_BYTES: usize = 256;

/// The longest token, in bytes. [P-28]
pub const MAX_TOKEN_BYTES: usize = 128;

/// Ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close<'a> {
    /// Why, for programs.
    pub code: u64,
    /// Why, for people; what is over [`MAX_REASON_BYTES`] is not sent.
    pub reason: &'a str,
}

impl<'a> Close<'a> {
    pub(crate) fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        Ok(Close { code: r.varint("close code")?, reason: r.text(MAX_REASON_BYTES, "close reason")? })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::CLOSE);
        out.put_varint(self.code);
        out.put_prefixed(clip(self.reason, MAX_REASON_BYTES).as_bytes());
    }
}

emitters!(Close<'_>);
