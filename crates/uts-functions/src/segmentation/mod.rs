//! Segmentation: whether the receiver sees the sender's messages or a run of bytes.
//!
//! The function keeps what the application handed over and the peer has not acknowledged
//! ([`SendBuffer`](buffer::SendBuffer)). Every flow is one sequence of positions: each byte takes
//! one, so does the end of each message and the end of the flow. An exchange between bytes and
//! messages therefore renumbers nothing.

use crate::mechanism::Described;
use crate::registry;
use auto_impl::auto_impl;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;

pub mod buffer;
pub mod bytes;
pub mod messages;

/// A policy over the [`SendBuffer`](buffer::SendBuffer).
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Segmentation: Described + DynClone {
    /// True if the ends of messages are kept.
    fn keeps_boundaries(&self) -> bool;
    /// The largest message that may be sent, in bytes.
    fn message_bytes_max(&self) -> usize;
}

dyn_clone::clone_trait_object!(Segmentation);

registry! {
    /// The segmentation mechanism in use.
    #[derive(Clone, Debug)]
    Slot: Segmentation, context: ();
    Bytes => bytes::Bytes,
    Messages => messages::Messages,
}
