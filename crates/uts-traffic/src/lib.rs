//! Traffic of applications over a transport: workloads, the same for every transport and in every
//! world.
//!
//! * [`transport`]: the interface of a transport under test. An adapter is a small implementation
//!   of it.
//! * [`clock`]: time as a workload sees it; real, or virtual.
//! * [`workload`]: what is sent when, and what of it is measured, in the application's terms.
//! * [`spell`]: lengths of time that are drawn at random.
//! * [`run`]: carries a workload out, at the client and at the server, and says which end measures
//!   what.
//! * [`measure`]: the figures and the samples of a run.
//! * [`stream_messages`]: messages for a transport that has only streams.
//!
//! Nothing here opens a socket or reads the clock. The same futures run on tokio over real sockets
//! and in virtual time over the engine.
#![forbid(unsafe_code)]

pub mod clock;
pub mod measure;
mod pattern;
pub mod run;
pub mod spell;
pub mod stream_messages;
pub mod transport;
pub mod workload;
