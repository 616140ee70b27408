//! Knowledge of a connection: what it has done, what the path is like, what each packet did, and
//! what memory all takes.

mod cause;
pub(in crate::connection) mod inspect;
pub(in crate::connection) mod memory;
pub(in crate::connection) mod meter;
pub(in crate::connection) mod stats;
pub(in crate::connection) mod trace;
