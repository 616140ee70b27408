//! Frames about the connection as a whole.

use super::kind;
use crate::error::{Problem, WireError};
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

/// A token that a client may show when it connects again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewToken<'a> {
    /// 1 to [`MAX_TOKEN_BYTES`] bytes that only the server understands.
    pub token: &'a [u8],
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

impl<'a> NewToken<'a> {
    pub(crate) fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let at = r.offset();
        let token = r.prefixed(MAX_TOKEN_BYTES, "token")?;
        if token.is_empty() {
            return Err(WireError::new("token", at, Problem::Missing)); // P-28
        }
        Ok(NewToken { token })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        debug_assert!(!self.token.is_empty() && self.token.len() <= MAX_TOKEN_BYTES);
        out.put_u8(kind::NEW_TOKEN);
        out.put_prefixed(self.token);
    }
}

emitters!(Close<'_>, NewToken<'_>);
