//! Frames about the ids by which an end is known.

use super::kind;
use crate::cid::ConnectionId;
use crate::error::WireError;
use crate::varint::{Reader, Sink, emitters};

/// Another id by which the sender of the frame is known from now on. [P-37]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewId {
    /// Its number, of those that the sender has given out.
    pub sequence: u32,
    /// Ids of smaller numbers are to be retired; at most `sequence`.
    pub retire_below: u32,
    /// The id, which has a byte at least.
    pub id: ConnectionId,
    /// Token at the end of a stateless reset of a packet with this id; only servers send them.
    pub reset_token: Option<[u8; 16]>,
}

impl NewId {
    pub(super) fn read(frame_kind: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        let sequence = r.varint_u32("connection id number")?;
        let at = r.offset();
        let retire_below = r.varint_u32("retired below")?;
        if retire_below > sequence {
            return Err(WireError::value(
                "retired below",
                at,
                retire_below.into(),
                "at most the id's own number",
            ));
        }
        let at = r.offset();
        let id = ConnectionId::read_prefixed(r, "new connection id")?;
        if id.is_empty() {
            return Err(WireError::value("new connection id", at, 0, "a length of 1 to 20")); // P-37
        }
        let has_token = frame_kind == kind::NEW_ID_RESET;
        let reset_token = if has_token { Some(r.array("stateless reset token")?) } else { None };
        Ok(NewId { sequence, retire_below, id, reset_token })
    }

    pub(super) const fn kind(&self) -> u8 {
        if self.reset_token.is_some() { kind::NEW_ID_RESET } else { kind::NEW_ID }
    }

    pub(super) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(self.kind());
        out.put_varint(self.sequence.into());
        out.put_varint(self.retire_below.into());
        self.id.write_prefixed(out);
        if let Some(token) = &self.reset_token {
            out.put(token);
        }
    }
}

emitters!(NewId);

/// The sender of the frame no longer uses an id of the peer's. [P-38]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetireId {
    /// Its number.
    pub sequence: u32,
}

impl RetireId {
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(RetireId { sequence: r.varint_u32("connection id number")? })
    }

    pub(super) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::RETIRE_ID);
        out.put_varint(self.sequence.into());
    }
}

emitters!(RetireId);
