//! Experiments: a file says what to compare.
//!
//! * [`file`](mod@file): the file, and everything that can be wrong with it ([`problem`]);
//!   [`path`](mod@path): a path of it.
//! * [`plan`]: all runs that a file means; [`case`]: one of them.
//! * [`outcome`]: what a world reports of a run; [`measures`](mod@measures): the figures of all;
//!   [`machine`]: where it ran.
//! * [`derived`]: figures that follow from others.
//!
//! docs/lab.md describes both the file and the directory.

pub mod case;
pub mod derived;
pub mod file;
pub mod machine;
pub mod measures;
pub mod outcome;
pub mod path;
pub mod plan;
pub mod problem;
mod reader;
mod sweep;
mod template;

pub use sweep::{Sweep, SweepValue};
pub use template::Template;
