//! Allowance of a connection, since others share the way to its peer: the endpoint says it, and
//! hears what it came to.

#[cfg(doc)]
use super::Connection;

/// Permission of a connection to send what is not urgent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Admission {
    /// There is room for all.
    #[default]
    Free,
    /// It waits for its turn.
    Waits,
    /// Its turn has come: it has waited longer than pacing would have it.
    Called,
}

/// Allowance of a connection among all that share the way to its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub admission: Admission,
    /// Together with others it brings so much to the peer that processors, not lines, are what
    /// limits it.
    pub is_fast: bool,
}

/// Use that a connection made of its allowance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Polled {
    /// Bytes of each datagram that it has built, but the last, which may be shorter; `None` = it
    /// has built none.
    pub segment_bytes: Option<usize>,
    /// It would have sent more, were it not for others.
    pub has_waited: bool,
    /// It has more to send, and is to be asked again.
    pub has_more: bool,
    /// It goes to another place than the peer's: [`Connection::aside_place`].
    pub is_aside: bool,
}
