//! Receiving: open epochs and what has arrived, what packets consist of, and runs of packets that
//! are alike.

pub(in crate::connection) mod contents;
pub(in crate::connection) mod damaged;
pub(in crate::connection) mod held;
pub(in crate::connection) mod inbound;
pub(in crate::connection) mod incoming;
pub(in crate::connection) mod messages;
pub(in crate::connection) mod presentations;
pub(in crate::connection) mod receive_rate;
mod room;
pub(in crate::connection) mod run;
