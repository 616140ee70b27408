//! One end of a measured run, as a process of its own: a transport under test, a workload over it,
//! and the results.
//!
//! * [`spec`]: which transport, with which settings, as text.
//! * [`transport`]: kernel TCP, MPTCP, raw UDP and UTS as transports under test, by their names.
//! * [`run()`]: what an end does from its arguments to its last line. [`main`] is the whole of a
//!   program that is such an end. Programs with other transports call them with a [`Provide`] of
//!   their own.
//! * [`mod@line`]: what an end prints and writes.
//! * [`machine`]: what the system tells of the machine.
//! * [`memory`]: what the allocator keeps goes back to the system.
//! * [`output`]: what programs write, and their exit status where it is lost.
//! * [`signals`]: which end a program, and how.
//! * [`clock`]: the machine's monotonic clock, which all ends on it share.
//!
//! A server prints [`line::Ready`] as one line of JSON once clients can connect to it. Each end
//! writes [`line::Line`]s to its file. The last is [`line::Line::End`]. A file without it is of an
//! end that was killed.
#![deny(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "an end faces the world: real sockets, real time"
)]

pub mod clock;
pub mod line;
pub mod machine;
pub mod memory;
pub mod output;
mod run;
pub mod signals;
pub mod spec;
pub mod terminal;
pub mod transport;

pub use run::{Arguments, PARENT_VARIABLE, main, run};
pub use spec::TransportSpec;

use std::rc::Rc;
use uts_traffic::transport::Transport;
use uts_traffic::workload::Workload;

/// Makes a transport under test from its spec.
///
/// # Errors
/// One line for people: no such kind, or a setting that is wrong, with its key.
pub type Provide<'a> = dyn Fn(&TransportSpec, &Context<'_>) -> Result<Rc<dyn Transport>, String> + 'a;

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Accepts the session, and receives, answers or echoes.
    Server,
    /// Opens the session, and sends, asks or types.
    Client,
}

/// Facts of a run that a transport may want to know when it is made.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Which end this is.
    pub role: Role,
    /// Workload that it will carry; transports that are told what an application needs derive it
    /// from this.
    pub workload: &'a Workload,
    /// At a client: what its server said that it is known by ([`Transport::identity`]).
    pub peer: Option<&'a str>,
}
