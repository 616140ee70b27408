//! Virtual time: hosts, routers and paths, and around them the engine that runs on the real
//! network, in a world whose clock the caller moves.
//!
//! * [`topology`]: which hosts and routers there are, and the paths between them;
//! * [`network`]: the same in virtual time, with an [`network::Application`] at each port;
//! * [`cost`]: hosts whose work takes time;
//! * [`traffic`]: sources and sinks without an engine; [`host`]: the engine;
//! * [`pair`]: two endpoints in memory, for what is counted;
//! * [`world`]: one server, some clients, one path that they all share: the world of most tests;
//!   [`transfer`]: what its hosts do.
//!
//! Everything follows from one seed, on any machine, except the bytes of TLS's keys. Nothing
//! depends on those.
#![forbid(unsafe_code)]

mod agenda;
pub mod cost;
pub mod host;
pub mod identity;
pub mod network;
pub mod packet;
pub mod pair;
mod pcap;
pub mod topology;
pub mod traffic;
pub mod transfer;
pub mod world;

pub use world::{Happening, NodeId, World, WorldConfig, WorldError};
