//! Tests of RouterPC, apart from the others of the laboratory: they look at what is left on the
//! machine.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the laboratory faces the world: real sockets, real time"
)]

mod bed;
#[path = "../running/mod.rs"]
mod running;
#[path = "../skip/mod.rs"]
mod skip;

mod router;
mod router_links;
mod router_nat;
mod router_program;
