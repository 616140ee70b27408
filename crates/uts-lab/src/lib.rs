//! The laboratory: a file says what to compare, and a directory keeps what came of it.
//!
//! * [`experiment`]: the file, and the runs that it means.
//! * [`runner`]: does what is missing of them, with [`progress`].
//! * [`shard`]: which of them this process does, if several share them.
//! * [`worlds`]: where a run happens: virtual time (`uts-sim-world`), a relay (`uts-relay`), hosts
//!   behind RouterPC (`uts-router`).
//! * [`transports`]: what there is to compare.
//! * [`control`]: changing a path while it runs.
//! * [`doctor`]: what this machine permits.
//! * [`probes`]: where the time of a packet goes.
//! * [`program`]: all of it as commands.
//!
//! `uts-record` writes and reads the results. `uts-report` makes pages of them. `uts-demo` is the
//! demonstration.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the laboratory faces the world: real sockets, real time"
)]

// Commands name this crate as its users do.
extern crate self as uts_lab;

mod cmd;
pub mod control;
mod disk;
pub mod doctor;
pub mod experiment;
mod names;
pub mod probes;
pub mod program;
pub mod progress;
pub mod runner;
pub mod shard;
pub mod transports;
pub mod worlds;
