//! Groups with one sender, by multicast: what is sent once reaches every member, and is repaired
//! for those that lost some of it.
//!
//! Members join by an ordinary connection, by which both ends know each other, and the sender
//! gives them the keys of the group. A [`GroupSender`] serves such connections
//! ([`GroupSender::serve`]); a [`GroupReceiver`] joins by one ([`GroupReceiver::join`]). When a
//! member leaves, or its connection ends, the others get another key, and it reads nothing more.
//! The crate `uts-group` has the protocol without IO; `spec/groups.md` says it byte by byte.
//!
//! The rate is fixed by [`SenderSettings::rate`]: nothing looks for congestion.

mod join;
mod receiver;
mod sender;
mod sockets;

pub use receiver::GroupReceiver;
pub use sender::{GroupSender, GroupSenderOptions, GroupStats};
pub use uts_group::wire::MESSAGE_BYTES_MAX;
pub use uts_group::{Answers, Event, SendError, SenderSettings};

/// Service that a member asks for in the handshake. (G-21)
pub const SERVICE: &str = "group";

#[cfg(test)]
mod tests;
