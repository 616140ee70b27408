//! A TCP of the nineties as an application of simulated hosts: counted in packets and in ticks of a
//! kernel's clock, as kernels did. What differs from one TCP to another is data: [`sender::Rules`],
//! [`receiver::Rules`].
//!
//! The rules are those of Linux 2.1 and 2.2 as their public sources have them
//! (`net/ipv4/tcp_input.c`, `tcp_output.c`), which is read for facts and not copied. They belong to
//! one host each and are agreed by nobody: no mechanism of the library.
//!
//! * [`clock`]: ticks and time-outs; [`segment`]: what is on the wire;
//! * [`sender`], [`receiver`]: the two ends;
//! * [`world`]: the router between them.

pub mod clock;
pub mod receiver;
pub mod segment;
pub mod sender;
pub mod world;
