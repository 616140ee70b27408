//! Rx, the remote procedure calls of AFS, without IO: packets as values, and [calls](call).
//!
//! A packet is the payload of a UDP datagram: a [`Header`] of 28 bytes and a [`Body`]. Its fields
//! are those of D. Bachmann, P. Honeyman and L. B. Huston, "The Rx Hex", CITI TR 93-8, 1993, figure
//! 14, but for the last word. The figure has the service before the verifier there. OpenAFS has
//! them the other way round, and so has this crate. Other facts are from the public headers of
//! OpenAFS (`rx_packet.h`, `rx.h`), which are read and not copied.
//!
//! Every parser takes any bytes, never panics, and returns an error that names the field, the byte
//! and what was expected. What was read is emitted as the same bytes.
#![forbid(unsafe_code)]

mod ack;
pub mod call;
mod header;
mod packet;

pub use ack::{Ack, Limits, Reason};
pub use header::{CHANNEL_MASK, Flags, HEADER_BYTES, Header, Type};
pub use packet::{Body, JUMBO_BYTES, Packet, Segments};
pub use uts_wire::{Problem, WireError};
