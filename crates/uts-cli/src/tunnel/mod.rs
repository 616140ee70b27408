//! Tunnels of the program, and streams of other programs that it carries: what the log and the
//! account of a server hear of them, and how the user looks at them and changes them.

pub mod audit;
pub mod board;
pub mod streams;
