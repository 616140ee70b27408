//! A group with one sender, by multicast, without IO: time, seeds and datagrams are handed in.
//!
//! The sender cuts what it sends into blocks. A receiver that lacks something of a block waits for
//! a random time, and asks the sender for so many symbols as it lacks (NACK). The sender answers
//! with parities to all: one parity repairs a different loss at each receiver. Whoever sees that as
//! many repairs come as it needs does not ask. So the number of requests hardly grows with the
//! group. This is the scheme of RFC 5401 and NORM (RFC 5740), with requests that go to the sender
//! alone and an echo of its own to all. (G-1)
//!
//! [`Sender`] and [`Receiver`] speak in values (`wire`); [`seal`] has the keys under which these
//! travel. `uts::group` has both over sockets. See `spec/groups.md`.
#![forbid(unsafe_code)]

pub mod backoff;
mod code;
mod receiver;
pub mod seal;
mod sender;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod wire;

pub use code::SOURCES_MAX;
pub use receiver::{Event, Receiver, ReceiverSettings, ReceiverStats};
pub use sender::{SendError, Sender, SenderSettings, SenderStats};

use core::time::Duration;

/// The longest datagram of a group: 1500 bytes, less the headers of IPv6 and UDP.
pub const DATAGRAM_BYTES_MAX: usize = 1452;

/// The manner in which requests are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// At once, by what the first request lacks; later ones add what they lack beyond. (G-16)
    #[default]
    Prompt,
    /// By all that was asked within the longest wait and a round trip, as in RFC 5740 section 5.4.
    Gathered,
}

impl Answers {
    /// Time from the first request until repairs leave.
    fn gathers(self, grtt: Duration, backoff: u8) -> Duration {
        match self {
            Answers::Prompt => Duration::ZERO,
            Answers::Gathered => grtt * (u32::from(backoff) + 1),
        }
    }

    /// Time for which a receiver does not ask again, after it has asked or heard of others.
    /// (G-15)
    fn holds(self, grtt: Duration, backoff: u8) -> Duration {
        match self {
            Answers::Prompt => grtt * 2,
            Answers::Gathered => grtt * (u32::from(backoff) + 2),
        }
    }
}
