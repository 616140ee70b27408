//! Tests of the program `uts`, as one program: each of its own would take as long to build as the
//! rest of them.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "processes of the system, in real time"
)]

mod abrupt;
mod budget;
mod bypasses;
mod clients;
mod common;
mod conditions;
mod daily;
mod documents;
mod group;
mod hostile_servers;
mod hosts;
mod installing;
mod interop;
mod lab;
mod measuring;
mod media;
mod mirrors;
mod moving;
mod operating;
mod outputs;
mod peers;
mod pipes;
mod program;
mod receiving;
mod serving;
mod settings;
mod signals;
mod sleeping;
mod ssh;
mod standard_streams;
mod taking_over;
mod tunnel_associations;
mod tunnel_ends;
mod tunnel_limits;
mod tunnel_reach;
mod tunnel_tries;
mod tunnels;
mod words;
