//! Sending: epochs in use and what all flows share, packets and batches, and runs of packets that
//! are alike.

pub(in crate::connection) mod envelope;
mod fates;
pub(in crate::connection) mod gate;
pub(in crate::connection) mod outbound;
pub(in crate::connection) mod outgoing;
pub(in crate::connection) mod rate_hint;
pub(in crate::connection) mod run;
mod timely;
mod timeouts;
