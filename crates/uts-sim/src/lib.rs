//! Virtual time: the engine that runs on the network, and the path that the relay emulates, in a world whose clock is
//! moved by whoever looks at it.
//!
//! A [`World`] has clients on the left, one server on the right, and one [`uts_path::Path`] between them that all share.
//! Everything follows from one seed; only the bytes of TLS's keys do not, and nothing depends on those.
#![forbid(unsafe_code)]

pub mod identity;
pub mod transfer;
mod world;

pub use world::{Happening, NodeId, World, WorldConfig};
