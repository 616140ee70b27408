//! Measurements of a live connection: the workloads of `uts-traffic` between a client and a server.
//!
//! A client asks for the service `perf` in the handshake. The first flow is for control. On it each
//! end says [`ToServer`] and [`ToClient`] as JSON behind a length of four bytes (big-endian):
//! what is to be measured, then the time, then what each end has seen. All other flows carry the
//! workload. A server measures for one client at a time, as measurements disturb each other.
//!
//! * [`control`]: what the ends say to each other, and the bounds of a measurement.
//! * [`client`], [`server`]: the two ends, from the first word to the last.
//! * [`end`]: the workload itself, which is the same at both, and what an end reports of it.
//! * [`intervals`]: what goes out and comes in meanwhile.
//! * [`outcome`]: the reports of both ends beside each other.
//!
//! Each end is handed its clock: the machine's, or that of a network in virtual time, in which all
//! of this runs as well (`tests/paths`). Nothing here opens a socket.
#![forbid(unsafe_code)]

pub mod client;
mod clock;
pub mod control;
pub mod end;
pub mod intervals;
pub mod outcome;
pub mod server;

pub use client::{MeasureError, Measurement};
pub use control::{LASTS_MAX, Request, ToClient, ToServer, VERSION, Way, hear};
pub use end::{FlowReport, Half, Report};
pub use intervals::{Interval, Intervals};
pub use outcome::{Ended, Measured, Seen};
pub use server::Server;

/// Service that a client asks for in the handshake.
pub const SERVICE: &str = "perf";
