//! Tests of the library over real sockets, as one program: each of its own would take as long to
//! build as the rest of them. The examples are beside it, since one registers a mechanism.

mod blocking;
mod blocking_calls;
mod blocking_ends;
mod common;
mod connections;
mod ends;
mod errors;
mod flows;
mod levels;
mod listeners;
mod liveness;
mod logs;
mod messages;
mod moving;
mod playout;
mod services;
mod taking_over;
mod trace;
mod waits;
mod workers;
