//! The laboratory: paths to try a transport on, and what measures it there.
//!
//! * [`relay`]: a UDP relay that emulates a path in real time, without privileges.
//! * [`demo`]: a file carried by two processes of `uts` over a path that changes.
//! * [`report`]: one self-contained page from what was recorded.
//! * [`router`]: real hosts in network namespaces behind an emulated network.
//! * [`traces`]: delivery opportunities from files.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the laboratory faces the world: real sockets, real time"
)]

pub mod demo;
pub mod relay;
pub mod report;
pub mod router;
pub mod traces;
