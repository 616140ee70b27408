//! Packets and headers as values: parse and emit, without state, keys, clock or socket.
//!
//! The format is specified in `spec/packets.md`. `P-n` in a comment cites the rule that the line
//! obeys. Two families of packets exist: long, self-describing
//! [establishment](packet::establishment) packets and short [adaptive](packet::adaptive) ones,
//! whose payload is a sequence of [frames](frame). A [`Hello`] inside the TLS handshake says what
//! an endpoint can do.
//!
//! Every parser takes any bytes, never panics, never allocates more than a fixed bound, and returns
//! a [`WireError`] that names the field, the byte and what was expected. Every emitter appends to a
//! `Vec<u8>` exactly `encoded_len()` bytes.
#![forbid(unsafe_code)]

mod cid;
mod error;
pub mod frame;
pub mod library;
pub mod numbers;
pub mod packet;
pub mod profile;
pub mod varint;

pub use cid::{ConnectionId, MAX_CID_LEN};
pub use error::{Problem, WireError};
pub use frame::{Frame, FrameIter};
pub use library::{End, Hello, Limits, MAX_TICKET_BYTES, MIN_UDP_PAYLOAD_BYTES, Ticket};
pub use numbers::OwnNumbers;
pub use profile::{WireChoice, WireProfile};
pub use varint::Reader;

/// The version of the wire format that this crate speaks: "UTS" and 2. [P-2]
pub const VERSION: u32 = 0x5554_5302;

/// The largest position in a flow, packet number, or other value that a variable-length integer can
/// hold. [P-1]
pub const MAX_POSITION: u64 = varint::VARINT_MAX;
