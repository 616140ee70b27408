//! The laboratory: paths to try a transport on, and what measures it there.
//!
//! * [`relay`]: a UDP relay that emulates a path in real time, without privileges.
//! * [`router`]: real hosts in network namespaces behind an emulated network.
//! * [`sim`]: hosts and paths in virtual time.
//! * [`traces`]: delivery opportunities from files.
//! * [`demo`]: a file carried by two processes of `uts` over a path that changes.
//! * [`experiment`]: a file of what to compare, and a directory of what came of it.
//! * [`lateness`]: how late a world in real time is, against its model.
//! * [`worlds`]: where a case of an experiment runs.
//! * [`control`]: changing a path while it runs.
//! * [`report`]: one self-contained page from what was recorded.
//! * [`doctor`]: what this machine permits.
//! * [`program`]: all of it as commands.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the laboratory faces the world: real sockets, real time"
)]

// Commands name this crate as its users do.
extern crate self as uts_lab;

mod cmd;
pub mod control;
pub mod demo;
pub mod doctor;
pub mod experiment;
pub mod lateness;
mod lines;
pub mod program;
pub mod relay;
pub mod report;
pub mod router;
pub mod sim;
pub mod traces;
pub mod worlds;
