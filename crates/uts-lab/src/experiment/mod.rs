//! Experiments: a file says what to compare, and a directory keeps what came of it.
//!
//! * [`file`](mod@file): the file, and everything that can be wrong with it ([`problem`]).
//! * [`plan`]: all runs that a file means; [`case`]: one of them.
//! * [`runner`]: does what is missing of a plan, with [`progress`].
//! * [`directory`]: what is kept; [`outcome`]: `run.json`; [`samples`]: the tables beside it; [`machine`]: where it was.
//! * [`derived`]: figures that follow from others.
//!
//! docs/lab.md describes both the file and the directory.

pub mod case;
mod csv;
pub mod derived;
pub mod directory;
pub mod file;
pub mod machine;
pub mod outcome;
pub mod plan;
pub mod problem;
pub mod progress;
mod reader;
pub mod runner;
pub mod samples;
mod sweep;
mod template;

pub use sweep::{Sweep, SweepValue};
pub use template::Template;
