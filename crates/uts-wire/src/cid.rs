//! Connection ids.

use crate::error::WireError;
use crate::varint::{Reader, Sink};
use core::fmt;

/// The longest connection id, in bytes. [P-3]
pub const MAX_CID_LEN: usize = 20;

/// Whole blocks take protection least.
const FILLED_CID_LEN: usize = 16;

/// A connection id: 0 to 20 bytes that its owner chose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ConnectionId {
    len: u8,
    // Bytes beyond `len` are zero, so that the derived comparisons hold.
    bytes: [u8; MAX_CID_LEN],
}

impl ConnectionId {
    /// The id without bytes.
    pub const EMPTY: ConnectionId = ConnectionId { len: 0, bytes: [0; MAX_CID_LEN] };

    /// An id of these bytes; `None` if there are more than [`MAX_CID_LEN`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut cid = ConnectionId { len: u8::try_from(bytes.len()).ok()?, ..Self::EMPTY };
        cid.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(cid)
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// The bytes, those of a shorter id padded with zeros to 16, as protection authenticates them.
    /// [P-39]
    pub fn filled(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len).max(FILLED_CID_LEN)).unwrap_or(&self.bytes)
    }

    /// Appends the bytes.
    #[inline]
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        // As many as there may be at once, which takes no call.
        let end = out.len().saturating_add(self.len());
        out.extend_from_slice(&self.bytes);
        out.truncate(end);
    }

    /// Number of bytes, 0 to 20.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// True if it has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads an id of a known length.
    pub(crate) fn read(r: &mut Reader<'_>, len: usize, what: &'static str) -> Result<Self, WireError> {
        let at = r.offset();
        if len > MAX_CID_LEN {
            return Err(WireError::too_long(what, at, len as u64, MAX_CID_LEN as u64));
        }
        let bytes = r.bytes(len as u64, what)?;
        ConnectionId::new(bytes).ok_or(WireError::too_long(what, at, len as u64, MAX_CID_LEN as u64))
    }

    /// Reads a length byte and the id.
    pub(crate) fn read_prefixed(r: &mut Reader<'_>, what: &'static str) -> Result<Self, WireError> {
        let at = r.offset();
        let len = r.u8(what)?;
        if usize::from(len) > MAX_CID_LEN {
            return Err(WireError::too_long(what, at, u64::from(len), MAX_CID_LEN as u64)); // P-3
        }
        Self::read(r, usize::from(len), what)
    }

    pub(crate) fn write_prefixed<S: Sink>(&self, out: &mut S) {
        out.put_u8(self.len);
        out.put(self.as_slice());
    }
}

impl AsRef<[u8]> for ConnectionId {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionId({self})")
    }
}
