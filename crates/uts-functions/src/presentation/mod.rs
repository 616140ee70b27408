//! Presentation: what is done to messages before they are sent, and undone before they are handed over. Byte streams
//! pass unchanged.

use crate::registry;
use enum_dispatch::enum_dispatch;
use std::borrow::Cow;

pub mod lz4;
pub mod none;

/// Why a message that arrived cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Shorter than its own header.
    #[error("a presented message ends within its header")]
    Truncated,
    /// The first byte says something that this mechanism does not know.
    #[error("unknown presentation form {0}")]
    UnknownForm(u8),
    /// The message would be larger than allowed.
    #[error("a message of {bytes} bytes is over the limit of {max_bytes}")]
    TooLarge {
        /// Its size, or what it claims.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// The data is not what its header says.
    #[error("a presented message is corrupt")]
    Corrupt,
}

/// A policy over whole messages; without state, as messages may be lost or overtake each other.
#[enum_dispatch]
pub trait Presentation {
    /// The form in which a message travels.
    fn present<'a>(&self, message: &'a [u8]) -> Cow<'a, [u8]>;
    /// The message, from the form in which it travelled; at most `max_bytes`, whatever the data claims.
    ///
    /// # Errors
    /// [`Error`] if the data is malformed or the message too large.
    fn unpresent<'a>(&self, data: &'a [u8], max_bytes: usize) -> Result<Cow<'a, [u8]>, Error>;
}

registry! {
    /// The presentation mechanism in use.
    #[derive(Clone, Debug)]
    Slot: Presentation, context: ();
    None => none::None,
    Lz4 => lz4::Lz4,
}
