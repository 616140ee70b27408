//! Measurements of a live connection: the workloads of `uts-traffic` between a client and a server.
//!
//! A client asks for the service `perf` in the handshake. The first flow is for control. On it each
//! end says [`ToServer`] and [`ToClient`] as JSON behind a length of four bytes (big-endian):
//! what is to be measured, then the time, then what each end has seen. All other flows carry the
//! workload. A server measures for one client at a time, as measurements disturb each other.

mod clock;
mod control;
pub mod end;
mod server;

pub use clock::{SharedClock, agree};
pub use control::{Control, LASTS_MAX, Request, ToClient, ToServer, VERSION, Way, hear};
pub use end::{Half, Report, measure};
pub use server::Server;

/// Service that a client asks for in the handshake.
pub const SERVICE: &str = "perf";
