//! Codes over a window: each repair is a sum, with coefficients that follow from its key, over the
//! packets that were sent last. A lost packet is in many repairs, and is recovered by the first
//! that brings what is still lacking; it need not wait for the end of a block. After RFC 8681 (RLC
//! over GF(256)), whose coefficients these are.

mod coefficients;
mod decoder;
mod encoder;
#[cfg(test)]
mod tests;

use core::time::Duration;

pub use coefficients::TinyMt32;
pub(super) use coefficients::coefficients;
pub(super) use decoder::Decoder;
pub(super) use encoder::Encoder;

/// Shape of a scheme's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Most packets in the window.
    pub sources: usize,
    /// Packets from one repair to the next.
    pub every: usize,
    /// Longest time that packets may wait for a repair that covers them.
    pub flush: Duration,
}
