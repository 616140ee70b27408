//! Runs: what follows the first packet of a batch is mostly more of the same, full packets of the next bytes of one flow, a message
//! that is as long, or as many messages.
//!
//! What holds for all of them is asked once; each then is built, or taken in, by what is its own. Wherever anything else may be
//! due, or has come, the general way (`outgoing.rs`, `incoming.rs`) has it: it would have built, or taken in, every packet of a
//! run just so.

mod received;
mod sent;

pub(super) use sent::Alike;
