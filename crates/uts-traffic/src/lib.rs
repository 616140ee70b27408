//! What applications do to a transport: workloads, the same for every transport and in every world.
//!
//! * [`transport`]: what a transport under test offers. An adapter is a small implementation of it.
//! * [`clock`]: time as a workload sees it; real, or virtual.
//! * [`workload`]: what is sent when, and what of it is measured, in the application's terms.
//! * [`measure`]: what a run yields.
//!
//! Nothing here opens a socket or reads the clock: the same futures run on tokio over real sockets and in virtual
//! time over the engine.
#![forbid(unsafe_code)]

pub mod clock;
pub mod measure;
pub mod transport;
pub mod workload;
