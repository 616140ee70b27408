//! Transports that people use today, under the workloads of the lab: one adapter a file.
//!
//! * [`adapters`]: the list of them, and what each is called, set to and made of.
//! * [`identity`]: the certificates of those that need some.
//! * `native`: the C libraries of those that need one.
//!
//! `README.md` says what each adapter sets, and why that is fair.
#![deny(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "rivals face the world: real sockets, real time, their own random numbers"
)]

pub mod adapters;
pub mod identity;
mod native;

pub use adapters::{list, provide};
