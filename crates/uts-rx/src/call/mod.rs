//! Calls of Rx without IO: a client with one call at a time on a channel, and a server that
//! executes each call once. Bytes go both ways, as many as wanted; what they mean is the
//! application's.
//!
//! Packets of data are numbered in each direction, and acknowledged one by one. The answer
//! acknowledges the request, and the next call the answer before it. Packets that are not
//! acknowledged in time are sent again. Time is handed in, as a span since an origin of the
//! caller's.
//!
//! There is no security mechanism but none (0), and no jumbogram is sent.

mod client;
mod half;
mod server;

pub use client::{Client, Failure};
pub use half::{DATA_BYTES, WINDOW_PACKETS};
pub use server::{Places, Server};
